//! The program's own return addresses, put back on the stacks.
//!
//! Given a stretch of a stack, or nothing (then the stacks of all threads); whatever word there is
//! a return address of ours becomes the program's. Must not know why.

use crate::frames::{shadow, stacks};
use crate::memory::state::{Hot, ShadowFrame};
use crate::memory::{guarded, state, sys};
use crate::plans::slot;
use crate::record::deep;
use core::sync::atomic::{AtomicU64, Ordering};

/// Gives the return addresses on all threads' stacks back to the program.
#[inline(never)]
pub unsafe fn give_back_all() {
    // SAFETY: other threads go on meanwhile; their frames only say where to look. A word is changed
    // only while it is one of our return addresses, and both ways back are good.
    unsafe {
        let mut hot = (*state::process()).blocks;
        while !hot.is_null() {
            loop {
                let (bottom, top) = deep::frames_of(hot);
                give_back_frames(hot, bottom, top);
                // They may have moved meanwhile, which they do a few times at most.
                if bottom > top || deep::is_there(hot, bottom) {
                    break;
                }
            }
            hot = (*hot).next as *mut Hot;
        }
    }
}

unsafe fn give_back_frames(hot: *mut Hot, bottom: *mut ShadowFrame, top: *mut ShadowFrame) {
    // Frames are small and may be millions.
    let mut words = [0u64; 128];
    let (mut from, mut got) = (0, 0);
    let mut frame = top;
    // SAFETY: as in give_back_all.
    unsafe {
        while (*hot).tid != 0 && frame > bottom {
            let at = (*frame).rsp.wrapping_sub(8) & !7;
            if !shadow::is_barrier(frame) {
                if at < from || at - from >= got {
                    let bytes = size_of_val(&words);
                    from = at;
                    got = sys::read_own(at as usize, words.as_mut_ptr().cast(), bytes) as u64;
                }
                if let Some(value) = words.get(((at - from) / 8) as usize)
                    && at - from + 8 <= got
                {
                    restore(at, *value);
                }
            }
            frame = frame.sub(1);
        }
    }
}

/// The word at `at`, which was `value`, becomes the program's own if it is one of our return
/// addresses.
pub(crate) unsafe fn restore(at: u64, value: u64) {
    // SAFETY: a word that was just read. What another thread has changed since stays.
    unsafe {
        let original = slot::original_of(value, at);
        if original != 0 && !guarded::holds(at) {
            let word = &*(at as *const AtomicU64);
            let _ = word.compare_exchange(value, original, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Gives back every return address found in `[at, end)`, up to the end of what is mapped. `at`: a
/// stack pointer, or above one.
pub unsafe fn scan(mut at: u64, end: u64) {
    // A timer of 1 kHz whose handler walks the stack leaves no time for many small reads.
    let mut words = [0u64; 128];
    while at < end {
        let want = ((end - at) as usize / 8).min(words.len());
        let Some(words) = words.get_mut(..want) else {
            return;
        };
        // SAFETY: a word that was just read.
        unsafe {
            let got = stacks::read(at, words);
            for (k, word) in words.iter().take(got).enumerate() {
                restore(at + k as u64 * 8, *word);
            }
            if got < want || want == 0 {
                return;
            }
        }
        at += want as u64 * 8;
    }
}
