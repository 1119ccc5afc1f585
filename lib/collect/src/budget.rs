//! How often functions may be recorded, so that a recording costs no more than a share of the
//! program's CPU time, our own process included (`--budget`).
//!
//! Given what was used and called since the last look; gives the rates by which the governor
//! ([`crate::levels`]) lowers functions and lets them return, and keeps account of what was spent.
//! What a recorded call costs the program is measured once, on this machine; what it costs us is
//! measured all the time. Must not know what a function is called, nor how its level changes.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use crate::clock;
use crate::levels::{Called, Function, Rates};

/// A recorded call above two readings of the clock, and a counted one as a part of them: see the
/// measurements in `lib/agent/README.md` and `tests/bench/bench.py`.
const RECORDED: f64 = 1.15;
const COUNTED: f64 = 0.055;
/// The same of one that is recorded in order to be counted, and what it costs us (ns).
const COUNTED_IN_ORDER: f64 = 0.2;
const HOST_IN_ORDER_NS: f64 = 3.0;
/// What a recorded call costs our own process (ns): where it begins, and within which limits what
/// is measured is believed.
const HOST_NS: f64 = 16.0;
const HOST_LIMITS_NS: (f64, f64) = (8.0, 40.0);
/// From fewer recorded calls nothing is learnt of that.
const TELLING_CALLS: u64 = 50_000;
/// Over the budget, functions are lowered until so much of it is used,
const LOWER_TO: f64 = 0.8;
/// and they return as long as it stays below this.
const RAISE_TO: f64 = 0.7;
/// Whatever else costs us: so much of the budget is left for records.
const LEAST_FOR_RECORDS: f64 = 0.25;
/// A function that costs less than this part of the budget is never lowered for it, nor one that
/// is called less often than so many times a second: it may always return.
const SMALL: f64 = 1e-3;
const SELDOM_PER_S: u64 = 300;
/// From a look with less CPU time nothing follows, but that who is called seldom may return.
const TELLING_NS: f64 = 1e6;
/// What comes before is the start, which a steady state is not measured by: so long on the clock,
/// and so much CPU time of the program, unless it mostly sleeps.
const START: Duration = Duration::from_secs(1);
const START_OF_PROGRAM: Duration = Duration::from_millis(500);
const LONGEST_START: Duration = Duration::from_secs(10);

/// What a call costs the program above its own work, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// One that is recorded.
    pub recorded_ns: f64,
    /// One that is counted.
    pub counted_ns: f64,
    /// What it costs our own process.
    pub counted_host_ns: f64,
}

impl Prices {
    /// Of this machine, whose clock has so many ticks a second: by how long it takes to read it.
    /// `in_order`: calls that are counted are recorded in order for that.
    pub fn measured(tsc_hz: u64, in_order: bool) -> Self {
        const PAIRS: u64 = 200;
        let pair_ticks = (0..20).map(|_| {
            let begun = clock::tsc();
            for _ in 0..PAIRS {
                black_box(clock::tsc());
                black_box(clock::tsc());
            }
            clock::tsc() - begun
        });
        let ticks = pair_ticks.min().unwrap_or(0) as f64 / PAIRS as f64;
        let floor_ns = (ticks * 1e9 / tsc_hz.max(1) as f64).clamp(5.0, 500.0);
        let (counted, counted_host_ns) = match in_order {
            true => (COUNTED_IN_ORDER, HOST_IN_ORDER_NS),
            false => (COUNTED, 0.0),
        };
        Self {
            recorded_ns: floor_ns * RECORDED,
            counted_ns: floor_ns * counted,
            counted_host_ns,
        }
    }
}

/// What was used since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Time on the clock.
    pub elapsed: Duration,
    /// CPU time of the program.
    pub program: Duration,
    /// CPU time of our own process.
    pub own: Duration,
}

/// What was spent of a budget, in a recording's steady state: without its start, unless it was no
/// longer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The budget, as a share of the program's own CPU time.
    pub budget: f64,
    /// What was spent: our process's CPU time, and the calls at their prices.
    pub share: f64,
    /// Of that: what calls cost that were counted.
    pub by_counts: f64,
    /// Of that: what our process has used.
    pub by_host: f64,
    /// The recording was longer than its start.
    pub is_steady: bool,
}

/// Sums over looks, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Sums {
    native: f64,
    recorded: f64,
    counted: f64,
    host: f64,
}

/// A budget, and what was spent of it.
pub struct Budget {
    share: f64,
    prices: Prices,
    /// What a recorded call costs us.
    host_ns: f64,
    /// What else we use, in nanoseconds a nanosecond of the clock.
    beside: f64,
    ran: Duration,
    worked: Duration,
    at_start: Sums,
    steady: Sums,
    rates: Rates,
}

impl Budget {
    /// `share` of the program's own CPU time may be spent.
    pub fn new(share: f64, prices: Prices) -> Self {
        Self {
            share,
            prices,
            host_ns: HOST_NS,
            beside: 0.0,
            ran: Duration::ZERO,
            worked: Duration::ZERO,
            at_start: Sums::default(),
            steady: Sums::default(),
            rates: Rates {
                hot_per_s: u64::MAX,
                quiet_per_s: 0,
            },
        }
    }

    /// True if so many calls in this time are far too many, if the program uses one processor: then
    /// it should not be waited for longer.
    pub fn is_urgent(&self, calls: u64, elapsed: Duration) -> bool {
        let cost = calls as f64 * (self.prices.recorded_ns + self.host_ns);
        cost > 4.0 * self.share * elapsed.as_nanos() as f64
    }

    /// By which rates functions change their level from here on.
    pub fn look(&mut self, used: Used, called: &HashMap<Function, Called>) -> Rates {
        let sum = |of: fn(&Called) -> u64| called.values().map(of).sum::<u64>();
        let (recorded, counted) = (sum(|c| c.recorded), sum(|c| c.counted));
        let in_program = (
            recorded as f64 * self.prices.recorded_ns,
            counted as f64 * self.prices.counted_ns,
        );
        let (program, own) = (used.program.as_nanos() as f64, used.own.as_nanos() as f64);
        // Prices are means: what a program does is never nothing.
        let native = (program - in_program.0 - in_program.1).max(program / 20.0);
        self.ran += used.elapsed;
        self.worked += used.program;
        let has_started = self.worked > START_OF_PROGRAM || self.ran > LONGEST_START;
        let sums = match self.ran > START && has_started {
            true => &mut self.steady,
            false => &mut self.at_start,
        };
        sums.native += native;
        sums.recorded += in_program.0;
        sums.counted += in_program.1;
        sums.host += own;
        self.learn(used.elapsed, own, (recorded, counted));
        if program < TELLING_NS {
            self.rates.quiet_per_s = SELDOM_PER_S;
            return self.rates;
        }
        let budget = self.share * native;
        let beside = self.beside * used.elapsed.as_nanos() as f64;
        let for_records = (budget - in_program.1 - beside).max(budget * LEAST_FOR_RECORDS);
        self.rates = self.rates_for(for_records, budget, used.elapsed, called);
        self.rates
    }

    /// What our own process does for records, and what beside.
    fn learn(&mut self, elapsed: Duration, own: f64, (recorded, counted): (u64, u64)) {
        if recorded > TELLING_CALLS {
            let own = (own - counted as f64 * self.prices.counted_host_ns).max(0.0);
            let now = (own / recorded as f64).clamp(HOST_LIMITS_NS.0, HOST_LIMITS_NS.1);
            self.host_ns = self.host_ns * 0.8 + now * 0.2;
        }
        let beside = (own - recorded as f64 * self.host_ns).max(0.0);
        let now = beside / (elapsed.as_nanos() as f64).max(1.0);
        let weight = elapsed.as_secs_f64().min(0.5);
        self.beside = self.beside * (1.0 - weight) + now * weight;
    }

    /// The rates by which records cost so many nanoseconds in such a time, of a whole budget of
    /// `budget`.
    fn rates_for(
        &self,
        for_records: f64,
        budget: f64,
        elapsed: Duration,
        called: &HashMap<Function, Called>,
    ) -> Rates {
        let price = self.prices.recorded_ns + self.host_ns;
        let recorded = sorted(called, |c| c.recorded);
        let cost = recorded.iter().sum::<u64>() as f64 * price;
        let least = budget * SMALL / price;
        let (hot, quiet) = match cost > for_records {
            true => {
                let most = fitting(&recorded, for_records * LOWER_TO / price);
                ((most as f64).max(least), 0.0)
            }
            false => {
                let counted = sorted(called, |c| c.counted);
                let room = (for_records * RAISE_TO - cost) / price;
                // One more than the last that may return: a function below it is quiet.
                let most = fitting(&counted, room);
                let quiet = if room > 0.0 { most as f64 + 1.0 } else { 0.0 };
                // A function that begins to be called must not alone take all.
                (for_records.max(budget * SMALL) / price, quiet)
            }
        };
        let per_s = |calls: f64| (calls / elapsed.as_secs_f64().max(1e-3)) as u64;
        Rates {
            hot_per_s: per_s(hot).max(SELDOM_PER_S),
            quiet_per_s: per_s(quiet).max(SELDOM_PER_S),
        }
    }

    /// What was spent so far.
    pub fn spent(&self) -> Spent {
        let is_steady = self.steady.native > 0.0;
        let sums = match is_steady {
            true => &self.steady,
            false => &self.at_start,
        };
        let share = |ns: f64| match sums.native > 0.0 {
            true => ns / sums.native,
            false => 0.0,
        };
        Spent {
            budget: self.share,
            share: share(sums.recorded + sums.counted + sums.host),
            by_counts: share(sums.counted),
            by_host: share(sums.host),
            is_steady,
        }
    }
}

/// How often functions were called, the least often first.
fn sorted(called: &HashMap<Function, Called>, of: fn(&Called) -> u64) -> Vec<u64> {
    let mut all: Vec<u64> = called
        .values()
        .map(of)
        .filter(|calls| *calls != 0)
        .collect();
    all.sort_unstable();
    all
}

/// The most calls of one function, if those that are called as often or less make no more than so
/// many calls together.
fn fitting(sorted: &[u64], most_calls: f64) -> u64 {
    let mut sum = 0.0;
    let fits = sorted.iter().take_while(|calls| {
        sum += **calls as f64;
        sum <= most_calls
    });
    fits.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_trace::FunctionId;

    const PRICES: Prices = Prices {
        recorded_ns: 20.0,
        counted_ns: 1.0,
        counted_host_ns: 0.0,
    };

    fn used(program_ms: u64, own_ms: u64) -> Used {
        Used {
            elapsed: Duration::from_millis(1000),
            program: Duration::from_millis(program_ms),
            own: Duration::from_millis(own_ms),
        }
    }

    fn called(all: &[(u64, u64)]) -> HashMap<Function, Called> {
        let all = (0..).zip(all);
        all.map(|(i, &(recorded, counted))| {
            let calls = Called {
                recorded,
                counted,
                ..Called::default()
            };
            ((1, FunctionId(i)), calls)
        })
        .collect()
    }

    #[test]
    fn over_the_budget_the_most_called_functions_are_lowered_until_the_rest_fits() {
        let mut budget = Budget::new(0.05, PRICES);
        // 1 s: 50 ms may be spent, 40 ms are aimed at, 36 ns a call: 1.1 million calls.
        let calls = called(&[(3_000_000, 0), (900_000, 0), (90_000, 0), (10, 0)]);
        let rates = budget.look(used(1080, 64), &calls);
        assert_eq!(rates.hot_per_s, 900_000);
        assert_eq!(rates.quiet_per_s, SELDOM_PER_S);
    }

    #[test]
    fn functions_of_many_small_prices_are_lowered_down_to_a_least_one() {
        let mut budget = Budget::new(0.05, PRICES);
        let calls = called(&vec![(1000, 0); 4000]);
        let rates = budget.look(used(1080, 64), &calls);
        assert!(rates.hot_per_s > 0 && rates.hot_per_s < 2000, "{rates:?}");
    }

    #[test]
    fn below_the_budget_functions_return_that_have_room_in_it() {
        let mut budget = Budget::new(0.05, PRICES);
        let calls = called(&[(100_000, 0), (0, 5_000_000), (0, 400_000), (0, 50_000)]);
        let rates = budget.look(used(1000, 2), &calls);
        assert!(rates.hot_per_s > 500_000, "{rates:?}");
        assert!(
            (400_001..5_000_000).contains(&rates.quiet_per_s),
            "{rates:?}"
        );
    }

    #[test]
    fn counts_and_our_own_work_are_paid_from_the_budget_but_leave_a_part_for_records() {
        let mut budget = Budget::new(0.05, PRICES);
        let calls = called(&[(300_000, 0), (200_000, 100_000_000)]);
        let rates = budget.look(used(1100, 60), &calls);
        // 50 ms, of which the counts take 100: a quarter of it is left for records.
        assert_eq!(rates.hot_per_s, 200_000);
        let spent = budget.spent();
        assert!((0.09..0.11).contains(&spent.by_counts), "{spent:?}");
        assert!(spent.share > 0.15, "{spent:?}");
    }

    #[test]
    fn in_a_program_that_sleeps_only_who_is_called_seldom_returns() {
        let mut budget = Budget::new(0.05, PRICES);
        let calls = called(&[(3_000_000, 0), (1000, 0)]);
        let before = budget.look(used(1000, 2), &calls);
        let asleep = budget.look(used(0, 1), &called(&[(50, 0)]));
        assert_eq!(asleep.hot_per_s, before.hot_per_s);
        assert_eq!(asleep.quiet_per_s, SELDOM_PER_S);
    }

    #[test]
    fn the_start_does_not_count_once_there_is_more() {
        let mut budget = Budget::new(0.05, PRICES);
        budget.look(used(1000, 500), &called(&[]));
        assert!(budget.spent().share > 0.4 && !budget.spent().is_steady);
        budget.look(used(1000, 10), &called(&[]));
        let spent = budget.spent();
        assert!((0.009..0.011).contains(&spent.share) && spent.is_steady);
    }

    #[test]
    fn a_call_costs_tens_of_nanoseconds() {
        let prices = Prices::measured(clock::calibrate(5), false);
        assert!(prices.recorded_ns > 5.0 && prices.recorded_ns < 600.0);
        assert!(prices.counted_ns < prices.recorded_ns / 10.0);
    }

    #[test]
    fn many_calls_at_once_are_urgent() {
        let budget = Budget::new(0.05, PRICES);
        assert!(budget.is_urgent(1_000_000, Duration::from_millis(20)));
        assert!(!budget.is_urgent(10_000, Duration::from_millis(20)));
    }
}
