//! Calls with values that a signal has interrupted in a common routine and that will not go on
//! there: their records, and the frame that brings their return.
//!
//! Given by [`crate::signals::context`] how far the routine had come; does what is missing, so that
//! the call is one that the routine has recorded, or takes back what is reserved. Must not know
//! registers, slots and signal frames.

use crate::memory::rows::RETURNS;
use crate::memory::thread::{FRAME_BYTES, Hot, ShadowFrame};
use crate::plans::payloads;
use crate::routines::marks::Phase;
use crate::signals::interrupted::{put_in, record_at, repair, take_out};
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_VALUES};
use sptrace_wire::values;

/// Bytes of a record's head.
const HEAD_BYTES: u64 = 16;
/// Bytes of the record of an exit.
const EXIT_BYTES: u32 = 8;
/// The most that a record of values has behind its head.
const MOST_BYTES: u32 = 1 << 10;

/// Bytes behind the head of the record of values at `word`, once they stand there.
fn bytes_at(hot: Option<&Hot>, word: u64) -> Option<u32> {
    let [_, _, _, length] = record_at(hot, word, HEAD_BYTES)?;
    let bytes = length.get();
    (bytes > 0 && bytes <= MOST_BYTES && bytes.is_multiple_of(4)).then_some(bytes)
}

/// What is reserved at `word` for values will not be completed. Before it, `head` bytes are
/// reserved for the call's own record, or as many as an exit has behind it if that is 0. All of it
/// becomes one record without a mark at its end; if nothing was written yet, it is a hole.
pub fn abandon(hot: Option<&Hot>, word: u64, head: u32) {
    let Some(bytes) = bytes_at(hot, word) else {
        return;
    };
    let more = if head == 0 { EXIT_BYTES } else { head };
    let first = word - u64::from(head);
    if let Some([stamp, kind, _, length]) = record_at(hot, first, HEAD_BYTES + u64::from(bytes)) {
        length.set(bytes + more);
        stamp.set(1);
        kind.set(record::CALL_VALUES);
    }
}

/// The record of values at `word` is complete but for the mark at its end.
pub fn complete(hot: Option<&Hot>, word: u64) {
    let Some(bytes) = bytes_at(hot, word) else {
        return;
    };
    let end = word + HEAD_BYTES + u64::from(bytes) - size_of_val(&values::END) as u64;
    if let Some([end]) = record_at(hot, end, 4) {
        end.set(values::END);
    }
}

/// The frame of a call's values, of a call of `callee` whose frame is at `rsp`. `None`: its return
/// brings none.
pub fn frame(callee: u64, rsp: u64) -> Option<ShadowFrame> {
    let row = payloads::row(callee)?;
    (row.kinds.get() & RETURNS != 0).then_some(ShadowFrame {
        rsp: rsp - 1,
        id: FRAME_OPEN | FRAME_VALUES,
        callee,
    })
}

/// Makes the shadow stack have the frame of the values of a call that was recorded: `call` is its
/// own, and `below` the frame that the routine has pushed upon.
pub fn push_frame(
    hot: &Hot,
    phase: Phase,
    (call, callee): (ShadowFrame, u64),
    below: u64,
    handler: &core::ops::Range<u64>,
) {
    if phase == Phase::PushedCall || phase == Phase::PairedCall {
        repair(hot, below, call);
    }
    let Some(frame) = frame(callee, call.rsp) else {
        return;
    };
    match phase {
        Phase::PairedCall => repair(hot, below + FRAME_BYTES as u64, frame),
        _ => put_in(hot, frame, handler),
    }
}

/// The call at `rsp` is over, and so is what its values have kept.
pub fn pop_frame(hot: &Hot, rsp: u64) {
    take_out(hot, rsp - 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::state::END_BYTES;
    use crate::memory::testing::thread;
    use sptrace_wire::control::CHUNK_BYTES;
    use std::vec;

    #[test]
    fn what_was_reserved_becomes_one_record_without_an_end() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end.set(first + CHUNK_BYTES - END_BYTES);
        // Nothing was written: a hole of zeros stays.
        abandon(Some(&hot), first + 8, 8);
        assert!(chunk.iter().all(|word| *word == 0));
        // A call of two words, behind the 8 bytes of its own record: 8 + 16 + 20.
        chunk[2 + 3] = 20;
        abandon(Some(&hot), first + 8, 8);
        assert_eq!(chunk[..4], [1, record::CALL_VALUES, 0, 28]);
        // A result and its exit: 16 + 36 + 8.
        chunk[20 + 3] = 36;
        abandon(Some(&hot), first + 80, 0);
        assert_eq!(chunk[20..24], [1, record::CALL_VALUES, 0, 44]);
        // Outside of the chunk nothing is written.
        abandon(Some(&hot), 8, 8);
        complete(Some(&hot), hot.real_end.get() + END_BYTES);
    }

    #[test]
    fn a_record_is_completed_by_the_mark_at_its_end() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end.set(first + CHUNK_BYTES - END_BYTES);
        chunk[3] = 12;
        complete(Some(&hot), first);
        assert_eq!(chunk[4..8], [0, 0, values::END, 0]);
    }
}
