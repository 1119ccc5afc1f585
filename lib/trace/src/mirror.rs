//! The state that encoder and decoder of a block keep alike: the open frames and the table that
//! predicts which function is entered next.
//!
//! The prediction context is (running function, function of the last event, entered or left); the
//! table is direct-mapped, untagged, and emptied at each block. Frames that a block does not name
//! (below the carried ones) count as unknown to both sides.

use crate::format::MAX_CARRIED;
use crate::model::{Entry, FunctionId};

/// Slots of the prediction table; a power of two.
const SLOTS: usize = 4096;
/// The function of a frame that is unknown, and of no frame at all.
const NONE: u32 = FUNCTION_LIMIT;
/// Function ids are below this.
pub const FUNCTION_LIMIT: u32 = (1 << 29) - 1;
/// Distinguishes "just left f" from "just entered f".
const LEFT: u32 = 1 << 31;
/// Tail and open frames above the innermost call frame; one more replaces the innermost of them,
/// so that a program that never returns from its jumps does not grow the stack for ever.
pub const MAX_CHAIN: usize = 16;

/// In a frame: it has left the view ([`crate::Event::Outside`]).
const PAST: u32 = 4;

/// An open frame: function << 3 | past << 2 | entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame(pub u32);

impl Frame {
    #[inline]
    fn new(function: u32, entry: Entry) -> Self {
        Self(function << 3 | entry as u32)
    }
    /// The function that runs in it.
    #[inline]
    pub fn function(self) -> FunctionId {
        FunctionId(self.0 >> 3)
    }
    /// How it was opened.
    #[inline]
    pub fn entry(self) -> Entry {
        match self.0 & 3 {
            0 => Entry::Call,
            1 => Entry::Tail,
            2 => Entry::Open,
            _ => Entry::Earlier,
        }
    }
    /// It has left the view.
    pub fn is_past(self) -> bool {
        self.0 & PAST != 0
    }
    #[inline]
    fn is(self, entry: Entry) -> bool {
        self.0 & 3 == entry as u32
    }
    /// A chain of tail and open frames ends here.
    #[inline]
    fn ends_chain(self) -> bool {
        self.is(Entry::Call) || self.is(Entry::Earlier)
    }
}

/// A call that has begun, or a function that the running one has gone on as.
#[derive(Clone, Copy)]
pub struct Begun(Frame);

impl Begun {
    /// Of this function.
    #[inline(always)]
    pub fn new(callee: FunctionId, goes_on: bool) -> Self {
        let entry = [Entry::Call, Entry::Tail][usize::from(goes_on)];
        Self(Frame::new(callee.0.min(FUNCTION_LIMIT - 1), entry))
    }
}

impl Default for Begun {
    fn default() -> Self {
        Self::new(FunctionId(0), false)
    }
}

/// Open frames and predictions of one stream.
#[derive(Clone)]
pub struct Mirror {
    frames: Vec<Frame>,
    /// Of these, entry-only ones.
    open: usize,
    /// Entry-only frames that were replaced: above how many frames they lay, and how many; lowest
    /// first.
    replaced: Vec<(usize, u32)>,
    /// Frames below this index are unknown to the decoder.
    floor: usize,
    /// Function of the innermost known frame.
    top: u32,
    /// Function of the last event, with [`LEFT`].
    last: u32,
    table: Box<[u32; SLOTS]>,
}

impl Mirror {
    /// A mirror that starts inside `frames`.
    pub fn new(frames: Vec<Frame>) -> Self {
        let mut mirror = Self {
            open: count_open(&frames),
            replaced: Vec::new(),
            frames,
            floor: 0,
            top: NONE,
            last: NONE,
            table: Box::new([NONE; SLOTS]),
        };
        mirror.refresh_top();
        mirror
    }

    /// Forgets what only the block before knew.
    pub fn begin_block(&mut self, floor: usize) {
        self.floor = floor;
        self.last = NONE;
        self.table.fill(NONE);
        self.refresh_top();
    }

    /// All open frames, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The slot for the present context.
    #[inline]
    fn slot(&self) -> usize {
        let mixed = self.top.wrapping_mul(0x9e37_79b1) ^ self.last.wrapping_mul(0x85eb_ca6b);
        (mixed >> 20) as usize & (SLOTS - 1)
    }

    /// The function expected next.
    #[inline]
    pub fn predicted(&self) -> u32 {
        self.table[self.slot()]
    }

    /// Opens a frame; says whether its function was the predicted one.
    #[inline]
    pub fn enter(&mut self, function: u32, entry: Entry) -> bool {
        let slot = self.slot();
        let hit = self.table[slot] == function;
        self.table[slot] = function;
        if matches!(entry, Entry::Tail | Entry::Open) {
            self.bound_chain();
        }
        self.open += usize::from(entry == Entry::Open);
        self.frames.push(Frame::new(function, entry));
        self.top = function;
        self.last = function;
        hit
    }

    /// So many call frames end with what is above them, and then these are opened: for who needs no
    /// predictions.
    #[inline]
    pub fn go_on(&mut self, returned: usize, begun: &[Begun]) {
        // Most often none or some that are plain.
        let left = self.frames.len().wrapping_sub(returned);
        let ended = self.frames.get(left..);
        let is_plain = ended.is_some_and(|ended| ended.iter().all(|frame| frame.is(Entry::Call)));
        match is_plain && self.replaced.is_empty() {
            true => {
                self.frames.truncate(left);
                self.floor = self.floor.min(left);
            }
            false => self.leave(returned),
        }
        for begun in begun {
            if begun.0.is(Entry::Tail) {
                self.bound_chain();
            }
            self.frames.push(begun.0);
        }
    }

    /// So many call frames end with what is above them.
    #[inline(never)]
    pub fn leave(&mut self, returned: usize) {
        for _ in 0..returned {
            if self.frames.is_empty() {
                break;
            }
            self.exit();
        }
    }

    fn bound_chain(&mut self) {
        let above_call = self.frames.iter().rev().take(MAX_CHAIN);
        if above_call.take_while(|frame| !frame.ends_chain()).count() == MAX_CHAIN {
            if self.frames.pop().is_some_and(|frame| frame.is(Entry::Open)) {
                self.open -= 1;
                let above = self.frames.len();
                match self.replaced.last_mut() {
                    Some((at, frames)) if *at == above => *frames = frames.saturating_add(1),
                    _ => self.replaced.push((above, 1)),
                }
            }
            self.floor = self.floor.min(self.frames.len());
        }
    }

    /// How many of the outermost frames a block leaves unnamed. The first named one is no
    /// tail or open frame, so that both sides agree on what an exit or a closing ends.
    pub fn hidden(&self) -> usize {
        let mut hidden = self.frames.len().saturating_sub(MAX_CARRIED - MAX_CHAIN);
        while hidden > 0 && !self.frames[hidden].ends_chain() {
            hidden -= 1;
        }
        hidden
    }

    /// Ends the innermost call frame and what is above it, but none of before the recording.
    #[inline]
    pub fn exit(&mut self) {
        let mut left = NONE;
        while let Some(frame) = self.frames.pop_if(|frame| !frame.is(Entry::Earlier)) {
            if frame.is(Entry::Call) {
                left = frame.function().0;
                break;
            }
            self.open -= usize::from(frame.is(Entry::Open));
        }
        if !self.replaced.is_empty() {
            self.forget_replaced();
        }
        if self.frames.len() < self.floor {
            left = NONE;
        }
        self.last = left | LEFT;
        self.refresh_top();
    }

    /// Ends `count` call frames and what is above them.
    pub fn unwind(&mut self, count: u32) {
        for _ in 0..count {
            if self.frames.is_empty() {
                break;
            }
            self.exit();
        }
        self.last = NONE;
    }

    /// Ends up to `count` frames without exits, and the tails above each. Gives how many of them
    /// were begun as calls with one.
    pub fn close_open(&mut self, count: u32) -> u32 {
        let mut calls = 0;
        for _ in 0..count {
            let tails = self
                .frames
                .iter()
                .rev()
                .take_while(|frame| frame.is(Entry::Tail))
                .count();
            let Some(below) = self.frames.len().checked_sub(tails + 1) else {
                break;
            };
            if below < self.floor {
                break;
            }
            self.open -= count_open(&self.frames[below..]);
            calls += u32::from(self.frames[below].is(Entry::Call));
            self.frames.truncate(below);
        }
        self.forget_replaced();
        self.last = NONE;
        self.refresh_top();
        calls
    }

    /// Those that lay above frames that have ended.
    #[cold]
    fn forget_replaced(&mut self) {
        let length = self.frames.len();
        while self.replaced.pop_if(|(above, _)| *above > length).is_some() {}
    }

    /// How many of the frames here are meant if the innermost `count` have ended: those that were
    /// replaced are among them.
    pub fn closed(&mut self, mut count: u32) -> u32 {
        let (mut here, mut at, mut row) = (0, self.frames.len(), self.replaced.len());
        while count > 0 {
            let tails = self.frames[..at].iter().rev();
            let tails = tails.take_while(|frame| frame.is(Entry::Tail)).count();
            let Some(below) = at.checked_sub(tails + 1) else {
                break;
            };
            (here, at, count) = (here + 1, below, count - 1);
            while let Some((above, frames)) = row.checked_sub(1).map(|last| self.replaced[last])
                && above >= at
            {
                row -= 1;
                let ended = frames.min(count);
                self.replaced[row].1 -= ended;
                count -= ended;
            }
        }
        self.replaced.retain(|(_, frames)| *frames > 0);
        here
    }

    /// Entry-only frames that are open.
    #[inline]
    pub fn open_frames(&self) -> usize {
        self.open
    }

    /// What comes next is called by `caller`, as far as that is known. The entry-only frames at the
    /// top above the one that runs it, or all of them, leave the view; gives how many if that
    /// changes anything.
    pub fn leave_view(&mut self, caller: Option<FunctionId>) -> u32 {
        let (mut frames, mut from, mut is_new) = (0, self.frames.len(), false);
        let mut runs = None;
        for (at, frame) in self.frames.iter().enumerate().rev() {
            if frame.ends_chain() {
                break;
            }
            let runs_here = *runs.get_or_insert(frame.function());
            if frame.is(Entry::Open) {
                if Some(runs_here) == caller {
                    break;
                }
                (frames, from, runs) = (frames + 1, at, None);
                is_new |= !frame.is_past();
            }
        }
        for frame in &mut self.frames[from..] {
            frame.0 |= PAST;
        }
        if is_new { frames } else { 0 }
    }

    #[inline]
    fn refresh_top(&mut self) {
        let length = self.frames.len();
        if length > self.floor {
            self.top = self.frames[length - 1].function().0;
        } else {
            self.floor = length;
            self.top = NONE;
        }
    }
}

fn count_open(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| frame.is(Entry::Open)).count()
}
