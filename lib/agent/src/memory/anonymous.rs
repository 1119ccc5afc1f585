//! Mappings of the program's own that hold no file: memory that can be read as long as no call of
//! the kernel has done anything to it.
//!
//! Given the calls that make such mappings, and all that may change them; says whether a page lies
//! in one. No other process can take pages away from them, as it could by shortening a file. Of a
//! mapping that a call changes a part of, all is forgotten. A mapping is one word, so that nobody
//! sees the half of one while another thread writes it. Must not know who reads, and whether all
//! such calls are seen.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

/// So many are known at a time; then new ones take the place of old ones.
const MAPPINGS: usize = 32;
/// Megabytes of which it is kept where they are, by the lowest bits of their numbers.
const HINTS: usize = 64;
const PAGE_BITS: u32 = 12;
/// The bits of a word that have the number of pages; above them is the first page's number.
const COUNT_BITS: u32 = 28;

// asm-generic/mman.h and mman-common.h, asm/mman.h.
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const MAP_PRIVATE: u64 = 2;
const MAP_32BIT: u64 = 0x40;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NONBLOCK: u64 = 0x10000;
const MAP_STACK: u64 = 0x20000;

/// What is known of a process's mappings.
pub struct Mappings {
    words: [AtomicU64; MAPPINGS],
    /// So many of them were ever in use.
    used: AtomicUsize,
    /// Which is taken next.
    next: AtomicUsize,
    /// The one in which a page of the same megabyte was found last, by that. No word for all: two
    /// threads that ask for pages of different mappings would write it at each call.
    last: [AtomicU8; HINTS],
    /// Changes that have begun.
    changes: AtomicU64,
}

impl Mappings {
    /// None.
    pub const fn none() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; MAPPINGS],
            used: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            last: [const { AtomicU8::new(0) }; HINTS],
            changes: AtomicU64::new(0),
        }
    }

    /// How many changes have begun: to be asked before a call that makes a mapping.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// True if the page of `at` lies in one of them.
    #[inline]
    pub fn holds(&self, at: u64) -> bool {
        let last = self.last_at(at).load(Ordering::Relaxed);
        self.is_in(last.into(), at) || self.find(at)
    }

    #[inline]
    fn last_at(&self, at: u64) -> &AtomicU8 {
        &self.last[(at >> 20) as usize % HINTS]
    }

    fn find(&self, at: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let found = (0..used).find(|index| self.is_in(*index, at));
        if let Some(index) = found {
            self.last_at(at).store(index as u8, Ordering::Relaxed);
        }
        found.is_some()
    }

    #[inline]
    fn is_in(&self, index: usize, at: u64) -> bool {
        let word = self.words.get(index).map(|w| w.load(Ordering::Acquire));
        let [first, count] = parts(word.unwrap_or(0));
        (at >> PAGE_BITS).wrapping_sub(first) < count
    }

    /// Memory was mapped here by a call with these arguments of mmap(2). `changes`: as they were
    /// before the call; what was changed since may have been this.
    pub fn found(&self, start: u64, args: &[u64; 6], changes: u64) {
        let count = args[1].div_ceil(1 << PAGE_BITS);
        let is_fit = count < 1 << COUNT_BITS && start >> PAGE_BITS < 1 << (64 - COUNT_BITS);
        if !is_fit || !is_anonymous(args) {
            return;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed) % MAPPINGS;
        let word = start >> PAGE_BITS << COUNT_BITS | count;
        self.words[index].store(word, Ordering::Relaxed);
        self.used.fetch_max(index + 1, Ordering::Relaxed);
        // Either this sees that a change has begun, or who has begun it sees the word.
        fence(Ordering::SeqCst);
        if self.changes() != changes {
            self.clear(index, word);
        }
    }

    /// Something is about to be done to memory from `start` up to `end`.
    pub fn forget(&self, start: u64, end: u64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.displace(start, end);
    }

    /// Something was mapped there: what lay there before is gone, and was so before.
    pub fn displace(&self, start: u64, end: u64) {
        let [from, to] = [start >> PAGE_BITS, end.div_ceil(1 << PAGE_BITS)];
        for (index, word) in self.words.iter().enumerate() {
            let word = word.load(Ordering::SeqCst);
            let [first, count] = parts(word);
            if first < to && from < first + count {
                self.clear(index, word);
            }
        }
    }

    /// Unless another has taken the place.
    fn clear(&self, index: usize, word: u64) {
        let (new, old) = (Ordering::SeqCst, Ordering::Relaxed);
        // Whoever has put another there has seen to that one.
        let _ = self.words[index].compare_exchange(word, 0, new, old);
    }
}

fn parts(word: u64) -> [u64; 2] {
    [word >> COUNT_BITS, word & ((1 << COUNT_BITS) - 1)]
}

/// True if a call with these arguments of mmap(2) makes memory that can be read from then on, and
/// is nobody else's. Huge pages may be missing when they are needed, and what grows is not whole.
fn is_anonymous([_, _, protection, flags, ..]: &[u64; 6]) -> bool {
    const ALLOWED: u64 = MAP_32BIT | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK;
    let is_private = flags & !ALLOWED == MAP_PRIVATE | MAP_ANONYMOUS;
    is_private && protection & PROT_READ != 0 && protection & !(PROT_READ | PROT_WRITE) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7f00_0000_0000;
    const ANONYMOUS: [u64; 6] = [0, 0x3000, 3, 0x22, u64::MAX, 0];

    fn made(args: &[u64; 6]) -> Mappings {
        let mappings = Mappings::none();
        mappings.found(START, args, mappings.changes());
        mappings
    }

    #[test]
    fn what_was_mapped_is_there_up_to_its_end() {
        let mappings = made(&ANONYMOUS);
        let holds = |at| mappings.holds(at);
        assert!(holds(START) && holds(START + 0x2fff));
        assert!(!holds(START - 1) && !holds(START + 0x3000) && !holds(0));
        // Its last page is whole.
        let mappings = made(&[0, 1, 1, 0x4022, u64::MAX, 0]);
        assert!(mappings.holds(START + 0xfff) && !mappings.holds(START + 0x1000));
    }

    #[test]
    fn a_file_and_what_cannot_be_read_for_certain_is_nothing() {
        // Not readable, with code, shared, of a file, at an address of its own, growing, huge.
        let kinds = [
            (0, 0x22),
            (2, 0x22),
            (7, 0x22),
            (3, 0x21),
            (3, 2),
            (3, 0x32),
        ];
        for (protection, flags) in kinds.into_iter().chain([(3, 0x122), (3, 0x40022)]) {
            let mappings = made(&[0, 0x3000, protection, flags, 3, 0]);
            assert!(!mappings.holds(START), "{protection} {flags:#x}");
        }
    }

    #[test]
    fn what_is_changed_in_part_is_forgotten() {
        for (start, end, is_kept) in [
            (START - 0x1000, START, true),
            (START - 0x1000, START + 1, false),
            (START + 0x1000, START + 0x2000, false),
            (START + 0x2fff, START + 0x9000, false),
            (START + 0x3000, START + 0x9000, true),
            (0, u64::MAX, false),
        ] {
            let mappings = made(&ANONYMOUS);
            mappings.forget(start, end);
            assert_eq!(mappings.holds(START + 0x1800), is_kept, "{start:#x}");
        }
    }

    #[test]
    fn what_may_have_been_changed_before_it_was_known_is_nothing() {
        let mappings = Mappings::none();
        let before = mappings.changes();
        mappings.forget(START, START + 0x1000);
        mappings.found(START, &ANONYMOUS, before);
        assert!(!mappings.holds(START));
    }

    #[test]
    fn new_ones_take_the_place_of_old_ones() {
        let mappings = Mappings::none();
        let start = |i: u64| START + i * 0x10_0000;
        for i in 0..=MAPPINGS as u64 {
            mappings.found(start(i), &ANONYMOUS, mappings.changes());
        }
        assert!(!mappings.holds(start(0)));
        assert!((1..=MAPPINGS as u64).all(|i| mappings.holds(start(i))));
    }
}
