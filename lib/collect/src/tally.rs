//! How often functions were called, counted while their records are taken.
//!
//! Given each call that was recorded, by process and function, and where that matters how long it
//! has lasted; gives sums, and over how long they were made, as often as somebody asks. Must not
//! know what follows from them.

use std::collections::HashMap;

use sptrace_trace::FunctionId;

use crate::levels::{Called, Function};

/// How often functions were called since this was asked last.
#[derive(Default)]
pub struct Tally {
    pid: u32,
    /// Of the process `pid`.
    own: Calls,
    others: HashMap<u32, Calls>,
    /// It matters how long calls last.
    measures: bool,
}

/// The calls of a process.
#[derive(Default)]
struct Calls {
    /// By the functions' numbers.
    calls: Vec<u32>,
    /// How many of them have lasted how many ticks, likewise.
    lengths: Vec<(u32, u64)>,
    /// TSC of the first and the last of them.
    span: Option<(u64, u64)>,
}

impl Tally {
    /// One that is told how long calls last.
    pub fn measuring() -> Self {
        Self {
            measures: true,
            ..Self::default()
        }
    }

    /// True if it wants to be told that.
    #[inline]
    pub fn measures(&self) -> bool {
        self.measures
    }

    /// A call has lasted so long.
    #[inline]
    pub fn lasted(&mut self, function: FunctionId, ticks: u64) {
        let index = function.0 as usize;
        if index >= self.own.lengths.len() {
            self.own.lengths.resize(index + 64, (0, 0));
        }
        if let Some((calls, sum)) = self.own.lengths.get_mut(index) {
            *calls = calls.saturating_add(1);
            *sum = sum.saturating_add(ticks);
        }
    }

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
            let numbers = (0..).zip(own.calls.iter_mut());
            for (i, calls) in numbers.filter(|(_, calls)| **calls != 0) {
                let length = own.lengths.get_mut(i as usize);
                let (measured, ticks) = length.map(std::mem::take).unwrap_or_default();
                let called = Called {
                    recorded: u64::from(std::mem::take(calls)),
                    counted: 0,
                    measured: u64::from(measured),
                    ticks,
                };
                all.insert((*pid, FunctionId(i)), called);
            }
        }
        (all, ticks)
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.others.remove(&pid);
        if pid == self.pid {
            self.own = Calls::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_calls_since_the_last_time() {
        let mut tally = Tally::measuring();
        for ticks in [100, 200] {
            tally.add(FunctionId(3));
            tally.lasted(FunctionId(3), ticks);
        }
        tally.add(FunctionId(3));
        let called = tally.take().0[&(0, FunctionId(3))];
        assert_eq!(
            (called.recorded, called.measured, called.ticks),
            (3, 2, 300)
        );
        tally.add(FunctionId(3));
        let called = tally.take().0[&(0, FunctionId(3))];
        assert_eq!((called.recorded, called.measured, called.ticks), (1, 0, 0));
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
