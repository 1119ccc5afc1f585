//! How often functions were called, counted while their records are taken.
//!
//! Given each call that was recorded, by process and function; gives sums, and over how long they
//! were made, as often as somebody asks. Must not know what follows from them.

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
        if pid == self.pid {
            self.own = Calls::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
