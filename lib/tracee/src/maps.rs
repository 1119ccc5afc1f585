//! /proc/PID/maps: what lies where in a process, and where there is room.

mod query;

use std::fs::File;

use crate::error::TraceeError;

/// One mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First avma.
    pub start: u64,
    /// End avma.
    pub end: u64,
    /// Readable, writable, executable.
    pub access: [bool; 3],
    /// Seen by other processes, or by the process at another place.
    pub is_shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// (device, inode); inode 0 is anonymous.
    pub file: (String, u64),
    /// Path or name, may be empty.
    pub path: String,
}

/// Reads the mappings of a process, in ascending order.
///
/// # Errors
/// /proc/PID/maps cannot be read.
pub fn read(pid: u32) -> Result<Vec<Mapping>, TraceeError> {
    let file = File::open(format!("/proc/{pid}/maps")).map_err(unreadable)?;
    let mut maps = match query::all(&file) {
        Some(maps) => maps,
        None => from_text(pid)?,
    };
    name_patched(&mut maps);
    Ok(maps)
}

fn unreadable(source: std::io::Error) -> TraceeError {
    TraceeError::System {
        what: "reading /proc/PID/maps",
        source,
    }
}

fn from_text(pid: u32) -> Result<Vec<Mapping>, TraceeError> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(parse).collect())
}

/// Pages of text that were patched while threads ran are anonymous: they lie in the middle of their file's
/// mappings, and get its name back here.
fn name_patched(maps: &mut [Mapping]) {
    let is_code = |m: &Mapping| m.access == [true, false, true] && !m.is_shared;
    let is_patched = |m: &Mapping| is_code(m) && m.file.1 == 0 && m.path.is_empty();
    for i in 1..maps.len() {
        let Some([before, m, after @ ..]) = maps.get_mut(i - 1..) else {
            return;
        };
        if !is_patched(m) || before.end != m.start || before.access[1] || before.file.1 == 0 {
            continue;
        }
        let mut end = m.end;
        let next = after.iter().find(|n| {
            let is_one = is_patched(n) && n.start == end;
            end = if is_one { n.end } else { end };
            !is_one
        });
        let offset = before.offset + (m.start - before.start);
        if next.is_some_and(|n| n.start == end && n.file == before.file && n.offset > offset) {
            (m.file, m.path, m.offset) = (before.file.clone(), before.path.clone(), offset);
        }
    }
}

/// True if these are the mappings of a process that an arena is mapped into.
pub fn is_traced(maps: &[Mapping]) -> bool {
    maps.iter()
        .any(|m| m.start == crate::arena::ARENA_AVMA && m.path.contains("memfd:sptrace"))
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let device = fields.next()?;
    let inode = fields.next()?;
    let path = fields.next().unwrap_or("").trim_start();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        access: [
            access.first()? == &b'r',
            access.get(1)? == &b'w',
            access.get(2)? == &b'x',
        ],
        is_shared: access.get(3)? == &b's',
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: (device.to_owned(), inode.parse().ok()?),
        path: path.to_owned(),
    })
}

/// True if `[start, start + bytes)` holds no mapping.
pub fn is_free(maps: &[Mapping], start: u64, bytes: u64) -> bool {
    !maps
        .iter()
        .any(|m| m.start < start + bytes && start < m.end)
}
