//! How much CPU time all processes of a recording use together.
//!
//! Given which processes there are, again and again, and what each has used so far; gives what was
//! used in between. A process that has ended between two looks hands what it has used over to the
//! one that waits for it, which is counted once. Must not know what the time is compared with.

use std::collections::HashMap;
use std::time::Duration;

use sptrace_tracee::proc::CpuTime;

/// What was known at the last look.
#[derive(Default)]
pub struct CpuTimes {
    known: HashMap<u32, CpuTime>,
    has_begun: bool,
    /// Was counted of processes that have gone since; who waits for them gets it once more.
    unsettled: Duration,
}

impl CpuTimes {
    /// What was used in the `elapsed` time since the last look, by these processes and by what they
    /// have waited for. `of`: what a process has used so far; `None`: it has ended.
    ///
    /// Of a process that is new at most `elapsed` counts: it may have run for long when it was
    /// attached to.
    pub fn since(
        &mut self,
        elapsed: Duration,
        pids: impl IntoIterator<Item = u32>,
        of: &dyn Fn(u32) -> Option<CpuTime>,
    ) -> Duration {
        let there = pids.into_iter().filter_map(|pid| Some((pid, of(pid)?)));
        let there: HashMap<u32, CpuTime> = there.collect();
        let (mut used, mut waited) = (Duration::ZERO, Duration::ZERO);
        for (pid, now) in &there {
            match self.known.get(pid) {
                Some(before) => {
                    used += now.own.saturating_sub(before.own);
                    waited += now.waited.saturating_sub(before.waited);
                }
                None if self.has_begun => used += now.own.min(elapsed),
                None => {}
            }
        }
        let gone = self
            .known
            .iter()
            .filter(|(pid, _)| !there.contains_key(pid));
        self.unsettled += gone
            .map(|(_, last)| last.own + last.waited)
            .sum::<Duration>();
        used += waited.saturating_sub(self.unsettled);
        self.unsettled = match waited.is_zero() {
            // Nobody waits for some.
            true => self.unsettled / 2,
            false => self.unsettled.saturating_sub(waited),
        };
        self.known = there;
        self.has_begun = true;
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn look(times: &mut CpuTimes, now: &[(u32, u64, u64)]) -> u64 {
        let all: HashMap<u32, CpuTime> = now
            .iter()
            .map(|&(pid, own, waited)| {
                let (own, waited) = (ms(own), ms(waited));
                (pid, CpuTime { own, waited })
            })
            .collect();
        let pids = all.keys().copied();
        let used = times.since(ms(100), pids, &|pid| all.get(&pid).copied());
        used.as_millis() as u64
    }

    #[test]
    fn what_was_used_before_the_first_look_does_not_count() {
        let mut times = CpuTimes::default();
        assert_eq!(look(&mut times, &[(1, 5000, 700)]), 0);
        assert_eq!(look(&mut times, &[(1, 5040, 700)]), 40);
        // One that is new may have been attached to.
        assert_eq!(look(&mut times, &[(1, 5040, 700), (2, 30, 0)]), 30);
        assert_eq!(
            look(&mut times, &[(1, 5040, 700), (2, 30, 0), (3, 9000, 0)]),
            100
        );
    }

    #[test]
    fn a_child_that_has_ended_counts_once() {
        let mut times = CpuTimes::default();
        look(&mut times, &[(1, 0, 0)]);
        assert_eq!(look(&mut times, &[(1, 10, 0), (2, 50, 0)]), 60);
        // It has used 20 ms more before its end.
        assert_eq!(look(&mut times, &[(1, 10, 70)]), 20);
        // One that was never seen.
        assert_eq!(look(&mut times, &[(1, 10, 100)]), 30);
    }

    #[test]
    fn a_child_that_nobody_waits_for_hides_little() {
        let mut times = CpuTimes::default();
        look(&mut times, &[(1, 0, 0)]);
        look(&mut times, &[(1, 0, 0), (2, 64, 0)]);
        for _ in 0..7 {
            assert_eq!(look(&mut times, &[(1, 0, 0)]), 0);
        }
        assert_eq!(look(&mut times, &[(1, 0, 50)]), 49);
    }
}
