//! Records of calls of the kernel and of signals: frames of functions that stand for the calls, and
//! what they brought with them.
//!
//! Part of the [`Decoder`]. The layout is in `sptrace_wire::values`, that of what the trace gets in
//! [`sptrace_trace::values`]. Must not know what a number or an argument means.

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::values::{Piece, Values, What};
use sptrace_wire::record::{CALL_ALONE, LEFT, RETURNED};
use sptrace_wire::values::{CALL_BYTES, RETURN_BYTES, SIGNAL_BYTES, When, pieces};

use super::Decoder;
use super::mixed::How;
use super::sink::Sink;

/// The bytes of a record, in the place of what `to` held.
pub(super) fn copy(halves: &[AtomicU32], to: &mut Vec<u8>) {
    to.clear();
    to.reserve(size_of_val(halves));
    for half in halves {
        to.extend_from_slice(&half.load(Ordering::Relaxed).to_le_bytes());
    }
}

/// A little-endian number of eight bytes.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

pub(super) fn pieces_of(bytes: &[u8]) -> Vec<Piece<'_>> {
    let read = |(piece, bytes): (sptrace_wire::values::Piece, _)| Piece {
        when: match piece.when {
            When::Before => 0,
            When::After => 1,
            When::AfterAll => 2,
        },
        address: piece.address,
        bytes,
    };
    pieces(bytes).map(read).collect()
}

impl<S: Sink> Decoder<'_, S> {
    /// A call begins. False: what comes from here on is not wanted.
    pub(super) fn system_call(&mut self, tsc: u64, low: u32, bytes: &[u8]) -> bool {
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        self.settle_lazy(None);
        let number = low & !CALL_ALONE;
        let callee = self.book.system_call(number, self.sink);
        if self.cursor.ordered.is_mixed() {
            let place = (word(bytes, 0) >> 32) as u32;
            let place = (place != 0).then_some(place);
            self.begin_told(tsc, (callee, None), place, How::Stamped);
        }
        self.sink.enter_kernel(tsc, callee);
        let argument = |i: usize| word(bytes, 8 + 8 * i);
        let values = Values {
            number,
            thread: word(bytes, 0) as u32,
            what: What::Begins(std::array::from_fn(argument)),
            pieces: pieces_of(bytes.get(CALL_BYTES..).unwrap_or(&[])),
        };
        self.tell_values(tsc, &values);
        if low & CALL_ALONE != 0 {
            self.returned(tsc);
        }
        true
    }

    /// A call ends. False: what comes from here on is not wanted.
    pub(super) fn system_return(&mut self, tsc: u64, how: u32, bytes: &[u8]) -> bool {
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        self.settle_lazy(None);
        let (first, result) = (word(bytes, 0), word(bytes, 8) as i64);
        let values = Values {
            number: first as u32,
            thread: (first >> 32) as u32,
            what: match how {
                RETURNED => What::Returned(result),
                LEFT => What::Left,
                _ => What::ReturnedLate(result),
            },
            pieces: pieces_of(bytes.get(RETURN_BYTES..).unwrap_or(&[])),
        };
        self.tell_values(tsc, &values);
        match how {
            RETURNED => self.returned(tsc),
            LEFT if self.cursor.ordered.is_mixed() => self.leave_told(tsc, 1, false),
            LEFT => self.sink.unwound(tsc, 1),
            _ => {}
        }
        true
    }

    /// A signal is delivered. False: what comes from here on is not wanted.
    pub(super) fn signal(&mut self, tsc: u64, number: u32, bytes: &[u8]) -> bool {
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        self.settle_lazy(None);
        let values = Values {
            number,
            thread: word(bytes, 0) as u32,
            what: What::Signal,
            pieces: pieces_of(bytes.get(SIGNAL_BYTES..).unwrap_or(&[])),
        };
        self.tell_values(tsc, &values);
        true
    }

    pub(super) fn tell_values(&mut self, tsc: u64, values: &Values<'_>) {
        let mut bytes = std::mem::take(&mut self.cursor.room[1]);
        bytes.clear();
        values.put(&mut bytes);
        self.sink.values(tsc, &bytes);
        self.cursor.room[1] = bytes;
    }
}
