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
use crate::frames::handlers;
use crate::frames::shadow::SAME_STACK_BYTES;
use crate::memory::frame::Frame;
use crate::memory::thread::{FRAME_BYTES, FrameAt, Hot, ShadowFrame};
use crate::memory::{counters, state, sys, thread};
use crate::plans::modules;
use crate::record::chunk::Reserved;
use crate::record::settle;
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
    // SAFETY: the frame is ours, and gs points at this thread's block.
    let (f, hot) = unsafe { (&*frame, thread::of_gs()) };
    let Some(hot) = hot else {
        return NO;
    };
    let above = f.above_at();
    let is_plain = hot.tid.get() != 0
        && hot.barriers.get() == 0
        && state::process().originals.get().is_none()
        && hot.dropped.get()[1] <= above;
    if !is_plain {
        return NO;
    }
    let door = frame as u64;
    let (rsp, inclusive) = match f.routine as i32 {
        common::SPECIAL => return give_back(hot, f.id, above),
        common::SYSTEM_CALL => return system_call_unblocked::enter(hot, f, door).into(),
        common::SYSTEM_RETURN => return system_call_unblocked::leave(hot, f, door).into(),
        // The door asks this itself of those below.
        _ if hot.rearm_above.get() == 0 => return NO,
        common::ENTRY => (above, true),
        common::ENTRY_ONLY | common::KEPT | common::INDIRECT => (above + 8, true),
        common::KEPT_INDIRECT => (above + 16, true),
        common::EXIT | common::RETURN => (above, false),
        common::RETURN_IN_CALL => (above + 8, false),
        common::TAIL => (above + 8, false),
        common::TAIL_INDIRECT => (above + 16, false),
        _ => return NO,
    };
    arm_again(hot, rsp, inclusive)
}

/// As [`crate::events::unwind::give_back`].
fn give_back(hot: &Hot, id: u64, above: u64) -> u64 {
    if counters::keeps_returns() {
        return let_pass(hot, id, above);
    }
    let looks = match modules::special_of(id).map(|s| s.kind) {
        Some(SpecialKind::Unwind) => 0,
        Some(SpecialKind::Walk) => 1,
        _ => return NO,
    };
    if hot.top().rsp() < above || hot.overflow.get() != 0 || !handlers::none_runs() {
        return NO;
    }
    hot.stack_top.raise(above + 16);
    hot.rearm_above.raise(above);
    hot.looked.set(looks);
    hot.end.set(0);
    compiler_fence(Ordering::SeqCst);
    let bottom = hot.bottom();
    let mut frame = hot.top();
    while frame > bottom {
        settle::give_back_frame(frame);
        frame = frame.below();
    }
    DONE
}

/// Where calls keep their return addresses there is nothing to give back, and no context to move
/// unless a handler runs. What an exception leaves is settled at the first event that finds it.
#[inline(never)]
fn let_pass(hot: &Hot, id: u64, above: u64) -> u64 {
    match modules::special_of(id).map(|s| s.kind) {
        _ if !handlers::none_runs() => NO,
        Some(SpecialKind::Walk) => DONE,
        Some(SpecialKind::Unwind) if hot.root.get() == 0 => {
            hot.rearm_above.raise(above);
            hot.looked.set(0);
            DONE
        }
        _ => NO,
    }
}

/// As `slow::settle` and [`crate::record::settle::arm_again`].
fn arm_again(hot: &Hot, rsp: u64, inclusive: bool) -> u64 {
    let is_recording = hot.root.get() == 0
        && hot.muted.get() == 0
        && hot.overflow.get() == 0
        && hot.lost.get() == 0
        && hot.real_end.get() != 0;
    let is_silent = state::process().is_silent();
    if !is_recording || is_silent || rsp <= hot.rearm_above.get() || !handlers::none_runs() {
        return NO;
    }
    let innermost = hot.top();
    // Below the innermost one a frame whose end is not seen has hardly ever ended before.
    if counters::keeps_returns() && settle::has_no_end(innermost.id()) {
        return NO;
    }
    let mut frame = innermost;
    loop {
        let ShadowFrame { rsp: at, id, .. } = frame.get();
        if at > rsp || at == rsp && !inclusive {
            break;
        }
        let is_usual = id & FRAME_OPEN == 0 && rsp - at <= SAME_STACK_BYTES;
        if !is_usual || !settle::was_given_back(hot, at) {
            return NO;
        }
        frame = frame.below();
    }
    if frame != innermost && !drop_to(hot, innermost, frame) {
        return NO;
    }
    let bottom = hot.bottom();
    if counters::keeps_returns() {
        frame = bottom;
    }
    while frame > bottom {
        settle::arm_frame(frame);
        frame = frame.below();
    }
    settle::unless_silent(hot);
    hot.rearm_above.set(0);
    compiler_fence(Ordering::SeqCst);
    // A handler in this moment may have gone on to another chunk: that has set the end.
    let real_end = hot.real_end.get();
    hot.end.replace_in_one(0, real_end);
    if hot.real_end.get() != real_end {
        hot.end.set(0);
    }
    AGAIN
}

/// Takes the frames above `frame` off the shadow stack and records that they have ended.
fn drop_to(hot: &Hot, innermost: FrameAt, frame: FrameAt) -> bool {
    let frames = (innermost.address() - frame.address()) / FRAME_BYTES as u64;
    let now = sys::tsc();
    if now >> 32 != hot.hi.get() {
        return false;
    }
    // Checked against the chunk's end, as in the hot path.
    let Some(to) = Reserved::take(hot, 16, |hot| hot.real_end.get()) else {
        return false;
    };
    let is_ours = hot.ssp.replace_in_one(innermost.address(), frame.address());
    let (first, second) = if is_ours {
        let kind = settle::end_of(hot.looked.get());
        (record::word(kind, now as u32), frames)
    } else {
        let nothing = record::word(record::NOTHING, 1);
        (nothing, nothing)
    };
    to.fill(8, second);
    to.fill(0, first);
    is_ours
}
