//! A call that is counted comes to the slow path: the first one of a slot, or one through a pointer
//! that the routine does not know yet.
//!
//! Given the call; its callee is reached before it runs, and the call is counted: a direct one by
//! its slot afterwards, one through a pointer here. No frame is kept, nothing is recorded.

use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, state};
use crate::patch::text;
use crate::plans::ready::Reach;
use crate::plans::slot;
use crate::reach::propagate;
use sptrace_wire::control::hole;

/// The slot with this id asks, since its callee may not be instrumented yet.
pub fn first(hot: &Hot, id: u64) {
    if propagate::reach(hot, slot::counted_target(id)) != Reach::Later {
        text::wire_counted(id);
    }
}

/// A call or jump through a pointer.
pub fn through_pointer(hot: &Hot, f: &Frame) {
    let (id, target) = (f.id, f.above[0]);
    let is_ready = propagate::reach(hot, target) != Reach::Later;
    let mut cell = None;
    if lock::lock(hot.tid.get()) {
        cell = counters::cell_of_pointer(target, id, is_ready);
        lock::unlock();
    }
    match cell {
        Some(cell) => counters::count_at(hot, counters::displacement(cell)),
        None => state::count_hole(hole::NO_CELL),
    }
}
