//! Tells of other functions than ran: a number for each module in place of its functions, or of
//! some functions nothing, as if they were not there.
//!
//! For sums of who called whom. Depths stay those of the frames that ran.

use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::model::{FunctionId, StreamId};
use crate::note::Note;

/// Passes on frames under other numbers.
pub struct Recast<V> {
    /// Who sees the rest.
    pub inner: V,
    /// By function index: what it is told as, or that it is not told.
    told_as: Vec<Option<FunctionId>>,
    /// Calls of which nothing was told.
    pub skipped_calls: u64,
}

impl<V: Visitor> Recast<V> {
    /// In front of `inner`; functions beyond the list pass as they are.
    pub fn new(told_as: Vec<Option<FunctionId>>, inner: V) -> Self {
        Self {
            inner,
            told_as,
            skipped_calls: 0,
        }
    }

    fn recast(&self, frame: &Frame) -> Option<Frame> {
        let FunctionId(index) = frame.function;
        let function = match self.told_as.get(index as usize) {
            Some(told_as) => (*told_as)?,
            None => frame.function,
        };
        Some(Frame { function, ..*frame })
    }
}

impl<V: Visitor> Visitor for Recast<V> {
    fn note(&mut self, note: &Note) {
        self.inner.note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        match self.recast(frame) {
            Some(frame) => self.inner.enter(stream, &frame),
            None => self.skipped_calls += u64::from(!frame.flags.begin_unseen),
        }
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(frame) = self.recast(frame) {
            self.inner.leave(stream, &frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(frame) = self.recast(frame) {
            self.inner.leave_hidden(stream, &frame);
        }
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        self.inner.values(stream, tsc, bytes);
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        self.inner.mark(stream, tsc, depth, mark);
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.inner.end(stream, totals);
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
