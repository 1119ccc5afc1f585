//! Leaves out frames that are not known to be long enough.

use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::model::StreamId;
use crate::note::Note;

/// Passes on the ends of frames that are long enough.
///
/// Beginnings pass in any case; a short frame ends as one without time that is counted nowhere.
pub struct MinTime<V> {
    /// Who sees the rest.
    pub inner: V,
    min_ticks: u64,
}

impl<V: Visitor> MinTime<V> {
    /// In front of `inner`.
    pub fn new(min_ticks: u64, inner: V) -> Self {
        Self { inner, min_ticks }
    }
}

impl<V: Visitor> Visitor for MinTime<V> {
    fn note(&mut self, note: &Note) {
        self.inner.note(note);
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.inner.enter(stream, frame);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if frame.total_ticks.unwrap_or(0) >= self.min_ticks {
            self.inner.leave(stream, frame);
        } else {
            self.inner.leave_hidden(stream, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.inner.leave_hidden(stream, frame);
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
