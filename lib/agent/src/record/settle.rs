//! What an event means for the shadow stack, and the records that say so.
//!
//! Given a thread's block and the stack pointer of an event; pushes and pops frames. A frame whose
//! stack pointer is not above the present one has ended; if its exit was not seen (longjmp, throw,
//! a call without an end), it is recorded so. Also the return addresses of frames: given back to a
//! walker, and armed again. Must not know what led to the event.

use crate::frames::shadow::{FRAME_DONE, SAME_STACK_BYTES};
use crate::frames::{shadow, stacks};
use crate::memory::state::{FRAME_BYTES, Hot, ShadowFrame};
use crate::memory::{guarded, state, sys};
use crate::plans::slot;
use crate::record::{chunk, deep, originals};
use sptrace_wire::control::hole;
use sptrace_wire::record;
use sptrace_wire::record::{FRAME_OPEN, FRAME_SYSTEM, FRAME_VALUES};

/// After frames have left the shadow stack: outside the root nothing is recorded.
pub unsafe fn frames_ended(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).root != 0 && (*hot).ssp < (*hot).root {
            (*hot).root = 0;
            chunk::mute(hot);
        }
    }
}

/// True if the root's frame is gone without an event that shows it: a longjmp or an exception has
/// left it, and what runs now is called from code that is not patched. Its return address is not
/// where it was. Not known while a walker has the original ones.
pub unsafe fn root_is_gone(hot: *mut Hot) -> bool {
    // SAFETY: the root's frame lies in the shadow stack; another stack is read through the kernel.
    unsafe {
        let root = (*hot).root as *const ShadowFrame;
        if root.is_null() || (*hot).rearm_above != 0 || (*root).id & FRAME_OPEN != 0 {
            return false;
        }
        let mut word = 0u64;
        let got = sys::read_own((*root).rsp as usize - 8, (&raw mut word).cast(), 8);
        got != 8 || word != slot::return_of((*root).id)
    }
}

/// Removes frames that have ended before the stack pointer came to `rsp`. With `inclusive`, a frame
/// at `rsp` itself has ended too.
pub unsafe fn settle(hot: *mut Hot, rsp: u64, inclusive: bool) {
    let mut unwound = 0u64;
    let mut closed = 0u64;
    let mut is_one_stack = false;
    // SAFETY: the sentinel at the bottom has the highest stack pointer and stops every loop.
    unsafe {
        loop {
            if stacks::left(hot, rsp) {
                continue;
            }
            let frame = shadow::top(hot);
            let at = (*frame).rsp;
            if !stacks::jumped_out(hot, rsp) {
                let ended = at < rsp || inclusive && at == rsp;
                if !ended || at < rsp && stacks::switched(hot, rsp) {
                    break;
                }
                let is_far = rsp - at > SAME_STACK_BYTES && !is_one_stack;
                if is_far && !stacks::handler_ended(hot, at, rsp) {
                    is_one_stack = stacks::reaches(hot, rsp);
                    if !is_one_stack {
                        state::count_hole(hole::OTHER_STACK);
                        break;
                    }
                }
            }
            if (*frame).id & FRAME_VALUES != 0 {
                (*hot).ssp -= FRAME_BYTES as u64;
                continue;
            }
            let given_back = was_given_back(hot, at);
            if (*frame).id & FRAME_SYSTEM != 0 {
                tell_ended(hot, &mut unwound, &mut closed);
                left_system_call(hot, (*frame).callee);
            } else if (*frame).id & FRAME_DONE != 0 {
                tell_ended(hot, &mut unwound, &mut closed);
                chunk::put_event(hot, slot::exit_id((*frame).id), None);
            } else if (*frame).id & FRAME_OPEN != 0 || given_back && (*hot).looked != 0 {
                if unwound > 0 {
                    chunk::put(hot, record::UNWOUND, unwound);
                    unwound = 0;
                }
                closed += 1;
            } else {
                if closed > 0 {
                    chunk::put(hot, record::CLOSED, closed);
                    closed = 0;
                }
                unwound += 1;
            }
            if !given_back {
                shadow::drop_range(hot, at);
            }
            (*hot).ssp -= FRAME_BYTES as u64;
            if (*hot).root > (*hot).ssp {
                tell_ended(hot, &mut unwound, &mut closed);
                frames_ended(hot);
            }
        }
        tell_ended(hot, &mut unwound, &mut closed);
        if (*hot).rearm_above != 0 && rsp > (*hot).rearm_above {
            arm_again(hot, rsp);
        }
        if (*hot).root != 0 && root_is_gone(hot) {
            let frames = ((*hot).ssp - (*hot).root) / FRAME_BYTES as u64 + 1;
            drop_frames(hot, frames);
        }
    }
}

/// A call of the kernel has ended without an event: a handler that interrupted it has jumped away,
/// or its thread was moved past it.
unsafe fn left_system_call(hot: *mut Hot, number: u64) {
    let head = [number, 0];
    // SAFETY: the thread's own block.
    unsafe { chunk::put_values(hot, record::SYSTEM_RETURN, record::LEFT, &head, &[]) };
}

/// In a fork child: what the parent has asked of the kernel does not come back here, nor do calls
/// with values, of which this process has not recorded the beginning.
pub unsafe fn forget_system_calls(hot: *mut Hot) {
    // SAFETY: the thread's own block, from the sentinel to the top.
    unsafe {
        let top = shadow::top(hot);
        let mut to = shadow::bottom(hot);
        let mut from = to;
        while from <= top {
            let is_other =
                !shadow::is_barrier(from) && (*from).id & (FRAME_SYSTEM | FRAME_VALUES) != 0;
            if !is_other {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        (*hot).ssp = to.sub(1) as u64;
    }
}

/// Records the frames counted; one of the numbers is zero.
unsafe fn tell_ended(hot: *mut Hot, unwound: &mut u64, closed: &mut u64) {
    for (kind, count) in [(record::UNWOUND, unwound), (record::CLOSED, closed)] {
        let count = core::mem::take(count);
        if count > 0 {
            // SAFETY: the thread's own block.
            unsafe { chunk::put(hot, kind, count) };
        }
    }
}

/// A call begins. `callee`: of a call through a pointer, which may be null.
pub(crate) unsafe fn enter(hot: *mut Hot, rsp: u64, id: u64, callee: Option<u64>, open: bool) {
    // SAFETY: the thread's own block.
    unsafe {
        settle(hot, rsp, true);
        if !deep::has_room(hot, rsp) {
            chunk::cut_off(hot);
            return;
        }
        chunk::put_event(hot, id as u32, callee);
        let id = if open { id | FRAME_OPEN } else { id };
        shadow::push(hot, rsp, id, callee.unwrap_or(0));
    }
}

/// A frame without a patched call site begins: a special function's caller was not patched.
pub unsafe fn enter_unseen(hot: *mut Hot, rsp: u64, function: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        settle(hot, rsp, false);
        if (*shadow::top(hot)).rsp == rsp || !deep::has_room(hot, rsp) {
            return;
        }
        chunk::put(hot, record::ENTERED, function);
        shadow::push(hot, rsp, FRAME_OPEN, function);
    }
}

/// A call ends.
pub(crate) unsafe fn leave(hot: *mut Hot, rsp: u64, id: u64) {
    // SAFETY: the thread's own block; the search ends at the sentinel.
    unsafe {
        if (*hot).overflow > 0 && (*shadow::top(hot)).rsp > rsp {
            (*hot).overflow -= 1;
            chunk::lose(hot);
            return;
        }
        settle(hot, rsp, false);
        // An entry-only frame at the same place has ended: its function has returned before.
        while (*shadow::top(hot)).rsp == rsp && (*shadow::top(hot)).id & FRAME_OPEN != 0 {
            drop_frames(hot, 1);
        }
        if (*shadow::top(hot)).rsp == rsp {
            chunk::put_event(hot, id as u32, None);
            (*hot).ssp -= FRAME_BYTES as u64;
            frames_ended(hot);
            return;
        }
        // Frames of another stack (or of one left by siglongjmp) may lie above ours.
        let mut below = shadow::top(hot);
        let mut frames = 0u64;
        while (*below).rsp != u64::MAX && (*below).rsp != rsp && frames < 4096 {
            below = below.sub(1);
            frames += 1;
        }
        if (*below).rsp == rsp && (*below).id & FRAME_OPEN == 0 {
            drop_frames(hot, frames);
            chunk::put_event(hot, id as u32, None);
            (*hot).ssp -= FRAME_BYTES as u64;
        } else {
            chunk::put(hot, record::RESUMED, id);
        }
    }
}

/// Drops the innermost `frames`, reporting each kind in order.
pub(crate) unsafe fn drop_frames(hot: *mut Hot, frames: u64) {
    for _ in 0..frames {
        // SAFETY: the caller counted them.
        unsafe {
            let id = (*shadow::top(hot)).id;
            let open = id & FRAME_OPEN != 0;
            if id & FRAME_VALUES != 0 {
                (*hot).ssp -= FRAME_BYTES as u64;
                continue;
            }
            if id & FRAME_SYSTEM != 0 {
                left_system_call(hot, (*shadow::top(hot)).callee);
                (*hot).ssp -= FRAME_BYTES as u64;
                frames_ended(hot);
                continue;
            }
            shadow::drop_range(hot, (*shadow::top(hot)).rsp);
            if id & FRAME_DONE != 0 {
                chunk::put_event(hot, slot::exit_id(id), None);
                (*hot).ssp -= FRAME_BYTES as u64;
                frames_ended(hot);
                continue;
            }
            chunk::put(
                hot,
                if open {
                    record::CLOSED
                } else {
                    record::UNWOUND
                },
                1,
            );
            (*hot).ssp -= FRAME_BYTES as u64;
            frames_ended(hot);
        }
    }
}

/// A tail jump: the frame whose call site had `rsp` goes on as another function.
pub(crate) unsafe fn tail(hot: *mut Hot, rsp: u64, id: u64, callee: Option<u64>) {
    // SAFETY: the thread's own block.
    unsafe {
        // What the frame keeps of its values lies just below it, and stays.
        settle(hot, rsp - 1, false);
        let entered_unseen = (*shadow::call(hot)).rsp != rsp;
        if entered_unseen && !deep::has_room(hot, rsp) {
            return;
        }
        if entered_unseen {
            // The frame that it replaces was never seen: what it becomes stands for itself.
            let called = callee.unwrap_or_else(|| slot::direct_target(id));
            chunk::put(hot, record::ENTERED, called);
            shadow::push(hot, rsp, FRAME_OPEN, called);
        } else {
            chunk::put_event(hot, id as u32, callee);
        }
    }
}

/// The return address of one call becomes the original one.
pub unsafe fn give_back_frame(frame: *const ShadowFrame) {
    // SAFETY: the frame's call has not returned.
    unsafe {
        let word = ((*frame).rsp - 8) as *mut u64;
        if (*frame).id & FRAME_OPEN == 0 && !guarded::holds(word as u64) {
            let original = slot::original_of(word.read_volatile(), word as u64);
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
        let hooked = slot::return_of(id);
        if hooked != 0 {
            originals::arm_again(place, hooked);
            return;
        }
        let exit = slot::exit_of(id);
        let original = slot::original_of(exit, place);
        let word = place as *mut u64;
        if original != 0 && word.read_volatile() == original {
            word.write_volatile(exit);
        }
    }
}

/// True if a walker has been given the return address of the frame at `rsp`: none of ours is left
/// there.
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
        let original = slot::original_of(word.read_volatile(), at);
        if original == 0 {
            return;
        }
        // Entry-only frames that have ended may lie above.
        settle(hot, at + 8, false);
        // Whether or not its frame is known: the callee may keep what it reads (setjmp).
        word.write_volatile(original);
        let frame = shadow::top(hot);
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
        let mut frame = shadow::top(hot);
        let mut interrupted = false;
        while frame > shadow::bottom(hot) {
            let is_barrier = shadow::is_barrier(frame);
            // As in give_back: what follows lies on the stack that a handler interrupted.
            interrupted |= is_barrier && shadow::holds(frame, rsp);
            if !is_barrier && ((*frame).rsp > rsp || interrupted) {
                arm_frame(frame);
            }
            frame = frame.sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::empty_thread;

    #[test]
    fn only_what_lies_above_the_walker_was_given_back() {
        let mut hot = empty_thread();
        // SAFETY: the block is this test's.
        unsafe {
            assert!(!was_given_back(&mut *hot, 0x2000));
            hot.rearm_above = 0x1ff8;
            assert!(was_given_back(&mut *hot, 0x2000));
            assert!(!was_given_back(&mut *hot, 0x1ff8));
            // Behind a barrier lies another stack.
            hot.barriers = 1;
            assert!(!was_given_back(&mut *hot, 0x2000));
        }
    }

    #[test]
    fn frames_return_after_a_walker_that_only_looked() {
        assert_eq!((end_of(0), end_of(1)), (record::UNWOUND, record::CLOSED));
    }
}
