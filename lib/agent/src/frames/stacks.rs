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
use crate::memory::live::StackWord;
use crate::memory::thread::Hot;
use crate::memory::{guarded, state, sys};

/// Kept free below the first thread's stack for it to grow (kernel: mmap_base, MIN_GAP).
const FIRST_STACK_GAP_BYTES: u64 = 128 << 20;

/// True if `at` lies in the first thread's stack, which is one mapping from any address that was
/// ever a stack pointer to its beginning.
pub fn is_first(at: u64) -> bool {
    let beginning = state::process().stack_top.get();
    at < beginning && beginning - at < FIRST_STACK_GAP_BYTES
}

/// Reads the stack from `at` on, up to the end of what is mapped; gives the number of words. `at`:
/// a stack pointer, of code that runs or was interrupted, or above one. What the program may not
/// read ends it, too.
pub fn read(at: u64, words: &mut [u64]) -> usize {
    let bytes = size_of_val(words);
    if is_first(at) && !guarded::holds_any(at, at.saturating_add(bytes as u64)) {
        let left = state::process().stack_top.get().saturating_sub(at) as usize;
        let count = words.len().min(left / 8);
        for (k, word) in words.iter_mut().take(count).enumerate() {
            // SAFETY: see is_first: what lies between a stack pointer and the stack's beginning.
            *word = unsafe { StackWord::at(at + 8 * k as u64) }.get();
        }
        return count;
    }
    sys::read_words(at, words) / 8
}

/// The bounds of the alternate stack, if a handler may be running on it: its signal is blocked
/// then, or handlers do not block theirs.
fn alternate(hot: &Hot) -> Option<(u64, u64)> {
    if !handlers::may_run(hot.mask.get()) {
        return None;
    }
    sys::alternate_stack()
}

/// An event at `rsp`, which lies above the innermost frame: raises a barrier if a handler on the
/// alternate stack has come in between.
pub fn switched(hot: &Hot, rsp: u64) -> bool {
    let Some((low, high)) = alternate(hot) else {
        return false;
    };
    let inside = |at: u64| at > low && at <= high;
    if !inside(rsp) || inside(hot.top().rsp()) || hot.ssp.get() > hot.ssp_end.get() {
        return false;
    }
    shadow::push(hot, u64::MAX, low, high);
    hot.barriers.add(1);
    true
}

/// True if a frame at `at` is one of a handler on the alternate stack, and an event at `rsp` is
/// outside.
///
/// It may have left by siglongjmp, so the signal mask says nothing of it.
pub fn handler_ended(hot: &Hot, at: u64, rsp: u64) -> bool {
    let stack = if handlers::may_run(hot.mask.get()) || handlers::learn() {
        sys::alternate_stack()
    } else {
        None
    };
    stack.is_some_and(|(low, high)| {
        let inside = |at: u64| at > low && at <= high;
        inside(at) && !inside(rsp)
    })
}

/// True if the frames lead from the innermost one to an event at `rsp`, which lies far above it,
/// without a gap that is as large as the way between two stacks: all is one stack.
pub fn reaches(hot: &Hot, rsp: u64) -> bool {
    let mut frame = hot.top();
    loop {
        let (at, below) = (frame.rsp(), frame.below().rsp().min(rsp));
        if below < at || below - at > SAME_STACK_BYTES {
            return false;
        }
        if below == rsp {
            return true;
        }
        frame = frame.below();
    }
}

/// An event at `rsp`: takes a barrier on top away whose handler has ended. True if there was one.
pub fn left(hot: &Hot, rsp: u64) -> bool {
    if hot.barriers.get() == 0 || !shadow::is_barrier(hot.top()) || shadow::holds(hot.top(), rsp) {
        return false;
    }
    if shadow::holds(hot.top(), hot.rearm_above.get()) {
        // The walker's stack is left: any address of this one is above it.
        hot.rearm_above.set(1);
    }
    hot.pop();
    hot.barriers.sub(1);
    true
}

/// True if the innermost frame is one of a handler on the alternate stack, which has ended since
/// there is an event at `rsp` outside of it.
pub fn jumped_out(hot: &Hot, rsp: u64) -> bool {
    if hot.barriers.get() == 0 || shadow::is_barrier(hot.top()) {
        return false;
    }
    let barrier = shadow::innermost(hot);
    shadow::holds(barrier, hot.top().rsp()) && !shadow::holds(barrier, rsp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;

    #[test]
    fn frames_lead_up_a_stack_without_a_large_gap() {
        let hot = thread(8);
        let step = SAME_STACK_BYTES;
        shadow::push(&hot, 3 * step, 1, 0);
        shadow::push(&hot, 2 * step, 1, 0);
        shadow::push(&hot, step, 1, 0);
        assert!(reaches(&hot, 3 * step));
        assert!(reaches(&hot, 4 * step));
        assert!(!reaches(&hot, 4 * step + 8));
    }

    #[test]
    fn a_gap_as_large_as_between_stacks_is_not_led_across() {
        let hot = thread(8);
        shadow::push(&hot, 3 * SAME_STACK_BYTES, 1, 0);
        shadow::push(&hot, SAME_STACK_BYTES, 1, 0);
        assert!(!reaches(&hot, 3 * SAME_STACK_BYTES));
    }

    #[test]
    fn a_barrier_is_taken_away_by_an_event_outside_of_its_stack() {
        let hot = thread(8);
        shadow::push(&hot, 0x2000, 1, 0);
        shadow::push(&hot, u64::MAX, 0x8000, 0x9000);
        hot.barriers.set(1);
        assert!(!left(&hot, 0x8800));
        hot.rearm_above.set(0x8100);
        assert!(left(&hot, 0x2000));
        // The walker's stack is left, too.
        assert_eq!((hot.barriers.get(), hot.rearm_above.get()), (0, 1));
        assert_eq!(hot.top().rsp(), 0x2000);
        // The sentinel is no barrier.
        assert!(!left(&hot, 0x2000));
    }

    #[test]
    fn frames_of_a_handler_that_was_jumped_out_of_have_ended() {
        let hot = thread(8);
        shadow::push(&hot, 0x2000, 1, 0);
        assert!(!jumped_out(&hot, 0x1000));
        shadow::push(&hot, u64::MAX, 0x8000, 0x9000);
        hot.barriers.set(1);
        assert!(!jumped_out(&hot, 0x1000));
        shadow::push(&hot, 0x8800, 1, 0);
        assert!(jumped_out(&hot, 0x1000));
        assert!(!jumped_out(&hot, 0x8700));
    }
}
