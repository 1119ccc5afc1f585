//! The call of the kernel that begins a recording: the execve(2) by which the command is started.
//! It is ours, made before there is an agent.
//!
//! Given the command's arguments; gives what the trace says of such a call. Addresses are made up,
//! as nobody has seen those that were used.

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use sptrace_trace::values::{Piece, Values, What};

use super::Collector;
use super::feed::{Feed, Lane};
use crate::decode::module::PLACE_ENTRY;
use crate::decode::sink::Sink;

const EXECVE: u32 = 59;
/// Where what was never seen may lie: at the end of a stack.
const BASE: u64 = 0x7fff_ffff_0000;

/// An execve of `argv` that has begun, with the caller's environment.
pub fn execve(argv: &[CString]) -> Vec<u8> {
    let path = path_of(argv);
    let arguments: Vec<&[u8]> = argv.iter().map(|a| a.as_bytes_with_nul()).collect();
    let mut at = BASE;
    let mut place = |bytes: usize| {
        let here = at;
        at += (bytes as u64).next_multiple_of(8);
        here
    };
    let path_at = place(path.len());
    let places: Vec<u64> = arguments.iter().map(|a| place(a.len())).collect();
    let pointers: Vec<u8> = places
        .iter()
        .chain([&0])
        .flat_map(|p| p.to_le_bytes())
        .collect();
    let pointers_at = place(pointers.len());
    let variables: Vec<Vec<u8>> = std::env::vars_os().map(variable).collect();
    let variable_places: Vec<u64> = variables.iter().map(|v| place(v.len())).collect();
    let environment: Vec<u8> = variable_places
        .iter()
        .chain([&0])
        .flat_map(|p| p.to_le_bytes())
        .collect();
    let environment_at = place(environment.len());
    let piece = |address, bytes| Piece {
        when: 0,
        address,
        bytes,
    };
    let mut pieces = vec![
        piece(path_at, &path[..]),
        piece(pointers_at, &pointers),
        piece(environment_at, &environment),
    ];
    pieces.extend(
        variable_places
            .iter()
            .zip(&variables)
            .map(|(at, v)| piece(*at, v)),
    );
    pieces.extend(places.iter().zip(&arguments).map(|(at, a)| piece(*at, a)));
    let values = Values {
        number: EXECVE,
        thread: 0,
        what: What::Begins([path_at, pointers_at, environment_at, 0, 0, 0]),
        pieces,
    };
    let mut bytes = Vec::new();
    values.put(&mut bytes);
    bytes
}

/// `NAME=value`, with a zero behind it.
fn variable((name, value): (OsString, OsString)) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat()
}

/// The file that execvp(3) finds, with a zero behind it.
fn path_of(argv: &[CString]) -> Vec<u8> {
    let name = argv.first().map_or(&b""[..], |name| name.as_bytes());
    let mut path = name.to_vec();
    if !name.contains(&b'/') {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let files = std::env::split_paths(&folders).map(|f| f.join(OsStr::from_bytes(name)));
        let found = files.into_iter().find(|file| file.is_file());
        path = found.map_or(path, |file| file.as_os_str().as_bytes().to_vec());
    }
    path.push(0);
    path
}

impl<W: Write> Collector<W> {
    /// The command's first thread begins at `tsc`: it has been executed.
    pub(super) fn tell_first_call(&mut self, lane: &mut Lane, tsc: u64) {
        let Some(begun) = self.first_call.take() else {
            return;
        };
        let mut feed = Feed {
            recorder: &mut self.recorder,
            lane,
        };
        let callee = self.book.system_call(EXECVE, &mut feed);
        feed.enter(tsc, PLACE_ENTRY, callee, |_| None);
        feed.values(tsc, &begun);
        let mut returned = Vec::new();
        let values = Values {
            number: EXECVE,
            thread: 0,
            what: What::Returned(0),
            pieces: Vec::new(),
        };
        values.put(&mut returned);
        feed.values(tsc, &returned);
        feed.exit(tsc);
    }
}
