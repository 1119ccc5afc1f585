//! The ends of calls where some are recorded in order and others with stamps.
//!
//! Part of what `open.rs` knows, which holds all open calls by where the stack pointer stood.
//! The end of a call with stamps has a record of its own, or is told by the agent when it was left;
//! then all that lies inside of it has ended. What the stack pointer shows earlier, as after a
//! longjmp, is told at once, and not again when the agent tells. Also how long calls have lasted.
//! Must not know records.

use sptrace_trace::FunctionId;

use super::module::PLACE_OPEN;
use super::sink::Inherited;

/// What is known beside the frames of open calls.
#[derive(Clone, Default)]
pub(super) struct Ends {
    /// So many of them are open ones for the trace, which have no exit.
    open: usize,
    /// Of those that have ended last, the innermost first: which were open ones. Empty if none
    /// was, and those after the last open one may be missing.
    ended: Vec<bool>,
    /// Calls whose ends the agent tells, the innermost last: which frame each is, unless that has
    /// ended.
    told: Vec<Option<usize>>,
    /// How long calls have lasted, if somebody asks for it.
    lengths: Option<Vec<Length>>,
    /// Each end that is seen stands for so many, as others are not asked how long they lasted.
    weight: u32,
    /// Of open calls that have gone on with another function by a jump, the innermost last: which
    /// frame each is, and what was called.
    went_on: Vec<(usize, FunctionId)>,
}

/// How long calls of a function have lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// Calls with stamps.
    pub stamped: u32,
    /// Calls in order.
    pub in_order: u32,
    /// All of them together, with what they have called.
    pub ticks: u64,
    /// Of that the longest one, and for how many it stands, as others were not measured.
    pub longest: u64,
    /// See there.
    pub longest_calls: u32,
}

impl Length {
    /// And these.
    #[inline]
    pub fn add(&mut self, other: Self) {
        self.stamped = self.stamped.saturating_add(other.stamped);
        self.in_order = self.in_order.saturating_add(other.in_order);
        self.ticks = self.ticks.saturating_add(other.ticks);
        if other.longest >= self.longest {
            (self.longest, self.longest_calls) = (other.longest, other.longest_calls);
        }
    }

    /// How many calls.
    pub fn calls(&self) -> u64 {
        u64::from(self.stamped) + u64::from(self.in_order)
    }

    /// How long they last on average, but for the longest one, if there are others: that may be one
    /// in which the thread was kept from running, by whomever.
    pub fn mean_ticks(&self) -> u64 {
        match self.calls().saturating_sub(self.longest_calls.into()) {
            0 => self.ticks / self.calls().max(1),
            others => self.ticks.saturating_sub(self.longest) / others,
        }
    }

    /// Half of them.
    pub fn halve(&mut self) {
        self.stamped /= 2;
        self.in_order /= 2;
        self.ticks /= 2;
        self.longest /= 2;
        self.longest_calls /= 2;
    }
}

/// How a call is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum How {
    /// Without stamps and end.
    #[default]
    InOrder,
    /// With both.
    Stamped,
    /// With a stamp, and an end that may be told, but is no exit.
    Open,
}

impl How {
    /// Of a call with stamps, by its `PLACE_*`.
    pub(super) fn of_kind(kind: u8) -> Self {
        match kind & PLACE_OPEN {
            0 => Self::Stamped,
            _ => Self::Open,
        }
    }

    /// Of a frame that was open when the records began.
    pub(super) fn inherited(how: Inherited) -> Self {
        match how {
            Inherited::Call | Inherited::FoundCall => Self::Stamped,
            Inherited::Found | Inherited::Open => Self::Open,
        }
    }
}

/// What the agent tells of the innermost call whose end it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is this one of the open calls.
    Of(usize),
    /// It was told already.
    Known,
    /// It began before there were records.
    Earlier,
}

impl Ends {
    /// Somebody will ask how long calls have lasted.
    pub(super) fn measured() -> Self {
        Self {
            lengths: Some(Vec::new()),
            weight: 1,
            ..Self::default()
        }
    }

    /// Does somebody ask that?
    #[inline]
    pub(super) fn are_lengths_asked(&self) -> bool {
        self.lengths.is_some()
    }

    /// Does somebody ask that of the calls that end now?
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.are_lengths_asked() && self.weight > 0
    }

    /// From here on each end stands for so many; 0: nobody asks how long these have lasted.
    #[inline]
    pub(super) fn weigh(&mut self, weight: u32) {
        self.weight = weight;
    }

    /// The frames from number `open` on have ended, none of whose ends is told, and of which nobody
    /// asks how long they lasted.
    #[inline]
    pub(super) fn forget_from(&mut self, open: usize) {
        while self.went_on.last().is_some_and(|(frame, _)| *frame >= open) {
            self.went_on.pop();
        }
    }

    /// The frame that comes next, which is number `at`, begins.
    #[inline]
    pub(super) fn begin(&mut self, at: usize, how: How) {
        if how != How::InOrder {
            self.told.push(Some(at));
            self.open += usize::from(how == How::Open);
        }
    }

    /// Open ones are among those that have ended since [`Self::take_ended`].
    #[inline]
    pub(super) fn have_open_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Of those that have ended since this was asked last, the innermost first: which were open
    /// ones. Those that are not named were not.
    pub(super) fn take_ended(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.ended)
    }

    /// Frame number `at`, in which `called` runs, goes on with another function by a jump. What was
    /// called has that in its time, and its call site is where its level is chosen. Only the first
    /// jump of a frame says that.
    #[inline]
    pub(super) fn goes_on(&mut self, at: usize, called: FunctionId) {
        let is_known = self.went_on.last().is_some_and(|known| known.0 == at);
        if self.are_lengths_asked() && !is_known {
            self.went_on.push((at, called));
        }
    }

    /// The innermost frame, number `at`, has ended: it was recorded so, is of `function`, and
    /// lasted so long.
    #[inline]
    pub(super) fn end(&mut self, at: usize, (function, how): (FunctionId, How), ticks: u64) {
        if self.open > 0 {
            self.ended.push(how == How::Open);
            self.open -= usize::from(how == How::Open);
        }
        if how != How::InOrder {
            // Frames end in the reverse of the order in which they began, so this is its own.
            let mut told = self.told.iter_mut().rev();
            if let Some(told) = told.find(|told| told.is_some()) {
                *told = None;
            }
        }
        self.add(function, ticks, how != How::InOrder);
        if let Some((frame, called)) = self.went_on.last().copied()
            && frame == at
        {
            self.went_on.pop();
            self.add(called, ticks, how != How::InOrder);
        }
    }

    /// What the agent tells next.
    #[inline]
    pub(super) fn next_told(&self) -> End {
        match self.told.last() {
            Some(Some(at)) => End::Of(*at),
            Some(None) => End::Known,
            None => End::Earlier,
        }
    }

    /// One more than the number of the innermost frame whose end is told. `None`: of others it
    /// matters, too, how they end.
    #[inline]
    pub(super) fn last_told(&self) -> Option<usize> {
        let is_plain = self.open == 0 && self.ended.is_empty() && !self.is_measured();
        let known = self.told.iter().rev().find_map(|told| *told);
        is_plain.then_some(known.map_or(0, |at| at + 1))
    }

    /// What was told of is gone.
    #[inline]
    pub(super) fn forget_told(&mut self) {
        self.told.pop();
    }

    #[inline]
    fn add(&mut self, function: FunctionId, ticks: u64, is_stamped: bool) {
        let weight = self.weight;
        let Some(lengths) = self.lengths.as_mut().filter(|_| weight > 0) else {
            return;
        };
        let ticks = ticks.saturating_mul(weight.into());
        let length = Length {
            stamped: weight * u32::from(is_stamped),
            in_order: weight * u32::from(!is_stamped),
            ticks,
            longest: ticks,
            longest_calls: weight,
        };
        match lengths.get_mut(function.0 as usize) {
            Some(all) => all.add(length),
            None => add_first(lengths, function, length),
        }
    }

    /// How long calls have lasted that ended since this was asked last.
    pub(super) fn take_lengths(&mut self) -> impl Iterator<Item = (FunctionId, Length)> {
        let taken = self.lengths.as_mut().map(std::mem::take);
        let all = (0..).map(FunctionId).zip(taken.unwrap_or_default());
        all.filter(|(_, length)| *length != Length::default())
    }
}

#[cold]
fn add_first(lengths: &mut Vec<Length>, function: FunctionId, length: Length) {
    let index = function.0 as usize;
    lengths.resize(index + 64, Length::default());
    lengths[index] = length;
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);

    #[test]
    fn what_has_ended_early_is_not_told_again() {
        let mut ends = Ends::default();
        ends.begin(0, How::Stamped);
        ends.begin(1, How::InOrder);
        ends.begin(2, How::Stamped);
        ends.end(2, (G, How::Stamped), 5);
        ends.end(1, (F, How::InOrder), 15);
        assert_eq!(ends.next_told(), End::Known);
        ends.forget_told();
        assert_eq!(ends.next_told(), End::Of(0));
        ends.end(0, (F, How::Stamped), 40);
        ends.forget_told();
        assert_eq!(ends.next_told(), End::Earlier);
    }

    #[test]
    fn open_ones_are_known_among_those_that_have_ended() {
        let mut ends = Ends::default();
        let hows = [How::Stamped, How::Open, How::InOrder];
        for (at, how) in hows.into_iter().enumerate() {
            ends.begin(at, how);
        }
        assert!(!ends.have_open_ended());
        for (at, how) in hows.into_iter().enumerate().rev() {
            ends.end(at, (F, how), 5);
        }
        assert!(ends.have_open_ended());
        assert_eq!(ends.take_ended(), [false, true]);
        ends.begin(0, How::Stamped);
        ends.end(0, (F, How::Stamped), 5);
        assert!(!ends.have_open_ended());
    }

    #[test]
    fn lengths_are_those_of_each_kind() {
        let mut ends = Ends::measured();
        ends.begin(0, How::Stamped);
        ends.begin(1, How::InOrder);
        ends.end(1, (F, How::InOrder), 5);
        ends.end(0, (F, How::Stamped), 40);
        let lengths: Vec<_> = ends.take_lengths().collect();
        let expected = Length {
            stamped: 1,
            in_order: 1,
            ticks: 45,
            longest: 40,
            longest_calls: 1,
        };
        assert_eq!(lengths, [(F, expected)]);
        assert_eq!(ends.take_lengths().count(), 0);
    }

    #[test]
    fn what_goes_on_by_a_jump_has_a_length_too() {
        let mut ends = Ends::measured();
        ends.begin(0, How::Stamped);
        ends.goes_on(0, F);
        ends.goes_on(0, G);
        ends.end(0, (G, How::Stamped), 40);
        let lengths: Vec<_> = ends.take_lengths().collect();
        let each = Length {
            stamped: 1,
            in_order: 0,
            ticks: 40,
            longest: 40,
            longest_calls: 1,
        };
        assert_eq!(lengths, [(F, each), (G, each)]);
    }
}
