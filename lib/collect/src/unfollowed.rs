//! Programs that were executed and are not followed: which, and why.
//!
//! Given names and reasons as they turn up; gives them with their numbers, for the trace and the
//! last lines. Must not know how a program is followed.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use sptrace_tracee::TraceeError;
use sptrace_tracee::seccomp::{self, Refusal};
use sptrace_wire::control::{Control, hole};

/// The kernel would not give it its privileges under ptrace (execve(2)).
pub const PRIVILEGED: &str =
    "it has set-id bits or capabilities, which it would lose; as root sptrace follows it";
/// PTRACE_SEIZE has failed.
pub const NOT_PERMITTED: &str = "the kernel does not permit to trace who executes it";
/// A system call instruction of the program's own, which nobody has announced.
pub const UNSEEN: &str = "executed by a system call that was not seen";
/// The stub has run, and the agent has not.
pub const NO_ROOM: &str = "the agent could not be mapped, or it ended at once";

/// The list.
#[derive(Debug, Default)]
pub struct Unfollowed(Mutex<BTreeMap<(String, String), u64>>);

impl Unfollowed {
    /// One more.
    pub fn note(&self, control: &Control, program: &str, why: &str) {
        self.note_all(control, program, why, 1);
    }

    /// So many more.
    pub fn note_all(&self, control: &Control, program: &str, why: &str, number: u64) {
        control.holes[hole::EXEC_UNSEEN].fetch_add(number, Ordering::Relaxed);
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *list
            .entry((program.to_owned(), why.to_owned()))
            .or_default() += number;
    }

    /// "PROGRAM: REASON", and how often.
    pub fn list(&self) -> Vec<(String, u64)> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |((program, why), number): (&(String, String), &u64)| {
            (format!("{program}: {why}"), *number)
        };
        list.iter().map(row).collect()
    }
}

/// Whether a seccomp filter that the program inherits permits what the agent does. A filter that
/// cannot be looked at is ours as well, or the agent was in the program before and had its
/// questions answered there.
pub(crate) fn may_enter(pid: u32) -> Result<(), TraceeError> {
    match seccomp::check(pid) {
        Err(e @ (Refusal::Strict | Refusal::Forbidden(_) | Refusal::Gone)) => Err(e.into()),
        Ok(()) | Err(Refusal::Hidden | Refusal::Unknown) => Ok(()),
    }
}
