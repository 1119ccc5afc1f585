//! Compiled acts beside their interpretation: random acts over random calls, the tables that both
//! leave, and what certain acts give.

mod beside;

use beside::acts::{
    Met, THREAD, compare_at_calls, compare_at_returns, compare_in_slots, point_gs_at, run,
    run_and_keep,
};
use beside::frames::held;
use beside::{CodePages, Seeded};
use iced_x86::{Decoder, DecoderOptions};
use sptrace_payload::acts::{Acts, Step};
use sptrace_payload::acts_code::{Entry, acts_code, exit_code};
use sptrace_payload::contract::in_place::{
    FRAME_BYTES, HELD, HELD_RECORDED, PASSED, UNDECIDED, UNWANTED, WANTED,
};
use sptrace_payload::contract::slot;
use sptrace_payload::in_place::Switch;
use sptrace_payload::interpret::Call;
use sptrace_payload::program::{Binary, Expression, Source};
use sptrace_payload::slot_code::slot_code;
use sptrace_payload::tables::{Kind, MOST_ROWS, SPARE_ROWS, Tables, WRITING, keep_greatest, read};
use std::sync::atomic::{AtomicU8, Ordering};

#[test]
fn compiled_acts_do_what_they_mean() {
    let (mut random, pages, mut met) = (Seeded(0xac75), CodePages::new(), Met::default());
    for _ in 0..6_000 {
        compare_at_calls(&mut random, &pages, &mut met);
    }
    // The comparison has seen something.
    assert!(met.added > 5_000 && met.acted > 500 && met.texts > 50);
    assert!(met.bidden > 500, "{}", met.bidden);
    assert!(met.full > 100, "{}", met.full);
    assert!(met.recorded > 2_000 && met.passed > 2_000 && met.held > 2_000);
}

#[test]
fn acts_of_a_return_do_what_they_mean() {
    let (mut random, pages, mut met) = (Seeded(0x0e71), CodePages::new(), Met::default());
    for _ in 0..6_000 {
        compare_at_returns(&mut random, &pages, &mut met);
    }
    assert!(met.added > 5_000 && met.bidden > 200);
    assert!(met.timed > 5_000, "{}", met.timed);
    assert!(met.texts > 500, "{}", met.texts);
    assert!(met.full > 100, "{}", met.full);
}

#[test]
fn acts_in_a_slot_do_what_they_mean_and_change_no_register() {
    let (mut random, pages, mut met) = (Seeded(0x5107), CodePages::new(), Met::default());
    for _ in 0..6_000 {
        compare_in_slots(&mut random, &pages, &mut met);
    }
    assert!(
        met.added > 5_000 && met.passed > 10_000,
        "{} {}",
        met.added,
        met.passed
    );
}

#[test]
fn code_of_a_slot_says_how_far_it_is() {
    let (tables, acts) = count_by_argument();
    let code = slot_code(&acts, &tables, THREAD).unwrap().unwrap();
    let all = instructions_at(&code.bytes);
    let before = |at: u16| {
        let end = all
            .iter()
            .find(|(ip, text)| *ip >= u64::from(at) && !text.is_empty());
        let here = all.iter().position(|one| Some(one) == end);
        here.and_then(|here| all.get(here.checked_sub(1)?))
            .unwrap()
            .1
            .clone()
    };
    assert!(before(code.changes_from).starts_with("inc qword ptr"));
    assert_eq!(code.changes_from, code.changes_to);
    assert_eq!(before(code.takes_from), "ret");
    assert!(before(slot::BELOW_FROM as u16).starts_with("lea rsp"));
    assert!(before(slot::KEPT_FROM as u16 + 1).starts_with("lahf"));
    assert!(before(slot::FLAGS_KEPT_FROM as u16).starts_with("mov [rsp],rax"));
    // A record, a frame's word, or a place on the stack needs a frame.
    for source in [
        Source::Caller,
        Source::StackPointer,
        Source::Stack(0),
        Source::Depth,
    ] {
        let acts = Acts {
            steps: vec![Step::Set(0, source.into())],
            records: false,
        };
        assert_eq!(slot_code(&acts, &tables, THREAD).unwrap(), None);
    }
    let recorded = Acts {
        records: true,
        ..acts
    };
    assert_eq!(slot_code(&recorded, &tables, THREAD).unwrap(), None);
}

fn instructions_at(code: &[u8]) -> Vec<(u64, String)> {
    let decoder = Decoder::new(64, code, DecoderOptions::NONE);
    decoder
        .into_iter()
        .map(|one| (one.ip(), one.to_string()))
        .collect()
}

#[test]
fn a_held_call_says_what_its_return_needs() {
    let (tables, mut acts) = count_by_argument();
    let kept = [Source::Argument(4), Source::Argument(2)];
    let entry = Entry {
        kept: Some(&kept),
        ..Entry::default()
    };
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let call = Call {
        arguments: [1, 2, 3, 4, 5, 6],
        ..Call::default()
    };
    for (records, wanted) in [(false, HELD), (true, HELD_RECORDED)] {
        acts.records = records;
        let code = acts_code(&acts, &tables, THREAD, entry).unwrap().unwrap();
        let block = [set.as_mut_ptr() as u64, 0, 77];
        point_gs_at(&block);
        assert_eq!(run_and_keep(&pages, &code, &call), (wanted, [5, 3]));
        let muted = [set.as_mut_ptr() as u64, 1, 77];
        point_gs_at(&muted);
        let passed = if records { UNWANTED } else { PASSED };
        assert_eq!(run(&pages, &code, &call), passed);
    }
}

#[test]
fn the_time_of_a_call_is_measured() {
    let elapsed = Expression::Source(Source::Elapsed);
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: Vec::new(),
            value: elapsed,
        }],
        records: false,
    };
    let tables = Tables::of([(Kind::Sum, 0)]);
    // A tick is two nanoseconds here.
    let code = exit_code(&acts, &tables, THREAD, 2 << 32).unwrap().unwrap();
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    // SAFETY: nothing forbids it here.
    let now = || unsafe { std::arch::x86_64::_rdtsc() };
    const TICKS: u64 = 3_000_000_000_000;
    let before = now();
    let frames = held(0x200, [0; 6], before.wrapping_sub(TICKS));
    let top = frames.as_ptr() as u64 + 8 * frames.len() as u64 - FRAME_BYTES as u64;
    let block = [set.as_mut_ptr() as u64, 0, 77, top, 0];
    point_gs_at(&block);
    assert_eq!(run(&pages, &code, &Call::default()), PASSED);
    let most = now() - before;
    let (rows, _) = read(&tables.all[0], &|at| set[at as usize / 8]);
    let ticks = rows[0].values[0] / 2;
    assert!((TICKS..=TICKS + most).contains(&ticks), "{ticks}");
}

#[test]
fn acts_of_a_return_record_nothing_and_keep_six_words() {
    let tables = Tables::of([]);
    let record = Acts {
        steps: vec![Step::Record],
        records: false,
    };
    assert!(exit_code(&record, &tables, THREAD, 1).is_err());
    let of_call = |n: u8| Acts {
        steps: (0..n)
            .map(|n| Step::Set(0, Source::Stack(n).into()))
            .collect(),
        records: false,
    };
    assert_eq!(of_call(6).keep().map(|kept| kept.len()), Ok(6));
    assert!(of_call(7).keep().is_err());
    let mut twice = Acts {
        steps: vec![Step::Set(0, Expression::argument(3)); 3],
        records: false,
    };
    assert_eq!(twice.keep(), Ok(vec![Source::Argument(3)]));
    assert!(twice.uses(Source::Kept(0)) && !twice.uses(Source::Argument(3)));
}

fn count_by_argument() -> (Tables, Acts) {
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: vec![Expression::argument(0)],
            value: 1.into(),
        }],
        records: false,
    };
    (Tables::of([(Kind::Count, 1)]), acts)
}

fn call_of(argument: u64) -> Call {
    Call {
        arguments: [argument, 0, 0, 0, 0, 0],
        ..Call::default()
    }
}

#[test]
fn keys_that_do_not_fit_are_counted() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    const CALLS: u64 = 10_000;
    for argument in 0..CALLS {
        run(&pages, &code, &call_of(argument << 4));
    }
    let (rows, left_out) = read(&tables.all[0], &|at| set[at as usize / 8]);
    assert_eq!(rows.len() as u64 + left_out, CALLS);
    assert!(
        rows.len() > 900 && left_out > 0,
        "{} {left_out}",
        rows.len()
    );
    assert!(rows.iter().all(|row| row.count == 1));
}

#[test]
fn a_thread_that_is_muted_or_has_no_tables_adds_nothing() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let muted = [set.as_mut_ptr() as u64, 1, 77];
    point_gs_at(&muted);
    assert_eq!(run(&pages, &code, &call_of(1)), PASSED);
    let none = [0, 0, 77];
    point_gs_at(&none);
    assert_eq!(run(&pages, &code, &call_of(1)), UNDECIDED);
    assert!(set.iter().all(|word| *word == 0));
}

#[test]
fn a_condition_on_values_is_looked_at_after_the_acts() {
    let (tables, acts) = count_by_argument();
    let wanted = Expression::argument(0).with(Binary::Less, 5);
    let entry = Entry {
        wanted: Some(&wanted),
        switch: Some(Switch {
            table: 24,
            number: 3,
        }),
        kept: None,
    };
    let code = acts_code(&acts, &tables, THREAD, entry).unwrap().unwrap();
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let switches = [
        AtomicU8::new(0),
        AtomicU8::new(1),
        AtomicU8::new(1),
        AtomicU8::new(0),
    ];
    let block = [set.as_mut_ptr() as u64, 0, 77, switches.as_ptr() as u64];
    point_gs_at(&block);
    assert_eq!(run(&pages, &code, &call_of(4)), WANTED);
    assert_eq!(run(&pages, &code, &call_of(5)), UNWANTED);
    switches[3].store(1, Ordering::Relaxed);
    assert_eq!(run(&pages, &code, &call_of(4)), UNWANTED);
    let (rows, _) = read(&tables.all[0], &|at| set[at as usize / 8]);
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 3);
}

#[test]
fn a_call_that_a_handler_makes_while_a_row_is_taken_is_counted() {
    let (tables, acts) = count_by_argument();
    let code = acts_code(&acts, &tables, THREAD, Entry::default())
        .unwrap()
        .unwrap();
    let pages = CodePages::new();
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    // Where the row of the key will be: as if somebody was about to take it.
    run(&pages, &code, &call_of(7));
    let row = set[8..].iter().position(|word| *word == 1).unwrap() + 8;
    set[row] = 2;
    run(&pages, &code, &call_of(7));
    set[row] = 1;
    let (rows, left_out) = read(&tables.all[0], &|at| set[at as usize / 8]);
    assert_eq!((rows.len(), left_out), (2, 0));
    assert!(rows.iter().all(|row| row.keys == [7] && row.count == 1));
}

/// The three calls with the greatest first argument, with their second.
fn greatest() -> (Tables, Acts) {
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: vec![Expression::argument(1)],
            value: Expression::argument(0),
        }],
        records: false,
    };
    (Tables::of([(Kind::Slowest(3), 1)]), acts)
}

/// Runs acts of [`greatest`] at calls; gives what is kept, and what was left out.
fn greatest_of(set: &mut [u64], calls: impl IntoIterator<Item = i64>) -> (Vec<(i64, u64)>, u64) {
    let (tables, acts) = greatest();
    let code = acts_code(&acts, &tables, THREAD, Entry::default());
    let (code, pages) = (code.unwrap().unwrap(), CodePages::new());
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    for (measure, number) in calls.into_iter().zip(0..) {
        let call = Call {
            arguments: [measure as u64, number, 0, 0, 0, 0],
            ..Call::default()
        };
        assert_eq!(run(&pages, &code, &call), PASSED);
    }
    let (mut rows, left_out) = read(&tables.all[0], &|at| set[at as usize / 8]);
    keep_greatest(&mut rows, 3);
    let rows = rows.iter().map(|row| (row.values[0] as i64, row.keys[0]));
    (rows.collect(), left_out)
}

fn room_for_greatest() -> Vec<u64> {
    vec![0u64; greatest().0.set_bytes as usize / 8]
}

#[test]
fn the_greatest_of_many_calls_are_kept() {
    let measures: Vec<i64> = (0..4_000).map(|n| (n * 7_919) % 4_001 - 2_000).collect();
    let mut wanted: Vec<(i64, u64)> = measures.iter().copied().zip(0..).collect();
    wanted.sort_by_key(|(measure, _)| -measure);
    wanted.truncate(3);
    let got = greatest_of(&mut room_for_greatest(), measures);
    assert_eq!(got, (wanted, 0));
    let mut set = room_for_greatest();
    let got = greatest_of(&mut set, [i64::MIN, i64::MAX, -5]);
    assert_eq!(got, (vec![(i64::MAX - 1, 1), (-5, 2)], 0));
}

#[test]
fn what_a_handler_adds_while_a_row_is_written_is_among_the_greatest() {
    let row_words = greatest().0.all[0].row_bytes() as usize / 8;
    let first = sptrace_payload::tables::HEAD_BYTES as usize / 8;
    for writing in 1..=usize::from(SPARE_ROWS) + 1 {
        let mut set = room_for_greatest();
        greatest_of(&mut set, 1..=20);
        // As if that many rows with the least measures were just being written.
        let rows = set[first..].chunks_mut(row_words);
        let mut rows: Vec<&mut u64> = rows.filter_map(|row| row.first_mut()).collect();
        rows.sort_by_key(|word| **word);
        rows.retain(|word| **word != 0);
        for row in rows.into_iter().take(writing) {
            *row = WRITING;
        }
        let (kept, left_out) = greatest_of(&mut set, [100, 1, 101, 102]);
        let kept: Vec<i64> = kept.into_iter().map(|(measure, _)| measure).collect();
        // What was being written is counted, too.
        let writing_for_ever = writing as u64;
        match writing <= usize::from(SPARE_ROWS) {
            true => assert_eq!((kept, left_out), (vec![102, 101, 100], writing_for_ever)),
            false => assert_eq!((kept, left_out), (vec![20, 19], writing_for_ever + 3)),
        }
    }
}

#[test]
fn rows_are_appended_in_the_order_of_their_coming_while_there_is_room() {
    let acts = Acts {
        steps: vec![Step::Add {
            table: 0,
            keys: vec![Expression::argument(1), Expression::argument(0)],
            value: 0.into(),
        }],
        records: false,
    };
    let tables = Tables::of([(Kind::Rows, 2)]);
    let table = tables.all[0];
    let code = acts_code(&acts, &tables, THREAD, Entry::default());
    let (code, pages) = (code.unwrap().unwrap(), CodePages::new());
    let mut set = vec![0u64; tables.set_bytes as usize / 8];
    let block = [set.as_mut_ptr() as u64, 0, 77];
    point_gs_at(&block);
    let most = u64::from(MOST_ROWS);
    for n in 0..most + 5 {
        let call = Call {
            arguments: [n, n ^ 7, 0, 0, 0, 0],
            ..Call::default()
        };
        assert_eq!(run(&pages, &code, &call), PASSED);
        if n == 2 {
            let used = table.used_bytes(3) as usize / 8;
            assert!(set[used..].iter().all(|word| *word == 0) && set[used - 1] != 0);
        }
    }
    // One that a handler has jumped out of.
    let row_words = table.row_bytes() as usize / 8;
    let first = sptrace_payload::tables::HEAD_BYTES as usize / 8;
    set[first + 3 * row_words] = 0;
    let (rows, left_out) = read(&table, &|at| set[at as usize / 8]);
    assert_eq!((rows.len() as u64, left_out), (most - 1, 6));
    let wanted: Vec<Vec<u64>> = (0..most)
        .filter(|n| *n != 3)
        .map(|n| vec![n ^ 7, n])
        .collect();
    assert!(rows.iter().map(|row| &row.keys).eq(&wanted));
    assert!(rows.is_sorted_by_key(|row| row.values[0]));
}
