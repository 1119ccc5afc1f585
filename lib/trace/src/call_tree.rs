//! Replays the events of all streams to frames: which function ran from when to when, how much of
//! that was its own.
//!
//! Given blocks in file order, tells a [`Visitor`] of each frame's beginning and end. Time that a
//! thread spent waiting for sptrace is taken out: durations are differences of a clock that stands
//! still meanwhile. Holds the open frames of each stream and nothing else.

use crate::decoder::Block;
use crate::error::Malformed;
use crate::mirror::MAX_CHAIN;
use crate::model::{Entry, Event, FunctionId, Note, StreamId};
use crate::reader::Dictionary;
use std::collections::HashMap;

/// What is unusual about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameFlags {
    /// Ended by a longjmp or a throw, not by a return.
    pub unwound: bool,
    /// Its end was not seen; the stated one is the latest possible, or the end of the trace.
    pub end_unseen: bool,
    /// It began before its stream.
    pub begin_unseen: bool,
    /// The thread waited for sptrace or lost events inside it.
    pub disturbed: bool,
}

/// A function's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What ran.
    pub function: FunctionId,
    /// How it began.
    pub entry: Entry,
    /// Frames below it.
    pub depth: u32,
    /// When it began.
    pub start_tsc: u64,
    /// When it ended; equal to the start as long as it runs.
    pub end_tsc: u64,
    /// Duration without waiting for sptrace.
    pub total_ticks: u64,
    /// The part of the duration outside the frames above it.
    pub self_ticks: u64,
    /// What is unusual about it.
    pub flags: FrameFlags,
}

/// Something between the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A call returned once more.
    Resumed(FunctionId),
    /// That many events are missing.
    Lost(u64),
    /// The thread waited that many ticks for sptrace.
    Blocked(u64),
    /// A frame ended that had begun before the stream.
    UnseenFrameEnded,
}

/// Is told of frames in the order of time within each stream.
pub trait Visitor {
    /// A frame begins; `total_ticks`, `self_ticks` and `end_tsc` mean nothing yet.
    fn enter(&mut self, stream: StreamId, frame: &Frame);
    /// The innermost frame ended.
    fn leave(&mut self, stream: StreamId, frame: &Frame);
    /// The innermost frame ended and is not to be counted or shown.
    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame);
    /// Something else happened, `depth` frames being open.
    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark);
    /// No more will be told of the stream.
    fn end(&mut self, stream: StreamId, totals: &StreamTotals);
}

/// The sums of one stream: `ticks = outside_ticks +` the self times of all its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamTotals {
    /// Time from the start of the stream to its last event, without waiting for sptrace.
    pub ticks: u64,
    /// The part of it outside all frames.
    pub outside_ticks: u64,
    /// Time spent waiting for sptrace.
    pub blocked_ticks: u64,
    /// Events in the trace.
    pub events: u64,
    /// Events missing in the trace.
    pub lost: u64,
    /// Frames begun.
    pub calls: u64,
    /// Frames ended by a longjmp or throw.
    pub unwound: u64,
    /// Frames whose end was not seen.
    pub end_unseen: u64,
    /// Last event.
    pub last_tsc: u64,
}

struct Open {
    frame: Frame,
    /// The stream's clock when it began.
    start_ticks: u64,
    children_ticks: u64,
}

struct Stream {
    open: Vec<Open>,
    start_tsc: u64,
    /// Time in outermost frames.
    covered_ticks: u64,
    totals: StreamTotals,
}

/// Replays blocks to frames.
#[derive(Default)]
pub struct CallTree {
    streams: HashMap<StreamId, Stream>,
    /// By process: when it ended or replaced its program.
    ends: HashMap<u32, Vec<u64>>,
}

impl CallTree {
    /// Nothing replayed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replays a block.
    ///
    /// # Errors
    /// If its bytes contradict the format or name a function that the trace does not.
    pub fn replay(
        &mut self,
        block: &Block,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        let id = block.stream;
        let functions = dictionary.functions.len();
        let stream = self.streams.entry(id).or_insert_with(|| {
            // A stream's first block counts from its start; a later one can be the first only in a
            // ring, where what was before is not known.
            Stream::new(block.first_tsc)
        });
        if stream.totals.events == 0 {
            for frame in block.opening() {
                known(frame.function, functions)?;
                stream.enter(
                    id,
                    block.first_tsc,
                    frame.function,
                    frame.entry,
                    true,
                    visitor,
                );
            }
        }
        for event in block.events() {
            let event = event?;
            if let Event::Enter { callee, .. }
            | Event::Inherited { callee, .. }
            | Event::Resumed { callee, .. } = event
            {
                known(callee, functions)?;
            }
            stream.event(id, event, visitor);
        }
        Ok(())
    }

    /// Keeps what a note says about the end of a process.
    pub fn note(&mut self, note: &Note) {
        if let Note::ProcessExit { pid, tsc, .. } | Note::Exec { pid, tsc, .. } = *note {
            self.ends.entry(pid).or_default().push(tsc);
        }
    }

    /// Ends all frames that are still open: those of a main thread when its process ended or
    /// replaced its program, others at their stream's last event.
    pub fn finish(&mut self, dictionary: &Dictionary, visitor: &mut impl Visitor) {
        let mut streams: Vec<_> = self.streams.drain().collect();
        streams.sort_by_key(|(id, _)| *id);
        let mut starts: HashMap<u32, Vec<u64>> = HashMap::new();
        for info in dictionary.streams.iter().filter(|i| i.tid == i.pid) {
            starts.entry(info.pid).or_default().push(info.start_tsc);
        }
        for (id, mut stream) in streams {
            let last_tsc = stream.totals.last_tsc;
            let info = dictionary.stream(id).filter(|info| info.tid == info.pid);
            let ends = info.and_then(|info| self.ends.get(&info.pid));
            let end =
                ends.and_then(|ends| ends.iter().copied().filter(|&tsc| tsc >= last_tsc).min());
            // Not if it was recorded again in between, after a pause.
            let is_next = |start: &u64| last_tsc < *start && end.is_some_and(|end| *start <= end);
            let next = info.and_then(|info| starts.get(&info.pid)?.iter().find(|s| is_next(s)));
            stream.advance(end.filter(|_| next.is_none()).unwrap_or(last_tsc));
            while !stream.open.is_empty() {
                stream.leave(id, |flags| flags.end_unseen = true, visitor);
            }
            stream.totals.ticks = stream.now();
            stream.totals.outside_ticks = stream.now() - stream.covered_ticks;
            visitor.end(id, &stream.totals);
        }
    }
}

fn known(function: FunctionId, functions: usize) -> Result<(), Malformed> {
    if (function.0 as usize) < functions {
        return Ok(());
    }
    Err(Malformed(
        "an event names a function that the trace does not",
    ))
}

impl Stream {
    fn new(start_tsc: u64) -> Self {
        Self {
            open: Vec::new(),
            start_tsc,
            covered_ticks: 0,
            totals: StreamTotals {
                last_tsc: start_tsc,
                ..StreamTotals::default()
            },
        }
    }

    /// The stream's clock: ticks since its start, without waiting for sptrace.
    fn now(&self) -> u64 {
        self.totals.last_tsc - self.start_tsc - self.totals.blocked_ticks
    }

    fn advance(&mut self, tsc: u64) {
        self.totals.last_tsc = self.totals.last_tsc.max(tsc);
    }

    fn event(&mut self, id: StreamId, event: Event, visitor: &mut impl Visitor) {
        let before_tsc = self.totals.last_tsc;
        self.advance(event.tsc());
        self.totals.events += 1;
        match event {
            Event::Enter { tsc, callee, entry } => {
                if matches!(entry, Entry::Tail | Entry::Open) {
                    self.bound_chain(id, visitor);
                }
                let begin_unseen = entry == Entry::Earlier;
                self.enter(id, tsc, callee, entry, begin_unseen, visitor);
            }
            Event::Inherited { tsc, callee, entry } => {
                if entry == Entry::Open {
                    self.bound_chain(id, visitor);
                }
                self.enter(id, tsc, callee, entry, true, visitor);
            }
            Event::Exit { tsc } => {
                if !self.leave_call(id, |_| {}, visitor) {
                    visitor.mark(id, tsc, 0, Mark::UnseenFrameEnded);
                }
            }
            Event::CloseOpen { frames, .. } => self.close_open(id, frames, visitor),
            Event::Unwound { frames, .. } => {
                for _ in 0..frames {
                    if !self.leave_call(id, |flags| flags.unwound = true, visitor) {
                        break;
                    }
                }
            }
            Event::Resumed { tsc, callee } => {
                visitor.mark(id, tsc, self.depth(), Mark::Resumed(callee));
            }
            Event::Lost { tsc, events } => {
                self.totals.lost = self.totals.lost.saturating_add(events);
                self.disturb();
                visitor.mark(id, tsc, self.depth(), Mark::Lost(events));
            }
            Event::Blocked { tsc, ticks } => {
                // The wait lies between the event before and this one, whatever it claims.
                self.totals.blocked_ticks += ticks.min(self.totals.last_tsc - before_tsc);
                self.disturb();
                visitor.mark(id, tsc, self.depth(), Mark::Blocked(ticks));
            }
        }
    }

    fn depth(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    fn disturb(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.frame.flags.disturbed = true;
        }
    }

    fn enter(
        &mut self,
        id: StreamId,
        tsc: u64,
        function: FunctionId,
        entry: Entry,
        begin_unseen: bool,
        visitor: &mut impl Visitor,
    ) {
        self.totals.calls += u64::from(!begin_unseen);
        let frame = Frame {
            function,
            entry,
            depth: self.depth(),
            start_tsc: tsc,
            end_tsc: tsc,
            total_ticks: 0,
            self_ticks: 0,
            flags: FrameFlags {
                begin_unseen,
                ..FrameFlags::default()
            },
        };
        visitor.enter(id, &frame);
        let start_ticks = self.now();
        self.open.push(Open {
            frame,
            start_ticks,
            children_ticks: 0,
        });
    }

    /// Ends the innermost frame.
    fn leave(&mut self, id: StreamId, set: impl Fn(&mut FrameFlags), visitor: &mut impl Visitor) {
        let Some(mut open) = self.open.pop() else {
            return;
        };
        let frame = &mut open.frame;
        set(&mut frame.flags);
        frame.flags.end_unseen |= matches!(frame.entry, Entry::Open | Entry::Earlier);
        frame.end_tsc = self.totals.last_tsc;
        frame.total_ticks = self.now() - open.start_ticks;
        frame.self_ticks = frame.total_ticks - open.children_ticks;
        match self.open.last_mut() {
            Some(below) => {
                below.children_ticks += frame.total_ticks;
                below.frame.flags.disturbed |= frame.flags.disturbed;
            }
            None => self.covered_ticks += frame.total_ticks,
        }
        self.totals.unwound += u64::from(frame.flags.unwound);
        self.totals.end_unseen += u64::from(frame.flags.end_unseen);
        visitor.leave(id, frame);
    }

    /// Ends the innermost call frame and what is above it; false if none is open.
    fn leave_call(
        &mut self,
        id: StreamId,
        set: impl Fn(&mut FrameFlags),
        visitor: &mut impl Visitor,
    ) -> bool {
        while let Some(open) = self.open.last()
            && open.frame.entry != Entry::Earlier
        {
            let is_call = open.frame.entry == Entry::Call;
            self.leave(id, &set, visitor);
            if is_call {
                return true;
            }
        }
        false
    }

    fn close_open(&mut self, id: StreamId, frames: u32, visitor: &mut impl Visitor) {
        for _ in 0..frames {
            let above = self.open.iter().rev();
            let tails = above
                .take_while(|open| open.frame.entry == Entry::Tail)
                .count();
            if tails == self.open.len() {
                break;
            }
            for _ in 0..tails {
                self.leave(id, |_| {}, visitor);
            }
            // A call whose return address was given back is one of them.
            self.leave(id, |flags| flags.end_unseen = true, visitor);
        }
    }

    /// As in [`crate::mirror`]: one more tail or open frame replaces the innermost.
    fn bound_chain(&mut self, id: StreamId, visitor: &mut impl Visitor) {
        let above_call = self.open.iter().rev().take(MAX_CHAIN);
        let chain = above_call
            .take_while(|open| matches!(open.frame.entry, Entry::Tail | Entry::Open))
            .count();
        if chain == MAX_CHAIN {
            self.leave(id, |_| {}, visitor);
        }
    }
}
