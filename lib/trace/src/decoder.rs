//! Makes a block events again.
//!
//! Given the payload of a block section, gives its events in order and the stack at its start. How
//! events are written in a block stands in [`timed`] and [`order`].
//! Every count is bounded by the bytes that are present, so a hostile block costs at most the
//! 1 MiB of its unpacked body.

mod order;
mod timed;

use crate::encoder::operation;
use crate::error::Malformed;
use crate::format::{Cursor, MAX_CARRIED, MAX_RAW_BYTES, PACKED, WITHOUT_TIMES};
use crate::mirror::{FUNCTION_LIMIT, Frame};
use crate::model::{Entry, Event, FunctionId, StreamId};
use std::ops::Range;

/// LZ4 expands a byte to at most 255.
const MAX_EXPANSION: usize = 255;
/// A block of calls without times, which says of many events in one word that they happened, has
/// less than these.
const MAX_EVENTS: u64 = 1 << 17;

/// A frame that is open at the start of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFrame {
    /// What runs in it.
    pub function: FunctionId,
    /// How it was opened.
    pub entry: Entry,
    /// It has left the view: see [`Event::Outside`].
    pub is_past: bool,
}

/// The events of one stream over some time.
pub struct Block {
    /// Whose events these are.
    pub stream: StreamId,
    /// Time that the first event counts from.
    pub first_tsc: u64,
    /// Time of the last event.
    pub last_tsc: u64,
    /// Number of events.
    pub events: u64,
    step: u64,
    raw: Vec<u8>,
    hidden: u64,
    carried: Vec<Frame>,
    /// Calls have no times: it has symbols and spans.
    is_in_order: bool,
    symbols: u64,
    /// Two of each event, or one of each symbol.
    bits: Range<usize>,
    spans: Range<usize>,
    times: Range<usize>,
    operands: Range<usize>,
}

impl Block {
    /// Unpacks a block section's payload. `buffer` is an old body whose memory is used again.
    pub(crate) fn unpack(payload: &[u8], buffer: Vec<u8>) -> Result<Self, Malformed> {
        let mut from = Cursor::new(payload);
        let stream = StreamId(from.v32()?);
        let first_tsc = from.v()?;
        let last_tsc = first_tsc.checked_add(from.v()?);
        let last_tsc = last_tsc.ok_or(Malformed("a block ends after the end of time"))?;
        let events = from.v()?;
        let step = from.v()?;
        let packing = from.u8()?;
        let raw = unpack_body(packing & !WITHOUT_TIMES, from, buffer)?;
        let mut block = Self {
            stream,
            first_tsc,
            last_tsc,
            events,
            step,
            raw,
            hidden: 0,
            carried: Vec::new(),
            is_in_order: packing & WITHOUT_TIMES != 0,
            symbols: 0,
            bits: 0..0,
            spans: 0..0,
            times: 0..0,
            operands: 0..0,
        };
        block.find_parts()?;
        Ok(block)
    }

    /// Stream and first time, given the first bytes of a block section's payload.
    pub(crate) fn begins(payload: &[u8]) -> Result<(StreamId, u64), Malformed> {
        let mut from = Cursor::new(payload);
        Ok((StreamId(from.v32()?), from.v()?))
    }

    fn find_parts(&mut self) -> Result<(), Malformed> {
        let mut from = Cursor::new(&self.raw);
        self.hidden = from.v()?;
        let carried = usize::try_from(from.v()?).unwrap_or(usize::MAX);
        if carried > MAX_CARRIED + 1 {
            return Err(Malformed("a block carries too many frames"));
        }
        for _ in 0..carried {
            let frame = Frame(from.v32()?);
            self.carried.push(frame);
        }
        let length = |from: &mut Cursor<'_>| {
            let length = from.v()?;
            usize::try_from(length).map_err(|_| Malformed("a part is too long"))
        };
        let mut bytes_of = [0; 4];
        if self.is_in_order {
            self.symbols = from.v()?;
            let [_, spans, times, operands] = &mut bytes_of;
            for part in [spans, times, operands] {
                *part = length(&mut from)?;
            }
        } else {
            let [_, _, times, operands] = &mut bytes_of;
            (*times, *operands) = (length(&mut from)?, length(&mut from)?);
        }
        let words = match self.is_in_order {
            true => self.symbols.div_ceil(64),
            false => self.events.div_ceil(32),
        };
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        if self.is_in_order && self.events > MAX_EVENTS {
            return Err(Malformed("a block has too many events"));
        }
        bytes_of[0] = words
            .checked_mul(8)
            .ok_or(Malformed("a block has too many events"))?;
        let mut start = self.raw.len() - from.rest().len();
        let mut parts = bytes_of.map(|_| 0..0);
        for (part, bytes) in parts.iter_mut().zip(bytes_of) {
            from.take(bytes)?;
            *part = start..start + bytes;
            start = part.end;
        }
        [self.bits, self.spans, self.times, self.operands] = parts;
        Ok(())
    }

    /// Frames open at the start that are not named, below [`Self::opening`].
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Frames open at the start, outermost first.
    pub fn opening(&self) -> impl Iterator<Item = OpenFrame> + '_ {
        self.carried.iter().map(|frame| OpenFrame {
            function: frame.function(),
            entry: frame.entry(),
            is_past: frame.is_past(),
        })
    }

    /// The events in order. Ends after the first error.
    pub fn events(&self) -> EventIter<'_> {
        self.resume(Paused::NotBegun)
    }

    /// The bytes of an [`Event::Values`] of this block; none of another's.
    pub fn values(&self, at: u32, bytes: u32) -> &[u8] {
        let from = at as usize;
        self.raw.get(from..from + bytes as usize).unwrap_or(&[])
    }

    /// Its events from where decoding was paused.
    pub(crate) fn resume(&self, paused: Paused) -> EventIter<'_> {
        let coding = match paused {
            Paused::Timed(paused) => Coding::Timed(timed::Events::resume(self, paused)),
            Paused::Order(paused) => Coding::Order(order::Events::resume(self, paused)),
            Paused::NotBegun if self.is_in_order => Coding::Order(order::Events::of(self)),
            Paused::NotBegun => Coding::Timed(timed::Events::of(self)),
        };
        EventIter {
            coding,
            is_over: false,
        }
    }

    /// Gives the memory of the body back for the next block.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.raw
    }
}

fn unpack_body(
    packing: u8,
    mut from: Cursor<'_>,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, Malformed> {
    let raw_length = usize::try_from(from.v()?).unwrap_or(usize::MAX);
    let body = from.rest();
    if raw_length > MAX_RAW_BYTES || raw_length > body.len().saturating_mul(MAX_EXPANSION) {
        return Err(Malformed(
            "a block states a body larger than its bytes allow",
        ));
    }
    buffer.clear();
    match packing {
        0 if raw_length == body.len() => buffer.extend_from_slice(body),
        PACKED => {
            buffer.resize(raw_length, 0);
            let unpacked = lz4_flex::block::decompress_into(body, &mut buffer);
            if unpacked.ok() != Some(raw_length) {
                return Err(Malformed("a block cannot be unpacked"));
            }
        }
        _ => return Err(Malformed("a block has an unknown packing")),
    }
    Ok(buffer)
}

/// How far a block is decoded.
#[derive(Default)]
pub(crate) enum Paused {
    /// At the block's start.
    #[default]
    NotBegun,
    Timed(timed::Paused),
    Order(order::Paused),
}

/// The events of a block.
pub struct EventIter<'a> {
    coding: Coding<'a>,
    is_over: bool,
}

enum Coding<'a> {
    /// All have times.
    Timed(timed::Events<'a>),
    /// Calls have none.
    Order(order::Events<'a>),
}

impl EventIter<'_> {
    /// Goes on later, by [`Block::resume`].
    pub(crate) fn pause(self) -> Paused {
        match self.coding {
            Coding::Timed(events) => Paused::Timed(events.pause()),
            Coding::Order(events) => Paused::Order(events.pause()),
        }
    }
}

impl Iterator for EventIter<'_> {
    type Item = Result<Event, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = match &mut self.coding {
            Coding::Timed(events) => events.read(),
            Coding::Order(events) => events.read(),
        };
        self.is_over = !matches!(event, Some(Ok(_)));
        event
    }
}

/// A function's number that can be one.
fn function(number: u32) -> Result<FunctionId, Malformed> {
    match number < FUNCTION_LIMIT {
        true => Ok(FunctionId(number)),
        false => Err(Malformed("an event names a function that cannot be")),
    }
}

/// The event of this operation, by its fields; `end`: where the operands end in the body.
fn read_operation(
    operation: u8,
    tsc: u64,
    operands: &mut Cursor<'_>,
    end: usize,
) -> Result<Event, Malformed> {
    let enter = |operands: &mut Cursor<'_>, entry| {
        let callee = function(operands.v32()?)?;
        Ok(Event::Enter { tsc, callee, entry })
    };
    let inherited = |operands: &mut Cursor<'_>, entry| {
        let callee = function(operands.v32()?)?;
        Ok(Event::Inherited { tsc, callee, entry })
    };
    match operation {
        operation::TAIL => enter(operands, Entry::Tail),
        operation::OPEN => enter(operands, Entry::Open),
        operation::EARLIER => enter(operands, Entry::Earlier),
        operation::INHERITED => inherited(operands, Entry::Call),
        operation::INHERITED_OPEN => inherited(operands, Entry::Open),
        operation::CLOSE_OPEN | operation::OUTSIDE | operation::UNWOUND => {
            let frames = operands.v32()?;
            Ok(match operation {
                operation::CLOSE_OPEN => Event::CloseOpen { tsc, frames },
                operation::OUTSIDE => Event::Outside { tsc, frames },
                _ => Event::Unwound { tsc, frames },
            })
        }
        operation::RESUMED => {
            let callee = FunctionId(operands.v32()?);
            Ok(Event::Resumed { tsc, callee })
        }
        operation::LOST => Ok(Event::Lost {
            tsc,
            events: operands.v()?,
        }),
        operation::BLOCKED => Ok(Event::Blocked {
            tsc,
            ticks: operands.v()?,
        }),
        operation::VALUES => {
            let bytes = operands.v32()?;
            let at = (end - operands.rest().len()) as u32;
            operands.take(bytes as usize)?;
            Ok(Event::Values { tsc, at, bytes })
        }
        operation::BETWEEN => {
            let (back, ahead) = (operands.v()?, operands.v()?);
            let is_time = back <= tsc && tsc.checked_add(ahead).is_some();
            let outside = Malformed("a time before or after all time");
            is_time
                .then_some(Event::Between { tsc, back, ahead })
                .ok_or(outside)
        }
        _ => Err(Malformed("an event of an unknown kind")),
    }
}
