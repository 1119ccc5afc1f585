//! Room on the shadow stack: when it is full it moves to a place of twice the size.
//!
//! Given by the slow path the moment in which a frame is to be pushed; keeps the shadow stack's
//! bounds. The hot path knows nothing of it: where the stack ends is a word of the hot page. Where
//! there is no more room (a limit on the address space, no memory) calls are lost from there on,
//! counted, and the record says so at that depth.
//!
//! A signal handler may have interrupted code that has the address of a frame in a register. Such a
//! context is led out of it before the move, as before a walk of the stack; the old place stays
//! mapped, so that nothing that could not be led out does harm.
//!
//! Nothing tells that a depth was left: as the pages of the program's own stack do, those of its
//! frames stay. When a chunk ends, the depth is looked at; what was not needed for a while is given
//! back ([`keep_what_is_used`]).
//!
//! Must not know what frames mean.

use crate::frames::handlers;
use crate::memory::state::{FRAME_BYTES, Hot, SHADOW, SHADOW_BYTES, ShadowFrame};
use crate::memory::{state, sys};
use crate::signals::context;
use core::sync::atomic::{Ordering, compiler_fence};

/// Another thread waits so many turns for a stack that is being moved.
const TURNS: u32 = 1 << 24;
/// What a recursion of 100,000 frames needs is never given back.
const KEPT_BYTES: u64 = 100_000 * FRAME_BYTES as u64;
/// What was not needed for so long is given back: a tenth of a second.
const UNUSED_TICKS: u64 = 1 << 28;
const PAGE: u64 = 4096;

/// True if one more frame can be pushed. `rsp`: the program's stack pointer, above which signal
/// frames may lie.
pub unsafe fn has_room(hot: *mut Hot, rsp: u64) -> bool {
    // SAFETY: the thread's own block; signals are blocked.
    unsafe {
        if (*hot).ssp < (*hot).ssp_end {
            // The calls that found none were deeper: they have ended.
            (*hot).overflow = 0;
            return true;
        }
        (*hot).overflow == 0 && grow(hot, Some(rsp))
    }
}

/// The same for a thread that is stopped outside of the agent.
pub unsafe fn has_room_stopped(hot: *mut Hot) -> bool {
    // SAFETY: as in has_room.
    unsafe { (*hot).ssp < (*hot).ssp_end || grow(hot, None) }
}

/// An empty shadow stack, in the place that the block has.
pub unsafe fn reset(hot: *mut Hot) {
    // SAFETY: the block is nobody's.
    unsafe {
        if (*hot).shadow == 0 {
            (*hot).shadow = hot as u64 - state::HOT as u64 + SHADOW as u64;
            (*hot).shadow_bytes = SHADOW_BYTES as u64;
        }
        let bottom = (*hot).shadow;
        *(bottom as *mut ShadowFrame) = ShadowFrame {
            rsp: u64::MAX,
            id: 0,
            callee: 0,
        };
        (*hot).ssp = bottom;
        (*hot).ssp_end = end_of(bottom, (*hot).shadow_bytes);
        (*hot).overflow = 0;
        give_back(hot);
    }
}

/// Two frames of room are kept above the limit: see `interrupted`.
fn end_of(bottom: u64, bytes: u64) -> u64 {
    bottom + bytes - 2 * FRAME_BYTES as u64
}

/// A chunk has ended at `now`: memory of a depth that was left a while ago is given back. A thread
/// that records nothing more keeps it.
pub unsafe fn keep_what_is_used(hot: *mut Hot, now: u64) {
    // SAFETY: the thread's own block; signals are blocked.
    unsafe {
        let used = (*hot).ssp - (*hot).shadow;
        (*hot).deepest = (*hot).deepest.max(used);
        if used > (*hot).deepest / 2 || (*hot).deepest < KEPT_BYTES {
            (*hot).deep_tsc = now;
        } else if now.wrapping_sub((*hot).deep_tsc) > UNUSED_TICKS {
            give_back(hot);
        }
    }
}

/// The pages above the innermost frame, and above what an interrupted push writes.
unsafe fn give_back(hot: *mut Hot) {
    // SAFETY: they hold nothing. Who reads them while they go (see frames_of) finds frames of no
    // stack.
    unsafe {
        let used = ((*hot).ssp - (*hot).shadow).max(KEPT_BYTES);
        if (*hot).deepest > used {
            let from = ((*hot).shadow + used + 2 * FRAME_BYTES as u64).next_multiple_of(PAGE);
            let end = (*hot).shadow + (*hot).shadow_bytes;
            sys::discard(from as usize, end.saturating_sub(from) as usize);
        }
        (*hot).deepest = used;
    }
}

unsafe fn grow(hot: *mut Hot, rsp: Option<u64>) -> bool {
    // SAFETY: the thread's own block; the new place is larger than the old one.
    unsafe {
        let Some(place) = (*hot).grown.iter().position(|g| g[0] == 0) else {
            return false;
        };
        let (old, old_bytes) = ((*hot).shadow, (*hot).shadow_bytes);
        let bytes = 2 * old_bytes;
        let new = sys::map_private(bytes as usize) as u64;
        if new == 0 {
            return false;
        }
        if let Some(rsp) = rsp {
            context::move_contexts(hot, rsp, (*hot).mask);
        }
        // With what stands above the top: an interrupted push has written there.
        let used = ((*hot).ssp + 2 * FRAME_BYTES as u64).min(old + old_bytes) - old;
        core::ptr::copy_nonoverlapping(old as *const u8, new as *mut u8, used as usize);
        let shadow = &raw mut (*hot).shadow;
        shadow.write_volatile(0);
        compiler_fence(Ordering::SeqCst);
        if (*hot).root != 0 {
            (*hot).root = (*hot).root - old + new;
        }
        (*hot).ssp = (*hot).ssp - old + new;
        (*hot).ssp_end = end_of(new, bytes);
        (*hot).shadow_bytes = bytes;
        (*hot).grown[place] = [new, bytes];
        (*hot).deepest = old_bytes;
        compiler_fence(Ordering::SeqCst);
        shadow.write_volatile(new);
        if rsp.is_some() && !handlers::may_run((*hot).mask) {
            sys::discard(old as usize, old_bytes as usize);
        }
        (*hot).ssp < (*hot).ssp_end
    }
}

/// The frames of any thread, lowest and highest, while it goes on: the first is its sentinel. The
/// second is below the first if there is none.
pub unsafe fn frames_of(hot: *mut Hot) -> (*mut ShadowFrame, *mut ShadowFrame) {
    // SAFETY: blocks stay mapped, and so do places that a shadow stack has had.
    unsafe {
        let shadow = &raw const (*hot).shadow;
        for _ in 0..TURNS {
            let bottom = shadow.read_volatile();
            let top = (&raw const (*hot).ssp).read_volatile();
            let end = (&raw const (*hot).ssp_end).read_volatile();
            compiler_fence(Ordering::SeqCst);
            if bottom != 0 && bottom == shadow.read_volatile() {
                let top = top.min(end + FRAME_BYTES as u64);
                return (bottom as *mut ShadowFrame, top as *mut ShadowFrame);
            }
            core::hint::spin_loop();
        }
        (
            core::ptr::without_provenance_mut(FRAME_BYTES),
            core::ptr::null_mut(),
        )
    }
}

/// True if the frames whose sentinel is `bottom` are still where they were.
pub unsafe fn is_there(hot: *mut Hot, bottom: *mut ShadowFrame) -> bool {
    // SAFETY: blocks stay mapped.
    unsafe { (&raw const (*hot).shadow).read_volatile() == bottom as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;

    #[test]
    fn a_frame_has_room_below_the_end_alone() {
        let mut hot = thread(8);
        // SAFETY: the block is this test's.
        unsafe {
            hot.overflow = 3;
            assert!(has_room(&mut *hot, 0));
            // The calls that found no room have ended.
            assert_eq!(hot.overflow, 0);
            hot.overflow = 1;
            hot.ssp = hot.ssp_end;
            assert!(!has_room(&mut *hot, 0));
        }
    }

    #[test]
    fn a_full_shadow_stack_moves_with_all_its_frames() {
        let mut hot = thread(512);
        let old = hot.shadow;
        // SAFETY: the block is this test's.
        unsafe {
            let frames = old as *mut ShadowFrame;
            (*frames.add(3)).rsp = 0x77;
            hot.ssp = hot.ssp_end;
            hot.root = old + 3 * FRAME_BYTES as u64;
            assert!(has_room_stopped(&mut *hot));
            let new = hot.shadow;
            assert_ne!(new, old);
            assert_eq!(hot.shadow_bytes, 2 * 512 * FRAME_BYTES as u64);
            assert_eq!(hot.ssp - new, 510 * FRAME_BYTES as u64);
            assert_eq!(hot.root, new + 3 * FRAME_BYTES as u64);
            assert_eq!((*(hot.root as *const ShadowFrame)).rsp, 0x77);
            assert_eq!((*(new as *const ShadowFrame)).rsp, u64::MAX);
            assert_eq!(hot.grown[0], [new, hot.shadow_bytes]);
            let (bottom, top) = frames_of(&mut *hot);
            assert_eq!((bottom as u64, top as u64), (new, hot.ssp));
            assert!(is_there(&mut *hot, bottom));
            assert!(!is_there(&mut *hot, frames));
        }
    }

    #[test]
    fn a_shadow_stack_that_has_moved_too_often_stays() {
        let mut hot = thread(8);
        hot.grown = [[1, 1]; state::GROWTHS];
        hot.ssp = hot.ssp_end;
        // SAFETY: the block is this test's.
        assert!(!unsafe { has_room_stopped(&mut *hot) });
    }
}
