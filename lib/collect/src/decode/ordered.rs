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

use super::module::{PLACE_INDIRECT, PLACE_TAIL, Place};
use super::record::{Call, Record};
use super::sink::{Plain, Sink};
use super::{Cursor, Decoder, ToStub};

/// Two places farther from each other are on different stacks: as in the agent.
const SAME_STACK_BYTES: u32 = 64 << 20;
/// So many frames are looked at for the one that a call is made from.
const LOOKED_AT: usize = 64;
/// Sites whose functions are kept at hand; a power of two.
const CALLERS: usize = 1 << 13;
/// Times in a row are counted in such parts of a tick.
const FRACTION_BITS: u32 = 32;
/// Events that are told at once.
const BATCH: usize = 256;

/// A call that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// Where the stack pointer stood.
    place: u32,
    /// What runs in it.
    function: FunctionId,
}

impl Frame {
    /// It is on the stack that this place is on.
    #[inline]
    fn is_near(&self, place: u32) -> bool {
        let above = self.place.wrapping_sub(place) as i32;
        above.unsigned_abs() < SAME_STACK_BYTES
    }
}

/// A call, or a jump that goes on with one.
#[derive(Clone, Copy)]
struct Made {
    place: u32,
    callee: FunctionId,
    /// The function that its site lies in, if that is known.
    caller: Option<FunctionId>,
    is_tail: bool,
}

/// The calls that are open, the innermost last.
#[derive(Clone, Default)]
pub(super) struct Open {
    frames: Vec<Frame>,
    /// Of the function that is told of next.
    next: Option<u32>,
    /// Of the held-back call of a stub ([`Cursor::lazy`]): where the stack pointer stood, and who
    /// calls.
    lazy: Option<(u32, Option<FunctionId>)>,
    /// In which function the sites of some ids lie.
    callers: Vec<(u32, FunctionId)>,
    /// Functions that go on with another coroutine, on its stack, and do not come back (Go's
    /// `gogo`). Where there are some, stacks may lie near each other.
    switching: Vec<FunctionId>,
    /// Records in a row: where each stands, and what it is of. Its memory serves again.
    looked_up: Vec<(u32, Place)>,
}

/// What a call says of those before it.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// So many have returned.
    returned: usize,
    /// Before these, so many were left: another stack is in use.
    left: usize,
    /// The call goes on with the one that is open then.
    goes_on: bool,
}

impl Open {
    /// What comes next was called with the stack pointer here.
    pub(super) fn stands_at(&mut self, place: u32) {
        self.next = Some(place);
    }

    /// It is known where what comes next was called.
    pub(super) fn is_placed(&self) -> bool {
        self.next.is_some()
    }

    /// What a call or jump says of those before.
    ///
    /// The stack pointer alone does not tell a call inside of another from one that the same caller
    /// makes with arguments on the stack, after the other has returned: if the innermost function
    /// is not the caller, but one below it is, that is where the call is made.
    #[inline]
    fn add(&mut self, made: Made) -> Ended {
        let Made { place, callee, .. } = made;
        if !self.switching.is_empty()
            && let Some(ended) = self.on_other_stack(made)
        {
            return ended;
        }
        let left = match self.frames.last() {
            Some(top) if !top.is_near(place) => self.leave_stack(place),
            _ => 0,
        };
        let all = self.frames.len();
        // Above the call's own place is what holds it: what is there or below has ended.
        let mut open = all;
        while let Some(top) = self.frames[..open].last_mut()
            && place.wrapping_sub(top.place) < SAME_STACK_BYTES
        {
            if top.place == place && made.is_tail {
                top.function = callee;
                self.frames.truncate(open);
                return Ended {
                    returned: all - open,
                    left,
                    goes_on: true,
                };
            }
            open -= 1;
        }
        self.frames.truncate(open);
        if !made.is_tail
            && let Some(top) = self.frames.last()
            && Some(top.function) != made.caller
        {
            open -= self.above_caller(place, made.caller);
            self.frames.truncate(open);
        }
        self.frames.push(Frame {
            place,
            function: callee,
        });
        Ended {
            returned: all - open,
            left,
            goes_on: false,
        }
    }

    /// What a call says of those before it where coroutines change stacks, if it is made on another
    /// one than the innermost call. All calls that a coroutine makes from one function have one
    /// place.
    #[cold]
    #[inline(never)]
    fn on_other_stack(&mut self, made: Made) -> Option<Ended> {
        let top = *self.frames.last()?;
        let all = self.frames.len();
        let is_caller = |open: &Frame| Some(open.function) == made.caller;
        let is_switched =
            self.switching.contains(&top.function) && (made.is_tail || !is_caller(&top));
        let mut ended = Ended {
            returned: 0,
            left: 0,
            goes_on: false,
        };
        if is_switched && !self.switching.contains(&made.callee) {
            // Another coroutine goes on, unless a call waits just where this one is made.
            let waits = |pair: &[Frame]| is_caller(&pair[0]) && pair[1].place == made.place;
            let waiting = self.frames.windows(2).rposition(waits);
            let open = waiting.filter(|_| !made.is_tail).map_or(0, |at| at + 1);
            match open {
                0 => ended.left = all,
                _ => ended.returned = all - open,
            }
            self.frames.truncate(open);
        } else {
            // By the stack pointer alone another function would be the caller: the stack has
            // changed since the caller began, or is again what it was.
            let place = made.place;
            let has_ended = |open: &Frame| place.wrapping_sub(open.place) < SAME_STACK_BYTES;
            let returned = self.frames.iter().rev().take_while(|open| has_ended(open));
            let below = all - returned.count();
            let is_below = below > 0 && top.is_near(place) && is_caller(&self.frames[below - 1]);
            if made.is_tail || is_below {
                return None;
            }
            let mut looked_at = self.frames.iter().rev().take(LOOKED_AT);
            ended.returned = looked_at.position(is_caller)?;
            self.frames.truncate(all - ended.returned);
        }
        self.frames.push(Frame {
            place: made.place,
            function: made.callee,
        });
        Some(ended)
    }

    /// If there are calls on this stack, the innermost of them is the innermost of all from here
    /// on. So many were left.
    #[cold]
    #[inline(never)]
    fn leave_stack(&mut self, place: u32) -> usize {
        let is_near = |open: &Frame| open.is_near(place);
        let all = self.frames.len();
        if let Some(below) = self.frames.iter().rposition(is_near) {
            self.frames.truncate(below + 1);
        }
        all - self.frames.len()
    }

    /// So many calls on this stack are open inside of the caller's, as far as it is one of them.
    fn above_caller(&self, place: u32, caller: Option<FunctionId>) -> usize {
        let Some(caller) = caller else {
            return 0;
        };
        let looked_at = self.frames.iter().rev().take(LOOKED_AT);
        let mut looked_at = looked_at.take_while(|open| open.is_near(place));
        let returned = looked_at.position(|open| open.function == caller);
        returned.unwrap_or(0)
    }

    /// In which function the site with this id lies, if it is at hand.
    #[inline]
    fn caller(&self, id: u32) -> Option<FunctionId> {
        let (known, caller) = self.callers.get(slot(id))?;
        (*known == id).then_some(*caller)
    }

    fn keep_caller(&mut self, id: u32, caller: FunctionId) {
        self.callers.resize(CALLERS, (0, FunctionId(0)));
        self.callers[slot(id)] = (id, caller);
    }
}

/// Where the caller of a site is kept.
#[inline]
fn slot(id: u32) -> usize {
    (id.wrapping_mul(0x9E37_79B1) >> 16) as usize % CALLERS
}

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
            if takes_rows && let Some(made) = self.plain(halves, at, *place) {
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
        while at < halves.len() {
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
            at += length;
        }
        self.cursor.until_tsc
    }

    /// The call that stands at `at`, if all of it can be said at once.
    #[inline]
    fn plain(&self, halves: &[AtomicU32], at: usize, place: Place) -> Option<Made> {
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
        })
    }

    #[inline]
    fn add_to(&mut self, row: &mut Row, tsc: u64, made: Made) {
        let ended = self.cursor.ordered.add(made);
        let entry = Place::entry(made.callee, ended.goes_on);
        let Some(entry) = entry.filter(|_| ended.left == 0) else {
            row.flush(self.sink);
            return self.tell(tsc, made.callee, &ended);
        };
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
        self.enter_in_order(
            stub.tsc.max(self.cursor.last_tsc),
            Made {
                place,
                callee,
                caller,
                is_tail: stub.is_tail,
            },
        );
        true
    }

    /// A function that was called where it is not seen, with the stack pointer at a known place.
    pub(super) fn enter_placed(&mut self, tsc: u64, callee: FunctionId) {
        if let Some(place) = self.cursor.ordered.next.take() {
            self.enter_in_order(
                tsc,
                Made {
                    place,
                    callee,
                    caller: None,
                    is_tail: false,
                },
            );
        }
    }

    fn enter_in_order(&mut self, tsc: u64, made: Made) {
        let ended = self.cursor.ordered.add(made);
        self.tell(tsc, made.callee, &ended);
    }

    fn tell(&mut self, tsc: u64, callee: FunctionId, ended: &Ended) {
        use super::module::PLACE_ENTRY;
        if ended.left > 0 {
            self.sink
                .unwound(tsc, u32::try_from(ended.left).unwrap_or(u32::MAX));
        }
        (0..ended.returned).for_each(|_| self.sink.exit(tsc));
        let kind = match ended.goes_on {
            true => PLACE_ENTRY | PLACE_TAIL,
            false => PLACE_ENTRY,
        };
        self.sink.enter(tsc, kind, callee, |_| None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(returned: usize, left: usize, goes_on: bool) -> Ended {
        Ended {
            returned,
            left,
            goes_on,
        }
    }

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);
    const H: FunctionId = FunctionId(3);

    fn call(open: &mut Open, place: u32) -> Ended {
        made(open, place, (F, None), false)
    }

    fn made(
        open: &mut Open,
        place: u32,
        (callee, caller): (FunctionId, Option<FunctionId>),
        is_tail: bool,
    ) -> Ended {
        open.add(Made {
            place,
            callee,
            caller,
            is_tail,
        })
    }

    #[test]
    fn what_is_deeper_is_inside_and_what_is_not_has_ended() {
        let mut open = Open::default();
        assert_eq!(call(&mut open, 0x1000), ended(0, 0, false));
        assert_eq!(call(&mut open, 0x0f00), ended(0, 0, false));
        assert_eq!(call(&mut open, 0x0e00), ended(0, 0, false));
        // Its caller's second call, then one of the outermost function's caller.
        assert_eq!(call(&mut open, 0x0e00), ended(1, 0, false));
        assert_eq!(call(&mut open, 0x1000), ended(3, 0, false));
        assert_eq!(open.frames.len(), 1);
    }

    #[test]
    fn a_jump_goes_on_with_the_call_at_its_place() {
        let mut open = Open::default();
        call(&mut open, 0x1000);
        call(&mut open, 0x0f00);
        assert_eq!(made(&mut open, 0x1000, (G, None), true), ended(1, 0, true));
        assert_eq!(made(&mut open, 0x1000, (G, None), true), ended(0, 0, true));
        // The function that jumps was not seen to begin.
        assert_eq!(made(&mut open, 0x0800, (G, None), true), ended(0, 0, false));
    }

    #[test]
    fn addresses_may_pass_the_end_of_their_low_halves() {
        let mut open = Open::default();
        call(&mut open, 0x100);
        assert_eq!(call(&mut open, 0xffff_ff00), ended(0, 0, false));
        assert_eq!(call(&mut open, 0x100), ended(2, 0, false));
    }

    #[test]
    fn another_stack_lies_inside_until_the_first_one_goes_on() {
        let mut open = Open::default();
        call(&mut open, 0x7000_1000);
        call(&mut open, 0x7000_0f00);
        assert_eq!(call(&mut open, 0x1000_0000), ended(0, 0, false));
        assert_eq!(call(&mut open, 0x1000_0000), ended(1, 0, false));
        assert_eq!(call(&mut open, 0x7000_0e00), ended(0, 1, false));
        assert_eq!(open.frames.len(), 3);
    }

    #[test]
    fn a_call_with_arguments_on_the_stack_is_its_caller_s() {
        let mut open = Open::default();
        made(&mut open, 0x1000, (F, None), false);
        made(&mut open, 0x0f00, (G, Some(F)), false);
        made(&mut open, 0x0ef8, (H, Some(G)), false);
        // G and H have returned: F makes the call, eight bytes below H's.
        let told = made(&mut open, 0x0ef0, (G, Some(F)), false);
        assert_eq!(told, ended(2, 0, false));
        // Who calls is not among the open ones: the stack pointer says all that is known.
        let told = made(&mut open, 0x0ee0, (G, Some(H)), false);
        assert_eq!(told, ended(0, 0, false));
    }

    #[test]
    fn what_a_function_goes_on_with_is_the_caller_of_what_comes() {
        let mut open = Open::default();
        made(&mut open, 0x1000, (F, None), false);
        made(&mut open, 0x0f00, (G, Some(F)), false);
        made(&mut open, 0x0f00, (H, Some(G)), true);
        let told = made(&mut open, 0x0e00, (F, Some(H)), false);
        assert_eq!((told, open.frames.len()), (ended(0, 0, false), 3));
    }

    /// Calls `f`, `g`, and `gogo`, which changes to another goroutine.
    fn coroutines() -> Open {
        let mut open = Open {
            switching: vec![H],
            ..Open::default()
        };
        made(&mut open, 0x9000, (F, None), false);
        made(&mut open, 0x8f00, (G, Some(F)), false);
        open
    }

    #[test]
    fn a_call_on_the_scheduler_s_stack_is_its_caller_s() {
        let mut open = coroutines();
        // G calls a leaf, then has changed the stack: to one above, and back.
        made(&mut open, 0x8e00, (F, Some(G)), false);
        let (other, inner) = (FunctionId(9), FunctionId(10));
        assert_eq!(
            made(&mut open, 0xa000, (other, Some(G)), false),
            ended(1, 0, false)
        );
        assert_eq!(
            made(&mut open, 0x9f00, (inner, Some(other)), false),
            ended(0, 0, false)
        );
        assert_eq!(
            made(&mut open, 0x8f00, (G, Some(F)), false),
            ended(3, 0, false)
        );
        assert_eq!(open.frames.len(), 2);
    }

    #[test]
    fn a_goroutine_that_goes_on_where_it_waited_has_its_calls() {
        let mut open = coroutines();
        made(&mut open, 0xa000, (H, Some(G)), false);
        // F goes on, behind its call of G.
        assert_eq!(
            made(&mut open, 0x8f00, (G, Some(F)), false),
            ended(2, 0, false)
        );
        made(&mut open, 0xa000, (H, Some(G)), false);
        // Another goroutine does, of which nothing is open.
        assert_eq!(
            made(&mut open, 0x8700, (G, Some(F)), false),
            ended(0, 3, false)
        );
        made(&mut open, 0xa000, (H, Some(G)), false);
        // Another one begins.
        assert_eq!(
            made(&mut open, 0x8f00, (F, Some(H)), true),
            ended(0, 2, false)
        );
        assert_eq!(open.frames.len(), 1);
    }
}
