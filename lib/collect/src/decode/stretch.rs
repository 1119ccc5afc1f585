//! Stretches of records that need no thought, where calls may be in order and have stamps.
//!
//! Part of the [`Decoder`]. Takes a chunk from where it is up to the next record that needs a
//! closer look. Without stamps among calls in order that is `run.rs` for those with stamps, and
//! `ordered.rs` for the others. With both, all events go through one [`Row`], as the records change
//! between the two kinds every few calls. Must not know what has ended when a call begins.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_wire::record::PLACED;

use super::Decoder;
use super::mixed::How;
use super::module::{PLACE_ENTRY, PLACE_EXIT, PLACE_INDIRECT, Place};
use super::open::Made;
use super::row::Row;
use super::sink::Sink;

/// A call through a pointer.
const THROUGH: u8 = PLACE_ENTRY | PLACE_INDIRECT;

/// A record with a stamp.
pub(super) struct Stamped {
    pub(super) tsc: u64,
    id: u32,
    place: Place,
    /// Where the stack pointer stood, if that is said.
    stood_at: Option<u32>,
    /// Where its id is followed by the next half.
    end: usize,
}

impl<S: Sink> Decoder<'_, S> {
    /// Takes the records from `at` on, as far as they need no thought, and all that are in order;
    /// gives where that is. None: what comes from there on is not wanted.
    pub(super) fn rows(
        &mut self,
        halves: &[AtomicU32],
        at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        let mut row = std::mem::take(&mut self.cursor.ordered.row);
        let end = self.stretch(&mut row, halves, at, wide_callee);
        row.flush(self.sink);
        self.cursor.ordered.row = row;
        end
    }

    fn stretch(
        &mut self,
        row: &mut Row,
        halves: &[AtomicU32],
        mut at: usize,
        wide_callee: &mut Option<u64>,
    ) -> Option<usize> {
        loop {
            if self.takes_plain(wide_callee) {
                if self.cursor.ordered.is_mixed() {
                    while let Some(next) = self.stamped(row, halves, at) {
                        at = next;
                    }
                } else {
                    row.flush(self.sink);
                    at = self.run(halves, at);
                }
            }
            if !self.is_in_order(halves, at) {
                return Some(at);
            }
            at = self.in_order(row, halves, at, wide_callee)?;
        }
    }

    /// The record of a slot at `at`, with where the stack pointer stood, if it has a stamp that is
    /// not earlier than what came before.
    #[inline]
    pub(super) fn stamped_at(&self, halves: &[AtomicU32], at: usize) -> Option<Stamped> {
        let record = |at: usize| match halves.get(at..)? {
            [low, id, ..] => Some((low.load(Ordering::Relaxed), id.load(Ordering::Relaxed))),
            _ => None,
        };
        let (mut low, mut id) = record(at)?;
        let (mut end, mut stood_at) = (at + 2, None);
        if id == PLACED && low != 0 {
            stood_at = Some(low);
            (low, id) = record(end)?;
            end += 2;
        }
        let place = self.areas.quick(id)?;
        let tsc = self.cursor.high << 32 | u64::from(low);
        let is_known = low != 0 && tsc >= self.cursor.last_tsc && !place.is_in_order();
        is_known.then_some(Stamped {
            tsc,
            id,
            place,
            stood_at,
            end,
        })
    }

    /// Takes the record with a stamp at `at`, if it needs no thought; gives where the next one is.
    #[inline]
    fn stamped(&mut self, row: &mut Row, halves: &[AtomicU32], at: usize) -> Option<usize> {
        let record = self.stamped_at(halves, at)?;
        let Stamped { tsc, place, .. } = record;
        let mut end = record.end;
        let (stood_at, callee) = match (place.kind(), record.stood_at) {
            (PLACE_EXIT, None) => {
                self.end_in(row, tsc);
                self.cursor.last_tsc = tsc;
                return Some(end);
            }
            (PLACE_ENTRY, Some(stood_at)) => (stood_at, place.callee()?),
            (THROUGH, Some(stood_at)) => {
                end += 1;
                let low = halves.get(record.end);
                (stood_at, self.recent_callee(low)?)
            }
            _ => return None,
        };
        let made = Made {
            place: stood_at,
            callee,
            caller: self.cursor.ordered.caller(record.id)?,
            is_tail: false,
            tsc,
            how: How::Stamped,
        };
        // As if it had been said where, and taken.
        self.cursor.ordered.next_at(None);
        self.add_to(row, made);
        self.cursor.last_tsc = tsc;
        Some(end)
    }
}
