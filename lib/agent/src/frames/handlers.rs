//! Which signals have handlers, and where those return to.
//!
//! Given nothing; asks the kernel, once at first and again after a handler was registered. Says
//! whether the running code may be a signal handler's, and which addresses handlers return to
//! (*restorers*), by which signal frames are found on a stack. Must not know stacks and frames.

use crate::memory::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static RESTORERS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Signals whose handlers run without blocking them (SA_NODEFER), bit 0 for signal 1.
static UNDEFERRED: AtomicU64 = AtomicU64::new(0);

/// Signals that the program was started with blocked, and has not asked for a handler of: without
/// one they are blocked for no handler's sake.
static UNTOUCHED: AtomicU64 = AtomicU64::new(0);

static STALE: AtomicU32 = AtomicU32::new(1);

/// The program begins, with this signal mask and no handlers.
pub fn begin(mask: u64) {
    UNTOUCHED.store(mask, Ordering::Relaxed);
}

/// What is done about `signal` is about to change.
pub fn touched(signal: u64) {
    let bit = signal
        .checked_sub(1)
        .and_then(|n| 1u64.checked_shl(n as u32));
    UNTOUCHED.fetch_and(!bit.unwrap_or(u64::MAX), Ordering::Relaxed);
    registered();
}

/// As [`handled_in`], without the signals that the program was started with blocked, as long as
/// they have no handler: shells and tools leave some blocked for what they start. The kernel is
/// asked, too, since code that is not seen may have told it of one.
pub fn surely_handled_in(mask: u64) -> u64 {
    let handled = handled_in(mask);
    let untouched = handled & UNTOUCHED.load(Ordering::Relaxed);
    let has_none = |signal: &usize| sys::handler(*signal).is_some_and(|h| h.address <= 1);
    let are_wanted = (1..=64).filter(|signal| untouched >> (signal - 1) & 1 != 0);
    are_wanted
        .filter(has_none)
        .fold(handled, |left, signal| left & !(1 << (signal - 1)))
}

/// A handler is about to be registered: there may be a new restorer.
pub fn registered() {
    STALE.store(1, Ordering::Relaxed);
}

/// The signals whose handlers may be running in a thread with this signal mask.
pub fn handled_in(mask: u64) -> u64 {
    mask | UNDEFERRED.load(Ordering::Relaxed)
}

/// True if a handler may be running in a thread with this signal mask.
pub fn may_run(mask: u64) -> bool {
    mask != 0 || learn() && handled_in(mask) != 0
}

/// True if surely no handler is running in this thread. A system call only if there are handlers.
pub fn none_runs() -> bool {
    let has_none = restorers().iter().all(|restorer| *restorer == 0);
    STALE.load(Ordering::Relaxed) == 0 && (has_none || handled_in(sys::signal_mask()) == 0)
}

/// Asks the kernel for the restorers of all handlers; false if there is none.
pub fn learn() -> bool {
    if STALE.swap(0, Ordering::Relaxed) != 0 {
        for signal in 1..=64 {
            let Some((restorer, deferred)) = sys::restorer(signal) else {
                continue;
            };
            if !deferred {
                UNDEFERRED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
            }
            let known =
                |r: &&AtomicU64| matches!(r.load(Ordering::Relaxed), v if v == 0 || v == restorer);
            if let Some(entry) = RESTORERS.iter().find(known) {
                entry.store(restorer, Ordering::Relaxed);
            }
        }
    }
    RESTORERS
        .first()
        .is_some_and(|r| r.load(Ordering::Relaxed) != 0)
}

/// The restorers; unused entries are zero.
pub fn restorers() -> [u64; 4] {
    RESTORERS.each_ref().map(|r| r.load(Ordering::Relaxed))
}
