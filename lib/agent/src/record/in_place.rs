//! Pieces of memory that are read where they lie, without the kernel's copying.
//!
//! Given what is due for a call of the kernel ([`crate::record::capture`]); gives how much room the
//! pieces need, then the pieces. The caller must know that no other thread can unmap memory
//! meanwhile. Each page is first shown to the kernel, which says whether it can be read. What is
//! not plain (pointers in memory, much of it) is left to the slow path. Changes nothing, so that it
//! can be done again. Must not know where the pieces are written.

use crate::memory::sys;
use crate::record::capture::{Captures, argument, wanted_by_arguments};
use sptrace_wire::values::{Begin, Load, Piece, Until};

/// Pieces of one moment.
const MOST: usize = 4;
/// Bytes of all of them, so that a record is a small part of a chunk.
const MOST_BYTES: usize = 8 << 10;
const PAGE_BYTES: u64 = 4096;

/// What is to be written, and how many bytes that takes.
pub struct Pieces {
    heads: [Piece; MOST],
    count: usize,
    /// A multiple of 4.
    pub bytes: usize,
}

impl Pieces {
    /// What is due. `None`: this is not the way to read it.
    ///
    /// # Safety
    /// Nobody else can change what is mapped.
    pub unsafe fn measure(captures: &Captures, args: &[u64], result: Option<i64>) -> Option<Self> {
        let mut found = Self {
            heads: [Piece::default(); MOST],
            count: 0,
            bytes: 0,
        };
        for (i, load) in captures.due(args, result) {
            let address = argument(args, load.from);
            if load.begin != Begin::Argument {
                return None;
            }
            if address == 0 {
                continue;
            }
            let wanted = wanted_by_arguments(&load, args, result)? as usize;
            // SAFETY: the caller's.
            let bytes = unsafe { readable(&load, address, wanted)? };
            *found.heads.get_mut(found.count)? = Piece {
                address,
                bytes: bytes as u32,
                load: i as u16,
                when: load.when,
                is_cut: 0,
            };
            found.count += 1;
            found.bytes += Piece::BYTES + bytes.next_multiple_of(4);
        }
        (found.bytes <= MOST_BYTES).then_some(found)
    }

    /// Writes them.
    ///
    /// # Safety
    /// As for `measure`, and since it; `to` is zero and has room for `bytes`.
    pub unsafe fn write(&self, mut to: *mut u8) {
        for head in self.heads.iter().take(self.count) {
            let bytes = head.bytes as usize;
            // SAFETY: the caller's: these bytes could be read, and there is room.
            unsafe {
                to.copy_from_nonoverlapping(head.to_bytes().as_ptr(), Piece::BYTES);
                to = to.add(Piece::BYTES);
                to.copy_from_nonoverlapping(head.address as *const u8, bytes);
                to = to.add(bytes.next_multiple_of(4));
            }
        }
    }
}

/// How many of the bytes that a load wants can be read.
unsafe fn readable(load: &Load, address: u64, wanted: usize) -> Option<usize> {
    let mut bytes = 0;
    while bytes < wanted {
        let at = address.checked_add(bytes as u64)?;
        let in_page = (PAGE_BYTES - at % PAGE_BYTES) as usize;
        let step = in_page.min(wanted - bytes);
        if !sys::is_readable(at)? {
            break;
        }
        match load.until {
            Until::Count => {}
            Until::String => {
                // SAFETY: the page can be read.
                if let Some(end) = unsafe { zero_in(at, step) } {
                    return Some(bytes + end + 1);
                }
            }
            Until::Null => return None,
        }
        bytes += step;
    }
    Some(bytes)
}

/// Where the first byte 0 is.
unsafe fn zero_in(at: u64, bytes: usize) -> Option<usize> {
    // SAFETY: the caller's.
    (0..bytes).find(|i| unsafe { (at as *const u8).add(*i).read_volatile() } == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(until: Until, most: u32) -> Load {
        Load {
            until,
            most,
            ..Load::default()
        }
    }

    fn readable(until: Until, address: u64, wanted: usize) -> Option<usize> {
        // SAFETY: the tests' own memory.
        unsafe { super::readable(&load(until, wanted as u32), address, wanted) }
    }

    #[test]
    fn memory_is_read_up_to_the_last_page_that_there_is() {
        let at = sys::map_private(2 * PAGE_BYTES as usize) as u64;
        let end = at + PAGE_BYTES;
        // SAFETY: the test's own mapping.
        unsafe {
            sys::protect(end as usize, PAGE_BYTES as usize, sys::PROT_NONE);
            ((end - 3) as *mut u8).write_bytes(b'x', 3);
        }
        assert_eq!(readable(Until::Count, end - 100, 4096), Some(100));
        assert_eq!(readable(Until::String, end - 3, 4096), Some(3));
        assert_eq!(readable(Until::String, end - 5, 4096), Some(1));
        assert_eq!(readable(Until::Count, end, 8), Some(0));
        assert_eq!(readable(Until::Count, u64::MAX - 2, 8), Some(0));
        assert_eq!(readable(Until::Null, at, 8), None);
    }
}
