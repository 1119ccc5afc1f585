//! Calls that are open, one after the other.
//!
//! A stack whose memory stays written where calls have ended, so that room for more is had without
//! writing to it first. Must not know what a call says of those before it.

use std::ops::{Deref, DerefMut};

use sptrace_trace::FunctionId;

use super::{Made, NOBODY, SAME_STACK_BYTES};
use crate::decode::mixed::How;

/// A call that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Where the stack pointer stood.
    pub(super) place: u32,
    /// What runs in it.
    pub(super) function: FunctionId,
    /// When it has begun, as far as is known, and how it was recorded, below [`HOW_BITS`]: frames
    /// are small because each call writes one.
    pub(super) begun: u64,
}

/// The lowest bits of [`Frame::begun`].
pub(super) const HOW_BITS: u32 = 2;

impl Frame {
    /// No frame.
    const NONE: Self = Self {
        place: 0,
        function: NOBODY,
        begun: 0,
    };

    #[inline]
    pub(super) fn of(made: &Made) -> Self {
        Self {
            place: made.place,
            function: made.callee,
            begun: made.tsc << HOW_BITS | made.how as u64,
        }
    }

    #[inline]
    pub(super) fn how(self) -> How {
        match self.begun & ((1 << HOW_BITS) - 1) {
            0 => How::InOrder,
            1 => How::Stamped,
            _ => How::Open,
        }
    }

    /// So long it has lasted until then.
    #[inline]
    pub(super) fn ticks(self, tsc: u64) -> u64 {
        tsc.saturating_sub(self.begun >> HOW_BITS)
    }

    /// It is on the stack that this place is on.
    #[inline]
    pub(super) fn is_near(&self, place: u32) -> bool {
        let above = self.place.wrapping_sub(place) as i32;
        above.unsigned_abs() < SAME_STACK_BYTES
    }
}

/// Open calls, the innermost last.
#[derive(Clone, Default)]
pub(super) struct Frames {
    /// The first `length` are open; what is behind them means nothing.
    all: Vec<Frame>,
    length: usize,
}

impl Frames {
    /// One more.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: Frame) {
        match self.all.get_mut(self.length) {
            Some(place) => *place = frame,
            None => self.all.push(frame),
        }
        self.length += 1;
    }

    /// Those from number `open` on have ended.
    #[inline]
    pub(super) fn truncate(&mut self, open: usize) {
        self.length = self.length.min(open);
    }

    /// All, with room for so many more behind them: what stands there means nothing.
    #[inline]
    pub(super) fn with_room(&mut self, calls: usize) -> &mut [Frame] {
        let needed = self.length + calls;
        if self.all.len() < needed {
            self.all.resize(needed, Frame::NONE);
        }
        &mut self.all
    }

    /// So many are open, as it was written behind the others.
    #[inline]
    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(self.all.len());
    }
}

impl Deref for Frames {
    type Target = [Frame];

    #[inline(always)]
    fn deref(&self) -> &[Frame] {
        self.all.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for Frames {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Frame] {
        self.all.get_mut(..self.length).unwrap_or_default()
    }
}
