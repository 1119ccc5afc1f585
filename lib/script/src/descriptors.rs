//! What the descriptors of processes lead to, as far as their recorded system calls tell.
//!
//! Given calls that have ended, in the order of time; gives a path, a peer, or a kind. What was
//! open before the recording, or came by a message, is not known. Must not know scripts.

use std::collections::HashMap;

use rhai::ImmutableString;
use sptrace_render::Call;
use sptrace_types::decode::memory::Memory;
use sptrace_types::decode::types::Phase;

const MOST_DESCRIPTORS: usize = 100_000;
const MOST_PATH_BYTES: usize = 4096;

/// Of all processes.
#[derive(Default)]
pub struct Descriptors {
    of: HashMap<u32, HashMap<i64, ImmutableString>>,
}

const OPEN: u32 = 2;
const CLOSE: u32 = 3;
const PIPE: u32 = 22;
const DUP: u32 = 32;
const DUP2: u32 = 33;
const SOCKET: u32 = 41;
const CONNECT: u32 = 42;
const ACCEPT: u32 = 43;
const BIND: u32 = 49;
const SOCKETPAIR: u32 = 53;
const FCNTL: u32 = 72;
const CLONE: u32 = 56;
const FORK: u32 = 57;
const VFORK: u32 = 58;
const CREAT: u32 = 85;
const OPENAT: u32 = 257;
const ACCEPT4: u32 = 288;
const EVENTFD2: u32 = 290;
const EPOLL_CREATE1: u32 = 291;
const DUP3: u32 = 292;
const PIPE2: u32 = 293;
const MEMFD_CREATE: u32 = 319;
const CLOSE_RANGE: u32 = 436;
const CLONE3: u32 = 435;
const OPENAT2: u32 = 437;
const CLONE_THREAD: u64 = 0x10000;
/// A connection is being made, on a socket that does not wait for it.
const EINPROGRESS: i64 = -115;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

impl Descriptors {
    /// What a process's descriptor leads to; `parent`: who it has inherited from, if it is new.
    pub fn name(&mut self, pid: u32, parent: Option<u32>, fd: i64) -> ImmutableString {
        let known = self.table(pid, parent).get(&fd).cloned();
        known.unwrap_or_else(|| match fd {
            0 => "stdin".into(),
            1 => "stdout".into(),
            2 => "stderr".into(),
            n => format!("fd {n}").into(),
        })
    }

    fn table(&mut self, pid: u32, parent: Option<u32>) -> &mut HashMap<i64, ImmutableString> {
        if !self.of.contains_key(&pid) {
            let inherited = parent.and_then(|parent| self.of.get(&parent)).cloned();
            self.of.insert(pid, inherited.unwrap_or_default());
        }
        self.of.entry(pid).or_default()
    }

    /// A call has ended.
    pub fn ended(&mut self, call: &Call, parent: Option<u32>) {
        let goes_on = |result: &i64| call.number == CONNECT && *result == EINPROGRESS;
        let is_done = |result: &i64| *result >= 0 || goes_on(result);
        let Some(result) = call.result.filter(is_done) else {
            return;
        };
        let is_thread = call.number == CLONE && call.args[0] & CLONE_THREAD != 0;
        if matches!(call.number, CLONE | CLONE3 | FORK | VFORK) && !is_thread {
            // Before the parent closes what is the child's.
            if let Ok(child) = u32::try_from(result) {
                self.table(child, Some(call.pid));
            }
            return;
        }
        let first = i64::from(call.args[0] as i32);
        let table = self.table(call.pid, parent);
        if table.len() > MOST_DESCRIPTORS {
            table.clear();
        }
        match call.number {
            OPEN | CREAT => drop(table.insert(result, text(call, call.args[0]))),
            OPENAT | OPENAT2 => drop(table.insert(result, text(call, call.args[1]))),
            CLOSE => drop(table.remove(&first)),
            CLOSE_RANGE => {
                let range = first..=call.args[1].min(i64::MAX as u64) as i64;
                table.retain(|fd, _| !range.contains(fd));
            }
            DUP | DUP2 | DUP3 => copy(table, first, result),
            FCNTL if matches!(call.args[1], F_DUPFD | F_DUPFD_CLOEXEC) => {
                copy(table, first, result);
            }
            SOCKET => drop(table.insert(result, family(call.args[0]).into())),
            CONNECT | BIND => {
                if let Some(peer) = peer(call) {
                    table.insert(first, peer.into());
                }
            }
            ACCEPT | ACCEPT4 => {
                let peer = peer(call).unwrap_or_else(|| "accepted".to_owned());
                table.insert(result, peer.into());
            }
            PIPE | PIPE2 => pair(table, call, call.args[0], "pipe"),
            SOCKETPAIR => pair(table, call, call.args[3], "socketpair"),
            EVENTFD2 => drop(table.insert(result, "eventfd".into())),
            EPOLL_CREATE1 => drop(table.insert(result, "epoll".into())),
            MEMFD_CREATE => drop(table.insert(result, "memfd".into())),
            _ => {}
        }
    }
}

fn copy(table: &mut HashMap<i64, ImmutableString>, from: i64, to: i64) {
    match table.get(&from).cloned() {
        Some(name) => drop(table.insert(to, name)),
        None => drop(table.insert(to, format!("fd {from}").into())),
    }
}

fn pair(table: &mut HashMap<i64, ImmutableString>, call: &Call, at: u64, what: &str) {
    let bytes = call.captured.read(Phase::Exit, at, 8);
    for fd in bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk) {
        table.insert(i64::from(i32::from_le_bytes(*fd)), what.into());
    }
}

fn family(family: u64) -> &'static str {
    match family {
        1 => "unix socket",
        2 => "inet socket",
        10 => "inet6 socket",
        16 => "netlink socket",
        _ => "socket",
    }
}

/// A string that was captured before the call.
pub fn text(call: &Call, address: u64) -> ImmutableString {
    let bytes = call.captured.read(Phase::Entry, address, MOST_PATH_BYTES);
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes));
    text.into_owned().into()
}

/// The address that a call names: of whom it connects to, sends to, or has accepted.
pub fn peer(call: &Call) -> Option<String> {
    let (argument, phase) = match call.number {
        CONNECT | BIND => (call.args[1], Phase::Entry),
        ACCEPT | ACCEPT4 => (call.args[1], Phase::Exit),
        44 => (call.args[4], Phase::Entry),
        45 => (call.args[4], Phase::Exit),
        _ => return None,
    };
    if argument == 0 {
        return None;
    }
    address(call.captured.read(phase, argument, 128))
}

fn address(bytes: &[u8]) -> Option<String> {
    let family = u16::from_le_bytes(*bytes.first_chunk()?);
    let port = bytes
        .get(2..)?
        .first_chunk()
        .map(|b| u16::from_be_bytes(*b));
    match family {
        1 => {
            let path = bytes.get(2..)?;
            let (mark, path) = match path.split_first() {
                Some((0, rest)) => ("@", rest),
                _ => ("", path),
            };
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            let path = String::from_utf8_lossy(path.get(..end)?);
            Some(format!("unix:{mark}{path}"))
        }
        2 => {
            let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(format!("{}:{}", std::net::Ipv4Addr::from(octets), port?))
        }
        10 => {
            let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some(format!("[{}]:{}", std::net::Ipv6Addr::from(octets), port?))
        }
        16 => Some("netlink".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let inet = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address(&inet).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(
            address(b"\x01\0/run/x\0junk").as_deref(),
            Some("unix:/run/x")
        );
        assert_eq!(address(b"\x01\0\0abc\0").as_deref(), Some("unix:@abc"));
        for length in 0..8 {
            assert_eq!(address(&inet[..length]), None);
        }
    }
}
