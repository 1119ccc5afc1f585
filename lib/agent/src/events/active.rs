//! What payloads do to calls: a call that is not made, errno, a delay, a signal.
//!
//! Given what the code of a payload has said in the thread's block (`sptrace-payload`, `Act`), for
//! a call whose beginning has been recorded; records what is done, does it, and gives the result of
//! a call that is not made. Its caller knows by which way a slot is left behind the call. With
//! signals blocked: one that is raised is delivered when the slow path is left. Must not know
//! which calls a script means.

use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::memory::{host, sandbox, state, sys};
use crate::record::{chunk, settle};
use sptrace_wire::control::hole;
use sptrace_wire::plan::{
    DEPTH, FIELDS, FunctionValues, TEXT_BYTES, TEXTS, TOLD_BYTES, TOLD_TEXT, WHOLE_TEXT, text,
};
use sptrace_wire::record::{
    ACTED, ACTED_DELAY, ACTED_ERRNO, ACTED_NOT, ACTED_RESULT, ACTED_SIGNAL, ACTED_SYSTEM,
};

/// A delay ends early if the host is gone: looked at so often.
const SLICE_NS: u64 = 100_000_000;
/// The call is not made.
const SKIPS: u32 = ACTED_RESULT | ACTED_ERRNO;

/// What a payload wants to be done to a call.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    bits: u32,
    /// By the bits' numbers.
    words: [u64; 4],
}

/// How a call can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Of a function; where errno of the thread lies, if that is known.
    Function(Option<u64>),
    /// Of the kernel.
    System,
    /// It cannot.
    Unavoidable,
    /// The same, of the kernel.
    UnavoidableSystem,
}

impl Orders {
    /// Before the code runs: nothing is said yet, and the words of texts are those of this call,
    /// before which the stack pointer was `rsp`.
    pub fn prepare(hot: &Hot, (arguments, rsp): (&[u64; 6], u64), of: &FunctionValues) {
        hot.active.set([0; 5]);
        find_texts(hot, of.texts, (arguments, rsp));
    }

    /// After it: what it has said.
    pub fn take(hot: &Hot) -> Self {
        let [bits, result, errno, delay, signal] = hot.active.get();
        hot.active.set([0; 5]);
        Self {
            bits: bits as u32,
            words: [result, errno, delay, signal],
        }
    }

    /// Is there anything to do?
    pub fn is_any(&self) -> bool {
        self.bits != 0
    }

    /// Is the call not to be made?
    pub fn skips(&self) -> bool {
        self.bits & SKIPS != 0
    }

    /// Does it; gives the result of the call, if it is not to be made.
    pub fn carry_out(&self, hot: &Hot, place: Place) -> Option<u64> {
        if !self.is_any() {
            return None;
        }
        let bits = self.possible(place);
        let is_system = matches!(place, Place::System | Place::UnavoidableSystem);
        let of = if is_system { ACTED_SYSTEM } else { 0 };
        chunk::put_values(hot, ACTED, bits | of, &self.words, &[]);
        count(bits);
        let [result, errno, delay_ns, signal] = self.words;
        if bits & ACTED_DELAY != 0 {
            wait(delay_ns);
        }
        if bits & ACTED_SIGNAL != 0 {
            sys::raise(signal as u32);
        }
        if bits & SKIPS == 0 {
            return None;
        }
        match place {
            Place::Function(Some(at)) if bits & ACTED_ERRNO != 0 => {
                // SAFETY: errno of this thread: the word has just been read.
                unsafe { (at as *mut u32).write_volatile(errno as u32) };
            }
            Place::System if bits & ACTED_ERRNO != 0 => return Some(errno.wrapping_neg()),
            _ => {}
        }
        Some(result)
    }

    /// What of it can be done here.
    fn possible(&self, place: Place) -> u32 {
        let mut bits = self.bits;
        let can_skip = match place {
            Place::Function(None) => bits & ACTED_ERRNO == 0,
            Place::Function(Some(at)) => {
                bits & ACTED_ERRNO == 0 || at.is_multiple_of(4) && sys::read::<4>(at).is_some()
            }
            Place::System => true,
            Place::Unavoidable | Place::UnavoidableSystem => false,
        };
        if bits & SKIPS != 0 && !can_skip {
            bits = bits & !SKIPS | ACTED_NOT;
        }
        if bits & ACTED_SIGNAL != 0 && sandbox::is_sandboxed() {
            bits = bits & !ACTED_SIGNAL | ACTED_NOT;
        }
        bits
    }
}

/// Finds the texts out for code that is about to run, at these words: the arguments of a call, or
/// what was kept for a return, and its result. `rsp` was the stack pointer before the call.
pub fn find_texts(hot: &Hot, texts: u64, (words, rsp): (&[u64], u64)) {
    let kept = room_for_texts(hot, texts);
    hot.told
        .set(kept.first().map_or(0, |first| first.as_ptr() as u64));
    let mut word = |i: usize| {
        let (number, length) = text(texts, i)?;
        if (number, length) == DEPTH {
            return Some(u64::from(settle::depth_around(hot, rsp)));
        }
        let at = *words.get(usize::from(number))?;
        Some(match length {
            TOLD_TEXT => {
                let told = kept.get_mut(i)?;
                told.fill(0);
                text_word(at, WHOLE_TEXT, told)
            }
            FIELDS..TOLD_TEXT => field_word(at, length),
            _ => text_word(at, length, &mut []),
        })
    };
    let found: [u64; TEXTS] = core::array::from_fn(|i| word(i).unwrap_or(0));
    hot.texts.set(found);
}

fn count(bits: u32) {
    let counted = [
        (SKIPS, hole::NOT_CALLED),
        (ACTED_DELAY, hole::DELAYED),
        (ACTED_SIGNAL, hole::RAISED),
        (ACTED_NOT, hole::NOT_CHANGED),
    ];
    for (of, place) in counted {
        if bits & of != 0 {
            state::count_hole(place);
        }
    }
}

fn wait(mut ns: u64) {
    while ns > 0 && !host::host_is_gone() {
        let slice = ns.min(SLICE_NS);
        sys::wait_ns(slice);
        ns -= slice;
    }
}

/// Room for the beginnings of texts, if one of them is a key: it is needed while the code runs.
fn room_for_texts(hot: &Hot, texts: u64) -> &'static mut [[u8; TOLD_BYTES]] {
    let is_told = |i| text(texts, i).is_some_and(|(_, length)| length == TOLD_TEXT);
    if !(0..TEXTS).any(is_told) {
        return &mut [];
    }
    // SAFETY: this thread's own block; nothing of a call or a return is captured before its payload
    // has run.
    let room = unsafe { hot.pieces() }.unwrap_or(&mut []);
    let (kept, _) = room.as_chunks_mut::<TOLD_BYTES>();
    kept.get_mut(..TEXTS).unwrap_or(&mut [])
}

/// The word of a text, as `sptrace-payload` makes it, and its beginning; 0: it cannot be read, or
/// is shorter.
fn text_word(address: u64, length: u16, told: &mut [u8]) -> u64 {
    let (most, is_whole) = match length {
        WHOLE_TEXT => (TEXT_BYTES, true),
        length => (usize::from(length), false),
    };
    let (mut word, mut read) = (TEXT_START, 0);
    let mut buffer = [0u8; 256];
    while read < most {
        let wanted = buffer.len().min(most - read);
        let bytes = buffer.get_mut(..wanted).unwrap_or(&mut []);
        let got = sys::read_into(address.wrapping_add(read as u64), bytes);
        if got == 0 {
            return 0;
        }
        for (i, byte) in bytes.iter().take(got).enumerate() {
            if let Some(place) = told.get_mut(read + i) {
                *place = *byte;
            }
            word = (word ^ u64::from(*byte)).wrapping_mul(TEXT_PRIME);
            if *byte == 0 {
                return if is_whole { word.max(1) } else { 0 };
            }
        }
        read += got;
    }
    if is_whole { 0 } else { word.max(1) }
}

/// The bytes in which a field lies; zeros for those that cannot be read.
fn field_word(address: u64, length: u16) -> u64 {
    let mut bytes = [0; 8];
    let behind = 8 * u64::from(length.wrapping_sub(FIELDS));
    sys::read_into(address.wrapping_add(behind), &mut bytes);
    u64::from_le_bytes(bytes)
}

/// FNV-1a of 64 bits.
const TEXT_START: u64 = 0xcbf2_9ce4_8422_2325;
const TEXT_PRIME: u64 = 0x0100_0000_01b3;

/// The arguments of a call of a function, as they are in registers.
pub fn arguments(f: &Frame) -> [u64; 6] {
    let [_, _, r9] = f.r11_r10_r9;
    [f.rdi, f.rsi, f.rdx, f.rcx, f.r8, r9]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::page_before_nothing;

    #[test]
    fn a_text_is_compared_by_its_word() {
        let text_word = |at, length| super::text_word(at, length, &mut []);
        let end = page_before_nothing(b"/etc\0");
        let at = end - 5;
        assert_ne!(text_word(at, WHOLE_TEXT), text_word(at, 4));
        // Shorter than that, or not there.
        assert_eq!(text_word(at, 5), 0);
        assert_eq!(text_word(end, WHOLE_TEXT), 0);
        assert_eq!(text_word(end - 1, 1), 0);
        // What does not end is no whole text.
        let end = page_before_nothing(b"xxx");
        assert_eq!(text_word(end - 3, WHOLE_TEXT), 0);
        assert_ne!(text_word(end - 3, 3), 0);
    }

    #[test]
    fn a_field_is_read_as_far_as_it_is_there() {
        let end = page_before_nothing(b"12345678\x05\0\0");
        assert_eq!(field_word(end - 11, FIELDS + 1), 5);
        assert_eq!(
            field_word(end - 11, FIELDS),
            u64::from_le_bytes(*b"12345678")
        );
        assert_eq!(field_word(end, FIELDS), 0);
        assert_eq!(field_word(0, FIELDS + 3), 0);
        assert_eq!(field_word(u64::MAX, FIELDS), 0);
    }

    #[test]
    fn the_beginning_of_a_key_is_kept() {
        let end = page_before_nothing(b"/etc\0");
        let (mut told, mut short) = ([7; 6], [0; 2]);
        let word = text_word(end - 5, WHOLE_TEXT, &mut told);
        assert_eq!(
            (word, told),
            (
                super::text_word(end - 5, WHOLE_TEXT, &mut short),
                *b"/etc\0\x07"
            )
        );
        assert_eq!(short, *b"/e");
    }
}
