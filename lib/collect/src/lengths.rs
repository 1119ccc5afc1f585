//! Which functions' calls are so short that stamps are a large part of them: those are recorded in
//! order.
//!
//! Given how long the calls of functions have lasted in an interval; says whose level is to change,
//! and repeats a wish while calls of a function that is to be in order come with stamps still: some
//! of its sites may have been reached since. A function whose calls begin to take long gets stamps
//! again. Must not know how that is done, and what the functions are.

use std::collections::{HashMap, HashSet};

use sptrace_trace::Level;

use crate::decode::mixed::Length;
use crate::levels::{Function, Patience, Wish};

/// A function whose calls last shorter than this on average needs no stamps: two of them take a
/// fiftieth of that.
const SHORT_NS: u64 = 1000;
/// One whose calls last longer than this gets stamps again.
const LONG_NS: u64 = 2000;
/// So many calls in an interval are worth a change; fewer cost nothing.
const MANY: u32 = 256;
/// So many calls say whether those of the next recording will be short.
const ENOUGH: u64 = 64;
/// And for so many times as many calls as one that was measured stands.
const MEASURED: u64 = 8;
/// So many calls with stamps that need none are worth a look at once: a change is carried out by a
/// thread of the program, which looks at all call sites for it.
const WORTH: u64 = 8192;
/// So many intervals at most pass before a function that was in order gets stamps again.
const LONGEST_HOLD: u32 = 32;

/// A function that is in order.
#[derive(Default)]
struct InOrder {
    patience: Patience,
    /// Intervals until it may get stamps again.
    hold: u32,
    /// How long its calls have lasted lately: in each interval half as much remains of before.
    /// One call that the kernel has kept waiting says nothing of a function.
    lately: Length,
}

/// Watches how long calls last.
pub struct ByLength {
    ticks_per_us: u64,
    in_order: HashMap<Function, InOrder>,
    /// How many intervals a function that got stamps again has been in order before, at least.
    held: HashMap<Function, u32>,
    stubborn: HashSet<Function>,
}

impl ByLength {
    /// With a clock of so many ticks a second.
    pub fn new(tsc_hz: u64) -> Self {
        Self {
            ticks_per_us: (tsc_hz / 1_000_000).max(1),
            in_order: HashMap::new(),
            held: HashMap::new(),
            stubborn: HashSet::new(),
        }
    }

    /// True if some functions are in order.
    pub fn has_any(&self) -> bool {
        !self.in_order.is_empty()
    }

    /// It is to be in order.
    pub fn is_in_order(&self, function: Function) -> bool {
        self.in_order.contains_key(&function)
    }

    /// Functions that are to be in order, and whose calls come with stamps still.
    pub fn stubborn(&self) -> &HashSet<Function> {
        &self.stubborn
    }

    /// Were they short? `None`: not enough of them were measured to say.
    pub fn is_short(&self, length: &Length) -> Option<bool> {
        let is_enough = length.calls() >= ENOUGH.max(u64::from(length.longest_calls) * MEASURED);
        is_enough.then(|| self.mean_ns(length) < SHORT_NS)
    }

    /// It is in order without a wish. False: it was by one before.
    pub fn adopt(&mut self, function: Function) -> bool {
        let is_new = !self.held.contains_key(&function);
        if is_new {
            self.begin(function);
        }
        is_new
    }

    /// A look at these lengths is worth what follows from it.
    pub fn is_worth(&self, lengths: &HashMap<Function, Length>) -> bool {
        let stamped = |length: &Length| match self.mean_ns(length) < SHORT_NS {
            true => u64::from(length.stamped),
            false => 0,
        };
        lengths.values().map(stamped).sum::<u64>() >= WORTH
    }

    fn mean_ns(&self, length: &Length) -> u64 {
        length.mean_ticks().saturating_mul(1000) / self.ticks_per_us
    }

    /// Takes how long calls have lasted since the last look, and says what follows.
    pub fn look(&mut self, lengths: &HashMap<Function, Length>) -> Vec<Wish> {
        let mut wishes = Vec::new();
        self.stubborn.clear();
        for known in self.in_order.values_mut() {
            known.patience.passes();
            known.hold = known.hold.saturating_sub(1);
            known.lately.halve();
        }
        for (function, length) in lengths {
            let mut lately = *length;
            if let Some(known) = self.in_order.get_mut(function) {
                known.lately.add(*length);
                lately = known.lately;
            }
            let mean_ns = self.mean_ns(&lately);
            let wish = match self.in_order.contains_key(function) {
                false if length.stamped >= MANY && mean_ns < SHORT_NS => self.put(*function),
                true if mean_ns > LONG_NS => self.return_stamps(*function),
                true if length.stamped >= MANY => self.again(*function),
                _ => None,
            };
            wishes.extend(wish);
        }
        wishes.sort_by_key(|wish| wish.function);
        wishes
    }

    /// It is in order from here on.
    fn begin(&mut self, function: Function) {
        let hold = self.held.get(&function).map_or(1, |held| held * 2);
        let mut known = InOrder {
            hold: hold.min(LONGEST_HOLD),
            ..InOrder::default()
        };
        known.patience.is_over();
        self.held.insert(function, known.hold);
        self.in_order.insert(function, known);
    }

    /// It is to be in order from here on.
    fn put(&mut self, function: Function) -> Option<Wish> {
        self.begin(function);
        Some(Wish {
            function,
            level: Level::InOrder,
            is_repeated: false,
        })
    }

    /// It has stamps again, unless it had them just now.
    fn return_stamps(&mut self, function: Function) -> Option<Wish> {
        let known = self.in_order.get(&function)?;
        (known.hold == 0).then(|| {
            self.in_order.remove(&function);
            Wish {
                function,
                level: Level::Recorded,
                is_repeated: false,
            }
        })
    }

    /// Some of its calls still come with stamps.
    fn again(&mut self, function: Function) -> Option<Wish> {
        self.stubborn.insert(function);
        let known = self.in_order.get_mut(&function)?;
        known.patience.is_over().then_some(Wish {
            function,
            level: Level::InOrder,
            is_repeated: true,
        })
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.in_order.retain(|(of, _), _| *of != pid);
        self.held.retain(|(of, _), _| *of != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_trace::FunctionId;

    const F: Function = (7, FunctionId(3));

    /// What is wished after so many calls with stamps and in order, of so many ns each, by a clock
    /// of one tick a ns.
    fn look(by: &mut ByLength, stamped: u32, in_order: u32, ns: u64) -> Vec<(Level, bool)> {
        let length = Length {
            stamped,
            in_order,
            ticks: u64::from(stamped + in_order) * ns,
            longest: ns,
            longest_calls: 1,
        };
        let wishes = by.look(&HashMap::from([(F, length)]));
        let wishes = wishes.iter().map(|wish| (wish.level, wish.is_repeated));
        wishes.collect()
    }

    #[test]
    fn short_calls_lose_their_stamps_and_long_ones_get_them_back() {
        let mut by = ByLength::new(1_000_000_000);
        assert_eq!(look(&mut by, 1000, 0, 1500), []);
        assert_eq!(look(&mut by, MANY - 1, 0, 10), []);
        assert_eq!(look(&mut by, 1000, 0, 10), [(Level::InOrder, false)]);
        assert_eq!(look(&mut by, 0, 1000, 1500), []);
        assert_eq!(look(&mut by, 0, 5000, 3000), [(Level::Recorded, false)]);
        assert_eq!(look(&mut by, 5, 0, 3000), []);
    }

    #[test]
    fn a_few_slow_calls_do_not_bring_stamps_back_and_many_do() {
        let mut by = ByLength::new(1_000_000_000);
        assert_eq!(look(&mut by, 1000, 0, 10), [(Level::InOrder, false)]);
        assert_eq!(look(&mut by, 0, 10_000, 20), []);
        assert_eq!(look(&mut by, 0, 10, 200_000), []);
        let looks = (1..).find(|_| !look(&mut by, 0, 1000, 5000).is_empty());
        assert_eq!(looks, Some(2));
    }

    #[test]
    fn few_calls_or_long_ones_are_not_worth_a_look() {
        let by = ByLength::new(1_000_000_000);
        let is_worth = |stamped: u32, in_order: u32, ns: u64| {
            let length = Length {
                stamped,
                in_order,
                ticks: u64::from(stamped + in_order) * ns,
                longest: ns,
                longest_calls: 1,
            };
            by.is_worth(&HashMap::from([(F, length)]))
        };
        assert!(is_worth(9000, 0, 10));
        assert!(!is_worth(8000, 100_000, 10));
        assert!(!is_worth(9000, 0, 1500));
    }

    #[test]
    fn a_wish_is_repeated_while_calls_come_with_stamps() {
        let mut by = ByLength::new(1_000_000_000);
        let looks: Vec<usize> = (0..64)
            .filter(|_| !look(&mut by, 1000, 0, 10).is_empty())
            .collect();
        assert_eq!(looks, [0, 2, 6, 14, 30, 62]);
        assert!(by.stubborn().contains(&F));
    }

    #[test]
    fn what_changes_its_mind_does_so_less_and_less_often() {
        let mut by = ByLength::new(1_000_000_000);
        let mut waits = Vec::new();
        for _ in 0..4 {
            assert_eq!(look(&mut by, 1000, 0, 10), [(Level::InOrder, false)]);
            waits.push((1..).find(|_| !look(&mut by, 0, 100, 5000).is_empty()));
        }
        assert_eq!(waits, [Some(1), Some(2), Some(4), Some(8)]);
    }
}
