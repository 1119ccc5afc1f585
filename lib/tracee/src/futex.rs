//! Waiting for another process at a word of memory that is shared with it (futex(2)).
//!
//! Given the word; a wait ends when it is woken, when the word is another, when a signal comes, or
//! after a time, and does not say which. Must not know what a word means.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Wakes waiters on a word.
pub fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: FUTEX_WAKE on a mapped word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Waits at most so long while the word is `expected`.
pub fn futex_wait(word: &AtomicU32, expected: u32, at_most: Duration) {
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    // SAFETY: FUTEX_WAIT on a mapped word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        )
    };
}
