//! Records into chunks: taking a free chunk, handing over a full one, waiting or dropping when none
//! is free.
//!
//! Given a thread's block and the words of a record. Signals are blocked here, so the reservation
//! needs no care; what a failed fast path reserved beyond the limit stays zero, and zeros are no
//! record. Must not know what a record means.

use crate::memory::host::STOPPED_HOST_TICKS;
use crate::memory::state::END_BYTES;
use crate::memory::thread::{Hot, TRASH, TRASH_END};
use crate::memory::{counters, host, loss, sandbox, state, sys};
use crate::plans::modules;
use crate::record::{deep, silence};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sptrace_wire::control::{hole, *};
use sptrace_wire::{OWN_AVMA, record, values};

/// What one event may need: LOST, ANCHOR, WIDE_CALLEE, PLACED and an entry with its callee.
const LONGEST_BYTES: u64 = 3 * 16 + 8 + 12;
/// Slices of waiting for a free chunk.
const WAIT_SLICE_MS: u64 = 10;

/// The table entry of chunk `index`, of which there are [`CHUNKS_MAX`].
fn entry(index: u32) -> *mut Chunk {
    let first = (state::process().arena() + CHUNKS_OFFSET) as *mut Chunk;
    first.wrapping_add(index as usize)
}

/// The link of chunk `index`.
fn next_of(index: u32) -> Option<&'static AtomicU32> {
    // SAFETY: the arena holds so many entries.
    ((index as usize) < CHUNKS_MAX).then(|| unsafe { &(*entry(index)).next })
}

/// An entry or exit. An entry through a pointer has its callee (which may be null), whose full
/// address goes before it where the low half is not enough.
pub fn put_event(hot: &Hot, id: u32, callee: Option<u64>) {
    let payload = callee.map_or(Payload::Nothing, Payload::Callee);
    write(hot, id, payload)
}

/// The entry of a call from the stack pointer `rsp`, which is said where some calls are recorded in
/// order.
pub fn put_entry(hot: &Hot, id: u32, callee: Option<u64>, rsp: u64) {
    if counters::says_places() {
        write(
            hot,
            id,
            Payload::Placed(rsp - record::PLACE_BELOW_BYTES, callee),
        );
    } else {
        put_event(hot, id, callee);
    }
}

/// The same is said of a frame that is told next, not by a slot.
pub fn put_place(hot: &Hot, rsp: u64) {
    if counters::says_places() {
        put(hot, record::AT_STACK, rsp - record::PLACE_BELOW_BYTES);
    }
}

/// A control record.
pub fn put(hot: &Hot, control_id: u32, payload: u64) {
    write(hot, control_id, Payload::Control(payload))
}

/// A call that is recorded in order; `stack` is what stands in the place of the stamp.
pub fn put_in_order(hot: &Hot, id: u32, callee: Option<u64>, stack: u64) {
    let Some(now) = begin(hot, id, 0) else {
        return;
    };
    let word = record::word(id, stack as u32);
    if let Some(callee) = callee
        && !modules::is_narrow(callee)
    {
        store(hot, record::word(record::WIDE_CALLEE, now as u32));
        store(hot, callee);
    }
    store(hot, word);
    if let Some(callee) = callee {
        store_half(hot, callee as u32);
    }
}

/// The halves of what was recorded last, so many of them, and 0 for those before the first one of
/// the chunk. `None`: nothing is in the chunk.
pub fn last<const N: usize>(hot: &Hot) -> Option<[u32; N]> {
    let first = state::process().arena() + chunk_offset(hot.chunk.get());
    let is_there = hot.muted.get() == 0 && hot.chunk.get() != NONE;
    let is_there = is_there && (first + 4..=first + CHUNK_BYTES).contains(&hot.cur.get());
    // SAFETY: in the chunk that is this thread's; all records have a multiple of 4 bytes.
    is_there.then(|| unsafe { last_of(first, hot.cur.get()) })
}

/// The same of what lies from `first` up to `end`.
///
/// # Safety
/// All of that can be read, and consists of halves.
unsafe fn last_of<const N: usize>(first: u64, end: u64) -> [u32; N] {
    core::array::from_fn(|i| match end - 4 * (N - i) as u64 {
        before if before < first => 0,
        // SAFETY: the caller says so.
        at => unsafe { (at as *const u32).read() },
    })
}

enum Payload {
    Nothing,
    Control(u64),
    Callee(u64),
    Placed(u64, Option<u64>),
}

fn write(hot: &Hot, id: u32, payload: Payload) {
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
        Payload::Callee(callee) => store_entry(hot, word, callee),
        Payload::Placed(place, callee) => {
            let placed = record::word(record::PLACED, place as u32);
            if let Some(callee) = callee {
                store_wide(hot, word, callee);
                store(hot, placed);
                store(hot, word);
                store_half(hot, callee as u32);
            } else {
                store(hot, placed);
                store(hot, word);
            }
        }
    }
}

/// The entry of a call through a pointer, whose record begins with `word`.
fn store_entry(hot: &Hot, word: u64, callee: u64) {
    store_wide(hot, word, callee);
    store(hot, word);
    store_half(hot, callee as u32);
}

/// The callee's full address, if that must be said before such a record.
fn store_wide(hot: &Hot, word: u64, callee: u64) {
    if !modules::is_narrow(callee) {
        store(hot, record::word(record::WIDE_CALLEE, word as u32));
        store(hot, callee);
    }
}

/// Room for an event, with `bytes` more than the longest of the others, and what must be told
/// before it; gives the time. `None`: it is lost.
fn begin(hot: &Hot, id: u32, bytes: u64) -> Option<u64> {
    if !make_room(hot, LONGEST_BYTES + bytes) {
        // A wait is no event of the program.
        if id != record::BLOCKED {
            loss::count(hot);
        }
        return None;
    }
    if hot.lost.get() > 0 && hot.muted.get() == 0 {
        let lost = hot.lost.get();
        hot.lost.set(0);
        let now = sys::tsc();
        store(hot, record::word(record::LOST, now as u32));
        store(hot, lost);
        if hot.rearm_above.get() == 0 {
            hot.end.set(hot.real_end.get());
        }
    }
    let now = sys::tsc();
    if (now >> 32) != hot.hi.get() {
        hot.hi.set(now >> 32);
        store(hot, record::word(record::ANCHOR, now as u32));
        store(hot, now);
    }
    Some(now)
}

/// A record with values: `low` is the low half of its payload; then `head`, then `pieces`, a
/// multiple of 4 bytes. A muted thread makes none.
pub fn put_values(hot: &Hot, id: u32, low: u32, head: &[u64], pieces: &[u8]) {
    put_all_values(hot, id, low, head, [pieces, &[]]);
}

/// The same with pieces from two places.
pub fn put_all_values(hot: &Hot, id: u32, low: u32, head: &[u64], pieces: [&[u8]; 2]) {
    let [first, second] = pieces.map(<[u8]>::len);
    let bytes = size_of_val(head) + first + second + size_of::<u32>();
    if hot.muted.get() != 0 {
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
    for pieces in pieces {
        let to = hot.cur.get() as *mut u8;
        // SAFETY: begin leaves room for them.
        unsafe { core::ptr::copy_nonoverlapping(pieces.as_ptr(), to, pieces.len()) };
        hot.cur.add(pieces.len() as u64);
    }
    store_half(hot, values::END);
}

/// Takes back what was recorded last, from one place in the chunk to another, unless something came
/// after it.
pub fn take_back(hot: &Hot, (from, to): (u64, u64)) {
    if hot.cur.get() == to && from < to && to - from < CHUNK_BYTES {
        // SAFETY: the thread's own chunk, as long as `cur` still stands in it.
        unsafe { core::ptr::write_bytes(from as *mut u8, 0, (to - from) as usize) };
        hot.cur.set(from);
    }
}

/// The last record is of a call of the kernel that may be left out when it has ended.
pub fn may_be_left_out(hot: &Hot) {
    let now = sys::tsc();
    let end = match now >> 32 == hot.hi.get() {
        true => hot.cur.get(),
        false => 0,
    };
    hot.begun.set([end, now & 0xffff_ffff]);
}

/// An event goes unrecorded. The next one comes to the slow path, so that the loss is told before
/// it.
pub fn lose(hot: &Hot) {
    if hot.muted.get() == 0 {
        loss::count(hot);
        hot.end.set(0);
    }
}

/// A part of the chunk that was reserved as the hot path does it, with signals let in: what a
/// handler records comes before or after it.
pub struct Reserved {
    at: u64,
    bytes: u64,
}

impl Reserved {
    /// Reserves `bytes`, a multiple of 4, of which the last [`END_BYTES`] may lie above `limit`,
    /// the end of reservations. `None`: there is no room.
    #[inline]
    pub fn take(hot: &Hot, bytes: u64, limit: impl Fn(&Hot) -> u64) -> Option<Self> {
        let at = hot.cur.add_in_one(bytes);
        (at + bytes <= limit(hot) + END_BYTES).then_some(Self { at, bytes })
    }

    /// The address `offset` bytes from its start, if `bytes` fit behind it.
    #[inline]
    fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        (offset + bytes <= self.bytes).then_some(self.at + offset)
    }

    /// Where `offset` lies.
    pub fn address(&self, offset: u64) -> u64 {
        self.at + offset
    }

    /// Writes half a word at `offset`, a multiple of 4.
    #[inline]
    pub fn fill_half(&self, offset: u64, half: u32) {
        if let Some(at) = self.place(offset, 4) {
            // SAFETY: inside of the reservation.
            unsafe { (at as *mut u32).write_volatile(half) };
        }
    }

    /// Writes one word at `offset`, a multiple of 4.
    #[inline]
    pub fn fill(&self, offset: u64, word: u64) {
        self.fill_half(offset, word as u32);
        self.fill_half(offset + 4, (word >> 32) as u32);
    }

    /// Writes words from `offset` on, a multiple of 4.
    #[inline]
    pub fn fill_words<const N: usize>(&self, offset: u64, words: &[u64; N]) {
        if let Some(at) = self.place(offset, size_of_val(words) as u64) {
            // SAFETY: inside of the reservation.
            unsafe { (at as *mut [u64; N]).write_unaligned(*words) };
        }
    }

    /// Writes the first two words by one instruction: who reads half of them would take what is
    /// behind for something else.
    #[inline]
    pub fn fill_head(&self, first: u64, second: u64) {
        if let Some(at) = self.place(0, 16) {
            // SAFETY: inside of the reservation; this instruction needs no alignment.
            unsafe {
                core::arch::asm!(
                    "movq {low}, {first}", "movq {high}, {second}", "punpcklqdq {low}, {high}",
                    "movups [{at}], {low}", at = in(reg) at, first = in(reg) first,
                    second = in(reg) second, low = out(xmm_reg) _, high = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
            }
        }
    }

    /// Bytes from `offset` on.
    #[inline]
    pub fn bytes(&mut self, offset: u64, bytes: usize) -> &mut [u8] {
        match self.place(offset, bytes as u64) {
            // SAFETY: inside of the reservation, which is this one's alone.
            Some(at) => unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes) },
            None => &mut [],
        }
    }
}

#[inline]
fn store(hot: &Hot, word: u64) {
    store_half(hot, word as u32);
    store_half(hot, (word >> 32) as u32);
}

#[inline]
fn store_half(hot: &Hot, half: u32) {
    // SAFETY: make_room checked the space; all records have a multiple of 4 bytes.
    unsafe { (hot.cur.get() as *mut u32).write_volatile(half) };
    hot.cur.add(4);
}

/// Room for one record with everything that may precede it. False: the record is lost.
fn make_room(hot: &Hot, bytes: u64) -> bool {
    if hot.muted.get() != 0 {
        if hot.cur.get() + bytes > hot.real_end.get() + END_BYTES {
            if host::host_is_gone() {
                silence::fall_silent();
                return false;
            }
            begin_trash(hot);
        }
        return true;
    }
    if hot.chunk.get() != NONE && hot.cur.get() + bytes <= hot.real_end.get() + END_BYTES {
        return true;
    }
    hand_over(hot);
    take(hot)
}

/// Mutes a thread: what it records from here on goes nowhere, while its shadow stack is kept up, so
/// that exits match when recording goes on. The hot path knows nothing of it: the words go to a
/// place that is written over and over. The chunk in use is kept.
pub fn mute(hot: &Hot) {
    if hot.muted.get() == 0 {
        hot.kept
            .set([hot.cur.get(), hot.real_end.get(), hot.hi.get()]);
        hot.muted.set(1);
        begin_trash(hot);
    }
}

/// Recording goes on in the chunk that the thread had. Its next record writes an anchor if the
/// clock's high half has changed since.
pub fn unmute(hot: &Hot) {
    if hot.muted.get() != 0 {
        hot.muted.set(0);
        let [cur, real_end, hi] = hot.kept.get();
        hot.cur.set(cur);
        hot.hi.set(hi);
        set_real_end(hot, real_end);
    }
}

fn begin_trash(hot: &Hot) {
    let page = &raw const *hot as u64;
    hot.cur.set(page + TRASH as u64);
    set_real_end(hot, page + TRASH_END as u64 - END_BYTES);
}

/// Reservations end here; while a walker is at work, every event comes to the slow path.
fn set_real_end(hot: &Hot, real_end: u64) {
    hot.real_end.set(real_end);
    hot.end.set(match hot.rearm_above.get() {
        0 => real_end,
        _ => 0,
    });
}

/// Gives the current chunk, if any, to the host.
pub fn hand_over(hot: &Hot) {
    let index = hot.chunk.get();
    if index == NONE {
        return;
    }
    hot.chunk.set(NONE);
    hot.end.set(0);
    hot.real_end.set(0);
    hot.kept.set([0; 3]);
    stream_of(hot).chunk.store(NONE, Ordering::Release);
    let Some(next) = next_of(index) else { return };
    // SAFETY: until it is among the full ones the chunk is this thread's, and so is its entry.
    unsafe { (*entry(index)).end_tsc = sys::tsc() };
    let head = &state::control().full_chunks;
    let mut old = head.load(Ordering::Relaxed);
    loop {
        next.store(old, Ordering::Relaxed);
        match head.compare_exchange_weak(old, index, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => old = now,
        }
    }
    // Who has put the first one there rings, and the host takes all.
    if old == NONE {
        host::ring();
    }
}

/// The thread's stream.
fn stream_of(hot: &Hot) -> &'static Stream {
    let first = (state::process().arena() + STREAMS_OFFSET) as *const Stream;
    let stream = first.wrapping_add(hot.stream.get() as usize);
    // SAFETY: the index was checked when the stream was taken; what others change are atomics.
    unsafe { &*stream }
}

/// The host may have bidden this thread to look at the clock: its events need not come here any
/// more, and what was recorded before lies before that moment.
#[inline]
pub fn look(hot: &Hot) {
    if counters::is_mixed() && hot.chunk.get() != NONE {
        look_if_bidden(hot, stream_of(hot));
    }
}

fn look_if_bidden(hot: &Hot, stream: &Stream) {
    let is_free = hot.rearm_above.get() == 0 && hot.lost.get() == 0;
    if is_free && hot.end.get() == 0 {
        hot.end.set(hot.real_end.get());
    }
    if stream.looked.load(Ordering::Acquire) == 0 {
        return;
    }
    // Behind that: a moment that is told then is one in which nothing was recorded.
    core::sync::atomic::fence(Ordering::SeqCst);
    let bidden = stream.looked.swap(0, Ordering::AcqRel);
    if bidden > LOOK_BEGUN && hot.muted.get() == 0 {
        let now = sys::tsc();
        let is_plain = bidden >> 32 == now >> 32 && bidden < now;
        put(hot, record::ANCHOR, if is_plain { bidden } else { now });
    }
}

/// Chunks that were mapped at once in this process, or in one that it was forked from: a bit each.
static MAPPED: [AtomicU64; CHUNKS_MAX / 64] = [const { AtomicU64::new(0) }; CHUNKS_MAX / 64];

/// True the first time that a chunk is used: a fault for each of its pages would cost more than all
/// of its words.
fn is_first_use(index: u32) -> bool {
    let bit = 1 << (index % 64);
    let bits = MAPPED.get(index as usize / 64);
    bits.is_some_and(|bits| bits.fetch_or(bit, Ordering::Relaxed) & bit == 0)
}

/// Takes a free chunk, waiting if the user wants that.
fn take(hot: &Hot) -> bool {
    let mut waited_since = 0u64;
    let index = loop {
        if let Some(index) = pop_free() {
            break index;
        }
        if host::host_is_gone() {
            silence::fall_silent();
            return false;
        }
        if state::control().on_full == 1 || host::host_is_detaching() || host::host_is_stopped() {
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
            sys::futex_wait(freed, seen, WAIT_SLICE_MS);
        }
    };
    if host::host_is_gone() {
        silence::fall_silent();
    }
    let now = sys::tsc();
    deep::keep_what_is_used(hot, now);
    let c = entry(index);
    // SAFETY: the chunk that was taken is this thread's, and so is its entry.
    unsafe {
        (*c).stream = hot.stream.get();
        (*c).epoch = hot.epoch.get();
        (*c).sequence = hot.sequence.get();
        (*c).start_tsc = now;
        (*c).end_tsc = 0;
    }
    hot.sequence.add(1);
    hot.chunk.set(index);
    hot.begun.set([0; 2]);
    hot.hi.set(now >> 32);
    let at = state::process().arena() + chunk_offset(index);
    touch(hot, index, at);
    hot.cur.set(at);
    set_real_end(hot, at + CHUNK_BYTES - END_BYTES);
    show(hot, index);
    if waited_since != 0 {
        store(hot, record::word(record::BLOCKED, now as u32));
        store(hot, now.wrapping_sub(waited_since));
    }
    true
}

/// Maps the pages of the chunk that was taken, which lies at `at`, by few faults.
fn touch(hot: &Hot, index: u32, at: u64) {
    // A fault of reading maps all pages of the chunk that the host has made ready, one of writing
    // a single one. A thread that has filled one chunk fills the next.
    let is_ready = index < state::control().chunks_ready.load(Ordering::Relaxed);
    let is_filled = !is_ready && hot.sequence.get() > 1 && !sandbox::is_sandboxed();
    if is_filled && is_first_use(index) {
        sys::populate(at as usize, CHUNK_BYTES as usize);
    }
    // SAFETY: the chunk is this thread's.
    unsafe { (at as *const u64).read_volatile() };
}

/// The stream says which chunk the thread has, and where its reservations end.
fn show(hot: &Hot, index: u32) {
    let stream = stream_of(hot);
    stream.chunk.store(index, Ordering::Release);
    if counters::is_mixed() {
        let page = (&raw const *hot as u64).wrapping_sub(OWN_AVMA) / 4096;
        stream.hot_page.store(page as u32, Ordering::Release);
        // What was bidden while the last one was handed over is done; events came here since.
        stream.looked.store(0, Ordering::Release);
    }
}

fn pop_free() -> Option<u32> {
    let head: &AtomicU64 = &state::control().free_chunks;
    let mut old = head.load(Ordering::Acquire);
    loop {
        let index = old as u32;
        let next = next_of(index)?.load(Ordering::Relaxed);
        let new = ((old >> 32).wrapping_add(1) << 32) | next as u64;
        match head.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(index),
            Err(now) => old = now,
        }
    }
}

/// A call for which there is no room begins.
pub fn cut_off(hot: &Hot) {
    hot.overflow.add(1);
    state::count_hole(hole::TOO_DEEP);
    lose(hot);
    if counters::keeps_returns() {
        // Nobody finds a frame where it returns to.
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
        let hot = empty_thread();
        hot.cur.set(0x1000);
        hot.end.set(0x2000);
        hot.real_end.set(0x2000);
        hot.hi.set(5);
        hot
    }

    #[test]
    fn a_muted_thread_writes_to_its_hot_page_and_goes_on_where_it_was() {
        let hot = thread();
        let page = &raw const *hot as u64;
        mute(&hot);
        assert_eq!((hot.muted.get(), hot.cur.get()), (1, page + TRASH as u64));
        assert!(
            hot.end.get() > hot.cur.get() && hot.end.get() + END_BYTES <= page + TRASH_END as u64
        );
        hot.cur.add(64);
        // Muted twice is muted once.
        mute(&hot);
        unmute(&hot);
        assert_eq!(
            (
                hot.cur.get(),
                hot.end.get(),
                hot.real_end.get(),
                hot.hi.get()
            ),
            (0x1000, 0x2000, 0x2000, 5)
        );
        hot.cur.set(0x1010);
        unmute(&hot);
        assert_eq!(hot.cur.get(), 0x1010);
    }

    #[test]
    fn while_a_walker_is_at_work_every_event_takes_the_slow_path() {
        let hot = thread();
        hot.rearm_above.set(0x7000);
        mute(&hot);
        assert_eq!(hot.end.get(), 0);
        unmute(&hot);
        assert_eq!((hot.end.get(), hot.real_end.get()), (0, 0x2000));
    }

    #[test]
    fn an_event_that_a_muted_thread_loses_is_not_counted() {
        let hot = thread();
        mute(&hot);
        lose(&hot);
        assert_eq!(hot.lost.get(), 0);
        assert_ne!(hot.end.get(), 0);
    }

    /// The same in a chunk of ten words that lies elsewhere.
    fn writing(words: &mut [u32; 10]) -> Box<Hot> {
        let hot = thread();
        let first = words.as_mut_ptr() as u64;
        hot.cur.set(first);
        hot.real_end.set(first + 40 - END_BYTES);
        hot
    }

    #[test]
    fn a_reservation_is_filled_at_places_that_are_not_aligned_and_never_outside() {
        let mut words = [0u32; 10];
        let hot = writing(&mut words);
        let mut to = Reserved::take(&hot, 24, |hot| hot.real_end.get());
        if let Some(to) = &mut to {
            to.fill_head(1 | 2 << 32, 3 | 4 << 32);
            to.fill(12, 5 | 6 << 32);
            to.fill_half(20, 9);
            to.fill_half(24, 9);
            assert!(to.bytes(0, 4).len() == 4 && to.bytes(22, 4).is_empty());
        }
        let expected = [1, 2, 3, 5, 6, 9];
        if let Some(short) = Reserved::take(&hot, 8, |hot| hot.real_end.get()) {
            short.fill_head(1, 1);
        }
        assert!(to.is_some());
        assert_eq!(words, [&expected[..], &[0; 4]].concat()[..]);
    }

    #[test]
    fn what_does_not_fit_into_the_chunk_is_not_reserved() {
        let mut words = [0u32; 10];
        let hot = writing(&mut words);
        let first = hot.cur.get();
        let take = |bytes| Reserved::take(&hot, bytes, |hot| hot.real_end.get()).is_some();
        assert!(take(32) && !take(12));
        // As the hot path leaves it: the next record takes the slow path.
        assert_eq!(hot.cur.get(), first + 44);
    }

    #[test]
    fn a_thread_without_a_chunk_hands_none_over() {
        let hot = thread();
        hot.chunk.set(NONE);
        hand_over(&hot);
        assert_eq!((hot.cur.get(), hot.end.get()), (0x1000, 0x2000));
    }

    /// A call of a hooked function was told twice if its record was the first of a chunk.
    #[test]
    fn what_was_recorded_last_may_be_the_first_of_its_chunk() {
        let chunk = [1u32, 2, 3, 4, 5, 6];
        let first = chunk.as_ptr() as u64;
        // SAFETY: inside of the array.
        let last = |halves: u64| unsafe { last_of(first, first + 4 * halves) };
        assert_eq!(last(6), [3, 4, 5, 6]);
        assert_eq!(last(4), [1, 2, 3, 4]);
        assert_eq!(last(2), [0, 0, 1, 2]);
    }
}
