//! Which functions are called so often that their calls are counted, not recorded.
//!
//! Given how often functions were called in an interval, recorded or counted; says whose level is
//! to change, and repeats a wish while the calls of a function that is to be counted are recorded
//! still: some of its call sites may have been reached since. A function is recorded again when it
//! has been quiet for a while, at a quarter of the limit. Must not know how that is done, and what
//! the functions are.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sptrace_trace::{FunctionId, Level};

/// Of the limit: a function below it is quiet.
const QUIET: u64 = 4;
/// For so long it must be quiet.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// A wish is repeated after one look, two, four and so on, up to so many.
const LONGEST_WAIT: u32 = 256;

/// A function of a process.
pub type Function = (u32, FunctionId);

/// How often a function was called since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Called {
    /// Calls that were recorded.
    pub recorded: u64,
    /// Calls that were counted.
    pub counted: u64,
}

/// What is to be done about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// It.
    pub function: Function,
    /// What its level is from now on.
    pub level: Level,
    /// It was wished before.
    pub is_repeated: bool,
}

/// A function that is counted.
#[derive(Default)]
struct Counted {
    /// Looks until the wish is repeated, and how many it was last.
    wait: u32,
    waited: u32,
    quiet: Duration,
}

/// Watches the rates of functions.
pub struct Governor {
    limit_per_s: u64,
    counted: HashMap<Function, Counted>,
    stubborn: HashSet<Function>,
}

impl Governor {
    /// Functions that are called more often a second are counted.
    pub fn new(limit_per_s: u64) -> Self {
        Self {
            limit_per_s,
            counted: HashMap::new(),
            stubborn: HashSet::new(),
        }
    }

    /// True if the calls of some functions are counted.
    pub fn counts_any(&self) -> bool {
        !self.counted.is_empty()
    }

    /// Functions that are to be counted, and are recorded too often still.
    pub fn stubborn(&self) -> &HashSet<Function> {
        &self.stubborn
    }

    /// Takes what was called in the time since the last look, and says what follows. What comes
    /// late may have been called over a longer time: `times` has that, by process.
    pub fn look(
        &mut self,
        time: Duration,
        times: &HashMap<u32, Duration>,
        called: &HashMap<Function, Called>,
    ) -> Vec<Wish> {
        let limit_in = |time: Duration| {
            let limit = u128::from(self.limit_per_s) * time.as_micros() / 1_000_000;
            u64::try_from(limit).unwrap_or(u64::MAX)
        };
        let hot: Vec<Function> = called
            .iter()
            .filter(|((pid, _), calls)| {
                let longer = times.get(pid).copied().unwrap_or_default();
                calls.recorded > limit_in(time.max(longer))
            })
            .map(|(function, _)| *function)
            .collect();
        let quiet = limit_in(time) / QUIET;
        let mut wishes = Vec::new();
        self.stubborn.clear();
        for function in &hot {
            self.is_hot(*function, &mut wishes);
        }
        let mut again = Vec::new();
        for (function, counted) in &mut self.counted {
            counted.wait = counted.wait.saturating_sub(1);
            let calls = called.get(function).copied().unwrap_or_default();
            let is_quiet = calls.counted < quiet && !hot.contains(function);
            counted.quiet = match is_quiet {
                true => counted.quiet + time,
                false => Duration::ZERO,
            };
            if counted.quiet >= QUIET_TIME {
                again.push(*function);
            }
        }
        for function in again {
            self.counted.remove(&function);
            wishes.push(Wish {
                function,
                level: Level::Recorded,
                is_repeated: false,
            });
        }
        wishes.sort_by_key(|wish| wish.function);
        wishes
    }

    fn is_hot(&mut self, function: Function, wishes: &mut Vec<Wish>) {
        let is_repeated = self.counted.contains_key(&function);
        let counted = self.counted.entry(function).or_default();
        if is_repeated {
            self.stubborn.insert(function);
        }
        if counted.wait > 0 {
            return;
        }
        counted.waited = (counted.waited * 2).clamp(2, LONGEST_WAIT);
        counted.wait = counted.waited;
        wishes.push(Wish {
            function,
            level: Level::Counted,
            is_repeated,
        });
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.counted.retain(|(of, _), _| *of != pid);
    }
}

/// Sites of calls through pointers, in a sample of the calls.
#[derive(Default)]
pub struct Sites {
    /// By process and id: calls, and those of stubborn functions among them.
    seen: HashMap<(u32, u64), (u32, u32)>,
    done: HashSet<(u32, u64)>,
}

impl Sites {
    /// A call.
    pub fn add(&mut self, site: (u32, u64), is_stubborn: bool) {
        let (calls, stubborn) = self.seen.entry(site).or_default();
        *calls += 1;
        *stubborn += u32::from(is_stubborn);
    }

    /// Sites whose calls are nearly all of such functions, each once. The sample begins anew.
    pub fn take(&mut self) -> Vec<(u32, u64)> {
        const LEAST_CALLS: u32 = 64;
        let seen = std::mem::take(&mut self.seen).into_iter();
        let is_hot = |&(calls, stubborn): &(u32, u32)| {
            calls >= LEAST_CALLS && u64::from(stubborn) * 10 >= u64::from(calls) * 9
        };
        let hot = seen.filter(|(_, calls)| is_hot(calls));
        let mut hot: Vec<_> = hot.map(|(site, _)| site).collect();
        hot.retain(|site| self.done.insert(*site));
        hot.sort_unstable();
        hot
    }
}

/// How often functions were called since this was asked last.
#[derive(Default)]
pub struct Tally {
    pid: u32,
    /// Of the process `pid`.
    own: Calls,
    others: HashMap<u32, Calls>,
}

/// The calls of a process.
#[derive(Default)]
struct Calls {
    /// By the functions' numbers.
    calls: Vec<u32>,
    /// TSC of the first and the last of them.
    span: Option<(u64, u64)>,
}

impl Tally {
    /// The calls that come are of this process.
    pub fn turn_to(&mut self, pid: u32) {
        if pid == self.pid {
            return;
        }
        let next = self.others.remove(&pid).unwrap_or_default();
        let last = std::mem::replace(&mut self.own, next);
        self.others.insert(self.pid, last);
        self.pid = pid;
    }

    /// What comes next has happened from `first_tsc` to `last_tsc`.
    pub fn come_to(&mut self, first_tsc: u64, last_tsc: u64) {
        let (first, last) = self.own.span.unwrap_or((first_tsc, last_tsc));
        self.own.span = Some((first.min(first_tsc), last.max(last_tsc)));
    }

    /// A function was called.
    #[inline]
    pub fn add(&mut self, function: FunctionId) {
        let index = function.0 as usize;
        match self.own.calls.get_mut(index) {
            Some(calls) => *calls = calls.saturating_add(1),
            None => self.begin(index),
        }
    }

    #[inline(never)]
    fn begin(&mut self, index: usize) {
        self.own.calls.resize(index + 64, 0);
        self.own.calls[index] = 1;
    }

    /// What there is, which is none from here on, and over how many ticks it was called, by
    /// process.
    pub fn take(&mut self) -> (HashMap<Function, Called>, HashMap<u32, u64>) {
        let current = std::iter::once((&self.pid, &mut self.own));
        let (mut all, mut ticks) = (HashMap::new(), HashMap::new());
        for (pid, own) in current.chain(self.others.iter_mut()) {
            if let Some((first, last)) = own.span.take() {
                ticks.insert(*pid, last - first);
            }
            for (i, calls) in (0..)
                .zip(own.calls.iter_mut())
                .filter(|(_, calls)| **calls != 0)
            {
                let recorded = u64::from(std::mem::take(calls));
                let called = Called {
                    recorded,
                    counted: 0,
                };
                all.insert((*pid, FunctionId(i)), called);
            }
        }
        (all, ticks)
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.others.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Function = (7, FunctionId(3));
    const SECOND: Duration = Duration::from_secs(1);

    fn called(recorded: u64, counted: u64) -> HashMap<Function, Called> {
        HashMap::from([(F, Called { recorded, counted })])
    }

    fn levels(wishes: &[Wish]) -> Vec<(Level, bool)> {
        wishes.iter().map(|w| (w.level, w.is_repeated)).collect()
    }

    fn look(governor: &mut Governor, recorded: u64, counted: u64) -> Vec<(Level, bool)> {
        levels(&governor.look(SECOND, &HashMap::new(), &called(recorded, counted)))
    }

    #[test]
    fn a_hot_function_is_counted_until_it_has_been_quiet_for_a_while() {
        let mut governor = Governor::new(1000);
        assert_eq!(look(&mut governor, 1000, 0), []);
        assert_eq!(look(&mut governor, 1001, 0), [(Level::Counted, false)]);
        // Counted now, and as hot as before: nothing changes.
        for _ in 0..100 {
            assert_eq!(look(&mut governor, 0, 900_000), []);
        }
        assert_eq!(look(&mut governor, 0, 250), []);
        assert_eq!(look(&mut governor, 0, 249), [(Level::Recorded, false)]);
        assert!(!governor.counts_any());
    }

    #[test]
    fn what_comes_late_was_called_over_a_longer_time() {
        let mut governor = Governor::new(1000);
        let times = HashMap::from([(F.0, 3 * SECOND)]);
        let mut looks = |recorded| governor.look(SECOND, &times, &called(recorded, 0)).len();
        assert_eq!((looks(3000), looks(3001)), (0, 1));
    }

    #[test]
    fn a_wish_that_is_not_carried_out_is_repeated_less_and_less_often() {
        let mut governor = Governor::new(1000);
        let looks: Vec<usize> = (0..1000)
            .filter(|_| !look(&mut governor, 5000, 0).is_empty())
            .collect();
        assert_eq!(looks[..5], [0, 2, 6, 14, 30]);
        assert!(looks.len() < 14);
        assert!(governor.stubborn().contains(&F));
    }

    #[test]
    fn a_site_is_hot_if_nearly_all_of_its_calls_are() {
        let mut sites = Sites::default();
        for call in 0..100 {
            sites.add((1, 0x10), call % 10 != 0);
            sites.add((1, 0x20), call % 9 != 0);
        }
        (0..63).for_each(|_| sites.add((1, 0x30), true));
        assert_eq!(sites.take(), [(1, 0x10)]);
        (0..100).for_each(|_| sites.add((1, 0x10), true));
        assert_eq!(sites.take(), [], "once");
    }

    #[test]
    fn a_tally_keeps_processes_apart() {
        let mut tally = Tally::default();
        tally.turn_to(1);
        tally.come_to(100, 200);
        tally.add(FunctionId(100));
        tally.turn_to(2);
        tally.add(FunctionId(100));
        tally.turn_to(1);
        tally.come_to(150, 300);
        tally.add(FunctionId(100));
        let (all, ticks) = tally.take();
        assert_eq!(all[&(1, FunctionId(100))].recorded, 2);
        assert_eq!(all[&(2, FunctionId(100))].recorded, 1);
        assert_eq!(ticks, HashMap::from([(1, 200)]));
        assert!(tally.take().0.is_empty());
    }
}
