//! Memory of the program that can certainly be read: the heap of brk(2), the stack on which the
//! process began, and what it has mapped for itself.
//!
//! Given the calls that change what is mapped, before and after they are made, and where the stack
//! began; says whether a page is there, without asking the kernel. The first two are anonymous
//! memory, so that no other process can take their pages by shortening a file, and grow and shrink
//! at one end. What else a call might do to a part of one makes it forgotten for good. Nothing is
//! known unless all such calls are seen. Code that no file has may make calls that are not: where
//! there may be any, mappings are not known. Must not know who reads, and how calls are seen.

use crate::memory::anonymous::Mappings;
use crate::memory::thread::Hot;
use crate::memory::{constants, sandbox};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE_BYTES: u64 = 4096;
/// No more of the stack is looked at: other mappings begin 128 MiB below its top at the nearest
/// (arch/x86/mm/mmap.c, `SIZE_128M`).
pub const STACK_BYTES: u64 = 16 << 20;
/// The lower half of addresses is the program's.
const ADDRESSES: u64 = 1 << 47;

// arch/x86/entry/syscalls/syscall_64.tbl.
const MMAP: u32 = 9;
const MPROTECT: u32 = 10;
const MUNMAP: u32 = 11;
/// The call that moves the end of the heap.
pub const BRK: u32 = 12;
const MREMAP: u32 = 25;
const MADVISE: u32 = 28;
const SHMAT: u32 = 30;
const SHMDT: u32 = 31;
const REMAP_FILE_PAGES: u32 = 216;
const PKEY_MPROTECT: u32 = 329;
const PROCESS_MADVISE: u32 = 440;

/// Calls that change what is mapped.
pub const MAPPING: [u32; 11] = [
    MMAP,
    MPROTECT,
    MUNMAP,
    BRK,
    MREMAP,
    MADVISE,
    SHMAT,
    SHMDT,
    REMAP_FILE_PAGES,
    PKEY_MPROTECT,
    PROCESS_MADVISE,
];

/// What is known of a process.
struct Known {
    /// All calls of [`MAPPING`] are seen.
    is_watched: AtomicBool,
    /// There is code whose calls may be some of those, and are not.
    has_unseen: AtomicBool,
    /// The heap is from here, the first page that certainly was the kernel's to give; 0: not known
    /// yet; all ones: forgotten.
    heap: AtomicU64,
    /// To here; 0: not known.
    heap_end: AtomicU64,
    /// Calls of brk(2) that have begun, and that had ended when the heap's end became known.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The stack is below this; 0: not known.
    stack_top: AtomicU64,
    /// The process was seen from its beginning on, and has no code but that of files.
    has_files_only: AtomicBool,
    mappings: Mappings,
}

static KNOWN: Known = Known::new();

/// The process begins, with nothing but its stack and files mapped; `stack_top`: its stack pointer.
pub fn begin(stack_top: u64) {
    KNOWN.stack_top.store(stack_top, Ordering::Relaxed);
    KNOWN.has_files_only.store(true, Ordering::Relaxed);
}

/// Whether all calls of [`MAPPING`] are seen from here on, by [`before`] and [`after`]. Mappings
/// that were found while not all were may be gone.
pub fn watch(is_watched: bool) {
    let is_watched = is_watched && !KNOWN.has_unseen.load(Ordering::Relaxed);
    let was_watched = KNOWN.is_watched.load(Ordering::Relaxed);
    if is_watched && !was_watched {
        KNOWN.mappings.forget(0, ADDRESSES);
    }
    KNOWN.is_watched.store(is_watched, Ordering::SeqCst);
    // Another thread may have found such code meanwhile.
    if KNOWN.has_unseen.load(Ordering::SeqCst) {
        KNOWN.is_watched.store(false, Ordering::Relaxed);
    }
}

/// An instruction that calls the kernel is left alone; `number`: of its call, if that is known.
pub fn leave_alone(number: Option<u32>) {
    if number.is_none_or(is_mapping) {
        KNOWN.has_unseen.store(true, Ordering::SeqCst);
        watch(false);
    }
}

/// Where [`is_watched`] stands, as one byte.
pub fn watched_at() -> u64 {
    &raw const KNOWN.is_watched as u64
}

/// Where the stack ends on which the process began, if `here` is on it; else 0.
pub fn end_of_first_stack(here: u64) -> u64 {
    match is_first_stack(here) {
        true => KNOWN.stack_top.load(Ordering::Relaxed),
        false => 0,
    }
}

/// True if no call that changes what is mapped goes unseen.
#[inline]
pub fn is_watched() -> bool {
    KNOWN.is_watched.load(Ordering::Relaxed)
}

/// True if the call needs to be told of.
pub fn is_mapping(number: u32) -> bool {
    MAPPING.contains(&number)
}

/// True if the call may make memory that could be read one that cannot.
pub fn takes_away(number: u32, args: &[u64; 6]) -> bool {
    const MAP_FIXED: u64 = 0x10;
    const PROT_READ: u64 = 1;
    match number {
        MMAP => args[3] & MAP_FIXED != 0,
        MPROTECT | PKEY_MPROTECT => number != MPROTECT || args[2] & PROT_READ == 0,
        MADVISE => !is_harmless(args[2]),
        _ => is_mapping(number),
    }
}

/// A call is about to be made. Those of brk(2) are told of with signals blocked.
pub fn before(hot: &Hot, number: u32, args: &[u64; 6]) {
    if number == MMAP {
        hot.changes.set(KNOWN.mappings.changes());
    }
    KNOWN.before(number, args);
}

/// It has been made, by the same thread; brk(2) with signals blocked. `is_real`: the result is the
/// kernel's.
pub fn after(hot: &Hot, number: u32, args: &[u64; 6], result: i64, is_real: bool) {
    let is_real = is_real && !sandbox::is_sandboxed();
    KNOWN.after(number, args, result as u64, is_real);
    if number == MMAP && is_real {
        KNOWN.mapped(args, result as u64, hot.changes.get());
    }
}

/// True if the page of `at` can be read by who has `here` on its stack.
#[inline]
pub fn holds(at: u64, here: u64) -> bool {
    KNOWN.holds(at, here)
}

/// True if `here` is on the stack on which the process began.
pub fn is_first_stack(here: u64) -> bool {
    let top = KNOWN.stack_top.load(Ordering::Relaxed);
    top.checked_sub(here)
        .is_some_and(|below| below < STACK_BYTES)
}

impl Known {
    const fn new() -> Self {
        Self {
            is_watched: AtomicBool::new(false),
            has_unseen: AtomicBool::new(false),
            heap: AtomicU64::new(0),
            heap_end: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            has_files_only: AtomicBool::new(false),
            mappings: Mappings::none(),
        }
    }

    fn holds(&self, at: u64, here: u64) -> bool {
        let page = at & !(PAGE_BYTES - 1);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let heap = load(&self.heap);
        let is_heap = heap != 0 && page >= heap && page < load(&self.heap_end);
        let top = load(&self.stack_top);
        let is_stack = || {
            let begins = here & !(PAGE_BYTES - 1);
            top.saturating_sub(here) < STACK_BYTES
                && (begins..top).contains(&page)
                && page + PAGE_BYTES <= top
        };
        let is_mapped = || self.has_files_only.load(Ordering::Relaxed) && self.mappings.holds(page);
        self.is_watched.load(Ordering::Relaxed) && (is_heap || is_stack() || is_mapped())
    }

    fn before(&self, number: u32, args: &[u64; 6]) {
        const MAP_FIXED: u64 = 0x10;
        const MREMAP_FIXED: u64 = 2;
        let [first, second, third, fourth, fifth, _] = *args;
        match number {
            BRK => {
                self.heap_end.store(0, Ordering::Relaxed);
                self.begun.fetch_add(1, Ordering::Relaxed);
            }
            MMAP if fourth & MAP_FIXED == 0 => self.may_get_code(number, args),
            MADVISE if is_harmless(third) => {}
            MMAP | MADVISE | MPROTECT | MUNMAP | PKEY_MPROTECT | REMAP_FILE_PAGES => {
                self.may_get_code(number, args);
                self.forget(first, second);
            }
            MREMAP => {
                self.forget(first, second);
                if fourth & MREMAP_FIXED != 0 {
                    self.forget(fifth, third);
                }
            }
            SHMAT | SHMDT | PROCESS_MADVISE => self.forget(0, ADDRESSES),
            _ => {}
        }
    }

    fn after(&self, number: u32, args: &[u64; 6], result: u64, is_real: bool) {
        match number {
            // What lies among the pages of the stack is none.
            MMAP => {
                self.mappings
                    .displace(result, result.saturating_add(args[1]));
                self.forget_areas(result, args[1]);
            }
            MREMAP => self.forget(result, args[2]),
            // Where a handler has called it in between, nobody knows which came last.
            BRK if self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed) + 1 => {
                self.ended.fetch_add(1, Ordering::Relaxed);
                if !is_real || result >= ADDRESSES {
                    return self.heap.store(u64::MAX, Ordering::Relaxed);
                }
                // The page of the first end may be one of a file.
                if self.heap.load(Ordering::Relaxed) == 0 {
                    let first = result.next_multiple_of(PAGE_BYTES);
                    self.heap.store(first, Ordering::Relaxed);
                }
                self.heap_end.store(result, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// A call has mapped memory here; `changes`: as there were before it.
    fn mapped(&self, args: &[u64; 6], result: u64, changes: u64) {
        // No error, which is a number below zero.
        if result < ADDRESSES {
            self.mappings.found(result, args, changes);
        }
    }

    /// True of no process whose code is all from files.
    fn may_get_code(&self, number: u32, args: &[u64; 6]) {
        const PROT_EXEC: u64 = 4;
        const MAP_ANONYMOUS: u64 = 0x20;
        let [_, _, protection, flags, ..] = *args;
        let is_code = protection & PROT_EXEC != 0
            && match number {
                MMAP => flags & MAP_ANONYMOUS != 0,
                _ => matches!(number, MPROTECT | PKEY_MPROTECT),
            };
        if is_code {
            self.has_files_only.store(false, Ordering::Relaxed);
        }
    }

    /// Something is done to a part of memory.
    fn forget(&self, start: u64, bytes: u64) {
        self.mappings.forget(start, start.saturating_add(bytes));
        self.forget_areas(start, bytes);
    }

    /// The same of all that is no mapping of the program's own.
    fn forget_areas(&self, start: u64, bytes: u64) {
        let start = start & !(PAGE_BYTES - 1);
        // To the end of its last page, and no further: something else may begin there.
        let end = start.saturating_add(bytes).saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1);
        constants::forget(start, end);
        let heap = self.heap.load(Ordering::Relaxed);
        // While brk(2) is running, its end is not known: nothing is mapped that high by chance.
        let heap_end = match self.heap_end.load(Ordering::Relaxed) {
            0 => ADDRESSES,
            heap_end => heap_end,
        };
        if heap != 0 && start < heap_end && heap < end {
            self.heap.store(u64::MAX, Ordering::Relaxed);
        }
        let top = self.stack_top.load(Ordering::Relaxed);
        if top != 0 && start < top && top.saturating_sub(STACK_BYTES) < end {
            self.stack_top.store(0, Ordering::Relaxed);
        }
    }
}

/// Advice after which the pages can be read as before (asm-generic/mman-common.h).
const fn is_harmless(advice: u64) -> bool {
    // NORMAL to DONTNEED; FREE; MERGEABLE to DODUMP; COLD to COLLAPSE.
    matches!(advice & 0xffff_ffff, 0..=4 | 8 | 12..=17 | 20..=25)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: u64 = 0x5555_0000_0000;
    const TOP: u64 = 0x7ffc_0000_0800;
    const HERE: u64 = TOP - 0x3000;

    /// A process with four pages of heap, the first of which begins in a page of a file.
    fn known() -> Known {
        let known = Known::new();
        known.is_watched.store(true, Ordering::Relaxed);
        known.stack_top.store(TOP, Ordering::Relaxed);
        brk(&known, HEAP + 0x10);
        brk(&known, HEAP + 0x5000);
        known
    }

    fn brk(known: &Known, result: u64) {
        known.before(BRK, &[0; 6]);
        known.after(BRK, &[0; 6], result, true);
    }

    fn has(known: &Known) -> [bool; 2] {
        [HEAP + 0x2000, TOP - 0x1800].map(|at| known.holds(at, HERE))
    }

    #[test]
    fn the_heap_is_between_its_first_whole_page_and_its_end() {
        let known = known();
        let holds = |at| known.holds(at, HERE);
        assert!(holds(HEAP + 0x1000) && holds(HEAP + 0x4fff));
        assert!(!holds(HEAP + 0xfff) && !holds(HEAP + 0x5000));
        brk(&known, HEAP + 0x2000);
        assert!(holds(HEAP + 0x1fff) && !holds(HEAP + 0x2000));
        // While it runs nobody knows.
        known.before(BRK, &[0; 6]);
        assert!(!holds(HEAP + 0x1000));
    }

    #[test]
    fn the_stack_is_above_who_stands_on_it_and_below_where_it_began() {
        let known = known();
        assert!(known.holds(HERE, HERE) && known.holds(HERE & !0xfff, HERE));
        assert!(!known.holds((HERE & !0xfff) - 1, HERE) && !known.holds(TOP - 1, HERE));
        // Another stack.
        assert!(!known.holds(HERE, TOP - STACK_BYTES) && !known.holds(HERE, TOP + 8));
    }

    #[test]
    fn what_is_done_to_a_part_of_an_area_makes_it_unknown_for_good() {
        let part = HEAP + 0x4000;
        for (number, args) in [
            (MUNMAP, [part, 1, 0, 0, 0, 0]),
            (MPROTECT, [part, 1, 0, 0, 0, 0]),
            (PKEY_MPROTECT, [part, 1, 3, 1, 0, 0]),
            (REMAP_FILE_PAGES, [part, 1, 0, 0, 0, 0]),
            (MMAP, [part, 1, 3, 0x12, 3, 0]),
            (MREMAP, [part, 1, 1, 1, 0, 0]),
            (MREMAP, [0x1000, 1, 1, 3, part, 0]),
            // MADV_GUARD_INSTALL
            (MADVISE, [part, 1, 102, 0, 0, 0]),
        ] {
            let known = known();
            known.before(number, &args);
            assert_eq!(has(&known), [false, true], "{number}");
            brk(&known, HEAP + 0x6000);
            assert_eq!(has(&known), [false, true], "{number}");
        }
        for number in [SHMAT, SHMDT, PROCESS_MADVISE] {
            let known = known();
            known.before(number, &[0; 6]);
            assert_eq!(has(&known), [false, false], "{number}");
        }
    }

    #[test]
    fn what_is_done_elsewhere_changes_nothing() {
        let known = known();
        for (number, args) in [
            (MUNMAP, [HEAP - 0x2000, 0x1000, 0, 0, 0, 0]),
            (MPROTECT, [HEAP + 0x7000, 0x1000, 0, 0, 0, 0]),
            // Up to where the heap begins.
            (MPROTECT, [HEAP, 0x1000, 1, 0, 0, 0]),
            // Without MAP_FIXED an address is a wish.
            (MMAP, [HEAP + 0x4000, 1, 3, 0x22, 3, 0]),
            // MADV_DONTNEED
            (MADVISE, [HEAP + 0x4000, 1, 4, 0, 0, 0]),
        ] {
            known.before(number, &args);
        }
        known.after(MMAP, &[0, 0x1000, 0, 0, 0, 0], 0x7f00_0000_0000, true);
        assert_eq!(has(&known), [true, true]);
        known.after(MMAP, &[0, 0x1000, 0, 0, 0, 0], TOP - 0x100_000, true);
        assert_eq!(has(&known), [true, false]);
        known.is_watched.store(false, Ordering::Relaxed);
        assert_eq!(has(&known), [false, false]);
    }

    #[test]
    fn a_mapping_stays_known_where_one_below_it_is_changed_up_to_its_beginning() {
        const START: u64 = 0x7f00_0000_0000;
        let known = known();
        known.has_files_only.store(true, Ordering::Relaxed);
        known.mapped(&[0, 0x3000, 3, 0x22, 0, 0], START, known.mappings.changes());
        known.before(MPROTECT, &[START - 0x8000, 0x8000, 3, 0, 0, 0]);
        known.before(MUNMAP, &[START - 0x8000, 0x7001, 0, 0, 0, 0]);
        assert!(known.holds(START, HERE));
        known.before(MUNMAP, &[START - 0x8000, 0x8001, 0, 0, 0, 0]);
        assert!(!known.holds(START, HERE));
    }

    #[test]
    fn an_end_that_a_handler_may_have_changed_or_a_script_has_made_is_not_believed() {
        let one = known();
        one.before(BRK, &[0; 6]);
        brk(&one, HEAP + 0x2000);
        one.after(BRK, &[0; 6], HEAP + 0x5000, true);
        brk(&one, HEAP + 0x5000);
        assert_eq!(has(&one), [false, true]);
        let other = known();
        other.before(BRK, &[0; 6]);
        other.after(BRK, &[0; 6], HEAP + 0x5000, false);
        brk(&other, HEAP + 0x5000);
        assert_eq!(has(&other), [false, true]);
    }
}
