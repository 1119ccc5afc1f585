//! Calls that keep their return addresses, and the places that they return to.
//!
//! Given what the door saved, where a slot or a common routine could not go on by itself
//! ([`crate::routines::returns`]); reaches the callee, and records the call or its end. Must not
//! know of payloads and values: such calls have none.

use crate::memory::counters;
use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::plans::ready::Reach;
use crate::plans::{modules, slot};
use crate::reach::propagate;
use crate::record::{chunk, settle};
use sptrace_wire::plan::common;

/// The event of one of these routines.
pub fn event(hot: &Hot, f: &Frame, routine: i32) {
    let above = f.above_at();
    match routine {
        common::KEPT_FIRST => first(hot, f),
        common::KEPT_INDIRECT => through_pointer(hot, f),
        common::RETURN => returned(hot, f.id, above),
        common::RETURN_IN_CALL => returned(hot, f.id, above + 8),
        _ => settle::enter(hot, above + 8, f.id, None, false),
    }
}

/// A direct call, whose callee may not be instrumented yet.
fn first(hot: &Hot, f: &Frame) {
    propagate::first(hot, f.id, counters::routine_of(common::KEPT));
    settle::enter(hot, f.above_at() + 8, f.id, None, false);
}

/// A call through a pointer: its target and its return address stand above the id.
fn through_pointer(hot: &Hot, f: &Frame) {
    let callee = f.above[0];
    if propagate::reach(hot, callee) == Reach::Ready {
        modules::remember(callee);
    }
    settle::enter(hot, f.above_at() + 16, f.id, Some(callee), false);
}

/// Control has come to a return point: by the return of its call if that is the innermost one, and
/// lies at this stack pointer, else by a jump.
fn returned(hot: &Hot, id: u64, rsp: u64) {
    let call = slot::call_of_return(id);
    if hot.overflow.get() > 0 && hot.top().rsp() > rsp {
        // One of the calls that had no room; a jump to here ends none, which cannot be told.
        hot.overflow.sub(1);
        chunk::lose(hot);
        return;
    }
    settle::settle(hot, rsp, false);
    let top = hot.top();
    if top.rsp() == rsp && top.id() as u32 == call as u32 {
        chunk::put_event(hot, id as u32, None);
        hot.pop();
        settle::frames_ended(hot);
    } else if top.rsp() == rsp {
        // Control is in its caller.
        settle::settle(hot, rsp, true);
    }
}
