//! How far a chunk that a thread is writing is written.
//!
//! Given the halves of its words and where reading begins; gives where the first record stands that
//! may still change. Must not know what records mean.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use sptrace_wire::record::{CALL_ALONE, SYSTEM_CALL};

use super::process::Areas;
use super::record::Record;

/// The agent takes the record of such a call back if no other program runs afterwards.
const EXECVE: u32 = 59;
const EXECVEAT: u32 = 322;

/// So many zeroes there may be among what is written: a slot that was to come to the slow path has
/// reserved room for its record, and left it; some may have done so one after the other.
const ZEROES: usize = 32;

/// How far a chunk is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Where the records end that are.
    pub end: usize,
    /// Halves before that in which nothing was. Should a handler run that has interrupted who was
    /// about to write there, it may be written later.
    pub left: Vec<usize>,
}

/// How far a chunk is written from `from` on, where a record begins. What a record's last word is
/// may be unknown, so one of those counts as written once something follows it; and so does the
/// record of a call of the kernel where such calls may be left out when they have ended
/// (`leaves_out`).
pub fn whole(halves: &[AtomicU32], from: usize, areas: &Areas, leaves_out: bool) -> Written {
    let half = |at: usize| halves.get(at).map_or(0, |h| h.load(Ordering::Relaxed));
    let is_there = |at: usize| half(at) != 0 || half(at + 1) != 0;
    let is_any = |at: usize| (at..at + ZEROES).any(|at| half(at) != 0);
    let (mut at, mut end) = (from, from);
    let (mut left, mut left_before_end) = (Vec::new(), 0);
    while is_there(at) || is_any(at) {
        let (record, length) = Record::read(halves, at, areas);
        let next = at + length;
        let is_followed = is_there(next) || is_any(next);
        let is_whole = match record {
            // Two halves, or the second of them.
            Record::Unfinished if half(at) == 0 && (half(at + 1) == 0 || next == at + 1) => {
                left.push(at);
                at = next;
                continue;
            }
            Record::Unfinished | Record::Torn => break,
            // It goes with the call that it tells the callee of.
            Record::WideCallee(_) | Record::Placed(_) => {
                at = next;
                continue;
            }
            Record::Values { id, low, .. } => {
                let may_be_taken_back = id == SYSTEM_CALL
                    && low & CALL_ALONE != 0
                    && matches!(low & !CALL_ALONE, EXECVE | EXECVEAT);
                let may_be_left_out = leaves_out && id == SYSTEM_CALL && low & CALL_ALONE == 0;
                // The id says what follows.
                (!may_be_taken_back || is_followed) && (!may_be_left_out || half(next + 1) != 0)
            }
            // The word with the id is its only one, or the callee, which is no zero, comes last.
            Record::Call(_) if length == 2 || half(at + 2) != 0 => true,
            Record::Valued(_) => true,
            Record::Call(_) | Record::Control { .. } | Record::Nothing => is_followed,
        };
        if !is_whole {
            break;
        }
        at = next;
        end = next;
        left_before_end = left.len();
    }
    left.truncate(left_before_end);
    // What is read after this was written before the ends that were seen.
    fence(Ordering::Acquire);
    Written { end, left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::module::{PLACE_IN_ORDER, PLACE_INDIRECT, Places};
    use crate::decode::process::Area;
    use sptrace_wire::record::{ANCHOR, LEFT_OUT, SYSTEM_RETURN};
    use sptrace_wire::values::END;

    const STAMP: u32 = 7;

    fn whole_of(halves: &[u32]) -> usize {
        whole_if(halves, false)
    }

    fn whole_if(halves: &[u32], leaves_out: bool) -> usize {
        let mut all: Vec<_> = halves.iter().map(|h| AtomicU32::new(*h)).collect();
        all.extend((0..64).map(|_| AtomicU32::new(0)));
        whole(&all, 0, &Areas::default(), leaves_out).end
    }

    fn call(number: u32, end: u32) -> Vec<u32> {
        vec![STAMP, SYSTEM_CALL, number, 12, 1, 2, end]
    }

    #[test]
    fn a_record_with_values_is_written_when_its_end_is() {
        assert_eq!(whole_of(&call(0, END)), 7);
        assert_eq!(whole_of(&call(0, 0)), 0);
        assert_eq!(whole_of(&[call(0, END), call(1, 0)].concat()), 7);
        assert_eq!(whole_of(&[STAMP, SYSTEM_RETURN]), 0);
        assert_eq!(whole_of(&[]), 0);
    }

    #[test]
    fn what_ends_in_an_unknown_word_is_written_when_something_follows() {
        let anchor = vec![STAMP, ANCHOR, 5, 0];
        assert_eq!(whole_of(&anchor), 0);
        assert_eq!(whole_of(&[anchor, call(0, END)].concat()), 11);
    }

    #[test]
    fn a_call_through_a_pointer_is_written_when_its_callee_is() {
        const ID: u32 = 0x7000_0008;
        let mut areas = Areas::default();
        areas.push(Area {
            start: 0x7000_0000,
            bytes: 0x1000,
            module: 0,
            places: Places::of(&[(8, PLACE_IN_ORDER | PLACE_INDIRECT, None)]),
        });
        let whole_of = |halves: &[u32]| {
            let mut all: Vec<_> = halves.iter().map(|h| AtomicU32::new(*h)).collect();
            all.extend((0..64).map(|_| AtomicU32::new(0)));
            whole(&all, 0, &areas, false)
        };
        let end_of = |halves: &[u32]| whole_of(halves).end;
        assert_eq!(end_of(&[STAMP, ID, 0x1234]), 3);
        assert_eq!(end_of(&[STAMP, ID]), 0);
        assert_eq!(end_of(&[0, ID, 0x1234]), 0);
        // A slot has found no room behind the first, and another behind the second.
        let written = whole_of(&[STAMP, ID, 0x1234, 0, 0, STAMP, ID, 0x1234, 0, 0, STAMP, ID]);
        assert_eq!((written.end, written.left), (8, vec![3, 4]));
    }

    #[test]
    fn what_may_be_taken_back_waits_for_what_follows() {
        let exec = call(EXECVE | CALL_ALONE, END);
        assert_eq!(whole_of(&exec), 0);
        assert_eq!(whole_of(&[exec, call(1, END)].concat()), 14);
    }

    #[test]
    fn a_call_that_may_be_left_out_waits_for_the_id_of_what_follows() {
        let one = call(0, END);
        assert_eq!(whole_if(&one, true), 0);
        assert_eq!(whole_if(&[one.clone(), vec![1]].concat(), true), 0);
        assert_eq!(
            whole_if(&[one.clone(), vec![1, LEFT_OUT]].concat(), true),
            7
        );
        assert_eq!(whole_if(&[one.clone(), call(1, END)].concat(), true), 7);
        // What never comes back is told at once.
        assert_eq!(whole_if(&call(231 | CALL_ALONE, END), true), 7);
    }
}
