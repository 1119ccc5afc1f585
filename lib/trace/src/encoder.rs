//! Makes the events of one stream compressed blocks.
//!
//! Two bits say what an event is, one to three bytes when it was, and nothing at all which
//! function it concerns, unless the prediction (see [`crate::mirror`]) fails. Three arrays are
//! filled side by side and packed every [`BLOCK_EVENTS`] events; packed blocks wait in the encoder
//! until the writer takes them, so no lock is held while events are encoded or compressed. What is
//! done for each event stands in [`burst`].

mod burst;
mod order;

use crate::error::TraceError;
use crate::foretell::What;
use crate::format::{MAX_RAW_BYTES, PACKED, SectionKind, WITHOUT_TIMES, put_section, put_v};
use crate::mirror::{FUNCTION_LIMIT, Frame, Mirror};
use crate::model::{Entry, FunctionId, StreamId};
use crate::step::{LONG_TIME, SHORT_TIMES, Step, TWO_BYTE_TIMES};

pub use burst::Burst;
pub use order::{Run, Span, Word};

/// Events after which a block is packed.
const BLOCK_EVENTS: usize = 32 << 10;
/// Operands that are long enough for a block, if there are values among them: all that may be
/// added until its end stays below [`MAX_RAW_BYTES`].
const OPERANDS_BYTES: usize = 384 << 10;
/// Longer values are left out.
const MAX_VALUES_BYTES: usize = 64 << 10;
/// Room for times; a power of two.
const TIMES_BYTES: usize = 128 << 10;
/// Longest time: marker and a 64-bit number.
const MAX_TIME_BYTES: usize = 11;

pub(crate) const KIND_EXIT: u64 = 0;
pub(crate) const KIND_PREDICTED: u64 = 1;
pub(crate) const KIND_NAMED: u64 = 2;
pub(crate) const KIND_OTHER: u64 = 3;

/// Operation bytes of [`KIND_OTHER`].
pub(crate) mod operation {
    pub const TAIL: u8 = 0;
    pub const TAIL_PREDICTED: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const CLOSE_OPEN: u8 = 3;
    pub const UNWOUND: u8 = 4;
    pub const RESUMED: u8 = 5;
    pub const LOST: u8 = 6;
    pub const BLOCKED: u8 = 7;
    pub const EARLIER: u8 = 8;
    pub const INHERITED: u8 = 9;
    pub const INHERITED_OPEN: u8 = 10;
    pub const OUTSIDE: u8 = 11;
    pub const VALUES: u8 = 12;
    pub const BETWEEN: u8 = 13;
}

/// Encodes the events of one stream, in the order in which they happened. A copy goes on by itself.
#[derive(Clone)]
pub struct StreamEncoder {
    stream: StreamId,
    mirror: Mirror,
    calls_open: u32,
    packed_events: u64,
    last_tsc: u64,
    first_tsc: u64,
    step: Step,
    opening: Opening,
    /// Between which times what comes was recorded without its own.
    span: (u64, u64),
    /// The block does not say so yet.
    is_span_due: bool,
    events: usize,
    kinds: Box<[u64; BLOCK_EVENTS / 32]>,
    times: Box<[u8; TIMES_BYTES]>,
    times_length: usize,
    /// Longer than what is in use.
    operands: Vec<u8>,
    operands_length: usize,
    raw: Vec<u8>,
    packed: Vec<u8>,
    sections: Vec<u8>,
    /// What a block has where calls have no times of their own.
    order: Option<Box<order::Coding>>,
}

/// Blocks that wait for being written.
pub(crate) struct Packed<'a> {
    /// The step that the times are counted in from here on.
    pub step: Step,
    /// The blocks; whoever takes them empties this.
    pub sections: &'a mut Vec<u8>,
    /// Events in them; as above.
    pub events: &'a mut u64,
}

/// The stack at the start of a block.
#[derive(Clone, Default)]
struct Opening {
    hidden: usize,
    carried: Vec<Frame>,
}

impl StreamEncoder {
    pub(crate) fn new(stream: StreamId, start_tsc: u64, step: Step) -> Self {
        Self {
            stream,
            mirror: Mirror::new(Vec::new()),
            calls_open: 0,
            packed_events: 0,
            last_tsc: start_tsc,
            first_tsc: start_tsc,
            step,
            opening: Opening::default(),
            span: (0, 0),
            is_span_due: false,
            events: 0,
            kinds: Box::new([0; BLOCK_EVENTS / 32]),
            times: Box::new([0; TIMES_BYTES]),
            times_length: 0,
            operands: Vec::new(),
            operands_length: 0,
            raw: Vec::new(),
            packed: Vec::new(),
            sections: Vec::new(),
            order: None,
        }
    }

    /// The stream whose events these are.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// For several events in a row.
    #[inline]
    pub fn burst(&mut self) -> Burst<'_> {
        if self.is_span_due {
            self.tell_span();
        }
        Burst::new(self)
    }

    /// What comes next happened between these two times, and nobody knows when exactly, as far as
    /// its times are earlier than the later one: they are estimates then.
    pub fn between(&mut self, from_tsc: u64, to_tsc: u64) {
        self.span = (from_tsc, to_tsc);
        self.is_span_due = true;
    }

    /// Says so in the block that is being filled.
    #[cold]
    #[inline(never)]
    fn tell_span(&mut self) {
        self.is_span_due = false;
        let (from, to) = self.span;
        if self.is_in_order() {
            let now = self.last_tsc.max(from);
            if now < to {
                self.at(now, What::Other, 0, u32::from(operation::BETWEEN));
                self.operand(now - from);
                self.operand(to - now);
            }
            return;
        }
        let mut burst = self.burst();
        burst.span(from, to);
        burst.finish();
    }

    /// A call begins.
    pub fn enter(&mut self, tsc: u64, callee: FunctionId) {
        if self.is_in_order() {
            return self.call_at(tsc, callee, false);
        }
        let mut burst = self.burst();
        burst.enter(tsc, callee);
        burst.finish();
    }

    /// A call begins whose exit will not be seen. The frame ends with the call frame below it, or
    /// earlier by [`Self::close_open`].
    pub fn enter_open(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.mirror.enter(function, Entry::Open);
        self.other(tsc, operation::OPEN, u64::from(function));
    }

    /// A call that began before the recording, inside those named so before. Ends like one of
    /// [`Self::enter_open`].
    pub fn enter_earlier(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.mirror.enter(function, Entry::Earlier);
        self.other(tsc, operation::EARLIER, u64::from(function));
    }

    /// A call that began before the process was forked, or before the thread was attached to,
    /// inside those named so before, and that ends like one of [`Self::enter`]. Before all other
    /// events.
    pub fn inherit(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.mirror.enter(function, Entry::Call);
        self.calls_open += 1;
        self.other(tsc, operation::INHERITED, u64::from(function));
    }

    /// The same, and it ends like one of [`Self::enter_open`].
    pub fn inherit_open(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.mirror.enter(function, Entry::Open);
        self.other(tsc, operation::INHERITED_OPEN, u64::from(function));
    }

    /// The running function jumps to `callee`, which ends together with it.
    pub fn tail(&mut self, tsc: u64, callee: FunctionId) {
        if self.is_in_order() {
            return self.call_at(tsc, callee, true);
        }
        let mut burst = self.burst();
        burst.tail(tsc, callee);
        burst.finish();
    }

    /// The innermost frame opened by [`Self::enter`] ends, with all tails and open ones above it.
    /// With no such frame it is the end of one that was opened before the trace.
    pub fn exit(&mut self, tsc: u64) {
        if self.is_in_order() {
            return self.exit_at(tsc);
        }
        let mut burst = self.burst();
        burst.exit(tsc);
        burst.finish();
    }

    /// The innermost `frames` open frames have ended: an event of the function below them was
    /// seen (its call site tells), or their own ends could not be.
    pub fn close_open(&mut self, tsc: u64, frames: u32) {
        let frames = self.mirror.closed(frames);
        self.close(tsc, frames);
    }

    /// The same, counting the frames that are kept of a long row.
    fn close(&mut self, tsc: u64, frames: u32) {
        let calls = self.mirror.close_open(frames);
        self.calls_open = self.calls_open.saturating_sub(calls);
        self.other(tsc, operation::CLOSE_OPEN, u64::from(frames));
    }

    /// The innermost `frames` of [`Self::enter_earlier`] have ended, with what was opened above
    /// them since.
    pub fn close_earlier(&mut self, tsc: u64, frames: u32) {
        let open = self.open_since_earlier();
        self.close(tsc, open.saturating_add(frames));
    }

    /// What comes next is called by `caller`, as far as that is known. Entry-only frames at the top
    /// that do not run it leave the view.
    pub fn called_by(&mut self, tsc: u64, caller: Option<FunctionId>) {
        let frames = self.mirror.leave_view(caller);
        if frames > 0 {
            self.other(tsc, operation::OUTSIDE, u64::from(frames));
        }
    }

    /// Is an entry-only frame open? Who calls what comes next is to be told then
    /// ([`Self::called_by`]).
    #[inline]
    pub fn has_open(&self) -> bool {
        self.mirror.open_frames() > 0
    }

    /// Open frames that [`Self::enter_open`] opened, whose ends may not be told.
    #[inline]
    pub fn open_frames(&self) -> u32 {
        self.mirror.open_frames() as u32
    }

    /// The recording of what is open ends at `tsc`; nothing follows.
    pub fn close_all(&mut self, tsc: u64) {
        let frames = self.mirror.frames().iter();
        let frames = frames.filter(|frame| frame.entry() != Entry::Tail).count();
        if frames > 0 {
            self.close(tsc.max(self.last_tsc), frames as u32);
            self.calls_open = 0;
        }
    }

    /// Frames of [`Self::enter_open`] above the innermost of [`Self::enter_earlier`].
    pub fn open_since_earlier(&self) -> u32 {
        let above = self.mirror.frames().iter().rev();
        let above = above.take_while(|frame| frame.entry() != Entry::Earlier);
        above.filter(|frame| frame.entry() == Entry::Open).count() as u32
    }

    /// `frames` frames opened by [`Self::enter`] are gone without an exit (longjmp, throw).
    pub fn unwound(&mut self, tsc: u64, frames: u32) {
        let frames = frames.min(self.calls_open);
        self.calls_open -= frames;
        self.mirror.unwind(frames);
        self.other(tsc, operation::UNWOUND, u64::from(frames));
    }

    /// A call returned again (setjmp, vfork in the parent): no frame ends.
    pub fn resumed(&mut self, tsc: u64, callee: FunctionId) {
        let function = callee.0.min(FUNCTION_LIMIT - 1);
        self.other(tsc, operation::RESUMED, u64::from(function));
    }

    /// `events` events are missing here.
    pub fn lost(&mut self, tsc: u64, events: u64) {
        self.other(tsc, operation::LOST, events);
    }

    /// The thread waited `ticks` for sptrace, until `tsc`.
    pub fn blocked(&mut self, tsc: u64, ticks: u64) {
        self.other(tsc, operation::BLOCKED, ticks);
    }

    /// What the call that has just begun, or ends next, brought with it: [`crate::values`].
    pub fn values(&mut self, tsc: u64, bytes: &[u8]) {
        if bytes.len() > MAX_VALUES_BYTES {
            return self.lost(tsc, 1);
        }
        // They must come into the block of their event; a span before them is an event, too.
        self.may_tell_span();
        let is_last = self.events + 1 >= BLOCK_EVENTS
            || self.times_length + 2 * MAX_TIME_BYTES > TIMES_BYTES
            || self.operands_length + bytes.len() > OPERANDS_BYTES;
        if is_last {
            self.pack();
        }
        self.other(tsc, operation::VALUES, bytes.len() as u64);
        let end = self.operands_length + bytes.len();
        if self.operands.len() < end {
            self.operands.resize(2 * end, 0);
        }
        self.operands[self.operands_length..end].copy_from_slice(bytes);
        self.operands_length = end;
    }

    /// Open frames that [`Self::enter`] opened.
    pub fn depth(&self) -> u32 {
        self.calls_open
    }

    /// Events that wait for being packed.
    pub fn len_events(&self) -> usize {
        self.events
    }

    /// What was told since it was written last is not wanted in the trace. What is open stays so.
    pub fn discard(&mut self) {
        self.sections.clear();
        self.packed_events = 0;
        if self.events > 0 {
            self.begin_block();
        }
    }

    /// At least one block is packed and waits for [`crate::TraceWriter::write_full`]. Nothing is
    /// lost if that comes late, the blocks only take memory.
    pub fn is_full(&self) -> bool {
        !self.sections.is_empty()
    }

    fn other(&mut self, tsc: u64, operation: u8, field: u64) {
        if self.is_in_order() {
            self.may_tell_span();
            self.at(tsc, What::Other, 0, u32::from(operation));
            self.operand(field);
            return self.pack_if_full();
        }
        let mut burst = self.burst();
        burst.other(tsc, operation, field);
        burst.finish();
    }

    /// Takes the blocks that are packed.
    pub(crate) fn take_full(&mut self) -> Packed<'_> {
        Packed {
            step: self.step,
            sections: &mut self.sections,
            events: &mut self.packed_events,
        }
    }

    /// Takes what was packed, after packing the rest.
    pub(crate) fn take_sections(&mut self) -> Packed<'_> {
        self.pack();
        self.take_full()
    }

    #[cold]
    #[inline(never)]
    fn pack(&mut self) {
        if self.events == 0 {
            return;
        }
        self.fill_raw();
        let bound = lz4_flex::block::get_maximum_output_size(self.raw.len());
        self.packed.resize(bound, 0);
        let packed = lz4_flex::block::compress_into(&self.raw, &mut self.packed).unwrap_or(bound);
        let is_packed = packed < self.raw.len();
        let body = if is_packed {
            &self.packed[..packed]
        } else {
            &self.raw[..]
        };

        let mut payload = Vec::with_capacity(body.len() + 40);
        put_v(&mut payload, u64::from(self.stream.0));
        put_v(&mut payload, self.first_tsc);
        put_v(&mut payload, self.last_tsc - self.first_tsc);
        put_v(&mut payload, self.events as u64);
        put_v(&mut payload, self.step.ticks());
        let mut packing = if is_packed { PACKED } else { 0 };
        packing |= if self.order.is_some() {
            WITHOUT_TIMES
        } else {
            0
        };
        payload.push(packing);
        put_v(&mut payload, self.raw.len() as u64);
        payload.extend_from_slice(body);
        put_section(&mut self.sections, SectionKind::Block, &payload);
        self.packed_events += self.events as u64;
        self.step = self.step.improved(&self.times[..self.times_length]);
        self.begin_block();
    }

    fn fill_raw(&mut self) {
        let raw = &mut self.raw;
        raw.clear();
        put_v(raw, self.opening.hidden as u64);
        put_v(raw, self.opening.carried.len() as u64);
        for frame in &self.opening.carried {
            put_v(raw, u64::from(frame.0));
        }
        let times = &self.times[..self.times_length];
        let operands = &self.operands[..self.operands_length];
        if let Some(coding) = &self.order {
            return coding.fill(raw, times, operands);
        }
        put_v(raw, times.len() as u64);
        put_v(raw, operands.len() as u64);
        for word in &self.kinds[..self.events.div_ceil(32)] {
            raw.extend_from_slice(&word.to_le_bytes());
        }
        raw.extend_from_slice(times);
        raw.extend_from_slice(operands);
        debug_assert!(raw.len() <= MAX_RAW_BYTES);
    }

    fn begin_block(&mut self) {
        let hidden = self.mirror.hidden();
        self.opening.hidden = hidden;
        self.opening.carried.clear();
        self.opening
            .carried
            .extend_from_slice(&self.mirror.frames()[hidden..]);
        self.mirror.begin_block(hidden);
        self.first_tsc = self.last_tsc;
        match &mut self.order {
            Some(coding) => coding.begin_block(),
            None => self.kinds[..self.events.div_ceil(32)].fill(0),
        }
        self.events = 0;
        self.times_length = 0;
        self.operands_length = 0;
        self.is_span_due = true;
    }
}

/// Checks that a function id can be encoded.
pub(crate) fn check_function(id: u32) -> Result<(), TraceError> {
    if id >= FUNCTION_LIMIT {
        return Err(TraceError::TooMany("functions"));
    }
    Ok(())
}
