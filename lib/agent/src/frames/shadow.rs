//! The shadow stack of a thread: its frames, its sentinel, its barriers.
//!
//! Given a thread's block; gives the innermost frame, pushes one, counts them. Frames are ordered
//! by stack pointer, the innermost lowest. Must not know what is recorded of a frame.

use crate::memory::state;
use crate::memory::state::{FRAME_BYTES, HOT, Hot, ShadowFrame};
use sptrace_wire::record::{FRAME_OPEN, FRAME_VALUES};

/// In a shadow frame, with FRAME_OPEN: the call has returned past its exit (see `context`); the
/// next event tells its end.
pub const FRAME_DONE: u64 = 1 << 62;
/// Frames further away than this from the stack pointer lie on another stack.
pub const SAME_STACK_BYTES: u64 = 64 << 20;

/// The innermost shadow frame.
#[inline]
pub unsafe fn top(hot: *mut Hot) -> *mut ShadowFrame {
    // SAFETY: the thread's own block.
    unsafe { (*hot).ssp as *mut ShadowFrame }
}

/// The innermost frame that is a call, or a barrier: below what it keeps of its values.
pub unsafe fn call(hot: *mut Hot) -> *mut ShadowFrame {
    // SAFETY: the sentinel ends the search.
    unsafe {
        let mut frame = top(hot);
        while !is_barrier(frame) && (*frame).id & FRAME_VALUES != 0 {
            frame = frame.sub(1);
        }
        frame
    }
}

/// Remembers where a frame without an exit was.
pub(crate) unsafe fn drop_range(hot: *mut Hot, at: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        let d = &mut (*hot).dropped;
        *d = if d[1] == 0 {
            [at - 8, at]
        } else {
            [d[0].min(at - 8), d[1].max(at)]
        };
    }
}

/// Pushes a shadow frame. There must be room.
pub unsafe fn push(hot: *mut Hot, rsp: u64, id: u64, callee: u64) {
    let frame = ShadowFrame { rsp, id, callee };
    // SAFETY: below `ssp_end` there is room for two more.
    unsafe {
        (*hot).ssp += FRAME_BYTES as u64;
        *top(hot) = frame;
        if id & FRAME_OPEN != 0 {
            // A handler may end without an event behind this one. If it has interrupted a push,
            // that one takes this place and moves the top above it, where a frame of the handler
            // then stands.
            *top(hot).add(1) = frame;
        }
    }
}

/// Number of open frames of a thread.
pub unsafe fn depth(hot: *mut Hot) -> u32 {
    // SAFETY: the thread's own block.
    unsafe {
        let frames = ((*hot).ssp - shadow_bottom(hot)) / FRAME_BYTES as u64;
        let mut others = (*hot).barriers;
        if (*state::process()).has_values != 0 {
            let mut frame = top(hot);
            while frame > bottom(hot) {
                let is_kept = !is_barrier(frame) && (*frame).id & FRAME_VALUES != 0;
                others += u32::from(is_kept);
                frame = frame.sub(1);
            }
        }
        frames as u32 - others
    }
}

/// The sentinel of a thread's shadow stack: where a walk through all frames ends.
pub unsafe fn bottom(hot: *mut Hot) -> *mut ShadowFrame {
    // SAFETY: the thread's own block.
    unsafe { shadow_bottom(hot) as *mut ShadowFrame }
}

/// True if `frame` is a barrier (or the sentinel): it stands for no call.
pub unsafe fn is_barrier(frame: *const ShadowFrame) -> bool {
    // SAFETY: a frame of the thread's block.
    unsafe { (*frame).rsp == u64::MAX }
}

/// True if `address` lies in the alternate stack of the barrier `frame`.
pub unsafe fn holds(frame: *const ShadowFrame, address: u64) -> bool {
    // SAFETY: a barrier keeps low and high end in its other words; the sentinel has zeros there.
    unsafe { address > (*frame).id && address <= (*frame).callee }
}

/// The innermost barrier, or the sentinel.
pub(crate) unsafe fn innermost(hot: *mut Hot) -> *mut ShadowFrame {
    // SAFETY: the sentinel ends the search.
    unsafe {
        let mut frame = top(hot);
        while !is_barrier(frame) {
            frame = frame.sub(1);
        }
        frame
    }
}

/// The hot page of a block.
pub unsafe fn hot_of(block: u64) -> *mut Hot {
    (block + HOT as u64) as *mut Hot
}

/// Address of the sentinel frame at the bottom of a thread's shadow stack.
pub unsafe fn shadow_bottom(hot: *mut Hot) -> u64 {
    // SAFETY: the block is this thread's, or its thread is stopped.
    unsafe { (*hot).shadow }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;

    #[test]
    fn the_frame_pushed_last_is_the_innermost() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            assert!(top(&mut *hot) == bottom(&mut *hot) && is_barrier(top(&mut *hot)));
            push(&mut *hot, 0x2000, 7, 0);
            push(&mut *hot, 0x1000, 8, 9);
            let frame = *top(&mut *hot);
            assert_eq!((frame.rsp, frame.id, frame.callee), (0x1000, 8, 9));
            assert_eq!((*top(&mut *hot).sub(1)).rsp, 0x2000);
            assert_eq!(depth(&mut *hot), 2);
        }
    }

    #[test]
    fn an_open_frame_stands_above_the_top_as_well() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            push(&mut *hot, 0x2000, 7, 0);
            assert_eq!((*top(&mut *hot).add(1)).rsp, 0);
            push(&mut *hot, 0x1000, 8 | FRAME_OPEN, 9);
            assert_eq!((*top(&mut *hot).add(1)).rsp, 0x1000);
            assert_eq!(depth(&mut *hot), 2);
        }
    }

    #[test]
    fn barriers_are_no_calls() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            push(&mut *hot, 0x2000, 7, 0);
            push(&mut *hot, u64::MAX, 0x8000, 0x9000);
            hot.barriers = 1;
            push(&mut *hot, 0x8800, 8, 0);
            assert_eq!(depth(&mut *hot), 2);
            let barrier = innermost(&mut *hot);
            assert!(barrier == top(&mut *hot).sub(1));
            assert!(holds(barrier, 0x9000) && holds(barrier, 0x8001));
            assert!(!holds(barrier, 0x8000) && !holds(barrier, 0x9001));
            // The sentinel holds no address.
            assert!(!holds(bottom(&mut *hot), 1));
        }
    }

    #[test]
    fn dropped_frames_widen_one_range() {
        let mut hot = thread(2);
        // SAFETY: the block is this test's.
        unsafe {
            for (at, range) in [
                (0x2000, [0x1ff8, 0x2000]),
                (0x1000, [0xff8, 0x2000]),
                (0x1800, [0xff8, 0x2000]),
                (0x3000, [0xff8, 0x3000]),
            ] {
                drop_range(&mut *hot, at);
                assert_eq!(hot.dropped, range);
            }
        }
    }
}
