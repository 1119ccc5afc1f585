//! Where something is in a trace: the slowest calls of a function, its Nth call, what begins
//! shortly before and after a moment.
//!
//! Visitors for a first pass, whose answer says what a second one shows. [`NthCall`] and
//! [`Around`] need the order of time. They hold what they answer, and nothing else.

use crate::model::StreamId;
use crate::replay::{CallId, Frame, Visitor};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The calls that took longest, of functions that are chosen.
pub struct Slowest {
    /// By function index.
    chosen: Vec<bool>,
    most: usize,
    /// The shortest one first; of equals the last one.
    found: BinaryHeap<Reverse<(u64, Reverse<CallId>)>>,
    /// Calls of which it is not known how long they took.
    pub unknown: u64,
}

impl Slowest {
    /// At most so many.
    pub fn new(chosen: Vec<bool>, most: usize) -> Self {
        Self {
            chosen,
            most,
            found: BinaryHeap::new(),
            unknown: 0,
        }
    }

    /// The calls, the slowest first, with the ticks of each.
    pub fn calls(&self) -> Vec<(CallId, u64)> {
        let calls = self
            .found
            .iter()
            .map(|Reverse((ticks, Reverse(id)))| (*id, *ticks));
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|(id, ticks)| (Reverse(*ticks), *id));
        calls
    }
}

fn is_chosen(chosen: &[bool], frame: &Frame) -> bool {
    let index = frame.function.0 as usize;
    chosen.get(index).copied().unwrap_or(false)
}

impl Visitor for Slowest {
    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if !is_chosen(&self.chosen, frame) {
            return;
        }
        let Some(ticks) = frame.total_ticks else {
            self.unknown += 1;
            return;
        };
        let call = (ticks, Reverse((stream, frame.start_tsc, frame.depth)));
        self.found.push(Reverse(call));
        if self.found.len() > self.most {
            self.found.pop();
        }
    }
}

/// When a function is called the Nth time.
pub struct NthCall {
    chosen: Vec<bool>,
    left: u64,
    /// When, if so many calls were seen.
    pub begun_tsc: Option<u64>,
}

impl NthCall {
    /// The first call is number 1.
    pub fn new(chosen: Vec<bool>, number: u64) -> Self {
        Self {
            chosen,
            left: number.max(1),
            begun_tsc: None,
        }
    }
}

impl Visitor for NthCall {
    fn enter(&mut self, _: StreamId, frame: &Frame) {
        let counts = is_chosen(&self.chosen, frame) && !frame.flags.begin_unseen;
        if !counts || self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.begun_tsc = Some(frame.start_tsc);
        }
    }

    fn is_finished(&self) -> bool {
        self.begun_tsc.is_some()
    }
}

/// From when to when as many calls begin before a moment as after it.
pub struct Around {
    since_tsc: u64,
    at_tsc: u64,
    each: usize,
    before: VecDeque<u64>,
    after: usize,
    end_tsc: Option<u64>,
}

impl Around {
    /// So many before, and so many from the moment on; of those that begin after `since_tsc`.
    pub fn since(since_tsc: u64, at_tsc: u64, each: usize) -> Self {
        Self {
            since_tsc,
            at_tsc,
            each,
            before: VecDeque::new(),
            after: 0,
            end_tsc: None,
        }
    }

    /// Were there as many before the moment as were asked for?
    pub fn has_all_before(&self) -> bool {
        self.before.len() >= self.each
    }

    /// When the first of them begins, and before when the last one does, if others follow.
    pub fn range_tsc(&self) -> (u64, Option<u64>) {
        let from = self.before.front().copied().unwrap_or(self.at_tsc);
        (from, self.end_tsc)
    }
}

impl Visitor for Around {
    fn enter(&mut self, _: StreamId, frame: &Frame) {
        if frame.start_tsc < self.since_tsc {
            return;
        }
        if frame.start_tsc < self.at_tsc {
            self.before.push_back(frame.start_tsc);
            if self.before.len() > self.each {
                self.before.pop_front();
            }
        } else if self.after < self.each {
            self.after += 1;
        } else if self.end_tsc.is_none() {
            self.end_tsc = Some(frame.start_tsc);
        }
    }

    fn is_finished(&self) -> bool {
        self.end_tsc.is_some()
    }
}
