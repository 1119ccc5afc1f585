//! Zeros between records: what an interrupted thread reserved and never completed.
//!
//! Given a chunk and a place where no stamp is; gives where reading goes on. Must not know what an
//! event means: the caller says which ids there are.

use sptrace_wire::record::CONTROL_IDS;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where to read on, in halves of words, after the zero at `at`. `kind_of` tells of an id whether it is
/// one, and then whether its record has a callee.
///
/// A half that looks like an id may be the stamp of a complete record after the hole: then an id
/// follows it.
pub fn after(halves: &[AtomicU32], at: usize, kind_of: &dyn Fn(u32) -> Option<bool>) -> usize {
    let half = |i: usize| halves.get(i).map_or(0, |h| h.load(Ordering::Relaxed));
    let is_id = |id: u32| id != 0 && (id < CONTROL_IDS || kind_of(id).is_some());
    let (next, second) = (half(at + 1), half(at + 2));
    if next >= CONTROL_IDS && kind_of(next) == Some(true) && !is_id(second) {
        return at + 3;
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: u32 = 0x7000_0008;
    const POINTER: u32 = 0x7000_0108;

    fn read(halves: &[u32]) -> Vec<usize> {
        let halves: Vec<_> = halves.iter().map(|h| AtomicU32::new(*h)).collect();
        let kind_of = |id| match id {
            ENTRY => Some(false),
            POINTER => Some(true),
            _ => None,
        };
        let mut at = 0;
        let mut records = Vec::new();
        while at < halves.len() {
            if halves[at].load(Ordering::Relaxed) == 0 {
                at = after(&halves, at, &kind_of);
                continue;
            }
            records.push(at);
            at += 2;
        }
        records
    }

    #[test]
    fn holes_of_eight_and_twelve_bytes_end_where_the_next_record_begins() {
        assert_eq!(read(&[0, 0, 5, ENTRY]), [2]);
        assert_eq!(read(&[0, 0, 0, 5, ENTRY]), [3]);
        assert_eq!(read(&[0, POINTER, 0, 5, ENTRY]), [3]);
        assert_eq!(read(&[0, POINTER, 0x1234_5678, 5, ENTRY]), [3]);
        assert_eq!(read(&[0, 0, 0, 0, 0]), [0; 0]);
    }

    #[test]
    fn a_stamp_that_looks_like_an_id_is_a_stamp() {
        assert_eq!(read(&[0, 0, POINTER, ENTRY]), [2]);
        assert_eq!(read(&[0, 0, 0, ENTRY, ENTRY]), [3]);
        assert_eq!(read(&[0, 0, POINTER, 9]), [2]);
    }

    #[test]
    fn a_hole_may_be_cut_off() {
        assert_eq!(read(&[0, POINTER]), [0; 0]);
        assert_eq!(read(&[0]), [0; 0]);
    }
}
