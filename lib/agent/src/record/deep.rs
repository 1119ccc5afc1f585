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
use crate::memory::sys;
use crate::memory::thread::{FRAME_BYTES, Hot};
use crate::signals::context;

/// What a recursion of 100,000 frames needs is never given back.
const KEPT_BYTES: u64 = 100_000 * FRAME_BYTES as u64;
/// What was not needed for so long is given back: a tenth of a second.
const UNUSED_TICKS: u64 = 1 << 28;
const PAGE: u64 = 4096;

/// True if one more frame can be pushed. `rsp`: the program's stack pointer, above which signal
/// frames may lie.
pub fn has_room(hot: &Hot, rsp: u64) -> bool {
    if hot.ssp.get() < hot.ssp_end.get() {
        // The calls that found none were deeper: they have ended.
        hot.overflow.set(0);
        return true;
    }
    hot.overflow.get() == 0 && grow(hot, Some(rsp))
}

/// The same for a thread that is stopped outside of the agent.
pub fn has_room_stopped(hot: &Hot) -> bool {
    hot.ssp.get() < hot.ssp_end.get() || grow(hot, None)
}

/// An empty shadow stack, in the place that the block has, for one that is nobody's.
pub fn reset(hot: &Hot) {
    hot.empty_shadow();
    give_back(hot);
}

/// A chunk has ended at `now`: memory of a depth that was left a while ago is given back. A thread
/// that records nothing more keeps it.
pub fn keep_what_is_used(hot: &Hot, now: u64) {
    let used = hot.ssp.get() - hot.shadow();
    hot.deepest.raise(used);
    if used > hot.deepest.get() / 2 || hot.deepest.get() < KEPT_BYTES {
        hot.deep_tsc.set(now);
    } else if now.wrapping_sub(hot.deep_tsc.get()) > UNUSED_TICKS {
        give_back(hot);
    }
}

/// The pages above the innermost frame, and above what an interrupted push writes. They hold
/// nothing; who reads them while they go ([`Hot::frames_meanwhile`]) finds frames of no stack.
fn give_back(hot: &Hot) {
    let used = (hot.ssp.get() - hot.shadow()).max(KEPT_BYTES);
    if hot.deepest.get() > used {
        let from = (hot.shadow() + used + 2 * FRAME_BYTES as u64).next_multiple_of(PAGE);
        let end = hot.shadow() + hot.shadow_bytes();
        discard(from, end.saturating_sub(from));
    }
    hot.deepest.set(used);
}

/// Memory of frames that are over.
fn discard(from: u64, bytes: u64) {
    // SAFETY: zeros are frames, too.
    unsafe { sys::discard(from as usize, bytes as usize) };
}

fn grow(hot: &Hot, rsp: Option<u64>) -> bool {
    let Some(place) = hot.grown.iter().find(|place| place.get()[0] == 0) else {
        return false;
    };
    let (old, old_bytes) = (hot.shadow(), hot.shadow_bytes());
    let new = sys::map_private(2 * old_bytes as usize) as u64;
    if new == 0 {
        return false;
    }
    if let Some(rsp) = rsp {
        context::move_contexts(Some(hot), rsp, hot.mask.get());
    }
    // SAFETY: fresh memory of that size, which nobody unmaps.
    unsafe { hot.move_shadow(new) };
    place.set([new, 2 * old_bytes]);
    hot.deepest.set(old_bytes);
    if rsp.is_some() && !handlers::may_run(hot.mask.get()) {
        discard(old, old_bytes);
    }
    hot.ssp.get() < hot.ssp_end.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;
    use crate::memory::thread::ShadowFrame;

    #[test]
    fn a_frame_has_room_below_the_end_alone() {
        let hot = thread(8);
        hot.overflow.set(3);
        assert!(has_room(&hot, 0));
        // The calls that found no room have ended.
        assert_eq!(hot.overflow.get(), 0);
        hot.overflow.set(1);
        hot.ssp.set(hot.ssp_end.get());
        assert!(!has_room(&hot, 0));
    }

    #[test]
    fn a_full_shadow_stack_moves_with_all_its_frames() {
        let hot = thread(512);
        let old = hot.bottom();
        hot.frame(old.address() + 3 * FRAME_BYTES as u64)
            .set(ShadowFrame {
                rsp: 0x77,
                id: 1,
                callee: 0,
            });
        hot.ssp.set(hot.ssp_end.get());
        hot.root.set(old.address() + 3 * FRAME_BYTES as u64);
        assert!(has_room_stopped(&hot));
        let new = hot.shadow();
        assert_ne!(new, old.address());
        assert_eq!(hot.shadow_bytes(), 2 * 512 * FRAME_BYTES as u64);
        assert_eq!(hot.ssp.get() - new, 510 * FRAME_BYTES as u64);
        assert_eq!(hot.root.get(), new + 3 * FRAME_BYTES as u64);
        assert_eq!(hot.frame(hot.root.get()).rsp(), 0x77);
        assert_eq!(hot.bottom().rsp(), u64::MAX);
        assert_eq!(hot.grown[0].get(), [new, hot.shadow_bytes()]);
        let seen = hot.frames_meanwhile();
        assert_eq!(seen, Some((hot.bottom(), hot.top())));
        assert_eq!(hot.top().address(), hot.ssp.get());
    }

    #[test]
    fn a_shadow_stack_that_has_moved_too_often_stays() {
        let hot = thread(8);
        hot.grown.iter().for_each(|place| place.set([1, 1]));
        hot.ssp.set(hot.ssp_end.get());
        assert!(!has_room_stopped(&hot));
    }
}
