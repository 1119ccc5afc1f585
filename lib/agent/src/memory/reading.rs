//! Threads that read the program's memory where it lies, and calls that take memory away.
//!
//! Where there are several threads, one that reads says so before, and reads only if no call is
//! under way that might take what it reads, or what is known to be there although one is: such a
//! call says which memory it is about, then waits before it is made until nobody reads any more
//! (Dekker's way: each side writes its own word, and looks at the other's behind a full fence).
//! Reading takes a fraction of a microsecond; the wait has a bound all the same, since a reader may
//! be stopped, or gone through a handler that jumped: then its word is taken from it, and it reads
//! no more if it finds that. Also how many such calls have begun: what could be read before can be
//! read still where none has. Calls that are not seen, and files that are shortened, are not waited
//! for, as elsewhere. Must not know what is read.

use crate::memory::state::{SHARED, SHARING_NONE};
use crate::memory::thread::Hot;
use crate::memory::{certain, constants, live, state, sys};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// Turns of waiting that are short, and slices of a millisecond after them.
const TURNS: u32 = 1000;
const SLICES: u32 = 100;
const PAGE_BYTES: u64 = 4096;

/// Calls that may take memory away, and are under way.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// How many have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Nobody changes it: a place to wait at.
static NOBODY_WAKES: AtomicU32 = AtomicU32::new(0);

/// A thread reads while this lives.
pub struct Reader<'a> {
    hot: &'a Hot,
    door: u64,
    /// No call that may take memory away is under way: what can be read now can be read as long as
    /// this lives. Else that is so of what is certainly there ([`certain::holds`]), asked from here
    /// on.
    pub is_calm: bool,
}

impl Reader<'_> {
    /// False: somebody has waited too long for it.
    pub fn may_read(&self) -> bool {
        self.hot.reading.get() == self.door
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.hot.reading.set(0);
    }
}

/// The thread of `hot`, whose event came to the door at `door`, reads from here on. `None`: memory
/// may be taken away unseen, or a handler has interrupted this thread while it was reading.
pub fn begin(hot: &Hot, door: u64) -> Option<Reader<'_>> {
    let before = hot.reading.get();
    // A door at the same place is that of an event that went away.
    let is_nested = before != 0 && before != door;
    if is_nested || !certain::is_watched() {
        return None;
    }
    hot.reading.set(door);
    fence(Ordering::SeqCst);
    let is_calm = UNDER_WAY.load(Ordering::Acquire) == 0;
    Some(Reader { hot, door, is_calm })
}

/// Copies bytes of one page, with signals blocked; gives how many. Where they can be read in place
/// the kernel does not copy them: that is eight times as dear, and more while others map memory.
pub fn copy(hot: &Hot, at: u64, to: &mut [u8]) -> usize {
    let here = &raw const at as u64;
    let is_alone = state::process().sharing.load(Ordering::Relaxed) == SHARING_NONE;
    // The kernel needs no reader's word.
    let reader = if is_alone { None } else { begin(hot, here) };
    let is_calm = is_alone || reader.as_ref().is_some_and(|reader| reader.is_calm);
    let is_there = (is_alone || reader.is_some())
        && (certain::holds(at, here) || is_calm && is_readable(at) == Some(true));
    if is_there && reader.as_ref().is_none_or(Reader::may_read) {
        // SAFETY: the page can be read, and stays while this reads.
        unsafe { live::copy_from(at, to) };
        return to.len();
    }
    sys::read_into(at, to)
}

/// The same of a word. `None`: it cannot be read.
pub fn word(hot: &Hot, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let in_page = at % PAGE_BYTES <= PAGE_BYTES - size_of_val(&bytes) as u64;
    let copied = match in_page {
        true => copy(hot, at, &mut bytes),
        false => sys::read_into(at, &mut bytes),
    };
    (copied == size_of_val(&bytes)).then(|| u64::from_le_bytes(bytes))
}

/// True if the page of `at` can be read. `None`: the kernel does not say.
pub fn is_readable(at: u64) -> Option<bool> {
    if certain::is_watched() && constants::holds(at) {
        return Some(true);
    }
    let changes = constants::changes();
    let is_readable = sys::is_readable(at)?;
    if is_readable && certain::is_watched() {
        constants::found(at, changes);
    }
    Some(is_readable)
}

/// Numbers the moments between which nothing is taken away: while it is the same, what can be read
/// can be read still. 0: something may be taken away now.
pub fn moment() -> u64 {
    let begun = BEGUN.load(Ordering::Acquire);
    match UNDER_WAY.load(Ordering::Acquire) {
        0 => begun + 1,
        _ => 0,
    }
}

/// True if it is this moment still.
pub fn is_moment(moment: u64) -> bool {
    moment != 0 && moment == self::moment()
}

/// The thread is about to make this call from `rsp`, with signals blocked. If it may take memory
/// away, nobody reads there from here on, until it is [`over`].
pub fn before(hot: &Hot, rsp: u64, number: u32, args: &[u64; 6]) {
    let is_shared = state::process().sharing.load(Ordering::Relaxed) == SHARED;
    if !is_shared || !certain::is_watched() || !certain::takes_away(number, args) {
        return certain::before(hot, number, args);
    }
    // What a handler does in the middle of one is over before that is.
    if hot.takes.get() == 0 {
        hot.takes.set(rsp);
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    }
    BEGUN.fetch_add(1, Ordering::Relaxed);
    // Whoever finds it certain after this was seen below, or finds it no more.
    certain::before(hot, number, args);
    fence(Ordering::SeqCst);
    let others = state::process().threads();
    for other in others.filter(|other| !core::ptr::eq(*other, hot)) {
        wait_for(other);
    }
}

/// The call that the thread has made from `rsp` is over: not if a handler makes another one, in the
/// middle of it.
pub fn over(hot: &Hot, rsp: u64) {
    if hot.takes.get() == rsp {
        ended(hot);
    }
}

/// The thread makes no call.
pub fn ended(hot: &Hot) {
    if hot.takes.get() != 0 {
        hot.takes.set(0);
        UNDER_WAY.fetch_sub(1, Ordering::Release);
    }
}

/// A forked child has one thread, which makes no call.
pub fn begin_process() {
    UNDER_WAY.store(0, Ordering::Relaxed);
    for thread in state::process().threads() {
        thread.takes.set(0);
        thread.reading.set(0);
    }
}

fn wait_for(other: &Hot) {
    let door = other.reading.get();
    for turn in 0..TURNS + SLICES {
        if door == 0 || other.tid.get() == 0 || other.reading.get() != door {
            return;
        }
        match turn < TURNS {
            true => core::hint::spin_loop(),
            false => sys::futex_wait(&NOBODY_WAKES, 0, 1),
        }
    }
    other.reading.replace_of_other(door, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::{empty_thread, page_before_nothing};
    use std::boxed::Box;

    const MUNMAP: u32 = 11;
    const MPROTECT: u32 = 10;
    const READ_ONLY: u64 = 1;

    /// The words are the process's: one test looks at all of it in turn.
    #[test]
    fn nobody_reads_while_memory_may_be_taken_away() {
        let [hot, other] = [0; 2].map(|_| &*Box::leak(empty_thread()));
        state::process().sharing.store(SHARED, Ordering::Relaxed);
        let door = 0x7fff_0000;
        // Calls that change what is mapped may go unseen.
        certain::watch(false);
        assert!(begin(hot, door).is_none());
        certain::watch(true);
        let reader = begin(hot, door);
        assert_eq!((reader.is_some(), hot.reading.get()), (true, door));
        // A handler leaves the reader's word alone, on whichever stack it is.
        assert!(begin(hot, door - 0x1000).is_none() && begin(hot, door + 0x1000).is_none());
        assert_eq!(hot.reading.get(), door);
        assert!(reader.is_some_and(|reader| reader.may_read()));
        assert_eq!(hot.reading.get(), 0);
        // One that went away has left its word, until its place is used, or somebody waits.
        hot.reading.set(door);
        assert!(begin(hot, door).is_some());
        assert_eq!(hot.reading.get(), 0);
        let reader = begin(hot, door);
        hot.tid.set(1);
        wait_for(hot);
        assert!(reader.is_some_and(|reader| !reader.may_read()));

        let first = moment();
        assert!(is_moment(first) && !is_moment(0));
        // Pages that stay readable are not taken away.
        before(other, door, MPROTECT, &[0x1000, 0x1000, READ_ONLY, 0, 0, 0]);
        assert!(is_moment(first));
        before(other, door, MUNMAP, &[0x1000, 0x1000, 0, 0, 0, 0]);
        assert_eq!(moment(), 0);
        let is_calm = || begin(hot, door).map(|reader| reader.is_calm);
        assert_eq!(is_calm(), Some(false));
        // What a handler does meanwhile does not end it.
        before(other, door - 0x100, MUNMAP, &[0x1000, 0x1000, 0, 0, 0, 0]);
        over(other, door - 0x100);
        assert_eq!(is_calm(), Some(false));
        over(other, door);
        assert_eq!(is_calm(), Some(true));
        assert!(!is_moment(first) && moment() != 0);
        over(other, door);
        assert!(moment() != 0);

        // Bytes are copied in place, and by the kernel where another event of the thread reads.
        let end = page_before_nothing(b"12345678");
        let text = |hot: &Hot| word(hot, end - 8).map(u64::to_le_bytes);
        let nothing = |hot: &Hot| (word(hot, end), word(hot, end - 4));
        for reading in [0, door] {
            hot.reading.set(reading);
            assert_eq!(
                (text(hot), nothing(hot)),
                (Some(*b"12345678"), (None, None))
            );
            assert_eq!(hot.reading.get(), reading);
        }
        certain::watch(false);
    }
}
