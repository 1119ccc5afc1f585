//! Per function: calls, total and self time, and how the durations are distributed. Per stream:
//! its totals.
//!
//! A visitor of the call tree. The total time of a function counts only its outermost frame of a
//! recursion, so that it never exceeds the time that passed. A frame that began before its stream
//! (its process was forked, or attached to, inside it) is no call of this stream: it has total and
//! self time, but no place among the durations, as its own is not known.

use crate::call_tree::{Frame, Mark, StreamTotals, Visitor};
use crate::histogram::Histogram;
use crate::model::{FunctionId, StreamId};
use std::collections::HashMap;

/// What is known about the calls of one function.
#[derive(Clone, Default, Debug)]
pub struct FunctionStats {
    /// Frames whose beginning was seen.
    pub calls: u64,
    /// Frames that began before their stream.
    pub earlier: u64,
    /// Time in its outermost frames.
    pub total_ticks: u64,
    /// Time in its frames outside the frames above them.
    pub self_ticks: u64,
    /// Shortest call.
    pub min_ticks: u64,
    /// Longest call.
    pub max_ticks: u64,
    /// Sum over all calls, inner ones of a recursion too.
    sum_ticks: u64,
    histogram: Histogram,
}

impl FunctionStats {
    /// Mean duration of a call.
    pub fn mean_ticks(&self) -> u64 {
        self.sum_ticks / self.calls.max(1)
    }

    /// Duration that 99 % of the calls do not exceed.
    pub fn p99_ticks(&self) -> u64 {
        self.histogram
            .percentile(99)
            .clamp(self.min_ticks, self.max_ticks)
    }

    fn add(&mut self, frame: &Frame, is_outermost: bool) {
        let ticks = frame.total_ticks;
        self.self_ticks = self.self_ticks.saturating_add(frame.self_ticks);
        if is_outermost {
            self.total_ticks = self.total_ticks.saturating_add(ticks);
        }
        if frame.flags.begin_unseen {
            self.earlier += 1;
            return;
        }
        self.min_ticks = if self.calls == 0 {
            ticks
        } else {
            self.min_ticks.min(ticks)
        };
        self.max_ticks = self.max_ticks.max(ticks);
        self.calls += 1;
        self.sum_ticks = self.sum_ticks.saturating_add(ticks);
        self.histogram.add(ticks);
    }
}

/// Statistics of a trace.
#[derive(Default)]
pub struct Stats {
    functions: Vec<FunctionStats>,
    /// Open frames of each function, in the streams that have any.
    active: HashMap<StreamId, Vec<u32>>,
    streams: Vec<(StreamId, StreamTotals)>,
}

impl Stats {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The functions that ran.
    pub fn functions(&self) -> impl Iterator<Item = (FunctionId, &FunctionStats)> {
        let all = (0..).map(FunctionId).zip(&self.functions);
        all.filter(|(_, stats)| stats.calls + stats.earlier > 0)
    }

    /// The streams, in order of appearance.
    pub fn streams(&self) -> &[(StreamId, StreamTotals)] {
        &self.streams
    }
}

impl Stats {
    /// Forgets an open frame; says whether it was the outermost of its function.
    fn close(&mut self, stream: StreamId, frame: &Frame) -> bool {
        let active = self.active.entry(stream).or_default();
        let frames = slot(active, frame.function.0 as usize);
        *frames = frames.saturating_sub(1);
        *frames == 0
    }
}

fn slot<T: Default + Clone>(list: &mut Vec<T>, index: usize) -> &mut T {
    if index >= list.len() {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Visitor for Stats {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let active = self.active.entry(stream).or_default();
        *slot(active, frame.function.0 as usize) += 1;
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let is_outermost = self.close(stream, frame);
        slot(&mut self.functions, frame.function.0 as usize).add(frame, is_outermost);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.close(stream, frame);
    }

    fn mark(&mut self, _: StreamId, _: u64, _: u32, _: Mark) {}

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.active.remove(&stream);
        self.streams.push((stream, *totals));
    }
}
