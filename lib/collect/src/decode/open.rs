//! The open calls of a thread, where calls are recorded in order.
//!
//! Given of each call where the stack pointer stood and which function makes it; says which calls
//! have ended by then: those that do not lie around it, and what was called by other functions than
//! its caller. Also which have, where the agent tells the ends of some ([`super::mixed`]). Must not
//! know records and times, but hands these on.

mod frames;
mod quick;

use sptrace_trace::{Begun, FunctionId};

use super::mixed::{End, Ends, How, Length};
use super::module::Place;
use super::row::Row;
use frames::{Frame, Frames, HOW_BITS};

/// Two places farther from each other are on different stacks: as in the agent.
const SAME_STACK_BYTES: u32 = 64 << 20;
/// So many frames are looked at for the one that a call is made from.
const LOOKED_AT: usize = 64;
/// Sites whose functions are kept at hand at first, and at most; powers of two. Most threads use
/// few, and there may be many threads.
const CALLERS: usize = 1 << 13;
const MOST_CALLERS: usize = 1 << 16;
/// So many of them are looked at for one: they come from memory at once.
const SET: usize = 8;
/// So many chunks at first are looked at for how long calls last, and later one in so many ticks of
/// the clock: some milliseconds.
const FIRST_CHUNKS: u32 = 8;
const LOOK_TICKS: u64 = 1 << 24;
/// Parts of a call that [`Open::mostly_in_a_row`] counts.
const EIGHTH: u32 = 8;
/// Rows are worth what they take to begin from so many calls on.
const LONG_ROW: u32 = 4 * EIGHTH;
/// The function of a site whose function nobody knows.
const NOBODY: FunctionId = FunctionId(u32::MAX);

/// A call, or a jump that goes on with one.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) place: u32,
    pub(super) callee: FunctionId,
    /// The function that its site lies in, if that is known.
    pub(super) caller: Option<FunctionId>,
    pub(super) is_tail: bool,
    pub(super) tsc: u64,
    pub(super) how: How,
}

/// The first place holds the second, on one stack.
#[inline(always)]
fn is_above(place: u32, other: u32) -> bool {
    place.wrapping_sub(other).wrapping_sub(1) < SAME_STACK_BYTES - 1
}

/// The innermost of these lie inside of the caller's, so many on this stack, as far as it is one
/// of them.
#[inline(never)]
fn above_caller(frames: &[Frame], place: u32, caller: Option<FunctionId>) -> usize {
    let Some(caller) = caller else {
        return 0;
    };
    let looked_at = frames.iter().rev().take(LOOKED_AT);
    let mut looked_at = looked_at.take_while(|open| open.is_near(place));
    let returned = looked_at.position(|open| open.function == caller);
    returned.unwrap_or(0)
}

/// The calls that are open, the innermost last.
#[derive(Clone, Default)]
pub(super) struct Open {
    frames: Frames,
    /// From this one on all are on one stack, each deeper than the one before.
    stack_from: usize,
    /// When the last of them began or ended: what has ended since did so later.
    pub(super) last_tsc: u64,
    /// Of the function that is told of next.
    next: Option<u32>,
    /// Of the held-back call of a stub ([`Cursor::lazy`]): where the stack pointer stood, and who
    /// calls.
    pub(super) lazy: Option<(u32, Option<FunctionId>)>,
    /// In which function the sites of some ids lie.
    callers: Vec<(u32, FunctionId)>,
    /// How often one of them has taken the place of another.
    replaced: usize,
    /// Functions that go on with another coroutine, on its stack, and do not come back (Go's
    /// `gogo`). Where there are some, stacks may lie near each other.
    pub(super) switching: Vec<FunctionId>,
    /// Records in a row. Its memory serves again.
    pub(super) looked_up: Vec<Looked>,
    /// Where some calls are recorded with stamps.
    pub(super) ends: Option<Ends>,
    /// Of the first chunks, which are all looked at for how long calls last, so many are left.
    first_chunks: u32,
    /// When a chunk was looked at for that, and how many came since.
    measured_tsc: u64,
    unmeasured: u32,
    /// How many calls in order stood in a row lately, in parts of one.
    mostly_in_a_row: u32,
    /// Of the frames from this one on it is not known yet when they have begun.
    undated_from: Option<usize>,
    /// What begins while calls come in a row. Its memory serves again.
    begun: Vec<Begun>,
    /// Events that wait while records are read that need no thought.
    pub(super) row: Row,
}

/// What is known of a record in order by its bytes.
#[derive(Clone, Copy)]
pub(super) struct Looked {
    /// Where it stands.
    pub(super) at: u32,
    /// Where the stack pointer stood.
    pub(super) stack: u32,
    pub(super) id: u32,
    pub(super) place: Place,
    /// As [`Open::caller`] says before any of the row is taken.
    pub(super) caller: Option<Option<FunctionId>>,
}

/// What a call says of those before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// So many have returned.
    pub(super) returned: usize,
    /// Before these, so many were left: another stack is in use.
    pub(super) left: usize,
    /// The call goes on with the one that is open then.
    pub(super) goes_on: bool,
}

impl Open {
    /// What comes next was called with the stack pointer here.
    pub(super) fn stands_at(&mut self, place: u32) {
        self.next = Some(place);
    }

    /// The same, if it is known.
    pub(super) fn next_at(&mut self, place: Option<u32>) {
        self.next = place;
    }

    /// It is known where what comes next was called.
    pub(super) fn is_placed(&self) -> bool {
        self.next.is_some()
    }

    /// Some calls are recorded with stamps, or there are other frames whose ends are told.
    pub(super) fn is_mixed(&self) -> bool {
        self.ends.is_some()
    }

    /// Somebody asks how long calls last.
    #[inline]
    pub(super) fn are_lengths_asked(&self) -> bool {
        self.ends.as_ref().is_some_and(Ends::are_lengths_asked)
    }

    /// Somebody asks how long the calls have lasted that end now.
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.ends.as_ref().is_some_and(Ends::is_measured)
    }

    /// A chunk begins at this time. If somebody asks how long calls have lasted: of the first ones
    /// each is asked, later those that end in one of the chunks that come in [`LOOK_TICKS`], for
    /// which these stand.
    pub(super) fn begin_chunk(&mut self, tsc: u64) {
        self.first_chunks = self.first_chunks.saturating_sub(1);
        self.unmeasured += 1;
        let is_due = self.first_chunks > 0 || tsc.wrapping_sub(self.measured_tsc) >= LOOK_TICKS;
        let weight = if is_due { self.unmeasured } else { 0 };
        if is_due {
            (self.measured_tsc, self.unmeasured) = (tsc, 0);
        }
        if let Some(ends) = &mut self.ends {
            ends.weigh(weight);
        }
    }

    /// So many calls in order stood in a row.
    #[inline]
    pub(super) fn stood_in_a_row(&mut self, calls: u64) {
        let now = calls.min(1 << 16) as u32 * EIGHTH;
        self.mostly_in_a_row = (self.mostly_in_a_row * 7 + now) / 8;
    }

    /// Rows of calls in order are mostly so long that they are better taken as such.
    #[inline]
    pub(super) fn are_rows_long(&self) -> bool {
        self.mostly_in_a_row >= LONG_ROW
    }

    /// From here on the ends of some are told.
    pub(super) fn have_ends(&mut self, ends: Ends) {
        self.ends.get_or_insert(ends);
        self.first_chunks = FIRST_CHUNKS + 1;
    }

    /// How long calls have lasted, where some are.
    pub(super) fn take_lengths(&mut self) -> impl Iterator<Item = (FunctionId, Length)> {
        let ends = self.ends.as_mut();
        ends.into_iter().flat_map(Ends::take_lengths)
    }

    /// Where a call was made that is inside of the innermost, if it is not said.
    pub(super) fn inside(&self) -> Option<u32> {
        let top = self.frames.last();
        top.map(|top| top.place.wrapping_sub(8))
    }

    /// Time has come to `tsc`; gives to when it had before.
    #[inline(always)]
    pub(super) fn come_to(&mut self, tsc: u64) -> u64 {
        std::mem::replace(&mut self.last_tsc, tsc).min(tsc)
    }

    /// What runs in the frame around the innermost one.
    pub(super) fn around_innermost(&self) -> Option<FunctionId> {
        let around = self.frames.iter().rev().nth(1);
        around.map(|frame| frame.function)
    }

    /// Where what comes next was called, if that is known, which it is not any more.
    pub(super) fn take_place(&mut self) -> Option<u32> {
        self.next.take()
    }

    /// The thread has waited so long for the host, in which no call has lasted longer.
    pub(super) fn waited(&mut self, ticks: u64) {
        if self.are_lengths_asked() {
            for frame in self.frames.iter_mut() {
                let begun = (frame.begun >> HOW_BITS).saturating_add(ticks) << HOW_BITS;
                frame.begun = begun | frame.begun & ((1 << HOW_BITS) - 1);
            }
        }
    }

    /// All that have ended last have an exit in the trace.
    #[inline]
    pub(super) fn have_exits(&self) -> bool {
        !self.ends.as_ref().is_some_and(Ends::have_open_ended)
    }

    /// The frames from number `open` on have ended.
    #[inline(always)]
    fn keep(&mut self, open: usize, tsc: u64) {
        if let Some(ends) = &mut self.ends {
            for (at, frame) in self.frames.iter().enumerate().skip(open).rev() {
                ends.end(at, (frame.function, frame.how()), frame.ticks(tsc));
            }
        }
        self.frames.truncate(open);
        if open <= self.stack_from && open > 0 {
            self.find_stack();
        }
    }

    /// Another stack is the innermost one.
    #[cold]
    #[inline(never)]
    fn find_stack(&mut self) {
        let is_deeper = |pair: &[Frame]| is_above(pair[0].place, pair[1].place);
        let change = self.frames.windows(2).rposition(|pair| !is_deeper(pair));
        self.stack_from = change.map_or(0, |at| at + 1);
    }

    #[inline(always)]
    fn push(&mut self, made: &Made) {
        if let Some(ends) = &mut self.ends {
            ends.begin(self.frames.len(), made.how);
        }
        let is_deeper = |top: &Frame| is_above(top.place, made.place);
        if !self.frames.last().is_some_and(is_deeper) {
            self.stack_from = self.frames.len();
        }
        self.frames.push(Frame::of(made));
    }

    /// The agent tells the end of the innermost call whose end it tells: it has ended, with all
    /// that is inside of it. One that began before the records has all inside of it. Also how many
    /// of those that are known have ended.
    #[inline]
    pub(super) fn told(&mut self, tsc: u64) -> (End, usize) {
        let all = self.frames.len();
        let told = self.ends.as_ref().map_or(End::Earlier, Ends::next_told);
        match told {
            End::Known => {}
            End::Of(at) => self.keep(at, tsc),
            End::Earlier => self.keep(0, tsc),
        }
        self.ends.as_mut().map(Ends::forget_told);
        (told, all - self.frames.len())
    }

    /// The innermost call whose end is told will end next: so many inside of it have by now.
    pub(super) fn ended_inside(&mut self, tsc: u64) -> usize {
        let all = self.frames.len();
        let told = self.ends.as_ref().map(Ends::next_told);
        if let Some(End::Of(at)) = told {
            self.keep(at + 1, tsc);
        }
        all - self.frames.len()
    }

    /// What a call or jump says of those before.
    ///
    /// The stack pointer alone does not tell a call inside of another from one that the same caller
    /// makes with arguments on the stack, after the other has returned: if the innermost function
    /// is not the caller, but one below it is, that is where the call is made.
    #[inline(always)]
    pub(super) fn add(&mut self, made: Made) -> Ended {
        let Made { place, callee, .. } = made;
        if !self.switching.is_empty()
            && let Some(ended) = self.on_other_stack(made)
        {
            return ended;
        }
        let left = match self.frames.last() {
            Some(top) if !top.is_near(place) => self.leave_stack(place, made.tsc),
            _ => 0,
        };
        let all = self.frames.len();
        // Above the call's own place is what holds it: what is there or below has ended.
        let mut open = all;
        while let Some(top) = self.frames[..open].last_mut()
            && place.wrapping_sub(top.place) < SAME_STACK_BYTES
        {
            if top.place == place && made.is_tail {
                let called = std::mem::replace(&mut top.function, callee);
                if let Some(ends) = &mut self.ends {
                    ends.goes_on(open - 1, called);
                }
                self.keep(open, made.tsc);
                return Ended {
                    returned: all - open,
                    left,
                    goes_on: true,
                };
            }
            open -= 1;
        }
        if !made.is_tail
            && let Some(top) = self.frames[..open].last()
            && Some(top.function) != made.caller
        {
            open -= above_caller(&self.frames[..open], place, made.caller);
        }
        self.keep(open, made.tsc);
        self.push(&made);
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
            self.keep(open, made.tsc);
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
            self.keep(all - ended.returned, made.tsc);
        }
        self.push(&made);
        Some(ended)
    }

    /// If there are calls on this stack, the innermost of them is the innermost of all from here
    /// on. So many were left.
    #[cold]
    #[inline(never)]
    fn leave_stack(&mut self, place: u32, tsc: u64) -> usize {
        let is_near = |open: &Frame| open.is_near(place);
        let all = self.frames.len();
        if let Some(below) = self.frames.iter().rposition(is_near) {
            self.keep(below + 1, tsc);
        }
        all - self.frames.len()
    }

    /// In which function the site with this id lies, if that is at hand: none if nobody knows.
    #[inline(always)]
    pub(super) fn caller(&self, id: u32) -> Option<Option<FunctionId>> {
        let own = slot(id, self.callers.len());
        let is_there = self.callers.get(own)?.0 == id;
        let place = match is_there {
            true => own,
            false => self.beside(own, id),
        };
        let (_, caller) = self.callers.get(place)?;
        Some(Some(*caller).filter(|caller| *caller != NOBODY))
    }

    /// The place of a caller that had to go to another place of its set; none has it otherwise.
    #[inline(never)]
    fn beside(&self, own: usize, id: u32) -> usize {
        let first = own - own % SET;
        let mut set = first..first + SET;
        let is_it = |place: &usize| self.callers.get(*place).is_some_and(|known| known.0 == id);
        set.find(is_it).unwrap_or(usize::MAX)
    }

    pub(super) fn keep_caller(&mut self, id: u32, caller: Option<FunctionId>) {
        let all = self.callers.len();
        if all == 0 {
            self.callers.resize(CALLERS, (0, NOBODY));
        } else if self.replaced > all / 16 && all < MOST_CALLERS {
            let larger = vec![(0, NOBODY); all * 2];
            self.replaced = 0;
            for known in std::mem::replace(&mut self.callers, larger) {
                self.put_caller(known);
            }
        }
        self.put_caller((id, caller.unwrap_or(NOBODY)));
    }

    /// The sites whose callers are at hand.
    pub(super) fn sites(&self) -> impl Iterator<Item = u32> {
        let ids = self.callers.iter().map(|(id, _)| *id);
        ids.filter(|id| *id != 0)
    }

    /// Where it belongs, or where there is room beside.
    fn put_caller(&mut self, known: (u32, FunctionId)) {
        let own = slot(known.0, self.callers.len());
        let place = [known.0, 0].into_iter().find_map(|id| {
            let is_own = self.callers.get(own).is_some_and(|known| known.0 == id);
            let place = if is_own { own } else { self.beside(own, id) };
            (place != usize::MAX).then_some(place)
        });
        self.replaced += usize::from(place.is_none());
        if let Some(place) = self.callers.get_mut(place.unwrap_or(own)) {
            *place = known;
        }
    }
}

/// Where the caller of a site is kept, among so many.
#[inline]
fn slot(id: u32, all: usize) -> usize {
    const _: () = assert!(MOST_CALLERS <= 1 << 16);
    (id.wrapping_mul(0x9E37_79B1) >> 16) as usize & all.wrapping_sub(1)
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
            tsc: 0,
            how: How::InOrder,
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
    fn callers_of_many_sites_are_kept() {
        let mut open = Open::default();
        assert_eq!(open.caller(16), None);
        let sites = 0..40_000;
        for _ in 0..8 {
            for id in sites.clone() {
                if open.caller(id).is_none() {
                    open.keep_caller(id, Some(FunctionId(id / 3)));
                }
            }
        }
        let known = sites.filter(|id| open.caller(*id) == Some(Some(FunctionId(*id / 3))));
        assert!(known.count() > 20_000);
        assert_eq!(open.callers.len(), MOST_CALLERS);
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
