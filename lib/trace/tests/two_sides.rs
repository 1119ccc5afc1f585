//! What the kernel did for a thread is told inside of what its program ran.

use sptrace_addr::Svma;
use sptrace_trace::values::{Values, What};
use sptrace_trace::{
    ExitStatus, Frame, FunctionId, Header, Note, Order, StreamEncoder, StreamId, StreamInfo,
    StreamTotals, Summary, TraceReader, TraceWriter, Visitor, Wanted, replay,
};
use std::io::Cursor;

/// Functions of the program's: 0 to 9; of the kernel's: from 10 on, the last of which is vfork(2).
const FUNCTIONS: u64 = 20;
const VFORK: u32 = 19;

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    totals: Vec<(u32, StreamTotals)>,
}

impl Visitor for Log {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let line = format!(
            "{} {}> {}",
            stream.0,
            "  ".repeat(frame.depth as usize),
            frame.function.0
        );
        self.lines.push(line);
    }
    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let known = |ticks: Option<u64>| ticks.map_or("?".to_owned(), |t| t.to_string());
        let (total, own) = (known(frame.total_ticks), known(frame.self_ticks));
        let line = format!("{} < {} {total} {own}", stream.0, frame.function.0);
        self.lines.push(line);
    }
    fn values(&mut self, stream: StreamId, tsc: u64, bytes: &[u8]) {
        let values = Values::read(bytes).unwrap();
        let line = format!("{} = {:?} {tsc}", stream.0, values.what);
        self.lines.push(line);
    }
    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.totals.push((stream.0, *totals));
    }
}

type Encode<'a> = &'a dyn Fn(&mut StreamEncoder);

/// Streams of one thread: (of the kernel's, start, events).
fn told(streams: &[(bool, u64, Encode<'_>)], notes: &[Note], order: Order) -> Log {
    let mut writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
    let modules = ["m", "[kernel system calls]"].map(|path| {
        let module = sptrace_trace::Module {
            path: path.into(),
            build_id: vec![],
            svma: Svma(0)..Svma(99),
        };
        writer.module(&module).unwrap()
    });
    for svma in 0..FUNCTIONS {
        let is_vfork = svma == u64::from(VFORK);
        let function = sptrace_trace::Function {
            module: modules[usize::from(is_vfork)],
            svma: Svma(svma),
            size_bytes: 1,
            symbol: if is_vfork { "vfork" } else { "" }.into(),
        };
        writer.function(&function).unwrap();
    }
    for (is_kernel, start_tsc, encode) in streams {
        let info = StreamInfo {
            pid: 5,
            tid: 5,
            start_tsc: *start_tsc,
            ..StreamInfo::default()
        };
        let stream = match is_kernel {
            true => writer.kernel_side(&info).unwrap(),
            false => writer.stream(&info).unwrap(),
        };
        let mut encoder = writer.encoder(stream);
        encode(&mut encoder);
        writer.write_block(&mut encoder).unwrap();
    }
    for note in notes {
        writer.event_note(note).unwrap();
    }
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey = reader.survey().unwrap();
    let wanted = Wanted {
        order,
        ..Wanted::default()
    };
    replay(&mut reader, &survey, &wanted, Log::default()).unwrap()
}

fn f(id: u32) -> FunctionId {
    FunctionId(id)
}

fn kernel(e: &mut StreamEncoder) {
    e.enter(20, f(10));
    e.enter(30, f(11));
    e.exit(50);
    e.exit(60);
    e.enter(75, f(12));
    e.exit(77);
}

fn program(e: &mut StreamEncoder) {
    e.enter(0, f(0));
    e.enter(10, f(1));
    e.exit(70);
    e.exit(100);
}

#[test]
fn calls_of_the_kernel_lie_in_the_function_that_made_them_in_both_orders() {
    let expected = [
        "0 > 0",
        "0   > 1",
        "0     > 10",
        "0       > 11",
        "0 < 11 20 20",
        "0 < 10 40 20",
        "0 < 1 60 20",
        "0   > 12",
        "0 < 12 2 2",
        "0 < 0 100 38",
    ];
    for order in [Order::File, Order::Time] {
        for streams in [
            [(false, 0, &program as Encode<'_>), (true, 5, &kernel)],
            [(false, 0, &program as Encode<'_>), (true, 5, &kernel)],
        ] {
            let log = told(&streams, &[], order);
            assert_eq!(log.lines, expected);
            let [(0, totals)] = log.totals[..] else {
                panic!("one stream is told: {:?}", log.totals.len());
            };
            assert_eq!((totals.events, totals.calls), (10, 5));
            assert_eq!(totals.known_ticks + totals.outside_ticks, totals.ticks);
        }
    }
}

#[test]
fn a_kernel_frame_whose_end_was_lost_ends_where_the_program_runs_without_a_time() {
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(10));
        // The end was lost, and is told where the next call begins.
        e.exit(80);
        e.enter(80, f(11));
        e.exit(85);
    };
    let log = told(
        &[(false, 0, &program), (true, 5, &kernel)],
        &[],
        Order::Time,
    );
    let expected = [
        "0 > 0",
        "0   > 1",
        "0     > 10",
        "0 < 10 ? ?",
        "0 < 1 60 ?",
        "0   > 11",
        "0 < 11 5 5",
        "0 < 0 100 35",
    ];
    assert_eq!(log.lines, expected);
}

#[test]
fn what_the_kernel_does_while_the_thread_waits_for_sptrace_is_left_out() {
    let program = |e: &mut StreamEncoder| {
        e.enter(0, f(0));
        e.blocked(60, 50);
        e.exit(100);
    };
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(10));
        e.exit(50);
        e.enter(70, f(11));
        e.exit(80);
    };
    let log = told(
        &[(false, 0, &program), (true, 5, &kernel)],
        &[],
        Order::Time,
    );
    assert_eq!(
        log.lines,
        ["0 > 0", "0   > 11", "0 < 11 10 10", "0 < 0 50 40"]
    );
    assert_eq!(log.totals[0].1.blocked_ticks, 50);
}

#[test]
fn the_kernels_functions_have_their_values_and_its_system_calls_have_none() {
    let values = |what| {
        let values = Values {
            number: 0,
            thread: 0,
            what,
            pieces: Vec::new(),
        };
        let mut bytes = Vec::new();
        values.put(&mut bytes);
        bytes
    };
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(10));
        e.values(20, &values(What::Begins([1, 2, 3, 4, 5, 6])));
        e.enter(30, f(11));
        e.values(30, &values(What::Called(vec![7])));
        e.exit(50);
        e.values(60, &values(What::Returned(0)));
        e.exit(60);
    };
    let streams: [(bool, u64, Encode<'_>); 2] = [(false, 0, &program), (true, 5, &kernel)];
    let log = told(&streams, &[], Order::Time);
    let expected = ["0       > 11", "0 = Called([7]) 30", "0 < 11 20 20"];
    assert_eq!(log.lines[3..6], expected);
    assert_eq!(
        log.lines.iter().filter(|line| line.contains('=')).count(),
        1
    );
}

#[test]
fn what_a_parent_does_while_its_vfork_child_waits_for_sptrace_is_there() {
    let program = |e: &mut StreamEncoder| {
        e.enter(0, f(0));
        e.blocked(60, 30);
        e.enter(60, f(2));
        e.enter(100, f(5));
    };
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(VFORK));
        e.enter(40, f(11));
        e.exit(80);
        e.exit(90);
    };
    let streams: [(bool, u64, Encode<'_>); 2] = [(false, 0, &program), (true, 5, &kernel)];
    let log = told(&streams, &[], Order::Time);
    let expected = [
        "0 > 0",
        "0   > 19",
        "0     > 11",
        "0       > 2",
        "0 < 2 ? ?",
        // Of the wait that is taken out which lies after the kernel's last event.
        "0 < 11 20 ?",
        "0 < 19 50 30",
    ];
    assert_eq!(log.lines[..7], expected, "{:?}", log.lines);
}

#[test]
fn a_call_that_never_returns_is_open_when_the_process_ends() {
    let program = |e: &mut StreamEncoder| e.enter(0, f(0));
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(10));
        e.enter(30, f(11));
    };
    let end = Note::ProcessExit {
        pid: 5,
        tsc: 90,
        status: ExitStatus::Signaled(9),
    };
    let log = told(
        &[(false, 0, &program), (true, 5, &kernel)],
        &[end],
        Order::Time,
    );
    let expected = [
        "0 > 0",
        "0   > 10",
        "0     > 11",
        "0 < 11 60 60",
        "0 < 10 70 10",
        "0 < 0 90 20",
    ];
    assert_eq!(log.lines, expected);
}

#[test]
fn a_program_after_another_has_what_the_kernel_does_then() {
    let first = |e: &mut StreamEncoder| e.enter(0, f(0));
    let second = |e: &mut StreamEncoder| {
        e.enter(50, f(1));
        e.exit(60);
    };
    let kernel = |e: &mut StreamEncoder| {
        e.enter(10, f(10)); // execve
        e.exit(35);
        e.enter(40, f(11));
        e.exit(45);
        e.enter(55, f(12));
        e.exit(57);
        e.enter(70, f(13));
        e.exit(71);
    };
    let exec = Note::Exec {
        pid: 5,
        tsc: 30,
        path: "p".into(),
    };
    let streams: [(bool, u64, Encode<'_>); 3] =
        [(false, 0, &first), (true, 5, &kernel), (false, 50, &second)];
    let log = told(&streams, &[exec], Order::Time);
    let expected = [
        "0 > 0",
        "0   > 10",
        "0 < 10 20 20",
        "0 < 0 30 10",
        "2 > 11",
        "2 < 11 5 5",
        "2 > 1",
        "2   > 12",
        "2 < 12 2 2",
        "2 < 1 10 8",
        "2 > 13",
        "2 < 13 1 1",
    ];
    assert_eq!(log.lines, expected);
}

#[test]
fn what_a_vfork_child_runs_lies_in_the_wait_of_its_parent() {
    let program = |e: &mut StreamEncoder| {
        e.enter(0, f(0));
        // vfork(3) is recorded without its end, which comes twice. The child is there first.
        e.enter_open(10, f(1));
        e.close_open(40, 1);
        e.enter(40, f(2));
        e.enter(45, f(3));
        e.exit(50);
        e.enter(55, f(4));
        // The child is another program now: what it has open ends where the parent is seen.
        e.unwound(100, 2);
        e.enter(100, f(5));
        e.exit(110);
        e.exit(120);
    };
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(VFORK));
        e.enter(30, f(11));
        e.enter(70, f(12)); // it is woken
        e.exit(70);
        e.exit(80);
        e.exit(90);
        e.enter(105, f(13));
        e.exit(106);
    };
    let log = told(
        &[(false, 0, &program), (true, 5, &kernel)],
        &[],
        Order::Time,
    );
    let expected = [
        "0 > 0",
        "0   > 1",
        "0     > 19",
        "0       > 11",
        "0         > 2",
        "0           > 3",
        "0 < 3 5 5",
        "0           > 4",
        "0 < 4 ? ?",
        "0 < 2 ? ?",
        "0         > 12",
        "0 < 12 0 0",
        "0 < 11 50 ?",
        "0 < 19 70 20",
        "0 < 1 ? ?",
        "0   > 5",
        "0     > 13",
        "0 < 13 1 1",
        "0 < 5 10 9",
        "0 < 0 120 ?",
    ];
    assert_eq!(log.lines, expected);
    assert_eq!(log.totals[0].1.ticks, 120);
}

#[test]
fn a_trace_that_ends_while_a_vfork_child_runs_has_all_frames_open() {
    let program = |e: &mut StreamEncoder| {
        e.enter(0, f(0));
        e.enter(40, f(2));
    };
    // The child runs before its parent waits.
    let kernel = |e: &mut StreamEncoder| {
        e.enter(20, f(VFORK));
        e.enter(50, f(11));
    };
    let log = told(
        &[(false, 0, &program), (true, 5, &kernel)],
        &[],
        Order::Time,
    );
    let expected = [
        "0 > 0",
        "0   > 19",
        "0     > 2",
        "0 < 2 ? ?",
        "0     > 11",
        "0 < 11 ? ?",
        "0 < 19 ? ?",
        "0 < 0 ? ?",
    ];
    assert_eq!(log.lines, expected);
}
