//! A call that is counted comes to the slow path: the first one of a slot, or one through a pointer
//! that the routine does not know yet.
//!
//! Given the call; its callee is reached before it runs, and the call is counted: a direct one by
//! its slot afterwards, one through a pointer here. No frame is kept, nothing is recorded.

use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, state};
use crate::patch::text;
use crate::plans::counted::{self, FORGOTTEN};
use crate::plans::ready::Reach;
use crate::plans::{modules, slot};
use crate::reach::{propagate, thread};
use core::sync::atomic::{Ordering, fence};
use sptrace_wire::control::hole;

/// The slot with this id asks, since its callee may not be instrumented yet.
pub fn first(hot: &Hot, id: u64) {
    if propagate::reach(hot, slot::counted_target(id)) != Reach::Later {
        text::wire_counted(id);
    }
}

/// True if calls of the kernel are intercepted where they make new tasks, and nowhere else.
pub fn is_creation() -> bool {
    let keeps_returns = counters::has_cells() || counters::is_in_order() || counters::is_mixed();
    keeps_returns && state::control().captures_offset == 0
}

/// A new task is about to be made, by an instruction: it must not take this thread's block for its
/// own, which it would where it shares memory and fs.
pub fn creates(f: &Frame) {
    const SYS_CLONE: u64 = 56;
    if f.rax == SYS_CLONE && thread::shares_block(f.rdi) {
        thread::let_go();
    }
}

/// A call or jump through a pointer.
pub fn through_pointer(hot: &Hot, f: &Frame) {
    let (id, target) = (f.id, f.above[0]);
    let is_ready = propagate::reach(hot, target) != Reach::Later;
    add(hot, id, target, is_ready);
}

/// Counts a call that no slot does. `is_ready`: its callee need not be reached again.
pub(super) fn add(hot: &Hot, id: u64, target: u64, is_ready: bool) {
    let mut cell = None;
    if lock::lock(hot.tid.get()) {
        cell = match is_ready {
            true => kept_cell(id, target),
            false => None,
        };
        cell = cell.or_else(|| {
            let cell = counters::cell_of_pointer(target, id, is_ready);
            cell.map(counters::displacement)
        });
        lock::unlock();
    }
    match cell {
        Some(cell) => counters::count_at(hot, cell),
        None => state::count_hole(hole::NO_CELL),
    }
}

/// The cell of the slot itself, if it keeps no other callee than this, which it does from here on.
fn kept_cell(id: u64, target: u64) -> Option<u32> {
    let kept = slot::kept(id).filter(|kept| kept.cell != 0)?;
    let may_be = match kept.callee {
        0 => true,
        FORGOTTEN => counters::is_named(kept.cell, id, target),
        callee if callee == target => return Some(kept.cell),
        _ => false,
    };
    // The linker's stub is the callee of one call only.
    let module = modules::known(target).filter(|m| may_be && !modules::is_stub(m, target))?;
    let m = modules::of_area(id)?;
    let word = m.area().word(kept.callee_at)?;
    counters::name_cell(kept.cell, id, target);
    module.has_plan().then(|| word.set(target))?;
    // Whoever ends the recording does not wait for this.
    fence(Ordering::SeqCst);
    if state::process().dormant.load(Ordering::Relaxed) != 0 {
        counted::stop_at(m, id);
    }
    Some(kept.cell)
}
