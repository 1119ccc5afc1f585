//! The shadow stack of a thread: its frames, its sentinel, its barriers.
//!
//! Given a thread's block; gives the innermost frame, pushes one, counts them. Frames are ordered
//! by stack pointer, the innermost lowest. Must not know what is recorded of a frame.

use crate::memory::live::StackWord;
use crate::memory::thread::{
    FRAME_BYTES, FRAME_HELD, FRAME_HELD_RECORDED, FRAME_KEPT, FRAME_QUIET, FRAME_QUIET_HELD,
    FRAME_ROOT, FrameAt, Hot, ShadowFrame,
};
use crate::memory::{counters, state};
use sptrace_wire::control::hole;
use sptrace_wire::record::{FRAME_OPEN, FRAME_VALUES};

/// In a shadow frame, with FRAME_OPEN: the call has returned past its exit (see `context`); the
/// next event tells its end.
pub const FRAME_DONE: u64 = 1 << 62;
/// Frames further away than this from the stack pointer lie on another stack.
pub const SAME_STACK_BYTES: u64 = 64 << 20;

/// The innermost frame that is a call, or a barrier: below what it keeps of its values.
pub fn call(hot: &Hot) -> FrameAt {
    let mut frame = hot.top();
    while !is_barrier(frame) && frame.id() & FRAME_VALUES != 0 {
        frame = frame.below();
    }
    frame
}

/// True of a frame that the payload of a return, or the lack of a record, has made.
pub fn is_held(id: u64) -> bool {
    matches!(
        id,
        FRAME_QUIET | FRAME_QUIET_HELD | FRAME_KEPT | FRAME_HELD | FRAME_HELD_RECORDED
    )
}

/// True of the frame of a call without a record.
pub fn is_quiet(id: u64) -> bool {
    id == FRAME_QUIET || id == FRAME_QUIET_HELD
}

/// The frame at the top is that of a root's call, which keeps its return address `back`. A mark
/// goes below it, a byte away, so that the return comes to the slow path and is known for that of
/// the root. Below an entry-only frame it goes so far away that each call that the root itself
/// makes comes there, to see whether the root has ended. There must be room.
pub fn mark_root(hot: &Hot, back: u64) {
    hot.root.set(hot.ssp.get());
    hot.root_back.set(back);
    let distance = match hot.top().id() & FRAME_OPEN {
        0 => 1,
        _ => SAME_STACK_BYTES / 2,
    };
    push(hot, hot.top().rsp().saturating_sub(distance), FRAME_ROOT, 0);
}

/// An event has taken the mark off an entry-only root that may still run: it is put there again.
pub fn mark_again(hot: &Hot) {
    let root = hot.root.get();
    if root != 0 && root == hot.ssp.get() && hot.top().id() & FRAME_OPEN != 0 {
        mark_root(hot, hot.root_back.get());
    }
}

/// The return address that the root was called with, as long as it has its mark.
pub fn back_of_root(hot: &Hot) -> Option<u64> {
    let root = hot.root.get();
    let is_there = root != 0 && root < hot.ssp.get();
    let is_marked = is_there && hot.frame(root).above().id() == FRAME_ROOT;
    is_marked.then(|| hot.root_back.get())
}

/// A frame goes, and no exit was seen: if a payload waits for it, that is counted.
pub fn gone(id: u64) {
    if id == FRAME_HELD || id == FRAME_HELD_RECORDED {
        state::count_hole(hole::PAYLOADS);
    }
}

/// Remembers where a frame without an exit was.
pub(crate) fn drop_range(hot: &Hot, at: u64) {
    hot.dropped.set(match hot.dropped.get() {
        [_, 0] => [at - 8, at],
        [low, high] => [low.min(at - 8), high.max(at)],
    });
}

/// Pushes a shadow frame. There must be room.
pub fn push(hot: &Hot, rsp: u64, id: u64, callee: u64) {
    let frame = ShadowFrame { rsp, id, callee };
    let place = hot.top().above();
    hot.ssp.set(place.address());
    place.set(frame);
    if id & FRAME_OPEN != 0 {
        // A handler may end without an event behind this one. If it has interrupted a push,
        // that one takes this place and moves the top above it, where a frame of the handler
        // then stands.
        place.above().set(frame);
    }
}

/// Number of open frames of a thread.
pub fn depth(hot: &Hot) -> u32 {
    let frames = (hot.ssp.get() - hot.shadow()) / FRAME_BYTES as u64;
    frames as u32 - hot.barriers.get() - kept(hot)
}

/// Number of frames that keep something of others' values, and of marks.
fn kept(hot: &Hot) -> u32 {
    if !state::process().has_values.get() {
        return u32::from(hot.root.get() != 0 && counters::keeps_returns());
    }
    let (mut frame, mut count) = (hot.top(), 0);
    while frame > hot.bottom() {
        count += u32::from(!is_barrier(frame) && frame.id() & FRAME_VALUES != 0);
        frame = frame.below();
    }
    count
}

/// True if `frame` is a barrier (or the sentinel): it stands for no call.
pub fn is_barrier(frame: FrameAt) -> bool {
    frame.rsp() == u64::MAX
}

/// True if `address` lies in the alternate stack of the barrier `frame`, which keeps its low and
/// its high end; the sentinel has zeros there.
pub fn holds(frame: FrameAt, address: u64) -> bool {
    address > frame.id() && address <= frame.callee()
}

/// The innermost barrier, or the sentinel.
pub(crate) fn innermost(hot: &Hot) -> FrameAt {
    let mut frame = hot.top();
    while !is_barrier(frame) {
        frame = frame.below();
    }
    frame
}

/// Where the return address of a frame's call lies.
#[inline]
pub fn return_word(frame: FrameAt) -> StackWord {
    let rsp = frame.rsp() + u64::from(is_quiet(frame.id()));
    // SAFETY: the shadow stack names calls that have not returned: their stacks are there.
    unsafe { StackWord::at(rsp - 8) }
}

/// The same of a frame whose call has an exit and a record, which a walk meets most.
#[inline(always)]
pub fn return_word_of_exit(frame: FrameAt) -> StackWord {
    // SAFETY: as above.
    unsafe { StackWord::at(frame.rsp() - 8) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;

    #[test]
    fn the_frame_pushed_last_is_the_innermost() {
        let hot = thread(8);
        assert!(hot.top() == hot.bottom() && is_barrier(hot.top()));
        push(&hot, 0x2000, 7, 0);
        push(&hot, 0x1000, 8, 9);
        let frame = hot.top().get();
        assert_eq!((frame.rsp, frame.id, frame.callee), (0x1000, 8, 9));
        assert_eq!(hot.top().below().rsp(), 0x2000);
        assert_eq!(depth(&hot), 2);
    }

    #[test]
    fn what_a_frame_keeps_of_its_values_is_no_call() {
        let hot = thread(8);
        push(&hot, 0x2000, 7, 0);
        push(&hot, 0x1fff, FRAME_OPEN | FRAME_VALUES, 9);
        state::process().has_values.set(true);
        assert_eq!((depth(&hot), call(&hot).rsp()), (1, 0x2000));
        push(&hot, 0x1ff8, 8, 0);
        assert_eq!((depth(&hot), call(&hot).rsp()), (2, 0x1ff8));
    }

    #[test]
    fn a_root_has_a_mark_below_it_as_long_as_it_is_there() {
        let hot = thread(8);
        push(&hot, 0x2000, 7, 0);
        assert_eq!(back_of_root(&hot), None);
        mark_root(&hot, 0x77);
        assert_eq!((call(&hot).rsp(), hot.top().rsp()), (0x2000, 0x1fff));
        assert_eq!(back_of_root(&hot), Some(0x77));
        hot.pop();
        assert_eq!(back_of_root(&hot), None);
        // Its return comes to the slow path; there is nothing to be looked for meanwhile.
        mark_again(&hot);
        assert_eq!(back_of_root(&hot), None);
    }

    #[test]
    fn calls_of_a_root_without_an_end_lie_above_its_mark() {
        let hot = thread(8);
        let rsp = 4 * SAME_STACK_BYTES;
        push(&hot, rsp, 7 | FRAME_OPEN, 0);
        mark_root(&hot, 0x77);
        assert!(hot.top().rsp() < rsp - 0x1000 && hot.top().rsp() > rsp - SAME_STACK_BYTES);
        hot.pop();
        mark_again(&hot);
        assert_eq!((back_of_root(&hot), call(&hot).rsp()), (Some(0x77), rsp));
    }

    #[test]
    fn an_open_frame_stands_above_the_top_as_well() {
        let hot = thread(8);
        push(&hot, 0x2000, 7, 0);
        assert_eq!(hot.top().above().rsp(), 0);
        push(&hot, 0x1000, 8 | FRAME_OPEN, 9);
        assert_eq!(hot.top().above().rsp(), 0x1000);
        assert_eq!(depth(&hot), 2);
    }

    #[test]
    fn barriers_are_no_calls() {
        let hot = thread(8);
        push(&hot, 0x2000, 7, 0);
        push(&hot, u64::MAX, 0x8000, 0x9000);
        hot.barriers.set(1);
        push(&hot, 0x8800, 8, 0);
        assert_eq!(depth(&hot), 2);
        let barrier = innermost(&hot);
        assert!(barrier == hot.top().below());
        assert!(holds(barrier, 0x9000) && holds(barrier, 0x8001));
        assert!(!holds(barrier, 0x8000) && !holds(barrier, 0x9001));
        // The sentinel holds no address.
        assert!(!holds(hot.bottom(), 1));
    }

    #[test]
    fn dropped_frames_widen_one_range() {
        let hot = thread(2);
        for (at, range) in [
            (0x2000, [0x1ff8, 0x2000]),
            (0x1000, [0xff8, 0x2000]),
            (0x1800, [0xff8, 0x2000]),
            (0x3000, [0xff8, 0x3000]),
        ] {
            drop_range(&hot, at);
            assert_eq!(hot.dropped.get(), range);
        }
    }
}
