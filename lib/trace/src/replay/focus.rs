//! Leaves what has nothing to do with chosen functions: of each stack only chains that lead to one
//! of them, and what these call.
//!
//! Beginnings pass in any case; a frame that is neither on the way to a chosen one nor inside of
//! one ends as one that is counted nowhere.

use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::model::{FunctionId, StreamId};
use crate::note::Note;
use rustc_hash::FxHashMap as HashMap;

/// What is known of an open frame.
#[derive(Clone, Copy)]
struct Seen {
    /// It is a chosen one, or inside of one.
    is_inside: bool,
    /// A chosen one has run inside of it.
    leads: bool,
}

/// Passes on the ends of frames on the way to chosen functions, and inside of them.
pub struct Focus<V> {
    /// Who sees the rest.
    pub inner: V,
    /// By function index.
    chosen: Vec<bool>,
    streams: HashMap<StreamId, Vec<Seen>>,
}

impl<V: Visitor> Focus<V> {
    /// In front of `inner`; without any that are chosen all pass.
    pub fn new(chosen: Vec<bool>, inner: V) -> Self {
        Self {
            inner,
            chosen,
            streams: HashMap::default(),
        }
    }

    fn pop(&mut self, stream: StreamId) -> bool {
        let popped = self.streams.get_mut(&stream).and_then(Vec::pop);
        popped.is_none_or(|seen| seen.is_inside || seen.leads)
    }
}

impl<V: Visitor> Visitor for Focus<V> {
    fn note(&mut self, note: &Note) {
        self.inner.note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if !self.chosen.is_empty() {
            let open = self.streams.entry(stream).or_default();
            let FunctionId(index) = frame.function;
            let is_chosen = self.chosen.get(index as usize).copied().unwrap_or(false);
            let was_inside = open.last().is_some_and(|below| below.is_inside);
            if is_chosen && !was_inside {
                // What lies below one that leads does so, too.
                let to_mark = open.iter_mut().rev().take_while(|below| !below.leads);
                to_mark.for_each(|below| below.leads = true);
            }
            open.push(Seen {
                is_inside: was_inside || is_chosen,
                leads: false,
            });
        }
        self.inner.enter(stream, frame);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        match self.pop(stream) {
            true => self.inner.leave(stream, frame),
            false => self.inner.leave_hidden(stream, frame),
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.pop(stream);
        self.inner.leave_hidden(stream, frame);
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        self.inner.values(stream, tsc, bytes);
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        self.inner.mark(stream, tsc, depth, mark);
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.streams.remove(&stream);
        self.inner.end(stream, totals);
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
