//! Pieces of memory that are read where they lie, without the kernel's copying.
//!
//! Given what is due for a call of the kernel ([`crate::record::due`]); gives how much room the
//! pieces need, then the pieces. The caller must know that no other thread can unmap memory
//! meanwhile. Each page is first shown to the kernel, which says whether it can be read. What is
//! not plain (pointers in memory, much of it) is left to the slow path. Changes nothing, so that it
//! can be done again. Must not know where the pieces are written.

use crate::memory::{certain, live, reading};
use crate::record::due::Due;
use sptrace_wire::values::Piece;

/// Pieces of one moment.
const MOST: usize = 4;
/// Bytes of all of them, so that a record is a small part of a chunk.
pub const MOST_BYTES: usize = 8 << 10;
const PAGE_BYTES: u64 = 4096;

/// What is to be written, and how many bytes that takes. It is large to be moved: made where it
/// stays.
pub struct Pieces {
    /// Two words of each, as they are written.
    heads: [[u64; 2]; MOST],
    count: usize,
    /// A multiple of 4.
    pub bytes: usize,
}

impl Pieces {
    /// None yet.
    pub const NONE: Self = Self {
        heads: [[0; 2]; MOST],
        count: 0,
        bytes: 0,
    };

    /// Adds what is due. `filled`: where memory begins and ends that is certainly there. `is_calm`:
    /// what the kernel can read stays. `None`: this is not the way to read it.
    ///
    /// # Safety
    /// Nobody else can change what is mapped there, and `filled` is there.
    #[inline(always)]
    pub unsafe fn measure(
        &mut self,
        all: impl Iterator<Item = Option<Due>>,
        args: &[u64; 6],
        (result, filled): (Option<i64>, [u64; 2]),
        is_calm: bool,
    ) -> Option<()> {
        for due in all {
            let due = due?;
            let address = due.address(args);
            if address == 0 || !due.is_for(result) {
                continue;
            }
            let wanted = due.wanted(args, result);
            let end = address.checked_add(wanted)?;
            let is_filled = address >= filled[0] && end <= filled[1];
            let bytes = match is_filled && !due.is_string() {
                true => wanted as usize,
                // SAFETY: the caller's.
                false => unsafe { readable(due.is_string(), address, wanted as usize, is_calm)? },
            };
            *self.heads.get_mut(self.count)? = [address, due.head(bytes)];
            self.count += 1;
            self.bytes += Piece::BYTES + bytes.next_multiple_of(4);
        }
        (self.bytes <= MOST_BYTES).then_some(())
    }

    /// Writes them into zeros.
    ///
    /// # Safety
    /// As for `measure`, and since it.
    #[inline]
    pub unsafe fn write(&self, to: &mut [u8]) {
        let mut used = 0;
        for [address, rest] in self.heads.iter().take(self.count) {
            let first = used + Piece::BYTES;
            let end = first + *rest as u32 as usize;
            if let Some(place) = to.get_mut(used..first) {
                place.copy_from_slice(&head(*address, *rest));
            }
            if let Some(place) = to.get_mut(first..end) {
                // SAFETY: the caller's: these bytes could be read.
                unsafe { live::copy_from(*address, place) };
            }
            used = end.next_multiple_of(4);
        }
    }
}

/// The bytes of a [`Piece`], of which `rest` has all but the address, in the order of its fields
/// from the lowest bits on.
fn head(address: u64, rest: u64) -> [u8; Piece::BYTES] {
    let [low, high] = [address, rest].map(u128::from);
    (low | high << 64).to_le_bytes()
}

/// One text.
#[derive(Clone, Copy)]
pub struct Text {
    /// Its two words, as they are written.
    head: [u64; 2],
    /// A multiple of 4.
    pub bytes: usize,
}

impl Text {
    /// What is due, of which nothing may be there. `None`: this is not the way to read it.
    ///
    /// # Safety
    /// As for `Pieces::measure`.
    #[inline]
    pub unsafe fn measure(due: Due, args: &[u64; 6], is_calm: bool) -> Option<Self> {
        let address = due.address(args);
        let wanted = due.wanted(args, None);
        if address == 0 || address.checked_add(wanted).is_none() {
            return None;
        }
        // SAFETY: the caller's.
        let bytes = unsafe { readable(true, address, wanted as usize, is_calm)? };
        let all = Piece::BYTES + bytes.next_multiple_of(4);
        (all <= MOST_BYTES).then_some(Self {
            head: [address, due.head(bytes)],
            bytes: all,
        })
    }

    /// Writes it into zeros.
    ///
    /// # Safety
    /// As for `Pieces::write`.
    #[inline]
    pub unsafe fn write(&self, to: &mut [u8]) {
        let [address, rest] = self.head;
        let bytes = rest as u32 as usize;
        if let Some((first, text)) = to.split_at_mut_checked(Piece::BYTES) {
            first.copy_from_slice(&head(address, rest));
            if let Some(text) = text.get_mut(..bytes) {
                // SAFETY: the caller's: these bytes could be read.
                unsafe { live::copy_from(address, text) };
            }
        }
    }
}

/// How many of the bytes that a load wants can be read.
///
/// # Safety
/// As for `Pieces::measure`.
#[inline]
unsafe fn readable(is_string: bool, address: u64, wanted: usize, is_calm: bool) -> Option<usize> {
    let mut bytes = 0;
    while bytes < wanted {
        let at = address.checked_add(bytes as u64)?;
        let in_page = (PAGE_BYTES - at % PAGE_BYTES) as usize;
        let step = in_page.min(wanted - bytes);
        // On the stack that is asked about.
        let here = &raw const in_page as u64;
        if !certain::holds(at, here) && !(is_calm.then(|| reading::is_readable(at))??) {
            break;
        }
        if is_string {
            // SAFETY: these bytes of the page can be read.
            if let Some(end) = unsafe { find_zero(at, step) } {
                return Some(bytes + end + 1);
            }
        }
        bytes += step;
    }
    Some(bytes)
}

/// Where the first zero is among so many bytes.
///
/// # Safety
/// They can be read.
unsafe fn find_zero(at: u64, bytes: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let mut i = 0;
    while i + 8 <= bytes {
        // SAFETY: the caller's.
        let word = u64::from_le_bytes(unsafe { live::bytes(at + i as u64) });
        // The lowest bit that is set belongs to the first byte that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & ONES << 7;
        if zeros != 0 {
            return Some(i + zeros.trailing_zeros() as usize / 8);
        }
        i += 8;
    }
    // SAFETY: the caller's.
    let byte = |i: &usize| unsafe { live::bytes(at + *i as u64) };
    (i..bytes).find(|i| byte(i) == [0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::page_before_nothing;

    fn readable(is_string: bool, address: u64, wanted: usize) -> Option<usize> {
        // SAFETY: the tests' own memory.
        unsafe { super::readable(is_string, address, wanted, true) }
    }

    #[test]
    fn a_head_is_written_as_a_piece_is() {
        let piece = Piece {
            address: 0x7fff_1234_5678_9abc,
            bytes: 0x1002,
            load: 0x304,
            when: sptrace_wire::values::When::AfterAll,
            is_cut: 0,
        };
        let rest = u64::from(piece.when as u8) << 48 | 0x304 << 32 | 0x1002;
        assert_eq!(head(piece.address, rest), piece.to_bytes());
    }

    #[test]
    fn the_first_zero_is_found_wherever_it_is() {
        let bytes = [b'x'; 40];
        for zero in 0..40 {
            let mut bytes = bytes;
            bytes[zero] = 0;
            bytes[39] = 0;
            // Not taken for a zero by the byte before.
            bytes[(zero + 1).min(38)] = if zero == 38 { 0 } else { 1 };
            // SAFETY: the test's own memory.
            let find = |bytes: &[u8]| unsafe { find_zero(bytes.as_ptr() as u64, bytes.len()) };
            assert_eq!(find(&bytes), Some(zero));
            assert_eq!(find(&bytes[..zero]), None);
        }
    }

    #[test]
    fn a_text_is_written_with_its_head_or_is_not_for_this_way() {
        let end = page_before_nothing(b"path\0xx");
        let load = sptrace_wire::values::Load {
            until: sptrace_wire::values::Until::String,
            most: 4096,
            from: 1,
            ..Default::default()
        };
        let measure = |at: u64| {
            let args = [0, at, 0, 0, 0, 0];
            let due = Due::now(0, &load, &args, None)?;
            // SAFETY: the test's own memory.
            unsafe { Text::measure(due, &args, true) }
        };
        let text = measure(end - 7).expect("it is there");
        assert_eq!(text.bytes, 16 + 8);
        let mut to = [0; 24];
        // SAFETY: as above.
        unsafe { text.write(&mut to) };
        assert_eq!(to[..16], head(end - 7, 5));
        assert_eq!(to[16..], *b"path\0\0\0\0");
        // Up to where nothing is, and nothing at all.
        assert_eq!(measure(end - 2).map(|text| text.bytes), Some(16 + 4));
        assert_eq!(measure(end).map(|text| text.bytes), Some(16));
        assert!(measure(0).is_none() && measure(u64::MAX - 5).is_none());
    }

    #[test]
    fn memory_is_read_up_to_the_last_page_that_there_is() {
        let end = page_before_nothing(b"xxx");
        assert_eq!(readable(false, end - 100, 4096), Some(100));
        assert_eq!(readable(true, end - 3, 4096), Some(3));
        assert_eq!(readable(true, end - 5, 4096), Some(1));
        assert_eq!(readable(false, end, 8), Some(0));
        assert_eq!(readable(false, u64::MAX - 2, 8), Some(0));
    }
}
