//! Events that wait for being told, so that the sink is told of many at once.
//!
//! Part of the [`super::Decoder`], for calls that are in order and what stands between them. Where
//! other calls have stamps, so few records in a row are in order that to tell of each row by itself
//! would cost more than its events. So a [`Row`] goes on over many of them, and has among its
//! events where the time begins that some were spread over. Must not know records.

use sptrace_trace::{end_between, part_between};

use super::module::Place;
use super::sink::{Plain, Sink};

/// Events that are told at once.
const BATCH: usize = 256;

/// Events that wait, all with one high half of the clock. Its memory serves again.
#[derive(Clone, Default)]
pub(super) struct Row {
    high: u64,
    length: usize,
    /// The first `length` of these wait.
    events: Vec<Plain>,
    spans: Vec<(u64, u64)>,
}

impl Row {
    /// Tells of what waits.
    #[inline]
    pub(super) fn flush(&mut self, sink: &mut impl Sink) {
        if self.length > 0 {
            sink.row(self.high, &self.events[..self.length], &self.spans);
            self.length = 0;
            self.spans.clear();
        }
    }

    /// See [`Sink::between`].
    #[inline]
    pub(super) fn between(&mut self, from_tsc: u64, to_tsc: u64, sink: &mut impl Sink) {
        self.make_room(from_tsc, 1, sink);
        self.push(from_tsc, Place::span(self.spans.len() as u32));
        self.spans.push((from_tsc, to_tsc));
    }

    /// So many calls have returned: the last at this time, the others between `since` and it.
    pub(super) fn exits(&mut self, (since, tsc): (u64, u64), calls: usize, sink: &mut impl Sink) {
        let ends = (calls as u64).saturating_sub(1);
        for number in 1..=calls as u64 {
            let tsc = match number > ends {
                true => tsc,
                false => end_between(since, tsc, number, ends),
            };
            self.make_room(tsc, 1, sink);
            self.push(tsc, Place::exit());
        }
    }

    /// So many calls have returned between `since` and this time, and then this one begins, or what
    /// one goes on with.
    #[inline(always)]
    pub(super) fn entry(
        &mut self,
        (since, tsc): (u64, u64),
        returned: usize,
        entry: Place,
        sink: &mut impl Sink,
    ) {
        let mut returned = returned;
        if returned >= BATCH {
            self.exits((since, tsc), returned, sink);
            returned = 0;
        }
        self.make_room(tsc, returned + 1, sink);
        // Of another half of the clock than what is written: at once.
        let since = since.max(self.high << 32);
        let events = self.events.get_mut(self.length..self.length + returned + 1);
        if let Some([returns @ .., last]) = events {
            // As `end_between` says of each.
            let part = part_between(since, tsc, returned as u64);
            let mut ended = since;
            for event in returns {
                ended += part;
                let (stamp, place) = (ended as u32, Place::exit());
                *event = Plain { stamp, place };
            }
            let (stamp, place) = (tsc as u32, entry);
            *last = Plain { stamp, place };
            self.length += returned + 1;
        }
    }

    #[inline(always)]
    fn push(&mut self, tsc: u64, place: Place) {
        if let Some(event) = self.events.get_mut(self.length) {
            let stamp = tsc as u32;
            *event = Plain { stamp, place };
            self.length += 1;
        }
    }

    /// There is room for so many events of this time.
    #[inline(always)]
    fn make_room(&mut self, tsc: u64, events: usize, sink: &mut impl Sink) {
        if tsc >> 32 != self.high || self.length + events > self.events.len() {
            self.begin(tsc, sink);
        }
    }

    #[inline(never)]
    fn begin(&mut self, tsc: u64, sink: &mut impl Sink) {
        self.flush(sink);
        self.high = tsc >> 32;
        self.events.resize(BATCH, Plain::default());
    }
}
