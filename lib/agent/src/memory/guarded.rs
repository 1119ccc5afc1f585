//! Pages of a stack that the program may not read, or not write, for a while.
//!
//! Given what mprotect(2) is about to do. Tells those who would read or write words of a stack
//! directly where they must not: a walker of the program's meets the same pages, and ends there or
//! asks before. Must not know what lies in them, and who walks.

use core::sync::atomic::{AtomicU64, Ordering};

/// So many ranges are told apart.
const RANGES: usize = 4;
const READ_WRITE: u64 = 3;
const PAGE: u64 = 4096;
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Start and end; both zero: none.
static GUARDED: [[AtomicU64; 2]; RANGES] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; RANGES];

/// True if a byte of `[start, end)` must not be touched.
#[inline]
pub fn holds_any(start: u64, end: u64) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && find(start, end).is_some()
}

/// True if the word at `at` must not be touched.
#[inline]
pub fn holds(at: u64) -> bool {
    holds_any(at, at.saturating_add(8))
}

#[inline(never)]
fn find(start: u64, end: u64) -> Option<usize> {
    GUARDED.iter().position(|range| {
        let [low, high] = load(range);
        low < end && start < high
    })
}

fn load(range: &[AtomicU64; 2]) -> [u64; 2] {
    range.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// A smaller range is stored from the end that leaves no false one in between.
fn store(range: &[AtomicU64; 2], [start, end]: [u64; 2]) {
    let [low, high] = range;
    low.store(u64::MAX, Ordering::Relaxed);
    high.store(end, Ordering::Relaxed);
    low.store(start, Ordering::Relaxed);
}

/// mprotect(2) is about to run; `stack`: where words of a stack may be touched. Of other memory
/// nothing is noted.
pub fn protect(start: u64, bytes: u64, protection: u64, stack: core::ops::Range<u64>) {
    let (start, end) = (start & !(PAGE - 1), start.saturating_add(bytes));
    let end = end.saturating_add(PAGE - 1) & !(PAGE - 1);
    let is_taken = protection & READ_WRITE != READ_WRITE;
    if is_taken && start < stack.end && stack.start < end {
        give_up(start, end);
        guard(start, end);
    } else if holds_any(start, end) {
        give_up(start, end);
    }
}

fn guard(start: u64, end: u64) {
    let none = GUARDED.iter().find(|range| load(range) == [0, 0]);
    match (none, GUARDED.first()) {
        (Some(range), _) => store(range, [start, end]),
        (None, Some(range)) => {
            let [low, high] = load(range);
            store(range, [low.min(start), high.max(end)]);
        }
        (None, None) => {}
    }
    COUNT.store(1, Ordering::Relaxed);
}

fn give_up(start: u64, end: u64) {
    for range in &GUARDED {
        let [low, high] = load(range);
        if start >= high || low >= end {
            continue;
        }
        let left = match (low < start, end < high) {
            (false, false) => [0, 0],
            (true, false) => [low, start],
            (false, true) => [end, high],
            (true, true) => {
                guard(end, high);
                [low, start]
            }
        };
        store(range, left);
    }
    let is_any = GUARDED.iter().any(|range| load(range) != [0, 0]);
    COUNT.store(u64::from(is_any), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges are the process's: one test looks at all of it in turn.
    #[test]
    fn a_page_that_may_not_be_written_is_guarded_until_it_may() {
        let stack = 0x10_0000..0x20_0000;
        assert!(!holds(0x11_0000));
        // What is no stack is not noted.
        protect(0x50_0000, 0x1000, 0, stack.clone());
        assert!(!holds(0x50_0000));
        // Whole pages, and words that reach into them.
        protect(0x11_0010, 1, 1, stack.clone());
        assert!(holds(0x11_0000) && holds(0x11_0ff8) && holds(0x10_fff9));
        assert!(!holds(0x11_1000) && !holds(0x10_fff8));
        protect(0x11_0000, 0x1000, READ_WRITE, stack.clone());
        assert!(!holds(0x11_0000));
        // A hole in the middle leaves both sides.
        protect(0x12_0000, 0x3000, 0, stack.clone());
        protect(0x12_1000, 0x1000, READ_WRITE, stack.clone());
        assert!(holds(0x12_0000) && !holds(0x12_1000) && holds(0x12_2000));
        protect(0x12_0000, 0x3000, READ_WRITE, stack.clone());
        assert!(!holds_any(0, u64::MAX));
        // More ranges than are told apart: too much is guarded, never too little.
        for k in 0..=RANGES as u64 {
            protect(0x13_0000 + k * 0x2000, 0x1000, 0, stack.clone());
        }
        assert!((0..=RANGES as u64).all(|k| holds(0x13_0000 + k * 0x2000)));
        protect(0x13_0000, 0x2_0000, READ_WRITE, stack);
        assert!(!holds_any(0, u64::MAX));
    }
}
