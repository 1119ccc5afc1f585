//! Per function: calls, total and self time, and how the durations are distributed. Per stream:
//! its totals.
//!
//! A visitor of the call tree. The total time of a function counts only its outermost frame of a
//! recursion, so that it never exceeds the time that passed. A frame that began before its stream
//! (its process was forked, or attached to, inside it) is no call of this stream: it has total and
//! self time, but no place among the durations, as its own is not known. A frame whose end was not
//! seen (see [`crate::Frame::total_ticks`]) is counted and has no time.

use crate::error::Malformed;
use crate::format::{Cursor, put_v};
use crate::histogram::Histogram;
use crate::model::{FunctionId, StreamId};
use crate::note::Note;
use crate::reader::Dictionary;
use crate::replay::{Estimate, Frame, StreamTotals, Visitor};
use rustc_hash::FxHashMap as HashMap;

/// What is known about the calls of one function.
#[derive(Clone, Default, Debug)]
pub struct FunctionStats {
    /// Frames whose beginning was seen.
    pub calls: u64,
    /// Frames that began before their stream.
    pub earlier: u64,
    /// Of the calls, those with a duration.
    pub timed: u64,
    /// Of the calls, those whose duration is an estimate.
    pub estimated: u64,
    total: Sum,
    own: Sum,
    /// As those, of what was not measured.
    total_estimate: Sum,
    own_estimate: Sum,
    /// Sums of the least and the most that the estimates of `total_estimate` may be.
    bounds: [u64; 2],
    /// Sum over all calls that are not measured.
    sum_estimate: u64,
    min_ticks: u64,
    max_ticks: u64,
    /// Sum over all timed calls, inner ones of a recursion too.
    sum_ticks: u64,
    histogram: Histogram,
}

/// A sum of known times.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    ticks: u64,
    frames: u64,
}

impl Sum {
    fn add(&mut self, ticks: Option<u64>) {
        if let Some(ticks) = ticks {
            self.ticks = self.ticks.saturating_add(ticks);
            self.frames += 1;
        }
    }

    fn known(self) -> Option<u64> {
        (self.frames > 0).then_some(self.ticks)
    }
}

impl FunctionStats {
    /// Time in its outermost frames, as far as it is known; `None`: of none of them.
    pub fn total_ticks(&self) -> Option<u64> {
        self.total.known()
    }

    /// Time in its frames outside the frames above them, as far as it is known; `None`: of none of
    /// them.
    pub fn self_ticks(&self) -> Option<u64> {
        self.own.known()
    }

    /// As [`Self::total_ticks`], with what was estimated; `None`: nothing was.
    pub fn total_estimate(&self) -> Option<u64> {
        let ticks = self.total_estimate.known()?;
        Some(ticks.saturating_add(self.total.ticks))
    }

    /// As [`Self::self_ticks`], with what was estimated; `None`: nothing was.
    pub fn self_estimate(&self) -> Option<u64> {
        let ticks = self.own_estimate.known()?;
        Some(ticks.saturating_add(self.own.ticks))
    }

    /// Mean duration of all calls that were measured or estimated; `None`: none was estimated.
    pub fn mean_estimate(&self) -> Option<u64> {
        let sum = self.sum_ticks.saturating_add(self.sum_estimate);
        (self.estimated > 0).then(|| sum / (self.timed + self.estimated))
    }

    /// What [`Self::total_estimate`] is at least and at most.
    pub fn total_bounds(&self) -> Option<[u64; 2]> {
        let bounds = self.bounds.map(|b| b.saturating_add(self.total.ticks));
        self.total_estimate.known().map(|_| bounds)
    }

    /// Shortest call.
    pub fn min_ticks(&self) -> Option<u64> {
        self.of_timed(self.min_ticks)
    }

    /// Mean duration of a call.
    pub fn mean_ticks(&self) -> Option<u64> {
        self.of_timed(self.sum_ticks / self.timed.max(1))
    }

    /// Longest call.
    pub fn max_ticks(&self) -> Option<u64> {
        self.of_timed(self.max_ticks)
    }

    /// Duration that 99 % of the calls do not exceed.
    pub fn p99_ticks(&self) -> Option<u64> {
        let p99 = self.histogram.percentile(99);
        (self.timed > 0).then(|| p99.clamp(self.min_ticks, self.max_ticks))
    }

    /// Duration that half of the calls do not exceed.
    pub fn p50_ticks(&self) -> Option<u64> {
        let p50 = self.histogram.percentile(50);
        (self.timed > 0).then(|| p50.clamp(self.min_ticks, self.max_ticks))
    }

    fn of_timed(&self, ticks: u64) -> Option<u64> {
        (self.timed > 0).then_some(ticks)
    }

    fn add_estimate(&mut self, frame: &Frame, estimate: &Estimate, is_outermost: bool) {
        self.own_estimate.add(estimate.self_ticks);
        if frame.total_ticks.is_some() {
            return;
        }
        if is_outermost {
            self.total_estimate.add(Some(estimate.total_ticks));
            let [least, most] = &mut self.bounds;
            *least = least.saturating_add(estimate.least_ticks);
            *most = most.saturating_add(estimate.most_ticks);
        }
        if !frame.flags.begin_unseen {
            self.estimated += 1;
            self.sum_estimate = self.sum_estimate.saturating_add(estimate.total_ticks);
        }
    }

    fn add(&mut self, frame: &Frame, is_outermost: bool) {
        self.own.add(frame.self_ticks);
        if is_outermost {
            self.total.add(frame.total_ticks);
        }
        if let Some(estimate) = frame.estimate {
            self.add_estimate(frame, &estimate, is_outermost);
        }
        if frame.flags.begin_unseen {
            self.earlier += 1;
            return;
        }
        self.calls += 1;
        let Some(ticks) = frame.total_ticks else {
            return;
        };
        self.min_ticks = match self.timed {
            0 => ticks,
            _ => self.min_ticks.min(ticks),
        };
        self.max_ticks = self.max_ticks.max(ticks);
        self.timed += 1;
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

/// Numbers of a function that an index keeps.
const NUMBERS: usize = 18;

impl FunctionStats {
    fn numbers(&self) -> [u64; NUMBERS] {
        let (total, own) = (self.total, self.own);
        let sums = [total.ticks, total.frames, own.ticks, own.frames];
        let [a, b, c, d] = sums;
        let times = (self.min_ticks, self.max_ticks, self.sum_ticks);
        let (min, max, sum) = times;
        [
            self.calls,
            self.earlier,
            self.timed,
            a,
            b,
            c,
            d,
            min,
            max,
            self.estimated,
            self.total_estimate.ticks,
            self.total_estimate.frames,
            self.own_estimate.ticks,
            self.own_estimate.frames,
            self.bounds[0],
            self.bounds[1],
            self.sum_estimate,
            sum,
        ]
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers {
            *number = from.v()?;
        }
        let [
            calls,
            earlier,
            timed,
            a,
            b,
            c,
            d,
            min_ticks,
            max_ticks,
            estimated,
            total_ticks,
            total_frames,
            own_ticks,
            own_frames,
            least,
            most,
            sum_estimate,
            sum_ticks,
        ] = numbers;
        if timed > calls || min_ticks > max_ticks {
            return Err(Malformed("sums of a function contradict each other"));
        }
        let sum = |ticks, frames| Sum { ticks, frames };
        Ok(Self {
            calls,
            earlier,
            timed,
            total: sum(a, b),
            own: sum(c, d),
            estimated,
            total_estimate: sum(total_ticks, total_frames),
            own_estimate: sum(own_ticks, own_frames),
            bounds: [least, most],
            sum_estimate,
            min_ticks,
            max_ticks,
            sum_ticks,
            histogram: Histogram::read(from)?,
        })
    }
}

impl StreamTotals {
    pub(crate) fn numbers(&self) -> [u64; 10] {
        [
            self.ticks,
            self.outside_ticks,
            self.known_ticks,
            self.blocked_ticks,
            self.events,
            self.lost,
            self.calls,
            self.unwound,
            self.end_unseen,
            self.last_tsc,
        ]
    }

    /// From such numbers, of which nothing is known.
    pub(crate) fn of_numbers(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let mut numbers = [0; 10];
        for number in &mut numbers {
            *number = from.v()?;
        }
        let [
            ticks,
            outside_ticks,
            known_ticks,
            blocked_ticks,
            events,
            rest @ ..,
        ] = numbers;
        let [lost, calls, unwound, end_unseen, last_tsc] = rest;
        Ok(Self {
            ticks,
            outside_ticks,
            known_ticks,
            blocked_ticks,
            events,
            lost,
            calls,
            unwound,
            end_unseen,
            last_tsc,
        })
    }

    /// As bytes, for an index.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|n| put_v(out, n));
    }

    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let totals = Self::of_numbers(from)?;
        let outside = totals.outside_ticks;
        if outside > totals.ticks || totals.known_ticks > totals.ticks - outside {
            return Err(Malformed("sums of a thread contradict each other"));
        }
        Ok(totals)
    }
}

impl Stats {
    /// As bytes, for an index.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, self.functions.len() as u64);
        for function in &self.functions {
            function.numbers().into_iter().for_each(|n| put_v(out, n));
            function.histogram.write(out);
        }
        put_v(out, self.streams.len() as u64);
        for (id, totals) in &self.streams {
            put_v(out, id.0.into());
            totals.write(out);
        }
    }

    /// From such bytes, which are not trusted.
    pub(crate) fn read(from: &mut Cursor<'_>, of: &Dictionary) -> Result<Self, Malformed> {
        let mut stats = Self::new();
        let functions = from.v()?;
        if functions > of.functions.len() as u64 {
            return Err(Malformed("sums of functions that the trace does not name"));
        }
        // Views add these up: what would not fit is no sum of one trace.
        let mut all = [0; NUMBERS - 1];
        for _ in 0..functions {
            let function = FunctionStats::read(from)?;
            add_all(&mut all, &function.numbers())?;
            stats.functions.push(function);
        }
        let mut all = [0; 9];
        for _ in 0..from.v()? {
            let id = StreamId(from.v32()?);
            if of.stream(id).is_none() {
                return Err(Malformed("sums of a thread that the trace does not name"));
            }
            let totals = StreamTotals::read(from)?;
            add_all(&mut all, &totals.numbers())?;
            stats.streams.push((id, totals));
        }
        Ok(stats)
    }

    /// Forgets an open frame; says whether it was the outermost of its function.
    fn close(&mut self, stream: StreamId, frame: &Frame) -> bool {
        let active = self.active.entry(stream).or_default();
        let frames = slot(active, frame.function.0 as usize);
        *frames = frames.saturating_sub(1);
        *frames == 0
    }
}

/// Adds up all but the last, which is a moment or bounded by another.
fn add_all(all: &mut [u64], numbers: &[u64]) -> Result<(), Malformed> {
    for (sum, number) in all.iter_mut().zip(numbers) {
        let added = sum.checked_add(*number);
        *sum = added.ok_or(Malformed("sums that no trace has"))?;
    }
    Ok(())
}

fn slot<T: Default + Clone>(list: &mut Vec<T>, index: usize) -> &mut T {
    if index >= list.len() {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Visitor for Stats {
    /// Calls that were counted alone have no times.
    fn note(&mut self, note: &Note) {
        let Note::Counts { edges, .. } = note else {
            return;
        };
        for edge in edges {
            let index = edge.callee.0 as usize;
            if index >= self.functions.len() {
                self.functions
                    .resize_with(index + 1, FunctionStats::default);
            }
            if let Some(function) = self.functions.get_mut(index) {
                function.calls = function.calls.saturating_add(edge.calls);
            }
        }
    }

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

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.active.remove(&stream);
        self.streams.push((stream, *totals));
    }
}
