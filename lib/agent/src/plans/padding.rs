//! What stood in padding between functions before a springboard was put there.
//!
//! The plan does not tell it, since padding is nobody's code. Given an address; keeps five bytes,
//! and gives them back for an undo. Filled under the propagation lock.

use crate::memory::{mapped, state};

/// Keeps the five bytes that stand at `at`, under the propagation lock. False: no room.
pub fn keep_padding(at: u64, bytes: [u8; 5]) -> bool {
    let p = state::process();
    if p.padding.get().is_none() {
        p.padding.set(mapped::make());
    }
    let count = p.padding_count.get();
    let Some(place) = p.padding.get().and_then(|all| all.get(count as usize)) else {
        return false;
    };
    let [a, b, c, d, e] = bytes;
    place.set([at, u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])]);
    p.padding_count.add(1);
    true
}

/// The five bytes that stood at `at`.
pub(crate) fn padding(at: u64) -> Option<[u8; 5]> {
    let p = state::process();
    let kept = p.padding.get()?.get(..p.padding_count.get() as usize)?;
    let [_, bytes] = kept
        .iter()
        .map(|place| place.get())
        .find(|[place, _]| *place == at)?;
    bytes.to_le_bytes().first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_found_by_its_place() {
        assert_eq!(padding(0x1000), None);
        assert!(keep_padding(0x1000, [1, 2, 3, 4, 5]));
        assert!(keep_padding(0x2000, [0xcc; 5]));
        assert_eq!(padding(0x1000), Some([1, 2, 3, 4, 5]));
        assert_eq!(padding(0x2000), Some([0xcc; 5]));
        assert_eq!(padding(0x1001), None);
    }
}
