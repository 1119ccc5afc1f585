//! The pipeline from a file to a view: the order of time across threads, and what each part leaves
//! out.

mod hand_made;

use hand_made::{A, B, begun};
use sptrace_trace::{
    ExitStatus, Focus, Frame, FunctionId, Mark, Note, Order, Recast, Selection, StreamEncoder,
    StreamId, StreamInfo, StreamTotals, Summary, Survey, TraceReader, Visitor, Wanted, replay,
};
use std::io::Cursor;

/// What a view was told, with the time of each.
#[derive(Default, Clone, PartialEq, Debug)]
struct Log {
    told: Vec<(u64, StreamId, &'static str, u32)>,
    ended: Vec<StreamId>,
    notes: usize,
    most: Option<usize>,
}

impl Visitor for Log {
    fn note(&mut self, _: &Note) {
        assert!(self.told.is_empty(), "notes come first");
        self.notes += 1;
    }
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let told = (frame.start_tsc, stream, "enter", frame.function.0);
        self.told.push(told);
    }
    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let told = (frame.end_tsc, stream, "leave", frame.function.0);
        self.told.push(told);
    }
    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        let told = (frame.end_tsc, stream, "hidden", frame.function.0);
        self.told.push(told);
    }
    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, _: Mark) {
        self.told.push((tsc, stream, "mark", depth));
    }
    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.ended.push(stream);
    }
    fn is_finished(&self) -> bool {
        self.most.is_some_and(|most| self.told.len() >= most)
    }
}

impl Log {
    fn of(&self, stream: u32) -> Vec<(u64, &'static str, u32)> {
        let told = self.told.iter().filter(|told| told.1 == StreamId(stream));
        told.map(|&(tsc, _, what, number)| (tsc, what, number))
            .collect()
    }
}

/// Threads of one process; the last stream is that of another process. In the file a thread's
/// events come when it has filled a block, or at its end.
fn trace(threads: u64, calls: u64) -> Vec<u8> {
    let mut writer = begun(2);
    let mut encoders: Vec<StreamEncoder> = Vec::new();
    for n in 0..threads {
        let pid = if n + 1 == threads { 2 } else { 1 };
        let info = StreamInfo {
            pid,
            tid: pid + 10 * (n as u32) * u32::from(pid == 1),
            start_tsc: 100 * n,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&info).unwrap();
        encoders.push(writer.encoder(stream));
    }
    for call in 0..calls {
        for (n, encoder) in encoders.iter_mut().enumerate() {
            // Each at its own pace, so that one waits long for a block to be full.
            let (pace, start) = (10 + 7 * n as u64, 100 * n as u64);
            let at = start + call * 4 * pace;
            encoder.enter(at, A);
            encoder.enter(at + pace, B);
            encoder.exit(at + 2 * pace);
            if call % 3 != 2 {
                encoder.exit(at + 3 * pace);
            }
            if call % (50 + 100 * n as u64) == 49 {
                writer.write_block(encoder).unwrap();
            }
        }
    }
    // The first to begin is the last in the file.
    for encoder in encoders.iter_mut().rev() {
        writer.write_block(encoder).unwrap();
    }
    for (pid, tsc) in [(1, 100_000_000), (2, 5_000)] {
        let status = ExitStatus::Exited(0);
        let note = Note::ProcessExit { pid, tsc, status };
        writer.event_note(&note).unwrap();
    }
    writer.finish(&Summary::default()).unwrap()
}

fn told(bytes: &[u8], wanted: &Wanted, view: Log) -> Log {
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey: Survey = reader.survey().unwrap();
    replay(&mut reader, &survey, wanted, view).unwrap()
}

fn in_time() -> Wanted {
    Wanted {
        order: Order::Time,
        ..Wanted::default()
    }
}

#[test]
fn threads_come_in_the_order_of_time_whatever_the_order_of_the_file() {
    // More events than are decoded at a time.
    let bytes = trace(5, 400);
    let by_file = told(&bytes, &Wanted::default(), Log::default());
    let by_time = told(&bytes, &in_time(), Log::default());
    let is_sorted = |log: &Log| log.told.is_sorted_by_key(|told| told.0);
    assert!(!is_sorted(&by_file), "the file's order shows nothing");
    assert!(is_sorted(&by_time));
    assert_eq!(by_time.notes, 2);
    for stream in 0..5 {
        assert_eq!(by_time.of(stream), by_file.of(stream), "stream {stream}");
        assert!(by_time.of(stream).len() > 1000);
    }
    // A process's frames end when it does, not at the end of all.
    assert_eq!(by_time.ended.len(), 5);
    assert_eq!(by_time.ended.last(), Some(&StreamId(0)));
    assert_eq!(by_time.told.last().map(|told| told.0), Some(100_000_000));
}

#[test]
fn events_of_one_tick_come_in_the_order_of_streams() {
    let bytes = trace(3, 200);
    let log = told(&bytes, &in_time(), Log::default());
    let same = log.told.windows(2).filter(|two| two[0].0 == two[1].0);
    let (mut ties, mut turned) = (0, 0);
    for two in same.filter(|two| two[0].1 != two[1].1) {
        ties += 1;
        turned += usize::from(two[0].1 > two[1].1);
    }
    assert!(ties > 10 && turned == 0, "{turned} of {ties}");
}

#[test]
fn a_view_that_has_enough_ends_the_replay() {
    let bytes = trace(4, 300);
    for order in [Order::File, Order::Time] {
        let wanted = Wanted {
            order,
            ..Wanted::default()
        };
        let view = Log {
            most: Some(40),
            ..Log::default()
        };
        let log = told(&bytes, &wanted, view);
        let all = told(&bytes, &wanted, Log::default());
        assert!(log.told.len() >= 40 && log.told.len() < all.told.len());
        assert_eq!(log.told, all.told[..log.told.len()]);
        assert!(log.ended.is_empty());
    }
}

#[test]
fn selection_and_minimal_time_go_with_each_order() {
    let bytes = trace(4, 90);
    let wanted = |order| Wanted {
        selection: Selection {
            within: vec![false, true],
            tids: vec![11, 21],
            ..Selection::default()
        },
        min_ticks: 20,
        order,
        snapshots: None,
    };
    let by_time = told(&bytes, &wanted(Order::Time), Log::default());
    let by_file = told(&bytes, &wanted(Order::File), Log::default());
    for log in [&by_time, &by_file] {
        let count = |what| log.told.iter().filter(|told| told.2 == what).count();
        // Stream 1 calls B for 17 ticks each time, stream 2 for 24.
        assert_eq!(
            (count("enter"), count("hidden"), count("leave")),
            (180, 90, 90)
        );
        assert!(log.told.iter().all(|told| told.3 == B.0));
    }
    assert_eq!(by_time.of(1), by_file.of(1));
    assert_eq!(by_time.of(2), by_file.of(2));
}

/// A thread that calls B in A once, B alone, and A alone.
fn small_trace() -> Vec<u8> {
    let mut writer = begun(3);
    let stream = writer.stream(&StreamInfo::default()).unwrap();
    let mut e = writer.encoder(stream);
    const C: FunctionId = FunctionId(2);
    for (tsc, function) in [
        (1, Some(C)),
        (2, Some(A)),
        (3, Some(B)),
        (4, None),
        (5, None),
    ] {
        match function {
            Some(function) => e.enter(tsc, function),
            None => e.exit(tsc),
        }
    }
    e.enter(6, A);
    e.exit(7);
    e.exit(8);
    e.enter(9, C);
    e.exit(10);
    writer.write_block(&mut e).unwrap();
    writer.finish(&Summary::default()).unwrap()
}

fn of_small<V: Visitor>(view: V) -> V {
    let mut reader = TraceReader::new(Cursor::new(small_trace())).unwrap();
    let survey = reader.survey().unwrap();
    replay(&mut reader, &survey, &Wanted::default(), view).unwrap()
}

#[test]
fn a_focus_leaves_what_leads_to_a_function_and_what_that_calls() {
    let log = of_small(Focus::new(vec![false, true, false], Log::default())).inner;
    let ends: Vec<_> = log
        .of(0)
        .into_iter()
        .filter(|told| told.1 != "enter")
        .collect();
    let expected = [
        (4, "leave", 1),
        (5, "leave", 0),
        (7, "hidden", 0),
        (8, "leave", 2),
        (10, "hidden", 2),
    ];
    assert_eq!(ends, expected);
    assert_eq!(
        of_small(Focus::new(vec![], Log::default()))
            .inner
            .of(0)
            .len(),
        10
    );
}

#[test]
fn what_is_recast_is_told_under_its_number_or_not_at_all_and_counted() {
    let map = vec![None, Some(FunctionId(7))];
    let recast = of_small(Recast::new(map, Log::default()));
    assert_eq!(recast.skipped_calls, 2);
    let expected = [
        (1, "enter", 2),
        (3, "enter", 7),
        (4, "leave", 7),
        (8, "leave", 2),
        (9, "enter", 2),
        (10, "leave", 2),
    ];
    assert_eq!(recast.inner.of(0), expected);
}
