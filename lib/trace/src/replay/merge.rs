//! The events of all threads in the order in which they happened.
//!
//! A file has them in blocks of one thread each, in the order in which these were written: a thread
//! that calls little keeps its events for long, so a block may be much older than those before it.
//! Where each lies and when it begins is known from the survey, so a block is read when the others
//! have come to its time.
//!
//! Holds one block and some decoded events of each thread that runs at the time, however long the
//! trace is; of each block in the file some words. Events of the same tick come in the order of
//! streams.
//!
//! Where a trace has the kernel's side of threads, as streams of their own, their events are told
//! inside of the streams of the program ([`super::sides`]). Since this is done by who reads, both
//! sides are written as they come: neither waits in memory for the other, which may keep a buffer
//! for minutes, and of a trace that ends early both are there.

use super::call_tree::CallTree;
use super::side::Wait;
use super::sides::Sides;
use super::snapshots::{Part, Tail};
use super::visitor::Visitor;
use crate::decoder::{Block, Paused};
use crate::error::{Malformed, TraceError};
use crate::model::{Event, StreamId};
use crate::reader::{BlockPlace, Survey, TraceReader};
use rustc_hash::FxHashMap as HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Seek};

/// Events decoded at a time: enough that it does not matter how decoding is resumed.
const BATCH_EVENTS: usize = 256;

/// When a stream goes on, and which.
type Next = (u64, StreamId);

/// A replay in the order of time.
pub(super) struct Merge<'a, R> {
    reader: &'a mut TraceReader<R>,
    survey: &'a Survey,
    tree: CallTree,
    lanes: HashMap<StreamId, Lane<'a>>,
    next: BinaryHeap<Reverse<Next>>,
    /// Of streams that are not told to their end.
    tails: HashMap<StreamId, Tail<'a>>,
    sides: Sides,
}

/// Where events of the kernel's side are told.
#[derive(Clone, Copy)]
struct Inside {
    /// In this stream.
    program: StreamId,
    /// Which waits for sptrace then.
    wait: Option<Wait>,
}

/// One stream on its way.
#[derive(Default)]
struct Lane<'a> {
    /// Its blocks that were not read yet, the last one first.
    places: Vec<&'a BlockPlace>,
    /// The block that is being told, and where it lies.
    block: Option<(Block, u64)>,
    /// How far it is decoded.
    paused: Paused,
    batch: Vec<Event>,
    /// Events of the batch that were told.
    told: usize,
}

impl<'a, R: Read + Seek> Merge<'a, R> {
    /// Of a part of a trace: tells `view` of what is open where it begins.
    pub(super) fn new(
        reader: &'a mut TraceReader<R>,
        survey: &'a Survey,
        (mut part, sides): (Part<'a>, Sides),
        view: &mut impl Visitor,
    ) -> Result<Self, TraceError> {
        let mut merge = Self {
            reader,
            survey,
            tree: CallTree::new(),
            lanes: HashMap::default(),
            next: BinaryHeap::new(),
            tails: std::mem::take(&mut part.tails),
            sides,
        };
        for note in &survey.notes {
            merge.tree.note(note);
        }
        let begun = part.begin(&mut merge.tree, &survey.dictionary, view);
        begun.map_err(|what| what.at(0))?;
        for place in part.blocks.into_iter().rev() {
            let lane = merge.lanes.entry(place.stream).or_default();
            lane.places.push(place);
        }
        for (id, lane) in &merge.lanes {
            let start = lane.places.last().map(|place| place.first_tsc);
            merge.next.extend(start.map(|tsc| Reverse((tsc, *id))));
        }
        for (id, tail) in &merge.tails {
            if !merge.lanes.contains_key(id) {
                merge.next.push(Reverse((tail.next_tsc(), *id)));
            }
        }
        Ok(merge)
    }

    /// Tells `view` of all frames.
    pub(super) fn tell(mut self, view: &mut impl Visitor) -> Result<(), TraceError> {
        let dictionary = &self.survey.dictionary;
        while let Some(Reverse((tsc, id))) = self.next.pop() {
            let inside = self.inside(id, tsc);
            let Some(lane) = self.lanes.get_mut(&id) else {
                if let Some(tail) = self.tails.get_mut(&id) {
                    if !tail.tell(id, tsc, view) {
                        self.next.push(Reverse((tail.next_tsc(), id)));
                    }
                    continue;
                }
                // All its events are told, and time has come to its end.
                self.tree.finish_stream(id, dictionary, view);
                continue;
            };
            let until = self.next.peek().map_or((u64::MAX, id), |next| next.0);
            let goes_on = loop {
                if let Some(tsc) =
                    lane.tell((id, inside), until, &mut self.tree, self.survey, view)?
                {
                    break Some(tsc);
                }
                if view.is_finished() {
                    return Ok(());
                }
                if lane.decode()? {
                    continue;
                }
                if let Some((block, _)) = lane.block.take() {
                    self.reader.recycle(block);
                }
                match lane.places.last() {
                    Some(place) if (place.first_tsc, id) > until => break Some(place.first_tsc),
                    Some(_) => {
                        lane.read(self.reader, inside, &mut self.tree, self.survey, view)?;
                    }
                    None => break None,
                }
            };
            match goes_on {
                Some(tsc) => self.next.push(Reverse((tsc, id))),
                None => self.all_told(id),
            }
        }
        Ok(())
    }

    /// Where the events of a stream of the kernel's are told that come at `tsc`.
    fn inside(&self, id: StreamId, tsc: u64) -> Option<Inside> {
        let program = self
            .sides
            .place(id, tsc, |stream| self.tree.is_told(stream))?;
        let lane = self.lanes.get(&program);
        let wait = match lane.and_then(|lane| lane.batch.get(lane.told)) {
            Some(Event::Blocked { tsc, ticks }) => Some(Wait {
                begin_tsc: tsc.saturating_sub(*ticks),
                end_tsc: *tsc,
            }),
            _ => None,
        };
        Some(Inside { program, wait })
    }

    /// All events of a stream were told: it ends when its time has come. Where the kernel's side
    /// goes on, what the program has open may go on, too.
    fn all_told(&mut self, id: StreamId) {
        self.lanes.remove(&id);
        if let Some(tail) = self.tails.get(&id) {
            self.next.push(Reverse((tail.next_tsc(), id)));
            return;
        }
        let dictionary = &self.survey.dictionary;
        let mut kernel = self.sides.kernel_of(id);
        if !kernel.any(|kernel| self.lanes.contains_key(&kernel))
            || self.tree.process_end(id, dictionary).is_some()
        {
            let tsc = self.tree.end_tsc(id, dictionary);
            self.next.push(Reverse((tsc, id)));
        }
        for program in self.sides.programs_of(id) {
            let mut kernel = self.sides.kernel_of(program);
            let goes_on = self.lanes.contains_key(&program)
                || kernel.any(|kernel| self.lanes.contains_key(&kernel));
            if !goes_on && !self.tree.is_told(program) {
                let tsc = self.tree.end_tsc(program, dictionary);
                self.next.push(Reverse((tsc, program)));
            }
        }
    }
}

impl Lane<'_> {
    /// Tells of the events up to another stream's next one; when it goes on, or `None` if the batch
    /// was told.
    fn tell(
        &mut self,
        (id, inside): (StreamId, Option<Inside>),
        until: Next,
        tree: &mut CallTree,
        survey: &Survey,
        view: &mut impl Visitor,
    ) -> Result<Option<u64>, TraceError> {
        let batch = &self.batch[self.told..];
        let is_due = |event: &Event| (event.tsc(), id) <= until;
        // Most often all of it: one thread runs, or the others wait.
        let due = match batch.last() {
            Some(last) if is_due(last) => batch.len(),
            _ => batch.partition_point(is_due),
        };
        if let Some((block, offset)) = &self.block {
            let (events, dictionary) = (&batch[..due], &survey.dictionary);
            let told = match inside {
                None => tree.events(block, events, dictionary, view),
                Some(Inside { program, wait }) => {
                    tree.kernel_events((program, block), events, wait, dictionary, view)
                }
            };
            told.map_err(|what| what.at(*offset))?;
        }
        self.told += due;
        Ok(self.batch.get(self.told).map(Event::tsc))
    }

    /// Decodes more of the block; false: there is no more.
    fn decode(&mut self) -> Result<bool, TraceError> {
        (self.told, _) = (0, self.batch.clear());
        let Some((block, offset)) = &self.block else {
            return Ok(false);
        };
        let mut events = block.resume(std::mem::take(&mut self.paused));
        for event in events.by_ref().take(BATCH_EVENTS) {
            self.batch.push(event.map_err(|what| what.at(*offset))?);
        }
        self.paused = events.pause();
        Ok(!self.batch.is_empty())
    }

    /// Reads the next block.
    fn read<R: Read + Seek>(
        &mut self,
        reader: &mut TraceReader<R>,
        inside: Option<Inside>,
        tree: &mut CallTree,
        survey: &Survey,
        view: &mut impl Visitor,
    ) -> Result<(), TraceError> {
        let Some(place) = self.places.pop() else {
            return Ok(());
        };
        let block = reader.block_at(place)?;
        if survey.dictionary.stream(block.stream).is_none() {
            return Err(Malformed("a block of a stream that is not named").at(place.offset));
        }
        let dictionary = &survey.dictionary;
        let begun = match inside {
            None => tree.begin(&block, dictionary, view),
            Some(inside) => tree.kernel_begin(inside.program, &block, dictionary, view),
        };
        begun.map_err(|what| what.at(place.offset))?;
        self.block = Some((block, place.offset));
        self.paused = Paused::default();
        Ok(())
    }
}
