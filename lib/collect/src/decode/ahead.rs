//! How long the calls last that were recorded last, before it is their turn to be read.
//!
//! Part of the [`Decoder`]. A host that is behind learns from what it reads what a program did long
//! ago. So a chunk that came last is looked through for calls with stamps that began and ended in
//! it; its records are read later, as if this had not been. Must not know what follows from
//! lengths.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;

use sptrace_trace::FunctionId;

use super::Decoder;
use super::mixed::Length;
use super::module::{PLACE_ENTRY, PLACE_EXIT, PLACE_INDIRECT, PLACE_OPEN, PLACE_TAIL};
use super::record::{Call, Record};
use super::sink::Sink;

impl<S: Sink> Decoder<'_, S> {
    /// Adds how long the calls with stamps lasted that lie in these words, each as so many.
    pub fn lengths_ahead(
        &mut self,
        halves: &[AtomicU32],
        weight: u32,
        lengths: &mut HashMap<FunctionId, Length>,
    ) {
        let mut open: Vec<(Option<FunctionId>, u32)> = Vec::new();
        let mut at = 0;
        while at < halves.len() {
            let (record, length) = Record::read(halves, at, self.areas);
            at += length;
            let call = match record {
                Record::Call(call) if !call.place.is_in_order() => call,
                // Some have ended without a record of their own.
                Record::Control { .. } | Record::Valued(_) => {
                    open.clear();
                    continue;
                }
                _ => continue,
            };
            const NOT_PAIRED: u8 = PLACE_TAIL | PLACE_OPEN;
            match call.place.kind() {
                PLACE_EXIT => {
                    if let Some((Some(function), begun)) = open.pop() {
                        let ticks = u64::from(call.stamp.wrapping_sub(begun)) * u64::from(weight);
                        lengths.entry(function).or_default().add(Length {
                            stamped: weight,
                            in_order: 0,
                            ticks,
                            longest: ticks,
                            longest_calls: weight,
                        });
                    }
                }
                kind if kind & PLACE_ENTRY != 0 && kind & NOT_PAIRED == 0 => {
                    open.push((self.callee_ahead(&call), call.stamp));
                }
                _ => {}
            }
        }
    }

    /// Whom it calls, if that can be said at once.
    fn callee_ahead(&mut self, call: &Call) -> Option<FunctionId> {
        if call.place.kind() & PLACE_INDIRECT != 0 {
            return self.book.recent_callee(self.cursor.pid, call.low);
        }
        let known = call.place.callee();
        Some(known.unwrap_or_else(|| self.book.direct_callee(call.from, call.place, self.sink)))
    }
}
