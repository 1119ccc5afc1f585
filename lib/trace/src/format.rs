//! The trace file, byte by byte, and the primitives that write and read it.
//!
//! ```text
//! file     = magic "sptrace\n" (8), version u32, reserved u32 = 0, section*
//! section  = kind u8, check u24, length u32, crc u32, payload (length bytes, at most 64 MiB)
//!            check = low 24 bits of crc32(kind, length); crc = crc32(payload)
//! kind 1   header      the first section, exactly once
//! kind 2   dictionary  entries, each tag u8 + fields: 1 module, 2 function, 3 stream,
//!                      4 description (a string: what the values of a function mean),
//!                      5 kernel side (v: a stream, named before, of what the kernel did for its
//!                      thread; its frames lie inside those of the thread's other streams);
//!                      6 name (function v, string: what a function named before is called, as was
//!                      found out later; it counts more, and the last one most);
//!                      numbered from 0 in order of appearance, always before their first use
//! kind 3   block       events of one stream
//! kind 4   note        one event of a process, a module or the recording: [`crate::Note`]
//! kind 5   end         the summary; the last section of a trace that ended in order
//! kind 6   ring        after the header: the rest is not in this order, see [`crate::ring`]
//!
//! block    = stream v, first_tsc v, ticks v (last - first), events v, step v (ticks),
//!            packing u8 (1: the body is lz4, 2: calls without times), raw_length v (at most
//!            1 MiB), body
//! body     = hidden v, carried v, frame v * carried     frames open at the start of the block
//!            times_length v, operands_length v,
//!            kinds (events * 2 bits, padded to 8 bytes), times, operands
//!          with packing 2, after the frames: symbols v, spans_length v, times_length v,
//!            operands_length v, hits (symbols bits, padded to 8 bytes), spans, times, operands
//! frame    = function << 3 | past << 2 | entry (0 call, 1 tail, 2 open, 3 earlier), outermost
//!            first; past: it has left the view; `hidden` frames below the carried ones (at most
//!            256) are open but not named
//! kinds    = 0 exit, 1 enter the predicted function, 2 enter the function named by a v in
//!            operands, 3 another event: operation u8 and its fields in operands
//! times    = time since the event before (the first: since first_tsc): a byte below 224 counts
//!            steps; 224..=254 and a second byte: 224 + (byte - 224) * 256 + second steps;
//!            255: a v follows, in ticks
//! operation= 0 tail (function v), 1 tail to the predicted function, 2 open (function v),
//!            3 close open frames (count v), 4 unwound (count v), 5 resumed (function v),
//!            6 lost (count v), 7 blocked (ticks v), 8 began before the recording (function v),
//!            9 began before the fork (function v), 10 that, and its end is not seen (function v),
//!            11 what follows is outside of open frames (count v), 12 values (length v, as many
//!            bytes: [`crate::values`]), 13 what follows happened between `back` (v) ticks before
//!            this and `ahead` (v) ticks after it, as far as its times are earlier than that end;
//!            when exactly was not recorded: its order is certain, its times are estimates
//! hits     = of each symbol: 1 it is the foretold one, 0 it is a v in operands
//! symbol   = number << 8 | returned << 3 | what (0 call, 1 tail, of the function `number`, at a
//!            time of the span; 2 and 3 the same at a time in times; 4 nothing more; 5 operation
//!            `number`, its fields in operands; both at a time in times); `returned` calls end
//!            before it, 31: a v in operands says how many: at the same time, and at a time of the
//!            span number i of n a part i / (n + 1) of the way there from the moment before
//! spans    = each: calls << 1 | part v (so many symbols without times are in it, one at least),
//!            from v (less the time of the event before, the sign in the lowest bit), length v, and
//!            if part: before v, after v, else 0: before + calls + after moments lie evenly in it,
//!            each at from + its number * (length / (moments + 1)), in parts of 2^-32 ticks, but
//!            not before the event before; it begins with an event as of operation 13
//! ```
//! `v` is an unsigned LEB128 number of at most 64 bits; strings are a `v` length and UTF-8 bytes.
//! Fixed-size numbers are little-endian. Predictions come from [`crate::mirror`], with packing 2
//! from [`crate::foretell`]; both begin anew in every block, so that every block can be read with
//! nothing but the dictionary.

use crate::error::Malformed;

/// First bytes of every trace.
pub const MAGIC: [u8; 8] = *b"sptrace\n";
/// Version of the layout above.
pub const VERSION: u32 = 19;
/// Magic, version, reserved word.
pub const PREAMBLE_BYTES: usize = 16;
/// Payload of a ring section.
pub const RING_PAYLOAD_BYTES: usize = 7 * 8;
/// Kind, check, length, checksum.
pub const SECTION_HEADER_BYTES: usize = 12;
/// Upper bound of a section's payload.
pub const MAX_SECTION_BYTES: u32 = 64 << 20;
/// Upper bound of a block's body before compression.
pub const MAX_RAW_BYTES: usize = 1 << 20;
/// Frames that a block names of the stack that is open at its start.
pub const MAX_CARRIED: usize = 256;

/// Bits of a block's packing: its body is compressed by lz4.
pub const PACKED: u8 = 1;
/// Its body is that of calls without times.
pub const WITHOUT_TIMES: u8 = 2;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SectionKind {
    /// What was traced, where and when.
    Header = 1,
    /// Modules, functions and streams.
    Dictionary = 2,
    /// Events of one stream.
    Block = 3,
    /// A process event.
    Note = 4,
    /// The summary.
    End = 5,
    /// Where the sections of a ring lie.
    Ring = 6,
}

impl SectionKind {
    /// The kind written as `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Header,
            2 => Self::Dictionary,
            3 => Self::Block,
            4 => Self::Note,
            5 => Self::End,
            6 => Self::Ring,
            _ => return None,
        })
    }
}

/// The 24 bits that protect kind and length.
pub fn header_check(kind: u8, length: u32) -> u32 {
    let mut bytes = [kind, 0, 0, 0, 0];
    bytes[1..].copy_from_slice(&length.to_le_bytes());
    crc32fast::hash(&bytes) & 0x00ff_ffff
}

/// Appends a whole section to `out`.
pub fn put_section(out: &mut Vec<u8>, kind: SectionKind, payload: &[u8]) {
    let length = payload.len() as u32;
    let check = header_check(kind as u8, length).to_le_bytes();
    out.push(kind as u8);
    out.extend_from_slice(&check[..3]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Appends `value` as LEB128.
#[inline]
pub fn put_v(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-prefixed string.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends length-prefixed bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_v(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes being read; every read is checked against what is left.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Nothing left?
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(first)
    }
    /// A LEB128 number.
    #[inline]
    pub fn v(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed("a number does not fit 64 bits"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("a number does not end"))
    }
    /// A LEB128 number that must fit 32 bits.
    pub fn v32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.v()?).map_err(|_| Malformed("a number does not fit 32 bits"))
    }
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        if count > self.rest.len() {
            return Err(SHORT);
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }
    /// Length-prefixed bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(self.v()?).map_err(|_| SHORT)?;
        self.take(count)
    }
    /// A length-prefixed string; bytes that are no UTF-8 are replaced, not refused.
    pub fn string(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

const SHORT: Malformed = Malformed("a section is shorter than its content");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_v(&mut out, value);
            assert_eq!(Cursor::new(&out).v(), Ok(value));
        }
        assert!(Cursor::new(&[0xff; 11]).v().is_err());
        assert!(Cursor::new(&[0x80]).v().is_err());
    }

    #[test]
    fn a_string_longer_than_the_bytes_is_refused_without_allocation() {
        let mut out = Vec::new();
        put_v(&mut out, u64::MAX);
        assert!(Cursor::new(&out).string().is_err());
    }
}
