//! The events of a block whose calls have no times of their own.
//!
//! Part of the [`super`] decoder. A symbol says how many calls end and what happens then, and one
//! bit whether it is the foretold one ([`crate::foretell`]). The times of calls without any are
//! spread over their span, as [`crate::spread`] does.

use super::{Block, function, read_operation};
use crate::error::Malformed;
use crate::foretell::{Foretold, Symbol, What};
use crate::format::Cursor;
use crate::model::{Entry, Event};
use crate::spread::{Spread, end_between};
use crate::step::read_time;

/// Where decoding goes on.
pub(crate) struct Paused {
    at: At,
    spans: usize,
    times: usize,
    operands: usize,
}

/// What is known of the events before.
struct At {
    /// Symbols read.
    symbols: u64,
    /// Events given.
    events: u64,
    /// Time of the last event.
    tsc: u64,
    /// Calls that end now, before what the last symbol says: all, and those that are left.
    ends: u64,
    returns: u64,
    /// Since when they may have ended: when they did nobody knows, if that is before `tsc`.
    ended_since: u64,
    /// What it says, if that is to come.
    next: Option<Event>,
    /// Symbols without times that are left of the span, and which moment comes next.
    left: u64,
    moment: u64,
    spread: Spread,
    foretold: Foretold,
}

/// The events that come next.
pub(super) struct Events<'a> {
    block: &'a Block,
    hits: &'a [u8],
    spans: Cursor<'a>,
    times: Cursor<'a>,
    operands: Cursor<'a>,
    at: At,
}

const LATE: Malformed = Malformed("time overflows");

impl<'a> Events<'a> {
    /// From the block's start.
    pub(super) fn of(block: &'a Block) -> Self {
        let at = At {
            symbols: 0,
            events: 0,
            tsc: block.first_tsc,
            ends: 0,
            returns: 0,
            ended_since: block.first_tsc,
            next: None,
            left: 0,
            moment: 0,
            spread: Spread::default(),
            foretold: Foretold::new(),
        };
        Self::resume(
            block,
            Paused {
                at,
                spans: block.spans.start,
                times: block.times.start,
                operands: block.operands.start,
            },
        )
    }

    pub(super) fn resume(block: &'a Block, paused: Paused) -> Self {
        let part = |from: usize, end: usize| Cursor::new(&block.raw[from..end]);
        Self {
            hits: &block.raw[block.bits.clone()],
            spans: part(paused.spans, block.spans.end),
            times: part(paused.times, block.times.end),
            operands: part(paused.operands, block.operands.end),
            at: paused.at,
            block,
        }
    }

    pub(super) fn pause(self) -> Paused {
        let at = |end: usize, part: Cursor<'_>| end - part.rest().len();
        Paused {
            spans: at(self.block.spans.end, self.spans),
            times: at(self.block.times.end, self.times),
            operands: at(self.block.operands.end, self.operands),
            at: self.at,
        }
    }

    /// The next one.
    #[inline]
    pub(super) fn read(&mut self) -> Option<Result<Event, Malformed>> {
        let at = &mut self.at;
        if at.returns == 0 && at.next.is_none() && at.symbols >= self.block.symbols {
            return (at.events != self.block.events)
                .then_some(Err(Malformed("a block states another number of events")));
        }
        let event = self.event();
        self.at.events += 1;
        // So many returns may be said that nobody can be told of them.
        match self.at.events > self.block.events {
            true => Some(Err(Malformed("a block states another number of events"))),
            false => Some(event),
        }
    }

    #[inline]
    fn event(&mut self) -> Result<Event, Malformed> {
        if self.at.returns == 0 && self.at.next.is_none() {
            let between = self.symbol()?;
            if let Some(between) = between {
                return Ok(between);
            }
        }
        let at = &mut self.at;
        if at.returns > 0 {
            let number = at.ends - at.returns + 1;
            at.returns -= 1;
            let tsc = end_between(at.ended_since, at.tsc, number, at.ends);
            return Ok(Event::Exit { tsc });
        }
        let none = Malformed("a symbol says nothing");
        at.next.take().ok_or(none)
    }

    /// Reads the next symbol; gives the event that tells of its span, if one begins.
    #[inline]
    fn symbol(&mut self) -> Result<Option<Event>, Malformed> {
        let at = &mut self.at;
        let byte = self.hits.get((at.symbols / 8) as usize).copied();
        let is_foretold = byte.unwrap_or_default() >> (at.symbols % 8) & 1 != 0;
        at.symbols += 1;
        let symbol = match is_foretold {
            true => at.foretold.expected(),
            false => Symbol::of_bits(self.operands.v()?),
        };
        let symbol = symbol.ok_or(Malformed("a symbol that cannot be"))?;
        at.foretold.came(symbol);
        at.returns = symbol.returned();
        if symbol.is_many() {
            at.returns = self.operands.v()?;
        }
        let mut between = None;
        if matches!(symbol.what(), What::Call | What::Tail) {
            if at.left == 0 {
                between = self.span()?;
            }
            let at = &mut self.at;
            at.moment += 1;
            at.left -= 1;
            let before = at.spread.at(at.moment - 1);
            (at.ended_since, at.tsc) = (before.max(at.tsc), at.spread.at(at.moment).max(at.tsc));
        } else {
            let ticks = read_time(&mut self.times, self.block.step)?;
            at.tsc = at.tsc.checked_add(ticks).ok_or(LATE)?;
            at.ended_since = at.tsc;
        }
        self.at.ends = self.at.returns;
        self.next(symbol)?;
        Ok(between)
    }

    /// What the symbol says comes after the returns.
    fn next(&mut self, symbol: Symbol) -> Result<(), Malformed> {
        let tsc = self.at.tsc;
        let enter = |entry| {
            let callee = function(symbol.number())?;
            Ok(Some(Event::Enter { tsc, callee, entry }))
        };
        self.at.next = match symbol.what() {
            What::Call | What::CallAt => enter(Entry::Call)?,
            What::Tail | What::TailAt => enter(Entry::Tail)?,
            What::Exits => None,
            What::Other => {
                let what = u8::try_from(symbol.number()).unwrap_or(u8::MAX);
                let end = self.block.operands.end;
                Some(read_operation(what, tsc, &mut self.operands, end)?)
            }
        };
        Ok(())
    }

    /// A span begins; the event that tells of it, unless nothing of it is later than what was.
    fn span(&mut self) -> Result<Option<Event>, Malformed> {
        let calls = self.spans.v()?;
        let (from, length) = (self.spans.v()?, self.spans.v()?);
        let (before, after) = match calls & 1 {
            0 => (0, 0),
            _ => (self.spans.v()?, self.spans.v()?),
        };
        let calls = calls >> 1;
        let at = &mut self.at;
        let from = at.tsc.wrapping_add(from >> 1 ^ (from & 1).wrapping_neg());
        let to = from.checked_add(length).ok_or(LATE)?;
        let moments = before
            .checked_add(calls)
            .and_then(|m| m.checked_add(after))
            .ok_or(LATE)?;
        if calls == 0 {
            return Err(Malformed("a span without calls"));
        }
        (at.left, at.moment) = (calls, before);
        at.spread = Spread::new(from, to, moments);
        let tsc = at.tsc.max(from);
        Ok((tsc < to).then(|| {
            let (back, ahead) = (tsc - from, to - tsc);
            Event::Between { tsc, back, ahead }
        }))
    }
}
