//! The records that most are: calls of known functions and their ends, many in a row.
//!
//! Part of the [`Collector`]. First it is looked up what some records stand for, without a decision
//! that depends on it: what a place is comes from far away, and many of them come at once that way.
//! Then they are encoded. What is anything else ends the run, and [`Collector::decode`] takes that
//! one record.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::FunctionId;

use super::{Collector, LOW_HALF, Recent, StreamState, Target};
use crate::module::*;
use crate::process::Areas;

/// Kinds through a pointer.
const CALL: u8 = PLACE_ENTRY | PLACE_INDIRECT;
const TAIL: u8 = CALL | PLACE_TAIL;

/// Records looked up before they are encoded.
const BATCH: usize = 128;

/// A record of a call, a tail jump or an exit.
#[derive(Clone, Copy, Default)]
struct Looked {
    stamp: u32,
    place: Place,
}

impl<W: Write> Collector<W> {
    /// Takes the records from `at` on, as far as they need no thought; gives where that is.
    pub(super) fn run(
        &mut self,
        areas: &Areas,
        halves: &[AtomicU32],
        mut at: usize,
        state: &mut StreamState,
    ) -> usize {
        // Watched calls, held-back calls, an end in time, calls of before the start, and calls
        // whose callers are looked at because the end of an open one is not recorded: nothing is
        // done in a row.
        if self.calls.is_some()
            || state.lazy.is_some()
            || self.until_tsc != u64::MAX
            || !state.line.is_plain()
            || state.line.has_open()
        {
            return at;
        }
        let mut batch = [Looked::default(); BATCH];
        loop {
            let first_low = match state.last_tsc >> 32 {
                period if period == state.high => state.last_tsc as u32,
                period if period < state.high => 0,
                _ => return at,
            };
            let (count, next) = self.look_up(areas, halves, at, state.pid, first_low, &mut batch);
            at = next;
            encode(&batch[..count], state);
            if count < BATCH {
                return at;
            }
        }
    }

    /// Looks up the records from `at` on: how many, and where the next one is.
    #[inline(never)]
    fn look_up(
        &self,
        areas: &Areas,
        halves: &[AtomicU32],
        mut at: usize,
        pid: u32,
        mut last: u32,
        batch: &mut [Looked],
    ) -> (usize, usize) {
        for (count, looked) in batch.iter_mut().enumerate() {
            let Some([stamp, id, ..]) = halves.get(at..) else {
                return (count, at);
            };
            let (stamp, id) = (stamp.load(Ordering::Relaxed), id.load(Ordering::Relaxed));
            // A hole, or back in time; no place.
            if stamp == 0 || stamp < last {
                return (count, at);
            }
            let Some(mut place) = areas.quick(id) else {
                return (count, at);
            };
            let mut length = 2;
            if !place.is_plain() {
                let callee = match place.kind() {
                    CALL | TAIL => self.recent_callee(pid, halves.get(at + 2)),
                    _ => None,
                };
                let Some(resolved) = callee.and_then(|callee| place.resolved(callee)) else {
                    return (count, at);
                };
                place = resolved;
                length = 3;
            }
            *looked = Looked { stamp, place };
            last = stamp;
            at += length;
        }
        (batch.len(), at)
    }

    /// The callee whose low half was recorded, if it was called not long ago.
    #[inline]
    fn recent_callee(&self, pid: u32, low: Option<&AtomicU32>) -> Option<FunctionId> {
        let target = LOW_HALF | u64::from(low?.load(Ordering::Relaxed));
        let recent = &self.recent[Recent::slot(target)];
        match recent.callee {
            Target::Function(callee) if recent.target == target && recent.pid == pid => {
                Some(callee)
            }
            _ => None,
        }
    }
}

#[inline(never)]
fn encode(mut batch: &[Looked], state: &mut StreamState) {
    let high = state.high << 32;
    if let Some(last) = batch.last() {
        state.last_tsc = high | u64::from(last.stamp);
    }
    while !batch.is_empty() {
        let mut burst = state.line.encoder.burst();
        let (now, later) = batch.split_at(burst.room().min(batch.len()));
        for looked in now {
            let tsc = high | u64::from(looked.stamp);
            match looked.place.callee() {
                Some(callee) if looked.place.is_tail() => burst.tail(tsc, callee),
                Some(callee) => burst.enter(tsc, callee),
                None => burst.exit(tsc),
            }
        }
        burst.finish();
        batch = later;
    }
}
