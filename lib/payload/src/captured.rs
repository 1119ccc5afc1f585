//! What a program has kept: the words, then a row of parts, each with a header of eight bytes.
//!
//! ```text
//! header   tag u8, kind u8 (0 word, 1 bytes, 2 text), kept u16,
//!          high u32: asked (30 bits, of text: kept), cut by the limit (bit 30), by a fault
//!          (bit 31)
//! body     kept bytes, then zeros up to a multiple of eight
//! ```

use thiserror::Error;

/// `high`: no more was kept because of the limit.
pub const CUT: u32 = 1 << 30;
/// `high`: no more was kept because the rest cannot be read.
pub const FAULT: u32 = 1 << 31;
/// The greatest length that a header can tell.
pub const MOST_ASKED: u64 = CUT as u64 - 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A word.
    Word = 0,
    /// Bytes of a given number.
    Bytes = 1,
    /// Bytes up to a zero.
    Text = 2,
}

/// The first four bytes of a header, but for the number of bytes.
pub(crate) const fn tagged(tag: u8, kind: Kind) -> u64 {
    tag as u64 | (kind as u64) << 8
}

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The statement's.
    pub tag: u8,
    /// What it is.
    pub kind: Kind,
    /// What was kept.
    pub bytes: &'a [u8],
    /// How many bytes were asked for.
    pub asked: u32,
    /// The limit has cut it off.
    pub is_cut: bool,
    /// What follows could not be read.
    pub is_faulted: bool,
}

impl Part<'_> {
    /// The word, of a part that is one.
    pub fn word(&self) -> Option<u64> {
        match self.kind {
            Kind::Word => Some(u64::from_le_bytes(self.bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// What is not as a program leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("what was kept at a call is torn at byte {0}")]
pub struct Torn(pub usize);

/// The words of a program that has `words` of them, and the bytes of its parts.
///
/// # Errors
/// There are not so many bytes.
pub fn words(kept: &[u8], words: usize) -> Result<(impl Iterator<Item = u64> + '_, &[u8]), Torn> {
    let (words, parts) = kept.split_at_checked(words * 8).ok_or(Torn(kept.len()))?;
    let words = words.chunks_exact(8);
    Ok((
        words.map(|w| w.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b))),
        parts,
    ))
}

/// The parts, one after another; an error is the last.
pub fn parts(kept: &[u8]) -> impl Iterator<Item = Result<Part<'_>, Torn>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= kept.len() {
            return None;
        }
        let part = part_at(kept, at);
        at = match &part {
            Some(part) => at + HEADER_BYTES + part.bytes.len().next_multiple_of(8),
            None => kept.len(),
        };
        Some(part.ok_or(Torn(at)))
    })
}

fn part_at(kept: &[u8], at: usize) -> Option<Part<'_>> {
    let (header, rest) = kept.get(at..)?.split_at_checked(HEADER_BYTES)?;
    let &[tag, kind, low, high, a, b, c, d] = header else {
        return None;
    };
    let bytes = usize::from(u16::from_le_bytes([low, high]));
    let kind = match kind {
        0 if bytes == 8 => Kind::Word,
        1 => Kind::Bytes,
        2 => Kind::Text,
        _ => return None,
    };
    rest.get(..bytes.next_multiple_of(8))?;
    let more = u32::from_le_bytes([a, b, c, d]);
    Some(Part {
        tag,
        kind,
        bytes: &rest[..bytes],
        asked: more & (CUT - 1),
        is_cut: more & CUT != 0,
        is_faulted: more & FAULT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_ends_too_early_is_torn() {
        let mut kept = vec![7, 2, 3, 0, 3, 0, 0, 0x80];
        kept.extend(b"abc\0\0\0\0\0");
        let all: Vec<_> = parts(&kept).collect();
        let part = all[0].as_ref().unwrap();
        assert_eq!((part.tag, part.bytes, part.asked), (7, &b"abc"[..], 3));
        assert!(part.is_faulted && !part.is_cut && all.len() == 1);
        kept.pop();
        assert!(parts(&kept).next().unwrap().is_err());
        assert_eq!(words(&kept, 2).map(|_| ()), Err(Torn(15)));
    }

    #[test]
    fn a_kind_that_nobody_knows_is_torn() {
        let kept = [1, 9, 0, 0, 0, 0, 0, 0];
        assert!(parts(&kept).next().unwrap().is_err());
    }
}
