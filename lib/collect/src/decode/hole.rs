//! Zeros where a stamp should be: what an interrupted thread reserved and never completed.
//!
//! Given a chunk and a place where no stamp is; gives where reading goes on. Must not know what an
//! event means: the caller says how long the record of an id is.

use sptrace_wire::record::{
    CONTROL_IDS, ENDED, LANE, LEFT_OUT, NOTHING, NOTHING_NARROW, PLACED, SIGNAL,
};
use sptrace_wire::record::{NO_VALUED_NUMBER, VALUED_IDS, VALUED_NUMBER_SHIFT};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where to read on, in halves of words, after the zero at `at`; `at` itself: the record there is
/// complete, and its stamp is zero. `length_of` tells the halves of the record of an id that is not
/// of a control record, or None if it is no id.
///
/// A half that looks like an id may be the stamp of the record after the hole: then an id follows
/// it. Otherwise what is neither zero nor an id is a lone callee, and an id tells how much was
/// reserved. Of an entry with a callee the stamp comes last, so it is unfinished; of an event of 8
/// bytes the id comes last, so it is complete. No thread writes such a stamp as long as its clock
/// does not go backwards (`record::word`), but one hole too little or too much would make nonsense
/// of all that follows.
///
/// The id of a call with values has a range that any stamp may fall into. But no such id stands
/// behind a zero stamp, and the id of a slot follows it, unless the record is to be passed over. So
/// it is looked for behind what may be a stamp alone.
pub fn after(halves: &[AtomicU32], at: usize, length_of: &dyn Fn(u32) -> Option<usize>) -> usize {
    let half = |i: usize| halves.get(i).map_or(0, |h| h.load(Ordering::Relaxed));
    let length_of = |id: u32| match id {
        0 => None,
        NOTHING | LEFT_OUT | PLACED | ENDED => Some(2),
        NOTHING_NARROW => Some(3),
        // Those with values are as long as they say, and no hole has their shape.
        1..=SIGNAL | LANE => Some(4),
        _ if id < CONTROL_IDS => None,
        _ => length_of(id),
    };
    if length_of(half(at + 2)).is_some() {
        return at + 1;
    }
    let next = half(at + 1);
    let length = length_of(next);
    let is_valued = || {
        let id = half(at + 2);
        let says_nothing = number_of(id) == NO_VALUED_NUMBER;
        VALUED_IDS.contains(&id) && (says_nothing || length_of(half(at + 3)).is_some())
    };
    if next != 0 && length != Some(3) && is_valued() {
        return at + 1;
    }
    match length {
        Some(2) => at,
        Some(3) => at + 3,
        None if next != 0 => at + 2,
        _ => at + 1,
    }
}

/// The number of the description in one of [`VALUED_IDS`].
pub fn number_of(id: u32) -> u32 {
    id.wrapping_sub(VALUED_IDS.start) >> VALUED_NUMBER_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_wire::record::{VALUED_HALVES, valued_id};

    const EVENT: u32 = 0x7000_0008;
    const POINTER: u32 = 0x7000_0108;
    /// A callee's low half, and a stamp: no ids.
    const CALLEE: u32 = 0x1234_5678;
    const S: u32 = 0x5555_5555;

    fn length_of(id: u32) -> Option<usize> {
        match id {
            EVENT => Some(2),
            POINTER => Some(3),
            _ => None,
        }
    }

    /// Reads as the collector does: places of events and of NOTHING. Nothing may be torn.
    fn read(halves: &[u32]) -> Vec<usize> {
        let atomic: Vec<_> = halves.iter().map(|h| AtomicU32::new(*h)).collect();
        let half = |i: usize| halves.get(i).copied().unwrap_or(0);
        let mut at = 0;
        let mut records = Vec::new();
        while at < halves.len() {
            if half(at) == 0 {
                let next = after(&atomic, at, &length_of);
                if next != at {
                    at = next;
                    continue;
                }
            }
            let length = match half(at + 1) {
                0 => {
                    at += 2;
                    continue;
                }
                id if VALUED_IDS.contains(&id) => {
                    let length = 2 + (id & VALUED_HALVES) as usize;
                    if number_of(id) == NO_VALUED_NUMBER {
                        at += length;
                        continue;
                    }
                    assert!(length_of(half(at + 2)).is_some(), "torn at {at}");
                    Some(length)
                }
                NOTHING => Some(2),
                NOTHING_NARROW => Some(3),
                id => length_of(id),
            };
            records.push(at);
            at += length.expect("nothing is torn");
        }
        records
    }

    #[test]
    fn holes_of_eight_and_twelve_bytes_end_where_the_next_record_begins() {
        assert_eq!(read(&[0, 0, S, EVENT]), [2]);
        assert_eq!(read(&[S, 0, S, EVENT]), [2]);
        assert_eq!(read(&[0, 0, 0, S, EVENT]), [3]);
        assert_eq!(read(&[0, 0, CALLEE, S, EVENT]), [3]);
        assert_eq!(read(&[0, POINTER, 0, S, EVENT]), [3]);
        assert_eq!(read(&[0, POINTER, CALLEE, S, EVENT]), [3]);
        assert_eq!(read(&[0, POINTER, CALLEE, S, POINTER, CALLEE]), [3]);
        assert_eq!(read(&[0, NOTHING_NARROW, CALLEE, S, EVENT]), [3]);
        assert_eq!(read(&[0, 0, 0, 0, 0]), [0; 0]);
    }

    #[test]
    fn holes_follow_each_other() {
        assert_eq!(read(&[0, 0, 0, 0, 0, S, EVENT]), [5]);
        assert_eq!(read(&[S, 0, 0, POINTER, CALLEE, S, EVENT]), [5]);
        assert_eq!(read(&[0, POINTER, CALLEE, 0, 0, S, EVENT]), [5]);
        assert_eq!(read(&[0, 0, 0, POINTER, CALLEE, S, POINTER, 7]), [5]);
        assert_eq!(read(&[0, 0, CALLEE, 0, 0, CALLEE, S, EVENT]), [6]);
        assert_eq!(read(&[0, 0, CALLEE, S, 0, S, EVENT]), [5]);
        assert_eq!(read(&[0, 0, S, 0, 0, POINTER, CALLEE, S, EVENT]), [7]);
    }

    #[test]
    fn an_event_with_a_stamp_of_zero_is_complete() {
        assert_eq!(read(&[0, EVENT, S, EVENT, S, EVENT]), [0, 2, 4]);
        assert_eq!(read(&[0, EVENT, S, POINTER, CALLEE]), [0, 2]);
        assert_eq!(read(&[0, EVENT, 0, 0, S, EVENT]), [0, 4]);
        assert_eq!(read(&[0, EVENT, 0, POINTER, CALLEE, S, EVENT]), [0, 5]);
        assert_eq!(read(&[S, EVENT, 0, EVENT]), [0, 2]);
        assert_eq!(read(&[0, 0, 0, EVENT, S, EVENT]), [2, 4]);
        assert_eq!(read(&[0, NOTHING, S, EVENT]), [0, 2]);
    }

    #[test]
    fn an_entry_with_a_callee_and_a_stamp_of_zero_is_unfinished_and_hides_nothing() {
        assert_eq!(read(&[S, EVENT, 0, POINTER, CALLEE, S, EVENT]), [0, 5]);
        assert_eq!(read(&[0, POINTER, CALLEE, 0, EVENT, S, EVENT]), [3, 5]);
    }

    #[test]
    fn a_stamp_that_looks_like_an_id_is_a_stamp() {
        assert_eq!(read(&[0, 0, POINTER, EVENT]), [2]);
        assert_eq!(read(&[0, 0, EVENT, EVENT]), [2]);
        assert_eq!(read(&[0, 0, EVENT, POINTER, CALLEE]), [2]);
        assert_eq!(read(&[0, 0, 0, EVENT, EVENT]), [3]);
        assert_eq!(read(&[0, 0, POINTER, NOTHING]), [2]);
    }

    /// A call of two words, the same of a call through a pointer, and what says nothing.
    const VALUED: u32 = valued_id(5, 5);
    const VALUED_POINTER: u32 = valued_id(5, 6);
    const SILENT: u32 = valued_id(NO_VALUED_NUMBER, 5);
    /// A stamp that is no id, but could be one of a call with values.
    const LIKE: u32 = 0x0105_0003;

    #[test]
    fn a_stamp_that_looks_like_the_id_of_a_call_with_values_is_a_stamp() {
        assert_eq!(read(&[0, 0, LIKE, EVENT, S, EVENT]), [2, 4]);
        assert_eq!(read(&[0, 0, 0, LIKE, EVENT, S, EVENT]), [3, 5]);
        assert_eq!(read(&[S, 0, LIKE, EVENT, S, EVENT]), [2, 4]);
        assert_eq!(read(&[0, POINTER, CALLEE, LIKE, EVENT, S, EVENT]), [3, 5]);
        assert_eq!(read(&[0, POINTER, 0, LIKE, EVENT, S, EVENT]), [3, 5]);
        assert_eq!(read(&[0, POINTER, LIKE, S, EVENT, S, EVENT]), [3, 5]);
        assert_eq!(read(&[0, 0, LIKE, POINTER, CALLEE, S, EVENT]), [2, 5]);
        assert_eq!(read(&[0, 0, LIKE, VALUED, EVENT, 1, 0, 2, 0]), [2]);
    }

    #[test]
    fn calls_with_values_stand_before_and_behind_holes_of_each_kind() {
        let valued = [S, VALUED, EVENT, 1, 0, 2, 0];
        let pointer = [S, VALUED_POINTER, POINTER, CALLEE, 0, 0, 7, 0];
        let silent = [1, SILENT, 0, 0, 9, 9, 0];
        let holes: [&[u32]; 10] = [
            &[0, 0],
            &[S, 0],
            &[0, 0, 0],
            &[0, POINTER, 0],
            &[0, POINTER, CALLEE],
            &[0, POINTER, LIKE],
            &[0, NOTHING_NARROW, CALLEE],
            // Of a call with values of which nothing was written, or the stamp alone.
            &[0; 7],
            &[S, 0, 0, 0, 0, 0, 0],
            &silent,
        ];
        for hole in holes {
            let at = hole.len();
            for record in [&valued[..], &pointer] {
                let all = [hole, record, &[S, EVENT]].concat();
                assert_eq!(read(&all), [at, at + record.len()], "{hole:x?}");
                let all = [record, hole, &[LIKE, EVENT], record].concat();
                let behind = record.len() + at;
                assert_eq!(read(&all), [0, behind, behind + 2], "{hole:x?}");
            }
            let all = [hole, &silent, &[S, EVENT]].concat();
            assert_eq!(read(&all), [at + silent.len()], "{hole:x?}");
        }
    }

    #[test]
    fn a_hole_may_be_cut_off() {
        assert_eq!(read(&[0, POINTER]), [0; 0]);
        assert_eq!(read(&[0, 0, CALLEE]), [0; 0]);
        assert_eq!(read(&[S, 0]), [0; 0]);
        assert_eq!(read(&[0, EVENT]), [0]);
        assert_eq!(read(&[0]), [0; 0]);
    }
}
