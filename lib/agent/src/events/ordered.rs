//! A call that is recorded in order comes to the slow path: the first one of a slot, one through a
//! pointer to a callee that is not known yet, or one that finds no room.
//!
//! Given the call; its callee is reached before it runs, and the call is recorded: a direct one by
//! its slot afterwards, unless there was no room, the others here. No frame is kept. Each time
//! comes first what the clock says, for what is recorded around it has no stamp.

use crate::events::call_values;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, sys};
use crate::patch::text;
use crate::plans::ready::Reach;
use crate::plans::{kept_order, modules, slot};
use crate::reach::propagate;
use crate::record::{chunk, settle};
use sptrace_wire::plan::{ORDERED_FULL_ID, ORDERED_ID};
use sptrace_wire::record;

/// The slot with this id asks, since its callee may not be instrumented yet.
pub fn first(hot: &Hot, f: &mut Frame, vectors: &Vectors) {
    let id = f.id;
    settle_before(hot, f.above_at() + 8);
    let callee = slot::ordered_target(id);
    let reach = propagate::reach(hot, callee);
    if call_values::are_of(callee) {
        chunk::put(hot, record::ANCHOR, sys::tsc());
        // They follow the record, so the slot makes none: it goes on where one without room does.
        chunk::put_in_order(hot, id as u32, None, f.above_at() - 8);
        call_values::enter_in_order(hot, f, vectors, callee, f.above_at() + 8);
        f.id = id + u64::from(ORDERED_FULL_ID - ORDERED_ID);
        return;
    }
    match reach {
        Reach::Later => {}
        // The call that a jump goes on with may be one with an exit: it is asked for each time.
        Reach::ReturnAddress if counters::is_mixed() => {
            settle::give_back_one(hot, f.word_above(0));
        }
        Reach::Ready | Reach::ReturnAddress => text::wire_counted(id),
    }
    chunk::put(hot, record::ANCHOR, sys::tsc());
}

/// A call or jump that is recorded with its callee.
pub fn through_pointer(hot: &Hot, f: &Frame, vectors: &Vectors) {
    let target = f.above[0];
    settle_before(hot, f.above_at() + 16);
    match propagate::reach(hot, target) {
        Reach::Ready => {
            modules::remember(target);
            keep(hot, f.id, target);
        }
        Reach::ReturnAddress if counters::is_mixed() => {
            settle::give_back_one(hot, f.word_above(1));
        }
        Reach::ReturnAddress | Reach::Later => {}
    }
    chunk::put(hot, record::ANCHOR, sys::tsc());
    chunk::put_in_order(hot, f.id as u32, Some(target), f.above_at());
    call_values::enter_in_order(hot, f, vectors, target, f.above_at() + 16);
}

/// The slot with this id may keep the callee, which is instrumented. A busy lock leaves it to ask.
fn keep(hot: &Hot, id: u64, callee: u64) {
    if kept_order::may_keep(id, callee) && lock::lock(hot.tid.get()) {
        kept_order::keep(id, callee);
        lock::unlock();
    }
}

/// A direct call whose slot found no room for its record.
pub fn full(hot: &Hot, f: &Frame) {
    let id = f.id - u64::from(ORDERED_FULL_ID - ORDERED_ID);
    settle_before(hot, f.above_at() + 8);
    chunk::put(hot, record::ANCHOR, sys::tsc());
    chunk::put_in_order(hot, id as u32, None, f.above_at() - 8);
}

/// Frames of calls that are recorded with stamps and have ended before one from the stack pointer
/// `rsp`, or a jump of such a one: what its return needs of its values, just below that, stays.
fn settle_before(hot: &Hot, rsp: u64) {
    if counters::is_mixed() {
        settle::settle(hot, rsp - 1, false);
    }
}

/// The halves of what was recorded last, before the slow path has recorded anything.
pub type Last = [u32; 4];

/// True if it is a call in order, or a jump, from the stack pointer `rsp` to this function: then
/// nothing has run in between.
pub fn is_it([_, first, second, third]: Last, rsp: u64, function: u64) -> bool {
    if !counters::is_mixed() {
        return false;
    }
    let place = (rsp - record::PLACE_BELOW_BYTES) as u32;
    let is_direct = || {
        let id = modules::in_area(third).filter(|id| slot::is_ordered(*id));
        id.is_some_and(|id| slot::ordered_target(id) == function)
    };
    let is_through_pointer = || third == function as u32 && modules::in_area(second).is_some();
    second == place && is_direct() || first == place && is_through_pointer()
}

/// A function was called where it is not seen; its return address is at `word`.
pub fn unseen(hot: &Hot, word: u64, function: u64) {
    chunk::put(hot, record::AT_STACK, word - 8);
    chunk::put(hot, record::ENTERED, function);
}
