//! The kernel's text as it is in memory, by `/proc/kcore`.
//!
//! Given an address; gives the bytes there. The file is an ELF core of the kernel's memory (man 5
//! proc), of which only the segments are looked at.
//!
//! Must not know: what the bytes mean.

use crate::error::KernelError;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE: &str = "/proc/kcore";
/// Of an ELF64 header (man 5 elf): where `e_phoff`, `e_phentsize` and `e_phnum` lie.
const PHOFF: usize = 32;
const PHENTSIZE: usize = 54;
const PHNUM: usize = 56;
/// Of the header and the segments, which lie behind it, so much is read.
const HEAD_BYTES: u64 = 64 << 10;
const PT_LOAD: u32 = 1;

/// A part of the kernel's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Text {
    file: File,
    segments: Vec<Segment>,
}

impl Text {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no such file, or is locked down.
    pub fn open() -> Result<Self, KernelError> {
        let path = Path::new(FILE);
        let file = File::open(path).map_err(KernelError::of(path))?;
        let mut head = Vec::new();
        let read = (&file).take(HEAD_BYTES).read_to_end(&mut head);
        read.map_err(KernelError::of(path))?;
        let segments = segments(&head).unwrap_or_default();
        Ok(Self { file, segments })
    }

    /// So many bytes at an address. `None`: they are not all there.
    pub fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|s| {
            address >= s.address && address - s.address <= s.bytes.saturating_sub(bytes as u64)
        })?;
        let mut read = vec![0; bytes];
        let offset = segment.offset.checked_add(address - segment.address)?;
        self.file.read_exact_at(&mut read, offset).ok()?;
        Some(read)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole
        .get_mut(..N)?
        .copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(whole))
}

fn segments(head: &[u8]) -> Option<Vec<Segment>> {
    let offset = number::<8>(head, PHOFF)? as usize;
    let size = number::<2>(head, PHENTSIZE)? as usize;
    let count = number::<2>(head, PHNUM)? as usize;
    let mut found = Vec::new();
    for i in 0..count {
        let at = offset.checked_add(i * size)?;
        let Some(kind) = number::<4>(head, at) else {
            break;
        };
        if kind == u64::from(PT_LOAD) {
            found.push(Segment {
                offset: number::<8>(head, at + 8)?,
                address: number::<8>(head, at + 16)?,
                bytes: number::<8>(head, at + 32)?,
            });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_and_hostile_headers_end() {
        let mut head = vec![0; 64 + 56];
        head[PHOFF] = 64;
        head[PHENTSIZE] = 56;
        head[PHNUM] = 1;
        head[64] = 1;
        head[72] = 0x10;
        head[80..88].copy_from_slice(&0xffff_ffff_8100_0000u64.to_le_bytes());
        head[97] = 2;
        let expected = Segment {
            address: 0xffff_ffff_8100_0000,
            bytes: 0x200,
            offset: 0x10,
        };
        assert_eq!(segments(&head), Some(vec![expected]));
        head[PHNUM + 1] = 0xff;
        assert!(segments(&head).is_some_and(|s| s.len() == 1));
        assert_eq!(segments(&[]), None);
        assert!(segments(&[0xff; 200]).is_none_or(|s| s.is_empty()));
    }
}
