//! Calls and returns that have their values in their own records.

use super::*;
use sptrace_wire::values::END;

const NUMBER: u32 = 1;

/// A thread of a process with two descriptions, of no word and of two.
fn thread() -> Thread {
    let mut thread = Thread::new();
    let lines = [("none", 0), ("two", 2)].map(|(line, words)| (line.to_owned(), words));
    thread.book.describe(lines);
    thread
}

fn valued(stamp: u32, rest: &[u32]) -> Vec<u32> {
    [&[stamp, valued_id(NUMBER, rest.len() as u32)][..], rest].concat()
}

/// The record of values that the slow path makes.
fn apart(stamp: u32, id: u32, words: &[u32]) -> Vec<u32> {
    let bytes = 4 * words.len() as u32 + 4;
    [&[stamp, id, NUMBER, bytes][..], words, &[END]].concat()
}

const WORDS: [u32; 4] = [7, 0, u32::MAX, u32::MAX];
const RESULT: [u32; 2] = [5, 0];

#[test]
fn one_record_tells_what_two_do() {
    let code = CODE as u32;
    let one = [
        valued(10, &[&[ENTRY], &WORDS[..]].concat()),
        valued(20, &[&[POINTER, code], &WORDS[..]].concat()),
        valued(30, &[&[EXIT], &RESULT[..]].concat()),
        valued(40, &[&[EXIT], &RESULT[..], &[1, 2, 3, 4]].concat()),
    ];
    let two = [
        vec![10, ENTRY],
        apart(10, CALL_VALUES, &WORDS),
        vec![20, POINTER, code],
        apart(20, CALL_VALUES, &WORDS),
        apart(30, RETURN_VALUES, &RESULT),
        vec![30, EXIT],
        apart(40, RETURN_VALUES, &[&RESULT[..], &[1, 2, 3, 4]].concat()),
        vec![40, EXIT],
    ];
    let (mut first, mut second) = (thread(), thread());
    let told = first.chunk(&one.concat());
    assert_eq!(told, second.chunk(&two.concat()));
    let kinds = told.iter().map(|told| match told {
        Enter(tsc, ..) => ('e', *tsc),
        Values(tsc, _) => ('v', *tsc),
        Exit(tsc) => ('x', *tsc),
        other => panic!("{other:?}"),
    });
    let want = [('e', 10), ('v', 10), ('e', 20), ('v', 20)];
    let ends = [('v', 30), ('x', 30), ('v', 40), ('x', 40)];
    assert!(kinds.eq(want.into_iter().chain(ends)));
    assert_eq!((first.torn, second.torn), Default::default());
}

#[test]
fn what_is_not_complete_is_passed_over() {
    let silent = |stamp| {
        let id = valued_id(NO_VALUED_NUMBER, 5);
        vec![stamp, id, ENTRY, 9, 0, 9, 0]
    };
    let call = || valued(20, &[&[ENTRY], &WORDS[..]].concat());
    let chunk = [silent(1), call(), silent(15), vec![0; 5], vec![30, EXIT]];
    let mut one = thread();
    let told = one.chunk(&chunk.concat());
    assert!(
        matches!(told[..], [Enter(20, ..), Values(20, _), Exit(30)]),
        "{told:?}"
    );
    // The last one of a thread that was killed.
    assert_eq!(one.chunk(&silent(40)[..3]), []);
    assert!(one.cursor.is_cut_off);
    assert_eq!(one.torn, Torn::default());
}

#[test]
fn what_makes_no_sense_is_torn_and_hides_nothing() {
    let records = [
        valued(10, &[NO_SLOT, 0x5000_0001, 0x5000_0002]),
        // Longer than its chunk.
        vec![10, valued_id(NUMBER, 60), ENTRY],
        vec![10, VALUED_IDS.start],
    ];
    // Later than what may be taken for a stamp.
    const LATER: u32 = 0x3000_0000;
    let behind = [LATER, ENTRY, LATER + 1, EXIT];
    let (begins, ends) = (u64::from(LATER), u64::from(LATER + 1));
    for record in records {
        let mut one = thread();
        let told = one.chunk(&[&record[..], &behind].concat());
        let want = [Enter(begins, PLACE_ENTRY, 1), Exit(ends)];
        assert!(told.ends_with(&want), "{record:x?}: {told:?}");
        assert!(one.torn.nonsense > 0, "{record:x?}");
    }
    // Too short for its callee.
    let mut one = thread();
    one.chunk(&valued(10, &[POINTER]));
    assert!(one.torn.nonsense > 0);
}

#[test]
fn a_record_is_written_when_its_own_id_is() {
    let areas = areas();
    let whole_of = |halves: &[u32]| {
        let mut all: Vec<_> = halves.iter().copied().map(AtomicU32::new).collect();
        all.extend((0..64).map(|_| AtomicU32::new(0)));
        crate::decode::whole::whole(&all, 0, &areas, false).end
    };
    let mut record = valued(10, &[&[ENTRY], &WORDS[..]].concat());
    assert_eq!(whole_of(&record), record.len());
    record[1] = valued_id(NO_VALUED_NUMBER, 5);
    assert_eq!(whole_of(&record), 0);
}
