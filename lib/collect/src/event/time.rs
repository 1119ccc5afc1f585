//! The source of moments: `time:DURATION`.
//!
//! Given from where time counts ([`crate::windows`]); an event happens each time that its duration
//! has passed since then. Those that begin the recording count from the command's start, or from
//! the end of the last window; the others from the recording's beginning, or the last turn of the
//! rule that they turn ([`crate::between`]).

use super::{Armed, Occurrence, Reaction, Source, What};
use crate::between::{Between, Since};
use crate::windows::{Counting, Windows};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Moment {
    event: usize,
    reaction: Option<Reaction>,
    period: Duration,
    due: Option<Instant>,
}

/// All moments of a recording.
pub struct Moments {
    all: Vec<Moment>,
    windows: Arc<Windows>,
    between: Arc<Between>,
    counting: (Counting, u64),
}

impl Moments {
    /// Those of `armed`.
    pub fn new(armed: &Armed, windows: Arc<Windows>, between: Arc<Between>) -> Self {
        let moment = |(event, what): (usize, &super::Event)| {
            let What::Time(period) = what.what else {
                return None;
            };
            Some(Moment {
                event,
                reaction: armed.reaction(event),
                period,
                due: None,
            })
        };
        let mut moments = Self {
            all: armed.iter().filter_map(moment).collect(),
            counting: (windows.counting(), between.counting()),
            windows,
            between,
        };
        moments.count();
        moments
    }

    fn count(&mut self) {
        for moment in &mut self.all {
            let (counting, _) = self.counting;
            let turned = |rule, is_opening| match self.between.since(rule, is_opening) {
                Since::Paused => None,
                Since::RecordingStart => counting.others,
                Since::At(turned) => Some(turned.max(counting.others?)),
            };
            let from = match moment.reaction {
                Some(Reaction::Start) => counting.starts,
                Some(Reaction::Open(rule)) => turned(rule, true),
                Some(Reaction::Close(rule)) => turned(rule, false),
                _ => counting.others,
            };
            moment.due = from.and_then(|from| from.checked_add(moment.period));
        }
    }

    fn is_new(&self) -> bool {
        let (windows, between) = self.counting;
        self.windows.counting().number != windows.number || self.between.counting() != between
    }

    /// Those that have come by `now`.
    fn passed(&mut self, now: Instant, found: &mut Vec<Occurrence>) {
        if self.is_new() {
            self.counting = (self.windows.counting(), self.between.counting());
            self.count();
        }
        for moment in &mut self.all {
            // One for each look at most: after a suspension there is only one present.
            if moment.due.is_some_and(|due| due <= now) {
                while let Some(due) = moment.due.filter(|due| *due <= now) {
                    moment.due = due.checked_add(moment.period.max(SHORTEST));
                }
                found.push(Occurrence {
                    event: moment.event,
                    tsc: crate::clock::tsc(),
                    pid: 0,
                    detail: String::new(),
                });
            }
        }
    }
}

/// Shorter periods are not told apart by poll(2) anyway.
const SHORTEST: Duration = Duration::from_millis(1);

impl Source for Moments {
    fn due(&self) -> Option<Instant> {
        let due = self.all.iter().filter_map(|moment| moment.due).min();
        // What another counting makes due is found by a look at once.
        if self.is_new() {
            Some(Instant::now())
        } else {
            due
        }
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        self.passed(Instant::now(), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_again_and_are_counted_once_a_look() {
        let events = ["time:10ms", "crash", "time:25ms"].map(|t| t.parse().expect("an event"));
        let windows = Arc::new(Windows::new(None));
        windows.begin();
        let start = windows.counting().others.expect("it has begun");
        let mut moments = Moments::new(&Armed::new(&[], &events, &[], 1), windows, Arc::default());
        let at = |ms| start + Duration::from_millis(ms);
        let mut seen = |now| {
            let mut found = Vec::new();
            moments.passed(now, &mut found);
            let events: Vec<_> = found.iter().map(|o| o.event).collect();
            (events, moments.due())
        };
        assert_eq!(seen(at(9)), (vec![], Some(at(10))));
        assert_eq!(seen(at(11)), (vec![0], Some(at(20))));
        assert_eq!(seen(at(26)), (vec![0, 2], Some(at(30))));
        assert_eq!(seen(at(99)), (vec![0, 2], Some(at(100))));
    }

    #[test]
    fn each_window_counts_from_its_beginning_and_the_next_from_the_end_of_the_last() {
        let start_on = ["time:10ms".parse().expect("an event")];
        let stop_on = ["time:5ms".parse().expect("an event")];
        let windows = Arc::new(Windows::new(Some(2)));
        windows.launched();
        let armed = Armed::new(&start_on, &[], &stop_on, 2);
        let mut moments = Moments::new(&armed, Arc::clone(&windows), Arc::default());
        let mut seen = |from: Option<Instant>, ms| {
            let mut found = Vec::new();
            let now = from.expect("it counts") + Duration::from_millis(ms);
            moments.passed(now, &mut found);
            found.iter().map(|o| o.event).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            let from = windows.counting().starts;
            assert_eq!(seen(from, 9), []);
            assert_eq!(seen(from, 11), [0]);
            windows.start(0);
            assert_eq!(seen(from, 40), []);
            windows.begin();
            let from = windows.counting().others;
            assert_eq!(seen(from, 4), []);
            assert_eq!(seen(from, 6), [1]);
            windows.stop(0);
            assert!(windows.is_ending() || windows.would_start() == crate::windows::Start::UsedUp);
            windows.wait_again(0);
        }
    }
}
