//! Blocks of a stream most of whose calls have no times of their own: what is written for them.
//!
//! Part of the [`StreamEncoder`], which writes such blocks from the first [`Run`] on. Of a run of
//! calls only their symbols are written, most often one bit each ([`crate::foretell`]), and once
//! between which times all of them happened; the reader spreads them as [`crate::spread`] does.
//! What has a time of its own has a symbol and that time. The format is in [`mod@crate::format`].

use super::burst::{MAX_OPERAND_BYTES, put_operand, put_time};
use super::*;
use crate::foretell::{Foretold, MOST_RETURNED, Row, Symbol, What};
use crate::mirror::Begun;

/// So many events at most are in a run: what a reader has to tell of a block is bounded.
const MAX_RUN_EVENTS: usize = 1 << 16;
/// Symbols in a word of [`Coding::hits`].
const WORD: usize = 64;

/// What such a block has beside times and operands.
#[derive(Clone)]
pub(super) struct Coding {
    foretold: Foretold,
    symbols: usize,
    /// Of each symbol whether it was foretold; the last word is not whole.
    hits: Vec<u64>,
    /// Those of a word that were not.
    missed: [u64; WORD],
    spans: Vec<u8>,
}

impl Coding {
    fn new() -> Self {
        Self {
            foretold: Foretold::new(),
            symbols: 0,
            hits: Vec::new(),
            missed: [0; WORD],
            spans: Vec::new(),
        }
    }

    pub(super) fn begin_block(&mut self) {
        self.foretold.begin_block();
        self.symbols = 0;
        self.hits.clear();
        self.spans.clear();
    }

    /// See [`mod@crate::format`].
    pub(super) fn fill(&self, raw: &mut Vec<u8>, times: &[u8], operands: &[u8]) {
        put_v(raw, self.symbols as u64);
        put_v(raw, self.spans.len() as u64);
        put_v(raw, times.len() as u64);
        put_v(raw, operands.len() as u64);
        for word in self.hits.iter().take(self.symbols.div_ceil(WORD)) {
            raw.extend_from_slice(&word.to_le_bytes());
        }
        for part in [&self.spans[..], times, operands] {
            raw.extend_from_slice(part);
        }
    }
}

/// When the calls of a run happened: as part of so many moments between two times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The earlier time.
    pub from_tsc: u64,
    /// The later one, not before it.
    pub to_tsc: u64,
    /// Moments that are spread between the two.
    pub moments: u64,
    /// So many of them come before the run.
    pub before: u64,
}

/// Calls in a row, all recorded without times; nothing has happened before [`Self::stop`].
#[must_use]
pub struct Run<'a> {
    encoder: &'a mut StreamEncoder,
    coding: Box<Coding>,
    calls: u64,
    /// With the returns.
    events: usize,
    /// Whether the symbols since the last whole word were foretold.
    hits: u64,
}

impl<'a> Run<'a> {
    fn new(encoder: &'a mut StreamEncoder) -> Self {
        let coding = encoder.take_coding();
        let mut run = Self {
            encoder,
            hits: coding.hits.last().copied().unwrap_or(0),
            coding,
            calls: 0,
            events: 0,
        };
        run.make_room();
        run
    }

    #[inline(never)]
    fn make_room(&mut self) {
        let (encoder, coding) = (&mut *self.encoder, &mut *self.coding);
        let end = encoder.operands_length + WORD * 2 * MAX_OPERAND_BYTES;
        if encoder.operands.len() < end {
            encoder.operands.resize(2 * end, 0);
        }
        if coding.hits.len() == coding.symbols / WORD {
            coding.hits.push(0);
            self.hits = 0;
        }
    }

    /// One call more may be in it, before which so many return.
    #[inline(always)]
    pub fn has_room(&self, returned: usize) -> bool {
        self.events + returned < MAX_RUN_EVENTS
    }

    /// So many calls return, for which there is room, and then one begins, or the running one goes
    /// on as `callee`.
    #[inline(always)]
    pub fn call(&mut self, returned: usize, callee: FunctionId, is_tail: bool) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        let what = if is_tail { What::Tail } else { What::Call };
        let symbol = Symbol::new(what, returned, function);
        let (encoder, coding) = (&mut *self.encoder, &mut *self.coding);
        let is_foretold = coding.foretold.came(symbol);
        self.hits |= u64::from(is_foretold) << (coding.symbols % WORD);
        coding.symbols += 1;
        let operands = &mut encoder.operands[encoder.operands_length..];
        encoder.operands_length += put_operand(operands, !is_foretold, symbol.bits());
        if symbol.is_many() {
            encoder.operand(returned as u64);
        }
        let open = encoder.calls_open.saturating_sub(returned as u32);
        encoder.calls_open = open + u32::from(!is_tail);
        encoder
            .mirror
            .go_on(returned, &[Begun::new(callee, is_tail)]);
        encoder.events += returned + 1;
        self.calls += 1;
        self.events += returned + 1;
        if coding.symbols.is_multiple_of(WORD) {
            self.end_word();
        }
    }

    /// For calls in a row; `None`: there may be no room.
    #[inline]
    pub fn word(&mut self) -> Option<Word<'_>> {
        let coding = &mut *self.coding;
        let bit = coding.symbols % WORD;
        let has_room = self.events + (WORD - bit) * (Word::MOST_RETURNED + 1) < MAX_RUN_EVENTS;
        has_room.then_some(Word {
            row: coding.foretold.row(),
            missed: &mut coding.missed,
            taken: Taken {
                bit,
                ..Taken::default()
            },
        })
    }

    /// These calls have come: by them so many have ended that were open before, and these have
    /// begun and are open.
    #[inline]
    pub fn took(&mut self, taken: Taken, ended: usize, begun: &[Begun]) {
        let (encoder, coding) = (&mut *self.encoder, &mut *self.coding);
        let Taken { calls, returns, .. } = taken;
        self.hits |= taken.hits;
        coding.foretold.end_row(taken.last);
        coding.symbols += calls;
        for symbol in coding.missed.iter().take(taken.missed) {
            let operands = &mut encoder.operands[encoder.operands_length..];
            encoder.operands_length += put_operand(operands, true, *symbol);
        }
        encoder.mirror.go_on(ended, begun);
        let open = encoder.calls_open as usize + calls - taken.tails;
        encoder.calls_open = open.saturating_sub(returns) as u32;
        encoder.events += calls + returns;
        self.calls += calls as u64;
        self.events += calls + returns;
        if coding.symbols.is_multiple_of(WORD) && calls > 0 {
            self.end_word();
        }
    }

    #[inline(never)]
    fn end_word(&mut self) {
        if let Some(word) = self.coding.hits.last_mut() {
            *word = self.hits;
        }
        self.make_room();
    }

    /// It is over; gives how many calls were in it. When they happened is to be said by
    /// [`StreamEncoder::end_run`], before anything else happens.
    pub fn stop(mut self) -> u64 {
        if let Some(word) = self.coding.hits.last_mut() {
            *word = self.hits;
        }
        self.encoder.order = Some(self.coding);
        self.calls
    }
}

/// Calls that come in a row in a [`Run`]: what is kept of them stands in registers.
pub struct Word<'a> {
    row: Row<'a>,
    missed: &'a mut [u64; WORD],
    taken: Taken,
}

/// What is known of the calls in a [`Word`].
#[derive(Clone, Copy, Default)]
pub struct Taken {
    /// How many there are.
    pub calls: usize,
    returns: usize,
    tails: usize,
    hits: u64,
    bit: usize,
    missed: usize,
    last: (u32, u32),
}

impl Word<'_> {
    /// At most so many may return before a call.
    pub const MOST_RETURNED: usize = MOST_RETURNED as usize - 1;

    /// There is room for so many calls.
    #[inline]
    pub fn room(&self) -> usize {
        WORD - self.taken.bit
    }

    /// So many calls return, for which [`Self::room`] was, and then one begins, or the running one
    /// goes on as `callee`.
    #[inline(always)]
    pub fn call(&mut self, returned: usize, callee: FunctionId, goes_on: bool) {
        let symbol = Symbol::of_call(returned, callee.0.min(FUNCTION_LIMIT - 1), goes_on);
        let is_foretold = self.row.came(symbol);
        let taken = &mut self.taken;
        if let Some(missed) = self.missed.get_mut(taken.missed) {
            *missed = symbol.bits();
        }
        taken.missed += usize::from(!is_foretold);
        taken.hits |= u64::from(is_foretold) << (taken.bit % WORD);
        taken.bit += 1;
        taken.calls += 1;
        taken.returns += returned;
        taken.tails += usize::from(goes_on);
    }

    /// All of them; to be given to [`Run::took`].
    #[inline]
    pub fn end(self) -> Taken {
        Taken {
            last: self.row.last(),
            ..self.taken
        }
    }
}

impl StreamEncoder {
    /// The stream has blocks for calls without times.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        self.order.is_some()
    }

    /// Calls without times come.
    #[inline]
    pub fn run(&mut self) -> Run<'_> {
        Run::new(self)
    }

    /// What the block has for them; from the first time on each block has.
    fn take_coding(&mut self) -> Box<Coding> {
        self.order.take().unwrap_or_else(|| {
            self.pack();
            Box::new(Coding::new())
        })
    }

    /// The calls of a run, which is over, happened then, the last one of them at `last_tsc`, as
    /// [`crate::Spread`] says.
    #[inline]
    pub fn end_run(&mut self, calls: u64, span: Span, last_tsc: u64) {
        if calls > 0
            && let Some(mut coding) = self.order.take()
        {
            self.put_span(&mut coding.spans, calls, span);
            self.last_tsc = self.last_tsc.max(last_tsc);
            self.order = Some(coding);
            self.pack_if_full();
        }
    }

    fn put_span(&mut self, spans: &mut Vec<u8>, calls: u64, span: Span) {
        let Span {
            from_tsc: from,
            to_tsc: to,
            moments,
            before,
        } = span;
        let last = self.last_tsc;
        let ahead = from.wrapping_sub(last) as i64;
        let after = moments.saturating_sub(before.saturating_add(calls));
        let is_part = before > 0 || after > 0;
        put_v(spans, calls << 1 | u64::from(is_part));
        put_v(spans, (ahead << 1 ^ ahead >> 63) as u64);
        put_v(spans, to - from);
        if is_part {
            put_v(spans, before);
            put_v(spans, after);
        }
        self.events += usize::from(last.max(from) < to);
        self.span = (from, to);
        self.is_span_due = true;
    }

    /// So many calls return at that time, and then this happens.
    pub(super) fn at(&mut self, tsc: u64, what: What, returned: usize, number: u32) {
        let Some(coding) = &mut self.order else {
            return;
        };
        let symbol = Symbol::new(what, returned, number);
        let is_foretold = coding.foretold.came(symbol);
        if coding.hits.len() == coding.symbols / WORD {
            coding.hits.push(0);
        }
        if let Some(word) = coding.hits.last_mut() {
            *word |= u64::from(is_foretold) << (coding.symbols % WORD);
        }
        coding.symbols += 1;
        if !is_foretold {
            self.operand(symbol.bits());
        }
        if symbol.is_many() {
            self.operand(returned as u64);
        }
        // Stamps of one thread can step back by a migration between processors; time cannot.
        let ticks = tsc.saturating_sub(self.last_tsc);
        self.last_tsc += ticks;
        self.times_length = put_time(&mut self.times, self.times_length, self.step, ticks);
        self.events += returned + usize::from(what != What::Exits);
    }

    /// A call begins at that time, or the running one goes on as `callee`.
    pub(super) fn call_at(&mut self, tsc: u64, callee: FunctionId, is_tail: bool) {
        self.may_tell_span();
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        let what = if is_tail { What::TailAt } else { What::CallAt };
        self.at(tsc, what, 0, function);
        self.calls_open += u32::from(!is_tail);
        self.mirror.go_on(0, &[Begun::new(callee, is_tail)]);
        self.pack_if_full();
    }

    /// A call returns at that time.
    pub(super) fn exit_at(&mut self, tsc: u64) {
        self.may_tell_span();
        self.at(tsc, What::Exits, 1, 0);
        self.calls_open = self.calls_open.saturating_sub(1);
        self.mirror.leave(1);
        self.pack_if_full();
    }

    pub(super) fn may_tell_span(&mut self) {
        if self.is_span_due {
            self.tell_span();
        }
    }

    /// Appends a number to the operands.
    pub(super) fn operand(&mut self, value: u64) {
        let end = self.operands_length + MAX_OPERAND_BYTES;
        if self.operands.len() < end {
            self.operands.resize(2 * end, 0);
        }
        let operands = &mut self.operands[self.operands_length..];
        self.operands_length += put_operand(operands, true, value);
    }

    /// A block is full at so many events, or if no other time may fit.
    pub(super) fn pack_if_full(&mut self) {
        let is_full =
            self.events >= BLOCK_EVENTS || self.times_length > TIMES_BYTES - MAX_TIME_BYTES;
        if is_full || self.operands_length > OPERANDS_BYTES {
            self.pack();
        }
    }
}
