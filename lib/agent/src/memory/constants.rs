//! Pages of modules' constants that are known to be there.
//!
//! A call of the kernel is often given a constant of the C library, such as the empty path of
//! fstat(3). Given a page that the kernel has found readable, and calls that change what is mapped;
//! says that it is there still. Of constants alone, and of a module of which no part was changed:
//! who shortens its file has taken its code away, too, and of other mappings of files nobody knows.
//! Must not know who reads, and whether all such calls are seen.

use crate::memory::state;
use crate::memory::table::Module;
use core::sync::atomic::{AtomicU64, Ordering};

/// The bits of a count of changes that a word has beside the page.
const COUNT_BITS: u32 = 28;
const PAGE_BITS: u32 = 12;

/// The last page of even number and of odd number, and when it was found: one word each, so that
/// nobody sees a half of it.
static PAGES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Changes of constants that have begun.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// How many changes of constants have begun.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// True if the page of `at` was found, and nothing has changed since.
#[inline]
pub fn holds(at: u64) -> bool {
    place(at).load(Ordering::Relaxed) == word(at, changes())
}

/// The kernel can read the page of `at`, and could when so many changes were counted.
pub fn found(at: u64, changes: u64) {
    let mut modules = state::process().known_modules().iter();
    let is_unchanged = |m: &Module| !m.gone.get() && !m.doubtful.get() && !m.is_changed.get();
    if modules.any(|m| is_unchanged(m) && overlaps(m, at, at + 1)) {
        place(at).store(word(at, changes), Ordering::Relaxed);
    }
}

/// Something is about to be done to this part of memory.
pub fn forget(start: u64, end: u64) {
    let modules = state::process().known_modules().iter();
    for module in modules.filter(|m| overlaps(m, start, end)) {
        module.is_changed.set(true);
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }
}

/// True if some of the module's constants lie there.
fn overlaps(module: &Module, start: u64, end: u64) -> bool {
    module.plan().is_some_and(|plan| {
        let header = plan.header();
        let [first, behind] = [header.constants_start, header.constants_end]
            .map(|at| module.base.get() + u64::from(at));
        start < behind && first < end
    })
}

#[inline]
fn place(at: u64) -> &'static AtomicU64 {
    let [even, odd] = &PAGES;
    if at >> PAGE_BITS & 1 == 0 { even } else { odd }
}

fn word(at: u64, changes: u64) -> u64 {
    at >> PAGE_BITS << COUNT_BITS | changes & ((1 << COUNT_BITS) - 1)
}
