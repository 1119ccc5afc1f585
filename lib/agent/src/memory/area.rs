//! A patch area: code that is executed at one place and written at another.
//!
//! Given where the two views of the same bytes are; gives words to write, and code to read, inside
//! of it alone. Other threads execute there: what must be seen whole is written by one store of an
//! aligned word. Must not know what lies in an area.

use crate::memory::live;
use crate::memory::word::Word;

/// Both views of an area.
#[derive(Clone, Copy)]
pub struct Area {
    run: u64,
    write: u64,
    bytes: u64,
}

impl Area {
    /// The area that is executed at `run` and written at `write`; 0: it is not.
    ///
    /// # Safety
    /// Both are mapped with so many bytes, and stay so as long as this is used.
    #[inline]
    pub unsafe fn new(run: u64, write: u64, bytes: u64) -> Self {
        Self { run, write, bytes }
    }

    /// Where it is executed.
    #[inline]
    pub fn start(self) -> u64 {
        self.run
    }

    /// True if `address` lies in it.
    #[inline]
    pub fn holds(self, address: u64) -> bool {
        address.wrapping_sub(self.run) < self.bytes
    }

    /// The aligned word at `offset` from its start, to be written. `None`: it lies elsewhere.
    #[inline]
    pub fn word(self, offset: u64) -> Option<&'static Word> {
        let is_inside = self.write != 0 && offset.is_multiple_of(8) && self.has(offset, 8);
        // SAFETY: inside of what is mapped for writing (see new), which begins at a page.
        is_inside.then(|| unsafe { &*((self.write + offset) as *const Word) })
    }

    #[inline]
    fn has(self, offset: u64, bytes: u64) -> bool {
        offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes)
    }

    /// The code at `address`. `None`: it lies elsewhere.
    #[inline]
    pub fn code<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        let is_inside = self.has(address.wrapping_sub(self.run), N as u64);
        // SAFETY: inside of what is mapped for execution (see new).
        is_inside.then(|| unsafe { live::bytes(address) })
    }

    /// Reads the code at `address` up to the area's end, as far as there is room; gives what was
    /// read.
    pub fn read(self, address: u64, room: &mut [u8]) -> &[u8] {
        let left = self.bytes.saturating_sub(address.wrapping_sub(self.run));
        let bytes = left.min(room.len() as u64) as usize;
        let Some(place) = room.get_mut(..bytes) else {
            return &[];
        };
        // SAFETY: as in code.
        unsafe { live::copy_from(address, place) };
        place
    }

    /// Writes bytes at `offset` of which none may be executed meanwhile but those that do not
    /// change: these are not written. False: they do not fit, and nothing was written.
    pub fn renew(self, offset: u64, new: &[u8]) -> bool {
        let end = offset.saturating_add(new.len() as u64);
        if self.write == 0 || !self.has(offset, new.len() as u64) {
            return false;
        }
        let mut at = offset & !7;
        while at < end {
            let Some(word) = self.word(at) else {
                return false;
            };
            let rest = at.checked_sub(offset).and_then(|k| new.get(k as usize..));
            let value = match rest.and_then(|rest| rest.first_chunk()) {
                Some(whole) => u64::from_le_bytes(*whole),
                None => {
                    let mut bytes = word.get().to_le_bytes();
                    for (k, byte) in (at..).zip(&mut bytes) {
                        let new = k.checked_sub(offset).and_then(|k| new.get(k as usize));
                        *byte = *new.unwrap_or(byte);
                    }
                    u64::from_le_bytes(bytes)
                }
            };
            if word.get() != value {
                word.set(value);
            }
            at += 8;
        }
        true
    }

    /// Replaces the four bytes before `after`, by one store. False: they lie in two words, or
    /// elsewhere.
    pub fn set_rel32(self, after: u64, rel: u32) -> bool {
        let Some(offset) = after.wrapping_sub(self.run).checked_sub(4) else {
            return false;
        };
        let Some(word) = self.word(offset & !7).filter(|_| offset & 7 <= 4) else {
            return false;
        };
        let shift = 8 * (offset & 7);
        let others = word.get() & !(0xffff_ffff << shift);
        word.set(others | u64::from(rel) << shift);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// An area that is executed where it is written, of 64 bytes.
    fn area() -> Area {
        let words = vec![0x1111_1111_1111_1111u64; 8].leak();
        let at = words.as_mut_ptr() as u64;
        // SAFETY: memory of this test's, never freed.
        unsafe { Area::new(at, at, 64) }
    }

    #[test]
    fn nothing_outside_is_given() {
        let area = area();
        assert!(area.word(56).is_some() && area.word(64).is_none());
        assert!(area.word(4).is_none() && area.word(!7).is_none());
        assert!(area.code::<4>(area.start() + 60).is_some());
        assert!(area.code::<5>(area.start() + 60).is_none());
        assert!(area.code::<1>(area.start() - 1).is_none());
        assert!(!area.renew(60, &[0; 5]) && !area.set_rel32(area.start() + 3, 0));
    }

    #[test]
    fn bytes_are_written_across_words_and_their_neighbours_stay() {
        let area = area();
        assert!(area.renew(6, &[1, 2, 3, 4]));
        let expected = [0x11, 1, 2, 3, 4, 0x11];
        assert_eq!(area.code(area.start() + 5), Some(expected));
    }

    #[test]
    fn a_displacement_is_written_within_one_word_alone() {
        let area = area();
        assert!(area.set_rel32(area.start() + 6, 0x2222_2222));
        assert_eq!(
            area.code(area.start()),
            Some([0x11, 0x11, 0x22, 0x22, 0x22, 0x22, 0x11])
        );
        assert!(!area.set_rel32(area.start() + 10, 0));
    }

    #[test]
    fn without_a_view_to_write_nothing_is_written() {
        let Area { run, bytes, .. } = area();
        // SAFETY: as in area.
        let area = unsafe { Area::new(run, 0, bytes) };
        assert!(area.word(0).is_none() && !area.renew(0, &[1]));
        assert!(area.holds(run) && area.code::<1>(run).is_some());
    }
}
