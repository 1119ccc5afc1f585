//! Sites of calls through pointers whose calls are counted, or recorded in order.
//!
//! Given a sample of the calls that are recorded at each site, and what was counted there; says of
//! which sites the calls are to be counted, and of which they are to be recorded again. Must not
//! know how that is done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::levels::{Function, Patience, QUIET_TIME};

/// A site of calls through a pointer: its process, and its id.
pub type Site = (u32, u64);

/// Sites of calls through pointers: which are to be counted, by a sample of the calls that are
/// recorded, and which are to be recorded again.
#[derive(Default)]
pub struct Sites {
    /// Calls, and those of stubborn functions among them.
    seen: HashMap<Site, (u32, u32)>,
    wished: HashMap<Site, Patience>,
    counted: HashMap<Site, CountedSite>,
}

/// A site that was seen to be counted.
#[derive(Default)]
struct CountedSite {
    quiet: Duration,
    /// It is to be recorded again.
    is_released: bool,
}

impl Sites {
    /// A process has ended: by its number of the recording, which no other will have.
    pub fn forget(&mut self, process: u32) {
        self.seen.retain(|(of, _), _| *of != process);
        self.wished.retain(|(of, _), _| *of != process);
        self.counted.retain(|(of, _), _| *of != process);
    }

    /// How many sites there is something known of.
    #[cfg(test)]
    fn known(&self) -> usize {
        self.seen.len() + self.wished.len() + self.counted.len()
    }

    /// A call.
    pub fn add(&mut self, site: Site, is_stubborn: bool) {
        let (calls, stubborn) = self.seen.entry(site).or_default();
        *calls += 1;
        *stubborn += u32::from(is_stubborn);
    }

    /// Sites whose calls are nearly all of such functions. They are named again from time to time
    /// while that is so. The sample begins anew.
    pub fn take(&mut self) -> Vec<Site> {
        const LEAST_CALLS: u32 = 64;
        let seen = std::mem::take(&mut self.seen).into_iter();
        let is_hot = |&(calls, stubborn): &(u32, u32)| {
            calls >= LEAST_CALLS && u64::from(stubborn) * 10 >= u64::from(calls) * 9
        };
        self.wished.values_mut().for_each(Patience::passes);
        let hot = seen.filter(|(_, calls)| is_hot(calls));
        let mut hot: Vec<_> = hot.map(|(site, _)| site).collect();
        hot.retain(|site| self.wished.entry(*site).or_default().is_over());
        hot.sort_unstable();
        hot
    }

    /// Takes what was counted at which sites in the time since the last look, with calls fewer than
    /// `quiet` being quiet. Gives the functions that are called at sites that are not, and the
    /// sites that have been quiet for long, which are to be recorded again.
    pub fn look(
        &mut self,
        time: Duration,
        quiet: u64,
        calls: &[(Site, Function, u64)],
    ) -> (HashSet<Function>, Vec<Site>) {
        let mut sums: HashMap<Site, u64> = HashMap::new();
        for (site, _, calls) in calls {
            *sums.entry(*site).or_default() += calls;
            self.counted.entry(*site).or_default();
        }
        let mut again = Vec::new();
        for (site, state) in &mut self.counted {
            let calls = sums.get(site).copied().unwrap_or(0);
            state.is_released &= calls == 0;
            state.quiet = match calls < quiet {
                true => state.quiet + time,
                false => Duration::ZERO,
            };
            if state.quiet >= QUIET_TIME && !state.is_released {
                *state = CountedSite {
                    quiet: Duration::ZERO,
                    is_released: true,
                };
                self.wished.remove(site);
                again.push(*site);
            }
        }
        let is_bound =
            |(site, _, calls): &&(Site, Function, u64)| *calls != 0 && sums[site] >= quiet;
        let bound = calls.iter().filter(is_bound).map(|(_, f, _)| *f);
        again.sort_unstable();
        (bound.collect(), again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_trace::FunctionId;

    const F: Function = (7, FunctionId(3));
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_site_is_hot_if_nearly_all_of_its_calls_are() {
        let mut sites = Sites::default();
        for call in 0..100 {
            sites.add((1, 0x10), call % 10 != 0);
            sites.add((1, 0x20), call % 9 != 0);
        }
        (0..63).for_each(|_| sites.add((1, 0x30), true));
        assert_eq!(sites.take(), [(1, 0x10)]);
        let mut again = || {
            (0..100).for_each(|_| sites.add((1, 0x10), true));
            sites.take().len()
        };
        assert_eq!(
            (again(), again(), again()),
            (0, 1, 0),
            "again while it is so, but not always"
        );
    }

    #[test]
    fn a_site_that_is_quiet_is_recorded_again_and_binds_nothing() {
        let (site, other) = ((1, 0x10), (7, FunctionId(4)));
        let mut sites = Sites::default();
        let calls = |hot, quiet| vec![(site, F, hot), (site, other, quiet)];
        let (bound, again) = sites.look(SECOND, 100, &calls(99, 1));
        assert_eq!((bound, again), (HashSet::from([F, other]), vec![]));
        let (bound, again) = sites.look(SECOND, 100, &calls(100, 0));
        assert_eq!((bound, again), (HashSet::from([F]), vec![]));
        assert_eq!(
            sites.look(SECOND, 100, &calls(98, 1)),
            (HashSet::new(), vec![site])
        );
        assert_eq!(
            sites.look(SECOND, 100, &calls(0, 0)),
            (HashSet::new(), vec![]),
            "done"
        );
        assert_eq!(
            sites.look(SECOND, 100, &calls(1, 0)),
            (HashSet::new(), vec![site]),
            "not done"
        );
    }

    #[test]
    fn nothing_is_kept_of_the_sites_of_a_process_that_has_ended() {
        let mut sites = Sites::default();
        for process in 0..5000 {
            let site = (process, 0x77);
            (0..64).for_each(|_| sites.add(site, true));
            assert_eq!(sites.take(), [site]);
            sites.add(site, true);
            sites.look(SECOND, 100, &[(site, (process, F.1), 1000)]);
            assert_eq!(sites.known(), 3);
            sites.forget(process);
        }
        assert_eq!(sites.known(), 0);
    }
}
