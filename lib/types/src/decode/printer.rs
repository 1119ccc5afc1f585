//! The text of a call while it is made, and the memory that it is made from.
//!
//! Must not know: types of values.

use super::call::{Made, Options};
use super::capture::number;
use super::types::{Len, Phase};
use super::{scalar, text};

pub(super) struct Printer<'a> {
    pub(super) made: Made<'a>,
    pub(super) options: Options<'a>,
    pub(super) out: String,
    pub(super) known_before: Option<usize>,
    pub(super) phase: Phase,
    /// Bytes of the result that buffers have not yet taken.
    pub(super) left: Option<u64>,
    /// The structure that holds the pointer that is followed.
    pub(super) element: Vec<u8>,
    /// Where it is.
    pub(super) element_at: u64,
}

impl Printer<'_> {
    pub(super) fn failed(&self) -> bool {
        self.made
            .result
            .is_none_or(|value| (-4095..0).contains(&value))
    }

    pub(super) fn arg(&self, index: u8) -> u64 {
        self.made.args.get(index as usize).copied().unwrap_or(0)
    }

    /// Reads exactly so many bytes.
    pub(super) fn exactly(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let read = self.made.memory.read(self.phase, address, bytes);
        (read.len() == bytes).then(|| read.to_vec())
    }

    /// A length, by its rule.
    pub(super) fn length(&self, len: Len) -> u64 {
        let returned = u64::try_from(self.made.result.unwrap_or(0)).unwrap_or(0);
        match len {
            Len::Const(count) => u64::from(count),
            Len::Arg(index) => self.arg(index),
            Len::Product(a, b) => self.arg(a).saturating_mul(self.arg(b)),
            Len::Result => returned,
            Len::ArgOrResult(index) => returned.min(self.arg(index)),
            Len::Field(offset, width) => number(&self.element, offset, width),
            Len::Behind(index) => {
                let read = self.made.memory.read(self.phase, self.arg(index), 4);
                if read.len() == 4 {
                    number(read, 0, 4)
                } else {
                    0
                }
            }
        }
    }

    pub(super) fn string(&mut self, whole: bool, address: u64) -> bool {
        let limit = if whole {
            4095
        } else {
            self.options.string_limit
        };
        let read = self
            .made
            .memory
            .read(self.phase, address, limit + 1)
            .to_vec();
        match read.iter().position(|b| *b == 0) {
            Some(end) => {
                let shown = read.get(..end).unwrap_or(&read);
                text::quote(shown, false, self.options.hex, &mut self.out);
            }
            None if read.len() > limit => {
                let shown = read.get(..limit).unwrap_or(&read);
                text::quote(shown, true, self.options.hex, &mut self.out);
            }
            None => return false,
        }
        true
    }

    /// A string whose pointer and length are in memory.
    pub(super) fn owned(&mut self, address: u64, pointer: u16, length: u16) -> bool {
        let Some(fields) = self.exactly(address, usize::from(pointer.max(length)) + 8) else {
            return false;
        };
        let (at, bytes) = (number(&fields, pointer, 8), number(&fields, length, 8));
        self.owned_at(at, bytes);
        true
    }

    /// So many bytes at an address, or the address.
    pub(super) fn owned_at(&mut self, at: u64, bytes: u64) {
        let before = self.out.len();
        if bytes == 0 {
            self.out.push_str("\"\"");
        } else if !self.bytes(at, bytes) {
            self.out.truncate(before);
            scalar::address(at, &mut self.out);
        }
    }

    pub(super) fn bytes(&mut self, address: u64, bytes: u64) -> bool {
        let limit = self.options.string_limit as u64;
        let wanted = usize::try_from(bytes.min(limit)).unwrap_or(0);
        let Some(read) = self.exactly(address, wanted) else {
            return false;
        };
        text::quote(&read, bytes > limit, self.options.hex, &mut self.out);
        true
    }

    /// Writes a string that ends with 0, or after so many bytes.
    pub(super) fn limited(&mut self, address: u64, bytes: u64, is_all: bool) -> bool {
        let limit = self.options.string_limit as u64;
        let wanted = usize::try_from(bytes.min(limit)).unwrap_or(0);
        let read = self.made.memory.read(self.phase, address, wanted);
        let end = read.iter().position(|byte| *byte == 0);
        if end.is_none() && read.len() < wanted {
            return false;
        }
        let text = read.get(..end.unwrap_or(wanted)).unwrap_or(read);
        let is_cut = end.is_none() && (bytes > limit || is_all);
        text::quote(text, is_cut, self.options.hex, &mut self.out);
        true
    }
}
