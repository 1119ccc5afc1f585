//! The events of a block where each has its time.
//!
//! Part of the [`super`] decoder. Two bits say what an event is; the function that is entered is
//! the predicted one ([`crate::mirror`]) or named.

use super::{Block, function, read_operation};
use crate::encoder::{KIND_EXIT, KIND_NAMED, KIND_PREDICTED, operation};
use crate::error::Malformed;
use crate::format::Cursor;
use crate::mirror::Mirror;
use crate::model::{Entry, Event};
use crate::step::read_time;

/// Where decoding goes on.
pub(crate) struct Paused {
    index: u64,
    tsc: u64,
    times: usize,
    operands: usize,
    mirror: Mirror,
}

/// The events that come next.
pub(super) struct Events<'a> {
    block: &'a Block,
    kinds: &'a [u8],
    times: Cursor<'a>,
    operands: Cursor<'a>,
    index: u64,
    tsc: u64,
    mirror: Mirror,
}

impl<'a> Events<'a> {
    /// From the block's start.
    pub(super) fn of(block: &'a Block) -> Self {
        let mut mirror = Mirror::new(block.carried.clone());
        mirror.begin_block(0);
        Self::resume(
            block,
            Paused {
                index: 0,
                tsc: block.first_tsc,
                times: block.times.start,
                operands: block.operands.start,
                mirror,
            },
        )
    }

    pub(super) fn resume(block: &'a Block, paused: Paused) -> Self {
        Self {
            kinds: &block.raw[block.bits.clone()],
            times: Cursor::new(&block.raw[paused.times..block.times.end]),
            operands: Cursor::new(&block.raw[paused.operands..block.operands.end]),
            index: paused.index,
            tsc: paused.tsc,
            mirror: paused.mirror,
            block,
        }
    }

    pub(super) fn pause(self) -> Paused {
        Paused {
            index: self.index,
            tsc: self.tsc,
            times: self.block.times.end - self.times.rest().len(),
            operands: self.block.operands.end - self.operands.rest().len(),
            mirror: self.mirror,
        }
    }

    /// The next one.
    #[inline]
    pub(super) fn read(&mut self) -> Option<Result<Event, Malformed>> {
        (self.index < self.block.events).then(|| self.event())
    }

    #[inline]
    fn event(&mut self) -> Result<Event, Malformed> {
        let byte = self.kinds.get((self.index / 4) as usize).copied();
        let kind = u64::from(byte.unwrap_or_default() >> (self.index % 4 * 2)) & 3;
        self.index += 1;
        let ticks = read_time(&mut self.times, self.block.step)?;
        self.tsc = self
            .tsc
            .checked_add(ticks)
            .ok_or(Malformed("time overflows"))?;
        match kind {
            KIND_EXIT => {
                self.mirror.exit();
                Ok(Event::Exit { tsc: self.tsc })
            }
            KIND_PREDICTED => self.predicted(Entry::Call),
            KIND_NAMED => {
                let number = self.operands.v32()?;
                self.enter(number, Entry::Call)
            }
            _ => self.other(),
        }
    }

    fn predicted(&mut self, entry: Entry) -> Result<Event, Malformed> {
        self.enter(self.mirror.predicted(), entry)
    }

    #[inline]
    fn enter(&mut self, number: u32, entry: Entry) -> Result<Event, Malformed> {
        let (tsc, callee) = (self.tsc, function(number)?);
        self.mirror.enter(number, entry);
        Ok(Event::Enter { tsc, callee, entry })
    }

    fn other(&mut self) -> Result<Event, Malformed> {
        let what = self.operands.u8()?;
        if what == operation::TAIL_PREDICTED {
            return self.predicted(Entry::Tail);
        }
        let end = self.block.operands.end;
        let event = read_operation(what, self.tsc, &mut self.operands, end)?;
        match event {
            Event::Enter { callee, entry, .. } | Event::Inherited { callee, entry, .. } => {
                self.mirror.enter(callee.0, entry);
            }
            Event::CloseOpen { frames, .. } => {
                self.mirror.close_open(frames);
            }
            Event::Unwound { frames, .. } => self.mirror.unwind(frames),
            _ => {}
        }
        Ok(event)
    }
}
