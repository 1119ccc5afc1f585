//! Makes a block events again.
//!
//! Given the payload of a block section, gives its events in order and the stack at its start.
//! Every count is bounded by the bytes that are present, so a hostile block costs at most the
//! 1 MiB of its unpacked body.

use crate::encoder::{KIND_EXIT, KIND_NAMED, KIND_PREDICTED, operation};
use crate::error::Malformed;
use crate::format::{Cursor, MAX_CARRIED, MAX_RAW_BYTES};
use crate::mirror::{FUNCTION_LIMIT, Frame, Mirror};
use crate::model::{Entry, Event, FunctionId, StreamId};
use crate::step::read_time;
use std::ops::Range;

/// LZ4 expands a byte to at most 255.
const MAX_EXPANSION: usize = 255;

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
    kinds: Range<usize>,
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
        let raw = unpack_body(from, buffer)?;
        let mut block = Self {
            stream,
            first_tsc,
            last_tsc,
            events,
            step,
            raw,
            hidden: 0,
            carried: Vec::new(),
            kinds: 0..0,
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
        let times = length(&mut from)?;
        let operands = length(&mut from)?;
        let kinds = usize::try_from(self.events.div_ceil(32)).unwrap_or(usize::MAX);
        let kinds = kinds
            .checked_mul(8)
            .ok_or(Malformed("a block has too many events"))?;
        let start = self.raw.len() - from.rest().len();
        for part in [kinds, times, operands] {
            from.take(part)?;
        }
        self.kinds = start..start + kinds;
        self.times = self.kinds.end..self.kinds.end + times;
        self.operands = self.times.end..self.times.end + operands;
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
        self.resume(Paused::default())
    }

    /// The bytes of an [`Event::Values`] of this block; none of another's.
    pub fn values(&self, at: u32, bytes: u32) -> &[u8] {
        let from = at as usize;
        self.raw.get(from..from + bytes as usize).unwrap_or(&[])
    }

    /// Its events from where decoding was paused.
    pub(crate) fn resume(&self, paused: Paused) -> EventIter<'_> {
        let (index, tsc, times, operands) = (
            paused.index,
            self.first_tsc + paused.ticks,
            self.times.start + paused.times,
            self.operands.start + paused.operands,
        );
        let mirror = paused.mirror.unwrap_or_else(|| {
            let mut mirror = Mirror::new(self.carried.clone());
            mirror.begin_block(0);
            mirror
        });
        EventIter {
            kinds: &self.raw[self.kinds.clone()],
            times: Cursor::new(&self.raw[times..self.times.end]),
            operands: Cursor::new(&self.raw[operands..self.operands.end]),
            index,
            events: self.events,
            tsc,
            step: self.step,
            mirror,
            block: self,
        }
    }

    /// Gives the memory of the body back for the next block.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.raw
    }
}

fn unpack_body(mut from: Cursor<'_>, mut buffer: Vec<u8>) -> Result<Vec<u8>, Malformed> {
    let packing = from.u8()?;
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
        1 => {
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
pub(crate) struct Paused {
    index: u64,
    ticks: u64,
    times: usize,
    operands: usize,
    /// `None`: at the block's start.
    mirror: Option<Mirror>,
}

/// The events of a block.
pub struct EventIter<'a> {
    block: &'a Block,
    kinds: &'a [u8],
    times: Cursor<'a>,
    operands: Cursor<'a>,
    index: u64,
    events: u64,
    tsc: u64,
    step: u64,
    mirror: Mirror,
}

impl EventIter<'_> {
    /// Goes on later, by [`Block::resume`].
    pub(crate) fn pause(self) -> Paused {
        Paused {
            index: self.index,
            ticks: self.tsc - self.block.first_tsc,
            times: self.block.times.len() - self.times.rest().len(),
            operands: self.block.operands.len() - self.operands.rest().len(),
            mirror: Some(self.mirror),
        }
    }

    fn read(&mut self) -> Result<Event, Malformed> {
        let byte = self
            .kinds
            .get((self.index / 4) as usize)
            .copied()
            .unwrap_or_default();
        let kind = u64::from(byte >> (self.index % 4 * 2)) & 3;
        self.index += 1;
        let ticks = read_time(&mut self.times, self.step)?;
        self.tsc = self
            .tsc
            .checked_add(ticks)
            .ok_or(Malformed("time overflows"))?;
        let tsc = self.tsc;
        match kind {
            KIND_EXIT => {
                self.mirror.exit();
                Ok(Event::Exit { tsc })
            }
            KIND_PREDICTED => self.predicted(Entry::Call),
            KIND_NAMED => self.named(Entry::Call),
            _ => self.other(),
        }
    }

    fn predicted(&mut self, entry: Entry) -> Result<Event, Malformed> {
        let function = self.mirror.predicted();
        self.enter(function, entry)
    }

    fn inherited(&mut self, entry: Entry) -> Result<Event, Malformed> {
        let (tsc, callee) = (self.tsc, self.operands.v32()?);
        self.enter(callee, entry)?;
        let callee = FunctionId(callee);
        Ok(Event::Inherited { tsc, callee, entry })
    }

    fn named(&mut self, entry: Entry) -> Result<Event, Malformed> {
        let function = self.operands.v32()?;
        self.enter(function, entry)
    }

    fn enter(&mut self, function: u32, entry: Entry) -> Result<Event, Malformed> {
        if function >= FUNCTION_LIMIT {
            return Err(Malformed("an event names a function that cannot be"));
        }
        self.mirror.enter(function, entry);
        Ok(Event::Enter {
            tsc: self.tsc,
            callee: FunctionId(function),
            entry,
        })
    }

    fn other(&mut self) -> Result<Event, Malformed> {
        let tsc = self.tsc;
        match self.operands.u8()? {
            operation::TAIL => self.named(Entry::Tail),
            operation::TAIL_PREDICTED => self.predicted(Entry::Tail),
            operation::OPEN => self.named(Entry::Open),
            operation::EARLIER => self.named(Entry::Earlier),
            operation::INHERITED => self.inherited(Entry::Call),
            operation::INHERITED_OPEN => self.inherited(Entry::Open),
            operation::CLOSE_OPEN => {
                let frames = self.operands.v32()?;
                self.mirror.close_open(frames);
                Ok(Event::CloseOpen { tsc, frames })
            }
            operation::OUTSIDE => {
                let frames = self.operands.v32()?;
                Ok(Event::Outside { tsc, frames })
            }
            operation::UNWOUND => {
                let frames = self.operands.v32()?;
                self.mirror.unwind(frames);
                Ok(Event::Unwound { tsc, frames })
            }
            operation::RESUMED => {
                let callee = FunctionId(self.operands.v32()?);
                Ok(Event::Resumed { tsc, callee })
            }
            operation::LOST => Ok(Event::Lost {
                tsc,
                events: self.operands.v()?,
            }),
            operation::BLOCKED => Ok(Event::Blocked {
                tsc,
                ticks: self.operands.v()?,
            }),
            operation::VALUES => {
                let bytes = self.operands.v32()?;
                let at = self.block.operands.end - self.operands.rest().len();
                self.operands.take(bytes as usize)?;
                let at = at as u32;
                Ok(Event::Values { tsc, at, bytes })
            }
            operation::BETWEEN => {
                let (back, ahead) = (self.operands.v()?, self.operands.v()?);
                let is_time = back <= tsc && tsc.checked_add(ahead).is_some();
                let outside = Malformed("a time before or after all time");
                is_time
                    .then_some(Event::Between { tsc, back, ahead })
                    .ok_or(outside)
            }
            _ => Err(Malformed("an event of an unknown kind")),
        }
    }
}

impl Iterator for EventIter<'_> {
    type Item = Result<Event, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.events {
            return None;
        }
        let event = self.read();
        if event.is_err() {
            self.events = 0;
        }
        Some(event)
    }
}
