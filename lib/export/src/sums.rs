//! What adds up: formats that are written when all calls were told.

use crate::output::Output;
use crate::{Context, Exporter, Written};
use sptrace_trace::{Frame, StreamId, StreamTotals, Visitor};
use std::io::{self, Write};

/// Writes sums.
pub type WriteSums<V, W> = fn(&Context<'_>, &V, &mut Output<W>) -> Written;

/// Sums on their way.
pub struct Sums<'a, V, W> {
    cx: &'a Context<'a>,
    view: V,
    write: WriteSums<V, W>,
    out: W,
}

impl<'a, V: Default, W> Sums<'a, V, W> {
    /// Sums by `V`, to be written by `write`.
    pub fn new(cx: &'a Context<'a>, write: WriteSums<V, W>, out: W) -> Self {
        let view = V::default();
        Self {
            cx,
            view,
            write,
            out,
        }
    }
}

impl<V: Visitor, W> Visitor for Sums<'_, V, W> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.view.enter(stream, frame);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.view.leave(stream, frame);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.view.leave_hidden(stream, frame);
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.view.end(stream, totals);
    }
}

impl<V: Visitor, W: Write> Exporter for Sums<'_, V, W> {
    fn finish(self) -> io::Result<Written> {
        let mut out = Output::new(self.out);
        let written = (self.write)(self.cx, &self.view, &mut out);
        out.finish()?;
        Ok(written)
    }
}
