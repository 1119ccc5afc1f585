//! What an event brought with it: the numbers and the memory of a call, of the kernel or of a
//! function.
//!
//! ```text
//! values   = what u8, number v (UNKNOWN_NUMBER: not known), thread v (0: the stream's own),
//!            what 0, a call begins:     argument v * 6
//!            what 1, it has returned:   result v (as two's complement)
//!            what 2, it was left without a return
//!            what 3, one that was told without its end has returned: result v
//!            what 4, a call of a function begins: words v, word v * words
//!            what 5, it has returned: result v * 3 (rax, rdx, xmm0), errno v (0: no failure)
//!            what 6, the signal of this number is delivered to a handler; its pieces are the
//!                    siginfo_t (when 0), if that is known, and (when 2) what the handler goes
//!                    back to: rax, rcx, rsp and rip, and the signal mask; then those that the call
//!                    will have that it has interrupted at its end
//!            what 7, a payload has changed what the program does at the call of a function that
//!                    has just begun, what 8, of the kernel: bits v (1 result, 2 errno, 4 delay, 8
//!                    signal, 16: less than was wanted), then a v for each of the first four
//!            piece *
//! For functions the number is that of a description in the dictionary.
//! piece    = when u8 (0 before the call, 1 after it, unless it failed, 2 after it), address v,
//!            bytes v, the bytes
//! ```
//! They follow the beginning of the call's frame, and stand before its end; those of 3 and 6
//! stand alone.
//! Made by the collector, read by the views that show them. Must not know what a number means.

use crate::error::Malformed;
use crate::format::{Cursor, put_bytes, put_v};

/// [`Values::number`]: not known.
pub const UNKNOWN_NUMBER: u32 = u32::MAX;

/// What a call of the kernel brought with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values<'a> {
    /// Which call.
    pub number: u32,
    /// The thread, if it is another than the stream's: a vfork(2) child, in its parent's memory.
    pub thread: u32,
    /// What happened.
    pub what: What,
    /// Memory, in the order in which it was read.
    pub pieces: Vec<Piece<'a>>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It begins, with these arguments.
    Begins([u64; 6]),
    /// It has returned this; errors as the kernel returns them.
    Returned(i64),
    /// It has ended without a return: a handler jumped out of it.
    Left,
    /// One whose beginning stands alone has returned this.
    ReturnedLate(i64),
    /// A call of a function begins, with these words.
    Called(Vec<u64>),
    /// It has returned.
    Answered {
        /// rax, rdx, and the lower half of xmm0.
        words: [u64; 3],
        /// Why it has failed; 0: it has not.
        errno: u32,
    },
    /// A signal is delivered to a handler; the number is the signal's.
    Signal,
    /// A payload has changed what the program does at the call that has just begun.
    Acted(Acted),
}

/// What a payload has done to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// The call is one of the kernel.
    pub is_of_kernel: bool,
    /// It was not made, and has this result.
    pub result: Option<u64>,
    /// It was not made, and errno is this.
    pub errno: Option<u32>,
    /// The thread has waited before it, so many nanoseconds.
    pub delay_ns: Option<u64>,
    /// This signal was raised before it.
    pub signal: Option<u32>,
    /// Not all could be done that was wanted.
    pub is_less: bool,
}

impl Acted {
    /// The call was not made.
    pub fn is_skipped(&self) -> bool {
        self.result.is_some() || self.errno.is_some()
    }

    fn put(&self, out: &mut Vec<u8>) {
        let words = [
            self.result,
            self.errno.map(u64::from),
            self.delay_ns,
            self.signal.map(u64::from),
        ];
        let bit = |(i, word): (u32, &Option<u64>)| u64::from(word.is_some()) << i;
        let bits: u64 = (0..).zip(&words).map(bit).sum();
        put_v(out, bits | u64::from(self.is_less) << 4);
        words.iter().flatten().for_each(|word| put_v(out, *word));
    }

    fn read(from: &mut Cursor<'_>, is_of_kernel: bool) -> Result<Self, Malformed> {
        let bits = from.v()?;
        let mut word = |i: u32| match bits & 1 << i {
            0 => Ok(None),
            _ => from.v().map(Some),
        };
        let [result, errno, delay_ns, signal] = [word(0)?, word(1)?, word(2)?, word(3)?];
        Ok(Self {
            is_of_kernel,
            result,
            errno: errno.map(|errno| errno as u32),
            delay_ns,
            signal: signal.map(|signal| signal as u32),
            is_less: bits & 16 != 0,
        })
    }
}

/// Memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// 0: before the call, 1: after it, unless it failed, 2: after it.
    pub when: u8,
    /// Where.
    pub address: u64,
    /// What; fewer than asked for if memory ended.
    pub bytes: &'a [u8],
}

/// Are these the bytes of a function's values, and not of a system call's?
pub(crate) fn is_of_function(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(4 | 5 | 7))
}

impl<'a> Values<'a> {
    /// Appends the bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(match self.what {
            What::Begins(_) => 0,
            What::Returned(_) => 1,
            What::Left => 2,
            What::ReturnedLate(_) => 3,
            What::Called(_) => 4,
            What::Answered { .. } => 5,
            What::Signal => 6,
            What::Acted(acted) => 7 + u8::from(acted.is_of_kernel),
        });
        put_v(out, self.number.into());
        put_v(out, self.thread.into());
        match &self.what {
            What::Begins(args) => args.iter().for_each(|arg| put_v(out, *arg)),
            What::Returned(result) | What::ReturnedLate(result) => put_v(out, *result as u64),
            What::Left | What::Signal => {}
            What::Acted(acted) => acted.put(out),
            What::Called(words) => {
                put_v(out, words.len() as u64);
                words.iter().for_each(|word| put_v(out, *word));
            }
            What::Answered { words, errno } => {
                words.iter().for_each(|word| put_v(out, *word));
                put_v(out, (*errno).into());
            }
        }
        for piece in &self.pieces {
            out.push(piece.when);
            put_v(out, piece.address);
            put_bytes(out, piece.bytes);
        }
    }

    /// From their bytes.
    ///
    /// # Errors
    /// They end too early, or contradict the format.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes);
        let what = from.u8()?;
        let (number, thread) = (from.v32()?, from.v32()?);
        let what = match what {
            0 => {
                let mut args = [0; 6];
                for arg in &mut args {
                    *arg = from.v()?;
                }
                What::Begins(args)
            }
            1 => What::Returned(from.v()? as i64),
            2 => What::Left,
            3 => What::ReturnedLate(from.v()? as i64),
            4 => {
                let count = from.v()?;
                let mut words = Vec::new();
                for _ in 0..count {
                    words.push(from.v()?);
                }
                What::Called(words)
            }
            5 => What::Answered {
                words: [from.v()?, from.v()?, from.v()?],
                errno: from.v32()?,
            },
            6 => What::Signal,
            7 | 8 => What::Acted(Acted::read(&mut from, what == 8)?),
            _ => return Err(Malformed("values of an unknown kind")),
        };
        let mut pieces = Vec::new();
        while !from.is_empty() {
            pieces.push(Piece {
                when: from.u8()?,
                address: from.v()?,
                bytes: from.bytes()?,
            });
        }
        Ok(Self {
            number,
            thread,
            what,
            pieces,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive() {
        let piece = |when, address, bytes| Piece {
            when,
            address,
            bytes,
        };
        let all = [
            What::Begins([1, 2, u64::MAX, 4, 5, 6]),
            What::Returned(-2),
            What::Left,
            What::ReturnedLate(7),
            What::Called(vec![3, u64::MAX]),
            What::Answered {
                words: [1, 2, 3],
                errno: 2,
            },
            What::Signal,
            What::Acted(Acted {
                errno: Some(12),
                result: Some(u64::MAX),
                ..Acted::default()
            }),
            What::Acted(Acted {
                is_of_kernel: true,
                delay_ns: Some(1 << 40),
                signal: Some(10),
                is_less: true,
                ..Acted::default()
            }),
        ];
        for what in all {
            let values = Values {
                number: 257,
                thread: 0,
                what,
                pieces: vec![piece(0, 0x7fff_0000_1234, b"/etc\0"), piece(2, 8, b"")],
            };
            let mut out = Vec::new();
            values.put(&mut out);
            assert_eq!(Values::read(&out), Ok(values));
            // What is cut off is refused, or has fewer pieces.
            for length in 0..out.len() {
                if let Ok(cut) = Values::read(&out[..length]) {
                    assert!(cut.pieces.len() < 2);
                }
            }
        }
    }
}
