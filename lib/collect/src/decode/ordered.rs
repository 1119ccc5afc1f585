//! Calls that were recorded in order, without stamps and ends.
//!
//! Part of the [`Decoder`]. In place of a stamp such a record has where the stack pointer stood at
//! the call ([`sptrace_wire::record`]). From that follows which calls have ended by then, and that
//! is told at the next call. Times are estimates: the records between two stamps are spread over
//! the time between them, evenly, and the sink is told which time that is. Must not know how
//! estimates are shown.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::FunctionId;
use sptrace_wire::record::{ANCHOR, CONTROL_IDS};

use super::mixed::{End, How};
use super::module::{PLACE_INDIRECT, PLACE_TAIL, Place};
use super::open::{Ended, Made};
use super::record::{Call, Record};
use super::sink::{Plain, Sink};
use super::{Cursor, Decoder, ToStub};

/// If a stamp is earlier than what came before, a later one is looked for among so many records.
const EARLIER: usize = 16;
/// Times in a row are counted in such parts of a tick.
const FRACTION_BITS: u32 = 32;
/// Events that are told at once.
const BATCH: usize = 256;

/// Events that wait for being told, all with one high half of the clock.
struct Row {
    high: u64,
    length: usize,
    events: [Plain; BATCH],
}

impl Row {
    fn new(tsc: u64) -> Self {
        Self {
            high: tsc >> 32,
            length: 0,
            events: [Plain::default(); BATCH],
        }
    }

    #[inline(never)]
    fn flush(&mut self, sink: &mut impl Sink) {
        if self.length > 0 {
            sink.row(self.high, &self.events[..self.length]);
            self.length = 0;
        }
    }

    /// So many calls have ended at this time, and then one begins.
    #[inline(always)]
    fn add(&mut self, tsc: u64, returned: usize, entry: Place, sink: &mut impl Sink) {
        if tsc >> 32 != self.high || self.length + returned >= BATCH {
            self.flush(sink);
            self.high = tsc >> 32;
        }
        let stamp = tsc as u32;
        let mut returned = returned;
        while returned >= BATCH {
            let place = Place::exit();
            self.events.fill(Plain { stamp, place });
            self.length = BATCH;
            self.flush(sink);
            returned -= BATCH;
        }
        let Some(room) = self.events[self.length..].get_mut(..returned + 1) else {
            return;
        };
        let place = Place::exit();
        room[..returned]
            .iter_mut()
            .for_each(|event| *event = Plain { stamp, place });
        room[returned] = Plain {
            stamp,
            place: entry,
        };
        self.length += returned + 1;
    }
}

impl<S: Sink> Decoder<'_, S> {
    /// True if a call that was recorded in order stands at `at`.
    #[inline]
    pub(super) fn is_in_order(&self, halves: &[AtomicU32], at: usize) -> bool {
        self.look_up_in_order(halves, at).is_some()
    }

    /// What it is of, and its halves.
    #[inline]
    fn look_up_in_order(&self, halves: &[AtomicU32], at: usize) -> Option<(Place, usize)> {
        let (stack, id) = (halves.get(at)?, halves.get(at + 1)?);
        let id = id.load(Ordering::Relaxed);
        let is_written = stack.load(Ordering::Relaxed) != 0 && id >= CONTROL_IDS;
        let place = is_written.then(|| self.areas.quick(id))??;
        let is_narrow = place.kind() & PLACE_INDIRECT != 0;
        place
            .is_in_order()
            .then_some((place, 2 + usize::from(is_narrow)))
    }

    /// Tells of the calls from `at` on that were recorded in order, up to the next record with a
    /// stamp; gives where that is. None: what comes from there on is not wanted.
    pub(super) fn in_order(
        &mut self,
        halves: &[AtomicU32],
        at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        let mut end = at;
        let mut looked_up = std::mem::take(&mut self.cursor.ordered.looked_up);
        looked_up.clear();
        while let Some((place, _)) = self.look_up_in_order(halves, end) {
            // A decision, not a sum: where the next one is can be foretold before it is known.
            if place.kind() & PLACE_INDIRECT == 0 {
                looked_up.push((end as u32, place));
                end += 2;
            } else {
                let callee = self.recent_callee(self.cursor.pid, halves.get(end + 2));
                let resolved = callee.and_then(|callee| place.resolved(callee));
                looked_up.push((end as u32, resolved.unwrap_or(place)));
                end += 3;
            }
        }
        let from = self.cursor.last_tsc;
        let to = self.next_time(halves, end).max(from);
        self.sink.between(from, to);
        let parts = looked_up.len() as u128 + 1;
        let part = (u128::from(to - from) << FRACTION_BITS) / parts;
        let mut passed = 0;
        let mut row = Row::new(from);
        let mut takes_rows = self.takes_plain(wide_callee);
        for (at, place) in &looked_up {
            passed += part;
            let (tsc, at) = (from + (passed >> FRACTION_BITS) as u64, *at as usize);
            if takes_rows && let Some(made) = self.plain(halves, at, *place, tsc) {
                self.add_to(&mut row, tsc, made);
                continue;
            }
            self.cursor.last_tsc = tsc;
            row.flush(self.sink);
            if !self.one_in_order(halves, at, tsc, wide_callee) {
                return None;
            }
            takes_rows = self.takes_plain(wide_callee);
        }
        let all = (part * (parts - 1)) >> FRACTION_BITS;
        self.cursor.last_tsc = from + all as u64;
        self.cursor.ordered.looked_up = looked_up;
        row.flush(self.sink);
        Some(end)
    }

    /// Calls may be told in a row, as far as all of each can be said at once.
    fn takes_plain(&self, wide_callee: &Option<u64>) -> bool {
        wide_callee.is_none() && self.cursor.lazy.is_none() && self.sink.takes_rows()
    }

    /// The time of the next record from `at` on that has one, else the latest that there can be.
    fn next_time(&self, halves: &[AtomicU32], mut at: usize) -> u64 {
        let Cursor { high, last_tsc, .. } = *self.cursor;
        let (mut is_earlier, mut looked_at) = (false, 0);
        while at < halves.len() && !(is_earlier && looked_at > EARLIER) {
            looked_at += 1;
            if let Some((_, length)) = self.look_up_in_order(halves, at) {
                at += length;
                continue;
            }
            let (record, length) = Record::read(halves, at, self.areas);
            let stamp = match record {
                Record::Control { id, payload, .. } if id == ANCHOR => return payload,
                Record::Control { stamp, .. } | Record::Call(Call { stamp, .. }) => Some(stamp),
                _ => None,
            };
            let time = stamp.map(|stamp| high << 32 | u64::from(stamp));
            if let Some(time) = time.filter(|time| *time >= last_tsc) {
                return time;
            }
            is_earlier |= time.is_some();
            at += length;
        }
        match is_earlier {
            true => last_tsc,
            false => self.cursor.until_tsc,
        }
    }

    /// The call that stands at `at`, if all of it can be said at once.
    #[inline]
    fn plain(&self, halves: &[AtomicU32], at: usize, place: Place, tsc: u64) -> Option<Made> {
        let [stack, id, rest @ ..] = halves.get(at..)? else {
            return None;
        };
        let caller = self.cursor.ordered.caller(id.load(Ordering::Relaxed))?;
        let callee = match place.callee() {
            Some(callee) => callee,
            None if place.kind() & PLACE_INDIRECT == 0 => return None,
            None => self.recent_callee(self.cursor.pid, rest.first())?,
        };
        Some(Made {
            place: stack.load(Ordering::Relaxed),
            callee,
            caller: Some(caller),
            is_tail: place.is_tail(),
            tsc,
            how: How::InOrder,
        })
    }

    #[inline]
    fn add_to(&mut self, row: &mut Row, tsc: u64, made: Made) {
        let ended = self.cursor.ordered.add(made);
        let entry = Place::entry(made.callee, ended.goes_on);
        let is_plain = ended.left == 0 && self.cursor.ordered.have_exits();
        let Some(entry) = entry.filter(|_| is_plain) else {
            row.flush(self.sink);
            return self.tell(tsc, made.callee, &ended);
        };
        if let Some(ends) = &mut self.cursor.ordered.ends {
            ends.forget_ended();
        }
        row.add(tsc, ended.returned, entry, self.sink);
    }

    /// A call that needs a closer look. False: what comes from here on is not wanted.
    fn one_in_order(
        &mut self,
        halves: &[AtomicU32],
        at: usize,
        tsc: u64,
        wide_callee: &mut Option<u64>,
    ) -> bool {
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        let (Record::Call(call), _) = Record::read(halves, at, self.areas) else {
            self.torn.count(self.areas);
            return true;
        };
        let Call {
            place, stamp, from, ..
        } = call;
        let caller = self.book.site_caller(from, self.sink);
        if let (Some(caller), Some(id)) = (caller, halves.get(at + 1)) {
            let id = id.load(Ordering::Relaxed);
            self.cursor.ordered.keep_caller(id, caller);
        }
        let is_tail = place.kind() & PLACE_TAIL != 0;
        let callee = self.callee(&call, tsc, wide_callee);
        if self.cursor.ordered.switching.is_empty() {
            self.cursor.ordered.switching = self.book.switching(from);
        }
        let Some(callee) = callee else {
            // A stub: the next jump tells the callee. One that was held back has been told of.
            self.cursor.ordered.lazy.get_or_insert((stamp, caller));
            return true;
        };
        let is_told = self.cursor.lazy.is_some() && is_tail;
        self.settle_lazy(is_tail.then_some(callee));
        if !is_told {
            let place = stamp;
            self.enter_in_order(
                tsc,
                Made {
                    place,
                    callee,
                    caller,
                    is_tail,
                    tsc,
                    how: How::InOrder,
                },
            );
        }
        true
    }

    /// The call of a stub that was held back, by the callee's name.
    pub(super) fn settle_in_order(&mut self, stub: ToStub, callee: FunctionId) -> bool {
        let Some((place, caller)) = self.cursor.ordered.lazy.take() else {
            return false;
        };
        let tsc = stub.tsc.max(self.cursor.last_tsc);
        self.enter_in_order(
            tsc,
            Made {
                place,
                callee,
                caller,
                is_tail: stub.is_tail,
                tsc,
                how: How::InOrder,
            },
        );
        true
    }

    /// A function that was called where it is not seen, with the stack pointer at a known place.
    pub(super) fn enter_placed(&mut self, tsc: u64, callee: FunctionId) {
        if let Some(place) = self.cursor.ordered.take_place() {
            self.enter_in_order(
                tsc,
                Made {
                    place,
                    callee,
                    caller: None,
                    is_tail: false,
                    tsc,
                    how: How::InOrder,
                },
            );
        }
    }

    /// A call with stamps begins among others in order: those that have ended by then are told.
    pub(super) fn begin_told(
        &mut self,
        tsc: u64,
        (callee, caller): (FunctionId, Option<FunctionId>),
        place: Option<u32>,
        how: How,
    ) {
        let open = &mut self.cursor.ordered;
        let ended = open.add(Made {
            place: place.or_else(|| open.inside()).unwrap_or(u32::MAX / 2),
            callee,
            caller,
            is_tail: false,
            tsc,
            how,
        });
        self.tell_ended(tsc, &ended);
    }

    /// A call with stamps has returned.
    pub(super) fn end_told(&mut self, tsc: u64) {
        let told = self.cursor.ordered.told(tsc);
        self.tell_kinds(tsc, 0);
        if told == End::Earlier {
            self.sink.exit(tsc);
        }
    }

    /// So many calls whose ends the agent tells were left, or have ended unseen (`is_closed`).
    pub(super) fn leave_told(&mut self, tsc: u64, calls: u32, is_closed: bool) {
        for _ in 0..calls {
            let told = self.cursor.ordered.told(tsc);
            self.tell_kinds(tsc, if is_closed { 0 } else { usize::MAX });
            match told {
                End::Earlier if is_closed => self.sink.closed(tsc, 1),
                End::Earlier => self.sink.unwound(tsc, 1),
                End::Of(_) | End::Known => {}
            }
        }
    }

    fn enter_in_order(&mut self, tsc: u64, made: Made) {
        let ended = self.cursor.ordered.add(made);
        self.tell(tsc, made.callee, &ended);
    }

    fn tell_ended(&mut self, tsc: u64, ended: &Ended) {
        if self.cursor.ordered.is_mixed() {
            return self.tell_kinds(tsc, ended.left);
        }
        if ended.left > 0 {
            self.sink
                .unwound(tsc, u32::try_from(ended.left).unwrap_or(u32::MAX));
        }
        (0..ended.returned).for_each(|_| self.sink.exit(tsc));
    }

    /// Of those that have ended, the first `left` were left, and the others have returned; open
    /// ones have no exit.
    fn tell_kinds(&mut self, tsc: u64, left: usize) {
        let Some(ends) = &mut self.cursor.ordered.ends else {
            return;
        };
        for (i, is_open) in ends.ended().iter().enumerate() {
            if *is_open {
                self.sink.closed(tsc, 1);
            } else if i < left {
                self.sink.unwound(tsc, 1);
            } else {
                self.sink.exit(tsc);
            }
        }
        ends.forget_ended();
    }

    fn tell(&mut self, tsc: u64, callee: FunctionId, ended: &Ended) {
        use super::module::PLACE_ENTRY;
        self.tell_ended(tsc, ended);
        let kind = match ended.goes_on {
            true => PLACE_ENTRY | PLACE_TAIL,
            false => PLACE_ENTRY,
        };
        self.sink.enter(tsc, kind, callee, |_| None);
    }
}
