//! Signal handlers that run on an alternate stack (sigaltstack(2)).
//!
//! The shadow stack is ordered by stack pointer. If the alternate stack lies above the stack that
//! the signal interrupted, a handler's frames would make the interrupted frames look ended. So a
//! *barrier* is pushed when such a handler is met: a shadow frame above every stack pointer, like
//! the sentinel at the bottom, for which the hot path takes it. It keeps the frames below it, and
//! remembers the bounds of the alternate stack. The first event outside of these bounds that meets
//! the barrier in the slow path takes it away. A handler on a lower stack nests without a barrier.

use crate::frames::shadow::SAME_STACK_BYTES;
use crate::frames::{handlers, shadow};
use crate::memory::state::{FRAME_BYTES, Hot, ShadowFrame};
use crate::memory::{guarded, state, sys};

/// Kept free below the first thread's stack for it to grow (kernel: mmap_base, MIN_GAP).
const FIRST_STACK_GAP_BYTES: u64 = 128 << 20;

/// True if `at` lies in the first thread's stack, which is one mapping from any address that was
/// ever a stack pointer to its beginning.
pub fn is_first(at: u64) -> bool {
    // SAFETY: set once, at the start.
    let beginning = unsafe { (*state::process()).stack_top };
    at < beginning && beginning - at < FIRST_STACK_GAP_BYTES
}

/// Reads the stack from `at` on, up to the end of what is mapped; gives the number of words. `at`:
/// a stack pointer, of code that runs or was interrupted, or above one. What the program may not
/// read ends it, too.
pub unsafe fn read(at: u64, words: &mut [u64]) -> usize {
    let bytes = size_of_val(words);
    // SAFETY: see is_first; `words` has room.
    unsafe {
        if is_first(at) && !guarded::holds_any(at, at.saturating_add(bytes as u64)) {
            let left = (*state::process()).stack_top.saturating_sub(at) as usize;
            let count = words.len().min(left / 8);
            for (k, word) in words.iter_mut().take(count).enumerate() {
                *word = (at as *const u64).add(k).read_volatile();
            }
            return count;
        }
        sys::read_own(at as usize, words.as_mut_ptr().cast(), bytes) / 8
    }
}

/// The bounds of the alternate stack, if a handler may be running on it: its signal is blocked
/// then, or handlers do not block theirs.
unsafe fn alternate(hot: *mut Hot) -> Option<(u64, u64)> {
    // SAFETY: plain queries.
    unsafe {
        if !handlers::may_run((*hot).mask) {
            return None;
        }
        sys::alternate_stack()
    }
}

/// An event at `rsp`, which lies above the innermost frame: raises a barrier if a handler on the
/// alternate stack has come in between.
pub unsafe fn switched(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the thread's own block.
    unsafe {
        let Some((low, high)) = alternate(hot) else {
            return false;
        };
        let inside = |at: u64| at > low && at <= high;
        if !inside(rsp) || inside((*shadow::top(hot)).rsp) || (*hot).ssp > (*hot).ssp_end {
            return false;
        }
        (*hot).ssp += FRAME_BYTES as u64;
        *shadow::top(hot) = ShadowFrame {
            rsp: u64::MAX,
            id: low,
            callee: high,
        };
        (*hot).barriers += 1;
        true
    }
}

/// True if a frame at `at` is one of a handler on the alternate stack, and an event at `rsp` is
/// outside.
///
/// It may have left by siglongjmp, so the signal mask says nothing of it.
pub unsafe fn handler_ended(hot: *mut Hot, at: u64, rsp: u64) -> bool {
    // SAFETY: plain queries.
    let stack = unsafe {
        if handlers::may_run((*hot).mask) || handlers::learn() {
            sys::alternate_stack()
        } else {
            None
        }
    };
    stack.is_some_and(|(low, high)| {
        let inside = |at: u64| at > low && at <= high;
        inside(at) && !inside(rsp)
    })
}

/// True if the frames lead from the innermost one to an event at `rsp`, which lies far above it,
/// without a gap that is as large as the way between two stacks: all is one stack.
pub unsafe fn reaches(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the sentinel ends the search.
    unsafe {
        let mut frame = shadow::top(hot);
        loop {
            let (at, below) = ((*frame).rsp, (*frame.sub(1)).rsp.min(rsp));
            if below < at || below - at > SAME_STACK_BYTES {
                return false;
            }
            if below == rsp {
                return true;
            }
            frame = frame.sub(1);
        }
    }
}

/// An event at `rsp`: takes a barrier on top away whose handler has ended. True if there was one.
pub unsafe fn left(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the thread's own block; the sentinel is none of the barriers counted.
    unsafe {
        if (*hot).barriers == 0
            || !shadow::is_barrier(shadow::top(hot))
            || shadow::holds(shadow::top(hot), rsp)
        {
            return false;
        }
        if shadow::holds(shadow::top(hot), (*hot).rearm_above) {
            // The walker's stack is left: any address of this one is above it.
            (*hot).rearm_above = 1;
        }
        (*hot).ssp -= FRAME_BYTES as u64;
        (*hot).barriers -= 1;
        true
    }
}

/// True if the innermost frame is one of a handler on the alternate stack, which has ended since
/// there is an event at `rsp` outside of it.
pub unsafe fn jumped_out(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).barriers == 0 || shadow::is_barrier(shadow::top(hot)) {
            return false;
        }
        let barrier = shadow::innermost(hot);
        shadow::holds(barrier, (*shadow::top(hot)).rsp) && !shadow::holds(barrier, rsp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;

    #[test]
    fn frames_lead_up_a_stack_without_a_large_gap() {
        let mut hot = thread(8);
        let step = SAME_STACK_BYTES;
        // SAFETY: the block is this test's.
        unsafe {
            shadow::push(&mut *hot, 3 * step, 1, 0);
            shadow::push(&mut *hot, 2 * step, 1, 0);
            shadow::push(&mut *hot, step, 1, 0);
            assert!(reaches(&mut *hot, 3 * step));
            assert!(reaches(&mut *hot, 4 * step));
            assert!(!reaches(&mut *hot, 4 * step + 8));
        }
    }

    #[test]
    fn a_gap_as_large_as_between_stacks_is_not_led_across() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            shadow::push(&mut *hot, 3 * SAME_STACK_BYTES, 1, 0);
            shadow::push(&mut *hot, SAME_STACK_BYTES, 1, 0);
            assert!(!reaches(&mut *hot, 3 * SAME_STACK_BYTES));
        }
    }

    #[test]
    fn a_barrier_is_taken_away_by_an_event_outside_of_its_stack() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            shadow::push(&mut *hot, 0x2000, 1, 0);
            shadow::push(&mut *hot, u64::MAX, 0x8000, 0x9000);
            hot.barriers = 1;
            assert!(!left(&mut *hot, 0x8800));
            hot.rearm_above = 0x8100;
            assert!(left(&mut *hot, 0x2000));
            // The walker's stack is left, too.
            assert_eq!((hot.barriers, hot.rearm_above), (0, 1));
            assert_eq!((*shadow::top(&mut *hot)).rsp, 0x2000);
            // The sentinel is no barrier.
            assert!(!left(&mut *hot, 0x2000));
        }
    }

    #[test]
    fn frames_of_a_handler_that_was_jumped_out_of_have_ended() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            shadow::push(&mut *hot, 0x2000, 1, 0);
            assert!(!jumped_out(&mut *hot, 0x1000));
            shadow::push(&mut *hot, u64::MAX, 0x8000, 0x9000);
            hot.barriers = 1;
            assert!(!jumped_out(&mut *hot, 0x1000));
            shadow::push(&mut *hot, 0x8800, 1, 0);
            assert!(jumped_out(&mut *hot, 0x1000));
            assert!(!jumped_out(&mut *hot, 0x8700));
        }
    }
}
