//! Replays the events of all streams to frames: which function ran from when to when, how much of
//! that was its own.
//!
//! Given blocks in file order, tells a [`Visitor`] of each frame's beginning and end. Time that a
//! thread spent waiting for sptrace is taken out: durations are differences of a clock that stands
//! still meanwhile. Holds the open frames of each stream and nothing else.
//!
//! A time that was not seen is not a time. A frame has a duration if its end was recorded, or if it
//! ran until its process ended. It has none if it is entry-only (open), or a tail of such a frame;
//! if it was closed when a later event showed it ended; if a longjmp or throw left it, some time
//! before what came next; if it began before the recording; if events were lost while it was open;
//! and if it was open when the recording of its thread ended. Its own time is not known either if a
//! frame directly inside it has no duration, as what that took cannot be told from its own.
//!
//! What is shown inside a frame whose end is not recorded: what is known to run inside of it. The
//! stack pointer alone does not show that. An event below an entry-only frame comes from the
//! frame's function, from one that this called, or, after it has returned, from another that its
//! caller called without a record. So the collector looks at which function each call comes from
//! ([`Event::Outside`]). Entry-only frames whose function it is not leave the view there, and the
//! call is shown inside the innermost frame left, whose stack pointer shows that it is open. Calls
//! whose ends are recorded need no such proof, and what was open when a running program was
//! attached to is found by a walk of its stack and holds what comes below it.

mod kernel_side;
mod lent;
mod state;

use super::side::Side;
use super::visitor::{Estimate, Frame, FrameFlags, Mark, StreamTotals, Visitor};
use crate::decoder::Block;
use crate::error::Malformed;
use crate::mirror::MAX_CHAIN;
use crate::model::{Entry, Event, FunctionId, StreamId};
use crate::note::Note;
use crate::reader::Dictionary;
use rustc_hash::FxHashMap as HashMap;
use std::collections::HashSet;

#[derive(Clone)]
struct Open {
    frame: Frame,
    /// The stream's clock when it began.
    start_ticks: u64,
    children_ticks: u64,
    /// How much earlier and later it may have begun.
    begin_slack: Slack,
    /// The times of one of its children are estimates.
    has_estimated_child: bool,
    /// The time of one of its children is not known, so its own is not either.
    has_unknown_child: bool,
    /// Events are missing since it began: what seems to be its end may be another's.
    is_cut: bool,
    /// It has left the view: what comes is not shown to be inside of it. It counts as open until
    /// its end is told.
    is_past: bool,
    /// It stands for a frame of the parent's, in what a vfork(2) child has open.
    is_parents: bool,
}

/// So many ticks before, and after, a time that was not measured.
#[derive(Clone, Copy, Default)]
struct Slack {
    before: u64,
    after: u64,
}

struct Stream {
    open: Vec<Open>,
    /// Between which times what comes has happened, as far as it is earlier than the later one.
    span: (u64, u64),
    /// Of these, the frames that have not left the view.
    shown: u32,
    start_tsc: u64,
    /// Time in outermost frames.
    covered_ticks: u64,
    totals: StreamTotals,
    /// What the kernel does meanwhile, the innermost last; of frames beside those that the
    /// program's own events tell of, and above all of them.
    kernel: Vec<Side>,
    /// While a vfork(2) child runs in this thread's memory: the open frames that are the thread's;
    /// `open` are the child's ([`lent`]).
    lent: Option<Vec<Open>>,
    /// Events of the kernel's that were told inside of this stream.
    kernel_events: u64,
}

/// Replays blocks to frames.
#[derive(Default)]
pub struct CallTree {
    streams: HashMap<StreamId, Stream>,
    /// By process: when it ended or replaced its program.
    ends: HashMap<u32, Vec<u64>>,
    /// By process: when its main thread's streams begin, once that is asked for.
    starts: Option<HashMap<u32, Vec<u64>>>,
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
        self.begin(block, dictionary, visitor)?;
        let Some(stream) = self.streams.get_mut(&block.stream) else {
            return Ok(());
        };
        for event in block.events() {
            stream.checked_event(block, event?, dictionary, visitor)?;
        }
        Ok(())
    }

    /// Begins a block, whose events are to be given next.
    pub(super) fn begin(
        &mut self,
        block: &Block,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        let id = block.stream;
        let stream = self.streams.entry(id).or_insert_with(|| {
            // A stream's first block counts from its start; a later one can be the first only in a
            // ring, where what was before is not known.
            Stream::new(block.first_tsc)
        });
        if stream.totals.events > 0 {
            return Ok(());
        }
        if stream.lent.is_none() {
            stream.end_kernel(id, visitor);
        }
        for frame in block.opening() {
            known(frame.function, dictionary)?;
            let (function, entry) = (frame.function, frame.entry);
            if frame.is_past {
                stream.push_past(block.first_tsc, function, entry);
            } else {
                stream.enter(id, block.first_tsc, function, entry, true, visitor);
            }
        }
        Ok(())
    }

    /// Replays some events of a block that was begun.
    pub(super) fn events(
        &mut self,
        block: &Block,
        events: &[Event],
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        if let Some(stream) = self.streams.get_mut(&block.stream) {
            for event in events {
                stream.checked_event(block, *event, dictionary, visitor)?;
            }
        }
        Ok(())
    }

    /// Keeps what a note says about the end of a process.
    pub fn note(&mut self, note: &Note) {
        if let Note::ProcessExit { pid, tsc, .. }
        | Note::Exec { pid, tsc, .. }
        | Note::KernelExec { pid, tsc, .. } = *note
        {
            self.ends.entry(pid).or_default().push(tsc);
        }
    }

    /// Ends all frames that are still open: those of a main thread when its process ended or
    /// replaced its program, others at their stream's last event.
    pub fn finish(&mut self, dictionary: &Dictionary, visitor: &mut impl Visitor) {
        let mut streams: Vec<_> = self.streams.keys().copied().collect();
        streams.sort();
        for id in streams {
            self.finish_stream(id, dictionary, visitor);
        }
    }

    /// The same for one stream, of which nothing comes any more.
    pub(super) fn finish_stream(
        &mut self,
        id: StreamId,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) {
        let end = self.process_end(id, dictionary);
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        stream.advance(end.unwrap_or(0));
        if stream.lent.is_some() {
            stream.parent_goes_on(id, visitor);
        }
        while !stream.open.is_empty() {
            stream.leave(
                id,
                |flags| match end {
                    Some(_) => flags.until_process_end = true,
                    None => flags.end_unseen = true,
                },
                visitor,
            );
        }
        stream.totals.ticks = stream.now();
        stream.totals.outside_ticks = stream.now().saturating_sub(stream.covered_ticks);
        stream.totals.events += stream.kernel_events;
        visitor.end(id, &stream.totals);
    }

    /// When a stream ends of which all events were given.
    pub(super) fn end_tsc(&mut self, id: StreamId, dictionary: &Dictionary) -> u64 {
        let last_tsc = self.streams.get(&id).map(|stream| stream.totals.last_tsc);
        let end = self.process_end(id, dictionary);
        end.or(last_tsc).unwrap_or(0)
    }

    /// When the process ended or replaced its program, of which this is the main thread.
    pub(super) fn process_end(&mut self, id: StreamId, dictionary: &Dictionary) -> Option<u64> {
        let last_tsc = self.streams.get(&id)?.totals.last_tsc;
        let info = dictionary.stream(id)?;
        if info.tid != info.pid {
            return None;
        }
        let ends = self.ends.get(&info.pid)?.iter().copied();
        let end = ends.filter(|&tsc| tsc >= last_tsc).min()?;
        // Not if it was recorded again in between, after a pause.
        let starts = self.starts.get_or_insert_with(|| starts(dictionary));
        let is_next = |start: &u64| last_tsc < *start && *start <= end;
        let is_again = starts.get(&info.pid)?.iter().any(is_next);
        (!is_again).then_some(end)
    }
}

/// By process: when its main thread's streams begin.
fn starts(dictionary: &Dictionary) -> HashMap<u32, Vec<u64>> {
    let mut starts: HashMap<u32, Vec<u64>> = HashMap::default();
    let kernel: HashSet<&StreamId> = dictionary.kernel_sides.iter().collect();
    for (id, info) in dictionary.streams.iter().enumerate() {
        let is_kernel = kernel.contains(&StreamId(id as u32));
        if info.tid != info.pid || is_kernel {
            continue;
        }
        starts.entry(info.pid).or_default().push(info.start_tsc);
    }
    starts
}

/// Makes the durations of a frame estimates, where that is what they are. True: they are.
fn estimate(frame: &mut Frame, (begin, end): (Slack, Slack), open: &Open) -> bool {
    let slack = [begin.before, begin.after, end.before, end.after];
    let is_measured = slack.into_iter().all(|ticks| ticks == 0);
    let Some(total_ticks) = frame.total_ticks else {
        return !is_measured;
    };
    if is_measured && !open.has_estimated_child {
        return false;
    }
    frame.estimate = Some(Estimate {
        total_ticks,
        self_ticks: frame.self_ticks,
        least_ticks: total_ticks.saturating_sub(begin.after.saturating_add(end.before)),
        most_ticks: total_ticks.saturating_add(begin.before.saturating_add(end.after)),
    });
    frame.total_ticks = is_measured.then_some(total_ticks);
    frame.self_ticks = None;
    !is_measured
}

fn known(function: FunctionId, dictionary: &Dictionary) -> Result<(), Malformed> {
    if (function.0 as usize) < dictionary.functions.len() {
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
            span: (0, 0),
            shown: 0,
            start_tsc,
            covered_ticks: 0,
            kernel: Vec::new(),
            lent: None,
            kernel_events: 0,
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

    #[inline]
    fn checked_event(
        &mut self,
        block: &Block,
        event: Event,
        dictionary: &Dictionary,
        visitor: &mut impl Visitor,
    ) -> Result<(), Malformed> {
        if let Event::Enter { callee, .. }
        | Event::Inherited { callee, .. }
        | Event::Resumed { callee, .. } = event
        {
            known(callee, dictionary)?;
        }
        if let Event::Values { tsc, at, bytes } = event {
            visitor.values(block.stream, tsc, block.values(at, bytes));
        }
        if !self.kernel.is_empty() {
            self.lend(dictionary);
        }
        self.event(block.stream, event, visitor);
        Ok(())
    }

    fn event(&mut self, id: StreamId, event: Event, visitor: &mut impl Visitor) {
        let before_tsc = self.totals.last_tsc;
        self.advance(event.tsc());
        self.totals.events += 1;
        if !self.kernel.is_empty() && self.lent.is_none() {
            self.end_kernel(id, visitor);
        }
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
            Event::Outside { frames, .. } => self.leave_view(id, frames, visitor),
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
                // An exit closes the innermost call, which may be another's when some are missing.
                self.open.iter_mut().for_each(|open| open.is_cut = true);
                visitor.mark(id, tsc, self.depth(), Mark::Lost(events));
            }
            Event::Values { .. } => {}
            Event::Between { tsc, back, ahead } => {
                self.span = (tsc.saturating_sub(back), tsc.saturating_add(ahead));
            }
            Event::Blocked { tsc, ticks } => {
                // The wait lies between the event before and this one, whatever it claims.
                self.totals.blocked_ticks += ticks.min(self.totals.last_tsc - before_tsc);
                self.disturb();
                visitor.mark(id, tsc, self.depth(), Mark::Blocked(ticks));
            }
        }
    }

    /// How exact the time of the last event is.
    fn slack(&self) -> Slack {
        let now = self.totals.last_tsc;
        match now < self.span.1 {
            true => Slack {
                before: now.saturating_sub(self.span.0),
                after: self.span.1 - now,
            },
            false => Slack::default(),
        }
    }

    fn depth(&self) -> u32 {
        self.shown
    }

    fn disturb(&mut self) {
        if let Some(open) = self.innermost() {
            open.frame.flags.disturbed = true;
        }
    }

    /// The innermost frame in view.
    fn innermost(&mut self) -> Option<&mut Open> {
        let mut open = self.open.iter_mut().rev();
        let innermost = open.find(|open| !open.is_past);
        innermost.or_else(|| {
            let mut lent = self.lent.iter_mut().flatten().rev();
            lent.find(|open| !open.is_past)
        })
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
        let open = self.new_frame(tsc, function, entry, begin_unseen);
        visitor.enter(id, &open.frame);
        self.shown = self.shown.saturating_add(1);
        self.open.push(open);
    }

    fn new_frame(&self, tsc: u64, function: FunctionId, entry: Entry, begin_unseen: bool) -> Open {
        let frame = Frame {
            function,
            entry,
            depth: self.depth(),
            start_tsc: tsc,
            end_tsc: tsc,
            total_ticks: None,
            self_ticks: None,
            flags: FrameFlags {
                begin_unseen,
                ..FrameFlags::default()
            },
            estimate: None,
        };
        Open {
            frame,
            start_ticks: self.now(),
            children_ticks: 0,
            begin_slack: self.slack(),
            has_estimated_child: false,
            has_unknown_child: false,
            is_cut: false,
            is_past: false,
            is_parents: false,
        }
    }

    /// A frame that had left the view before the first block of a ring.
    fn push_past(&mut self, tsc: u64, function: FunctionId, entry: Entry) {
        let is_past = true;
        let open = self.new_frame(tsc, function, entry, true);
        self.open.push(Open { is_past, ..open });
    }

    /// Ends the innermost frame.
    fn leave(&mut self, id: StreamId, set: impl Fn(&mut FrameFlags), visitor: &mut impl Visitor) {
        let below = self.open.len().saturating_sub(1);
        self.end_view(id, below, set, visitor);
        self.open.pop();
    }

    /// The frame at this place leaves the view, as the innermost in it; nothing if it has done so
    /// before.
    fn end_view(
        &mut self,
        id: StreamId,
        at: usize,
        set: impl Fn(&mut FrameFlags),
        visitor: &mut impl Visitor,
    ) {
        let (now, last_tsc, is_loose) = (self.now(), self.totals.last_tsc, self.is_loose(at));
        let end_slack = self.slack();
        let Some(open) = self.open.get_mut(at).filter(|open| !open.is_past) else {
            return;
        };
        open.is_past = true;
        let mut frame = open.frame;
        set(&mut frame.flags);
        // An entry-only one need not have been open when its process ended.
        let has_no_end = is_loose || open.is_cut;
        frame.flags.end_unseen |= has_no_end;
        frame.flags.until_process_end &= !has_no_end;
        frame.end_tsc = last_tsc;
        let ticks = now.saturating_sub(open.start_ticks);
        let is_known = !frame.flags.end_unseen && !frame.flags.unwound;
        let own_ticks = ticks.saturating_sub(open.children_ticks);
        frame.total_ticks = is_known.then_some(ticks);
        frame.self_ticks = (is_known && !open.has_unknown_child).then_some(own_ticks);
        let is_estimate = estimate(&mut frame, (open.begin_slack, end_slack), open);
        self.shown = self.shown.saturating_sub(1);
        match self.innermost() {
            Some(below) => {
                below.children_ticks += ticks;
                below.has_unknown_child |= !is_known;
                below.has_estimated_child |= is_estimate;
                below.frame.flags.disturbed |= frame.flags.disturbed;
            }
            None => self.covered_ticks += ticks,
        }
        self.totals.known_ticks += frame.self_ticks.unwrap_or_default();
        self.totals.unwound += u64::from(frame.flags.unwound);
        self.totals.end_unseen += u64::from(frame.flags.end_unseen);
        visitor.leave(id, &frame);
    }

    /// No exit tells the end of the frame at this place: it is entry-only, or the tail of such a
    /// frame.
    fn is_loose(&self, at: usize) -> bool {
        let downwards = self.open.iter().take(at + 1).rev();
        let replaced = downwards.map(|open| open.frame.entry);
        let replaced = replaced.into_iter().find(|entry| *entry != Entry::Tail);
        matches!(replaced, Some(Entry::Open | Entry::Earlier))
    }

    /// What comes is not shown to run inside the innermost `frames` open frames.
    fn leave_view(&mut self, id: StreamId, frames: u32, visitor: &mut impl Visitor) {
        let chain = self.open.iter().enumerate().rev();
        let chain = chain.take_while(|(_, open)| !open.frame.entry.ends_chain());
        let opened = chain.filter(|(_, open)| open.frame.entry == Entry::Open);
        let Some((from, _)) = opened.take(frames as usize).last() else {
            return;
        };
        for at in (from..self.open.len()).rev() {
            self.end_view(id, at, |_| {}, visitor);
        }
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
            // A call whose return address was given back is one of them.
            for _ in 0..=tails {
                self.leave(id, |flags| flags.end_unseen = true, visitor);
            }
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
