//! Records of what calls of functions brought with them.
//!
//! Part of the [`Decoder`]. The layout is in `sptrace_wire::values`; how many words a call has, its
//! description says. Must not know what a word means.

use sptrace_trace::values::{Acted, UNKNOWN_NUMBER, Values, What};
use sptrace_wire::record::{
    ACTED_DELAY, ACTED_ERRNO, ACTED_NOT, ACTED_RESULT, ACTED_SIGNAL, ACTED_SYSTEM,
};

use super::Decoder;
use super::sink::Sink;
use super::system_call::{pieces_of, word};

/// rax, rdx, xmm0 and errno; of a result that is all in rax, and is no failure, the others may be
/// missing, which are zero then.
const RETURN_BYTES: usize = 4 * 8;

impl<S: Sink> Decoder<'_, S> {
    /// Of a call that has just begun. False: what comes from here on is not wanted.
    pub(super) fn call_values(&mut self, tsc: u64, number: u32, bytes: &[u8]) -> bool {
        let Some((number, words)) = self.described(tsc, number) else {
            return false;
        };
        let values = Values {
            number,
            thread: 0,
            what: What::Called((0..words).map(|i| word(bytes, 8 * i)).collect()),
            pieces: pieces_of(bytes.get(8 * words..).unwrap_or(&[])),
        };
        if !self.sink.leaves_out() {
            self.tell_values(tsc, &values);
        }
        true
    }

    /// Of a call that ends next. False: what comes from here on is not wanted.
    pub(super) fn return_values(&mut self, tsc: u64, number: u32, bytes: &[u8]) -> bool {
        let Some((number, _)) = self.described(tsc, number) else {
            return false;
        };
        let values = Values {
            number,
            thread: 0,
            what: What::Answered {
                words: std::array::from_fn(|i| word(bytes, 8 * i)),
                errno: word(bytes, 24) as u32,
            },
            pieces: pieces_of(bytes.get(RETURN_BYTES..).unwrap_or(&[])),
        };
        self.end_inside(tsc);
        if !self.sink.leaves_out() {
            self.tell_values(tsc, &values);
        }
        true
    }

    /// Of a call that has just begun: what a payload has done to it. False: what comes from here on
    /// is not wanted.
    pub(super) fn acted(&mut self, tsc: u64, bits: u32, bytes: &[u8]) -> bool {
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        self.settle_lazy(None);
        let value = |bit: u32, i: usize| (bits & bit != 0).then(|| word(bytes, 8 * i));
        let values = Values {
            number: UNKNOWN_NUMBER,
            thread: 0,
            what: What::Acted(Acted {
                is_of_kernel: bits & ACTED_SYSTEM != 0,
                result: value(ACTED_RESULT, 0),
                errno: value(ACTED_ERRNO, 1).map(|errno| errno as u32),
                delay_ns: value(ACTED_DELAY, 2),
                signal: value(ACTED_SIGNAL, 3).map(|signal| signal as u32),
                is_less: bits & ACTED_NOT != 0,
            }),
            pieces: Vec::new(),
        };
        self.tell_values(tsc, &values);
        true
    }

    /// The trace's number and the words of a description. `None`: no more is wanted.
    fn described(&mut self, tsc: u64, number: u32) -> Option<(u32, usize)> {
        if !self.sink.come_to(tsc, 1) {
            return None;
        }
        self.settle_lazy(None);
        let found = self.book.description(number, self.sink);
        self.torn.nonsense += u64::from(found.is_none());
        Some(found.unwrap_or((u32::MAX, 0)))
    }
}
