//! How often a recording is made, and where it stands: a *window* reaches from an event that begins
//! the recording to one that ends it.
//!
//! Given how many there shall be; told of each step by whoever takes it: events ([`crate::react`]),
//! and the session, which attaches and lets go ([`crate::live::later`]). Says what an event means
//! at the moment, and from where time counts. Without an event to begin with there is one window,
//! from the start.
//!
//! Must not know: what an event is, or how a process is attached to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For an event that begins it.
    Waiting,
    /// The same, and what only a recording shows is looked for: the processes are followed.
    Following,
    /// The event has happened, and the processes are being attached to.
    Started,
    /// What is to be recorded is.
    Recording,
    /// Processes are being let go. An event that begins the next may have happened already.
    Ending { is_next_asked: bool },
    /// The last one has ended.
    Over,
}

/// What comes of an event that begins a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It begins.
    Now,
    /// It will, once the last one has been brought to its end.
    Soon,
    /// One is being made.
    Already,
    /// There were as many as there shall be.
    UsedUp,
}

/// From where time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    /// Changes whenever the clock that `time:` events count from is restarted.
    pub number: u64,
    /// Of events that begin a recording; `None`: they do not count now.
    pub starts: Option<Instant>,
    /// Of the others.
    pub others: Option<Instant>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Of the present window, or the last.
    number: u64,
    /// It was followed before it began.
    is_followed: bool,
    since: Instant,
    counting: u64,
    /// Ticks of the windows that have ended, and when the present one began.
    ticks: u64,
    begun_tsc: u64,
}

/// The windows of a recording.
#[derive(Debug)]
pub struct Windows {
    times: u64,
    state: Mutex<State>,
}

impl Windows {
    /// So many, each begun by an event; `None`: one, begun by nothing.
    pub fn new(times: Option<u64>) -> Self {
        let (phase, number) = match times {
            Some(_) => (Phase::Waiting, 0),
            None => (Phase::Started, 1),
        };
        Self {
            times: times.unwrap_or(1),
            state: Mutex::new(State {
                phase,
                number,
                is_followed: false,
                since: Instant::now(),
                counting: 0,
                ticks: 0,
                begun_tsc: 0,
            }),
        }
    }

    /// The first is begun by nothing; then they end and begin whenever somebody asks for it.
    pub fn switched() -> Self {
        let windows = Self::new(None);
        Self {
            times: u64::MAX,
            ..windows
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is no number of them that was asked for.
    pub fn is_switched(&self) -> bool {
        self.times == u64::MAX
    }

    /// How many there shall be, if it is more than one.
    pub fn several(&self) -> Option<u64> {
        (self.times > 1).then_some(self.times)
    }

    /// The number of the present window, or of the last; 0: none has begun.
    pub fn number(&self) -> u64 {
        self.state().number
    }

    /// The ticks of all windows by `tsc`.
    pub fn ticks(&self, tsc: u64) -> u64 {
        let state = self.state();
        let is_open = matches!(state.phase, Phase::Started | Phase::Recording);
        let open = tsc.saturating_sub(state.begun_tsc);
        state.ticks + if is_open { open } else { 0 }
    }

    /// Time counts from here until something begins.
    pub fn launched(&self) {
        let mut state = self.state();
        state.since = Instant::now();
        state.counting += 1;
    }

    /// The processes are to run by themselves: no event has begun the recording yet, or led to
    /// their being followed.
    pub fn is_waiting(&self) -> bool {
        self.state().phase == Phase::Waiting
    }

    /// They are followed until an event begins the recording.
    pub fn is_following(&self) -> bool {
        self.state().phase == Phase::Following
    }

    /// They were when the present recording began.
    pub fn was_followed(&self) -> bool {
        self.state().is_followed
    }

    /// They are to be followed from now on. False: they are, or are recorded.
    pub fn follow(&self) -> bool {
        let mut state = self.state();
        let is_waiting = state.phase == Phase::Waiting && state.number < self.times;
        if is_waiting {
            state.phase = Phase::Following;
            state.is_followed = true;
        }
        is_waiting
    }

    /// Nothing is recorded before the next event that begins it.
    pub fn is_pause(&self) -> bool {
        use Phase::{Ending, Following, Waiting};
        matches!(self.state().phase, Waiting | Following | Ending { .. })
    }

    /// An event that has happened at this moment has begun it.
    pub fn is_begun_at(&self, tsc: u64) -> bool {
        let state = self.state();
        state.number > 0 && state.begun_tsc == tsc && tsc != 0
    }

    /// The processes must be let go, to be attached to again.
    pub fn is_ending(&self) -> bool {
        matches!(self.state().phase, Phase::Ending { .. })
    }

    /// What an event that begins the recording would do now.
    pub fn would_start(&self) -> Start {
        let state = self.state();
        match state.phase {
            _ if state.number == self.times => Start::UsedUp,
            Phase::Waiting | Phase::Following => Start::Now,
            Phase::Ending {
                is_next_asked: false,
            } => Start::Soon,
            _ => Start::Already,
        }
    }

    /// Such an event has happened.
    pub fn start(&self, tsc: u64) {
        let mut state = self.state();
        match state.phase {
            Phase::Waiting | Phase::Following => state.next(tsc),
            Phase::Ending { .. } => {
                let is_next_asked = true;
                state.phase = Phase::Ending { is_next_asked };
            }
            _ => {}
        }
    }

    /// What is to be recorded is, from now on.
    pub fn begin(&self) {
        let mut state = self.state();
        if state.phase == Phase::Started {
            state.phase = Phase::Recording;
            if state.begun_tsc == 0 {
                state.begun_tsc = crate::clock::tsc();
            }
            state.since = Instant::now();
            state.counting += 1;
        }
    }

    /// An event has ended the window. True: it was the last.
    pub fn stop(&self, tsc: u64) -> bool {
        let mut state = self.state();
        if matches!(state.phase, Phase::Started | Phase::Recording) {
            let is_last = state.number == self.times;
            state.ticks += tsc.saturating_sub(state.begun_tsc);
            if is_last {
                state.phase = Phase::Over;
                return true;
            }
            state.since = Instant::now();
            state.counting += 1;
            state.phase = Phase::Ending {
                is_next_asked: false,
            };
        }
        state.phase == Phase::Over
    }

    /// All processes have been let go. False: there is no further window.
    pub fn wait_again(&self, tsc: u64) -> bool {
        let mut state = self.state();
        let Phase::Ending { is_next_asked } = state.phase else {
            return false;
        };
        state.phase = Phase::Waiting;
        state.is_followed = false;
        state.counting += 1;
        if is_next_asked {
            state.next(tsc);
        }
        true
    }

    /// From where time counts now.
    pub fn counting(&self) -> Counting {
        let state = self.state();
        let since = Some(state.since);
        let (starts, others) = match state.phase {
            Phase::Waiting | Phase::Following => (since, None),
            // Dumps may come after the end.
            Phase::Recording | Phase::Over => (None, since),
            Phase::Started | Phase::Ending { .. } => (None, None),
        };
        Counting {
            number: state.counting,
            starts,
            others,
        }
    }
}

impl State {
    fn next(&mut self, tsc: u64) {
        self.phase = Phase::Started;
        self.number += 1;
        self.begun_tsc = tsc;
        self.counting += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_and_end_so_often() {
        let w = Windows::new(Some(3));
        assert!(w.is_waiting() && w.is_pause() && w.number() == 0);
        for number in 1..=3 {
            let tsc = number * 100;
            assert_eq!(w.would_start(), Start::Now);
            w.start(tsc);
            assert_eq!(
                (w.number(), w.is_waiting(), w.is_pause()),
                (number, false, false)
            );
            w.begin();
            assert_ne!(w.would_start(), Start::Now);
            assert!(w.is_begun_at(tsc) && !w.is_begun_at(tsc + 1));
            assert_eq!(w.ticks(tsc + 5), (number - 1) * 10 + 5);
            assert_eq!(w.stop(tsc + 10), number == 3);
            assert_eq!(w.ticks(tsc + 50), number * 10);
            assert_eq!(w.is_ending(), number < 3);
            assert_eq!(w.wait_again(tsc + 60), number < 3);
        }
        assert_eq!(w.would_start(), Start::UsedUp);
        w.start(999);
        assert!(w.stop(1000) && w.number() == 3 && w.ticks(2000) == 30);
    }

    #[test]
    fn what_begins_the_next_while_the_last_is_ended_is_kept() {
        let w = Windows::new(Some(2));
        w.start(1);
        w.begin();
        assert_eq!(w.would_start(), Start::Already);
        w.start(2);
        assert!(!w.stop(3) && w.number() == 1);
        assert_eq!(w.would_start(), Start::Soon);
        w.start(4);
        assert_eq!(w.would_start(), Start::Already);
        assert!(w.is_ending() && w.wait_again(5));
        assert_eq!((w.number(), w.is_waiting()), (2, false));
        assert!(w.stop(9) && w.ticks(9) == 2 + 4);
    }

    #[test]
    fn what_is_followed_is_no_recording_yet() {
        let w = Windows::new(Some(2));
        w.launched();
        let counting = w.counting();
        assert!(w.follow() && !w.follow());
        assert!(w.is_following() && !w.is_waiting() && w.is_pause() && !w.is_ending());
        assert_eq!((w.number(), w.would_start()), (0, Start::Now));
        assert_eq!(w.counting(), counting, "moments go on to be waited for");
        w.begin();
        assert!(w.is_following(), "that they are attached to begins nothing");
        w.start(10);
        w.begin();
        assert!(!w.is_following() && !w.follow() && w.number() == 1);
        assert!(!w.stop(20) && !w.follow() && w.wait_again(30) && w.follow());
        w.start(40);
        assert!(w.stop(50) && !w.follow() && w.ticks(60) == 20);
    }

    #[test]
    fn time_counts_for_what_is_awaited() {
        let w = Windows::new(Some(2));
        w.launched();
        let counted = |w: &Windows| (w.counting().starts.is_some(), w.counting().others.is_some());
        assert_eq!(counted(&w), (true, false));
        w.start(1);
        assert_eq!(counted(&w), (false, false));
        w.begin();
        let (first, begun) = (w.counting().number, w.counting().others);
        w.begin();
        assert!(begun.is_some() && w.counting().others == begun && w.counting().number == first);
        w.stop(2);
        assert_eq!(counted(&w), (false, false));
        let stopped = Instant::now();
        w.wait_again(3);
        assert!(w.counting().starts.is_some_and(|at| at <= stopped));
        assert_eq!(counted(&w), (true, false));
        let at_once = Windows::new(None);
        assert!(!at_once.is_waiting() && !at_once.is_pause() && at_once.several().is_none());
        at_once.begin();
        assert_eq!(counted(&at_once), (false, true));
        assert!(at_once.stop(1));
        assert_eq!(
            counted(&at_once),
            (false, true),
            "dumps may come after the end"
        );
    }
}
