//! What stands on an interrupted stack around the id of a slot.
//!
//! Given where the id lies; gives the words that a common routine, or the door, has put below it,
//! and those above. Read by the kernel, so that it may be given any address.

use crate::memory::live::StackWord;
use crate::memory::sys;

/// System V ABI for x86-64, section 3.2.2.
pub const RED_ZONE_BYTES: u64 = 128;
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

/// Writes what the interrupted code is about to push. False: the stack ends there.
pub fn write_ahead(at: u64, value: u64) -> bool {
    let is_there = sys::read_word(at).is_some();
    if is_there {
        stack_word(at).set(value);
    }
    is_there
}

/// A word of the interrupted stack, or of the signal frame on it.
pub fn stack_word(at: u64) -> StackWord {
    // SAFETY: it was read just now, around it, through the kernel.
    unsafe { StackWord::at(at) }
}
