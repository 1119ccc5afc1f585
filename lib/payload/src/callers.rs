//! Stacks as keys: the places of the calls that lead to a call, as a word and as a list.
//!
//! A place is the lower half of the id of a slot; what function it lies in is known to who has made
//! it. Stacks are told apart by a word ([`key`]); a row of a table has the places beside it: they
//! are there when it is read. Must not know how frames are found.

/// Places of a stack at most.
pub const MOST_PLACES: u8 = 16;
/// Frames that are looked at for them: calls without a record have some, which are passed over.
pub const MOST_FRAMES: u16 = 256;
/// The factor of [`mixed`], of 32 bits, with its sign: an odd number with bits everywhere.
pub const FACTOR: i32 = 0x9E37_79B1_u32 as i32;
/// By how many bits a word is turned to the right.
pub const TURN: u32 = 29;

/// A word with one more place. Two words that differ differ after it.
pub const fn mixed(word: u64, place: u32) -> u64 {
    let product = (word ^ place as u64).wrapping_mul(FACTOR as i64 as u64);
    product.rotate_right(TURN)
}

/// The word of a stack, from its innermost place on.
pub fn key(places: &[u32]) -> u64 {
    places.iter().fold(0, |word, place| mixed(word, *place))
}

/// The words that a row has of a stack of so many places.
pub const fn words_of(places: u8) -> u8 {
    places.div_ceil(2)
}

/// The places that these words tell.
pub fn places(words: &[u64]) -> Vec<u32> {
    let halves = words
        .iter()
        .flat_map(|word| [*word as u32, (*word >> 32) as u32]);
    halves.take_while(|place| *place != 0).collect()
}

/// The same the other way round, of a row with room for so many words.
pub fn told(places: &[u32], room: u8) -> Vec<u64> {
    let pairs = places.chunks(2).map(|pair| match pair {
        [first, second] => u64::from(*first) | u64::from(*second) << 32,
        pair => pair.first().copied().map_or(0, u64::from),
    });
    let zeros = std::iter::repeat(0);
    pairs.chain(zeros).take(usize::from(room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_their_order_counts() {
        let stack = [7, 0xffff_fff1, 9];
        assert_eq!(places(&told(&stack, 8)), stack);
        assert_eq!(told(&stack, 2), [0xffff_fff1_0000_0007, 9]);
        assert_ne!(key(&[1, 2]), key(&[2, 1]));
        assert_ne!(key(&[1]), key(&[1, 1]));
    }

    #[test]
    fn stacks_that_differ_a_little_have_other_keys() {
        let mut all = std::collections::BTreeSet::new();
        for a in 0..40u32 {
            for b in 0..40 {
                for c in 0..40 {
                    all.insert(key(&[0x1000 + 16 * a, 0x2000 + 16 * b, 0x3000 + 16 * c]));
                }
            }
        }
        assert_eq!(all.len(), 64_000);
    }
}
