//! The two events around a call of the kernel whose memory must be read, with signals let in.
//!
//! As [`crate::events::system_call`], at a third of its price, where one thread has the memory for
//! itself ([`crate::record::in_place`]). A handler may interrupt this at any point. Until the mark
//! at the record's end is written nothing has happened: [`crate::signals::context`] may move the
//! interrupted code back to before the event, and the record, which says how long it is, is passed
//! over. From then on it has happened, and the shadow frame is put right there. Every case that is
//! not plain is left to the slow path; then the answer is false.

use crate::events::system_call::{RED_ZONE_BYTES, Way, arguments, way};
use crate::frames::shadow;
use crate::memory::frame::Frame;
use crate::memory::state::{END_BYTES, FRAME_BYTES, Hot, SHARING_NONE, ShadowFrame};
use crate::memory::{state, sys};
use crate::record::capture::Captures;
use crate::record::chunk;
use crate::record::in_place::Pieces;
use crate::routines::quick;
use core::sync::atomic::{Ordering, compiler_fence};
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_SYSTEM};
use sptrace_wire::values;

/// Before a record's values.
const HEAD_BYTES: u64 = 16;

/// An instruction that calls the kernel is about to be executed.
///
/// # Safety
/// `frame` is what the door pushed, `hot` this thread's block.
pub unsafe fn enter(hot: *mut Hot, frame: *mut Frame) -> bool {
    // SAFETY: the caller's; the place above the top is this thread's.
    unsafe {
        let f = &*frame;
        let number = f.rax as u32;
        let rsp = &raw const f.above as u64 + RED_ZONE_BYTES;
        let top = shadow::top(hot);
        let is_plain = is_plain(hot)
            && quick::is_recorded(number)
            && way(number, u64::MAX) == Way::Nested
            && rsp < (*top).rsp
            && (*hot).ssp < (*hot).ssp_end;
        let args = arguments(f);
        let captures = Captures::of(number).filter(|_| is_plain);
        let Some(pieces) = captures.and_then(|c| Pieces::measure(&c, &args, None)) else {
            return false;
        };
        let [a, b, c, d, e, g] = args;
        let head = [0, a, b, c, d, e, g];
        let record = (record::SYSTEM_CALL, number);
        if !write(hot, frame as u64, record, &head, &pieces) {
            return false;
        }
        let new = ShadowFrame {
            rsp,
            id: f.id | FRAME_OPEN | FRAME_SYSTEM,
            callee: number.into(),
        };
        // As the common routines do it: a handler in between has used the same place.
        top.add(1).write_volatile(new);
        sys::add_in_one(&raw mut (*hot).ssp, FRAME_BYTES as u64);
        compiler_fence(Ordering::SeqCst);
        top.add(1).write_volatile(new);
        true
    }
}

/// It has been executed.
///
/// # Safety
/// As for `enter`.
pub unsafe fn leave(hot: *mut Hot, frame: *mut Frame) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let f = &*frame;
        let rsp = &raw const f.above as u64 + RED_ZONE_BYTES;
        let top = shadow::top(hot);
        let flags = FRAME_OPEN | FRAME_SYSTEM | shadow::FRAME_DONE;
        let is_ours = (*top).rsp == rsp && (*top).id & flags == FRAME_OPEN | FRAME_SYSTEM;
        if !is_ours || !is_plain(hot) {
            return false;
        }
        let (number, result, args) = ((*top).callee as u32, f.rax as i64, arguments(f));
        let pieces = Captures::of(number).and_then(|c| Pieces::measure(&c, &args, Some(result)));
        let Some(pieces) = pieces else {
            return false;
        };
        let record = (record::SYSTEM_RETURN, record::RETURNED);
        let head = [number.into(), result as u64];
        if !write(hot, frame as u64, record, &head, &pieces) {
            return false;
        }
        sys::add_in_one(&raw mut (*hot).ssp, (FRAME_BYTES as u64).wrapping_neg());
        true
    }
}

/// Nothing but this call is to be told, and memory stays as it is.
unsafe fn is_plain(hot: *mut Hot) -> bool {
    // SAFETY: the thread's own block.
    unsafe {
        (*state::process()).sharing.load(Ordering::Relaxed) == SHARING_NONE
            && (*hot).quick != 0
            && (*hot).muted == 0
            && (*hot).lends == 0
            && (*hot).rearm_above == 0
            && (*hot).overflow == 0
            && (*hot).lost == 0
            && (*hot).end != 0
    }
}

/// Writes a record, all of it or none. `door`: where the door keeps rbp; `id` and `low`: see
/// [`record`].
unsafe fn write(
    hot: *mut Hot,
    door: u64,
    (id, low): (u32, u32),
    head: &[u64],
    pieces: &Pieces,
) -> bool {
    let head_bytes = size_of_val(head);
    let bytes = (head_bytes + pieces.bytes + size_of_val(&values::END)) as u64;
    // SAFETY: the reservation is checked against the chunk's end, as in the hot path; the chunk is
    // this thread's.
    unsafe {
        let at = sys::add_in_one(&raw mut (*hot).cur, HEAD_BYTES + bytes);
        let end = (&raw const (*hot).end).read_volatile();
        if at + HEAD_BYTES + bytes > end + END_BYTES {
            return false;
        }
        let now = sys::tsc();
        let is_usual = now >> 32 == (*hot).hi;
        // First the length: what is not finished can be passed over.
        let stamp = if is_usual { now as u32 } else { 1 };
        (at as *mut u32).add(3).write_volatile(bytes as u32);
        (at as *mut u32).add(2).write_volatile(low);
        chunk::fill_once(at, record::word(id, stamp));
        if !is_usual {
            return false;
        }
        let mut to = at + HEAD_BYTES;
        for word in head {
            chunk::fill(to, *word);
            to += 8;
        }
        pieces.write(to as *mut u8);
        let mark = (to + pieces.bytes as u64) as *mut u32;
        (*hot).writing = [door, mark as u64];
        compiler_fence(Ordering::SeqCst);
        mark.write_volatile(values::END);
        compiler_fence(Ordering::SeqCst);
        true
    }
}
