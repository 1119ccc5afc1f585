//! What stands on an interrupted stack around the id of a slot.
//!
//! Given where the id lies; gives the words that a common routine, or the door, has put below it,
//! and those above. Read by the kernel, so that it may be given any address.

use crate::memory::sys;

/// Words of the interrupted stack that are read below and above the id.
const BELOW: usize = 14;
const ABOVE: usize = 3;

/// Them.
pub struct Around {
    /// Where the id lies.
    pub base: u64,
    words: [u64; BELOW + ABOVE],
}

impl Around {
    /// `None`: not all of them can be read.
    pub fn read(base: u64) -> Option<Self> {
        let mut words = [0u64; BELOW + ABOVE];
        let got = sys::read_words(base.wrapping_sub(BELOW as u64 * 8), &mut words);
        (got == size_of_val(&words)).then_some(Self { base, words })
    }

    /// The word at `offset` bytes from the id.
    pub fn at(&self, offset: i64) -> u64 {
        let index = BELOW as i64 + offset / 8;
        self.words.get(index as usize).copied().unwrap_or(0)
    }
}
