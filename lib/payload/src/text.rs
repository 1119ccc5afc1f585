//! Texts as numbers, so that code which compares words alone can compare texts.
//!
//! A text that a script names is known when the script is loaded; what the program has at a call is
//! read by the agent's slow path, where nothing can fault. Both are made into a word in the same
//! way (FNV-1a, 64 bits), and the words are compared. Must not know whose text it is.

/// In place of a length: the whole text, with the zero at its end.
pub const WHOLE: u16 = 0x1fff;
/// Among the texts of a call, in place of an argument and a length: how many recorded calls are
/// open around it.
pub const DEPTH: (u8, u16) = (6, 1);
/// Bytes of a text that are looked at, at most.
pub const MOST_BYTES: usize = 4096;

/// Of a text that a script compares all of.
pub fn whole(text: &[u8]) -> u64 {
    word_of(text.iter().copied().chain([0]))
}

/// Of the beginning of one.
pub fn beginning(text: &[u8]) -> u64 {
    word_of(text.iter().copied())
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
    fn a_text_is_not_its_beginning() {
        assert_ne!(whole(b"/etc"), beginning(b"/etc"));
        assert_eq!(whole(b"/etc"), beginning(b"/etc\0"));
        // Published words of FNV-1a.
        assert_eq!(beginning(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(beginning(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
