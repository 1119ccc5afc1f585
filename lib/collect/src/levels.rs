//! Which functions are called so often that their calls are counted, not recorded.
//!
//! Given how often functions were called in an interval, recorded or counted; says whose level is
//! to change, and repeats a wish while the calls of a function that is to be counted are recorded
//! still: some of its call sites may have been reached since. A function is recorded again when it
//! has been quiet for a while, at a quarter of the limit. Where short functions alone are counted,
//! it is also recorded again for a moment now and then, to be measured. Must not know how that is
//! done, and what the functions are.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sptrace_trace::{FunctionId, Level};

/// Of the limit: a function below it is quiet.
const QUIET: u64 = 4;
/// For so long it must be quiet.
pub(crate) const QUIET_TIME: Duration = Duration::from_millis(500);
/// Where rates change, a function that was hot again soon must be quiet for twice as long the next
/// time, up to this.
const LONGEST_QUIET_TIME: Duration = Duration::from_secs(64);
/// Soon: within so many times the time for which it was quiet.
const SOON: u32 = 4;
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
    /// How many of those that were recorded have lasted so many ticks, where that is measured.
    pub measured: u64,
    /// See there.
    pub ticks: u64,
}

impl Called {
    /// Known to last less than so many ticks, on average. What was not measured may be long.
    fn is_shorter_than(&self, ticks: u64) -> bool {
        self.measured * 10 >= self.recorded * 9 && self.ticks / self.measured.max(1) < ticks
    }
}

/// By which a function's level changes, in calls a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// One that is recorded more often is counted.
    pub hot_per_s: u64,
    /// One that is counted less often is quiet.
    pub quiet_per_s: u64,
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

/// When what was wished and is not done yet is wished again: after one look, two, four and so on.
#[derive(Default)]
pub(crate) struct Patience {
    /// Looks until then, and how many it was last.
    wait: u32,
    waited: u32,
}

impl Patience {
    /// One more look.
    pub(crate) fn passes(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// True if it is time.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.wait > 0 {
            return false;
        }
        self.waited = (self.waited * 2).clamp(2, LONGEST_WAIT);
        self.wait = self.waited;
        true
    }
}

/// A function that is counted.
#[derive(Default)]
struct Counted {
    patience: Patience,
    quiet: Duration,
    /// So long it must be quiet, or where short functions alone are counted: counted.
    hold: Duration,
    /// So long it has been counted.
    age: Duration,
    /// A payload bids that its calls are not even that.
    is_off: bool,
}

/// A function that was counted, and is recorded again.
struct Returned {
    /// So long it was quiet, and so long ago.
    hold: Duration,
    since: Duration,
}

/// Watches the rates of functions.
pub struct Governor {
    rates: Rates,
    counted: HashMap<Function, Counted>,
    /// Were counted, and are to be recorded again.
    returning: HashMap<Function, Patience>,
    /// Where the rates change.
    returned: Option<HashMap<Function, Returned>>,
    /// Functions whose calls last so many ticks on average are not counted.
    long_ticks: Option<u64>,
    stubborn: HashSet<Function>,
    /// A payload bids that they are counted, however often they are called, or `true`: off.
    bidden: HashMap<FunctionId, bool>,
    /// No others are.
    counts_bidden_alone: bool,
}

impl Governor {
    /// Functions that are called more often a second are counted.
    pub fn new(limit_per_s: u64) -> Self {
        Self::by(Rates {
            hot_per_s: limit_per_s,
            quiet_per_s: limit_per_s / QUIET,
        })
    }

    /// Rates are said before each look ([`Self::set_rates`]). Functions that are hot again as soon
    /// as they are recorded come back later and later.
    pub fn with_changing_rates() -> Self {
        Self {
            returned: Some(HashMap::new()),
            ..Self::by(Rates {
                hot_per_s: u64::MAX,
                quiet_per_s: 0,
            })
        }
    }

    /// Functions that are called more often a second, and whose calls last less than so many ticks
    /// on average, are counted. They are measured again later and later.
    pub fn of_short(limit_per_s: u64, long_ticks: u64) -> Self {
        Self {
            returned: Some(HashMap::new()),
            long_ticks: Some(long_ticks),
            ..Self::new(limit_per_s)
        }
    }

    fn by(rates: Rates) -> Self {
        Self {
            rates,
            counted: HashMap::new(),
            returning: HashMap::new(),
            returned: None,
            long_ticks: None,
            stubborn: HashSet::new(),
            bidden: HashMap::new(),
            counts_bidden_alone: false,
        }
    }

    /// Payloads alone say which functions are counted.
    pub fn bidden() -> Self {
        Self {
            counts_bidden_alone: true,
            ..Self::by(Rates {
                hot_per_s: u64::MAX,
                quiet_per_s: 0,
            })
        }
    }

    /// A payload bids that the calls of a function are counted, or off, or as those of any other.
    pub fn bid(&mut self, function: FunctionId, level: Level) {
        match level {
            Level::Counted | Level::Off => {
                self.bidden.insert(function, level == Level::Off);
            }
            Level::Recorded | Level::Plain => {
                self.bidden.remove(&function);
            }
            // No payload can bid that.
            Level::InOrder => {}
        }
    }

    /// What was bidden is to be done in a process.
    pub fn bid_now(&mut self, function: Function, level: Level, wishes: &mut Vec<Wish>) {
        match level {
            Level::Counted | Level::Off => match self.counted.get_mut(&function) {
                None => self.count(function, wishes),
                Some(counted) if counted.is_off != (level == Level::Off) => {
                    counted.is_off = level == Level::Off;
                    wishes.push(Wish {
                        function,
                        level,
                        is_repeated: false,
                    });
                }
                Some(_) => {}
            },
            Level::Recorded | Level::Plain if self.counted.contains_key(&function) => {
                self.let_return(function, wishes);
            }
            _ => {}
        }
    }

    /// By these rates from here on.
    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// True if calls of some functions are counted, or were, and may be still.
    pub fn may_count(&self) -> bool {
        !self.counted.is_empty() || !self.returning.is_empty()
    }

    /// Functions that are to be counted, and are recorded too often still.
    pub fn stubborn(&self) -> &HashSet<Function> {
        &self.stubborn
    }

    /// So many calls in this time are the limit.
    fn limit_in(&self, time: Duration) -> u64 {
        calls_in(self.rates.hot_per_s, time)
    }

    /// Fewer calls in this time are quiet.
    pub fn quiet_in(&self, time: Duration) -> u64 {
        calls_in(self.rates.quiet_per_s, time)
    }

    /// Takes what was called in the time since the last look, and says what follows. What comes
    /// late may have been called over a longer time: `times` has that, by process. `bound`
    /// functions stay counted: they are called at sites where hot ones are, and counted there.
    pub fn look(
        &mut self,
        time: Duration,
        times: &HashMap<u32, Duration>,
        called: &HashMap<Function, Called>,
        bound: &HashSet<Function>,
    ) -> Vec<Wish> {
        let mut wishes = Vec::new();
        for (function, calls) in called {
            if calls.counted != 0 {
                self.adopt(*function, &mut wishes);
            }
        }
        for returned in self.returned.iter_mut().flat_map(HashMap::values_mut) {
            returned.since += time;
        }
        let all = self.counted.values_mut().map(|c| &mut c.patience);
        all.chain(self.returning.values_mut())
            .for_each(Patience::passes);
        let is_hot = |function: &Function, calls: &Called| {
            let longer = times.get(&function.0).copied().unwrap_or_default();
            let returns = self.returning.contains_key(function);
            let is_short = |long| calls.is_shorter_than(long);
            calls.recorded > self.limit_in(time.max(longer)) && self.long_ticks.is_none_or(is_short)
                || calls.recorded > 0 && self.bidden.contains_key(&function.1)
                || returns && self.long_ticks.is_none() && calls.counted > self.limit_in(time)
                || returns && bound.contains(function)
        };
        let hot = called.iter().filter(|(f, calls)| is_hot(f, calls));
        let hot: Vec<Function> = hot.map(|(function, _)| *function).collect();
        self.stubborn.clear();
        for function in &hot {
            self.is_hot(*function, &mut wishes);
        }
        for (function, patience) in &mut self.returning {
            let counted = called.get(function).map_or(0, |calls| calls.counted);
            if counted != 0 && patience.is_over() {
                wishes.push(Wish {
                    function: *function,
                    level: Level::Recorded,
                    is_repeated: true,
                });
            }
        }
        let bidden = self.bidden.clone();
        let stays = |function: &Function| {
            hot.contains(function) || bound.contains(function) || bidden.contains_key(&function.1)
        };
        self.let_quiet_return(time, called, &stays, &mut wishes);
        wishes.sort_by_key(|wish| wish.function);
        wishes
    }

    /// Functions that have been quiet long enough are recorded again.
    fn let_quiet_return(
        &mut self,
        time: Duration,
        called: &HashMap<Function, Called>,
        stays: &dyn Fn(&Function) -> bool,
        wishes: &mut Vec<Wish>,
    ) {
        let quiet = self.quiet_in(time);
        let mut again = Vec::new();
        for (function, counted) in &mut self.counted {
            let calls = called.get(function).map_or(0, |calls| calls.counted);
            let may_return = !stays(function);
            counted.quiet = match calls < quiet && may_return {
                true => counted.quiet + time,
                false => Duration::ZERO,
            };
            if may_return {
                counted.age += time;
            }
            let is_old = may_return && counted.age >= counted.hold;
            let is_measured_again = self.long_ticks.is_some() && is_old;
            if counted.quiet >= counted.hold || is_measured_again {
                again.push(*function);
            }
        }
        for function in again {
            self.let_return(function, wishes);
        }
    }

    /// A function that is counted is recorded again.
    fn let_return(&mut self, function: Function, wishes: &mut Vec<Wish>) {
        let hold = self
            .counted
            .remove(&function)
            .map_or(QUIET_TIME, |c| c.hold);
        if let Some(returned) = &mut self.returned {
            let since = Duration::ZERO;
            returned.insert(function, Returned { hold, since });
        }
        let mut patience = Patience::default();
        patience.is_over();
        self.returning.insert(function, patience);
        wishes.push(Wish {
            function,
            level: Level::Recorded,
            is_repeated: false,
        });
    }

    /// A function is counted somewhere: if nobody wished that here, a process has it from the one
    /// that it was forked from, or it is called where a hot one is.
    pub fn adopt(&mut self, function: Function, wishes: &mut Vec<Wish>) {
        if self.counted.contains_key(&function) || self.returning.contains_key(&function) {
            return;
        }
        match self.counts_bidden_alone && !self.bidden.contains_key(&function.1) {
            true => self.let_return(function, wishes),
            false => self.count(function, wishes),
        }
    }

    fn is_hot(&mut self, function: Function, wishes: &mut Vec<Wish>) {
        if self.counted.contains_key(&function) && !self.bidden.contains_key(&function.1) {
            self.stubborn.insert(function);
        }
        self.count(function, wishes);
    }

    fn count(&mut self, function: Function, wishes: &mut Vec<Wish>) {
        self.returning.remove(&function);
        let is_repeated = self.counted.contains_key(&function);
        let returned = self.returned.as_mut().and_then(|r| r.remove(&function));
        let counted = self.counted.entry(function).or_default();
        if !is_repeated {
            let soon = returned.filter(|r| r.since < r.hold * SOON);
            counted.hold = soon.map_or(QUIET_TIME, |r| (r.hold * 2).min(LONGEST_QUIET_TIME));
        }
        counted.is_off = self.bidden.get(&function.1).copied().unwrap_or(false);
        if counted.patience.is_over() {
            wishes.push(Wish {
                function,
                level: match counted.is_off {
                    true => Level::Off,
                    false => Level::Counted,
                },
                is_repeated,
            });
        }
    }

    /// It is off in a process that was forked from one in which it is.
    pub fn inherit_off(&mut self, function: Function) {
        let counted = self.counted.entry(function).or_default();
        counted.is_off = true;
        counted.hold = QUIET_TIME;
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.counted.retain(|(of, _), _| *of != pid);
        self.returning.retain(|(of, _), _| *of != pid);
        if let Some(returned) = &mut self.returned {
            returned.retain(|(of, _), _| *of != pid);
        }
    }
}

/// So many calls make this rate in such a time.
fn calls_in(per_s: u64, time: Duration) -> u64 {
    let calls = u128::from(per_s) * time.as_micros() / 1_000_000;
    u64::try_from(calls).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Function = (7, FunctionId(3));
    const SECOND: Duration = Duration::from_secs(1);

    fn called(recorded: u64, counted: u64) -> HashMap<Function, Called> {
        let called = Called {
            recorded,
            counted,
            ..Called::default()
        };
        HashMap::from([(F, called)])
    }

    fn levels(wishes: &[Wish]) -> Vec<(Level, bool)> {
        wishes.iter().map(|w| (w.level, w.is_repeated)).collect()
    }

    fn look(governor: &mut Governor, recorded: u64, counted: u64) -> Vec<(Level, bool)> {
        look_bound(governor, (recorded, counted), &HashSet::new())
    }

    fn look_bound(
        governor: &mut Governor,
        (recorded, counted): (u64, u64),
        bound: &HashSet<Function>,
    ) -> Vec<(Level, bool)> {
        let called = called(recorded, counted);
        levels(&governor.look(SECOND, &HashMap::new(), &called, bound))
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
        assert_eq!(look(&mut governor, 249, 0), []);
        assert_eq!(look(&mut governor, 1001, 0), [(Level::Counted, false)]);
    }

    #[test]
    fn that_a_function_is_to_be_recorded_again_is_repeated_while_it_is_counted() {
        let mut governor = Governor::new(1000);
        look(&mut governor, 1001, 0);
        assert_eq!(look(&mut governor, 0, 0), [(Level::Recorded, false)]);
        let looks: Vec<usize> = (0..100)
            .filter(|_| look(&mut governor, 0, 100) == [(Level::Recorded, true)])
            .collect();
        assert_eq!(looks[..4], [1, 5, 13, 29]);
        // Hot before it was recorded again: it is to be counted from now on.
        assert_eq!(look(&mut governor, 0, 1001), [(Level::Counted, false)]);
        assert!(governor.stubborn().is_empty());
    }

    #[test]
    fn a_function_that_is_counted_unasked_is_taken_up_and_recorded_when_quiet() {
        let mut governor = Governor::new(1000);
        assert_eq!(look(&mut governor, 0, 600), [(Level::Counted, false)]);
        assert_eq!(look(&mut governor, 0, 600), []);
        assert_eq!(look(&mut governor, 0, 10), [(Level::Recorded, false)]);
        governor.forget(F.0);
        assert!(!governor.may_count());
    }

    #[test]
    fn a_hot_function_that_is_short_is_counted_and_measured_again_later_and_later() {
        let mut governor = Governor::of_short(1000, 50);
        let mut look = |recorded, measured, ticks, counted| {
            let calls = Called {
                recorded,
                counted,
                measured,
                ticks,
            };
            let called = HashMap::from([(F, calls)]);
            levels(&governor.look(SECOND / 10, &HashMap::new(), &called, &HashSet::new()))
        };
        // Long, not measured, or seldom called.
        assert_eq!(look(5000, 5000, 5000 * 50, 0), []);
        assert_eq!(look(5000, 4000, 4000, 0), []);
        assert_eq!(look(100, 100, 100, 0), []);
        let mut waits = Vec::new();
        for _ in 0..3 {
            assert_eq!(look(5000, 4900, 4900, 0), [(Level::Counted, false)]);
            let wait = (1..).find(|_| !look(0, 0, 0, 9000).is_empty());
            waits.push(wait);
            // Its calls are still counted until that is carried out, which is asked for again.
            let again = look(0, 0, 0, 9000);
            assert!(again.iter().all(|wish| *wish == (Level::Recorded, true)));
        }
        assert_eq!(waits, [Some(5), Some(10), Some(20)]);
        // Measured again, it is long: so it stays recorded.
        assert_eq!(look(5000, 5000, 5000 * 60, 0), []);
    }

    #[test]
    fn a_function_at_a_hot_site_stays_counted() {
        let mut governor = Governor::new(1000);
        let bound = HashSet::from([F]);
        assert_eq!(
            look(&mut governor, 0, 10),
            [(Level::Counted, false), (Level::Recorded, false)]
        );
        assert_eq!(
            look_bound(&mut governor, (0, 10), &bound),
            [(Level::Counted, false)]
        );
        for _ in 0..10 {
            assert_eq!(look_bound(&mut governor, (0, 10), &bound), []);
        }
        assert_eq!(look(&mut governor, 0, 10), [(Level::Recorded, false)]);
    }

    #[test]
    fn what_comes_late_was_called_over_a_longer_time() {
        let mut governor = Governor::new(1000);
        let times = HashMap::from([(F.0, 3 * SECOND)]);
        let none = HashSet::new();
        let mut looks = |recorded| {
            let called = called(recorded, 0);
            governor.look(SECOND, &times, &called, &none).len()
        };
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
    fn with_changing_rates_what_is_hot_again_soon_comes_back_later_and_later() {
        let mut governor = Governor::with_changing_rates();
        let (hot, quiet) = (
            Rates {
                hot_per_s: 1000,
                quiet_per_s: 0,
            },
            Rates {
                hot_per_s: 1000,
                quiet_per_s: 5000,
            },
        );
        let mut waits = Vec::new();
        for _ in 0..4 {
            governor.set_rates(hot);
            assert_eq!(look(&mut governor, 2000, 0), [(Level::Counted, false)]);
            assert_eq!(look(&mut governor, 0, 2000), [], "no room for it");
            governor.set_rates(quiet);
            waits.push((1..).find(|_| !look(&mut governor, 0, 2000).is_empty()));
        }
        assert_eq!(waits, [Some(1), Some(1), Some(2), Some(4)]);
        // Once it has been recorded for long it is as any other.
        for _ in 0..17 {
            look(&mut governor, 500, 0);
        }
        governor.set_rates(hot);
        look(&mut governor, 2000, 0);
        governor.set_rates(quiet);
        assert_eq!(look(&mut governor, 0, 2000), [(Level::Recorded, false)]);
    }
}
