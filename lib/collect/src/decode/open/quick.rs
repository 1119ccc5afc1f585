//! The open calls while many begin in a row of which nothing special is to be said.
//!
//! Part of [`super::Open`], which says of any call which have ended by then. Here that is said of
//! calls on the stack that the innermost one is on, where nobody asks how long calls last or how
//! they end: in few instructions, as it is done for each call. Whatever else comes is not taken,
//! and is [`super::Open::add`]'s. Of all that has happened meanwhile it is kept what is left of it:
//! how many of the calls that were open before have ended, and what has begun since and is open.

use sptrace_trace::{Begun, FunctionId};

use super::{
    Ended, Ends, Frame, HOW_BITS, How, Made, NOBODY, Open, SAME_STACK_BYTES, above_caller, is_above,
};

/// See [`Open::quick`].
pub(in super::super) struct Quick<'a> {
    /// With room behind the open ones. Of those that have begun since, [`Frame::begun`] says how
    /// much of `begun` is older.
    frames: &'a mut [Frame],
    /// What has begun since and is open.
    begun: &'a mut [Begun],
    begun_length: usize,
    /// So many are open.
    length: usize,
    /// So many have been all the time.
    low: usize,
    /// So many have to stay,
    kept: usize,
    /// and of so many it matters, too, with what they go on.
    told: usize,
}

/// What a call says of those before it, as in [`super::Ended`].
pub(in super::super) struct Returned {
    pub(in super::super) calls: usize,
    pub(in super::super) goes_on: bool,
}

/// What is left of what has happened.
#[derive(Clone, Copy)]
pub(in super::super) struct Left {
    length: usize,
    low: usize,
    begun: usize,
}

impl Open {
    /// For so many calls. To be ended by [`Self::end_quick`]. `None`: each has to be looked at.
    #[inline]
    pub(in super::super) fn quick(&mut self, calls: usize) -> Option<Quick<'_>> {
        let told = self.ends.as_ref().map_or(Some(0), Ends::last_told);
        let told = told.filter(|_| self.switching.is_empty())?;
        let length = self.frames.len();
        let kept = told.max(self.stack_from + 1);
        if length < kept {
            return None;
        }
        if self.begun.len() < calls {
            self.begun.resize(calls, Begun::default());
        }
        Some(Quick {
            frames: self.frames.with_room(calls),
            begun: &mut self.begun,
            begun_length: 0,
            length,
            low: length,
            kept,
            told,
        })
    }

    /// That is left; gives what has begun and is open.
    #[inline]
    pub(in super::super) fn end_quick(&mut self, left: Left) -> &[Begun] {
        self.frames.set_length(left.length);
        if let Some(ends) = &mut self.ends {
            ends.forget_from(left.low);
        }
        self.begins_undated(left.low);
        self.begun.get(..left.begun).unwrap_or_default()
    }

    /// As [`Self::add`]; when the call has begun is said by [`Self::come_undated_to`]. What goes on
    /// with one has begun when that did.
    pub(in super::super) fn add_undated(&mut self, made: Made) -> Ended {
        let ended = self.add(made);
        let begun = self.frames.len() - usize::from(!ended.goes_on);
        self.begins_undated(begun);
        ended
    }

    #[inline]
    fn begins_undated(&mut self, from: usize) {
        let known = self.undated_from.unwrap_or(from);
        self.undated_from = Some(known.min(from));
    }

    /// Time has come to this. What has begun since [`Self::quick`] and is open began now: where it
    /// matters it lasts so long that this is near enough; earlier would have short calls seem long
    /// that are open where chunks end.
    #[inline]
    pub(in super::super) fn come_undated_to(&mut self, tsc: u64) {
        self.last_tsc = tsc;
        let undated = self.undated_from.take().filter(|_| self.ends.is_some());
        if let Some(from) = undated {
            let begun = tsc << HOW_BITS | How::InOrder as u64;
            let new = self.frames.get_mut(from..).unwrap_or_default();
            new.iter_mut().for_each(|frame| frame.begun = begun);
        }
    }
}

impl Quick<'_> {
    /// A call begins, or, if it is a jump, may go on with one; says what has returned by then, at
    /// most `most`. `None`: it is not taken. [`Open::add`] says why it is so.
    #[inline(always)]
    pub(in super::super) fn call(
        &mut self,
        place: u32,
        (callee, is_tail): (FunctionId, bool),
        caller: FunctionId,
        most: usize,
    ) -> Option<Returned> {
        let mut open = self.length;
        let mut around = *self.frames.get(open.wrapping_sub(1))?;
        // A jump does not end what it may go on with.
        let least = u32::from(is_tail);
        while place.wrapping_sub(around.place).wrapping_sub(least) < SAME_STACK_BYTES - least {
            open -= 1;
            around = *self.frames.get(open.wrapping_sub(1))?;
        }
        let goes_on = around.place == place;
        if around.function != caller && !is_tail && caller != NOBODY {
            open -= above_caller(&self.frames[..open], place, Some(caller));
        }
        let calls = self.length - open;
        let is_free = open >= self.kept && (!goes_on || open > self.told);
        let is_quick = is_free && calls <= most;
        if !is_quick || !(goes_on || is_above(around.place, place)) {
            return None;
        }
        let ended = self.frames.get_mut(open)?;
        // What has begun with those that have ended, or after.
        let older = (ended.begun >> HOW_BITS) as usize;
        let begun = if calls > 0 { older } else { self.begun_length };
        let begun = if open < self.low { 0 } else { begun };
        self.low = self.low.min(open);
        let at = if goes_on { open - 1 } else { open };
        let older = (begun as u64) << HOW_BITS | How::InOrder as u64;
        *self.frames.get_mut(at)? = Frame {
            place,
            function: callee,
            begun: if goes_on { around.begun } else { older },
        };
        *self.begun.get_mut(begun)? = Begun::new(callee, goes_on);
        self.begun_length = begun + 1;
        self.length = at + 1;
        Some(Returned { calls, goes_on })
    }

    /// What is left; and so many of those that were open before have ended.
    #[inline]
    pub(in super::super) fn end(self, before: usize) -> (Left, usize) {
        let left = Left {
            length: self.length,
            low: self.low,
            begun: self.begun_length,
        };
        (left, before - left.low)
    }

    /// So many are open.
    #[inline]
    pub(in super::super) fn length(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut random = seed;
        move |bound| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        }
    }

    /// A call that a program may make, or one that none does.
    fn next(random: &mut impl FnMut(u64) -> u64, open: &Open) -> Made {
        let up = [0, 0, 0, 1, 1, 2, 5][random(7) as usize];
        let below = open.frames.iter().rev().nth(up);
        let (place, function) = below.map_or((0x7000_0000, NOBODY), |f| (f.place, f.function));
        let far = [0, 0, 0, 0x800_0000][usize::from(random(50) == 0) * random(4) as usize];
        let callee = FunctionId(random(6) as u32);
        let caller = [Some(function), Some(FunctionId(random(6) as u32)), None];
        let caller = caller[usize::from(random(8) == 0) * random(3) as usize];
        Made {
            place: place.wrapping_add(far).wrapping_sub(random(4) as u32 * 16),
            callee,
            caller: caller.filter(|caller| *caller != NOBODY),
            is_tail: random(6) == 0,
            tsc: 0,
            how: How::InOrder,
        }
    }

    #[test]
    fn what_is_taken_is_what_is_said_of_each_call() {
        let mut taken = 0;
        for seed in 1..40 {
            let mut random = numbers(seed);
            let (mut each, mut many) = (Open::default(), Open::default());
            for _ in 0..300 {
                let most = 1 + random(40) as usize;
                let mut made = next(&mut random, &each);
                let mut last = None;
                if let Some(mut quick) = many.quick(most) {
                    let before = quick.length();
                    for _ in 0..most {
                        let caller = made.caller.unwrap_or(NOBODY);
                        let callee = (made.callee, made.is_tail);
                        let Some(returned) = quick.call(made.place, callee, caller, 4) else {
                            last = Some(made);
                            break;
                        };
                        let ended = Ended {
                            returned: returned.calls,
                            left: 0,
                            goes_on: returned.goes_on,
                        };
                        assert_eq!(each.add(made), ended, "seed {seed}");
                        taken += 1;
                        made = next(&mut random, &each);
                    }
                    let (left, _) = quick.end(before);
                    many.end_quick(left);
                } else {
                    last = Some(made);
                }
                if let Some(made) = last {
                    assert_eq!(each.add(made), many.add(made), "seed {seed}");
                }
                let frames = |open: &Open| -> Vec<(u32, FunctionId)> {
                    open.frames.iter().map(|f| (f.place, f.function)).collect()
                };
                assert_eq!(frames(&each), frames(&many), "seed {seed}");
            }
        }
        assert!(taken > 40_000, "{taken} taken");
    }
}
