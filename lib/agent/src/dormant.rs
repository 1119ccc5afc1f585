//! A process in which nothing is recorded any more: the host is gone, or a sandbox forbids the clock.
//!
//! No shadow stack is kept then, so all stacks get the program's own return addresses back at once, and
//! calls leave no others (see `silent::silence`). What may remain are those of a call that another
//! thread was in the middle of, and of stacks that the shadow stack did not tell: for these a stack
//! walker is served by scanning the stacks that it will see, the one it runs on and those that signals
//! interrupted. No system call otherwise, and none at all in a sandbox.

use crate::slow::{self, Frame};
use crate::special::Special;
use crate::state::{DORMANT, Hot, ShadowFrame, TEXT_BACK, process};
use crate::unwind::original_of;
use crate::{
    context, deep, guarded, handlers, module, process as events, silent, special, stacks, sys,
    thread, unpatch,
};
use core::sync::atomic::{AtomicU64, Ordering};
use sptrace_wire::plan::*;

/// No stack is larger, where its end is known.
const STACK_BYTES: u64 = 1 << 30;
/// Scanned at most, where it is not.
const UNKNOWN_STACK_BYTES: u64 = 16 << 20;

/// Gives the return addresses on all threads' stacks back to the program.
#[inline(never)]
pub unsafe fn give_back_all() {
    // SAFETY: other threads go on meanwhile; their frames only say where to look. A word is changed
    // only while it is one of our return addresses, and both ways back are good.
    unsafe {
        let mut hot = (*process()).blocks;
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
            if !stacks::is_barrier(frame) {
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

/// Once, after the event at which the end came: the locks that it held are free again.
#[inline(never)] // the slow path often runs on a small stack of the program
pub unsafe fn put_text_back() {
    // SAFETY: called by the slow path.
    unsafe {
        let silent = &(*process()).dormant;
        let is_first = silent.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |bits| {
            (bits & (DORMANT | TEXT_BACK) == DORMANT).then_some(bits | TEXT_BACK)
        });
        if is_first.is_ok() {
            unpatch::all();
        }
    }
}

/// A call that was on its way when the end came: its slot calls the routine again, which is silent now
/// and leaves no return address of ours. None: it is no call.
pub unsafe fn begin_again(f: &mut Frame) -> Option<u64> {
    if !matches!(
        f.routine as i32,
        common::ENTRY | common::FIRST | common::INDIRECT
    ) {
        return None;
    }
    // SAFETY: the id stands behind the call of the routine (5 bytes).
    unsafe {
        let m = module::of_area(f.id);
        if m.is_null() || (*m).area_rw == 0 {
            return None;
        }
        let area = (*m).area_rw as *mut u8;
        if !silent::is_silent(area) {
            silent::silence(area);
        }
        f.id -= 5;
    }
    Some(slow::RET)
}

/// The special function of `f.id` is about to run; its return address lies at `above`. `mask`: the
/// thread's own signal mask; unless the process may be in a sandbox, signals are blocked: a handler that
/// walked meanwhile would find no way through the agent.
#[inline(never)]
pub unsafe fn special(f: &mut Frame, above: u64, mask: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some(Special { kind, .. }) = special::special_of(f.id) else {
            return;
        };
        match kind {
            SpecialKind::Unwind | SpecialKind::Walk if events::may_be_sandboxed() => {
                scan_mapped(above & !7)
            }
            SpecialKind::Unwind | SpecialKind::Walk => {
                let interrupted = context::move_contexts(core::ptr::null_mut(), above, mask);
                for start in core::iter::once(above).chain(interrupted) {
                    if start != 0 {
                        scan(start & !7, end_of_stack(start));
                    }
                }
            }
            SpecialKind::Return | SpecialKind::Unload => {
                restore(above, (above as *const u64).read_volatile())
            }
            SpecialKind::Sigaction | SpecialKind::Cancel => handlers::registered(),
            SpecialKind::Protect => {
                guarded::protect(f.rdi, f.rsi, f.rdx, above..(*process()).stack_top);
            }
            _ if events::enters_sandbox(kind, f) => events::set_sandboxed(),
            _ if events::sets_gs(kind, f) => events::set_gs_taken(),
            SpecialKind::Madvise | SpecialKind::Syscall => events::keep_text(kind, f),
            _ => {}
        }
    }
}

/// The end of the stack that `at` lies in, or a bound for it. A thread's control block lies at the end
/// of its stack.
unsafe fn end_of_stack(at: u64) -> u64 {
    // SAFETY: plain queries.
    let (alternate, first) = unsafe { (sys::alternate_stack(), (*process()).stack_top) };
    match alternate {
        Some((low, high)) if at > low && at <= high => return high,
        _ => {}
    }
    let known = [first, sys::fs_base()]
        .into_iter()
        .filter(|end| *end > at && end - at < STACK_BYTES)
        .min();
    known.unwrap_or(at + UNKNOWN_STACK_BYTES)
}

/// The word at `at`, which was `value`, becomes the program's own if it is one of our return addresses.
unsafe fn restore(at: u64, value: u64) {
    // SAFETY: a word that was just read. What another thread has changed since stays.
    unsafe {
        let original = original_of(value, at);
        if original != 0 && !guarded::holds(at) {
            let word = &*(at as *const AtomicU64);
            let _ = word.compare_exchange(value, original, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Gives back every return address found in `[at, end)`, up to the end of what is mapped. `at`: a stack
/// pointer, or above one.
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

/// The same without a system call: only what is surely mapped.
unsafe fn scan_mapped(mut at: u64) {
    // SAFETY: other threads' stacks are mapped up to the highest stack pointer that was seen.
    unsafe {
        let first = (*process()).stack_top;
        let end = if stacks::is_first(at) {
            first
        } else {
            let gs = sys::gs_base();
            if gs == 0 || (gs as *const u64).read() != sys::fs_base() {
                return;
            }
            (*thread::hot_of(gs)).stack_top
        };
        if end > at + UNKNOWN_STACK_BYTES && end != first {
            return;
        }
        while at < end && !guarded::holds(at) {
            restore(at, (at as *const u64).read_volatile());
            at += 8;
        }
    }
}
