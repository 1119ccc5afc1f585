//! What two runs are compared by: calls and own times of each function, and the order of calls.
//!
//! A visitor. Of the order it keeps a hash for every so many calls of a stream, so that two runs of
//! any length can be compared; [`Excerpt`] then looks at the calls of one such piece. Which
//! functions of different traces are the same the caller says by their keys.

use crate::histogram::Histogram;
use crate::model::{FunctionId, StreamId};
use crate::replay::{Frame, StreamTotals, Visitor};
use rustc_hash::FxHashMap as HashMap;
use std::collections::BTreeMap;

/// Calls of a piece.
pub const PIECE_CALLS: u64 = 4096;

/// What one function did in a run.
#[derive(Clone, Default)]
pub struct Tally {
    /// Calls whose beginning was seen.
    pub calls: u64,
    /// Of all frames, those whose own time is known.
    pub known: u64,
    /// The sum of these times.
    pub self_ticks: u64,
    own: Histogram,
}

impl Tally {
    /// The own time that half of the calls do not exceed: what disturbs some calls does not change
    /// it.
    pub fn median_ticks(&self) -> u64 {
        self.own.percentile(50)
    }
}

/// The order of calls of a stream.
#[derive(Clone, Default, PartialEq, Eq)]
struct Flow {
    hash: u64,
    calls: u64,
    /// The hash after each piece.
    pieces: Vec<u64>,
}

/// A run on its way.
pub struct Run {
    keys: Vec<u64>,
    tallies: HashMap<FunctionId, Tally>,
    flows: BTreeMap<StreamId, Flow>,
}

impl Run {
    /// Nothing seen yet; `keys` by function.
    pub fn new(keys: Vec<u64>) -> Self {
        let (tallies, flows) = Default::default();
        Self {
            keys,
            tallies,
            flows,
        }
    }

    /// What the functions did.
    pub fn tallies(&self) -> impl Iterator<Item = (FunctionId, &Tally)> {
        self.tallies.iter().map(|(id, tally)| (*id, tally))
    }

    /// Streams with calls, in order of appearance.
    pub fn streams(&self) -> Vec<StreamId> {
        self.flows.keys().copied().collect()
    }

    /// The piece in which the order of calls of two streams is not the same any more.
    pub fn parting(&self, stream: StreamId, other: &Self, other_stream: StreamId) -> Option<u64> {
        let (a, b) = (self.flows.get(&stream)?, other.flows.get(&other_stream)?);
        if a == b {
            return None;
        }
        let pairs = a.pieces.iter().zip(&b.pieces);
        let same = pairs.take_while(|(a, b)| a == b).count();
        Some(same as u64)
    }
}

impl Visitor for Run {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let key = self.keys.get(frame.function.0 as usize).copied();
        let flow = self.flows.entry(stream).or_default();
        let word = key.unwrap_or(0) ^ u64::from(frame.depth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        flow.hash = (flow.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        flow.calls += 1;
        if flow.calls.is_multiple_of(PIECE_CALLS) {
            flow.pieces.push(flow.hash);
        }
    }

    fn leave(&mut self, _: StreamId, frame: &Frame) {
        let tally = self.tallies.entry(frame.function).or_default();
        tally.calls += u64::from(!frame.flags.begin_unseen);
        if let Some(ticks) = frame.self_ticks {
            tally.known += 1;
            tally.self_ticks = tally.self_ticks.saturating_add(ticks);
            tally.own.add(ticks);
        }
    }

    fn end(&mut self, _: StreamId, _: &StreamTotals) {}
}

/// The calls of one piece of a stream, and what was open when it began.
pub struct Excerpt {
    stream: StreamId,
    piece: u64,
    seen: u64,
    stack: Vec<FunctionId>,
    /// Depth and function of each call.
    pub calls: Vec<(u32, FunctionId)>,
    /// The stack before the first of them.
    pub below: Vec<FunctionId>,
}

impl Excerpt {
    /// Of a stream, a piece.
    pub fn new(stream: StreamId, piece: u64) -> Self {
        Self {
            stream,
            piece,
            seen: 0,
            stack: Vec::new(),
            calls: Vec::new(),
            below: Vec::new(),
        }
    }

    /// The stack in which the call of this number is made; a call more than there are: in which the
    /// last one was.
    pub fn stack_at(&self, number: usize) -> Vec<FunctionId> {
        let mut stack = self.below.clone();
        for (depth, function) in self.calls.iter().take(number) {
            stack.truncate(*depth as usize);
            stack.push(*function);
        }
        let next = self.calls.get(number).map(|(depth, _)| *depth as usize);
        stack.truncate(next.unwrap_or(stack.len()));
        stack
    }
}

impl Visitor for Excerpt {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if stream != self.stream || self.is_finished() {
            return;
        }
        self.stack.truncate(frame.depth as usize);
        if self.seen / PIECE_CALLS == self.piece {
            if self.calls.is_empty() {
                self.below.clone_from(&self.stack);
            }
            self.calls.push((frame.depth, frame.function));
        }
        self.stack.push(frame.function);
        self.seen += 1;
    }

    fn is_finished(&self) -> bool {
        self.seen / PIECE_CALLS > self.piece
    }
}
