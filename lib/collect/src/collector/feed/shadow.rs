//! Shadow mode: what comes before the recording's start is followed for the sake of the open calls,
//! and is not written.
//!
//! Part of the [`Recorder`]: decides when a recording begins. A [`Line`] stands between a stream's
//! events and its encoder. A stream is named in the trace when its recording begins.
//!
//! The start is an instant (TSC), so records that were made before it and drained later are left
//! out as well. If a call in one thread becomes the start, events of another thread that were
//! drained before cannot be taken back: that thread is recorded from its next event on.

use super::line::Line;
use super::{Lane, Recorder};
use crate::event::calls::Calls;
use crate::event::{Armed, Occurrence, Reaction, Verdict};
use sptrace_trace::{FunctionId, StreamInfo};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Shadow mode of a recording.
pub(crate) struct Shadow {
    armed: Arc<Armed>,
    /// When the recording begins; `u64::MAX`: not yet.
    from_tsc: u64,
    /// What the collector has seen begin it.
    begun: Option<Occurrence>,
    left_out: u64,
    /// Set while chunks are only previewed (they will be decoded again when full): what was seen
    /// there, and how many events were left out before.
    preview: Option<(Vec<Occurrence>, u64)>,
}

impl<W: Write> Recorder<W> {
    /// Nothing of what is followed is recorded before one of the events that are armed for it, or
    /// [`Self::record_from`]. All is from now on (`is_followed`), or from [`Self::begin_following`]
    /// on. To be said before anything is recorded.
    pub(crate) fn follow_until(&mut self, armed: Arc<Armed>, is_followed: bool) {
        self.shadow = Some(Shadow {
            armed,
            from_tsc: if is_followed { u64::MAX } else { 0 },
            begun: None,
            left_out: 0,
            preview: None,
        });
    }

    /// What comes from now on is followed only, until the recording begins. No thread records
    /// anything now.
    pub(crate) fn begin_following(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.from_tsc = u64::MAX;
            shadow.begun = None;
        }
    }

    /// The recording begins.
    pub(crate) fn record_from(&mut self, tsc: u64) {
        if let Some(shadow) = &mut self.shadow {
            shadow.from_tsc = shadow.from_tsc.min(tsc);
        }
    }

    /// The call that has begun the recording, once.
    pub(crate) fn begun(&mut self) -> Option<Occurrence> {
        self.shadow.as_mut()?.begun.take()
    }

    /// Events of before the recording's start that were left out; `None`: nothing was followed.
    pub(crate) fn left_out(&self) -> Option<u64> {
        let shadow = self.shadow.as_ref();
        shadow.filter(|s| s.from_tsc > 0).map(|s| s.left_out)
    }

    /// A new stream's line; it is named in the trace now, or when the recording begins.
    pub(crate) fn new_line(&mut self, info: StreamInfo) -> Option<Line> {
        if self.is_followed() {
            let encoder = self.writer.encoder(sptrace_trace::StreamId(u32::MAX));
            let mut line = Line::new(encoder);
            line.following = Some(Box::new(info));
            return Some(line);
        }
        match self.writer.stream(&info) {
            Ok(id) => Some(Line::new(self.writer.encoder(id))),
            Err(e) => {
                self.check(Err(e));
                None
            }
        }
    }

    /// A stream has come to `tsc`. Counts an event that is left out.
    #[inline]
    pub(crate) fn come_to(&mut self, lane: &mut Lane, tsc: u64, events: u64) {
        if lane.line.following.is_some() {
            self.follow(lane, tsc, events);
        }
    }

    #[cold]
    fn follow(&mut self, lane: &mut Lane, tsc: u64, events: u64) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        if tsc < shadow.from_tsc {
            shadow.left_out += events;
        } else {
            self.begin_line(lane);
        }
    }

    /// Names a stream of before the start, if the recording has begun, and hands its open calls on.
    pub(crate) fn begin_line(&mut self, lane: &mut Lane) {
        let from_tsc = self.shadow.as_ref().map_or(u64::MAX, |s| s.from_tsc);
        if from_tsc == u64::MAX {
            return;
        }
        let Some(mut info) = lane.line.following.take() else {
            return;
        };
        info.start_tsc = info.start_tsc.max(from_tsc);
        match self.writer.stream(&info) {
            Ok(id) => lane.line.encoder = self.writer.encoder(id),
            Err(e) => self.check(Err(e)),
        }
        lane.line.begin(info.start_tsc);
    }

    /// A call or return was seen by the events: does it begin the recording, with itself?
    #[inline]
    pub(crate) fn may_begin(&mut self, lane: &mut Lane) {
        if lane.line.following.is_some() {
            self.look_for_start(lane);
        }
    }

    /// Nothing has begun the recording yet.
    pub(crate) fn is_followed(&self) -> bool {
        self.shadow.as_ref().is_some_and(|s| s.from_tsc == u64::MAX)
    }

    /// What is decoded from here on is only looked at.
    pub(crate) fn begin_preview(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.preview = Some((Vec::new(), shadow.left_out));
        }
    }

    /// The first of what was seen that begins the recording does so. It is counted no more when it
    /// is decoded again.
    pub(crate) fn end_preview(&mut self) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let Some((mut found, left_out)) = shadow.preview.take() else {
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
    pub(crate) fn found_returned(&mut self, lane: &mut Lane, tsc: u64, found: &[FunctionId]) {
        let (Some(calls), false) = (&mut self.calls, found.is_empty()) else {
            return;
        };
        let left = lane.line.found_open().len();
        for callee in found.iter().skip(left).rev() {
            calls.found_returned(self.writer.class(*callee), tsc, lane.pid);
        }
        self.may_begin(lane);
    }

    fn look_for_start(&mut self, lane: &mut Lane) {
        let found = self.calls.as_mut().map(Calls::take).unwrap_or_default();
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        if let Some((seen, _)) = &mut shadow.preview {
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
            self.begin_line(lane);
        }
    }
}
