//! When return points are looked at again that were left alone.
//!
//! Given how many were left so far, in all processes and in each; says when to look for processes,
//! and which of them to act on, and keeps what is known of each for that. While a process is acted
//! on it stands still: the pauses between are measured by that. Must not know what is done.

use std::time::{Duration, Instant};

/// After an attach, until it is looked for the first time whether any were left.
const AFTER_ATTACH: Duration = Duration::from_millis(5);
/// Between two looks at how many were left in all processes, and the shortest pause of one.
const PAUSE: Duration = Duration::from_millis(20);
/// So many more: the program does what it has not done before.
const MANY: u32 = 64;
/// Then the next pause is so many times as long as the process stood,
const TIMES_OF_MANY: u32 = 4;
/// and so long at the most.
const LONGEST_OF_MANY: Duration = Duration::from_secs(1);
/// Few may be called often, too: a pause is so many times as long then,
const TIMES_OF_FEW: u32 = 16;
/// and so long at the most.
const LONGEST_OF_FEW: Duration = Duration::from_secs(5);
/// To look for processes takes longer the more the machine has: the same of that.
const TIMES_OF_A_LOOK: u32 = 4;

/// What has come of acting on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acted {
    /// It is done; the process stood so long.
    In(Duration),
    /// It is to be tried again.
    NotNow,
    /// It is gone.
    Gone,
}

/// A process, by what it is acted on.
pub(crate) struct One<T> {
    pub(crate) pid: u32,
    pub(crate) act: T,
    /// So many had been left when it was acted on.
    seen: u32,
    /// They were many more than before.
    are_many: bool,
    /// It could not be done the last time.
    is_again: bool,
    pause: Duration,
    next: Instant,
}

impl<T> One<T> {
    fn pause_for(&mut self, pause: Duration) {
        self.pause = pause;
        self.next = Instant::now() + pause;
    }
}

/// What is known of the processes, and when it is needed.
pub(crate) struct PointsLeft<T> {
    all: Vec<One<T>>,
    /// So many had been left in all, when all processes that it was time for were looked at.
    seen: Option<u32>,
    /// When to look at that; `None`: nothing has begun.
    next: Option<Instant>,
    /// The same when processes were looked for,
    found_at: Option<u32>,
    /// and when to do that again.
    next_search: Instant,
}

impl<T> PointsLeft<T> {
    /// No process yet.
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            seen: None,
            next: None,
            found_at: None,
            next_search: Instant::now(),
        }
    }

    /// A process has been attached to.
    pub(crate) fn begin(&mut self, pid: u32, act: T) {
        self.begin_within(AFTER_ATTACH);
        self.found(pid, act);
    }

    /// A program begins.
    pub(crate) fn begin_soon(&mut self) {
        self.begin_within(PAUSE);
    }

    fn begin_within(&mut self, pause: Duration) {
        self.next = Some(Instant::now() + pause);
    }

    /// A process was found in which there may be some.
    pub(crate) fn found(&mut self, pid: u32, act: T) {
        self.all.push(One {
            pid,
            act,
            seen: 0,
            are_many: false,
            is_again: false,
            pause: Duration::ZERO,
            next: Instant::now(),
        });
        self.seen = None;
    }

    /// All are let go.
    pub(crate) fn end(&mut self) {
        *self = Self::new();
    }

    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.all.iter().any(|one| one.pid == pid)
    }

    /// Until the next look, if that is not now.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let wait = self.next?.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// True if it is time to look, given how many were `left` in all processes: then
    /// [`Self::shall_search`] and [`Self::due`] say what for.
    pub(crate) fn is_time(&mut self, left: u32) -> bool {
        let now = Instant::now();
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.next = Some(now + PAUSE);
        // Those that it was not time for then.
        let is_more = self.seen != Some(left) || self.all.iter().any(|one| one.is_again);
        let is_waiting = |one: &One<T>| one.next > now;
        self.seen = (!self.all.iter().any(is_waiting)).then_some(left);
        is_more || self.found_at != Some(left)
    }

    /// Whether processes are to be looked for, since more were `left`.
    pub(crate) fn shall_search(&self, left: u32) -> bool {
        self.found_at != Some(left) && self.next_search <= Instant::now()
    }

    /// That was done. Not `is_done`: it is to be done again, be there more or not.
    pub(crate) fn searched(&mut self, left: u32, is_done: bool, time: Duration) {
        self.found_at = is_done.then_some(left);
        let pause = (time * TIMES_OF_A_LOOK).clamp(PAUSE, LONGEST_OF_MANY);
        self.next_search = Instant::now() + pause;
    }

    /// A process that it is time for, and in which some were left since the last time, to be given
    /// back ([`Self::go_on`]). `left`: how many there are in a process; `None`: it is gone.
    pub(crate) fn due(&mut self, left: impl Fn(u32) -> Option<u32>) -> Option<One<T>> {
        let now = Instant::now();
        let mut at = 0;
        while let Some(one) = self.all.get_mut(at) {
            if one.next > now {
                at += 1;
                continue;
            }
            let Some(left) = left(one.pid) else {
                self.all.swap_remove(at);
                continue;
            };
            let more = left.abs_diff(one.seen);
            if more > 0 || one.is_again {
                one.are_many |= more >= MANY;
                one.seen = left;
                return Some(self.all.swap_remove(at));
            }
            at += 1;
        }
        None
    }

    /// It has been acted on.
    pub(crate) fn go_on(&mut self, mut one: One<T>, acted: Acted) {
        match acted {
            Acted::In(time) => {
                one.is_again = false;
                let (times, longest) = match std::mem::take(&mut one.are_many) {
                    true => (TIMES_OF_MANY, LONGEST_OF_MANY),
                    false => (TIMES_OF_FEW, LONGEST_OF_FEW),
                };
                one.pause_for((time * times).clamp(PAUSE, longest));
                self.seen = None;
            }
            Acted::NotNow => {
                // A thread waits for a disk, or an exec begins: that is soon over, mostly.
                let pause = match std::mem::replace(&mut one.is_again, true) {
                    true => one.pause * 2,
                    false => PAUSE,
                };
                one.pause_for(pause.min(LONGEST_OF_MANY));
            }
            // Another program may be there.
            Acted::Gone => return self.found_at = None,
        }
        self.all.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that is due when it is time.
    fn next(points: &mut PointsLeft<u8>, left: u32) -> Option<One<u8>> {
        std::thread::sleep(points.wait().unwrap_or_default());
        points.is_time(left).then(|| points.due(|_| Some(left)))?
    }

    #[test]
    fn what_could_not_be_done_is_due_again() {
        let mut points = PointsLeft::new();
        assert!(!points.is_time(1), "nothing has begun");
        points.begin(5, 50);
        assert!(!points.is_time(1), "it is too early");
        let one = next(&mut points, 1).unwrap();
        assert_eq!((one.pid, one.act), (5, 50));
        points.go_on(one, Acted::NotNow);
        std::thread::sleep(PAUSE);
        let one = next(&mut points, 1).unwrap();
        points.go_on(one, Acted::In(Duration::ZERO));
        std::thread::sleep(PAUSE);
        assert!(next(&mut points, 1).is_none(), "none were left since");
        assert!(next(&mut points, 2).is_some());
    }

    #[test]
    fn each_process_has_its_own_pauses() {
        let mut points = PointsLeft::new();
        points.begin_soon();
        points.found(1, 10);
        points.found(2, 20);
        let long = Duration::from_secs(1);
        let first = next(&mut points, 1).unwrap();
        let second = points.due(|_| Some(1)).unwrap();
        let name = second.pid;
        points.go_on(first, Acted::In(long));
        points.go_on(second, Acted::In(Duration::ZERO));
        std::thread::sleep(PAUSE);
        assert_eq!(next(&mut points, 2).map(|one| one.pid), Some(name));
        assert!(points.due(|_| Some(2)).is_none(), "it is too early");
        // Few take longer pauses than many.
        assert_eq!(points.all[0].pause, LONGEST_OF_FEW.min(long * TIMES_OF_FEW));
        // What it was too early for is not forgotten.
        points.all[0].next = Instant::now();
        assert!(next(&mut points, 2).is_some());
    }

    #[test]
    fn processes_are_looked_for_when_more_are_left() {
        let mut points = PointsLeft::<u8>::new();
        points.begin_soon();
        assert!(next(&mut points, 1).is_none());
        assert!(points.shall_search(1));
        points.searched(1, true, Duration::ZERO);
        std::thread::sleep(PAUSE);
        assert!(!points.shall_search(1), "none were left since");
        assert!(points.shall_search(2));
        points.searched(2, false, Duration::ZERO);
        std::thread::sleep(PAUSE);
        assert!(points.shall_search(2), "it was not done");
    }
}
