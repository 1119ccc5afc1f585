//! The slow path: whatever a common routine could not do in a few instructions.
//!
//! Given what the door saved ([`crate::memory::frame::Frame`]); gives back how to return. Decides
//! which event it is, and has the lower floors carry it out: callees are reached before they run,
//! the shadow stack is settled, the record is written.

use crate::events::active::Place;
use crate::events::acts::Acted;
use crate::events::exits::Call;
use crate::events::ordered::Last;
use crate::events::{
    acts, bids, call_values, counted, dormant, exits, hook, in_slot, ordered, returns, special,
    system_call,
};
use crate::frames::shadow;
use crate::memory::frame::{Frame, RET, RET_8, Vectors};
use crate::memory::thread::Hot;
use crate::memory::{counters, state};
use crate::plans::ready::Reach;
use crate::plans::{modules, slot};
use crate::reach::{lanes, levels, propagate, thread};
use crate::record::{chunk, originals, settle};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::common;
use sptrace_wire::record;

/// Called by the door, on the agent's stack. `mask`: the program's signal mask; signals are blocked
/// unless `blocked` is zero: nothing is recorded any more then. `vectors`: xmm0 to xmm15.
///
/// # Safety
/// `frame` is what the door pushed, and `vectors` what it has saved.
pub unsafe extern "C" fn slow(
    frame: *mut Frame,
    mask: u64,
    blocked: u64,
    vectors: *const Vectors,
) -> u64 {
    // SAFETY: the frame is ours until we return.
    let f = unsafe { &mut *frame };
    // SAFETY: so are the vector registers, which nobody changes.
    let vectors = unsafe { &*vectors };
    let is_dormant = || state::process().dormant.load(Ordering::Relaxed) != 0;
    if blocked == 0 || is_dormant() {
        return when_dormant(f, mask);
    }
    let (id, before_tsc) = (f.id, bids::before());
    let mut how = dispatch(f, mask, vectors);
    bids::tell(before_tsc);
    if is_dormant() {
        dormant::put_text_back();
        if f.id == id {
            how = dormant::begin_again(f).unwrap_or(how);
        }
    }
    if f.routine as i32 == common::HOOK_EXIT {
        originals::fill_return(f.word_above(0));
    }
    how
}

fn normal_return(routine: u64) -> u64 {
    match routine as i32 {
        common::INDIRECT
        | common::TAIL_INDIRECT
        | common::COUNT_INDIRECT
        | common::ORDER_INDIRECT
        | common::INDIRECT_PLACED
        | common::KEPT_INDIRECT => RET_8,
        _ => RET,
    }
}

/// Nothing is recorded any more; only a walker of the stack must still be served. No system call
/// but for that, with signals blocked: the process may be in a sandbox.
fn when_dormant(f: &mut Frame, mask: u64) -> u64 {
    if f.routine as i32 == common::SPECIAL {
        special::enter_dormant(f, mask);
    }
    if f.routine as i32 == common::HOOK_EXIT {
        originals::fill_return(f.word_above(0));
    }
    dormant::begin_again(f).unwrap_or(normal_return(f.routine))
}

fn dispatch(f: &mut Frame, mask: u64, vectors: &Vectors) -> u64 {
    let routine = f.routine as i32;
    let normal = normal_return(f.routine);
    let above = f.above_at();
    let Some(hot) = thread::ensure() else {
        state::count_hole(hole::TABLE_FULL);
        if routine == common::SPECIAL {
            special::enter_dormant(f, mask);
        }
        return normal;
    };
    let (hot, is_other_lane) = lane(hot, above);
    let last = come(hot, routine, (above, mask));
    match routine {
        common::ENTRY | common::ENTRY_PLACED => settle::enter(hot, above, f.id, None, false),
        common::FIRST => return direct(hot, f, vectors, (above, Way::Replaced)),
        common::ENTRY_ONLY => settle::enter(hot, above + 8, f.id, None, true),
        common::ENTRY_ONLY_FIRST => return direct(hot, f, vectors, (above + 8, Way::Open)),
        common::KEPT => settle::enter(hot, above + 8, f.id, None, false),
        common::KEPT_FIRST => return direct(hot, f, vectors, (above + 8, Way::Kept)),
        common::KEPT_INDIRECT => kept_indirect(hot, f, vectors, above + 16),
        common::RETURN => returns::returned(hot, f, vectors, above),
        common::RETURN_IN_CALL => returns::returned(hot, f, vectors, above + 8),
        common::EXIT => leave(hot, f, vectors, above),
        common::INDIRECT | common::INDIRECT_PLACED => return indirect(hot, f, vectors, above),
        common::TAIL => settle::tail(hot, above + 8, f.id, None),
        common::TAIL_FIRST => return tail_first(hot, f, vectors, above + 8),
        common::TAIL_INDIRECT => tail_indirect(hot, f, vectors, (above, is_other_lane)),
        common::COUNT_FIRST => counted::first(hot, f.id),
        common::COUNT_INDIRECT => counted::through_pointer(hot, f),
        common::ACTS_FIRST => in_slot::first(hot, f, vectors),
        common::ORDER_FIRST => ordered::first(hot, f, vectors),
        common::ORDER_INDIRECT => ordered::through_pointer(hot, f, vectors),
        common::ORDER_FULL => ordered::full(hot, f),
        // Whose thread runs is known by now: see `sptrace_patch::counts`.
        common::SYSTEM_CALL if counted::is_creation() => counted::creates(f),
        common::SYSTEM_RETURN if counted::is_creation() => {}
        common::SPECIAL => special::enter(hot, f, mask),
        common::HOOK | common::HOOK_RULED => {
            let is_new = hook::enter(hot, f, last);
            call_values::enter_hooked(hot, f, vectors, (above + 8, is_new));
        }
        common::HOOK_EXIT => leave(hot, f, vectors, above + 8),
        common::SYSTEM_CALL => system_call::enter(hot, f, vectors, above),
        common::SYSTEM_RETURN => system_call::leave(hot, f, vectors, above),
        _ => {}
    }
    normal
}

/// The block of what a thread runs that has come here, and whether it had another before.
#[inline]
fn lane(before: &'static Hot, above: u64) -> (&'static Hot, bool) {
    let hot = lanes::come(before, above);
    (hot, !core::ptr::eq(before, hot))
}

/// A thread has come here: what the host wished of it meanwhile is done. Gives what was recorded
/// last before that, to a hook.
#[inline]
fn come(hot: &Hot, routine: i32, (above, mask): (u64, u64)) -> Option<Last> {
    hot.stack_top.raise(above + 16);
    hot.came_from.set(above);
    hot.mask.set(mask);
    let untold = hot.untold.get();
    if untold != 0 {
        hot.untold.set(0);
        chunk::put(hot, record::CLOSED, untold);
    }
    let is_hook = matches!(routine, common::HOOK | common::HOOK_RULED);
    let last = if is_hook { chunk::last(hot) } else { None };
    levels::take(hot);
    chunk::look(hot);
    last
}

/// How a call of a function can be left out, which goes on at `to` then; 0: it cannot.
fn function(callee: u64, to: u64) -> Place {
    match to {
        0 => Place::Unavoidable,
        _ => Place::Function(call_values::errno_at(callee)),
    }
}

/// A call is not made: it goes on at `to`, with this result.
fn give(f: &mut Frame, result: u64, to: u64, how: u64) -> u64 {
    f.rax = result;
    f.id = to;
    how
}

/// What becomes of the return address of a direct call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It leads to the slot.
    Replaced,
    /// It stays, and the end is not recorded.
    Open,
    /// It stays, and the end is seen where it leads.
    Kept,
}

/// A direct call, whose callee may not be instrumented yet.
fn direct(hot: &Hot, f: &mut Frame, vectors: &Vectors, (rsp, way): (u64, Way)) -> u64 {
    let then = match way {
        Way::Open => common::ENTRY_ONLY,
        Way::Replaced => counters::entry_routine(),
        Way::Kept => counters::routine_of(common::KEPT),
    };
    let is_open = way == Way::Open;
    propagate::first(hot, f.id, then);
    let callee = slot::direct_target(f.id);
    let acted = acts::act(hot, f, vectors, callee, rsp);
    if is_open {
        exits::missed(acted);
    }
    if acted.is_quiet
        && (is_open || exits::enter_quietly(hot, f, vectors, Call { callee, rsp }, acted))
    {
        return RET;
    }
    settle::enter(hot, rsp, f.id, None, is_open);
    call_values::enter(hot, f, vectors, callee, rsp);
    if !is_open {
        exits::enter(hot, f, vectors, Call { callee, rsp }, acted);
    }
    if !acted.orders.is_any() {
        return RET;
    }
    // Behind the call in the slot, or where it returns to.
    let (to, how) = match way {
        Way::Replaced => (slot::exit_of(f.id), RET),
        Way::Open | Way::Kept => (f.above[0], RET_8),
    };
    match acted.orders.carry_out(hot, function(callee, to)) {
        Some(result) => give(f, result, to, how),
        None => RET,
    }
}

/// A call returns.
fn leave(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    if !exits::leave(hot, f, vectors, rsp) {
        settle::leave(hot, rsp, f.id);
    }
}

/// A direct jump to another function, which may not be instrumented yet.
fn tail_first(hot: &Hot, f: &mut Frame, vectors: &Vectors, rsp: u64) -> u64 {
    if propagate::first(hot, f.id, common::TAIL) == Reach::ReturnAddress {
        settle::give_back_one(hot, f.word_above(0));
    }
    let callee = slot::direct_target(f.id);
    let acted = jumped(hot, f, vectors, Call { callee, rsp }, None);
    let back = f.above[0];
    if acted.orders.is_any()
        && let Some(result) = acted.orders.carry_out(hot, function(callee, back))
    {
        return give(f, result, back, RET_8);
    }
    RET
}

/// A thread changes to another lane by this jump: to where that was, or to the function that it
/// begins with, which nobody calls.
fn lane_goes_on(hot: &Hot, f: &Frame, rsp: u64) {
    let target = f.above[0];
    if propagate::is_entry(target) {
        propagate::reach(hot, target);
        settle::enter_unseen(hot, rsp, target);
    }
}

fn tail_indirect(hot: &Hot, f: &Frame, vectors: &Vectors, (above, is_other_lane): (u64, bool)) {
    if is_other_lane {
        return lane_goes_on(hot, f, above + 16);
    }
    let target = f.above[0];
    if modules::is_resolver_site(f.id) && shadow::call(hot).rsp() != above + 16 {
        // The lazy resolver working for code that is not traced.
        propagate::know(hot, target);
        return;
    }
    match propagate::reach(hot, target) {
        Reach::Ready => modules::remember(target),
        Reach::ReturnAddress => settle::give_back_one(hot, f.word_above(1)),
        Reach::Later => {}
    }
    let call = Call {
        callee: target,
        rsp: above + 16,
    };
    let acted = jumped(hot, f, vectors, call, Some(target));
    // The routine can take one word off the stack, and two stand there.
    acted.orders.carry_out(hot, Place::Unavoidable);
}

/// A call goes on as one of `callee`. `pointer`: that, where the jump goes through a pointer.
fn jumped(hot: &Hot, f: &Frame, vectors: &Vectors, call: Call, pointer: Option<u64>) -> Acted {
    let Call { callee, rsp } = call;
    let acted = acts::jumped(hot, f, vectors, callee, rsp);
    if !acted.is_quiet {
        settle::tail(hot, rsp, f.id, pointer);
        call_values::enter(hot, f, vectors, callee, rsp);
    }
    exits::enter(hot, f, vectors, Call { callee, rsp }, acted);
    acted
}

fn indirect(hot: &Hot, f: &mut Frame, vectors: &Vectors, above: u64) -> u64 {
    let callee = f.above[0];
    let reach = propagate::reach(hot, callee);
    if reach == Reach::Ready {
        modules::remember(callee);
    }
    let rsp = above + 8;
    let call = Call { callee, rsp };
    let acted = acts::act(hot, f, vectors, callee, rsp);
    if reach == Reach::ReturnAddress {
        return indirect_entry_only(hot, f, vectors, call, acted);
    }
    if acted.is_quiet && exits::enter_quietly(hot, f, vectors, call, acted) {
        return RET_8;
    }
    settle::enter(hot, rsp, f.id, Some(callee), false);
    call_values::enter(hot, f, vectors, callee, rsp);
    exits::enter(hot, f, vectors, call, acted);
    if !acted.orders.is_any() {
        return RET_8;
    }
    let exit = slot::exit_of(f.id);
    match acted.orders.carry_out(hot, function(callee, exit)) {
        Some(result) => give(f, result, exit, RET_8),
        None => RET_8,
    }
}

/// A call through a pointer that keeps its return address: that stands above its target.
fn kept_indirect(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    let callee = f.above[0];
    if propagate::reach(hot, callee) == Reach::Ready {
        modules::remember(callee);
    }
    let call = Call { callee, rsp };
    let acted = acts::act(hot, f, vectors, callee, rsp);
    if acted.is_quiet && exits::enter_quietly(hot, f, vectors, call, acted) {
        return;
    }
    settle::enter(hot, rsp, f.id, Some(callee), false);
    call_values::enter(hot, f, vectors, callee, rsp);
    exits::enter(hot, f, vectors, call, acted);
    // The routine can take one word off the stack, and two stand there.
    acted.orders.carry_out(hot, Place::Unavoidable);
}

/// The callee gets the original return address and is jumped to.
fn indirect_entry_only(
    hot: &Hot,
    f: &mut Frame,
    vectors: &Vectors,
    Call { callee, rsp }: Call,
    acted: Acted,
) -> u64 {
    let back = slot::original_return(f.id + 4);
    exits::missed(acted);
    if !acted.is_quiet {
        settle::enter(hot, rsp, f.id, Some(callee), true);
        call_values::enter(hot, f, vectors, callee, rsp);
    }
    if acted.orders.is_any()
        && let Some(result) = acted.orders.carry_out(hot, function(callee, back))
    {
        return give(f, result, back, RET_8);
    }
    match back {
        0 => RET_8,
        back => jump_to(f, callee, back),
    }
}

/// The callee of a call through a pointer is jumped to, and returns to `back`.
fn jump_to(f: &mut Frame, target: u64, back: u64) -> u64 {
    f.above[0] = back;
    f.id = target;
    RET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routines_of_calls_through_pointers_take_the_operand_off() {
        for routine in 0..common::COUNT as i32 {
            let has_operand = matches!(
                routine,
                common::INDIRECT
                    | common::TAIL_INDIRECT
                    | common::COUNT_INDIRECT
                    | common::ORDER_INDIRECT
                    | common::INDIRECT_PLACED
                    | common::KEPT_INDIRECT
            );
            let expected = if has_operand { RET_8 } else { RET };
            assert_eq!(normal_return(routine as u64), expected, "{routine}");
        }
    }
}
