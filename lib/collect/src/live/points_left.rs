//! When return points are looked at again that were left alone.
//!
//! Given how many were left so far; says when to act, and keeps what is known of each process for
//! that. Must not know what that is.

use std::time::{Duration, Instant};

/// After an attach, until it is looked for the first time whether any were left,
const AFTER_ATTACH: Duration = Duration::from_millis(5);
/// and after a program has begun.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// So many more: the program does what it has not done before.
const MANY: u64 = 64;
/// Then the next pause is so many times as long as it took to act,
const TIMES: u32 = 4;
/// and so long at the most.
const LONGEST_OF_MANY: Duration = Duration::from_secs(1);
/// Else pauses become longer, up to this where none were left,
const LONGEST_IN_VAIN: Duration = Duration::from_millis(100);
/// and this where some were.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is known of the processes, and when it is needed.
pub(crate) struct PointsLeft<T> {
    all: Vec<T>,
    /// So many had been left when it was last done.
    seen: u64,
    /// They were many more than before.
    are_many: bool,
    /// It could not be done the last time.
    is_again: bool,
    pause: Duration,
    next: Option<Instant>,
}

impl<T> PointsLeft<T> {
    /// No process yet.
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            seen: 0,
            are_many: false,
            is_again: false,
            pause: FIRST_PAUSE,
            next: None,
        }
    }

    /// A process has been attached to.
    pub(crate) fn begin(&mut self, one: T) {
        self.all.push(one);
        self.pause_for(AFTER_ATTACH);
    }

    /// A program begins.
    pub(crate) fn begin_soon(&mut self) {
        self.pause_for(FIRST_PAUSE);
    }

    fn pause_for(&mut self, pause: Duration) {
        self.pause = pause;
        self.next = Some(Instant::now() + pause);
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

    /// What is known, if it is time and some were `left` since the last look; to be given back
    /// ([`Self::go_on`]).
    pub(crate) fn due(&mut self, left: u64) -> Option<Vec<T>> {
        if self.next.is_none_or(|next| next > Instant::now()) {
            return None;
        }
        let more = left.abs_diff(self.seen);
        if more == 0 && !self.is_again {
            self.pause_for(LONGEST_IN_VAIN.min(self.pause * 2));
            return None;
        }
        (self.seen, self.are_many) = (left, more >= MANY);
        Some(std::mem::take(&mut self.all))
    }

    /// This is known from here on, after so long. Not `is_done`: it is to be tried again, be there
    /// more or not.
    pub(crate) fn go_on(&mut self, all: Vec<T>, is_done: bool, time: Duration) {
        self.all = all;
        self.is_again = !is_done;
        self.pause_for(match self.are_many && is_done {
            true => (time * TIMES).clamp(FIRST_PAUSE, LONGEST_OF_MANY),
            false => LONGEST_PAUSE.min(self.pause * 2),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_done_is_due_again() {
        let mut points = PointsLeft::new();
        assert!(points.due(1).is_none(), "nothing has begun");
        points.begin(5);
        assert!(points.due(1).is_none(), "it is too early");
        std::thread::sleep(points.wait().unwrap_or_default());
        assert_eq!(points.due(1), Some(vec![5]));
        points.go_on(vec![5], false, Duration::ZERO);
        std::thread::sleep(points.wait().unwrap_or_default());
        assert_eq!(points.due(1), Some(vec![5]));
        points.go_on(vec![5], true, Duration::ZERO);
        std::thread::sleep(points.wait().unwrap_or_default());
        assert_eq!(points.due(1), None, "none were left since then");
        std::thread::sleep(points.wait().unwrap_or_default());
        assert_eq!(points.due(2), Some(vec![5]));
    }
}
