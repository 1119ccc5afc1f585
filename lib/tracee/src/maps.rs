//! /proc/PID/maps: what lies where in a process, and where there is room.

mod code;
mod query;

pub use code::CodeMap;

use std::fs::File;

use crate::arena::ARENA_AVMA;
use crate::error::TraceeError;
use crate::image::IMAGE_AVMA;

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

impl Mapping {
    /// True if both map the same part of the same file to the same place.
    pub fn is_same_code(&self, other: &Self) -> bool {
        let key = |m: &Self| (m.start, m.end, m.file.1, m.offset);
        key(self) == key(other) && self.file.0 == other.file.0
    }
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

/// Mappings that are asked for one by one, as they are then.
pub struct LiveMaps {
    pid: u32,
    file: File,
}

impl LiveMaps {
    /// Of a process.
    ///
    /// # Errors
    /// It is gone, or may not be looked at.
    pub fn open(pid: u32) -> Result<Self, TraceeError> {
        let file = File::open(format!("/proc/{pid}/maps")).map_err(unreadable)?;
        Ok(Self { pid, file })
    }

    /// Executable mappings of files, in ascending order, without their paths.
    ///
    /// # Errors
    /// It is gone.
    pub fn code(&self) -> Result<Vec<Mapping>, TraceeError> {
        if let Some(code) = query::code(&self.file) {
            return Ok(code);
        }
        let is_code = |m: &Mapping| m.access[2] && m.file.1 != 0;
        Ok(read(self.pid)?.into_iter().filter(is_code).collect())
    }

    /// The first of them that ends after an address.
    pub fn code_around(&self, address: u64) -> Option<Mapping> {
        query::code_around(&self.file, address).unwrap_or_else(|| {
            let all = self.code().ok()?;
            all.into_iter().find(|m| m.end > address)
        })
    }

    /// As [`is_traced`].
    pub fn is_traced(&self) -> bool {
        self.around(ARENA_AVMA).is_some_and(|m| is_arena(&m))
    }

    /// True if this mapping is there still as it was. False as well where the kernel does not
    /// answer for single ones.
    pub fn has_one(&self, m: &Mapping) -> bool {
        query::has(&self.file, m).unwrap_or(false)
    }

    /// The mapping that holds an address, or the next one.
    pub fn around(&self, address: u64) -> Option<Mapping> {
        query::around(&self.file, address).or_else(|| {
            let all = read(self.pid).ok()?;
            all.into_iter().find(|m| m.end > address)
        })
    }
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

/// Pages of text that were patched while threads ran are anonymous: they lie in the middle of their
/// file's mappings, and get its name back here.
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
    maps.iter().any(is_arena)
}

fn is_arena(m: &Mapping) -> bool {
    m.start == ARENA_AVMA && m.path.contains("memfd:sptrace")
}

/// True if arena and image of an agent are there, whole.
pub fn has_agent(maps: &[Mapping]) -> bool {
    let image = |m: &&Mapping| m.start >= IMAGE_AVMA && m.end <= ARENA_AVMA;
    let arena = |m: &Mapping| m.start == ARENA_AVMA;
    let is_ours = |m: &Mapping| m.path.contains("memfd:sptrace");
    let segments = maps.iter().filter(image).filter(|m| is_ours(m)).count();
    segments >= 3 && maps.iter().any(|m| arena(m) && is_ours(m))
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

/// The mapping of the beginning of the file of which `m` maps a part.
pub fn first_of<'a>(maps: &'a [Mapping], m: &Mapping) -> Option<&'a Mapping> {
    let is_it = |f: &&Mapping| f.start <= m.start && f.file == m.file && f.offset == 0;
    maps.iter().rev().find(is_it)
}

/// True if `[start, start + bytes)` holds no mapping.
pub fn is_free(maps: &[Mapping], start: u64, bytes: u64) -> bool {
    !maps
        .iter()
        .any(|m| m.start < start + bytes && start < m.end)
}
