//! What the command's process and sptrace say to each other before it is the command.
//!
//! Given memory that both share, since descriptors may be few. Gives the word to execute, and why
//! that failed. Must not know who forks, and what is executed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::TraceeError;
use crate::futex::futex_wait;

/// What the command's process and we say to each other before it is the command: memory of both,
/// since descriptors may be few.
pub(crate) struct Between {
    /// We: 1 once it shall execute.
    pub(crate) go: AtomicU32,
    /// The command's process: why it could not.
    pub(crate) errno: AtomicU32,
}

impl Between {
    /// For the life of both.
    pub(crate) fn new() -> Result<&'static Self, TraceeError> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: fresh memory, page-aligned, zero, never unmapped; its fields are atomics.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
            if page == libc::MAP_FAILED {
                return Err(TraceeError::last("mmap"));
            }
            Ok(&*page.cast())
        }
    }

    /// In the command's process: it could not execute.
    pub(crate) fn failed(&self, errno: i32) {
        self.errno.store(errno as u32, Ordering::Release);
    }

    /// In the command's process: until it shall go on, or `tracer` is not its parent any more.
    /// Async-signal-safe.
    pub(crate) fn wait(&self, tracer: i32) {
        // SAFETY: no arguments.
        while self.go.load(Ordering::Acquire) == 0 && unsafe { libc::getppid() } == tracer {
            futex_wait(&self.go, 0, Duration::from_millis(50));
        }
    }
}
