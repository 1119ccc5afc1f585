//! What stands between the events of a stream and its encoder.
//!
//! Before a recording's start ([`super::shadow`]) a [`Line`] keeps the stack. At the start it gives
//! the encoder each open call as one that began earlier. From there on it tells the ends of these
//! calls from the ends of calls that the trace has seen begin. Without shadow mode it hands
//! everything on. Must not know when a recording begins.

use crate::decode::module::{PLACE_ENTRY, PLACE_OPEN, PLACE_TAIL};
use sptrace_trace::{FunctionId, StreamEncoder, StreamInfo};

/// Tails and entry-only frames in a row that are kept; one more replaces the last.
const MAX_CHAIN: usize = 16;

/// A call that began before the recording, innermost last.
#[derive(Clone, Copy)]
struct Before {
    callee: FunctionId,
    kind: u8,
    /// It was open when the thread was attached to.
    is_found: bool,
}

/// A stream's events on the way to its encoder.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) encoder: StreamEncoder,
    /// Before the start: what the stream will be named by.
    pub(crate) following: Option<Box<StreamInfo>>,
    before: Vec<Before>,
    /// Of these, calls whose ends are recorded.
    calls_before: u32,
}

impl Line {
    pub(crate) fn new(encoder: StreamEncoder) -> Self {
        Self {
            encoder,
            following: None,
            before: Vec::new(),
            calls_before: 0,
        }
    }

    /// All is recorded, and nothing is open that began before.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.following.is_none() && self.before.is_empty()
    }

    /// A call is open whose end is not recorded: see [`StreamEncoder::called_by`].
    #[inline]
    pub(crate) fn has_open(&self) -> bool {
        self.encoder.has_open()
    }

    /// What comes next is called by `caller`, as far as that is known.
    pub(crate) fn called_by(&mut self, tsc: u64, caller: Option<FunctionId>) {
        if self.following.is_none() {
            self.encoder.called_by(tsc, caller);
        }
    }

    /// Open calls whose ends are recorded.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.encoder.depth() + self.calls_before
    }

    /// Open calls, with those whose ends are not recorded, but not those that were open when the
    /// thread was attached to: as the agents count them.
    #[inline]
    pub(crate) fn height(&self) -> u32 {
        let is_open = |b: &&Before| b.kind == PLACE_OPEN && !b.is_found;
        let before = self.before.iter().filter(is_open).count() as u32;
        self.depth() + self.encoder.open_frames() + before
    }

    #[inline]
    pub(crate) fn enter(&mut self, tsc: u64, kind: u8, callee: FunctionId) {
        if self.following.is_some() {
            self.push(kind & (PLACE_TAIL | PLACE_OPEN), callee, false);
        } else if kind & PLACE_TAIL != 0 {
            self.encoder.tail(tsc, callee);
        } else if kind & PLACE_OPEN != 0 {
            self.encoder.enter_open(tsc, callee);
        } else {
            self.encoder.enter(tsc, callee);
        }
    }

    pub(crate) fn enter_earlier(&mut self, tsc: u64, callee: FunctionId) {
        match self.following {
            Some(_) => self.push(PLACE_OPEN, callee, true),
            None => self.encoder.enter_earlier(tsc, callee),
        }
    }

    /// A call that was open when the thread was attached to, and whose end is recorded.
    pub(crate) fn enter_found(&mut self, tsc: u64, callee: FunctionId) {
        match self.following {
            Some(_) => self.push(0, callee, true),
            None => self.encoder.inherit(tsc, callee),
        }
    }

    /// A call that the process was forked in; `kind` is [`PLACE_ENTRY`] or [`PLACE_OPEN`].
    pub(crate) fn inherit(&mut self, tsc: u64, kind: u8, callee: FunctionId) {
        if self.following.is_some() {
            self.push(kind & PLACE_OPEN, callee, false);
        } else if kind & PLACE_OPEN != 0 {
            self.encoder.inherit_open(tsc, callee);
        } else {
            self.encoder.inherit(tsc, callee);
        }
    }

    /// The recording begins: the encoder is another, and is told of the calls that are open.
    pub(crate) fn begin(&mut self, tsc: u64) {
        for b in &self.before {
            self.encoder.enter_earlier(tsc, b.callee);
        }
    }

    fn push(&mut self, flags: u8, callee: FunctionId, is_found: bool) {
        let kind = match flags {
            0 => PLACE_ENTRY,
            f if f & PLACE_TAIL != 0 => PLACE_TAIL,
            _ => PLACE_OPEN,
        };
        let chain = self.before.iter().rev().take(MAX_CHAIN);
        let is_long = chain.take_while(|b| b.kind != PLACE_ENTRY).count() == MAX_CHAIN;
        if kind != PLACE_ENTRY && is_long {
            self.before.pop();
        }
        self.calls_before += u32::from(kind == PLACE_ENTRY);
        self.before.push(Before {
            callee,
            kind,
            is_found,
        });
    }

    #[inline]
    pub(crate) fn exit(&mut self, tsc: u64) {
        if self.before.is_empty() || self.encoder.depth() > 0 {
            self.encoder.exit(tsc);
        } else {
            self.end_before(tsc, 1);
        }
    }

    /// Of what is followed, the calls that were open when the thread was attached to and are still,
    /// innermost last.
    pub(crate) fn found_open(&self) -> Vec<FunctionId> {
        match self.following {
            Some(_) => self
                .before
                .iter()
                .filter(|b| b.is_found)
                .map(|b| b.callee)
                .collect(),
            None => Vec::new(),
        }
    }

    /// The innermost of the calls before, with what is above each, have ended.
    fn end_before(&mut self, tsc: u64, calls: u32) {
        let length = self.before.len();
        for _ in 0..calls {
            while let Some(b) = self.before.pop() {
                if b.kind == PLACE_ENTRY {
                    self.calls_before -= 1;
                    break;
                }
            }
        }
        self.tell_ended(tsc, length - self.before.len());
    }

    fn tell_ended(&mut self, tsc: u64, frames: usize) {
        if self.following.is_none() && frames > 0 {
            self.encoder.close_earlier(tsc, frames as u32);
        }
    }

    pub(crate) fn unwound(&mut self, tsc: u64, frames: u32) {
        let since = frames.min(self.encoder.depth());
        if self.following.is_none() && (since > 0 || self.before.is_empty()) {
            self.encoder.unwound(tsc, frames);
        }
        if frames > since {
            self.end_before(tsc, frames - since);
        }
    }

    pub(crate) fn close_open(&mut self, tsc: u64, frames: u32) {
        if self.before.is_empty() || self.encoder.depth() > 0 {
            if self.following.is_none() {
                self.encoder.close_open(tsc, frames);
            }
            return;
        }
        let since = frames.min(self.encoder.open_since_earlier());
        if since > 0 {
            self.encoder.close_open(tsc, since);
        }
        let length = self.before.len();
        for _ in since..frames {
            let tails = self.before.iter().rev();
            let tails = tails.take_while(|b| b.kind == PLACE_TAIL).count();
            let Some(below) = length_without(&self.before, tails) else {
                break;
            };
            self.before.truncate(below);
        }
        self.tell_ended(tsc, length - self.before.len());
    }

    /// What stands for itself, and leaves the stack as it is.
    pub(crate) fn recording(&mut self) -> Option<&mut StreamEncoder> {
        match self.following {
            Some(_) => None,
            None => Some(&mut self.encoder),
        }
    }
}

/// The length without the topmost entry-only frame, which has so many tails on it.
fn length_without(before: &[Before], tails: usize) -> Option<usize> {
    let below = before.len().checked_sub(tails + 1)?;
    (before[below].kind == PLACE_OPEN).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_trace::{Header, StreamId, TraceWriter};

    /// `-D` left out calls one level too late where the end of a call was not seen.
    #[test]
    fn a_call_whose_end_is_not_seen_is_one_of_those_around_others() {
        let writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
        let mut line = Line::new(writer.encoder(StreamId(0)));
        line.enter(10, PLACE_ENTRY | PLACE_OPEN, FunctionId(1));
        line.enter(20, PLACE_ENTRY, FunctionId(2));
        assert_eq!((line.height(), line.depth()), (2, 1));
        line.exit(30);
        line.close_open(40, 1);
        assert_eq!((line.height(), line.depth()), (0, 0));
    }

    /// Events that are returns and slow calls were not noticed from then on, as calls seemed to lie
    /// deeper than they did.
    #[test]
    fn a_call_that_has_ended_unseen_is_open_no_more() {
        let writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
        let mut line = Line::new(writer.encoder(StreamId(0)));
        line.enter(10, PLACE_ENTRY, FunctionId(1));
        line.enter(20, PLACE_ENTRY, FunctionId(2));
        line.close_open(30, 1);
        assert_eq!(line.depth(), 1);
        line.exit(40);
        assert_eq!((line.height(), line.depth()), (0, 0));
    }
}
