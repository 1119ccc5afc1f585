//! Texts as numbers, so that code which compares words alone can compare texts.
//!
//! A text that a script names is known when the script is loaded; what the program has at a call is
//! read by the agent's slow path, where nothing can fault. Both are made into a word in the same
//! way (FNV-1a, 64 bits), and the words are compared. Must not know whose text it is.

use crate::contract::in_place::MOST_KEPT;

/// In place of a length: the whole text, with the zero at its end.
pub const WHOLE: u16 = 0x1fff;
/// The same, of a text that is a key: its beginning is kept as well, for the row that it leads to.
pub const TOLD: u16 = 0x1ffe;
/// Bytes of it that are; a longer one is cut.
pub const TOLD_BYTES: usize = 256;
/// Words of a row that they fill.
pub const TOLD_WORDS: u8 = (TOLD_BYTES / 8) as u8;
/// Among the texts of a call, in place of an argument and a length: how many recorded calls are
/// open around it.
pub const DEPTH: (u8, u16) = (6, 1);
/// Among the texts of a return, whose first ones are at the words that are kept, in place of the
/// number of one: at the result.
pub const RESULT: u8 = 7;
const _: () = assert!(MOST_KEPT <= RESULT as usize);
/// Bytes of a text that are looked at, at most.
pub const MOST_BYTES: usize = 4096;

/// In place of a length from here up to [`TOLD`]: no text, but the eight bytes of so many words
/// behind what the argument points to, in which a field lies.
pub const FIELDS: u16 = 0x1100;
const _: () = assert!(FIELDS as usize > MOST_BYTES);

/// In place of a length: the eight bytes in which lies what is so many bytes behind what the
/// argument points to. None: it is too far away.
pub fn field(offset_bytes: u16) -> Option<u16> {
    Some(FIELDS + offset_bytes / 8).filter(|length| *length < TOLD)
}

/// The same the other way round: how many bytes behind it they are. None: a text is meant.
pub fn field_at(length: u16) -> Option<u64> {
    let is_field = (FIELDS..TOLD).contains(&length);
    is_field.then(|| 8 * u64::from(length - FIELDS))
}

/// Of a text that a script compares all of.
pub fn whole(text: &[u8]) -> u64 {
    word_of(text.iter().copied().chain([0]))
}

/// Of the beginning of one.
pub fn beginning(text: &[u8]) -> u64 {
    word_of(text.iter().copied())
}

/// The text that the words of a row tell, and whether it is cut.
pub fn told(words: &[u64]) -> (String, bool) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(&[]);
    (String::from_utf8_lossy(text).into_owned(), end.is_none())
}

/// The same the other way round.
pub fn words(text: &[u8]) -> Vec<u64> {
    let mut bytes = [0; TOLD_BYTES];
    for (byte, of) in bytes.iter_mut().zip(text) {
        *byte = *of;
    }
    let words = bytes.chunks_exact(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, b| word << 8 | u64::from(*b))
    };
    words.map(word).collect()
}

/// The word of some bytes; never 0, which stands for what cannot be read.
pub fn word_of(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |word: u64, byte: u8| (word ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.into_iter().fold(OFFSET, step).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_or_is_cut() {
        assert_eq!(told(&words(b"/etc")), ("/etc".to_owned(), false));
        let long = [b'x'; 2 * TOLD_BYTES];
        assert_eq!(told(&words(&long)), ("x".repeat(TOLD_BYTES), true));
    }

    #[test]
    fn a_field_is_no_text() {
        assert_eq!(field(0).and_then(field_at), Some(0));
        assert_eq!(field(23).and_then(field_at), Some(16));
        assert_eq!(field(u16::MAX), None);
        for length in [1, MOST_BYTES as u16, TOLD, WHOLE] {
            assert_eq!(field_at(length), None);
        }
    }

    #[test]
    fn a_text_is_not_its_beginning() {
        assert_ne!(whole(b"/etc"), beginning(b"/etc"));
        assert_eq!(whole(b"/etc"), beginning(b"/etc\0"));
        // Published words of FNV-1a.
        assert_eq!(beginning(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(beginning(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
