//! Who called whom: for each pair of functions the calls and the time, for each function what it
//! ran.
//!
//! A visitor. A frame at the bottom of a stack has no caller. As in [`crate::Stats`], time counts
//! only for the outermost frame of a function that is open several times: the sum over all callers
//! is the function's.

use crate::model::{FunctionId, StreamId};
use crate::note::Note;
use crate::replay::{Frame, StreamTotals, Visitor};
use rustc_hash::FxHashMap as HashMap;

/// Who is called, and by whom if by anyone.
pub type Pair = (Option<FunctionId>, FunctionId);

/// What is known of the calls of a pair.
#[derive(Clone, Copy, Default, Debug)]
pub struct Edge {
    /// Calls whose beginning was seen.
    pub calls: u64,
    /// Of the calls, those with a duration.
    pub timed: u64,
    /// Frames with a duration.
    pub known: u64,
    /// Frames whose own time is known.
    pub known_self: u64,
    /// Time of the outermost ones, with what they called, as far as it is known.
    pub total_ticks: u64,
    /// Time of their own, as far as it is known.
    pub self_ticks: u64,
    /// Time that is known to have passed in the outermost ones, also if the end of a frame was not
    /// seen: what is inside of it counts.
    pub inclusive_ticks: u64,
    /// Calls inside of the outermost ones, themselves counted.
    pub inclusive_calls: u64,
    /// Time of which it is not known whether it is the function's own: a call from it has no end.
    pub shared_ticks: u64,
}

impl Edge {
    fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.calls, other.calls),
            (&mut self.timed, other.timed),
            (&mut self.known, other.known),
            (&mut self.known_self, other.known_self),
            (&mut self.total_ticks, other.total_ticks),
            (&mut self.self_ticks, other.self_ticks),
            (&mut self.inclusive_ticks, other.inclusive_ticks),
            (&mut self.shared_ticks, other.shared_ticks),
            (&mut self.inclusive_calls, other.inclusive_calls),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// An open frame.
struct Open {
    pair: Pair,
    /// The function has no frame below it.
    is_outermost: bool,
    /// Known time, and calls, directly inside of it.
    inner_ticks: u64,
    inner_calls: u64,
}

/// The call graph of a trace.
#[derive(Default)]
pub struct Graph {
    edges: HashMap<Pair, Edge>,
    open: HashMap<StreamId, Vec<Open>>,
    /// Open frames of each function.
    active: HashMap<(StreamId, FunctionId), u32>,
}

impl Graph {
    /// All pairs, in order.
    pub fn edges(&self) -> Vec<(Pair, Edge)> {
        let mut edges: Vec<_> = self
            .edges
            .iter()
            .map(|(pair, edge)| (*pair, *edge))
            .collect();
        edges.sort_by_key(|(pair, _)| *pair);
        edges
    }

    /// What each function ran, over all callers, in order.
    pub fn functions(&self) -> Vec<(FunctionId, Edge)> {
        let mut functions: HashMap<FunctionId, Edge> = HashMap::default();
        for ((_, callee), edge) in &self.edges {
            functions.entry(*callee).or_default().add(edge);
        }
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by_key(|(function, _)| *function);
        functions
    }

    fn pop(&mut self, stream: StreamId) -> Option<Open> {
        let open = self.open.get_mut(&stream)?.pop()?;
        if let Some(active) = self.active.get_mut(&(stream, open.pair.1)) {
            *active = active.saturating_sub(1);
        }
        Some(open)
    }

    fn innermost(&mut self, stream: StreamId) -> Option<&mut Open> {
        self.open.get_mut(&stream)?.last_mut()
    }
}

impl Visitor for Graph {
    /// Calls that were counted alone have no times, and it is not known what ran inside of them.
    fn note(&mut self, note: &Note) {
        let Note::Counts { edges, .. } = note else {
            return;
        };
        for counted in edges {
            let pair = (counted.caller, counted.callee);
            self.edges.entry(pair).or_default().add(&Edge {
                calls: counted.calls,
                inclusive_calls: counted.calls,
                ..Edge::default()
            });
        }
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let open = self.open.entry(stream).or_default();
        let pair = (open.last().map(|below| below.pair.1), frame.function);
        let active = self.active.entry((stream, frame.function)).or_default();
        open.push(Open {
            pair,
            is_outermost: *active == 0,
            inner_ticks: 0,
            inner_calls: 0,
        });
        *active += 1;
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let Some(open) = self.pop(stream) else {
            return;
        };
        let own_ticks = frame.self_ticks.unwrap_or(0);
        let inclusive_ticks = frame.total_ticks.unwrap_or(open.inner_ticks);
        // What was hidden inside is not told apart either.
        let shared_ticks =
            inclusive_ticks.saturating_sub(own_ticks.saturating_add(open.inner_ticks));
        let is_call = u64::from(!frame.flags.begin_unseen);
        let inclusive_calls = open.inner_calls.saturating_add(is_call);
        let is_known = u64::from(frame.total_ticks.is_some());
        let if_outermost = |number| if open.is_outermost { number } else { 0 };
        let part = Edge {
            calls: is_call,
            timed: is_call & is_known,
            known: is_known,
            known_self: u64::from(frame.self_ticks.is_some()),
            total_ticks: if_outermost(frame.total_ticks.unwrap_or(0)),
            self_ticks: own_ticks,
            inclusive_ticks: if_outermost(inclusive_ticks),
            inclusive_calls: if_outermost(inclusive_calls),
            shared_ticks,
        };
        self.edges.entry(open.pair).or_default().add(&part);
        if let Some(below) = self.innermost(stream) {
            below.inner_ticks = below.inner_ticks.saturating_add(inclusive_ticks);
            below.inner_calls = below.inner_calls.saturating_add(inclusive_calls);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        let Some(open) = self.pop(stream) else {
            return;
        };
        if let Some(below) = self.innermost(stream) {
            below.inner_ticks = below.inner_ticks.saturating_add(open.inner_ticks);
            below.inner_calls = below.inner_calls.saturating_add(open.inner_calls);
        }
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.open.remove(&stream);
        self.active.retain(|(of, _), _| *of != stream);
    }
}
