//! Cleans up after an event that a signal has interrupted and that will not go on: its record and
//! its shadow frame.
//!
//! Given by [`crate::signals::context`] how far the routine had come. The reserved record is marked
//! as NOTHING. The shadow frame is put where it belongs among those of the handler that runs now,
//! or is taken away. Must not know registers, slots and signal frames.

use crate::frames::shadow;
use crate::memory::state::{END_BYTES, FRAME_BYTES, Hot, ShadowFrame};
use sptrace_wire::control::CHUNK_BYTES;
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;
use sptrace_wire::values;
use sptrace_wire::values::{CALL_BYTES, RETURN_BYTES};

/// The call at `rsp` has returned past its exit.
pub unsafe fn is_done(hot: *mut Hot, rsp: u64) {
    // SAFETY: the thread's own block.
    unsafe {
        if hot.is_null() {
            return;
        }
        let frame = find_frame(hot, rsp);
        if !frame.is_null() {
            (*frame).id |= FRAME_OPEN | shadow::FRAME_DONE;
        }
    }
}

/// True if a record of `bytes` at `word` lies in the chunk that the thread holds.
unsafe fn is_in_chunk(hot: *mut Hot, word: u64, bytes: u64) -> bool {
    // SAFETY: the thread's own block.
    unsafe {
        if hot.is_null() || (*hot).real_end == 0 {
            return false;
        }
        let limit = (*hot).real_end;
        let end = limit + END_BYTES;
        word < limit && word + bytes <= end && word >= end - CHUNK_BYTES
    }
}

/// The reserved record with values at `word` will not be completed: that of a call of the kernel,
/// or of its return. It gets its length, and no mark at its end.
pub unsafe fn abandon_values(hot: *mut Hot, word: u64, is_call: bool) {
    let (id, bytes) = match is_call {
        true => (record::SYSTEM_CALL, CALL_BYTES),
        false => (record::SYSTEM_RETURN, RETURN_BYTES),
    };
    let bytes = (bytes + size_of_val(&values::END)) as u32;
    // SAFETY: only inside the chunk that this thread holds.
    unsafe {
        if is_in_chunk(hot, word, 16 + u64::from(bytes)) {
            let word = word as *mut u32;
            word.add(3).write_volatile(bytes);
            word.write_volatile(1);
            word.add(1).write_volatile(id);
        }
    }
}

/// The reserved record at `word` will not be completed. `narrow`: it is the entry of a call through
/// a pointer, so 12 bytes.
pub unsafe fn abandon(hot: *mut Hot, word: u64, narrow: bool) {
    // SAFETY: only inside the chunk that this thread holds.
    unsafe {
        if !is_in_chunk(hot, word, 12) {
            return;
        }
        let id = if narrow {
            record::NOTHING_NARROW
        } else {
            record::NOTHING
        };
        let word = word as *mut u32;
        word.add(1).write_volatile(id);
        word.write_volatile(1);
    }
}

/// The innermost frame at `rsp` that is not over: a hooked function's lies at that of its call.
unsafe fn find_frame(hot: *mut Hot, rsp: u64) -> *mut ShadowFrame {
    // SAFETY: the sentinel ends the search.
    unsafe {
        let mut frame = shadow::top(hot);
        let other = |f: &ShadowFrame| f.rsp != rsp || f.id & shadow::FRAME_DONE != 0;
        while frame > shadow::bottom(hot) && other(&*frame) {
            frame = frame.sub(1);
        }
        if (*frame).rsp == rsp {
            frame
        } else {
            core::ptr::null_mut()
        }
    }
}

/// True if the record with values that was being written at this door is complete: see
/// [`crate::memory::state::Hot::writing`].
pub unsafe fn is_written(hot: *mut Hot, door: u64) -> bool {
    // SAFETY: the thread's own block, and its chunk.
    unsafe {
        if hot.is_null() || (*hot).writing[0] != door {
            return false;
        }
        let mark = (*hot).writing[1];
        is_in_chunk(hot, mark, 4) && (mark as *const u32).read_volatile() == values::END
    }
}

/// As [`put_in`], unless the frame is there already.
pub unsafe fn put_in_once(hot: *mut Hot, frame: ShadowFrame, handler: &core::ops::Range<u64>) {
    // SAFETY: as there.
    unsafe {
        if find_frame(hot, frame.rsp).is_null() {
            put_in(hot, frame, handler);
        }
    }
}

/// Pushes the interrupted call's frame below those of the handler.
pub unsafe fn put_in(hot: *mut Hot, frame: ShadowFrame, handler: &core::ops::Range<u64>) {
    // SAFETY: two frames of room are kept above the limit.
    unsafe {
        if (*hot).ssp > (*hot).ssp_end {
            return;
        }
        let mut at = shadow::top(hot);
        while (*at).rsp != u64::MAX && ((*at).rsp <= frame.rsp || handler.contains(&(*at).rsp)) {
            *at.add(1) = *at;
            at = at.sub(1);
        }
        *at.add(1) = frame;
        (*hot).ssp += FRAME_BYTES as u64;
        if (*hot).root > at as u64 {
            (*hot).root += FRAME_BYTES as u64;
        }
    }
}

/// Pops the interrupted call's frame from below those of the handler.
pub unsafe fn take_out(hot: *mut Hot, rsp: u64) {
    // SAFETY: frames up to the top.
    unsafe {
        let mut at = find_frame(hot, rsp);
        if at.is_null() {
            return;
        }
        if (*hot).root > at as u64 {
            (*hot).root -= FRAME_BYTES as u64;
        }
        while at < shadow::top(hot) {
            *at = *at.add(1);
            at = at.add(1);
        }
        (*hot).ssp -= FRAME_BYTES as u64;
    }
}

/// The second write of a frame, which the routine does not come to.
pub unsafe fn repair(hot: *mut Hot, below: u64, frame: ShadowFrame) {
    // SAFETY: checked to be a frame of this thread.
    unsafe {
        let at = below + FRAME_BYTES as u64;
        if below >= shadow::shadow_bottom(hot) && at <= (*hot).ssp {
            *(at as *mut ShadowFrame) = frame;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::thread;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    fn rsps(hot: &mut Hot) -> Vec<u64> {
        // SAFETY: frames of the test's block, up to the top.
        let frames = unsafe {
            let count = shadow::top(hot).offset_from(shadow::bottom(hot)) as usize;
            core::slice::from_raw_parts(shadow::bottom(hot).add(1), count)
        };
        frames.iter().map(|f| f.rsp).collect()
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
        let mut hot = thread(16);
        for rsp in [0x3000, 0x2000, 0x1200, 0x1100] {
            // SAFETY: the block is this test's.
            unsafe { shadow::push(&mut *hot, rsp, 1, 0) };
        }
        hot.root = hot.ssp;
        hot
    }

    #[test]
    fn an_interrupted_calls_frame_goes_below_those_of_the_handler() {
        let mut hot = interrupted();
        // SAFETY: the block is this test's.
        unsafe { put_in(&mut *hot, frame(0x1800), &(0x1000..0x1300)) };
        assert_eq!(rsps(&mut hot), [0x3000, 0x2000, 0x1800, 0x1200, 0x1100]);
        assert_eq!(hot.root, hot.ssp);
    }

    #[test]
    fn a_handler_on_a_higher_stack_stays_above_the_call_that_it_interrupted() {
        let mut hot = thread(16);
        // SAFETY: the block is this test's.
        unsafe {
            shadow::push(&mut *hot, 0x3000, 1, 0);
            shadow::push(&mut *hot, 0x8800, 1, 0);
            put_in(&mut *hot, frame(0x1800), &(0x8000..0x9000));
        }
        assert_eq!(rsps(&mut hot), [0x3000, 0x1800, 0x8800]);
    }

    #[test]
    fn without_room_no_frame_is_put_in() {
        let mut hot = interrupted();
        hot.ssp_end = hot.ssp - 1;
        // SAFETY: the block is this test's.
        unsafe { put_in(&mut *hot, frame(0x1800), &(0x1000..0x1300)) };
        assert_eq!(rsps(&mut hot).len(), 4);
    }

    #[test]
    fn a_call_that_is_over_is_taken_out_from_below_the_handler() {
        let mut hot = interrupted();
        // SAFETY: the block is this test's.
        unsafe { take_out(&mut *hot, 0x2000) };
        assert_eq!(rsps(&mut hot), [0x3000, 0x1200, 0x1100]);
        assert_eq!(hot.root, hot.ssp);
        // One that is not there changes nothing.
        // SAFETY: as above.
        unsafe { take_out(&mut *hot, 0x2800) };
        assert_eq!(rsps(&mut hot), [0x3000, 0x1200, 0x1100]);
    }

    #[test]
    fn a_call_past_its_exit_is_marked_once() {
        let mut hot = interrupted();
        // SAFETY: the block is this test's.
        unsafe {
            is_done(&mut *hot, 0x1200);
            let done = FRAME_OPEN | shadow::FRAME_DONE;
            assert_eq!((*shadow::top(&mut *hot).sub(1)).id, 1 | done);
            assert_eq!((*shadow::top(&mut *hot)).id, 1);
            // It is over: the next one at that place is another.
            assert!(find_frame(&mut *hot, 0x1200).is_null());
        }
    }

    #[test]
    fn half_a_frame_is_written_again_only_among_the_threads_own() {
        let mut hot = interrupted();
        let below = hot.ssp - FRAME_BYTES as u64;
        // SAFETY: the block is this test's.
        unsafe {
            repair(&mut *hot, below, frame(0x1180));
            assert_eq!(rsps(&mut hot), [0x3000, 0x2000, 0x1200, 0x1180]);
            let top = hot.ssp;
            repair(&mut *hot, top, frame(0x77));
            repair(&mut *hot, 8, frame(0x77));
        }
        assert_eq!(rsps(&mut hot), [0x3000, 0x2000, 0x1200, 0x1180]);
    }

    #[test]
    fn a_reserved_record_becomes_nothing_inside_the_chunk_alone() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let mut hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end = first + CHUNK_BYTES - END_BYTES;
        // SAFETY: the block and the chunk are this test's.
        unsafe {
            abandon(&mut *hot, first, false);
            abandon(&mut *hot, first + 16, true);
            let end = hot.real_end;
            abandon(&mut *hot, end, false);
            abandon(&mut *hot, 8, false);
        }
        assert_eq!(chunk[..2], [1, record::NOTHING]);
        assert_eq!(chunk[4..6], [1, record::NOTHING_NARROW]);
        assert_eq!(chunk.iter().filter(|word| **word != 0).count(), 4);
    }

    #[test]
    fn a_reserved_record_with_values_gets_its_length_and_no_end() {
        let mut chunk = vec![0u32; CHUNK_BYTES as usize / 4];
        let mut hot = thread(2);
        let first = chunk.as_mut_ptr() as u64;
        hot.real_end = first + CHUNK_BYTES - END_BYTES;
        // SAFETY: the block and the chunk are this test's.
        unsafe {
            abandon_values(&mut *hot, first, true);
            abandon_values(&mut *hot, first + 76, false);
            let end = hot.real_end;
            abandon_values(&mut *hot, end - 8, false);
        }
        assert_eq!(chunk[..4], [1, record::SYSTEM_CALL, 0, 60]);
        assert_eq!(chunk[19..23], [1, record::SYSTEM_RETURN, 0, 20]);
        assert_eq!(chunk.iter().filter(|word| **word != 0).count(), 6);
    }
}
