//! Frames of which an end was not seen: killed threads, lost events, calls whose exits are not
//! recorded. They have calls, but no times.

mod hand_made;

use hand_made::*;
use sptrace_trace::{CallTree, Item, StreamEncoder, StreamInfo, Summary, TraceReader};

/// The last event of a killed thread, or of a recording that ended before the program, is no end.
#[test]
fn frames_open_where_the_recording_ends_have_no_time() {
    let log = log(
        |encoder| {
            encoder.enter(10, A);
            encoder.enter(20, B);
            encoder.exit(30);
            encoder.enter(40, B);
            encoder.lost(60, 5);
        },
        &[],
    );
    let unknown = |function| (function, None, None);
    assert_eq!(
        known_times(&log),
        [(1, Some(10), Some(10)), unknown(1), unknown(0)]
    );
    assert_eq!((log.totals.end_unseen, log.totals.known_ticks), (2, 10));
}

/// The exit of B is lost, and A's closes B: neither has a time, what came after the loss has.
#[test]
fn frames_open_where_events_were_lost_have_no_time() {
    let log = log(
        |encoder| {
            encoder.enter(10, A);
            encoder.enter(20, B);
            encoder.lost(40, 3);
            encoder.enter(50, C);
            encoder.exit(55);
            encoder.exit(60);
        },
        &[ended_at(90)],
    );
    let unknown = |function| (function, None, None);
    assert_eq!(
        known_times(&log),
        [(2, Some(5), Some(5)), unknown(1), unknown(0)]
    );
}

/// Chromium: what ran after pthread_mutex_unlock, whose end is not recorded, was shown inside of
/// it.
#[test]
fn what_an_open_call_is_not_known_to_have_called_is_not_shown_inside_of_it() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.called_by(10, Some(A));
            encoder.enter_open(10, B);
            // From A itself, deeper on the stack than the call of B.
            encoder.called_by(20, Some(A));
            encoder.enter(20, C);
            encoder.exit(25);
            // From a function that was never seen.
            encoder.called_by(30, Some(A));
            encoder.enter_open(30, B);
            encoder.called_by(40, None);
            encoder.enter(40, C);
            encoder.exit(45);
            // The agent says that both were closed.
            encoder.close_open(50, 2);
            encoder.exit(60);
        },
        &[],
    );
    let depths: Vec<_> = log.frames.iter().map(|f| (f.function, f.depth)).collect();
    assert_eq!(depths, [(B, 1), (C, 1), (B, 1), (C, 1), (A, 0)]);
    assert_eq!(log.frames[4].total_ticks, Some(60));
    assert_eq!(log.frames[4].self_ticks, None);
    let ends: Vec<u64> = log.frames.iter().map(|f| f.end_tsc).collect();
    assert_eq!(ends, [20, 25, 40, 45, 60]);
}

/// dlopen, which is called without a recorded end, calls by itself; so does what it jumps to.
#[test]
fn what_an_open_call_has_called_itself_is_shown_inside_of_it() {
    let log = log(
        |encoder| {
            encoder.enter(0, A);
            encoder.enter_open(10, B);
            encoder.called_by(20, Some(B));
            encoder.enter(20, C);
            encoder.exit(25);
            encoder.tail(30, C);
            encoder.called_by(40, Some(C));
            encoder.enter(40, A);
            encoder.exit(45);
            // B is another function by now.
            encoder.called_by(50, Some(B));
            encoder.enter(50, A);
            encoder.exit(55);
            encoder.exit(60);
        },
        &[],
    );
    let depths: Vec<_> = log.frames.iter().map(|f| (f.function, f.depth)).collect();
    assert_eq!(depths, [(C, 2), (A, 3), (C, 2), (B, 1), (A, 1), (A, 0)]);
}

/// What has left the view counts as open until the agent tells its end, also where a ring begins
/// later.
#[test]
fn frames_that_left_the_view_are_counted_by_what_tells_ends() {
    let calls = |encoder: &mut StreamEncoder| {
        encoder.enter(0, A);
        encoder.enter_open(10, B);
        encoder.enter_open(11, C);
        encoder.called_by(20, Some(A));
        encoder.enter(20, A);
    };
    let rest = |encoder: &mut StreamEncoder| {
        encoder.exit(30);
        encoder.close_open(40, 2);
        encoder.exit(50);
    };
    let mut log = Log::default();
    let whole = |encoder: &mut StreamEncoder| {
        calls(encoder);
        rest(encoder);
    };
    replay(&trace(whole, &[]), &mut log);
    assert_eq!(log.frames.last().unwrap().total_ticks, Some(50));
    // The second block alone: what has left the view is not shown.
    let mut writer = begun(3);
    let stream = writer.stream(&StreamInfo::default()).unwrap();
    let mut encoder = writer.encoder(stream);
    calls(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    rest(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    assert_eq!(writer.events(), 8);
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let (mut tree, mut log) = (CallTree::new(), Log::default());
    reader.next_item().unwrap();
    let Some(Item::Block(block)) = reader.next_item().unwrap() else {
        panic!("no second block")
    };
    tree.replay(&block, reader.dictionary(), &mut log).unwrap();
    assert_eq!(log.shown, [A, A]);
    assert_eq!(log.frames.len(), 2);
    assert!(
        log.frames
            .iter()
            .all(|f| f.flags.begin_unseen && !f.flags.end_unseen)
    );
}
