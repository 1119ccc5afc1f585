//! Shadow mode: what comes before the recording's start is followed for the sake of the open calls,
//! and is not written.
//!
//! Part of the [`Collector`]. A [`Line`] stands between a stream's events and its encoder. Before
//! the start it keeps the stack. At the start it gives the encoder each open call as one that began
//! earlier. From there on it tells the ends of these calls from the ends of calls that the trace
//! has seen begin. Without shadow mode it hands everything on. A stream is named in the trace when
//! its recording begins.
//!
//! The start is an instant (TSC), so records that were made before it and drained later are left
//! out as well. If a call in one thread becomes the start, events of another thread that were
//! drained before cannot be taken back: that thread is recorded from its next event on.

use super::{Collector, StreamState};
use crate::event::{Armed, Occurrence, Reaction, Verdict};
use crate::module::{PLACE_ENTRY, PLACE_OPEN, PLACE_TAIL};
use sptrace_trace::{FunctionId, StreamEncoder, StreamInfo};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Tails and entry-only frames in a row that are kept; one more replaces the last.
const MAX_CHAIN: usize = 16;

/// Shadow mode of a recording.
pub(super) struct Shadow {
    armed: Arc<Armed>,
    /// When the recording begins; `u64::MAX`: not yet.
    from_tsc: u64,
    /// What the collector has seen begin it.
    begun: Option<Occurrence>,
    left_out: u64,
    /// What is decoded will be so once more: what was seen there and how many were left out before.
    glance: Option<(Vec<Occurrence>, u64)>,
}

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
pub(super) struct Line {
    pub(super) encoder: StreamEncoder,
    /// Before the start: what the stream will be named by.
    following: Option<Box<StreamInfo>>,
    before: Vec<Before>,
    /// Of these, calls whose ends are recorded.
    calls_before: u32,
}

impl Line {
    pub(super) fn new(encoder: StreamEncoder) -> Self {
        Self {
            encoder,
            following: None,
            before: Vec::new(),
            calls_before: 0,
        }
    }

    /// All is recorded, and nothing is open that began before.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.following.is_none() && self.before.is_empty()
    }

    /// A call is open whose end is not recorded: see [`StreamEncoder::called_by`].
    #[inline]
    pub(super) fn has_open(&self) -> bool {
        self.encoder.has_open()
    }

    /// What comes next is called by `caller`, as far as that is known.
    pub(super) fn called_by(&mut self, tsc: u64, caller: Option<FunctionId>) {
        if self.following.is_none() {
            self.encoder.called_by(tsc, caller);
        }
    }

    /// Open calls whose ends are recorded.
    #[inline]
    pub(super) fn depth(&self) -> u32 {
        self.encoder.depth() + self.calls_before
    }

    #[inline]
    pub(super) fn enter(&mut self, tsc: u64, kind: u8, callee: FunctionId) {
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

    pub(super) fn enter_earlier(&mut self, tsc: u64, callee: FunctionId) {
        match self.following {
            Some(_) => self.push(PLACE_OPEN, callee, true),
            None => self.encoder.enter_earlier(tsc, callee),
        }
    }

    /// A call that the process was forked in; `kind` is [`PLACE_ENTRY`] or [`PLACE_OPEN`].
    pub(super) fn inherit(&mut self, tsc: u64, kind: u8, callee: FunctionId) {
        if self.following.is_some() {
            self.push(kind & PLACE_OPEN, callee, false);
        } else if kind & PLACE_OPEN != 0 {
            self.encoder.inherit_open(tsc, callee);
        } else {
            self.encoder.inherit(tsc, callee);
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
    pub(super) fn exit(&mut self, tsc: u64) {
        if self.before.is_empty() || self.encoder.depth() > 0 {
            self.encoder.exit(tsc);
        } else {
            self.end_before(tsc, 1);
        }
    }

    /// Of what is followed, the calls that were open when the thread was attached to and are still,
    /// innermost last.
    pub(super) fn found_open(&self) -> Vec<FunctionId> {
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

    pub(super) fn unwound(&mut self, tsc: u64, frames: u32) {
        let since = frames.min(self.encoder.depth());
        if self.following.is_none() && (since > 0 || self.before.is_empty()) {
            self.encoder.unwound(tsc, frames);
        }
        if frames > since {
            self.end_before(tsc, frames - since);
        }
    }

    pub(super) fn close_open(&mut self, tsc: u64, frames: u32) {
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
    pub(super) fn recording(&mut self) -> Option<&mut StreamEncoder> {
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

impl<W: Write> Collector<W> {
    /// Nothing of what is followed is recorded before one of the events that are armed for it, or
    /// [`Self::record_from`]. All is from now on (`is_followed`), or from [`Self::begin_following`]
    /// on. To be said before anything is recorded.
    pub fn shadow(&mut self, armed: Arc<Armed>, is_followed: bool) {
        self.shadow = Some(Shadow {
            armed,
            from_tsc: if is_followed { u64::MAX } else { 0 },
            begun: None,
            left_out: 0,
            glance: None,
        });
    }

    /// What comes from now on is followed only, until the recording begins. No thread records
    /// anything now.
    pub fn begin_following(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.from_tsc = u64::MAX;
            shadow.begun = None;
        }
    }

    /// The recording begins.
    pub fn record_from(&mut self, tsc: u64) {
        if let Some(shadow) = &mut self.shadow {
            shadow.from_tsc = shadow.from_tsc.min(tsc);
        }
    }

    /// The call that has begun the recording, once.
    pub fn begun(&mut self) -> Option<Occurrence> {
        self.shadow.as_mut()?.begun.take()
    }

    /// Events of before the recording's start that were left out; `None`: nothing was followed.
    pub fn left_out(&self) -> Option<u64> {
        let shadow = self.shadow.as_ref();
        shadow.filter(|s| s.from_tsc > 0).map(|s| s.left_out)
    }

    /// A new stream's line; it is named in the trace now, or when the recording begins.
    pub(super) fn new_line(&mut self, info: StreamInfo) -> Option<Line> {
        if self.is_followed() {
            let encoder = self.writer.encoder(sptrace_trace::StreamId(u32::MAX));
            let mut line = Line::new(encoder);
            line.following = Some(Box::new(info));
            return Some(line);
        }
        match self.writer.stream(&info) {
            Ok(id) => Some(Line::new(self.writer.encoder(id))),
            Err(e) => {
                self.check(Err(std::io::Error::other(e)));
                None
            }
        }
    }

    /// A stream has come to `tsc`. Counts an event that is left out.
    #[inline]
    pub(super) fn come_to(&mut self, state: &mut StreamState, tsc: u64, events: u64) {
        if state.line.following.is_some() {
            self.follow(state, tsc, events);
        }
    }

    #[cold]
    fn follow(&mut self, state: &mut StreamState, tsc: u64, events: u64) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        if tsc < shadow.from_tsc {
            shadow.left_out += events;
        } else {
            self.begin_line(state);
        }
    }

    /// Names a stream of before the start, if the recording has begun, and hands its open calls on.
    pub(super) fn begin_line(&mut self, state: &mut StreamState) {
        let from_tsc = self.shadow.as_ref().map_or(u64::MAX, |s| s.from_tsc);
        if from_tsc == u64::MAX {
            return;
        }
        let Some(mut info) = state.line.following.take() else {
            return;
        };
        info.start_tsc = info.start_tsc.max(from_tsc);
        match self.writer.stream(&info) {
            Ok(id) => state.line.encoder = self.writer.encoder(id),
            Err(e) => self.check(Err(std::io::Error::other(e))),
        }
        for b in &state.line.before {
            state.line.encoder.enter_earlier(info.start_tsc, b.callee);
        }
    }

    /// A call or return was seen by the events: does it begin the recording, with itself?
    #[inline]
    pub(super) fn may_begin(&mut self, state: &mut StreamState) {
        if state.line.following.is_some() {
            self.look_for_start(state);
        }
    }

    /// Nothing has begun the recording yet.
    pub(super) fn is_followed(&self) -> bool {
        self.shadow.as_ref().is_some_and(|s| s.from_tsc == u64::MAX)
    }

    /// What is decoded from here on is only looked at.
    pub(super) fn begin_glance(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.glance = Some((Vec::new(), shadow.left_out));
        }
    }

    /// The first of what was seen that begins the recording does so. It is counted no more when it
    /// is decoded again.
    pub(super) fn end_glance(&mut self) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let Some((mut found, left_out)) = shadow.glance.take() else {
            return;
        };
        shadow.left_out = left_out;
        found.sort_by_key(|o| o.tsc);
        let mut seen: HashMap<usize, u64> = HashMap::new();
        let begins = |o: &Occurrence| {
            let count = seen.entry(o.event).or_default();
            *count += 1;
            let is_start = shadow.armed.reaction(o.event) == Some(Reaction::Start);
            is_start && shadow.armed.would_react(o.event, *count)
        };
        if let Some(at) = found.iter().position(begins) {
            let occurrence = found.swap_remove(at);
            shadow.from_tsc = occurrence.tsc;
            shadow.begun = Some(occurrence);
        }
    }

    /// Entry-only frames were closed. `found`: what there was before ([`Line::found_open`]). Those
    /// return now, or have since the thread's last event.
    pub(super) fn found_returned(
        &mut self,
        state: &mut StreamState,
        tsc: u64,
        found: &[FunctionId],
    ) {
        let (Some(calls), false) = (&mut self.calls, found.is_empty()) else {
            return;
        };
        let left = state.line.found_open().len();
        for callee in found.iter().skip(left).rev() {
            calls.found_returned(self.writer.class(*callee), tsc, state.pid);
        }
        self.may_begin(state);
    }

    fn look_for_start(&mut self, state: &mut StreamState) {
        let found = self.seen();
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        if let Some((seen, _)) = &mut shadow.glance {
            seen.extend(found);
            return;
        }
        let mut has_begun = false;
        // What would end the recording does not count before it begins.
        for occurrence in found {
            let is_start = shadow.armed.reaction(occurrence.event) == Some(Reaction::Start);
            if shadow.from_tsc == u64::MAX
                && is_start
                && matches!(shadow.armed.count(occurrence.event), Verdict::React(_))
            {
                has_begun = true;
                shadow.from_tsc = occurrence.tsc;
                shadow.begun = Some(occurrence);
                shadow.left_out = shadow.left_out.saturating_sub(1);
            }
        }
        if has_begun {
            self.begin_line(state);
        }
    }
}
