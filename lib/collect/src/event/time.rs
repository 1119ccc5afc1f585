//! The source of moments: `time:DURATION`.
//!
//! Given the recording's start, or who tells it; an event happens each time that its duration has passed since
//! then. Those that begin the recording count from the command's start.

use super::{Armed, Occurrence, Reaction, Source, What};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

struct Moment {
    event: usize,
    period: Duration,
    due: Option<Instant>,
}

/// All moments of a recording.
pub struct Moments {
    all: Vec<Moment>,
    /// Of which those are due that wait for it.
    begun: Arc<OnceLock<Instant>>,
    has_begun: bool,
}

impl Moments {
    /// Those of `armed`: the ones that begin the recording counted from `start`, the others from its
    /// beginning, which `begun` will say.
    pub fn new(armed: &Armed, start: Instant, begun: Arc<OnceLock<Instant>>) -> Self {
        let moment = |(event, what): (usize, &super::Event)| {
            let What::Time(period) = what.what else {
                return None;
            };
            let is_start = armed.reaction(event) == Some(Reaction::Start);
            let due = is_start.then(|| start.checked_add(period)).flatten();
            Some(Moment { event, period, due })
        };
        Self {
            all: armed.iter().filter_map(moment).collect(),
            begun,
            has_begun: false,
        }
    }

    fn begin(&mut self) {
        if let (Some(begun), false) = (self.begun.get(), self.has_begun) {
            self.has_begun = true;
            for moment in self.all.iter_mut().filter(|m| m.due.is_none()) {
                moment.due = begun.checked_add(moment.period);
            }
        }
    }

    /// Those that have come by `now`.
    fn passed(&mut self, now: Instant, found: &mut Vec<Occurrence>) {
        self.begin();
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
        // What the beginning makes due is found by a look at once.
        let is_new = !self.has_begun && self.begun.get().is_some();
        if is_new { Some(Instant::now()) } else { due }
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
        let start = Instant::now();
        let begun = Arc::new(OnceLock::from(start));
        let mut moments = Moments::new(&Armed::new(&[], &events, &[], 1), start, begun);
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
    fn what_ends_a_recording_counts_from_its_beginning() {
        let start_on = ["time:10ms".parse().expect("an event")];
        let stop_on = ["time:5ms".parse().expect("an event")];
        let start = Instant::now();
        let begun = Arc::new(OnceLock::new());
        let armed = Armed::new(&start_on, &[], &stop_on, 1);
        let mut moments = Moments::new(&armed, start, Arc::clone(&begun));
        let at = |ms| start + Duration::from_millis(ms);
        let mut seen = |now| {
            let mut found = Vec::new();
            moments.passed(now, &mut found);
            found.iter().map(|o| o.event).collect::<Vec<_>>()
        };
        assert_eq!(seen(at(9)), []);
        assert_eq!(seen(at(11)), [0]);
        begun.set(at(12)).expect("once");
        assert_eq!(seen(at(16)), []);
        assert_eq!(seen(at(18)), [1]);
    }
}
