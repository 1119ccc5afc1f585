//! The propagation lock: one thread at a time changes text, plans' tables and patch areas.
//!
//! Given the thread that asks; gives the lock, or the fact that nobody may patch any more because
//! its owner has died. Must not know what is done under it.

use crate::memory::{state, sys};
use core::sync::atomic::Ordering;

/// How long the lock is waited for at once, and how often: two minutes, longer than any wait for
/// the host.
const LOCK_SLICE_MS: u64 = 20;
const LOCK_SLICES: u32 = 6000;

/// Takes the propagation lock. Whoever ran ahead of a lock that is busy could be inside a function
/// when it is patched, between instructions that are moved together: so this waits as long as the
/// owner lives, and after that (a task that shares the memory was killed) nobody patches any more.
/// False then, and if the owner is this thread.
pub fn lock(tid: u32) -> bool {
    let Some(page) = state::process().fork_page.get() else {
        return false;
    };
    let word = &page.lock;
    for _ in 0..LOCK_SLICES {
        let Err(owner) = word.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed) else {
            return true;
        };
        if owner == tid {
            return false;
        }
        page.waiting.fetch_add(1, Ordering::SeqCst);
        sys::futex_wait(word, owner, LOCK_SLICE_MS);
        page.waiting.fetch_sub(1, Ordering::SeqCst);
        if word.load(Ordering::Relaxed) == owner && !sys::is_alive(owner) {
            break;
        }
    }
    state::process().may_propagate.set(false);
    false
}

/// Gives it back.
pub fn unlock() {
    if let Some(page) = state::process().fork_page.get() {
        // Who waits has said so before the kernel looks whether the lock is busy still.
        page.lock.swap(0, Ordering::SeqCst);
        if page.waiting.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&page.lock, 1);
        }
    }
}
