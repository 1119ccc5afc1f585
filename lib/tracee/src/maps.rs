//! /proc/PID/maps: what lies where in a process, and where there is room.

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
    let text =
        std::fs::read(format!("/proc/{pid}/maps")).map_err(|source| TraceeError::System {
            what: "reading /proc/PID/maps",
            source,
        })?;
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse)
        .collect())
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
