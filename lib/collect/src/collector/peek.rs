//! What the threads have recorded and not handed over yet.
//!
//! Part of the [`Collector`]: reads the chunk that each running thread is writing, as far as it is
//! written, with a copy of the stream's state, so that nothing is taken away and all of it is read
//! again when the chunk is full. A record that a thread is in the middle of is a hole, as in the
//! chunk of a thread that was killed.

use super::Collector;
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::{STREAM_LIVE, STREAMS};
use std::io::Write;
use std::sync::atomic::Ordering;

/// A thread may hand chunks over while we look for the one that it writes.
const TRIES: usize = 4;

/// Events of all threads up to now that are in no chunk handed over.
#[derive(Default)]
pub struct Peek {
    /// Sections for a trace.
    pub blocks: Vec<u8>,
    /// Events in them.
    pub events: u64,
    /// Bytes of records that they came from.
    pub record_bytes: u64,
}

impl<W: Write> Collector<W> {
    /// Drains what was handed over, and gives what was not.
    pub fn peek(&mut self, arena: &Arena) -> Peek {
        self.count_early(arena);
        let mut found = Peek::default();
        let mut done = vec![false; STREAMS];
        for attempt in 1..=TRIES {
            self.drain(arena);
            self.flush();
            let used = arena.control().streams_used.load(Ordering::Acquire) as usize;
            let mut is_missing = false;
            for (i, done) in done.iter_mut().enumerate().take(used.min(STREAMS)) {
                if *done || arena.stream(i).state.load(Ordering::Acquire) != STREAM_LIVE {
                    continue;
                }
                *done = self.peek_at(arena, i, attempt == TRIES, &mut found);
                is_missing |= !*done;
            }
            if !is_missing {
                break;
            }
        }
        found
    }

    /// While all is followed: has something happened that begins the recording? Then it does, as if
    /// that had been handed over. A thread that calls little need not fill a chunk for it.
    pub fn look_ahead_for_start(&mut self, arena: &Arena) {
        if self.recorder.calls.is_none() || !self.recorder.is_followed() {
            return;
        }
        self.drain(arena);
        if !self.recorder.is_followed() {
            return;
        }
        self.recorder.begin_preview();
        let tapped = self.recorder.tapped.take();
        let used = arena.control().streams_used.load(Ordering::Acquire) as usize;
        for i in 0..used.min(STREAMS) {
            if let Some(index) = self.next_of(arena, i)
                && let Some(mut state) = self.streams[i].clone()
            {
                let counted = (self.record_bytes, self.torn);
                self.book.is_preview = true;
                self.decode(arena, index, None, &mut state);
                self.book.is_preview = false;
                (self.record_bytes, self.torn) = counted;
            }
        }
        self.recorder.tapped = tapped;
        self.recorder.end_preview();
    }

    /// The chunk that a thread is writing, if it is the one after what was drained.
    pub(super) fn next_of(&self, arena: &Arena, i: usize) -> Option<u32> {
        let stream = arena.stream(i);
        let index = stream.chunk.load(Ordering::Acquire);
        let state = self.streams[i].as_ref()?;
        if stream.state.load(Ordering::Acquire) != STREAM_LIVE || !arena.is_chunk(index) {
            return None;
        }
        let chunk = arena.chunk(index);
        let is_its = chunk.stream as usize == i && chunk.epoch == state.epoch;
        (is_its && chunk.sequence == state.sequence).then_some(index)
    }

    /// One thread's. False: chunks that it has handed over must be drained first.
    fn peek_at(&mut self, arena: &Arena, i: usize, is_last: bool, found: &mut Peek) -> bool {
        let index = arena.stream(i).chunk.load(Ordering::Acquire);
        let Some(state) = &self.streams[i] else {
            return true;
        };
        if !arena.is_chunk(index) {
            return true;
        }
        let chunk = arena.chunk(index);
        let (sequence, epoch) = (chunk.sequence, chunk.epoch);
        if chunk.stream as usize != i || epoch != state.epoch {
            return is_last;
        }
        if sequence != state.sequence && !is_last {
            return false;
        }
        let mut state = state.clone();
        if sequence != state.sequence {
            state.taken = 0;
        }
        let counted = (self.record_bytes, self.torn);
        // What is seen here is seen again when the chunk is full.
        let calls = self.recorder.calls.take();
        let tapped = self.recorder.tapped.take();
        self.book.is_preview = true;
        self.decode(arena, index, None, &mut state);
        self.settle_lazy(&mut state);
        self.book.is_preview = false;
        self.recorder.calls = calls;
        self.recorder.tapped = tapped;
        found.record_bytes += self.record_bytes - counted.0;
        (self.record_bytes, self.torn) = counted;
        if self.recorder.counts {
            return true;
        }
        let packed = self.recorder.writer.pack(state.lane.line.encoder);
        match packed {
            Ok((blocks, events)) => {
                found.blocks.extend(blocks);
                found.events += events;
            }
            Err(e) => self.check(Err(e)),
        }
        true
    }
}
