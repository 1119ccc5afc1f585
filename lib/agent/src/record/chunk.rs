//! Records into chunks: taking a free chunk, handing over a full one, waiting or dropping when none
//! is free.
//!
//! Given a thread's block and the words of a record. Signals are blocked here, so the reservation
//! needs no care; what a failed fast path reserved beyond the limit stays zero, and zeros are no
//! record. Must not know what a record means.

use crate::memory::host::STOPPED_HOST_TICKS;
use crate::memory::state::{END_BYTES, Hot, TRASH, TRASH_END};
use crate::memory::{host, state, sys};
use crate::plans::modules;
use crate::record::{deep, silence};
use core::sync::atomic::{AtomicU64, Ordering};
use sptrace_wire::control::{hole, *};
use sptrace_wire::{record, values};

/// What one event may need: LOST, ANCHOR, WIDE_CALLEE and an entry with its callee.
const LONGEST_BYTES: u64 = 3 * 16 + 12;
/// Slices of waiting for a free chunk.
const WAIT_SLICE_MS: u64 = 10;

/// The table entry of chunk `index`.
pub unsafe fn entry(index: u32) -> *mut Chunk {
    // SAFETY: the arena holds CHUNKS_MAX entries; callers check `index`.
    unsafe {
        ((*state::process()).arena.add(CHUNKS_OFFSET as usize) as *mut Chunk).add(index as usize)
    }
}

/// An entry or exit. An entry through a pointer has its callee (which may be null), whose full
/// address goes before it where the low half is not enough.
pub unsafe fn put_event(hot: *mut Hot, id: u32, callee: Option<u64>) {
    let payload = callee.map_or(Payload::Nothing, Payload::Callee);
    // SAFETY: the thread's own block.
    unsafe { write(hot, id, payload) }
}

/// A control record.
pub unsafe fn put(hot: *mut Hot, control_id: u32, payload: u64) {
    // SAFETY: the thread's own block.
    unsafe { write(hot, control_id, Payload::Control(payload)) }
}

enum Payload {
    Nothing,
    Control(u64),
    Callee(u64),
}

unsafe fn write(hot: *mut Hot, id: u32, payload: Payload) {
    // SAFETY: begin leaves room.
    unsafe {
        let Some(now) = begin(hot, id, 0) else {
            return;
        };
        let word = record::word(id, now as u32);
        match payload {
            Payload::Nothing => store(hot, word),
            Payload::Control(payload) => {
                store(hot, word);
                store(hot, payload);
            }
            Payload::Callee(callee) => {
                if !modules::is_narrow(callee) {
                    store(hot, record::word(record::WIDE_CALLEE, now as u32));
                    store(hot, callee);
                }
                store(hot, word);
                store_half(hot, callee as u32);
            }
        }
    }
}

/// Room for an event, with `bytes` more than the longest of the others, and what must be told
/// before it; gives the time. `None`: it is lost.
unsafe fn begin(hot: *mut Hot, id: u32, bytes: u64) -> Option<u64> {
    // SAFETY: make_room leaves LONGEST_BYTES.
    unsafe {
        if !make_room(hot, LONGEST_BYTES + bytes) {
            // A wait is no event of the program.
            if id != record::BLOCKED && !host::host_is_detaching() {
                (*hot).lost += 1;
                state::control().lost.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        if (*hot).lost > 0 && (*hot).muted == 0 {
            let lost = (*hot).lost;
            (*hot).lost = 0;
            let now = sys::tsc();
            store(hot, record::word(record::LOST, now as u32));
            store(hot, lost);
            if (*hot).rearm_above == 0 {
                (*hot).end = (*hot).real_end;
            }
        }
        let now = sys::tsc();
        if (now >> 32) != (*hot).hi {
            (*hot).hi = now >> 32;
            store(hot, record::word(record::ANCHOR, now as u32));
            store(hot, now);
        }
        Some(now)
    }
}

/// A record with values: `low` is the low half of its payload; then `head`, then `pieces`, a
/// multiple of 4 bytes. A muted thread makes none.
pub unsafe fn put_values(hot: *mut Hot, id: u32, low: u32, head: &[u64], pieces: &[u8]) {
    let bytes = size_of_val(head) + pieces.len() + size_of::<u32>();
    // SAFETY: begin leaves room for them.
    unsafe {
        if (*hot).muted != 0 {
            return;
        }
        let Some(now) = begin(hot, id, bytes as u64) else {
            return;
        };
        store(hot, record::word(id, now as u32));
        store(hot, u64::from(low) | (bytes as u64) << 32);
        for word in head {
            store(hot, *word);
        }
        let to = (*hot).cur as *mut u8;
        core::ptr::copy_nonoverlapping(pieces.as_ptr(), to, pieces.len());
        (*hot).cur += pieces.len() as u64;
        store_half(hot, values::END);
    }
}

/// Takes back what was recorded last, from one place in the chunk to another, unless something came
/// after it.
pub unsafe fn take_back(hot: *mut Hot, (from, to): (u64, u64)) {
    // SAFETY: the thread's own chunk, as long as `cur` still stands in it.
    unsafe {
        if (*hot).cur == to && from < to && to - from < CHUNK_BYTES {
            core::ptr::write_bytes(from as *mut u8, 0, (to - from) as usize);
            (*hot).cur = from;
        }
    }
}

/// An event goes unrecorded. The next one comes to the slow path, so that the loss is told before
/// it.
pub unsafe fn lose(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).muted == 0 {
            (*hot).lost += 1;
            state::control().lost.fetch_add(1, Ordering::Relaxed);
            (*hot).end = 0;
        }
    }
}

/// Writes one word at `at`, a multiple of 4, in a reservation.
#[inline]
pub unsafe fn fill(at: u64, word: u64) {
    // SAFETY: the reservation is the caller's.
    unsafe {
        (at as *mut u32).write_volatile(word as u32);
        (at as *mut u32).add(1).write_volatile((word >> 32) as u32);
    }
}

/// The same by one instruction.
#[inline]
pub unsafe fn fill_once(at: u64, word: u64) {
    // SAFETY: as in fill; x86-64 needs no alignment.
    unsafe { core::arch::asm!("mov [{}], {}", in(reg) at, in(reg) word, options(nostack)) };
}

#[inline]
unsafe fn store(hot: *mut Hot, word: u64) {
    // SAFETY: as in store_half.
    unsafe {
        store_half(hot, word as u32);
        store_half(hot, (word >> 32) as u32);
    }
}

#[inline]
unsafe fn store_half(hot: *mut Hot, half: u32) {
    // SAFETY: make_room checked the space; all records have a multiple of 4 bytes.
    unsafe {
        ((*hot).cur as *mut u32).write_volatile(half);
        (*hot).cur += 4;
    }
}

/// Room for one record with everything that may precede it. False: the record is lost.
unsafe fn make_room(hot: *mut Hot, bytes: u64) -> bool {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).muted != 0 {
            if (*hot).cur + bytes > (*hot).real_end + END_BYTES {
                if host::host_is_gone() {
                    silence::fall_silent();
                    return false;
                }
                begin_trash(hot);
            }
            return true;
        }
        if (*hot).chunk != NONE && (*hot).cur + bytes <= (*hot).real_end + END_BYTES {
            return true;
        }
        hand_over(hot);
        take(hot)
    }
}

/// Mutes a thread: what it records from here on goes nowhere, while its shadow stack is kept up, so
/// that exits match when recording goes on. The hot path knows nothing of it: the words go to a
/// place that is written over and over. The chunk in use is kept.
pub unsafe fn mute(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).muted == 0 {
            (*hot).kept = [(*hot).cur, (*hot).real_end, (*hot).hi];
            (*hot).muted = 1;
            begin_trash(hot);
        }
    }
}

/// Recording goes on in the chunk that the thread had. Its next record writes an anchor if the
/// clock's high half has changed since.
pub unsafe fn unmute(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).muted != 0 {
            (*hot).muted = 0;
            [(*hot).cur, (*hot).real_end, (*hot).hi] = (*hot).kept;
            (*hot).end = if (*hot).rearm_above != 0 {
                0
            } else {
                (*hot).real_end
            };
        }
    }
}

unsafe fn begin_trash(hot: *mut Hot) {
    // SAFETY: the rest of the hot page.
    unsafe {
        (*hot).cur = hot as u64 + TRASH as u64;
        (*hot).real_end = hot as u64 + TRASH_END as u64 - END_BYTES;
        (*hot).end = if (*hot).rearm_above != 0 {
            0
        } else {
            (*hot).real_end
        };
    }
}

/// Gives the current chunk, if any, to the host.
pub unsafe fn hand_over(hot: *mut Hot) {
    // SAFETY: the chunk is ours until it is pushed.
    unsafe {
        let index = (*hot).chunk;
        if index == NONE {
            return;
        }
        (*hot).chunk = NONE;
        (*hot).end = 0;
        (*hot).real_end = 0;
        (*hot).kept = [0; 3];
        stream_of(hot).chunk.store(NONE, Ordering::Release);
        let c = entry(index);
        let head = &state::control().full_chunks;
        let mut old = head.load(Ordering::Relaxed);
        loop {
            (*c).next.store(old, Ordering::Relaxed);
            match head.compare_exchange_weak(old, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        host::ring();
    }
}

unsafe fn stream_of(hot: *mut Hot) -> &'static Stream {
    // SAFETY: the index was checked when the stream was taken.
    unsafe {
        &*((*state::process()).arena.add(STREAMS_OFFSET as usize) as *const Stream)
            .add((*hot).stream as usize)
    }
}

/// Takes a free chunk, waiting if the user wants that.
unsafe fn take(hot: *mut Hot) -> bool {
    // SAFETY: the thread's own block and the arena.
    unsafe {
        let mut waited_since = 0u64;
        let index = loop {
            if let Some(index) = pop_free() {
                break index;
            }
            if host::host_is_gone() {
                silence::fall_silent();
                return false;
            }
            if state::control().on_full == 1 || host::host_is_detaching() || host::host_is_stopped()
            {
                return false;
            }
            if waited_since == 0 {
                waited_since = sys::tsc();
            } else if sys::tsc().wrapping_sub(waited_since) > 2 * STOPPED_HOST_TICKS {
                // Whatever the reason: the program goes on.
                return false;
            }
            let freed = &state::control().chunks_freed;
            let seen = freed.load(Ordering::Acquire);
            if state::control().free_chunks.load(Ordering::Relaxed) as u32 == NONE {
                sys::futex_wait(freed.as_ptr(), seen, WAIT_SLICE_MS);
            }
        };
        if host::host_is_gone() {
            silence::fall_silent();
        }
        let now = sys::tsc();
        deep::keep_what_is_used(hot, now);
        let c = entry(index);
        (*c).stream = (*hot).stream;
        (*c).epoch = (*hot).epoch;
        (*c).sequence = (*hot).sequence;
        (*c).start_tsc = now;
        (*hot).sequence = (*hot).sequence.wrapping_add(1);
        (*hot).chunk = index;
        (*hot).hi = now >> 32;
        let at = (*state::process()).arena as u64 + chunk_offset(index);
        (*hot).cur = at;
        (*hot).real_end = at + CHUNK_BYTES - END_BYTES;
        (*hot).end = if (*hot).rearm_above != 0 {
            0
        } else {
            (*hot).real_end
        };
        stream_of(hot).chunk.store(index, Ordering::Release);
        if waited_since != 0 {
            store(hot, record::word(record::BLOCKED, now as u32));
            store(hot, now.wrapping_sub(waited_since));
        }
        true
    }
}

fn pop_free() -> Option<u32> {
    let head: &AtomicU64 = &state::control().free_chunks;
    let mut old = head.load(Ordering::Acquire);
    loop {
        let index = old as u32;
        if index as usize >= CHUNKS_MAX {
            return None;
        }
        // SAFETY: the index was checked.
        let next = unsafe { (*entry(index)).next.load(Ordering::Relaxed) };
        let new = ((old >> 32).wrapping_add(1) << 32) | next as u64;
        match head.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(index),
            Err(now) => old = now,
        }
    }
}

/// A call for which there is no room begins.
pub unsafe fn cut_off(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        (*hot).overflow += 1;
        state::count_hole(hole::TOO_DEEP);
        lose(hot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::empty_thread;
    use std::boxed::Box;

    /// A hot page in the middle of a chunk that is never written to.
    fn thread() -> Box<Hot> {
        let mut hot = empty_thread();
        (hot.cur, hot.end, hot.real_end, hot.hi) = (0x1000, 0x2000, 0x2000, 5);
        hot
    }

    #[test]
    fn a_muted_thread_writes_to_its_hot_page_and_goes_on_where_it_was() {
        let mut hot = thread();
        let page = &raw const *hot as u64;
        // SAFETY: the block is this test's.
        unsafe {
            mute(&mut *hot);
            assert_eq!((hot.muted, hot.cur), (1, page + TRASH as u64));
            assert!(hot.end > hot.cur && hot.end + END_BYTES <= page + TRASH_END as u64);
            hot.cur += 64;
            // Muted twice is muted once.
            mute(&mut *hot);
            unmute(&mut *hot);
            assert_eq!(
                (hot.cur, hot.end, hot.real_end, hot.hi),
                (0x1000, 0x2000, 0x2000, 5)
            );
            hot.cur = 0x1010;
            unmute(&mut *hot);
            assert_eq!(hot.cur, 0x1010);
        }
    }

    #[test]
    fn while_a_walker_is_at_work_every_event_takes_the_slow_path() {
        let mut hot = thread();
        hot.rearm_above = 0x7000;
        // SAFETY: the block is this test's.
        unsafe {
            mute(&mut *hot);
            assert_eq!(hot.end, 0);
            unmute(&mut *hot);
            assert_eq!((hot.end, hot.real_end), (0, 0x2000));
        }
    }

    #[test]
    fn an_event_that_a_muted_thread_loses_is_not_counted() {
        let mut hot = thread();
        // SAFETY: the block is this test's.
        unsafe {
            mute(&mut *hot);
            lose(&mut *hot);
        }
        assert_eq!(hot.lost, 0);
        assert_ne!(hot.end, 0);
    }

    #[test]
    fn a_word_is_filled_in_at_a_place_that_is_not_aligned_to_it() {
        let mut words = [0u32; 4];
        // SAFETY: words of this test's.
        unsafe { fill(&raw mut words[1] as u64, 0x1111_2222_3333_4444) };
        assert_eq!(words, [0, 0x3333_4444, 0x1111_2222, 0]);
    }

    #[test]
    fn a_thread_without_a_chunk_hands_none_over() {
        let mut hot = thread();
        hot.chunk = NONE;
        // SAFETY: the block is this test's; no arena is touched.
        unsafe { hand_over(&mut *hot) };
        assert_eq!((hot.cur, hot.end), (0x1000, 0x2000));
    }
}
