//! Processes that may still begin to record when all that did have ended.
//!
//! A fork child is met at its first event. A daemon's parents may have ended before that, and the
//! recording would end with them. So it would with a process that executes a program: what it was
//! has ended, and what it will be has not begun. Given the processes that were there before the
//! command, and those that execute; looks into /proc for new ones that hold the arena, or that we
//! trace, as who is about to execute is traced by us. But for these they are not waited for long:
//! one that is in a sandbox holds the arena as well. Must not know streams.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sptrace_tracee::proc::{self, files};
use sptrace_tracee::{eligible, threads};

use crate::shared::Shared;

/// From a fork to the child's first event, and from an exec to the agent's: on a busy machine, too.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(1);

/// When to end.
pub(crate) struct Latecomers {
    before: HashSet<u32>,
    quiet_since: Option<Instant>,
    /// What the agent was put into at an exec.
    entered: Vec<u32>,
}

impl Latecomers {
    /// None of those that are there now.
    pub(crate) fn new() -> Self {
        Self {
            before: proc::processes().into_iter().collect(),
            quiet_since: None,
            entered: Vec::new(),
        }
    }

    /// Somebody records.
    pub(crate) fn are_there(&mut self) {
        self.quiet_since = None;
    }

    /// The agent was put into it, and will begin there.
    pub(crate) fn enters(&mut self, shared: &Shared, pid: u32) {
        shared.injected.fetch_add(1, Ordering::Relaxed);
        self.entered.push(pid);
    }

    /// Nobody records: may somebody still begin? To be asked by the thread that traces.
    pub(crate) fn may_come(&mut self, shared: &Shared) -> bool {
        let is_new = |pid: &u32| !self.before.contains(pid);
        let new: Vec<u32> = proc::processes().into_iter().filter(is_new).collect();
        if new.iter().any(|pid| threads::traces(*pid)) {
            return true;
        }
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        let begun = shared.arena.control().begun.load(Ordering::Relaxed);
        let are_missing = begun < shared.injected.load(Ordering::Relaxed);
        let enters = |pid: &u32| are_missing && files::has_program(*pid);
        since.elapsed() < FIRST_EVENT_WITHIN
            && (new.iter().any(|pid| eligible::holds(*pid, &shared.arena))
                || self.entered.iter().any(enters))
    }
}
