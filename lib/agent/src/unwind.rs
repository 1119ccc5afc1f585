//! Return addresses: a patched call leaves one in its slot on the stack. Whoever walks the stack
//! gets the original ones back first.
//!
//! Where the stack holds a foreign return address is known exactly: one word below the stack
//! pointer of each shadow frame. What the original was is written in the slot itself, whose exit
//! is `call exit; jmp back`. After the walker is gone, at the first event above its frame, the
//! frames that survived are armed again; frames that an exception removed are reported as unwound.

use crate::slow;
use crate::state::*;
use crate::{context, dormant, guarded, hook, module, stacks};
use sptrace_wire::plan::HOOK_EXIT_ID;
use sptrace_wire::record::{self, FRAME_OPEN};

/// Dropped frames further apart than this are not on one stack.
const SCAN_BYTES: u64 = 16 << 20;

/// The original return address of the slot whose exit is at `exit` (`call exit; jmp back`), or 0 if
/// that is no slot's exit.
pub unsafe fn original_return(exit: u64) -> u64 {
    // SAFETY: read only inside an area.
    unsafe {
        let m = module::of_area(exit);
        if m.is_null() || exit + 10 > (*m).area + (*m).area_bytes {
            return 0;
        }
        let p = exit as *const u8;
        if *p != 0xe8 || *p.add(5) != 0xe9 {
            return 0;
        }
        let rel = p.add(6).cast::<i32>().read_unaligned();
        (exit + 10).wrapping_add(rel as i64 as u64)
    }
}

/// The program's own return address behind what lies at `word`, if that is one of ours, else 0. A
/// hook's return may lead to the exit of the slot from which the function was called.
pub unsafe fn original_of(mut value: u64, word: u64) -> u64 {
    // SAFETY: reads areas and the table of originals.
    unsafe {
        if (*process()).originals.is_null() {
            return original_return(value);
        }
        let mut found = 0;
        for _ in 0..2 {
            let original = if hook::is_return(value) {
                hook::original(word)
            } else {
                original_return(value)
            };
            if original == 0 {
                break;
            }
            found = original;
            value = original;
        }
        found
    }
}

/// The exit in the slot of an entry id: after `call CALLEE` (5 bytes) or `call [rsp-8]` (4).
pub unsafe fn exit_of(id: u64) -> u64 {
    // SAFETY: ids point into slots.
    unsafe {
        match *(id as *const u8) {
            0xe8 => id + 5,
            0xff => id + 4,
            _ => 0,
        }
    }
}

/// The id of the exit in the slot of an entry id.
pub unsafe fn exit_id(id: u64) -> u32 {
    // SAFETY: as in exit_of; flags are cut off.
    unsafe {
        match hook::return_of(id) {
            0 => (exit_of(id << 2 >> 2) + 5) as u32,
            hooked => (hooked + HOOK_EXIT_ID) as u32,
        }
    }
}

/// Callee of a direct call or jump that follows the id.
pub unsafe fn direct_target(id: u64) -> u64 {
    // SAFETY: ids point into slots.
    unsafe {
        let p = id as *const u8;
        if *p != 0xe8 && *p != 0xe9 {
            return 0;
        }
        (id + 5).wrapping_add(p.add(1).cast::<i32>().read_unaligned() as i64 as u64)
    }
}

/// Before a walker runs whose own return address lies at `above`: every foreign return address
/// becomes the original one.
pub unsafe fn give_back(hot: *mut Hot, above: u64, mask: u64) {
    // SAFETY: shadow frames name live words of this thread's stack.
    unsafe {
        if (*slow::top(hot)).rsp < above {
            stacks::switched(hot, above);
        }
        context::move_contexts(hot, above, mask);
        let mut frame = slow::top(hot);
        let mut interrupted = false;
        while frame > stacks::bottom(hot) {
            if stacks::is_barrier(frame) {
                // What follows lies on the stack that a handler interrupted.
                interrupted |= stacks::holds(frame, above);
                frame = frame.sub(1);
                continue;
            }
            let word = ((*frame).rsp - 8) as *mut u64;
            if word as u64 >= above || interrupted {
                give_back_frame(frame);
            }
            frame = frame.sub(1);
        }
        let innermost = (*slow::top(hot)).rsp;
        if (*hot).overflow > 0 && innermost != u64::MAX && above < innermost {
            // Calls for which there was no room lie below all frames.
            dormant::scan(above & !7, innermost);
        }
        let [low, high] = (*hot).dropped;
        if high > above {
            if high - low < SCAN_BYTES {
                dormant::scan(low.max(above) & !7, high);
            }
            (*hot).dropped = [0; 2];
        }
        // A handler may walk while a walker is at work: arm again above the outer one.
        (*hot).rearm_above = (*hot).rearm_above.max(above);
        (*hot).end = 0;
    }
}

/// The return address of one call becomes the original one.
pub unsafe fn give_back_frame(frame: *const ShadowFrame) {
    // SAFETY: the frame's call has not returned.
    unsafe {
        let word = ((*frame).rsp - 8) as *mut u64;
        if (*frame).id & FRAME_OPEN == 0 && !guarded::holds(word as u64) {
            let original = original_of(word.read_volatile(), word as u64);
            if original != 0 {
                word.write_volatile(original);
            }
        }
    }
}

/// The call of one frame returns to its slot again.
pub unsafe fn arm_frame(frame: *const ShadowFrame) {
    // SAFETY: as in give_back_frame.
    unsafe {
        let id = (*frame).id;
        if id & FRAME_OPEN != 0 {
            return;
        }
        let place = (*frame).rsp - 8;
        if guarded::holds(place) {
            return;
        }
        let hooked = hook::return_of(id);
        if hooked != 0 {
            hook::arm_again(place, hooked);
            return;
        }
        let exit = exit_of(id);
        let original = original_of(exit, place);
        let word = place as *mut u64;
        if original != 0 && word.read_volatile() == original {
            word.write_volatile(exit);
        }
    }
}

/// True if a walker has been given the return address of the frame at `rsp`: none of ours is left there.
pub unsafe fn was_given_back(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the thread's own block. Behind a barrier lies another stack.
    unsafe { (*hot).rearm_above != 0 && rsp - 8 >= (*hot).rearm_above && (*hot).barriers == 0 }
}

/// How frames have ended that were given back: after a walker that only looked they have returned.
pub fn end_of(looked: u64) -> u32 {
    match looked {
        0 => record::UNWOUND,
        _ => record::CLOSED,
    }
}

/// Gives back the one return address at `at`, whose frame becomes entry-only.
pub unsafe fn give_back_one(hot: *mut Hot, at: u64) {
    // SAFETY: `at` is the return address of the running function.
    unsafe {
        let word = at as *mut u64;
        let original = original_of(word.read_volatile(), at);
        if original == 0 {
            return;
        }
        // Entry-only frames that have ended may lie above.
        slow::settle(hot, at + 8, false);
        // Whether or not its frame is known: the callee may keep what it reads (setjmp).
        word.write_volatile(original);
        let frame = slow::top(hot);
        if (*frame).rsp == at + 8 {
            (*frame).id |= FRAME_OPEN;
        }
    }
}

/// At the first event above the walker: the frames around us get their slots back.
pub unsafe fn arm_again(hot: *mut Hot, rsp: u64) {
    // SAFETY: as in give_back.
    unsafe {
        (*hot).rearm_above = 0;
        (*hot).end = (*hot).real_end;
        let mut frame = slow::top(hot);
        let mut interrupted = false;
        while frame > stacks::bottom(hot) {
            let is_barrier = stacks::is_barrier(frame);
            // As in give_back: what follows lies on the stack that a handler interrupted.
            interrupted |= is_barrier && stacks::holds(frame, rsp);
            if !is_barrier && ((*frame).rsp > rsp || interrupted) {
                arm_frame(frame);
            }
            frame = frame.sub(1);
        }
    }
}
