//! Shows a visitor only some calls, each named by where and when it began, and what they call.
//! Depths count from each of them.

use super::visitor::{Frame, Mark, StreamTotals, Visitor};
use crate::model::StreamId;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// Which call: its stream, when it began, and how many frames were below it then.
pub type CallId = (StreamId, u64, u32);

/// Passes on chosen calls and what they call.
pub struct Pick<V> {
    /// Who sees the rest.
    pub inner: V,
    chosen: HashSet<CallId>,
    /// By stream inside of a chosen call: its depth, and how many frames are open from it on.
    inside: HashMap<StreamId, (u32, u32)>,
}

impl<V: Visitor> Pick<V> {
    /// In front of `inner`.
    pub fn new(chosen: impl IntoIterator<Item = CallId>, inner: V) -> Self {
        Self {
            inner,
            chosen: chosen.into_iter().collect(),
            inside: HashMap::default(),
        }
    }

    /// The frame as it is told, if it is inside of a chosen one; what follows when it has ended.
    fn close(&mut self, stream: StreamId, frame: &Frame) -> Option<Frame> {
        let (base, open) = self.inside.get_mut(&stream)?;
        *open = open.saturating_sub(1);
        let told = Frame {
            depth: frame.depth.saturating_sub(*base),
            ..*frame
        };
        if *open == 0 {
            self.inside.remove(&stream);
        }
        Some(told)
    }
}

impl<V: Visitor> Visitor for Pick<V> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let is_chosen = self
            .chosen
            .contains(&(stream, frame.start_tsc, frame.depth));
        let begun = match self.inside.get_mut(&stream) {
            Some(begun) => begun,
            None if is_chosen => self.inside.entry(stream).or_insert((frame.depth, 0)),
            None => return,
        };
        begun.1 += 1;
        let depth = frame.depth.saturating_sub(begun.0);
        self.inner.enter(stream, &Frame { depth, ..*frame });
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(frame) = self.close(stream, frame) {
            self.inner.leave(stream, &frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(frame) = self.close(stream, frame) {
            self.inner.leave_hidden(stream, &frame);
        }
    }

    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        if self.inside.contains_key(&stream) {
            self.inner.values(stream, tsc, bytes);
        }
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        if let Some((base, _)) = self.inside.get(&stream) {
            self.inner
                .mark(stream, tsc, depth.saturating_sub(*base), mark);
        }
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.inner.end(stream, totals);
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
