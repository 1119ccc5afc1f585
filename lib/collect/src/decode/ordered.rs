//! Calls that were recorded in order, without stamps and ends.
//!
//! Part of the [`Decoder`]. In place of a stamp such a record has where the stack pointer stood at
//! the call ([`sptrace_wire::record`]). From that follows which calls have ended by then, and that
//! is told at the next call. Times are estimates: the records between two stamps are spread over
//! the time between them, evenly, and the sink is told which time that is. Must not know how
//! estimates are shown.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::{FunctionId, Spread, end_between};
use sptrace_wire::record::{ANCHOR, CONTROL_IDS};

use super::mixed::{End, Ends, How};
use super::module::{PLACE_ENTRY, PLACE_INDIRECT, PLACE_TAIL, Place};
use super::open::{Ended, Looked, Made};
use super::record::{Call, Record, Valued};
use super::row::Row;
use super::sink::Sink;
use super::{Cursor, Decoder, ToStub};

/// If a stamp is earlier than what came before, a later one is looked for among so many records.
const EARLIER: usize = 16;
impl<S: Sink> Decoder<'_, S> {
    /// True if a call that was recorded in order stands at `at`.
    #[inline]
    pub(super) fn is_in_order(&self, halves: &[AtomicU32], at: usize) -> bool {
        self.look_up_in_order(halves, at).is_some()
    }

    /// What it is of, and its halves.
    #[inline(always)]
    pub(super) fn look_up_in_order(
        &self,
        halves: &[AtomicU32],
        at: usize,
    ) -> Option<(Looked, usize)> {
        let [stack, id, ..] = halves.get(at..)? else {
            return None;
        };
        let (stack, id) = (stack.load(Ordering::Relaxed), id.load(Ordering::Relaxed));
        let is_written = stack != 0 && id >= CONTROL_IDS;
        let place = is_written.then(|| self.areas.quick(id))??;
        let looked = place.is_in_order().then_some(Looked {
            at: at as u32,
            stack,
            id,
            place,
            caller: None,
        })?;
        let is_narrow = place.kind() & PLACE_INDIRECT != 0;
        Some((looked, 2 + usize::from(is_narrow)))
    }

    /// Takes the calls from `at` on that were recorded in order, up to the next record with a
    /// stamp, and gives where that is; what can be told in a row waits in `row`. None: what comes
    /// from there on is not wanted.
    pub(super) fn in_order(
        &mut self,
        row: &mut Row,
        halves: &[AtomicU32],
        at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        if self.cursor.edges.is_some() {
            row.flush(self.sink);
            return self.add_to_edges(halves, at, wide_callee);
        }
        if self.sink.takes_runs() && self.is_a_run() {
            row.flush(self.sink);
            return self.familiar(halves, at, wide_callee);
        }
        let mut looked_up = std::mem::take(&mut self.cursor.ordered.looked_up);
        let end = self.look_up_all(halves, at, &mut looked_up);
        let (from, to) = self.times_up_to(halves, end);
        self.cursor.ordered.last_tsc = from;
        let mut takes_rows = self.takes_plain(wide_callee);
        match takes_rows {
            true => row.between(from, to, self.sink),
            false => {
                row.flush(self.sink);
                self.sink.between(from, to);
            }
        }
        let time = Spread::new(from, to, looked_up.len() as u64);
        for (number, looked) in (1..).zip(&looked_up) {
            let tsc = time.at(number);
            if takes_rows && let Some(made) = self.plain(halves, looked, tsc) {
                self.add_to(row, made);
                continue;
            }
            self.cursor.last_tsc = tsc;
            row.flush(self.sink);
            if !self.one_in_order(halves, looked.at as usize, tsc, wide_callee) {
                return None;
            }
            takes_rows = self.takes_plain(wide_callee);
        }
        self.cursor.last_tsc = time.at(looked_up.len() as u64);
        self.cursor.ordered.stood_in_a_row(looked_up.len() as u64);
        self.cursor.ordered.looked_up = looked_up;
        Some(end)
    }

    /// What comes next may be taken as a run: how long each call of it lasts nobody asks, and no
    /// time is known that it lies behind but the last stamp's.
    #[inline]
    fn is_a_run(&self) -> bool {
        let open = &self.cursor.ordered;
        match open.are_lengths_asked() {
            true => {
                let is_between = self.cursor.ends_at.is_none();
                let is_later = self.cursor.later_than <= self.cursor.last_tsc;
                !open.is_measured() && open.are_rows_long() && is_between && is_later
            }
            false => true,
        }
    }

    /// Looks up what the records from `at` on are of that are in order, and who calls: without a
    /// decision that depends on it, so that much comes from memory at once. Gives where the next
    /// one is.
    #[inline]
    fn look_up_all(
        &self,
        halves: &[AtomicU32],
        mut at: usize,
        looked_up: &mut Vec<Looked>,
    ) -> usize {
        looked_up.clear();
        while let Some((mut looked, _)) = self.look_up_in_order(halves, at) {
            looked.caller = self.cursor.ordered.caller(looked.id);
            // A decision, not a sum: where the next one is can be foretold before it is known.
            if looked.place.kind() & PLACE_INDIRECT == 0 {
                at += 2;
            } else {
                let callee = self.recent_callee(halves.get(at + 2));
                let resolved = callee.and_then(|callee| looked.place.resolved(callee));
                looked.place = resolved.unwrap_or(looked.place);
                at += 3;
            }
            looked_up.push(looked);
        }
        at
    }

    /// Calls may be told in a row, as far as all of each can be said at once.
    #[inline]
    pub(super) fn takes_plain(&self, wide_callee: &Option<u64>) -> bool {
        wide_callee.is_none() && self.cursor.lazy.is_none() && self.sink.takes_rows()
    }

    /// Between which times that was recorded which comes next and ends at `end`.
    fn times_up_to(&self, halves: &[AtomicU32], end: usize) -> (u64, u64) {
        let from = self.cursor.earliest();
        let to = self.next_time(halves, end).max(from);
        match self.cursor.ends_at {
            Some(ends_at) if from < ends_at => (from, to.min(ends_at)),
            _ => (from, to),
        }
    }

    /// The time of the next record from `at` on that has one, else the latest that there can be.
    #[inline]
    pub(super) fn next_time(&self, halves: &[AtomicU32], at: usize) -> u64 {
        let stamped = self.stamped_at(halves, at);
        stamped.map_or_else(|| self.later_time(halves, at), |stamped| stamped.tsc)
    }

    #[inline(never)]
    fn later_time(&self, halves: &[AtomicU32], mut at: usize) -> u64 {
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
                Record::Control { stamp, .. }
                | Record::Values { stamp, .. }
                | Record::Valued(Valued {
                    call: Call { stamp, .. },
                    ..
                })
                | Record::Call(Call { stamp, .. }) => Some(stamp),
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

    /// The call of a record, if all of it can be said at once.
    #[inline(always)]
    fn plain(&self, halves: &[AtomicU32], looked: &Looked, tsc: u64) -> Option<Made> {
        let place = looked.place;
        let callee = match place.callee() {
            Some(callee) => callee,
            None if place.kind() & PLACE_INDIRECT == 0 => return None,
            None => self.recent_callee(halves.get(looked.at as usize + 2))?,
        };
        Some(Made {
            place: looked.stack,
            callee,
            // What one of the row was the first to ask is known to those after it.
            caller: looked
                .caller
                .or_else(|| self.cursor.ordered.caller(looked.id))?,
            is_tail: place.is_tail(),
            tsc,
            how: How::InOrder,
        })
    }

    /// A call begins of which all can be said at once.
    #[inline(always)]
    pub(super) fn add_to(&mut self, row: &mut Row, made: Made) {
        let ended = self.cursor.ordered.add(made);
        let entry = Place::entry(made.callee, ended.goes_on);
        let is_plain = ended.left == 0 && self.cursor.ordered.have_exits();
        let Some(entry) = entry.filter(|_| is_plain) else {
            row.flush(self.sink);
            return self.tell(made.tsc, &made, &ended);
        };
        let since = self.cursor.ordered.come_to(made.tsc);
        row.entry((since, made.tsc), ended.returned, entry, self.sink);
    }

    /// The end of a call with stamps, of which all can be said at once.
    #[inline]
    pub(super) fn end_in(&mut self, row: &mut Row, tsc: u64) {
        let (told, ended) = self.cursor.ordered.told(tsc);
        if self.cursor.ordered.have_exits() {
            let ended = ended + usize::from(told == End::Earlier);
            let since = self.cursor.ordered.come_to(tsc);
            return row.exits((since, tsc), ended, self.sink);
        }
        row.flush(self.sink);
        self.tell_end(tsc, told, ended);
    }

    /// A call that needs a closer look. False: what comes from here on is not wanted.
    pub(super) fn one_in_order(
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
        self.cursor.ordered.keep_caller(call.id, caller);
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
        let (told, ended) = self.cursor.ordered.told(tsc);
        self.tell_end(tsc, told, ended);
    }

    fn tell_end(&mut self, tsc: u64, told: End, ended: usize) {
        let is_exact = matches!(told, End::Of(_));
        self.tell_kinds((tsc, is_exact), ended, 0);
        if told == End::Earlier {
            self.sink.exit(tsc);
        }
    }

    /// The innermost call with stamps will end next: what is told until then is of it.
    pub(super) fn end_inside(&mut self, tsc: u64) {
        if self.cursor.ordered.is_mixed() {
            let ended = self.cursor.ordered.ended_inside(tsc);
            self.tell_kinds((tsc, false), ended, 0);
        }
    }

    /// So many calls whose ends the agent tells were left, or have ended unseen (`is_closed`).
    pub(super) fn leave_told(&mut self, tsc: u64, calls: u32, is_closed: bool) {
        for _ in 0..calls {
            let (told, ended) = self.cursor.ordered.told(tsc);
            self.tell_kinds((tsc, true), ended, if is_closed { 0 } else { usize::MAX });
            match told {
                End::Earlier if is_closed => self.sink.closed(tsc, 1),
                End::Earlier => self.sink.unwound(tsc, 1),
                End::Of(_) | End::Known => {}
            }
        }
    }

    fn enter_in_order(&mut self, tsc: u64, made: Made) {
        let ended = self.cursor.ordered.add(made);
        self.tell(tsc, &made, &ended);
    }

    fn tell_ended(&mut self, tsc: u64, ended: &Ended) {
        if self.cursor.ordered.is_mixed() {
            return self.tell_kinds((tsc, false), ended.left + ended.returned, ended.left);
        }
        let since = self.cursor.ordered.come_to(tsc);
        if ended.left > 0 {
            let left = u32::try_from(ended.left).unwrap_or(u32::MAX);
            self.sink.unwound(tsc, left);
        }
        let ends = ended.returned as u64;
        for number in 1..=ends {
            self.sink.exit(match ended.left {
                0 => end_between(since, tsc, number, ends),
                _ => tsc,
            });
        }
    }

    /// So many have ended by a time, of which the first `left` were left, and the others have
    /// returned, since what was told last; open ones have no exit. `is_exact`: the last one at that
    /// time.
    fn tell_kinds(&mut self, (tsc, is_exact): (u64, bool), ended: usize, left: usize) {
        let since = self.cursor.ordered.come_to(tsc);
        let kinds = self.cursor.ordered.ends.as_mut();
        let are_open = kinds.map_or(Vec::new(), Ends::take_ended);
        let ends = ended.saturating_sub(usize::from(is_exact));
        for i in 0..ended {
            if are_open.get(i).is_some_and(|is_open| *is_open) {
                self.sink.closed(tsc, 1);
            } else if i < left {
                self.sink.unwound(tsc, 1);
            } else if i < ends && left == 0 && are_open.is_empty() {
                let at = end_between(since, tsc, i as u64 + 1, ends as u64);
                self.sink.exit(at);
            } else {
                self.sink.exit(tsc);
            }
        }
    }

    /// What a call has told, which is the innermost by now, and it.
    pub(super) fn tell(&mut self, tsc: u64, made: &Made, ended: &Ended) {
        self.tell_ended(tsc, ended);
        let kind = match ended.goes_on {
            true => PLACE_ENTRY | PLACE_TAIL,
            false => PLACE_ENTRY,
        };
        // What is around it is so by where the stack pointer stood, whoever makes the call.
        let caller = match ended.goes_on || self.sink.counts() {
            true => made.caller,
            false => self.cursor.ordered.around_innermost(),
        };
        self.sink.enter(tsc, kind, made.callee, |_| caller);
    }
}
