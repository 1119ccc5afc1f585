//! The program's own return addresses, put back on the stacks.
//!
//! Given a stretch of a stack, or nothing (then the stacks of all threads); whatever word there is
//! a return address of ours becomes the program's. Must not know why.

use crate::frames::{shadow, stacks};
use crate::memory::live::StackWord;
use crate::memory::thread::{FrameAt, Hot};
use crate::memory::{guarded, state, sys};
use crate::plans::slot;

/// Gives the return addresses on all threads' stacks back to the program. Other threads go on
/// meanwhile; their frames only say where to look.
#[inline(never)]
pub fn give_back_all() {
    for hot in state::process().threads() {
        // They may move meanwhile, which they do a few times at most.
        while let Some((bottom, top)) = hot.frames_meanwhile() {
            give_back_frames(hot, bottom, top);
            if hot.shadow() == bottom.address() {
                break;
            }
        }
    }
}

fn give_back_frames(hot: &Hot, bottom: FrameAt, top: FrameAt) {
    // Frames are small and may be millions.
    let mut words = [0u64; 128];
    let (mut from, mut got) = (0, 0);
    let mut frame = top;
    while hot.tid.get() != 0 && frame > bottom {
        // A frame without a record lies one byte below the place of others.
        let at = frame.rsp().wrapping_sub(7) & !7;
        if !shadow::is_barrier(frame) {
            if at < from || at - from >= got {
                from = at;
                got = sys::read_words(at, &mut words) as u64;
            }
            if let Some(value) = words.get(((at - from) / 8) as usize)
                && at - from + 8 <= got
            {
                restore(at, *value);
            }
        }
        frame = frame.below();
    }
}

/// The word at `at`, which was `value`, becomes the program's own if it is one of our return
/// addresses. What another thread has changed since stays, and both ways back are good.
pub(crate) fn restore(at: u64, value: u64) {
    let original = slot::original_of(value, at);
    if original != 0 && !guarded::holds(at) {
        // SAFETY: a word that was just read.
        unsafe { StackWord::at(at) }.replace(value, original);
    }
}

/// Gives back every return address found in `[at, end)`, up to the end of what is mapped. `at`: a
/// stack pointer, or above one.
pub fn scan(mut at: u64, end: u64) {
    // A timer of 1 kHz whose handler walks the stack leaves no time for many small reads.
    let mut words = [0u64; 128];
    while at < end {
        let want = ((end - at) as usize / 8).min(words.len());
        let Some(words) = words.get_mut(..want) else {
            return;
        };
        let got = stacks::read(at, words);
        for (k, word) in words.iter().take(got).enumerate() {
            restore(at + k as u64 * 8, *word);
        }
        if got < want || want == 0 {
            return;
        }
        at += want as u64 * 8;
    }
}
