//! What an event means for the shadow stack, and the records that say so.
//!
//! Given a thread's block and the stack pointer of an event; pushes and pops frames. A frame whose
//! stack pointer is not above the present one has ended; if its exit was not seen (longjmp, throw,
//! a call without an end), it is recorded so. Also the return addresses of frames: given back to a
//! walker, and armed again. Must not know what led to the event.

use crate::frames::shadow::{FRAME_DONE, SAME_STACK_BYTES};
use crate::frames::{shadow, stacks};
use crate::memory::live::StackWord;
use crate::memory::thread::{
    FRAME_BYTES, FRAME_QUIET, FRAME_QUIET_HELD, FRAME_ROOT, FrameAt, Hot, ShadowFrame,
};
use crate::memory::{counters, guarded, state, sys};
use crate::plans::slot;
use crate::record::{chunk, deep, originals};
use core::sync::atomic::{Ordering, fence};
use sptrace_wire::control::hole;
use sptrace_wire::record;
use sptrace_wire::record::{FRAME_OPEN, FRAME_SYSTEM, FRAME_VALUES};

/// After frames have left the shadow stack: outside the root nothing is recorded.
pub fn frames_ended(hot: &Hot) {
    if hot.root.get() != 0 && hot.ssp.get() < hot.root.get() {
        hot.root.set(0);
        chunk::mute(hot);
    }
}

/// True if the root's frame is gone without an event that shows it: a longjmp or an exception has
/// left it, and what runs now is called from code that is not patched. Its return address is not
/// where it was. Not known while a walker has the original ones.
pub fn root_is_gone(hot: &Hot) -> bool {
    if counters::keeps_returns() {
        return kept_root_is_gone(hot);
    }
    let root = hot.frame(hot.root.get());
    if hot.root.get() == 0 || hot.rearm_above.get() != 0 || root.id() & FRAME_OPEN != 0 {
        return false;
    }
    // It may lie on another stack: that is read through the kernel.
    sys::read_word(root.rsp().wrapping_sub(8)) != Some(slot::return_of(root.id()))
}

/// The same of a root that keeps its return address: another one stands there. So a return that is
/// not seen shows, too.
fn kept_root_is_gone(hot: &Hot) -> bool {
    let place = hot.frame(hot.root.get()).rsp().wrapping_sub(8);
    let back = shadow::back_of_root(hot);
    back.is_some_and(|back| sys::read_word(place) != Some(back))
}

/// Frames that have ended and are not recorded yet; one of the numbers is zero.
#[derive(Default)]
struct Ended {
    unwound: u64,
    closed: u64,
    /// See [`counters::keeps_returns`].
    keeps_returns: bool,
}

impl Ended {
    /// Records them.
    #[inline(never)]
    fn tell(&mut self, hot: &Hot) {
        let (unwound, closed) = (self.unwound, self.closed);
        (self.unwound, self.closed) = (0, 0);
        for (kind, count) in [(record::UNWOUND, unwound), (record::CLOSED, closed)] {
            if count > 0 {
                chunk::put(hot, kind, count);
            }
        }
    }

    /// One more has ended.
    #[inline(always)]
    fn add(&mut self, hot: &Hot, frame: ShadowFrame, given_back: bool) {
        if frame.id & FRAME_SYSTEM != 0 {
            self.tell(hot);
            left_system_call(hot, frame.callee);
        } else if frame.id & FRAME_DONE != 0 {
            self.tell(hot);
            chunk::put_event(hot, slot::exit_id(frame.id), None);
        } else if frame.id & FRAME_OPEN != 0
            || self.keeps_returns && slot::end_is_unseen(frame.id)
            || given_back && hot.looked.get() != 0
        {
            if self.unwound > 0 {
                self.tell(hot);
            }
            self.closed += 1;
        } else {
            if self.closed > 0 {
                self.tell(hot);
            }
            self.unwound += 1;
        }
    }
}

/// Removes frames that have ended before the stack pointer came to `rsp`. With `inclusive`, a frame
/// at `rsp` itself has ended too.
pub fn settle(hot: &Hot, rsp: u64, inclusive: bool) {
    let mut ended = Ended {
        keeps_returns: counters::keeps_returns(),
        ..Ended::default()
    };
    let mut is_one_stack = false;
    loop {
        if stacks::left(hot, rsp) {
            continue;
        }
        let frame = hot.top().get();
        let at = frame.rsp;
        if !has_ended(hot, at, (rsp, inclusive), &mut is_one_stack) {
            break;
        }
        if frame.id & FRAME_VALUES != 0 {
            shadow::gone(frame.id);
            hot.pop();
            continue;
        }
        let given_back = was_given_back(hot, at);
        ended.add(hot, frame, given_back);
        if !given_back {
            drop_range(hot, at);
        }
        hot.pop();
        if hot.root.get() > hot.ssp.get() {
            ended.tell(hot);
            frames_ended(hot);
        }
    }
    ended.tell(hot);
    if hot.rearm_above.get() != 0 && rsp > hot.rearm_above.get() {
        arm_again(hot, rsp);
    }
    if ended.keeps_returns {
        shadow::mark_again(hot);
    }
    if hot.root.get() != 0 && root_is_gone(hot) {
        let frames = (hot.ssp.get() - hot.root.get()) / FRAME_BYTES as u64 + 1;
        drop_frames(hot, frames);
    }
}

/// True if the innermost frame, at `at`, has ended before the stack pointer came to `rsp`. Once all
/// frames up to there are known to be one stack, distances say nothing.
fn has_ended(hot: &Hot, at: u64, (rsp, inclusive): (u64, bool), is_one_stack: &mut bool) -> bool {
    if stacks::jumped_out(hot, rsp) {
        return true;
    }
    let ended = at < rsp || inclusive && at == rsp;
    if !ended || at < rsp && stacks::switched(hot, rsp) {
        return false;
    }
    let is_far = rsp - at > SAME_STACK_BYTES && !*is_one_stack;
    if is_far && !stacks::handler_ended(hot, at, rsp) {
        *is_one_stack = stacks::reaches(hot, rsp);
        if !*is_one_stack {
            state::count_hole(hole::OTHER_STACK);
            hot.has_other_stacks.set(1);
            return false;
        }
    }
    true
}

/// A frame without an exit was at `at`: there may be a return address of ours.
#[inline(always)]
fn drop_range(hot: &Hot, at: u64) {
    if !counters::keeps_returns() {
        shadow::drop_range(hot, at);
    }
}

/// True if the end of a call is not seen by an event of its own.
#[inline(always)]
pub fn has_no_end(id: u64) -> bool {
    id & FRAME_OPEN != 0 || counters::keeps_returns() && slot::end_is_unseen(id)
}

/// A call of the kernel has ended without an event: a handler that interrupted it has jumped away,
/// or its thread was moved past it.
fn left_system_call(hot: &Hot, number: u64) {
    let head = [number, 0];
    chunk::put_values(hot, record::SYSTEM_RETURN, record::LEFT, &head, &[]);
}

/// In a fork child: what the parent has asked of the kernel does not come back here, and what calls
/// have brought is not in its records.
pub fn forget_system_calls(hot: &Hot) {
    let top = hot.top();
    let mut to = hot.bottom();
    let mut from = to;
    while from <= top {
        let of_this_process = FRAME_SYSTEM | FRAME_VALUES;
        // The child comes back from a call without a record, too.
        let is_quiet = shadow::is_quiet(from.id());
        let is_other = !shadow::is_barrier(from) && !is_quiet;
        let is_left = is_other && from.id() & of_this_process != 0 && from.id() != FRAME_ROOT;
        if !is_left {
            to.set(from.get());
            to = to.above();
        }
        from = from.above();
    }
    hot.ssp.set(to.below().address());
}

/// A call begins. `callee`: of a call through a pointer, which may be null.
pub(crate) fn enter(hot: &Hot, rsp: u64, id: u64, callee: Option<u64>, open: bool) {
    settle(hot, rsp, true);
    if !deep::has_room(hot, rsp) {
        chunk::cut_off(hot);
        return;
    }
    chunk::put_entry(hot, id as u32, callee, rsp);
    let id = if open { id | FRAME_OPEN } else { id };
    shadow::push(hot, rsp, id, callee.unwrap_or(0));
}

/// A call begins that has no record: its exit will be passed over. False: there is no room.
/// `site`: of a call whose return has a payload.
pub(crate) fn enter_quietly(hot: &Hot, rsp: u64, site: Option<u64>) -> bool {
    settle(hot, rsp, true);
    let has_room = deep::has_room(hot, rsp);
    if has_room {
        match site {
            Some(site) => shadow::push(hot, rsp - 1, FRAME_QUIET_HELD, site),
            None => shadow::push(hot, rsp - 1, FRAME_QUIET, 0),
        }
    }
    has_room
}

/// True if the call at `rsp` has no record.
pub(crate) fn is_quiet(hot: &Hot, rsp: u64) -> bool {
    settle(hot, rsp - 1, false);
    let mut frame = hot.top();
    while frame.rsp() == rsp - 1 && shadow::is_held(frame.id()) && !shadow::is_quiet(frame.id()) {
        frame = frame.below();
    }
    frame.rsp() == rsp - 1 && shadow::is_quiet(frame.id())
}

/// Recorded calls that are open around one from the stack pointer `rsp`, whose frame is not there
/// yet. What stands at its place has ended, or jumps there.
pub(crate) fn depth_around(hot: &Hot, rsp: u64) -> u32 {
    settle(hot, rsp - 1, false);
    let (mut frame, mut depth) = (hot.top(), 0);
    while frame > hot.bottom() {
        let is_call = !shadow::is_barrier(frame) && frame.id() & FRAME_VALUES == 0;
        depth += u32::from(is_call && frame.rsp() != rsp);
        frame = frame.below();
    }
    depth
}

/// A frame without a patched call site begins: a special function's caller was not patched.
pub fn enter_unseen(hot: &Hot, rsp: u64, function: u64) {
    if counters::is_counting() || counters::is_in_order() {
        return;
    }
    settle(hot, rsp - 1, false);
    if shadow::call(hot).rsp() == rsp || !deep::has_room(hot, rsp) {
        return;
    }
    chunk::put_place(hot, rsp);
    chunk::put(hot, record::ENTERED, function);
    shadow::push(hot, rsp, FRAME_OPEN, function);
}

/// A call ends.
pub(crate) fn leave(hot: &Hot, rsp: u64, id: u64) {
    if hot.overflow.get() > 0 && hot.top().rsp() > rsp {
        hot.overflow.sub(1);
        chunk::lose(hot);
        return;
    }
    settle(hot, rsp, false);
    // An entry-only frame at the same place has ended: its function has returned before.
    while hot.top().rsp() == rsp && hot.top().id() & FRAME_OPEN != 0 {
        drop_frames(hot, 1);
    }
    if hot.top().rsp() == rsp {
        chunk::put_event(hot, id as u32, None);
        hot.pop();
        frames_ended(hot);
        return;
    }
    if !leave_below(hot, rsp, id as u32, |id| id & FRAME_OPEN == 0) {
        chunk::put(hot, record::RESUMED, id);
    }
}

/// The innermost call at `rsp` returns, if `is_it` says so of its id: frames of another stack (or
/// of one left by siglongjmp) may lie above it. False: it does not.
pub fn leave_below(hot: &Hot, rsp: u64, exit: u32, is_it: impl Fn(u64) -> bool) -> bool {
    let mut below = hot.top();
    let mut frames = 0u64;
    while below.rsp() != u64::MAX && below.rsp() != rsp && frames < 4096 {
        below = below.below();
        frames += 1;
    }
    let has_returned = below.rsp() == rsp && is_it(below.id());
    if has_returned {
        drop_frames(hot, frames);
        chunk::put_event(hot, exit, None);
        hot.pop();
        frames_ended(hot);
    }
    has_returned
}

/// Drops the innermost `frames`, reporting each kind in order.
pub(crate) fn drop_frames(hot: &Hot, frames: u64) {
    for _ in 0..frames {
        let id = hot.top().id();
        let open = has_no_end(id);
        if id & FRAME_VALUES != 0 {
            shadow::gone(id);
            hot.pop();
            continue;
        }
        if id & FRAME_SYSTEM != 0 {
            left_system_call(hot, hot.top().callee());
            hot.pop();
            frames_ended(hot);
            continue;
        }
        drop_range(hot, hot.top().rsp());
        if id & FRAME_DONE != 0 {
            chunk::put_event(hot, slot::exit_id(id), None);
            hot.pop();
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
        hot.pop();
        frames_ended(hot);
    }
}

/// A tail jump: the frame whose call site had `rsp` goes on as another function.
pub(crate) fn tail(hot: &Hot, rsp: u64, id: u64, callee: Option<u64>) {
    // What the frame keeps of its values lies just below it, and stays.
    settle(hot, rsp - 1, false);
    let entered_unseen = shadow::call(hot).rsp() != rsp;
    if entered_unseen && !deep::has_room(hot, rsp) {
        return;
    }
    if entered_unseen {
        // The frame that it replaces was never seen: what it becomes stands for itself.
        let called = callee.unwrap_or_else(|| slot::direct_target(id));
        chunk::put_place(hot, rsp);
        chunk::put(hot, record::ENTERED, called);
        shadow::push(hot, rsp, FRAME_OPEN, called);
    } else {
        chunk::put_event(hot, id as u32, callee);
    }
}

/// The return address of one call becomes the original one.
#[inline(always)]
pub fn give_back_frame(frame: FrameAt) {
    let id = frame.id();
    let word = if id & FRAME_OPEN == 0 {
        shadow::return_word_of_exit(frame)
    } else if shadow::is_quiet(id) {
        shadow::return_word(frame)
    } else {
        return;
    };
    if !guarded::holds(word.address()) {
        let original = slot::original_of(word.get(), word.address());
        if original != 0 {
            word.set(original);
        }
    }
}

/// The call of one frame returns to its slot again.
#[inline(always)]
pub fn arm_frame(frame: FrameAt) {
    let mut id = frame.id();
    let mut word = shadow::return_word_of_exit(frame);
    if id & FRAME_OPEN != 0 {
        if id != FRAME_QUIET_HELD {
            return;
        }
        word = shadow::return_word(frame);
        id = frame.callee();
    }
    if guarded::holds(word.address()) {
        return;
    }
    if state::process().originals.get().is_some() {
        arm_with_hooks(word, id);
    } else if let Some((exit, original)) = slot::exit_and_original(id)
        && word.get() == original
    {
        word.set(exit);
    }
}

/// The same where its function may be hooked, or called by one that is.
#[inline(never)]
fn arm_with_hooks(word: StackWord, id: u64) {
    let hooked = slot::return_of(id);
    if hooked != 0 {
        originals::arm_again(word, hooked);
        return;
    }
    let exit = slot::exit_of(id);
    let original = slot::original_of(exit, word.address());
    if original != 0 && word.get() == original {
        word.set(exit);
    }
}

/// True if a walker has been given the return address of the frame at `rsp`: none of ours is left
/// there.
#[inline]
pub fn was_given_back(hot: &Hot, rsp: u64) -> bool {
    let above = hot.rearm_above.get();
    above != 0 && rsp - 8 >= above && hot.barriers.get() == 0
}

/// How frames have ended that were given back: after a walker that only looked they have returned.
pub fn end_of(looked: u64) -> u32 {
    match looked {
        0 => record::UNWOUND,
        _ => record::CLOSED,
    }
}

/// Gives back the one return address of the running function, whose frame becomes entry-only.
pub fn give_back_one(hot: &Hot, word: StackWord) {
    let at = word.address();
    let original = slot::original_of(word.get(), at);
    if original == 0 {
        return;
    }
    // Entry-only frames that have ended may lie above.
    settle(hot, at + 8, false);
    // Whether or not its frame is known: the callee may keep what it reads (setjmp).
    word.set(original);
    if hot.top().rsp() == at + 8 {
        hot.top().mark(FRAME_OPEN);
    }
}

/// At the first event above the walker: the frames around us get their slots back. Not if that was
/// the event at which the end of the recording was met: then all stacks have the program's own
/// addresses, for good.
pub fn arm_again(hot: &Hot, rsp: u64) {
    hot.rearm_above.set(0);
    if state::process().is_silent() {
        return;
    }
    hot.end.set(hot.real_end.get());
    let (mut frame, bottom) = (hot.top(), hot.bottom());
    let mut interrupted = false;
    while frame > bottom {
        let is_barrier = shadow::is_barrier(frame);
        // As in give_back: what follows lies on the stack that a handler interrupted.
        interrupted |= is_barrier && shadow::holds(frame, rsp);
        if !is_barrier && (frame.rsp() > rsp || interrupted) {
            arm_frame(frame);
        }
        frame = frame.below();
    }
    unless_silent(hot);
}

/// Frames were armed: not if the process has fallen silent meanwhile, by another thread, which may
/// have passed them before.
#[inline(always)]
pub fn unless_silent(hot: &Hot) {
    fence(Ordering::SeqCst);
    if state::process().is_silent() {
        give_back_armed(hot);
    }
}

#[cold]
#[inline(never)]
fn give_back_armed(hot: &Hot) {
    let (mut frame, bottom) = (hot.top(), hot.bottom());
    while frame > bottom {
        if !shadow::is_barrier(frame) {
            give_back_frame(frame);
        }
        frame = frame.below();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::empty_thread;

    #[test]
    fn only_what_lies_above_the_walker_was_given_back() {
        let hot = empty_thread();
        assert!(!was_given_back(&hot, 0x2000));
        hot.rearm_above.set(0x1ff8);
        assert!(was_given_back(&hot, 0x2000));
        assert!(!was_given_back(&hot, 0x1ff8));
        // Behind a barrier lies another stack.
        hot.barriers.set(1);
        assert!(!was_given_back(&hot, 0x2000));
    }

    #[test]
    fn frames_return_after_a_walker_that_only_looked() {
        assert_eq!((end_of(0), end_of(1)), (record::UNWOUND, record::CLOSED));
    }
}
