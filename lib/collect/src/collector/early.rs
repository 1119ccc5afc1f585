//! What threads have written and not handed over, for who is told of it while it is recorded.
//!
//! Part of the [`Collector`]: takes of the chunk that each running thread is writing what is
//! complete in it. It is taken for good, so when the thread hands the chunk over, the rest of it is
//! read. Must not know what is told.

use super::{Collector, StreamState};
use crate::decode::whole::whole;
use crate::tap::{Tap, Waiting};
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::STREAMS;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

impl<W: Write> Collector<W> {
    /// Who is to be told of what is recorded, if anybody is. To be said before anything is.
    pub fn tap(&mut self, tap: Option<Tap>) {
        self.recorder.tapped = tap.map(Waiting::new);
    }

    /// Calls of the kernel may be left out when they have ended. To be said before anything is
    /// recorded.
    pub fn leaves_out_calls(&mut self, leaves_out: bool) {
        self.leaves_out_calls = leaves_out;
    }

    /// Tells of what all threads have recorded up to now.
    pub fn tell(&mut self, arena: &Arena) {
        if self.recorder.tapped.is_none() {
            return;
        }
        let now = crate::clock::tsc();
        self.take_early(arena);
        if let Some(tapped) = &mut self.recorder.tapped {
            tapped.tell_until(now);
        }
    }

    /// Takes all that the threads of a process have recorded and counted by now: what is known of
    /// its addresses is about to change.
    pub fn catch_up(&mut self, arena: &Arena, pid: u32) {
        self.take_early(arena);
        self.name_counts(arena, pid);
    }

    /// Writes all that the threads have recorded by now: who reads the trace meanwhile sees it, and
    /// what a program that hangs has done last is in the file.
    pub fn bring_out(&mut self, arena: &Arena) {
        self.take_early(arena);
        self.flush();
        self.write_out();
    }

    /// Tells of everything: no more will come.
    pub fn tell_rest(&mut self) {
        if let Some(tapped) = &mut self.recorder.tapped {
            tapped.tell_until(u64::MAX);
        }
    }

    /// What happened later than `tsc`, which is not long ago, is left out, whenever it comes. What
    /// threads have recorded by now without a time may have happened before, and does not go.
    pub fn record_up_to(&mut self, arena: &Arena, tsc: u64) {
        self.record_until(tsc);
        for state in self.streams.iter_mut().flatten() {
            state.cursor.ends_at = Some(tsc);
        }
        self.take_early(arena);
    }

    pub(super) fn take_early(&mut self, arena: &Arena) {
        self.drain(arena);
        let used = arena.control().streams_used.load(Ordering::Acquire) as usize;
        for i in 0..used.min(STREAMS) {
            let Some(index) = self.next_of(arena, i) else {
                continue;
            };
            let Some(mut state) = self.streams[i].take() else {
                continue;
            };
            let halves = arena.halves(index);
            let areas = self.areas_of(&state);
            // Before it is looked how far the chunk is written: what comes later is later.
            let now = crate::clock::tsc();
            let found = whole(halves, state.taken, &areas, self.leaves_out_calls);
            let written = found.end;
            if written > state.taken {
                self.decode(arena, index, Some((written, now)), &mut state);
                state.taken = written;
                state.left.extend(found.left);
                self.recorder.write_if_full(&mut state.lane);
            }
            if state.cursor.ends_at.is_some() {
                // More may stand behind what a thread has not completed, or never will.
                let mut rest = halves.get(written..).unwrap_or(&[]).iter();
                if rest.all(|half| half.load(Ordering::Relaxed) == 0) {
                    state.cursor.ends_at = None;
                    state.cursor.later_than = now;
                }
            }
            self.streams[i] = Some(state);
        }
    }

    /// What was not written in a chunk when it was taken early, and was so later, is not in the
    /// trace: that is counted.
    pub(super) fn look_at_left(&mut self, halves: &[AtomicU32], state: &mut StreamState) {
        let half = |at: &usize| {
            halves
                .get(*at)
                .map_or(0, |half| half.load(Ordering::Relaxed))
        };
        let late = state.left.drain(..).filter(|at| half(at) != 0).count();
        self.torn.nonsense += late as u64;
    }
}
