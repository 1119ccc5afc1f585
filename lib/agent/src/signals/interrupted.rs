//! Cleans up after an event that a signal has interrupted and that will not go on: its record and
//! its shadow frame.
//!
//! Given by [`crate::signals::context`] how far the routine had come. The reserved record is marked
//! as NOTHING. The shadow frame is put where it belongs among those of the handler that runs now,
//! or is taken away. Must not know registers, slots and signal frames.

use crate::frames::shadow;
use crate::memory::state::{END_BYTES, FRAME_BYTES, Hot, ShadowFrame};
use sptrace_wire::control::CHUNK_BYTES;
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;

/// The call at `rsp` has returned past its exit.
pub unsafe fn is_done(hot: *mut Hot, rsp: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        if hot.is_null() {
            return;
        }
        let frame = find_frame(hot, rsp);
        if !frame.is_null() {
            (*frame).id |= FRAME_OPEN | shadow::FRAME_DONE;
        }
    }
}

/// The reserved record at `word` will not be completed. `narrow`: it is the entry of a call through
/// a pointer, so 12 bytes.
pub unsafe fn abandon(hot: *mut Hot, word: u64, narrow: bool) {
    // SAFETY: only inside the chunk that this thread holds.
    unsafe {
        if hot.is_null() || (*hot).real_end == 0 {
            return;
        }
        let end = (*hot).real_end;
        if word >= end || word < end + END_BYTES - CHUNK_BYTES {
            return;
        }
        let id = if narrow {
            record::NOTHING_NARROW
        } else {
            record::NOTHING
        };
        let word = word as *mut u32;
        word.add(1).write_volatile(id);
        word.write_volatile(1);
    }
}

/// The innermost frame at `rsp` that is not over: a hooked function's lies at that of its call.
unsafe fn find_frame(hot: *mut Hot, rsp: u64) -> *mut ShadowFrame {
    // SAFETY: the sentinel ends the search.
    unsafe {
        let mut frame = shadow::top(hot);
        let other = |f: &ShadowFrame| f.rsp != rsp || f.id & shadow::FRAME_DONE != 0;
        while frame > shadow::bottom(hot) && other(&*frame) {
            frame = frame.sub(1);
        }
        if (*frame).rsp == rsp {
            frame
        } else {
            core::ptr::null_mut()
        }
    }
}

/// Pushes the interrupted call's frame below those of the handler.
pub unsafe fn put_in(hot: *mut Hot, frame: ShadowFrame, handler: &core::ops::Range<u64>) {
    // SAFETY: two frames of room are kept above the limit.
    unsafe {
        if (*hot).ssp > (*hot).ssp_end {
            return;
        }
        let mut at = shadow::top(hot);
        while (*at).rsp != u64::MAX && ((*at).rsp <= frame.rsp || handler.contains(&(*at).rsp)) {
            *at.add(1) = *at;
            at = at.sub(1);
        }
        *at.add(1) = frame;
        (*hot).ssp += FRAME_BYTES as u64;
        if (*hot).root > at as u64 {
            (*hot).root += FRAME_BYTES as u64;
        }
    }
}

/// Pops the interrupted call's frame from below those of the handler.
pub unsafe fn take_out(hot: *mut Hot, rsp: u64) {
    // SAFETY: frames up to the top.
    unsafe {
        let mut at = find_frame(hot, rsp);
        if at.is_null() {
            return;
        }
        if (*hot).root > at as u64 {
            (*hot).root -= FRAME_BYTES as u64;
        }
        while at < shadow::top(hot) {
            *at = *at.add(1);
            at = at.add(1);
        }
        (*hot).ssp -= FRAME_BYTES as u64;
    }
}

/// The second write of a frame, which the routine does not come to.
pub unsafe fn repair(hot: *mut Hot, below: u64, frame: ShadowFrame) {
    // SAFETY: checked to be a frame of this thread.
    unsafe {
        let at = below + FRAME_BYTES as u64;
        if below >= shadow::shadow_bottom(hot) && at <= (*hot).ssp {
            *(at as *mut ShadowFrame) = frame;
        }
    }
}
