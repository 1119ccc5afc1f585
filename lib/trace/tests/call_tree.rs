//! Frames from hand-made streams: recursion, unwinding, tails, gaps, waiting; and the law that the
//! self times and the time outside frames sum to the total.

mod hand_made;

use hand_made::*;
use sptrace_trace::{
    CallTree, Entry, Estimate, Filter, FunctionId, Item, Mark, Note, Selection, Stats,
    StreamEncoder, TraceReader,
};

#[test]
fn nested_calls() {
    let log = log(
        |encoder| {
            encoder.enter(100, A);
            encoder.enter(110, B);
            encoder.exit(140);
            encoder.exit(200);
        },
        &[],
    );
    assert_eq!(times(&log), [(1, 30, 30), (0, 100, 70)]);
    assert_eq!((log.totals.ticks, log.totals.outside_ticks), (200, 100));
}

#[test]
fn a_longjmp_out_of_a_recursion_ends_its_frames_marked() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            for depth in 1..=3 {
                encoder.enter(depth * 10, B);
            }
            encoder.unwound(50, 3);
            encoder.exit(60);
        },
        &[],
    );
    // When they ended is not known, so neither is what the last of them left to its caller.
    let left = (1, None, None);
    assert_eq!(known_times(&log), [left, left, left, (0, Some(60), None)]);
    assert_eq!(log.totals.outside_ticks, 0);
    let unwound: Vec<bool> = log.frames.iter().map(|frame| frame.flags.unwound).collect();
    assert_eq!(unwound, [true, true, true, false]);
    assert_eq!(log.totals.unwound, 3);
}

#[test]
fn a_tail_takes_the_self_time_and_ends_with_the_frame_it_replaced() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(10, B);
            encoder.tail(15, C);
            encoder.exit(40);
            encoder.exit(50);
        },
        &[],
    );
    assert_eq!(times(&log), [(2, 25, 25), (1, 30, 5), (0, 50, 20)]);
    assert_eq!(log.frames[0].entry, Entry::Tail);
    assert_eq!(log.frames[0].end_tsc, log.frames[1].end_tsc);
}

#[test]
fn a_loop_of_tails_does_not_grow_the_stack() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            for n in 1..=1000 {
                encoder.tail(n, if n % 2 == 0 { B } else { C });
            }
            encoder.exit(2000);
        },
        &[],
    );
    assert_eq!(log.frames.len(), 1001);
    assert!(log.frames.iter().all(|frame| frame.depth <= 16));
}

#[test]
fn frames_of_before_the_recording_nest_as_deep_as_they_are_and_are_marked() {
    let log = log(
        |encoder| {
            for _ in 0..100 {
                encoder.enter_earlier(0, A);
            }
            encoder.enter(10, B);
            encoder.exit(20);
            encoder.close_open(30, 60);
            // No call is open that this could end.
            encoder.exit(35);
            encoder.close_open(40, 40);
        },
        &[],
    );
    let depths: Vec<u32> = log.frames.iter().map(|frame| frame.depth).collect();
    assert_eq!(depths, (0..=100).rev().collect::<Vec<u32>>());
    let earlier = &log.frames[1..];
    assert!(
        earlier
            .iter()
            .all(|f| f.flags.begin_unseen && f.flags.end_unseen)
    );
    assert!(earlier[..60].iter().all(|f| f.end_tsc == 30));
    assert!(earlier[60..].iter().all(|f| f.end_tsc == 40));
    assert!(!log.frames[0].flags.begin_unseen);
}

#[test]
fn a_pause_between_two_recordings_is_in_no_frame_and_no_total() {
    let first = |encoder: &mut StreamEncoder| {
        encoder.enter_earlier(100, A);
        encoder.enter_open(105, C);
        encoder.tail(106, B);
        encoder.enter(110, B);
        encoder.close_all(150);
    };
    let second = |encoder: &mut StreamEncoder| {
        encoder.enter_earlier(1000, A);
        encoder.enter(1010, B);
    };
    let mut log = Log::default();
    replay(
        &streams(&[(100, &first), (1000, &second)], &[ended_at(1100)]),
        &mut log,
    );
    let ends: Vec<u64> = log.frames.iter().map(|frame| frame.end_tsc).collect();
    assert_eq!(ends, [150, 150, 150, 150, 1100, 1100]);
    assert_eq!(log.frames[4].total_ticks, Some(90));
    log.frames.remove(4);
    assert!(log.frames.iter().all(|frame| frame.flags.end_unseen));
    assert!(log.frames.iter().all(|frame| frame.total_ticks.is_none()));
    assert_eq!((log.totals.ticks, log.totals.outside_ticks), (100, 0));
    // Nor if nothing was open.
    let mut log = Log::default();
    let nothing_open = |encoder: &mut StreamEncoder| {
        encoder.enter(100, A);
        encoder.exit(150);
        encoder.close_all(170);
    };
    let again = |encoder: &mut StreamEncoder| encoder.enter_earlier(1000, A);
    replay(
        &streams(&[(1000, &again), (100, &nothing_open)], &[ended_at(1100)]),
        &mut log,
    );
    assert_eq!(log.totals.ticks, 50);
}

#[test]
fn open_frames_end_with_their_caller_or_when_told() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter_open(10, B);
            encoder.close_open(15, 1);
            encoder.enter_open(20, C);
            encoder.exit(30);
        },
        &[],
    );
    let unknown = |function| (function, None, None);
    assert_eq!(
        known_times(&log),
        [unknown(1), unknown(2), (0, Some(30), None)]
    );
    let unseen: Vec<bool> = log
        .frames
        .iter()
        .map(|frame| frame.flags.end_unseen)
        .collect();
    assert_eq!(unseen, [true, true, false]);
}

/// dlsym through a PLT stub: the call was recorded before its return address was given back.
#[test]
fn a_call_whose_exit_cannot_come_ends_when_told() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(10, B);
            encoder.tail(12, C);
            encoder.close_open(15, 1);
            encoder.enter(20, C);
            encoder.exit(22);
            encoder.exit(30);
        },
        &[],
    );
    let frames: Vec<_> = log
        .frames
        .iter()
        .map(|frame| (frame.depth, frame.flags.end_unseen))
        .collect();
    assert_eq!(frames, [(2, true), (1, true), (1, false), (0, false)]);
}

#[test]
fn waiting_for_sptrace_is_taken_out_of_durations() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(10, B);
            encoder.blocked(1000, 900);
            encoder.exit(1010);
            // More than the time that passed cannot have been waited.
            encoder.blocked(1020, 5000);
            encoder.exit(1030);
        },
        &[],
    );
    assert_eq!(times(&log), [(1, 100, 100), (0, 120, 20)]);
    assert!(log.frames.iter().all(|frame| frame.flags.disturbed));
    assert_eq!(log.totals.blocked_ticks, 910);
}

#[test]
fn marks_close_nothing() {
    let log = log(
        |encoder| {
            encoder.exit(5);
            encoder.enter(10, A);
            encoder.resumed(20, B);
            encoder.lost(30, 12);
            encoder.exit(40);
        },
        &[],
    );
    assert_eq!((log.frames.len(), log.frames[0].end_tsc), (1, 40));
    assert_eq!(
        log.marks,
        [Mark::UnseenFrameEnded, Mark::Resumed(B), Mark::Lost(12)]
    );
    assert_eq!(log.totals.lost, 12);
}

#[test]
fn frames_open_at_the_end_last_until_the_process_ended() {
    let status = sptrace_trace::ExitStatus::Exited(0);
    let note = Note::ProcessExit {
        pid: 5,
        tsc: 90,
        status,
    };
    let log = log(
        |encoder| {
            encoder.enter(10, A);
            encoder.enter(20, B);
        },
        &[note],
    );
    assert_eq!(times(&log), [(1, 70, 70), (0, 80, 10)]);
    assert!(log.frames.iter().all(|f| f.flags.until_process_end));
    assert_eq!(log.totals.end_unseen, 0);
}

#[test]
fn total_time_counts_the_outermost_frame_of_a_recursion() {
    let bytes = trace(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(10, B);
            encoder.enter(20, A);
            encoder.exit(30);
            encoder.exit(40);
            encoder.exit(100);
        },
        &[],
    );
    let mut stats = Stats::new();
    replay(&bytes, &mut stats);
    let rows: Vec<_> = stats
        .functions()
        .map(|(id, stats)| {
            (
                id,
                stats.calls,
                stats.total_ticks().unwrap(),
                stats.self_ticks().unwrap(),
                stats.min_ticks().unwrap(),
                stats.max_ticks().unwrap(),
            )
        })
        .collect();
    assert_eq!(rows, [(A, 2, 100, 80, 10, 100), (B, 1, 30, 20, 30, 30)]);
    let own: u64 = stats
        .functions()
        .filter_map(|(_, stats)| stats.self_ticks())
        .sum();
    let totals = stats.streams()[0].1;
    assert_eq!(own + totals.outside_ticks, totals.ticks);
    assert_eq!(stats.functions().next().unwrap().1.mean_ticks(), Some(55));
}

/// A forked bash had `main` twice among its functions, once for each process.
#[test]
fn what_a_fork_child_runs_on_in_was_not_called_again() {
    let bytes = trace(
        |encoder| {
            encoder.inherit(0, A);
            encoder.inherit_open(0, B);
            encoder.inherit(0, C);
            encoder.enter(10, A);
            encoder.exit(15);
            encoder.exit(20);
            encoder.exit(50);
        },
        &[],
    );
    let mut stats = Stats::new();
    replay(&bytes, &mut stats);
    let rows: Vec<_> = stats
        .functions()
        .map(|(_, f)| {
            (
                f.calls,
                f.earlier,
                f.total_ticks(),
                f.self_ticks(),
                f.max_ticks(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (1, 1, Some(50), Some(5), Some(5)),
            (0, 1, None, None, None),
            (0, 1, Some(20), Some(15), None)
        ]
    );
    assert_eq!(stats.streams()[0].1.calls, 1);
}

#[test]
fn an_event_of_a_function_without_a_name_is_refused() {
    let bytes = trace(|encoder| encoder.enter(1, FunctionId(1 << 29)), &[]);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let Some(Item::Block(block)) = reader.next_item().unwrap() else {
        panic!("no block")
    };
    let mut log = Log::default();
    assert!(
        CallTree::new()
            .replay(&block, reader.dictionary(), &mut log)
            .is_err()
    );
}

fn filtered(selection: &Selection) -> (Vec<u32>, Vec<u32>) {
    // a { b { c } c } c
    let bytes = trace(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(10, B);
            encoder.enter(20, C);
            encoder.exit(30);
            encoder.exit(40);
            encoder.enter(50, C);
            encoder.exit(60);
            encoder.exit(70);
            encoder.enter(80, C);
            encoder.exit(90);
        },
        &[],
    );
    let dictionary = replay(&bytes, &mut Log::default());
    let mut filter = Filter::new(selection, &dictionary, Log::default());
    replay(&bytes, &mut filter);
    let log = filter.inner;
    let depths = log.frames.iter().map(|frame| frame.depth).collect();
    assert_eq!(log.shown.len(), log.frames.len());
    (log.shown.iter().map(|id| id.0).collect(), depths)
}

#[test]
fn filters_show_what_they_select() {
    let everything = Selection::default();
    assert_eq!(filtered(&everything).0, [0, 1, 2, 2, 2]);
    let within_b = Selection {
        within: vec![false, true, false],
        ..Selection::default()
    };
    assert_eq!(filtered(&within_b), (vec![1, 2], vec![1, 0]));
    let without_b = Selection {
        without: vec![false, true, false],
        ..Selection::default()
    };
    assert_eq!(filtered(&without_b).0, [0, 2, 2]);
    let shallow = Selection {
        max_depth: Some(1),
        ..Selection::default()
    };
    assert_eq!(filtered(&shallow), (vec![0, 2], vec![0, 0]));
    let late = Selection {
        from_tsc: Some(25),
        ..Selection::default()
    };
    assert_eq!(filtered(&late).0, [0, 1, 2, 2, 2]);
    let later = Selection {
        from_tsc: Some(45),
        to_tsc: Some(75),
        ..Selection::default()
    };
    assert_eq!(filtered(&later).0, [0, 2]);
    let only_c = Selection {
        only: vec![false, false, true],
        ..Selection::default()
    };
    assert_eq!(filtered(&only_c), (vec![2, 2, 2], vec![0, 0, 0]));
    let a_and_leaves = Selection {
        only: vec![true, false, false],
        with_leaves: true,
        ..Selection::default()
    };
    assert_eq!(filtered(&a_and_leaves), (vec![0, 1, 2], vec![1, 1, 0]));
    let other_thread = Selection {
        tids: vec![6],
        ..Selection::default()
    };
    assert_eq!(filtered(&other_thread).0, [] as [u32; 0]);
}

/// Of a long row of entry-only frames only some are kept; when the agent told the end of all of
/// them, that ended calls below them, too, so that later exits were taken for others'.
#[test]
fn the_end_of_a_long_row_of_open_calls_ends_no_call_below_it() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(1, A);
            for n in 0..40 {
                encoder.enter_open(10 + n, B);
            }
            // A call inside, and some more above what it left.
            encoder.enter(60, C);
            encoder.enter_open(61, B);
            encoder.exit(65);
            encoder.enter_open(66, B);
            encoder.close_open(70, 11);
            encoder.close_open(71, 30);
            encoder.enter(80, C);
            encoder.exit(85);
            encoder.exit(90);
            encoder.exit(100);
        },
        &[],
    );
    let calls: Vec<_> = log
        .frames
        .iter()
        .filter(|f| f.entry == Entry::Call)
        .map(|f| (f.function, f.depth, f.total_ticks))
        .collect();
    assert_eq!(
        calls[1..],
        [(C, 2, Some(5)), (A, 1, Some(89)), (A, 0, Some(100))]
    );
    assert_eq!(calls[0].2, Some(5));
}

/// What a function that has ended left in such a row does not count for the next one.
#[test]
fn a_row_of_open_calls_is_forgotten_with_the_call_that_it_was_in() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter(1, C);
            for n in 0..40 {
                encoder.enter_open(10 + n, B);
            }
            encoder.exit(60);
            for n in 0..20 {
                encoder.enter_open(70 + n, B);
            }
            encoder.close_open(95, 19);
            encoder.enter_open(96, B);
            encoder.close_open(97, 2);
            encoder.exit(100);
        },
        &[],
    );
    let last = log.frames.last().unwrap();
    assert_eq!(
        (last.function, last.depth, last.total_ticks),
        (A, 0, Some(100))
    );
}

#[test]
fn times_between_two_stamps_are_estimates_with_bounds() {
    let log = log(
        |encoder| {
            encoder.enter(100, A);
            encoder.between(100, 200);
            encoder.enter(150, B);
            encoder.exit(180);
            encoder.enter(190, C);
            encoder.exit(250);
            encoder.enter(260, C);
            encoder.exit(270);
            encoder.exit(300);
        },
        &[],
    );
    let [b, open, c, a] = &log.frames[..] else {
        panic!("{:?}", log.frames);
    };
    let estimate = |total_ticks, self_ticks, least_ticks, most_ticks| {
        Some(Estimate {
            total_ticks,
            self_ticks,
            least_ticks,
            most_ticks,
        })
    };
    assert_eq!((b.total_ticks, b.self_ticks), (None, None));
    assert_eq!(b.estimate, estimate(30, Some(30), 0, 100));
    // Its end was measured.
    assert_eq!(open.total_ticks, None);
    assert_eq!(open.estimate, estimate(60, Some(60), 50, 150));
    assert_eq!(
        (c.total_ticks, c.self_ticks, c.estimate),
        (Some(10), Some(10), None)
    );
    // All of it was measured, but not what of it is its own.
    assert_eq!((a.total_ticks, a.self_ticks), (Some(200), None));
    assert_eq!(a.estimate, estimate(200, Some(100), 200, 200));
}
