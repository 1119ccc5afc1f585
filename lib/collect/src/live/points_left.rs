//! When return points are looked at again that were left alone after an attach.
//!
//! Given how many were left so far; says when to act, and keeps what is to be done for each
//! process. Must not know what that is.

use std::time::{Duration, Instant};

/// After an attach, until it is looked for the first time whether any were left.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Between two looks at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is to be done for the processes that are attached to, and when.
pub(crate) struct PointsLeft<T> {
    all: Vec<T>,
    /// So many had been left when it was last done.
    seen: u64,
    pause: Duration,
    next: Option<Instant>,
}

impl<T> PointsLeft<T> {
    /// No process yet.
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            seen: 0,
            pause: FIRST_PAUSE,
            next: None,
        }
    }

    /// A process has been attached to.
    pub(crate) fn begin(&mut self, one: T) {
        self.all.push(one);
        self.pause = FIRST_PAUSE;
        self.next = Some(Instant::now() + FIRST_PAUSE);
    }

    /// All are let go.
    pub(crate) fn end(&mut self) {
        *self = Self::new();
    }

    /// Until the next look, if that is not now.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let wait = self.next?.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// What is to be done if it is time, and some were `left` since the last look; to be given back
    /// ([`Self::go_on`]).
    pub(crate) fn due(&mut self, left: u64) -> Option<Vec<T>> {
        let is_time = self.next.is_some_and(|next| next <= Instant::now());
        if !is_time || left == self.seen {
            return None;
        }
        self.seen = left;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        self.next = Some(Instant::now() + self.pause);
        Some(std::mem::take(&mut self.all))
    }

    /// These are left.
    pub(crate) fn go_on(&mut self, all: Vec<T>) {
        self.all = all;
    }
}
