//! What is done for each event: the inner loop of a recording's host.
//!
//! Part of the [`StreamEncoder`]. While a burst lasts, what every event changes (the time, the ends
//! of the arrays) is held in registers; it goes back to the encoder at the burst's end, which packs
//! a full block.
//!
//! Where a branch would depend on what the program does next, both ways are computed and one is
//! taken: a wrong guess of the processor costs more than all the rest. The exception is whether a
//! function is entered or left: there the two ways together were slower, as each waits for the one
//! before.

use std::hint::select_unpredictable;

use super::*;

/// Several events of a stream in a row; nothing has happened before [`Self::finish`].
#[must_use]
pub struct Burst<'a> {
    encoder: &'a mut StreamEncoder,
    /// Events for which there is room in any case.
    room: usize,
    events: usize,
    /// Kinds of the events since the last whole word.
    kinds: u64,
    times_length: usize,
    operands_length: usize,
    calls_open: u32,
    last_tsc: u64,
}

const KINDS_A_WORD: usize = 32;
/// Events of a burst.
const BURST_EVENTS: usize = 256;
/// An operation and its two fields, or a function's number; and what is written beyond that.
pub(super) const MAX_OPERAND_BYTES: usize = 21 + 8;

impl<'a> Burst<'a> {
    #[inline]
    pub(super) fn new(encoder: &'a mut StreamEncoder) -> Self {
        let (events, times_length) = (encoder.events, encoder.times_length);
        let times = (TIMES_BYTES - times_length) / MAX_TIME_BYTES;
        let operands = encoder.operands_length + BURST_EVENTS * MAX_OPERAND_BYTES;
        if encoder.operands.len() < operands {
            encoder.operands.resize(2 * operands, 0);
        }
        Self {
            room: BURST_EVENTS.min(BLOCK_EVENTS - events).min(times),
            events,
            kinds: encoder.kinds[events / KINDS_A_WORD],
            times_length,
            operands_length: encoder.operands_length,
            calls_open: encoder.calls_open,
            last_tsc: encoder.last_tsc,
            encoder,
        }
    }

    /// How many events more can be taken, one at least in a new one.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// See [`StreamEncoder::enter`].
    #[inline(always)]
    pub fn enter(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.calls_open += 1;
        let is_named = !self.encoder.mirror.enter(function, Entry::Call);
        self.operand_if(is_named, u64::from(function));
        self.event(tsc, KIND_PREDICTED + u64::from(is_named));
    }

    /// See [`StreamEncoder::exit`].
    #[inline(always)]
    pub fn exit(&mut self, tsc: u64) {
        self.calls_open = self.calls_open.saturating_sub(1);
        self.encoder.mirror.exit();
        self.event(tsc, KIND_EXIT);
    }

    /// See [`StreamEncoder::tail`].
    #[inline(always)]
    pub fn tail(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        let is_expected = self.encoder.mirror.enter(function, Entry::Tail);
        if is_expected {
            self.operand(u64::from(operation::TAIL_PREDICTED));
            self.event(tsc, KIND_OTHER);
        } else {
            self.other(tsc, operation::TAIL, u64::from(function));
        }
    }

    #[inline(always)]
    pub(super) fn other(&mut self, tsc: u64, operation: u8, field: u64) {
        self.operand(u64::from(operation));
        self.operand(field);
        self.event(tsc, KIND_OTHER);
    }

    /// See [`StreamEncoder::between`], but it is said at once.
    #[inline]
    pub fn span(&mut self, from_tsc: u64, to_tsc: u64) {
        self.encoder.span = (from_tsc, to_tsc);
        let now = self.last_tsc.max(from_tsc);
        if now < to_tsc {
            self.between(now, now - from_tsc, to_tsc - now);
        }
    }

    #[inline]
    pub(super) fn between(&mut self, tsc: u64, back: u64, ahead: u64) {
        self.operand(u64::from(operation::BETWEEN));
        self.operand(back);
        self.operand(ahead);
        self.event(tsc, KIND_OTHER);
    }

    #[inline(always)]
    fn operand(&mut self, value: u64) {
        self.operand_if(true, value);
    }

    #[inline(always)]
    fn operand_if(&mut self, is_wanted: bool, value: u64) {
        let bytes = &mut self.encoder.operands[self.operands_length..];
        self.operands_length += put_operand(bytes, is_wanted, value);
    }

    #[inline(always)]
    fn event(&mut self, tsc: u64, kind: u64) {
        self.room -= 1;
        self.kinds |= kind << (self.events % KINDS_A_WORD * 2);
        self.store_kinds();
        self.events += 1;
        self.kinds = select_unpredictable(self.events.is_multiple_of(KINDS_A_WORD), 0, self.kinds);
        // Stamps of one thread can step back by a migration between processors; time cannot.
        let ticks = tsc.saturating_sub(self.last_tsc);
        self.last_tsc += ticks;
        let encoder = &mut *self.encoder;
        self.times_length = put_time(&mut encoder.times, self.times_length, encoder.step, ticks);
    }

    #[inline(always)]
    fn store_kinds(&mut self) {
        self.encoder.kinds[self.events / KINDS_A_WORD % (BLOCK_EVENTS / KINDS_A_WORD)] = self.kinds;
    }

    /// Makes it so.
    #[inline]
    pub fn finish(self) {
        let encoder = self.encoder;
        encoder.events = self.events;
        encoder.times_length = self.times_length;
        encoder.operands_length = self.operands_length;
        encoder.calls_open = self.calls_open;
        encoder.last_tsc = self.last_tsc;
        if self.events >= BLOCK_EVENTS || self.times_length > TIMES_BYTES - MAX_TIME_BYTES {
            encoder.pack();
        }
    }
}

/// Writes a number as LEB128 if it is wanted; gives how many bytes that takes.
#[inline(always)]
pub(super) fn put_operand(bytes: &mut [u8], is_wanted: bool, value: u64) -> usize {
    if value >= 1 << 28 {
        return if is_wanted {
            put_large(bytes, value)
        } else {
            0
        };
    }
    let last = usize::from(value >= 1 << 7)
        + usize::from(value >= 1 << 14)
        + usize::from(value >= 1 << 21);
    let spread = value & 0x7f
        | (value & 0x7f << 7) << 1
        | (value & 0x7f << 14) << 2
        | (value & 0x7f << 21) << 3;
    let more = 0x8080_8080 & ((1u64 << (8 * last)) - 1);
    if let Some(bytes) = bytes.first_chunk_mut() {
        *bytes = ((spread | more) as u32).to_le_bytes();
    }
    select_unpredictable(is_wanted, last + 1, 0)
}

/// Writes a time at `at`; gives where it ends.
#[inline(always)]
pub(super) fn put_time(times: &mut [u8; TIMES_BYTES], at: usize, step: Step, ticks: u64) -> usize {
    let steps = step.count(ticks);
    let rest = steps.wrapping_sub(SHORT_TIMES);
    if steps >= SHORT_TIMES + TWO_BYTE_TIMES {
        return put_long(times, at, ticks);
    }
    let is_long = steps >= SHORT_TIMES;
    let first = select_unpredictable(is_long, SHORT_TIMES + (rest >> 8), steps);
    if let Some(times) = times[at..].first_chunk_mut() {
        *times = [first as u8, rest as u8];
    }
    at + 1 + usize::from(is_long)
}

#[cold]
fn put_large(bytes: &mut [u8], mut value: u64) -> usize {
    let mut length = 0;
    while value >= 0x80 {
        bytes[length] = value as u8 | 0x80;
        length += 1;
        value >>= 7;
    }
    bytes[length] = value as u8;
    length + 1
}

/// Writes a time of more than two bytes at `at`; gives where it ends.
#[inline(never)]
fn put_long(times: &mut [u8; TIMES_BYTES], at: usize, ticks: u64) -> usize {
    times[at] = LONG_TIME;
    at + 1 + put_large(&mut times[at + 1..], ticks)
}
