//! Limits on resources: those of a process that is about to be recorded, and our own where there is
//! no way to lift them.
//!
//! Given a process, or a thread of ours; says what the limit does not leave room for, or gives the
//! thread descriptors of its own. Must not know: what is recorded.

use std::os::fd::RawFd;

use crate::error::TraceeError;
use crate::proc::files;
use crate::terminal;

/// What the agent maps in a process beside the arena, before the program runs: its image, a table,
/// the first thread's block, the first patch area.
const AGENT_BYTES: u64 = 18 << 20;
/// Our threads share so many descriptors without coming near the limit.
const ENOUGH_DESCRIPTORS: u64 = 32;

/// The soft limit of `pid` (0: ours).
fn limit(pid: u32, which: libc::__rlimit_resource_t) -> u64 {
    let mut found = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is ours; without an answer it stays as it is.
    unsafe { libc::prlimit(pid as i32, which, std::ptr::null(), &raw mut found) };
    found.rlim_cur
}

/// What the arena would be counted against, or what the agent needs.
pub fn has_memory_limit(pid: u32) -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA]
        .into_iter()
        .any(|which| limit(pid, which) != libc::RLIM_INFINITY)
}

/// Whether a process that stands at its exec stop can map the arena and open its file: limits of
/// its own are not ours to change.
///
/// # Errors
/// What is full.
pub fn leave_room(pid: u32, arena_bytes: u64) -> Result<(), TraceeError> {
    let memory = limit(pid, libc::RLIMIT_AS);
    if memory != libc::RLIM_INFINITY && memory < arena_bytes + AGENT_BYTES {
        let why =
            "its memory limit (ulimit -v), set after the start, is less than is mapped for it";
        return Err(TraceeError::NoRoom(why));
    }
    let descriptors = limit(pid, libc::RLIMIT_NOFILE);
    let open = files::descriptors(pid).into_iter();
    let counted = open.filter(|fd| u64::from(*fd) < descriptors).count();
    if counted as u64 >= descriptors {
        return Err(TraceeError::NoRoom(
            "all descriptors that it may have are in use (ulimit -n)",
        ));
    }
    Ok(())
}

/// Where there are few descriptors the calling thread gets a table of its own, without any but the
/// standard streams and `kept`: what it opens for a moment does not stand in the others' way.
pub fn own_descriptors(kept: &[RawFd]) {
    if limit(0, libc::RLIMIT_NOFILE) >= ENOUGH_DESCRIPTORS {
        return;
    }
    // SAFETY: no memory is concerned.
    if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 {
        let mut kept = [&[0, 1, 2], kept].concat();
        // SAFETY: in a table of this thread, which uses no other and owns none.
        unsafe { terminal::keep_only(&mut kept) };
    }
}
