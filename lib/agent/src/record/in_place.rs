//! Pieces of memory that are read where they lie, without the kernel's copying.
//!
//! Given what is due for a call of the kernel ([`crate::record::capture`]); gives how much room the
//! pieces need, then the pieces. The caller must know that no other thread can unmap memory
//! meanwhile. Each page is first shown to the kernel, which says whether it can be read. What is
//! not plain (pointers in memory, much of it) is left to the slow path. Changes nothing, so that it
//! can be done again. Must not know where the pieces are written.

use crate::memory::{certain, live, sys};
use crate::record::capture::{Captures, argument, wanted_by_arguments};
use sptrace_wire::values::{Begin, Load, Piece, Until};

/// Pieces of one moment.
const MOST: usize = 4;
/// Bytes of all of them, so that a record is a small part of a chunk.
pub const MOST_BYTES: usize = 8 << 10;
const PAGE_BYTES: u64 = 4096;

/// What is to be written, and how many bytes that takes.
pub struct Pieces {
    heads: [Piece; MOST],
    count: usize,
    /// A multiple of 4.
    pub bytes: usize,
}

impl Pieces {
    /// What is due. `filled`: where memory begins and ends that is certainly there. `None`: this is
    /// not the way to read it.
    ///
    /// # Safety
    /// Nobody else can change what is mapped, and `filled` is there.
    pub unsafe fn measure(
        captures: &Captures,
        args: &[u64],
        (result, filled): (Option<i64>, [u64; 2]),
    ) -> Option<Self> {
        let mut found = Self {
            heads: [Piece::default(); MOST],
            count: 0,
            bytes: 0,
        };
        captures.each_due(args, result, |i, load| {
            let address = argument(args, load.from);
            if load.begin != Begin::Argument {
                return None;
            }
            if address == 0 {
                return Some(());
            }
            let wanted = wanted_by_arguments(load, args, result)? as usize;
            let end = address.checked_add(wanted as u64)?;
            let is_filled = address >= filled[0] && end <= filled[1];
            let is_there = matches!(load.until, Until::Count) && is_filled;
            let bytes = match is_there {
                true => wanted,
                // SAFETY: the caller's.
                false => unsafe { readable(load, address, wanted)? },
            };
            *found.heads.get_mut(found.count)? = Piece {
                address,
                bytes: bytes as u32,
                load: i as u16,
                when: load.when,
                is_cut: 0,
            };
            found.count += 1;
            found.bytes += Piece::BYTES + bytes.next_multiple_of(4);
            Some(())
        })?;
        (found.bytes <= MOST_BYTES).then_some(found)
    }

    /// Writes them into zeros.
    ///
    /// # Safety
    /// As for `measure`, and since it.
    pub unsafe fn write(&self, to: &mut [u8]) {
        let mut used = 0;
        for head in self.heads.iter().take(self.count) {
            let first = used + Piece::BYTES;
            let end = first + head.bytes as usize;
            if let Some(place) = to.get_mut(used..first) {
                place.copy_from_slice(&head.to_bytes());
            }
            if let Some(place) = to.get_mut(first..end) {
                // SAFETY: the caller's: these bytes could be read.
                unsafe { live::copy_from(head.address, place) };
            }
            used = end.next_multiple_of(4);
        }
    }
}

/// How many of the bytes that a load wants can be read.
///
/// # Safety
/// As for `Pieces::measure`.
unsafe fn readable(load: &Load, address: u64, wanted: usize) -> Option<usize> {
    let mut bytes = 0;
    while bytes < wanted {
        let at = address.checked_add(bytes as u64)?;
        let in_page = (PAGE_BYTES - at % PAGE_BYTES) as usize;
        let step = in_page.min(wanted - bytes);
        // On the stack that is asked about.
        let here = &raw const in_page as u64;
        if !certain::holds(at, here) && !sys::is_readable(at)? {
            break;
        }
        match load.until {
            Until::Count => {}
            Until::String => {
                // SAFETY: these bytes of the page can be read.
                let byte = |i: &usize| unsafe { live::bytes(at + *i as u64) };
                if let Some(end) = (0..step).find(|i| byte(i) == [0]) {
                    return Some(bytes + end + 1);
                }
            }
            Until::Null => return None,
        }
        bytes += step;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::page_before_nothing;

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
        let end = page_before_nothing(b"xxx");
        assert_eq!(readable(Until::Count, end - 100, 4096), Some(100));
        assert_eq!(readable(Until::String, end - 3, 4096), Some(3));
        assert_eq!(readable(Until::String, end - 5, 4096), Some(1));
        assert_eq!(readable(Until::Count, end, 8), Some(0));
        assert_eq!(readable(Until::Count, u64::MAX - 2, 8), Some(0));
        assert_eq!(readable(Until::Null, end - PAGE_BYTES, 8), None);
    }
}
