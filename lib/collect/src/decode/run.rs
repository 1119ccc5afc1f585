//! The records that most are: calls of known functions and their ends, many in a row.
//!
//! Part of the [`Decoder`]. First it is looked up what some records stand for, without a decision
//! that depends on it: what a place is comes from far away, and many of them come at once that way.
//! Then the sink is told. What is anything else ends the run, and [`Decoder::decode`] takes that
//! one record.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::FunctionId;

use super::Decoder;
use super::module::{PLACE_ENTRY, PLACE_INDIRECT, PLACE_TAIL};
use super::sink::{Plain, Sink};

/// Kinds through a pointer.
const CALL: u8 = PLACE_ENTRY | PLACE_INDIRECT;
const TAIL: u8 = CALL | PLACE_TAIL;

/// Records looked up before they are encoded.
const BATCH: usize = 128;

impl<S: Sink> Decoder<'_, S> {
    /// Takes the records from `at` on, as far as they need no thought; gives where that is. To be
    /// asked only if the sink takes rows.
    pub(super) fn run(&mut self, halves: &[AtomicU32], mut at: usize) -> usize {
        let mut batch = [Plain::default(); BATCH];
        loop {
            let high = self.cursor.high;
            let first_low = match self.cursor.last_tsc >> 32 {
                period if period == high => self.cursor.last_tsc as u32,
                period if period < high => 0,
                _ => return at,
            };
            let (count, next) = self.look_up(halves, at, first_low, &mut batch);
            at = next;
            let found = &batch[..count];
            if let Some(last) = found.last() {
                self.cursor.last_tsc = high << 32 | u64::from(last.stamp);
            }
            self.sink.row(high, found, &[]);
            if count < BATCH {
                return at;
            }
        }
    }

    /// Looks up the records from `at` on: how many, and where the next one is.
    #[inline(never)]
    fn look_up(
        &self,
        halves: &[AtomicU32],
        mut at: usize,
        mut last: u32,
        batch: &mut [Plain],
    ) -> (usize, usize) {
        let areas = self.areas;
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
                    CALL | TAIL => self.recent_callee(halves.get(at + 2)),
                    _ => None,
                };
                let Some(resolved) = callee.and_then(|callee| place.resolved(callee)) else {
                    return (count, at);
                };
                place = resolved;
                length = 3;
            }
            *looked = Plain { stamp, place };
            last = stamp;
            at += length;
        }
        (batch.len(), at)
    }

    /// The callee whose low half was recorded, if it was called not long ago.
    #[inline]
    pub(super) fn recent_callee(&self, low: Option<&AtomicU32>) -> Option<FunctionId> {
        let low = low?.load(Ordering::Relaxed);
        self.book.recent_callee(self.cursor.pid, low)
    }
}
