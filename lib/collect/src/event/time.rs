//! The source of moments: `time:DURATION`.
//!
//! Given the recording's start; an event happens each time that its duration has passed since then.

use super::{Armed, Occurrence, Source, What};
use std::time::{Duration, Instant};

struct Moment {
    event: usize,
    period: Duration,
    due: Option<Instant>,
}

/// All moments of a recording.
pub struct Moments(Vec<Moment>);

impl Moments {
    /// Those of `armed`, counted from `start`.
    pub fn new(armed: &Armed, start: Instant) -> Self {
        let moment = |(event, what): (usize, &super::Event)| match what.what {
            What::Time(period) => Some(Moment {
                event,
                period,
                due: start.checked_add(period),
            }),
            _ => None,
        };
        Self(armed.iter().filter_map(moment).collect())
    }

    /// Those that have come by `now`.
    fn passed(&mut self, now: Instant, found: &mut Vec<Occurrence>) {
        for moment in &mut self.0 {
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
        self.0.iter().filter_map(|moment| moment.due).min()
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
        let mut moments = Moments::new(&Armed::new(&events, &[], 1), start);
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
}
