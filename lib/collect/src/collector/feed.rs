//! From the events of a thread to the trace, past all who watch them.
//!
//! A [`Recorder`] holds what all threads share: the trace's writer, the events that concern calls,
//! shadow mode, and when the recording ends. A [`Lane`] holds what is one thread's. Both together
//! are the [`Sink`] of what is decoded. Before a recording's start only the stack is kept
//! (`feed/shadow.rs`, `feed/line.rs`). Must not know records, addresses and processes.

mod deep;
mod durations;
mod line;
mod shadow;

use std::collections::HashMap;
use std::io::{Error, Write};

use sptrace_trace::{
    Function, FunctionId, Module, ModuleId, Run, Span, StreamInfo, TraceError, TraceWriter,
    lane_name, lane_tid,
};

use crate::decode::module::{PLACE_ENTRY, PLACE_OPEN, PLACE_TAIL};
use crate::decode::names::Naming;
use crate::decode::sink::{Inherited, Plain, Sink};
use crate::event::calls::{Calls, Watched};
use crate::tally::Tally;
use crate::tap::{Told, Waiting};
use deep::Deep;
use durations::Durations;
use line::Line;
use shadow::Shadow;

/// What all threads are recorded with.
pub(super) struct Recorder<W: Write> {
    pub(super) writer: TraceWriter<W>,
    pub(super) calls: Option<Calls>,
    pub(super) shadow: Option<Shadow>,
    /// Who is called how often, if that matters.
    pub(super) tally: Option<Tally>,
    /// Who is told at once.
    pub(super) tapped: Option<Waiting>,
    /// What happened later is left out.
    pub(super) until_tsc: u64,
    /// Calls with so many others around them are left out; 0: none.
    pub(super) depth_limit: u32,
    /// Calls are counted, and nothing is recorded: what is encoded is not written.
    pub(super) counts: bool,
    /// The first error of the output, if any: recording ends then.
    pub(super) failed: Option<Error>,
}

/// What is recorded of one thread.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) ppid: u32,
    pub(super) line: Line,
    pub(super) watched: Watched,
    /// What is too deep, if something can be.
    deep: Option<Deep>,
    /// How long its calls last, if that matters.
    durations: Durations,
    /// How often who has called whom, where calls are counted.
    pub(super) counted: HashMap<Pair, u64>,
    /// So often edges had been counted in cells when those of [`Self::counted`] were told of them.
    pub(super) named: HashMap<u64, u64>,
    /// Of a stream of lanes: what the trace says of the one that came last.
    pub(super) of_lanes: Option<Box<StreamInfo>>,
}

/// Who calls whom.
pub(super) type Pair = (Option<FunctionId>, FunctionId);

impl Lane {
    /// Nothing is recorded yet of the thread with these numbers, whose parent is `ppid`.
    pub(super) fn new((pid, tid, ppid): (u32, u32, u32), line: Line, depth_limit: u32) -> Self {
        Self {
            pid,
            tid,
            ppid,
            line,
            watched: Watched::default(),
            deep: (depth_limit > 0).then(|| Deep::new(depth_limit)),
            durations: Durations::default(),
            counted: HashMap::new(),
            named: HashMap::new(),
            of_lanes: None,
        }
    }
}

/// One thread's events on their way to the trace.
pub(super) struct Feed<'a, W: Write> {
    pub(super) recorder: &'a mut Recorder<W>,
    pub(super) lane: &'a mut Lane,
}

impl<W: Write> Recorder<W> {
    pub(super) fn new(writer: TraceWriter<W>) -> Self {
        Self {
            writer,
            calls: None,
            shadow: None,
            tally: None,
            tapped: None,
            until_tsc: u64::MAX,
            depth_limit: 0,
            counts: false,
            failed: None,
        }
    }

    /// Keeps the first error of the output.
    pub(super) fn check(&mut self, result: Result<(), TraceError>) {
        if let (Err(error), None) = (result, &self.failed) {
            self.failed = Some(Error::other(error));
        }
    }

    /// What is in the encoder goes into the file, however little that is.
    pub(super) fn write_block(&mut self, lane: &mut Lane) {
        if self.counts {
            return lane.line.encoder.discard();
        }
        let written = self.writer.write_block(&mut lane.line.encoder);
        self.check(written);
    }

    /// The same once that is worth a block.
    pub(super) fn write_if_full(&mut self, lane: &mut Lane) {
        if self.counts {
            return lane.line.encoder.discard();
        }
        if lane.line.encoder.is_full() {
            let written = self.writer.write_full(&mut lane.line.encoder);
            self.check(written);
        }
    }
}

impl<W: Write> Naming for Feed<'_, W> {
    fn module(&mut self, module: &Module) -> ModuleId {
        self.recorder.writer.module(module).unwrap_or(ModuleId(0))
    }

    fn function(&mut self, function: &Function) -> FunctionId {
        let number = self.recorder.writer.function(function);
        number.unwrap_or(FunctionId(0))
    }

    fn description(&mut self, text: &str) -> u32 {
        self.recorder.writer.description(text).unwrap_or(0)
    }
}

impl<W: Write> Sink for Feed<'_, W> {
    #[inline]
    fn come_to(&mut self, tsc: u64, events: u64) -> bool {
        if tsc > self.recorder.until_tsc {
            return false;
        }
        self.recorder.come_to(self.lane, tsc, events);
        true
    }

    fn enter(
        &mut self,
        tsc: u64,
        kind: u8,
        callee: FunctionId,
        caller: impl FnOnce(bool) -> Option<FunctionId>,
    ) {
        let Self { recorder, lane } = self;
        if let Some(deep) = &mut lane.deep
            && !deep.enters(kind, lane.line.height())
        {
            return;
        }
        if let Some(calls) = &mut recorder.calls {
            let is_call = kind & (PLACE_TAIL | PLACE_OPEN) == 0;
            let (class, depth) = (recorder.writer.class(callee), lane.line.depth());
            let depth = depth + u32::from(is_call);
            calls.enter(&mut lane.watched, class, depth, tsc, lane.pid);
            recorder.may_begin(lane);
        }
        if let Some(tally) = &mut recorder.tally {
            tally.come_to(tsc, tsc);
            tally.add(callee);
            if tally.measures() {
                lane.durations.enter(tsc, callee, kind & PLACE_TAIL != 0);
            }
        }
        let is_open = kind & PLACE_OPEN != 0;
        if recorder.counts {
            *lane.counted.entry((caller(false), callee)).or_default() += 1;
        } else if is_open || lane.line.has_open() {
            lane.line.called_by(tsc, caller(is_open));
        }
        lane.line.enter(tsc, kind, callee);
    }

    fn enter_kernel(&mut self, tsc: u64, callee: FunctionId) {
        // It is told at any depth.
        let mut deep = self.lane.deep.take();
        deep.iter_mut().for_each(Deep::enters_kernel);
        self.enter(tsc, PLACE_ENTRY, callee, |_| None);
        self.lane.deep = deep;
    }

    fn exit(&mut self, tsc: u64) {
        let Self { recorder, lane } = self;
        if lane.deep.as_mut().is_some_and(|deep| !deep.exits()) {
            return;
        }
        if let Some(calls) = &mut recorder.calls {
            calls.exit(&mut lane.watched, lane.line.depth(), tsc, lane.pid);
            recorder.may_begin(lane);
        }
        if let Some(tally) = recorder.tally.as_mut().filter(|tally| tally.measures()) {
            lane.durations
                .exit(tsc, |function, ticks| tally.lasted(function, ticks));
        }
        let found = lane.line.found_open();
        lane.line.exit(tsc);
        if !found.is_empty() {
            recorder.found_returned(lane, tsc, &found);
        }
    }

    fn unwound(&mut self, tsc: u64, mut frames: u32) {
        if let Some(deep) = &mut self.lane.deep {
            frames = deep.leaves(frames);
            if frames == 0 {
                return;
            }
        }
        self.lane.durations.forget();
        self.lane.line.unwound(tsc, frames);
        self.lane.watched.unwound(self.lane.line.depth());
    }

    fn closed(&mut self, tsc: u64, mut frames: u32) {
        if let Some(deep) = &mut self.lane.deep {
            frames = deep.closes(frames);
            if frames == 0 {
                return;
            }
        }
        let found = self.lane.line.found_open();
        self.lane.durations.forget();
        self.lane.line.close_open(tsc, frames);
        self.recorder.found_returned(self.lane, tsc, &found);
    }

    fn resumed(&mut self, tsc: u64, callee: FunctionId) {
        self.lane.durations.forget();
        if self.lane.deep.as_ref().is_some_and(|deep| !deep.is_empty()) {
            return;
        }
        if let Some(encoder) = self.lane.line.recording() {
            encoder.resumed(tsc, callee);
        }
    }

    fn lost(&mut self, tsc: u64, events: u64) {
        self.lane.durations.forget();
        if let Some(encoder) = self.lane.line.recording() {
            encoder.lost(tsc, events);
        }
    }

    fn values(&mut self, tsc: u64, bytes: &[u8]) {
        if let Some(encoder) = self.lane.line.recording() {
            encoder.values(tsc, bytes);
            if let Some(tapped) = &mut self.recorder.tapped {
                tapped.push(Told::Values {
                    pid: self.lane.pid,
                    tid: self.lane.tid,
                    ppid: self.lane.ppid,
                    tsc,
                    bytes: bytes.to_vec(),
                });
            }
        }
    }

    fn blocked(&mut self, tsc: u64, ticks: u64) {
        self.lane.watched.blocked(ticks);
        if let Some(encoder) = self.lane.line.recording() {
            encoder.blocked(tsc, ticks);
        }
    }

    fn inherited(&mut self, tsc: u64, how: Inherited, callee: FunctionId) {
        let line = &mut self.lane.line;
        match how {
            Inherited::Found => line.enter_earlier(tsc, callee),
            Inherited::FoundCall => line.enter_found(tsc, callee),
            Inherited::Open => line.inherit(tsc, PLACE_OPEN, callee),
            Inherited::Call => line.inherit(tsc, PLACE_ENTRY, callee),
        }
    }

    fn between(&mut self, from_tsc: u64, to_tsc: u64) {
        if let Some(encoder) = self.lane.line.recording() {
            encoder.between(from_tsc, to_tsc);
        }
    }

    fn lane(&mut self, tsc: u64, number: u64) {
        let Self { recorder, lane } = self;
        let Some(mut info) = lane.of_lanes.take() else {
            return;
        };
        recorder.begin_line(lane);
        recorder.write_block(lane);
        info.comm = lane_name(number);
        info.tid = lane_tid(number);
        lane.tid = info.tid;
        info.start_tsc = tsc;
        if let Some(line) = recorder.new_line((*info).clone()) {
            lane.line = line;
            lane.watched = Watched::default();
            lane.durations = Durations::default();
            lane.deep = (recorder.depth_limit > 0).then(|| Deep::new(recorder.depth_limit));
        }
        lane.of_lanes = Some(info);
    }

    fn leaves_out(&self) -> bool {
        self.lane.deep.as_ref().is_some_and(Deep::leaves_out)
    }

    fn counts(&self) -> bool {
        self.recorder.counts
    }

    /// Not if the end of an open call is waited for, if calls may be too deep, if there is an end
    /// in time, if calls of before the start are open, or if callers must be looked at because the
    /// end of an open call is not recorded, or calls are counted.
    #[inline]
    fn takes_rows(&self) -> bool {
        let line = &self.lane.line;
        let is_waited_for = !self.lane.watched.is_empty() || self.recorder.until_tsc != u64::MAX;
        !is_waited_for
            && !self.recorder.counts
            && self.lane.deep.is_none()
            && line.is_plain()
            && !line.has_open()
    }

    #[inline]
    fn takes_runs(&self) -> bool {
        self.recorder.tally.is_none() && self.takes_rows()
    }

    #[inline]
    fn run(&mut self) -> Option<(Run<'_>, &[u64])> {
        let classes = match self.recorder.calls {
            Some(_) => self.recorder.writer.classes(),
            None => &[],
        };
        Some((self.lane.line.encoder.run(), classes))
    }

    #[inline]
    fn end_run(&mut self, calls: u64, span: Span, last_tsc: u64) {
        self.lane.line.encoder.end_run(calls, span, last_tsc);
    }

    #[inline(never)]
    fn row(&mut self, high: u64, mut events: &[Plain], spans: &[(u64, u64)]) {
        let high = high << 32;
        if self.recorder.calls.is_some() && self.has_watched(events) {
            return self.row_by_one(high, events, spans);
        }
        if let (Some(tally), [first, .., last]) = (&mut self.recorder.tally, events) {
            tally.come_to(high | u64::from(first.stamp), high | u64::from(last.stamp));
            let called = events.iter().filter_map(|event| event.place.callee());
            called.for_each(|callee| tally.add(callee));
            if tally.measures() {
                measure(tally, &mut self.lane.durations, high, events);
            }
        }
        if self.lane.line.encoder.is_in_order() {
            return self.row_in_order(high, events, spans);
        }
        while !events.is_empty() {
            let mut burst = self.lane.line.encoder.burst();
            let (now, later) = events.split_at(burst.room().min(events.len()));
            for event in now {
                let tsc = high | u64::from(event.stamp);
                match event.place.callee() {
                    Some(callee) if event.place.is_tail() => burst.tail(tsc, callee),
                    Some(callee) => burst.enter(tsc, callee),
                    None => match event.place.as_span().and_then(|span| spans.get(span)) {
                        None => burst.exit(tsc),
                        Some((from, to)) => burst.span(*from, *to),
                    },
                }
            }
            burst.finish();
            events = later;
        }
    }
}

impl<W: Write> Feed<'_, W> {
    /// Is a call among these watched, or the end of an open one waited for?
    fn has_watched(&self, events: &[Plain]) -> bool {
        let mut called = events.iter().filter_map(|event| event.place.callee());
        !self.lane.watched.is_empty()
            || called.any(|callee| self.recorder.writer.class(callee) != 0)
    }

    /// What would be told without a row, as something in it is watched.
    #[cold]
    fn row_by_one(&mut self, high: u64, events: &[Plain], spans: &[(u64, u64)]) {
        for event in events {
            let (tsc, place) = (high | u64::from(event.stamp), event.place);
            let span = place.as_span();
            if !self.come_to(tsc, u64::from(span.is_none())) {
                return;
            }
            match (place.callee(), span.and_then(|span| spans.get(span))) {
                (Some(callee), _) => {
                    let tail = if place.is_tail() { PLACE_TAIL } else { 0 };
                    self.enter(tsc, PLACE_ENTRY | tail, callee, |_| None);
                }
                (None, Some((from, to))) => self.between(*from, *to),
                (None, None) if span.is_none() => self.exit(tsc),
                (None, None) => {}
            }
        }
    }

    /// The same, where blocks are those of calls without times.
    fn row_in_order(&mut self, high: u64, events: &[Plain], spans: &[(u64, u64)]) {
        let encoder = &mut self.lane.line.encoder;
        for event in events {
            let (tsc, place) = (high | u64::from(event.stamp), event.place);
            match (place.callee(), place.as_span()) {
                (Some(callee), _) if place.is_tail() => encoder.tail(tsc, callee),
                (Some(callee), _) => encoder.enter(tsc, callee),
                (None, None) => encoder.exit(tsc),
                (None, Some(span)) => {
                    if let Some((from, to)) = spans.get(span) {
                        encoder.between(*from, *to);
                    }
                }
            }
        }
    }
}

/// How long the calls in a row last.
fn measure(tally: &mut Tally, durations: &mut Durations, high: u64, events: &[Plain]) {
    for event in events {
        let (tsc, place) = (high | u64::from(event.stamp), event.place);
        match place.callee() {
            Some(callee) => durations.enter(tsc, callee, place.is_tail()),
            None if place.as_span().is_none() => {
                durations.exit(tsc, |function, ticks| tally.lasted(function, ticks));
            }
            None => {}
        }
    }
}
