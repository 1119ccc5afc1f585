//! Processes that may still begin to record when all that did have ended.
//!
//! A fork child is met at its first event. A daemon's parents may have ended before that, and the
//! recording would end with them. Given the processes that were there before the command; looks
//! into /proc for new ones that hold the arena. They are not waited for long: one that is in a
//! sandbox holds it as well. Must not know streams.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sptrace_tracee::arena::Arena;
use sptrace_tracee::{eligible, proc};

/// From a fork to the child's first event: on a busy machine, too.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(1);

/// When to end.
pub(crate) struct Latecomers {
    before: HashSet<u32>,
    quiet_since: Option<Instant>,
}

impl Latecomers {
    /// None of those that are there now.
    pub(crate) fn new() -> Self {
        Self {
            before: proc::processes().into_iter().collect(),
            quiet_since: None,
        }
    }

    /// Somebody records.
    pub(crate) fn are_there(&mut self) {
        self.quiet_since = None;
    }

    /// Nobody records: may somebody still begin?
    pub(crate) fn may_come(&mut self, arena: &Arena) -> bool {
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        since.elapsed() < FIRST_EVENT_WITHIN
            && proc::processes()
                .into_iter()
                .any(|pid| !self.before.contains(&pid) && eligible::holds(pid, arena))
    }
}
