//! Calls with values that a signal has interrupted in a common routine and that will not go on
//! there: the frame that brings their return.
//!
//! Given by [`crate::signals::context`] how far the routine had come; does what is missing, so that
//! the call is one that the routine has recorded. A record that is not complete says so by itself.
//! Must not know registers, slots and signal frames.

use crate::memory::rows::RETURNS;
use crate::memory::thread::{FRAME_BYTES, Hot, ShadowFrame};
use crate::plans::payloads;
use crate::routines::marks::Phase;
use crate::signals::interrupted::{put_in, repair, take_out};
use sptrace_wire::record::{FRAME_OPEN, FRAME_VALUES};

/// The frame of a call's values, of a call of `callee` whose frame is at `rsp`. `None`: its return
/// brings none.
pub fn frame(callee: u64, rsp: u64) -> Option<ShadowFrame> {
    let row = payloads::row(callee)?;
    (row.kinds.get() & RETURNS != 0).then_some(ShadowFrame {
        rsp: rsp - 1,
        id: FRAME_OPEN | FRAME_VALUES,
        callee,
    })
}

/// Makes the shadow stack have the frame of the values of a call that was recorded: `call` is its
/// own, and `below` the frame that the routine has pushed upon.
pub fn push_frame(
    hot: &Hot,
    phase: Phase,
    (call, callee): (ShadowFrame, u64),
    below: u64,
    handler: &core::ops::Range<u64>,
) {
    if phase == Phase::PushedCall || phase == Phase::PairedCall {
        repair(hot, below, call);
    }
    let Some(frame) = frame(callee, call.rsp) else {
        return;
    };
    match phase {
        Phase::PairedCall => repair(hot, below + FRAME_BYTES as u64, frame),
        _ => put_in(hot, frame, handler),
    }
}

/// The call at `rsp` is over, and so is what its values have kept.
pub fn pop_frame(hot: &Hot, rsp: u64) {
    take_out(hot, rsp - 1);
}
