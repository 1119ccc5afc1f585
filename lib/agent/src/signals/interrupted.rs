//! Cleans up after an event that a signal has interrupted and that will not go on: its record and
//! its shadow frame.
//!
//! Given by [`crate::signals::context`] how far the routine had come. The reserved record is marked
//! as NOTHING. The shadow frame is put where it belongs among those of the handler that runs now,
//! or is taken away. Must not know registers, slots and signal frames.

use crate::frames::shadow;
use crate::memory::state::END_BYTES;
use crate::memory::thread::{FRAME_BYTES, FrameAt, Hot, ShadowFrame};
use crate::memory::word::Half;
use sptrace_wire::control::CHUNK_BYTES;
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;
use sptrace_wire::values;
use sptrace_wire::values::{CALL_BYTES, RETURN_BYTES};

/// The call at `rsp` has returned past its exit.
pub fn is_done(hot: Option<&Hot>, rsp: u64) {
    if let Some(frame) = hot.and_then(|hot| find_frame(hot, rsp)) {
        frame.mark(FRAME_OPEN | shadow::FRAME_DONE);
    }
}

/// The first words of a record of `bytes` at `word`, if it lies in the chunk that the thread holds.
pub(super) fn record_at<const N: usize>(
    hot: Option<&Hot>,
    word: u64,
    bytes: u64,
) -> Option<&'static [Half; N]> {
    let limit = hot?.real_end.get();
    let end = limit + END_BYTES;
    let is_whole = bytes >= 4 * N as u64 && word.is_multiple_of(4) && word + bytes <= end;
    let is_inside = limit != 0 && word < limit && word >= end - CHUNK_BYTES;
    // SAFETY: inside of the chunk, which is mapped and this thread's.
    (is_inside && is_whole).then(|| unsafe { &*(word as *const [Half; N]) })
}

/// The reserved record with values at `word` will not be completed: that of a call of the kernel,
/// or of its return. It gets its length, and no mark at its end.
pub fn abandon_values(hot: Option<&Hot>, word: u64, is_call: bool) {
    let (id, bytes) = match is_call {
        true => (record::SYSTEM_CALL, CALL_BYTES),
        false => (record::SYSTEM_RETURN, RETURN_BYTES),
    };
    let bytes = (bytes + size_of_val(&values::END)) as u32;
    if let Some([stamp, kind, _, length]) = record_at(hot, word, 16 + u64::from(bytes)) {
        length.set(bytes);
        stamp.set(1);
        kind.set(id);
    }
}

/// The reserved record at `word` will not be completed. `narrow`: it is the entry of a call through
/// a pointer, so 12 bytes.
pub fn abandon(hot: Option<&Hot>, word: u64, narrow: bool) {
    if let Some([stamp, kind]) = record_at(hot, word, 12) {
        kind.set(if narrow {
            record::NOTHING_NARROW
        } else {
            record::NOTHING
        });
        stamp.set(1);
    }
}

/// The same of one with PLACED before it, where `word` is.
pub fn abandon_placed(hot: Option<&Hot>, word: u64, narrow: bool) {
    abandon(hot, word, false);
    abandon(hot, word + 8, narrow);
}

/// The record of a frame that has ended, at `word`, gets its id: the frame is popped.
pub fn tell_end(hot: Option<&Hot>, word: u64) {
    if let Some([_, kind]) = record_at(hot, word, 8) {
        kind.set(record::ENDED);
    }
}

/// A frame that has ended is popped, and has no record: the slow path tells of it.
pub fn leave_untold(hot: Option<&Hot>) {
    if let Some(hot) = hot {
        hot.untold.add(1);
    }
}

/// The same, and its reserved record at `word` will not be completed.
pub fn abandon_end(hot: Option<&Hot>, word: u64) {
    abandon(hot, word, false);
    leave_untold(hot);
}

/// The record that is reserved at `word` gets its halves: what stands in the place of its stamp,
/// its id, and its callee if it has one. False: it does not lie in the chunk that the thread holds.
pub fn complete<const N: usize>(hot: Option<&Hot>, word: u64, halves: [u32; N]) -> bool {
    let record = record_at::<N>(hot, word, 4 * N as u64);
    for (to, half) in record.into_iter().flatten().zip(halves) {
        to.set(half);
    }
    record.is_some()
}

/// The innermost frame at `rsp` that is not over: a hooked function's lies at that of its call.
fn find_frame(hot: &Hot, rsp: u64) -> Option<FrameAt> {
    let (mut frame, bottom) = (hot.top(), hot.bottom());
    let other = |f: FrameAt| f.rsp() != rsp || f.id() & shadow::FRAME_DONE != 0;
    while frame > bottom && other(frame) {
        frame = frame.below();
    }
    (frame.rsp() == rsp).then_some(frame)
}

/// True if the record with values that was being written at this door is complete: see
/// [`crate::memory::thread::Hot::writing`].
pub fn is_written(hot: Option<&Hot>, door: u64) -> bool {
    let [of, mark] = hot.map_or([0; 2], |hot| hot.writing.get());
    of == door && record_at(hot, mark, 4).is_some_and(|[end]| end.get() == values::END)
}

/// As [`put_in`], unless the frame is there already.
pub fn put_in_once(hot: &Hot, frame: ShadowFrame, handler: &core::ops::Range<u64>) {
    if find_frame(hot, frame.rsp).is_none() {
        put_in(hot, frame, handler);
    }
}

/// Pushes the interrupted call's frame below those of the handler: two frames of room are kept
/// above the limit.
pub fn put_in(hot: &Hot, frame: ShadowFrame, handler: &core::ops::Range<u64>) {
    if hot.ssp.get() > hot.ssp_end.get() {
        return;
    }
    let mut at = hot.top();
    while at.rsp() != u64::MAX && (at.rsp() <= frame.rsp || handler.contains(&at.rsp())) {
        at.above().set(at.get());
        at = at.below();
    }
    at.above().set(frame);
    hot.ssp.add(FRAME_BYTES as u64);
    if hot.root.get() > at.address() {
        hot.root.add(FRAME_BYTES as u64);
    }
}

/// Pops the interrupted call's frame from below those of the handler.
pub fn take_out(hot: &Hot, rsp: u64) {
    let Some(mut at) = find_frame(hot, rsp) else {
        return;
    };
    if hot.root.get() > at.address() {
        hot.root.sub(FRAME_BYTES as u64);
    }
    while at < hot.top() {
        at.set(at.above().get());
        at = at.above();
    }
    hot.pop();
}

/// The second write of a frame, which the routine does not come to.
pub fn repair(hot: &Hot, below: u64, frame: ShadowFrame) {
    let at = below.wrapping_add(FRAME_BYTES as u64);
    let place = hot.frame(at);
    if below >= hot.shadow() && at <= hot.ssp.get() && place.address() == at {
        place.set(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    fn rsps(hot: &Hot) -> Vec<u64> {
        let mut frames = vec![hot.top()];
        while frames.last().is_some_and(|f| f.below() > hot.bottom()) {
            frames.extend(frames.last().map(|f| f.below()));
        }
        frames.iter().rev().map(|f| f.rsp()).collect()
    }

    fn frame(rsp: u64) -> ShadowFrame {
        ShadowFrame {
            rsp,
            id: 1,
            callee: 0,
        }
    }

    /// Two frames of the program, two of the handler that interrupted it; the last is the root.
    fn interrupted() -> Box<Hot> {
        let hot = thread(16);
        for rsp in [0x3000, 0x2000, 0x1200, 0x1100] {
            shadow::push(&hot, rsp, 1, 0);
        }
        hot.root.set(hot.ssp.get());
        hot
    }

    #[test]
    fn an_interrupted_calls_frame_goes_below_those_of_the_handler() {
        let hot = interrupted();
        put_in(&hot, frame(0x1800), &(0x1000..0x1300));
        assert_eq!(rsps(&hot), [0x3000, 0x2000, 0x1800, 0x1200, 0x1100]);
        assert_eq!(hot.root.get(), hot.ssp.get());
    }

    #[test]
    fn a_handler_on_a_higher_stack_stays_above_the_call_that_it_interrupted() {
        let hot = thread(16);
        shadow::push(&hot, 0x3000, 1, 0);
        shadow::push(&hot, 0x8800, 1, 0);
        put_in(&hot, frame(0x1800), &(0x8000..0x9000));
        assert_eq!(rsps(&hot), [0x3000, 0x1800, 0x8800]);
    }

    #[test]
    fn without_room_no_frame_is_put_in() {
        let hot = interrupted();
        hot.ssp_end.set(hot.ssp.get() - 1);
        put_in(&hot, frame(0x1800), &(0x1000..0x1300));
        assert_eq!(rsps(&hot).len(), 4);
    }

    #[test]
    fn a_call_that_is_over_is_taken_out_from_below_the_handler() {
        let hot = interrupted();
        take_out(&hot, 0x2000);
        assert_eq!(rsps(&hot), [0x3000, 0x1200, 0x1100]);
        assert_eq!(hot.root.get(), hot.ssp.get());
        // One that is not there changes nothing.
        take_out(&hot, 0x2800);
        assert_eq!(rsps(&hot), [0x3000, 0x1200, 0x1100]);
    }

    #[test]
    fn a_call_past_its_exit_is_marked_once() {
        let hot = interrupted();
        is_done(Some(&hot), 0x1200);
        let done = FRAME_OPEN | shadow::FRAME_DONE;
        assert_eq!(hot.top().below().id(), 1 | done);
        assert_eq!(hot.top().id(), 1);
        // It is over: the next one at that place is another.
        assert!(find_frame(&hot, 0x1200).is_none());
    }

    #[test]
    fn half_a_frame_is_written_again_only_among_the_threads_own() {
        let hot = interrupted();
        let below = hot.ssp.get() - FRAME_BYTES as u64;
        repair(&hot, below, frame(0x1180));
        assert_eq!(rsps(&hot), [0x3000, 0x2000, 0x1200, 0x1180]);
        let top = hot.ssp.get();
        repair(&hot, top, frame(0x77));
        repair(&hot, 8, frame(0x77));
        assert_eq!(rsps(&hot), [0x3000, 0x2000, 0x1200, 0x1180]);
    }

    #[test]
    fn a_reserved_record_becomes_nothing_inside_the_chunk_alone() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end.set(first + CHUNK_BYTES - END_BYTES);
        abandon(Some(&hot), first, false);
        abandon(Some(&hot), first + 16, true);
        let end = hot.real_end.get();
        abandon(Some(&hot), end, false);
        abandon(Some(&hot), 8, false);
        assert_eq!(chunk[..2], [1, record::NOTHING]);
        assert_eq!(chunk[4..6], [1, record::NOTHING_NARROW]);
        assert_eq!(chunk.iter().filter(|word| **word != 0).count(), 4);
    }

    #[test]
    fn a_reserved_record_with_values_gets_its_length_and_no_end() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end.set(first + CHUNK_BYTES - END_BYTES);
        abandon_values(Some(&hot), first, true);
        abandon_values(Some(&hot), first + 76, false);
        let end = hot.real_end.get();
        abandon_values(Some(&hot), end - 8, false);
        assert_eq!(chunk[..4], [1, record::SYSTEM_CALL, 0, 60]);
        assert_eq!(chunk[19..23], [1, record::SYSTEM_RETURN, 0, 20]);
        assert_eq!(chunk.iter().filter(|word| **word != 0).count(), 6);
    }
}
