//! The slow path: whatever a common routine could not do in a few instructions.
//!
//! Given what the door saved ([`crate::memory::frame::Frame`]); gives back how to return. Decides
//! which event it is, and has the lower floors carry it out: callees are reached before they run,
//! the shadow stack is settled, the record is written.

use crate::events::{call_values, dormant, hook, process, system_call};
use crate::frames::shadow;
use crate::memory::frame::{Frame, RET, RET_8, Vectors};
use crate::memory::state;
use crate::memory::state::Hot;
use crate::patch::text;
use crate::plans::ready::Reach;
use crate::plans::{modules, slot};
use crate::reach::{propagate, thread};
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
    unsafe {
        if blocked == 0 || (*state::process()).dormant.load(Ordering::Relaxed) != 0 {
            return when_dormant(&mut *frame, mask);
        }
        let id = (*frame).id;
        let mut how = dispatch(&mut *frame, mask, &*vectors);
        if (*state::process()).dormant.load(Ordering::Relaxed) != 0 {
            dormant::put_text_back();
            if (*frame).id == id {
                how = dormant::begin_again(&mut *frame).unwrap_or(how);
            }
        }
        if (*frame).routine as i32 == common::HOOK_EXIT {
            originals::fill_return(&raw mut (*frame).above as u64);
        }
        how
    }
}

fn normal_return(routine: u64) -> u64 {
    match routine as i32 {
        common::INDIRECT | common::TAIL_INDIRECT => RET_8,
        _ => RET,
    }
}

/// Nothing is recorded any more; only a walker of the stack must still be served. No system call
/// but for that, with signals blocked: the process may be in a sandbox.
unsafe fn when_dormant(f: &mut Frame, mask: u64) -> u64 {
    if f.routine as i32 == common::SPECIAL {
        // SAFETY: as in slow.
        unsafe { dormant::special(f, &raw const f.above as u64, mask) };
    }
    if f.routine as i32 == common::HOOK_EXIT {
        // SAFETY: the word was made by the hook's return.
        unsafe { originals::fill_return(&raw const f.above as u64) };
    }
    dormant::begin_again(f).unwrap_or(normal_return(f.routine))
}

unsafe fn dispatch(f: &mut Frame, mask: u64, vectors: &Vectors) -> u64 {
    let routine = f.routine as i32;
    let normal = normal_return(f.routine);
    let above = &raw const f.above as u64;
    // SAFETY: signals are blocked, the frame is valid, all table entries are checked.
    unsafe {
        let hot = thread::ensure();
        if hot.is_null() {
            state::count_hole(hole::TABLE_FULL);
            if routine == common::SPECIAL {
                dormant::special(f, above, mask);
            }
            return normal;
        }
        (*hot).stack_top = (*hot).stack_top.max(above + 16);
        (*hot).mask = mask;
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
                    settle::give_back_one(hot, above);
                }
                settle::tail(hot, above + 8, f.id, None);
                call_values::enter(hot, f, vectors, slot::direct_target(f.id), above + 8);
            }
            common::TAIL_INDIRECT => tail_indirect(hot, f, vectors, above),
            common::SPECIAL => process::special(hot, f, above, mask),
            common::HOOK => {
                hook::enter(hot, above, f.id);
                call_values::enter_hooked(hot, f, vectors, above + 8);
            }
            common::HOOK_EXIT => leave(hot, f, vectors, above + 8),
            common::SYSTEM_CALL => system_call::enter(hot, f, above),
            common::SYSTEM_RETURN => system_call::leave(hot, f, above),
            _ => {}
        }
        normal
    }
}

/// A call or jump whose callee may not be instrumented yet: reach it, then wire the slot so that
/// it does not come here again. `id` points at the `call`/`jmp` to the callee.
unsafe fn first(hot: *mut Hot, id: u64, then: i32) -> Reach {
    // SAFETY: `id` is a return address in a slot, followed by E8 or E9 rel32.
    unsafe {
        let rel = (id as *const u8).add(1).cast::<i32>().read_unaligned();
        let callee = (id + 5).wrapping_add(rel as i64 as u64);
        let reach = propagate::reach(hot, callee);
        if reach == Reach::Ready {
            text::wire(id, then);
        }
        reach
    }
}

/// A direct call, whose callee may not be instrumented yet; `is_open`: its end is not recorded.
unsafe fn direct(hot: *mut Hot, f: &Frame, vectors: &Vectors, (rsp, is_open): (u64, bool)) {
    let then = if is_open {
        common::ENTRY_ONLY
    } else {
        common::ENTRY
    };
    // SAFETY: as in dispatch.
    unsafe {
        first(hot, f.id, then);
        settle::enter(hot, rsp, f.id, None, is_open);
        call_values::enter(hot, f, vectors, slot::direct_target(f.id), rsp);
    }
}

/// A call returns.
unsafe fn leave(hot: *mut Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    // SAFETY: as in dispatch.
    unsafe {
        call_values::leave(hot, f, vectors, rsp);
        settle::leave(hot, rsp, f.id);
    }
}

unsafe fn tail_indirect(hot: *mut Hot, f: &Frame, vectors: &Vectors, above: u64) {
    // SAFETY: as in dispatch.
    unsafe {
        let target = f.above[0];
        if modules::is_resolver_site(f.id) && (*shadow::call(hot)).rsp != above + 16 {
            // The lazy resolver working for code that is not traced.
            propagate::know(hot, target);
            return;
        }
        match propagate::reach(hot, target) {
            Reach::Ready => modules::remember(target),
            Reach::ReturnAddress => settle::give_back_one(hot, above + 8),
            Reach::Later => {}
        }
        settle::tail(hot, above + 16, f.id, Some(target));
        call_values::enter(hot, f, vectors, target, above + 16);
    }
}

unsafe fn indirect(hot: *mut Hot, f: &mut Frame, vectors: &Vectors, above: u64) -> u64 {
    let target = f.above[0];
    // SAFETY: as in dispatch; the slot's layout is that of an indirect call.
    unsafe {
        match propagate::reach(hot, target) {
            Reach::Ready => modules::remember(target),
            Reach::Later => {}
            Reach::ReturnAddress => {
                // Entry-only: the callee gets the original return address and is jumped to.
                settle::enter(hot, above + 8, f.id, Some(target), true);
                call_values::enter(hot, f, vectors, target, above + 8);
                let back = slot::original_return(f.id + 4);
                if back != 0 {
                    f.above[0] = back;
                    f.id = target;
                    return RET;
                }
                return RET_8;
            }
        }
        settle::enter(hot, above + 8, f.id, Some(target), false);
        call_values::enter(hot, f, vectors, target, above + 8);
        RET_8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routines_of_calls_through_pointers_take_the_operand_off() {
        for routine in 0..common::COUNT as i32 {
            let has_operand = matches!(routine, common::INDIRECT | common::TAIL_INDIRECT);
            let expected = if has_operand { RET_8 } else { RET };
            assert_eq!(normal_return(routine as u64), expected, "{routine}");
        }
    }
}
