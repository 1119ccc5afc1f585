//! The slow path: whatever a common routine could not do in a few instructions.
//!
//! Given what the door saved ([`crate::memory::frame::Frame`]); gives back how to return. Decides
//! which event it is, and has the lower floors carry it out: callees are reached before they run,
//! the shadow stack is settled, the record is written.

use crate::events::exits::Call;
use crate::events::{
    acts, call_values, counted, dormant, exits, hook, ordered, special, system_call,
};
use crate::frames::shadow;
use crate::memory::frame::{Frame, RET, RET_8, Vectors};
use crate::memory::state;
use crate::memory::thread::Hot;
use crate::patch::text;
use crate::plans::ready::Reach;
use crate::plans::{modules, slot};
use crate::reach::{levels, propagate, thread};
use crate::record::{originals, settle};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::common;

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
    let id = f.id;
    let mut how = dispatch(f, mask, vectors);
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
        | common::ORDER_INDIRECT => RET_8,
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
    hot.stack_top.raise(above + 16);
    hot.mask.set(mask);
    levels::take(hot);
    match routine {
        common::ENTRY => settle::enter(hot, above, f.id, None, false),
        common::FIRST => direct(hot, f, vectors, (above, false)),
        common::ENTRY_ONLY => settle::enter(hot, above + 8, f.id, None, true),
        common::ENTRY_ONLY_FIRST => direct(hot, f, vectors, (above + 8, true)),
        common::EXIT => leave(hot, f, vectors, above),
        common::INDIRECT => return indirect(hot, f, vectors, above),
        common::TAIL => settle::tail(hot, above + 8, f.id, None),
        common::TAIL_FIRST => {
            if first(hot, f.id, common::TAIL) == Reach::ReturnAddress {
                settle::give_back_one(hot, f.word_above(0));
            }
            jumped(
                hot,
                f,
                vectors,
                Call {
                    callee: slot::direct_target(f.id),
                    rsp: above + 8,
                },
                None,
            );
        }
        common::TAIL_INDIRECT => tail_indirect(hot, f, vectors, above),
        common::COUNT_FIRST => counted::first(hot, f.id),
        common::COUNT_INDIRECT => counted::through_pointer(hot, f),
        common::ORDER_FIRST => ordered::first(hot, f.id),
        common::ORDER_INDIRECT => ordered::through_pointer(hot, f),
        common::ORDER_FULL => ordered::full(hot, f),
        // Whose thread runs is known by now: see `sptrace_patch::counts`.
        common::SYSTEM_CALL if counted::is_creation() => counted::creates(f),
        common::SYSTEM_RETURN if counted::is_creation() => {}
        common::SPECIAL => special::enter(hot, f, mask),
        common::HOOK => {
            hook::enter(hot, f);
            call_values::enter_hooked(hot, f, vectors, above + 8);
        }
        common::HOOK_EXIT => leave(hot, f, vectors, above + 8),
        common::SYSTEM_CALL => system_call::enter(hot, f, above),
        common::SYSTEM_RETURN => system_call::leave(hot, f, above),
        _ => {}
    }
    normal
}

/// A call or jump whose callee may not be instrumented yet: reach it, then wire the slot so that
/// it does not come here again. `id` points at the `call`/`jmp` to the callee.
fn first(hot: &Hot, id: u64, then: i32) -> Reach {
    let reach = propagate::reach(hot, slot::direct_target(id));
    if reach == Reach::Ready {
        text::wire(id, then);
    }
    reach
}

/// A direct call, whose callee may not be instrumented yet; `is_open`: its end is not recorded.
fn direct(hot: &Hot, f: &Frame, vectors: &Vectors, (rsp, is_open): (u64, bool)) {
    let then = match is_open {
        true => common::ENTRY_ONLY,
        false => common::ENTRY,
    };
    first(hot, f.id, then);
    let callee = slot::direct_target(f.id);
    let acted = acts::act(hot, f, vectors, callee, rsp);
    if is_open {
        exits::missed(acted);
    }
    if acted.is_quiet
        && (is_open || exits::enter_quietly(hot, f, vectors, Call { callee, rsp }, acted))
    {
        return;
    }
    settle::enter(hot, rsp, f.id, None, is_open);
    call_values::enter(hot, f, vectors, callee, rsp);
    if !is_open {
        exits::enter(hot, f, vectors, Call { callee, rsp }, acted);
    }
}

/// A call returns.
fn leave(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    if !exits::leave(hot, f, vectors, rsp) {
        settle::leave(hot, rsp, f.id);
    }
}

fn tail_indirect(hot: &Hot, f: &Frame, vectors: &Vectors, above: u64) {
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
    jumped(
        hot,
        f,
        vectors,
        Call {
            callee: target,
            rsp: above + 16,
        },
        Some(target),
    );
}

/// A call goes on as one of `callee`. `pointer`: that, where the jump goes through a pointer.
fn jumped(hot: &Hot, f: &Frame, vectors: &Vectors, call: Call, pointer: Option<u64>) {
    let Call { callee, rsp } = call;
    let acted = acts::jumped(hot, f, vectors, callee, rsp);
    if !acted.is_quiet {
        settle::tail(hot, rsp, f.id, pointer);
        call_values::enter(hot, f, vectors, callee, rsp);
    }
    exits::enter(hot, f, vectors, Call { callee, rsp }, acted);
}

fn indirect(hot: &Hot, f: &mut Frame, vectors: &Vectors, above: u64) -> u64 {
    let target = f.above[0];
    let reach = propagate::reach(hot, target);
    if reach == Reach::Ready {
        modules::remember(target);
    }
    let back = slot::original_return(f.id + 4);
    let rsp = above + 8;
    let acted = acts::act(hot, f, vectors, target, rsp);
    if reach == Reach::ReturnAddress {
        // Entry-only: the callee gets the original return address and is jumped to.
        exits::missed(acted);
        if !acted.is_quiet {
            settle::enter(hot, rsp, f.id, Some(target), true);
            call_values::enter(hot, f, vectors, target, rsp);
        }
        return match back {
            0 => RET_8,
            back => jump_to(f, target, back),
        };
    }
    if acted.is_quiet
        && exits::enter_quietly(
            hot,
            f,
            vectors,
            Call {
                callee: target,
                rsp,
            },
            acted,
        )
    {
        return RET_8;
    }
    settle::enter(hot, rsp, f.id, Some(target), false);
    call_values::enter(hot, f, vectors, target, rsp);
    exits::enter(
        hot,
        f,
        vectors,
        Call {
            callee: target,
            rsp,
        },
        acted,
    );
    RET_8
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
            );
            let expected = if has_operand { RET_8 } else { RET };
            assert_eq!(normal_return(routine as u64), expected, "{routine}");
        }
    }
}
