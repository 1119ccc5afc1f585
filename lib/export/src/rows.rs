//! One row a call: what the formats share that write each call when it has ended.
//!
//! [`Rows`] keeps the calls that run, one stack a thread, and tells a [`RowSink`] of each call that
//! ended: where and when it ran and who called it. What runs when the limit is reached is told as
//! calls whose end was not seen. Knows nothing of any format.

use crate::output::Output;
use crate::{Context, Exporter, Written, words};
use rustc_hash::FxHashMap as HashMap;
use sptrace_render::call_values::{Begun, Descriptions, Line, Told};
use sptrace_trace::values::Values;
use sptrace_trace::{Frame, FunctionId, StreamId, StreamInfo, StreamTotals, Visitor, call_words};
use std::io::{self, Write};

/// A call that ended.
pub struct Row<'r> {
    /// Its thread.
    pub thread: &'r StreamInfo,
    /// What ran.
    pub function: FunctionId,
    /// The function directly below.
    pub caller: Option<FunctionId>,
    /// When it began, since the start of the trace.
    pub start_ns: u64,
    /// When it left the thread's stack, at the latest.
    pub end_ns: u64,
    /// How long it ran, without waiting for sptrace; not known if its end was not seen.
    pub duration_ns: Option<u64>,
    /// The part of it outside of what it called.
    pub self_ns: Option<u64>,
    /// Of a duration that was not measured: what it is at least and at most.
    pub bounds_ns: Option<[u64; 2]>,
    /// Calls below it.
    pub depth: u32,
    /// The call with what it brought, and what it gave, if that was recorded.
    pub line: Option<Line>,
    /// How it began, in a word.
    pub begin_word: &'static str,
    /// How it ended, in a word.
    pub end_word: &'static str,
}

/// What lines of the source a row has, where they are asked for: where the function begins, and
/// where its caller calls it. What is not known is not there.
pub struct RowSource {
    /// Of the function.
    pub function: Option<String>,
    /// Of the call; several, where the caller calls it at several places.
    pub call: Option<String>,
}

impl RowSource {
    /// Of a row; `None`: lines are not asked for.
    pub fn of(cx: &Context<'_>, row: &Row<'_>) -> Option<Self> {
        let names = cx.names;
        if !names.has_sources() {
            return None;
        }
        let places = row
            .caller
            .map_or(&[][..], |caller| names.call_places(caller, row.function));
        let call = call_words(places, ToString::to_string);
        Some(Self {
            function: names.source(row.function).map(ToString::to_string),
            call: Some(call).filter(|call| !call.is_empty()),
        })
    }
}

/// A format with a row for each call.
pub trait RowSink {
    /// What comes before all rows.
    fn begin<W: Write>(&mut self, cx: &Context<'_>, out: &mut Output<W>) {
        let _ = (cx, out);
    }
    /// A thread has its first row next.
    fn thread<W: Write>(&mut self, cx: &Context<'_>, info: &StreamInfo, out: &mut Output<W>) {
        let _ = (cx, info, out);
    }
    /// A call.
    fn row<W: Write>(&mut self, cx: &Context<'_>, row: &Row<'_>, out: &mut Output<W>);
    /// What comes after all rows.
    fn end<W: Write>(&mut self, cx: &Context<'_>, out: &mut Output<W>) {
        let _ = (cx, out);
    }
}

#[derive(Default)]
struct Stack {
    frames: Vec<(Frame, Option<Begun>)>,
    last_tsc: u64,
    is_named: bool,
}

/// Makes rows of what a replay tells.
pub struct Rows<'a, S, W> {
    cx: &'a Context<'a>,
    sink: S,
    out: Output<W>,
    stacks: HashMap<StreamId, Stack>,
    /// A stream that the trace does not name.
    nameless: StreamInfo,
    descriptions: Descriptions,
    rows: u64,
    is_cut: bool,
}

impl<'a, S: RowSink, W: Write> Rows<'a, S, W> {
    /// Rows for `sink`.
    pub fn new(cx: &'a Context<'a>, mut sink: S, out: W) -> Self {
        let mut out = Output::new(out);
        sink.begin(cx, &mut out);
        Self {
            cx,
            sink,
            out,
            stacks: HashMap::default(),
            nameless: StreamInfo::default(),
            descriptions: Descriptions::of(cx.names.dictionary()),
            rows: 0,
            is_cut: false,
        }
    }

    fn tell(
        &mut self,
        stream: StreamId,
        (frame, values): (&Frame, Option<Begun>),
        caller: Option<FunctionId>,
    ) {
        let clock = self.cx.clock;
        let thread = self.cx.names.dictionary().stream(stream);
        let thread = thread.unwrap_or(&self.nameless);
        let row = Row {
            thread,
            function: frame.function,
            caller,
            start_ns: clock.since_start_ns(frame.start_tsc),
            end_ns: clock.since_start_ns(frame.end_tsc),
            duration_ns: frame.total_ticks.map(|ticks| clock.ns(ticks)),
            self_ns: frame.self_ticks.map(|ticks| clock.ns(ticks)),
            bounds_ns: frame
                .estimate
                .filter(|_| frame.total_ticks.is_none())
                .map(|e| [e.least_ticks, e.most_ticks].map(|ticks| clock.ns(ticks))),
            depth: frame.depth,
            line: self
                .descriptions
                .line_of(values.as_ref(), self.cx.names.name(frame.function)),
            begin_word: words::begin(frame),
            end_word: words::end(frame),
        };
        self.sink.row(self.cx, &row, &mut self.out);
        self.out.pass();
        self.rows += 1;
    }

    /// Calls that run when the limit is reached: without an end.
    fn cut(&mut self) {
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        stacks.sort_by_key(|(id, _)| *id);
        for (id, mut stack) in stacks {
            while let Some((mut frame, values)) = stack.frames.pop() {
                frame.end_tsc = stack.last_tsc;
                frame.flags.end_unseen = true;
                let caller = stack.frames.last().map(|(frame, _)| frame.function);
                self.tell(id, (&frame, values), caller);
            }
        }
    }
}

impl<S: RowSink, W: Write> Visitor for Rows<'_, S, W> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if self.is_finished() {
            return;
        }
        let stack = self.stacks.entry(stream).or_default();
        stack.last_tsc = stack.last_tsc.max(frame.start_tsc);
        if !stack.is_named {
            stack.is_named = true;
            let info = self.cx.names.dictionary().stream(stream);
            let info = info.unwrap_or(&self.nameless);
            self.sink.thread(self.cx, info, &mut self.out);
        }
        stack.frames.push((*frame, None));
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.is_cut |= self.cx.is_enough(self.rows, self.out.bytes_so_far());
        if self.is_finished() {
            return;
        }
        let Some(stack) = self.stacks.get_mut(&stream) else {
            return;
        };
        let values = stack.frames.pop().and_then(|(_, values)| values);
        stack.last_tsc = stack.last_tsc.max(frame.end_tsc);
        let caller = stack.frames.last().map(|(frame, _)| frame.function);
        self.tell(stream, (frame, values), caller);
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        if !self.is_finished() {
            self.stacks.get_mut(&stream).map(|stack| stack.frames.pop());
        }
    }

    fn values(&mut self, stream: StreamId, _: u64, bytes: &[u8]) {
        let (Ok(values), Some(stack)) = (Values::read(bytes), self.stacks.get_mut(&stream)) else {
            return;
        };
        let mut kept = stack.frames.iter_mut().rev().map(|(_, values)| values);
        Told::of_any(&values)
            .into_iter()
            .for_each(|told| told.put(&mut kept));
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.stacks.remove(&stream);
    }

    fn is_finished(&self) -> bool {
        self.is_cut || self.out.is_closed()
    }
}

impl<S: RowSink, W: Write> Exporter for Rows<'_, S, W> {
    fn finish(mut self) -> io::Result<Written> {
        if self.is_cut {
            self.cut();
        }
        self.sink.end(self.cx, &mut self.out);
        let bytes = self.out.bytes_so_far();
        self.out.finish()?;
        Ok(Written {
            calls: self.rows,
            is_cut: self.is_cut,
            bytes,
            ..Written::default()
        })
    }
}

/// Text that a format writes for each function, made when first asked for.
pub struct Labels {
    made: Vec<Option<Box<[u8]>>>,
    make: fn(module: &str, name: &str) -> String,
}

impl Labels {
    /// Texts by `make`.
    pub fn new(make: fn(module: &str, name: &str) -> String) -> Self {
        let made = Vec::new();
        Self { made, make }
    }

    /// The text of a function.
    pub fn get(&mut self, cx: &Context<'_>, id: FunctionId) -> &[u8] {
        let index = id.0 as usize;
        if index >= self.made.len() {
            self.made.resize(index + 1, None);
        }
        let (make, names) = (self.make, cx.names);
        self.made[index].get_or_insert_with(|| {
            let text = make(names.module(id), names.name(id));
            text.into_bytes().into_boxed_slice()
        })
    }
}
