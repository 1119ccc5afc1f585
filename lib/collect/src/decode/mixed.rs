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
    /// When each of them has begun, as far as is known, and whether it is an open one for the
    /// trace, which has no exit.
    begun: Vec<(u64, bool)>,
    /// Of those that have ended last, the innermost first: which were open ones.
    ended: Vec<bool>,
    /// Calls whose ends the agent tells, the innermost last: which frame each is, unless that has
    /// ended.
    told: Vec<Option<usize>>,
    lengths: Vec<Length>,
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
    /// The longest.
    pub longest_ticks: u64,
}

impl Length {
    /// And these.
    pub fn add(&mut self, other: Self) {
        self.stamped = self.stamped.saturating_add(other.stamped);
        self.in_order = self.in_order.saturating_add(other.in_order);
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.longest_ticks = self.longest_ticks.max(other.longest_ticks);
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
            Inherited::Call => Self::Stamped,
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
    /// The frame that comes next, which is number `at`, begins.
    pub(super) fn begin(&mut self, at: usize, tsc: u64, how: How) {
        self.begun.resize(at, (tsc, false));
        self.begun.push((tsc, how == How::Open));
        if how != How::InOrder {
            self.told.push(Some(at));
        }
    }

    /// Those that have ended since [`Self::forget_ended`], the innermost first: which were open
    /// ones.
    pub(super) fn ended(&self) -> &[bool] {
        &self.ended
    }

    /// They have been told.
    pub(super) fn forget_ended(&mut self) {
        self.ended.clear();
    }

    /// Frame number `at`, the innermost, of `function`, has ended.
    pub(super) fn end(&mut self, at: usize, function: FunctionId, tsc: u64) {
        let (begun, is_open) = self.begun.get(at).copied().unwrap_or((tsc, false));
        self.begun.truncate(at);
        self.ended.push(is_open);
        let mut told = self.told.iter_mut().rev().filter(|told| told.is_some());
        let is_told = told.next().filter(|told| **told == Some(at));
        let is_stamped = is_told.is_some();
        if let Some(told) = is_told {
            *told = None;
        }
        self.add(function, tsc.saturating_sub(begun), is_stamped);
    }

    /// What the agent tells next.
    pub(super) fn take_told(&mut self) -> End {
        match self.told.pop() {
            Some(Some(at)) => {
                // It is counted as one with stamps when it is taken from the frames.
                self.told.push(Some(at));
                End::Of(at)
            }
            Some(None) => End::Known,
            None => End::Earlier,
        }
    }

    /// What was told of is gone.
    pub(super) fn forget_told(&mut self) {
        self.told.pop();
    }

    fn add(&mut self, function: FunctionId, ticks: u64, is_stamped: bool) {
        let index = function.0 as usize;
        if index >= self.lengths.len() {
            self.lengths.resize(index + 64, Length::default());
        }
        if let Some(length) = self.lengths.get_mut(index) {
            length.add(Length {
                stamped: u32::from(is_stamped),
                in_order: u32::from(!is_stamped),
                ticks,
                longest_ticks: ticks,
            });
        }
    }

    /// How long calls have lasted that ended since this was asked last.
    pub(super) fn take_lengths(&mut self) -> impl Iterator<Item = (FunctionId, Length)> {
        let taken = std::mem::take(&mut self.lengths);
        let all = (0..).map(FunctionId).zip(taken);
        all.filter(|(_, length)| *length != Length::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);

    #[test]
    fn what_has_ended_early_is_not_told_again() {
        let mut ends = Ends::default();
        ends.begin(0, 10, How::Stamped);
        ends.begin(1, 20, How::InOrder);
        ends.begin(2, 30, How::Stamped);
        ends.end(2, G, 35);
        ends.end(1, F, 35);
        assert_eq!(ends.take_told(), End::Known);
        assert_eq!(ends.take_told(), End::Of(0));
        ends.end(0, F, 50);
        ends.forget_told();
        assert_eq!(ends.take_told(), End::Earlier);
    }

    #[test]
    fn lengths_are_those_of_each_kind() {
        let mut ends = Ends::default();
        ends.begin(0, 10, How::Stamped);
        ends.begin(1, 20, How::InOrder);
        ends.end(1, F, 25);
        ends.end(0, F, 50);
        let lengths: Vec<_> = ends.take_lengths().collect();
        let expected = Length {
            stamped: 1,
            in_order: 1,
            ticks: 45,
            longest_ticks: 40,
        };
        assert_eq!(lengths, [(F, expected)]);
        assert_eq!(ends.take_lengths().count(), 0);
    }
}
