//! The trace in tests/golden is what today's writer makes, so a change of the format is noticed and
//! named.
//!
//! A second one has the kernel's side of a player whose frames are late at times.
//! With SPTRACE_GOLDEN=write both are written anew; `tests/golden.py --write` then renews what the
//! views show of it.

use sptrace_addr::{Avma, Svma};
use sptrace_trace::{
    EarlyEnd, ExitStatus, Function, FunctionId, Header, Module, Note, Section, StreamEncoder,
    StreamInfo, Summary, TraceReader, TraceWriter, Turn, Window,
};
use std::path::PathBuf;

const FUNCTIONS: [(usize, u64, &str); 12] = [
    (0, 0x1000, "_start"),
    (0, 0x1100, "main"),
    (
        0,
        0x1200,
        "_ZN4demo5parseERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    ),
    (0, 0x1300, "_ZN4demo6worker3runEv"),
    (0, 0x1400, ""),
    (0, 0x1500, "f_retry, again"),
    (1, 0x8000, "malloc"),
    (1, 0x8100, "_int_malloc"),
    (1, 0x8200, "free"),
    (1, 0x8300, "pthread_mutex_unlock"),
    (1, 0x8400, "fork"),
    (1, 0x8500, "_exit"),
];
const START: FunctionId = FunctionId(0);
const MAIN: FunctionId = FunctionId(1);
const PARSE: FunctionId = FunctionId(2);
const RUN: FunctionId = FunctionId(3);
const NAMELESS: FunctionId = FunctionId(4);
const RETRY: FunctionId = FunctionId(5);
const MALLOC: FunctionId = FunctionId(6);
const INT_MALLOC: FunctionId = FunctionId(7);
const FREE: FunctionId = FunctionId(8);
const UNLOCK: FunctionId = FunctionId(9);
const FORK: FunctionId = FunctionId(10);
const EXIT: FunctionId = FunctionId(11);
const BEGIN_TSC: u64 = 1_000_000_000;

type Writer = TraceWriter<Vec<u8>>;

fn header() -> Header {
    Header {
        command: vec!["./demo".into(), "--count".into(), "3".into()],
        cwd: "/srv".into(),
        host: "golden".into(),
        kernel: "6.1.0".into(),
        cpu: "Example CPU".into(),
        tool_version: "0".into(),
        start_unix_ns: 1_700_000_000_000_000_000,
        tsc_hz: 2_000_000_000,
        start_tsc: BEGIN_TSC,
    }
}

fn names(writer: &mut Writer) {
    let mut modules = Vec::new();
    for path in ["/usr/bin/demo", "/lib/libc.so.6"] {
        let module = Module {
            path: path.into(),
            build_id: vec![1, 2, 3],
            svma: Svma(0)..Svma(0x10000),
        };
        modules.push(writer.module(&module).unwrap());
    }
    for (module, svma, symbol) in FUNCTIONS {
        let function = Function {
            module: modules[module],
            svma: Svma(svma),
            size_bytes: 0x80,
            symbol: symbol.into(),
        };
        writer.function(&function).unwrap();
    }
    let (pid, tsc, avma) = (100, BEGIN_TSC + 10, Avma(0x5555_0000_0000));
    let module = modules[0];
    let map = Note::ModuleMap {
        pid,
        tsc,
        module,
        avma,
    };
    writer.event_note(&map).unwrap();
}

fn stream(writer: &mut Writer, pid: u32, tid: u32, start: u64) -> StreamEncoder {
    let info = StreamInfo {
        pid,
        tid,
        ppid: pid - 1,
        comm: "demo".into(),
        start_tsc: BEGIN_TSC + start,
        ..StreamInfo::default()
    };
    let id = writer.stream(&info).unwrap();
    writer.encoder(id)
}

/// Calls with what may happen in them: a tail, a throw, a wait, a loss, calls without an end.
fn main_thread(e: &mut StreamEncoder) {
    let at = |ticks: u64| BEGIN_TSC + ticks;
    e.enter(at(1_000), START);
    e.enter(at(1_500), MAIN);
    for n in 0..8 {
        let t = 2_000 + n * 10_000;
        e.enter(at(t), PARSE);
        e.enter(at(t + 500), MALLOC);
        e.tail(at(t + 700), INT_MALLOC);
        e.exit(at(t + 1_500 + n * 13));
        e.called_by(at(t + 2_000), Some(PARSE));
        e.enter_open(at(t + 2_000), UNLOCK);
        e.called_by(at(t + 2_600), Some([PARSE, UNLOCK][n as usize % 2]));
        e.enter(at(t + 2_600), FREE);
        e.exit(at(t + 2_900));
        e.called_by(at(t + 3_000), None);
        e.enter(at(t + 3_000), NAMELESS);
        e.exit(at(t + 3_300));
        e.close_open(at(t + 4_000), 1);
        e.exit(at(t + 4_000));
    }
    e.enter(at(90_000), RETRY);
    e.enter(at(90_500), PARSE);
    e.unwound(at(95_000), 1);
    e.resumed(at(95_100), RETRY);
    e.exit(at(96_000));
    e.enter(at(97_000), FORK);
    e.blocked(at(500_000), 400_000);
    e.exit(at(510_000));
    e.lost(at(520_000), 77);
    e.enter(at(2_990_000), EXIT);
}

fn worker(e: &mut StreamEncoder) {
    let at = |ticks: u64| BEGIN_TSC + ticks;
    e.enter_earlier(at(40_000), START);
    e.enter_earlier(at(40_000), RUN);
    for n in 0..12 {
        let t = 41_000 + n * 5_000;
        e.enter(at(t), MALLOC);
        e.exit(at(t + 400 + n * 100));
        e.enter(at(t + 2_000), FREE);
        e.exit(at(t + 2_300));
    }
    e.close_all(at(110_000));
}

fn child(e: &mut StreamEncoder) {
    let at = |ticks: u64| BEGIN_TSC + ticks;
    for function in [START, MAIN, FORK] {
        e.inherit(at(100_000), function);
    }
    e.exit(at(101_000));
    e.enter(at(103_000), NAMELESS);
    for n in 0..3 {
        e.enter(at(104_000 + n * 100), NAMELESS);
    }
    for n in 0..3 {
        e.exit(at(105_000 + n * 100));
    }
}

fn golden() -> Vec<u8> {
    let mut writer = TraceWriter::create(Vec::new(), &header()).unwrap();
    names(&mut writer);
    let exec = Note::Exec {
        pid: 100,
        tsc: BEGIN_TSC + 900,
        path: "/usr/bin/demo".into(),
    };
    writer.event_note(&exec).unwrap();
    let mut first = stream(&mut writer, 100, 100, 0);
    main_thread(&mut first);
    writer.write_block(&mut first).unwrap();
    // The other threads' events come after those that are later.
    let mut second = stream(&mut writer, 100, 101, 40_000);
    worker(&mut second);
    writer.write_block(&mut second).unwrap();
    let mut third = stream(&mut writer, 102, 102, 100_000);
    child(&mut third);
    writer.write_block(&mut third).unwrap();
    for (ticks, turn) in turns() {
        let (pid, tsc) = (0, BEGIN_TSC + ticks);
        writer
            .event_note(&Note::Recording { pid, tsc, turn })
            .unwrap();
    }
    for (pid, ticks, status) in [
        (102, 200_000, ExitStatus::Signaled(11)),
        (100, 3_000_000, ExitStatus::Exited(3)),
    ] {
        let tsc = BEGIN_TSC + ticks;
        writer
            .event_note(&Note::ProcessExit { pid, tsc, status })
            .unwrap();
    }
    writer.finish(&summary()).unwrap()
}

/// What became of the recording, and when.
fn turns() -> Vec<(u64, Turn)> {
    let event = |event: &str| event.to_owned();
    let window = |number| Window { number, of: 2 };
    let between = |is_opening, event, missed| Turn::Between {
        glob: "demo::parse*".into(),
        is_opening,
        event,
        missed,
    };
    let begins = |number| Turn::Begins {
        event: event("signal:USR1"),
        window: Some(window(number)),
    };
    let ends = Turn::Ends {
        event: event("ctl:stop"),
        window: window(1),
    };
    let dumped = Turn::Dumped {
        event: event("crash (process 102 was killed by SIGSEGV)"),
    };
    vec![
        (50_000, begins(1)),
        (60_000, between(true, event("call:malloc#3"), 0)),
        (104_500, ends),
        (150_000, between(false, event("time:1s"), 4)),
        (160_000, begins(2)),
        (199_000, dumped),
        (2_900_000, Turn::EndsEarly(EarlyEnd::AtSize)),
    ]
}

fn summary() -> Summary {
    let mut summary = Summary {
        end_tsc: BEGIN_TSC + 3_100_000,
        ended_early: Some(EarlyEnd::AtSize),
        ..Summary::default()
    };
    for (section, key, count) in [
        (Section::Sites, "patched: call instruction", 1234),
        (Section::Sites, "patched: tail jump", 56),
        (Section::Refused, "no room for a jump", 3),
        (Section::Hole, "changes to another stack", 1),
        (Section::LeftOut, "[vdso]: no file", 1),
        (
            Section::SeenInPart,
            "/usr/bin/demo: its runtime walks its own stacks",
            8,
        ),
        (Section::WithoutEnd, "called by code that is not seen", 8),
        (Section::Functions, "instrumented", 12),
        (Section::Events, "recorded", 193),
        (Section::Memory, "bytes of records", 1600),
        (Section::Loss, "events dropped", 77),
        (Section::Loss, "torn words", 0),
        (
            Section::Dump,
            "crash (process 102 was killed by SIGSEGV)",
            1,
        ),
    ] {
        summary.row(section, key, count);
    }
    summary
}

/// Functions of the player and of the kernel, by the module that shows them.
const OF_PLAYER: [(usize, &str); 14] = [
    (0, "main"),
    (0, "decode"),
    (0, "nanosleep"),
    (0, "posix_spawn"),
    (0, "execve"),
    (1, "clock_nanosleep"),
    (1, "vfork"),
    (2, "waiting"),
    (2, "woken by local timer"),
    (2, "queued behind disturb"),
    (2, "preempted by disturb"),
    (3, "local timer"),
    (2, "woken by true"),
    (1, "read"),
];

fn of_player(name: &str) -> FunctionId {
    let found = OF_PLAYER.iter().position(|(_, known)| *known == name);
    FunctionId(found.unwrap() as u32)
}

/// Frames each 40 us: it sleeps, and decodes. When each sleep ends, how long it waits for the
/// processor then, how long it computes, and how long it is preempted meanwhile.
const LAPS: [[u64; 4]; 8] = [
    [70_000, 0, 10_000, 0],
    [150_000, 0, 10_000, 0],
    [230_000, 30_000, 10_000, 0],
    [310_000, 0, 10_000, 0],
    [390_000, 0, 100_000, 0],
    [500_000, 0, 10_000, 0],
    [580_000, 0, 10_000, 75_000],
    [690_000, 0, 10_000, 0],
];

fn player(e: &mut StreamEncoder) {
    let at = |ticks: u64| BEGIN_TSC + ticks;
    e.enter(at(0), of_player("main"));
    let mut sleeps = 10_000;
    for [wakes, queued, computes, preempted] in LAPS {
        e.enter(at(sleeps), of_player("nanosleep"));
        e.exit(at(wakes + queued + 200));
        e.enter(at(wakes + queued + 400), of_player("decode"));
        sleeps = wakes + queued + computes + preempted + 600;
        e.exit(at(sleeps - 200));
    }
    e.enter(at(720_000), of_player("posix_spawn"));
    e.enter(at(730_000), of_player("execve"));
    e.unwound(at(780_000), 1);
    e.exit(at(780_000));
    e.exit(at(820_000));
}

fn for_player(e: &mut StreamEncoder) {
    let at = |ticks: u64| BEGIN_TSC + ticks;
    let instant = |e: &mut StreamEncoder, ticks, name| {
        e.enter(at(ticks), of_player(name));
        e.exit(at(ticks));
    };
    let mut sleeps = 10_100;
    for [wakes, queued, computes, preempted] in LAPS {
        e.enter(at(sleeps), of_player("clock_nanosleep"));
        e.enter(at(sleeps + 100), of_player("waiting"));
        instant(e, wakes, "woken by local timer");
        if queued > 0 {
            instant(e, wakes + queued, "queued behind disturb");
        }
        e.exit(at(wakes + queued));
        e.exit(at(wakes + queued + 100));
        e.enter(at(wakes + queued + 1_000), of_player("local timer"));
        e.exit(at(wakes + queued + 1_400));
        if preempted > 0 {
            e.enter(at(wakes + 5_000), of_player("preempted by disturb"));
            e.exit(at(wakes + 5_000 + preempted));
        }
        sleeps = wakes + queued + computes + preempted + 700;
    }
    e.enter(at(721_000), of_player("vfork"));
    e.enter(at(722_000), of_player("waiting"));
    instant(e, 770_000, "woken by true");
    e.exit(at(771_000));
    e.exit(at(772_000));
    e.enter(at(810_000), of_player("read"));
    e.exit(at(815_000));
}

fn golden_of_both_sides() -> Vec<u8> {
    let mut writer = TraceWriter::create(Vec::new(), &header()).unwrap();
    let modules = [
        "/usr/bin/player",
        "[kernel system calls]",
        "[scheduler]",
        "[interrupts]",
    ];
    let modules = modules.map(|path| {
        let module = Module {
            path: path.into(),
            build_id: vec![],
            svma: Svma(0)..Svma(0x1000),
        };
        writer.module(&module).unwrap()
    });
    for (number, (module, symbol)) in OF_PLAYER.iter().enumerate() {
        let function = Function {
            module: modules[*module],
            svma: Svma(number as u64 * 16),
            size_bytes: 16,
            symbol: (*symbol).into(),
        };
        writer.function(&function).unwrap();
    }
    let info = StreamInfo {
        pid: 100,
        tid: 100,
        comm: "player".into(),
        start_tsc: BEGIN_TSC,
        ..StreamInfo::default()
    };
    let program = writer.stream(&info).unwrap();
    let kernel = writer.kernel_side(&info).unwrap();
    let mut encoder = writer.encoder(program);
    player(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    let mut encoder = writer.encoder(kernel);
    for_player(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    let mut summary = Summary {
        end_tsc: BEGIN_TSC + 820_000,
        ..Summary::default()
    };
    summary.row(Section::Events, "of the kernel's side", 92);
    writer.finish(&summary).unwrap()
}

fn kept(name: &str, made: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = folder.join(name);
    if std::env::var_os("SPTRACE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, made).unwrap();
    }
    std::fs::read(&path).unwrap()
}

const HAS_CHANGED: &str =
    "the format has changed: raise its version, then write the trace with SPTRACE_GOLDEN=write";

#[test]
fn the_golden_trace_is_what_is_written_today_and_can_be_read() {
    let made = golden();
    let kept = kept("demo.trace", &made);
    let mut reader = TraceReader::new(std::io::Cursor::new(&kept)).unwrap();
    let survey = reader.survey().unwrap();
    assert_eq!((survey.blocks.len(), survey.notes.len()), (3, 10));
    assert!(made.len() < 10_000);
    assert!(made == kept, "{HAS_CHANGED}");
}

#[test]
fn the_golden_trace_of_both_sides_is_what_is_written_today_and_can_be_read() {
    let made = golden_of_both_sides();
    let kept = kept("kernel.trace", &made);
    let mut reader = TraceReader::new(std::io::Cursor::new(&kept)).unwrap();
    let survey = reader.survey().unwrap();
    assert_eq!(survey.dictionary.kernel_sides.len(), 1);
    assert!(made == kept, "{HAS_CHANGED}");
}
