//! Events with signals let in: the two around a walk of the stack, which are a walker's entry and
//! the first event above it, and the two around a call of the kernel
//! ([`system_call_unblocked`]). Blocking signals takes four system calls, a third of the two
//! microseconds that a throw costs.
//!
//! Runs on the program's stack, before the door blocks signals. A handler may interrupt it at any
//! point: whatever is done can be done again from the start, shared words are changed by one
//! instruction each, and [`crate::signals::context`] moves the interrupted context back to before
//! the event. A handler that walks, throws or jumps away finds a shadow stack that is whole. Every
//! case that is not plain is left to the slow path.

use crate::events::system_call_unblocked;
use crate::frames::shadow::SAME_STACK_BYTES;
use crate::frames::{handlers, shadow};
use crate::memory::frame::Frame;
use crate::memory::state::{FRAME_BYTES, Hot, ShadowFrame};
use crate::memory::{state, sys};
use crate::plans::modules;
use crate::record::{chunk, settle};
use core::sync::atomic::{Ordering, compiler_fence};
use sptrace_wire::plan::{SpecialKind, common};
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;

/// Not done: the slow path must do it.
const NO: u64 = 0;
const DONE: u64 = 1;
/// The routine is to be called again.
const AGAIN: u64 = 2;

/// Called by the door, in a thread whose block gs points at.
///
/// # Safety
/// `frame` is what the door pushed.
pub unsafe extern "C" fn unblocked(frame: *mut Frame) -> u64 {
    // SAFETY: the frame is ours, the block this thread's.
    unsafe {
        let f = &*frame;
        let hot = shadow::hot_of(sys::gs_base());
        let above = &raw const f.above as u64;
        let is_plain = (*hot).tid != 0
            && (*hot).barriers == 0
            && (*state::process()).originals.is_null()
            && (*hot).dropped[1] <= above;
        if !is_plain {
            return NO;
        }
        let (rsp, inclusive) = match f.routine as i32 {
            common::SPECIAL => return give_back(hot, f.id, above),
            common::SYSTEM_CALL => return system_call_unblocked::enter(hot, frame).into(),
            common::SYSTEM_RETURN => return system_call_unblocked::leave(hot, frame).into(),
            common::ENTRY => (above, true),
            common::ENTRY_ONLY | common::INDIRECT => (above + 8, true),
            common::EXIT => (above, false),
            common::TAIL => (above + 8, false),
            common::TAIL_INDIRECT => (above + 16, false),
            _ => return NO,
        };
        arm_again(hot, rsp, inclusive)
    }
}

/// As [`crate::events::unwind::give_back`].
unsafe fn give_back(hot: *mut Hot, id: u64, above: u64) -> u64 {
    // SAFETY: as there. Frames that a handler pushes lie above `frame`.
    unsafe {
        let looks = match modules::special_of(id).map(|s| s.kind) {
            Some(SpecialKind::Unwind) => 0,
            Some(SpecialKind::Walk) => 1,
            _ => return NO,
        };
        if (*shadow::top(hot)).rsp < above || (*hot).overflow != 0 || !handlers::none_runs() {
            return NO;
        }
        (*hot).stack_top = (*hot).stack_top.max(above + 16);
        (*hot).rearm_above = (*hot).rearm_above.max(above);
        (*hot).looked = looks;
        (*hot).end = 0;
        compiler_fence(Ordering::SeqCst);
        let bottom = shadow::bottom(hot);
        let mut frame = shadow::top(hot);
        while frame > bottom {
            settle::give_back_frame(frame);
            frame = frame.sub(1);
        }
        DONE
    }
}

/// As `slow::settle` and [`crate::record::settle::arm_again`].
unsafe fn arm_again(hot: *mut Hot, rsp: u64, inclusive: bool) -> u64 {
    // SAFETY: as there; the chunk is this thread's.
    unsafe {
        let is_recording = (*hot).root == 0
            && (*hot).muted == 0
            && (*hot).overflow == 0
            && (*hot).lost == 0
            && (*hot).real_end != 0;
        if !is_recording || rsp <= (*hot).rearm_above || !handlers::none_runs() {
            return NO;
        }
        let innermost = shadow::top(hot);
        let mut frame = innermost;
        while (*frame).rsp < rsp || inclusive && (*frame).rsp == rsp {
            let at = (*frame).rsp;
            let is_usual = (*frame).id & FRAME_OPEN == 0 && rsp - at <= SAME_STACK_BYTES;
            if !is_usual || !settle::was_given_back(hot, at) {
                return NO;
            }
            frame = frame.sub(1);
        }
        if frame != innermost && !drop_to(hot, innermost, frame) {
            return NO;
        }
        let bottom = shadow::bottom(hot);
        while frame > bottom {
            settle::arm_frame(frame);
            frame = frame.sub(1);
        }
        compiler_fence(Ordering::SeqCst);
        (*hot).rearm_above = 0;
        compiler_fence(Ordering::SeqCst);
        // A handler in this moment may have gone on to another chunk: that has set the end.
        let real_end = (&raw const (*hot).real_end).read_volatile();
        sys::replace_in_one(&raw mut (*hot).end, 0, real_end);
        if (&raw const (*hot).real_end).read_volatile() != real_end {
            (&raw mut (*hot).end).write_volatile(0);
        }
        AGAIN
    }
}

/// Takes the frames above `frame` off the shadow stack and records that they have ended.
unsafe fn drop_to(hot: *mut Hot, innermost: *mut ShadowFrame, frame: *mut ShadowFrame) -> bool {
    let frames = (innermost as u64 - frame as u64) / FRAME_BYTES as u64;
    // SAFETY: the reservation is checked against the chunk's end, as in the hot path.
    unsafe {
        let now = sys::tsc();
        if now >> 32 != (*hot).hi {
            return false;
        }
        let at = sys::add_in_one(&raw mut (*hot).cur, 16);
        if at >= (*hot).real_end {
            return false;
        }
        let ssp = &raw mut (*hot).ssp;
        let is_ours = sys::replace_in_one(ssp, innermost as u64, frame as u64);
        let (first, second) = if is_ours {
            (
                record::word(settle::end_of((*hot).looked), now as u32),
                frames,
            )
        } else {
            let nothing = record::word(record::NOTHING, 1);
            (nothing, nothing)
        };
        chunk::fill(at + 8, second);
        chunk::fill(at, first);
        is_ours
    }
}
