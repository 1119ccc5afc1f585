//! Traces with system calls in, lines and tables out.

use sptrace_addr::Svma;
use sptrace_render::{
    CallCounts, Calls, CountKey, DescriptorNames, LibraryCalls, Lines, LinesOptions, SystemCalls,
    Teller, ThreadColumn, Time,
};
use sptrace_trace::values::{Piece, Values, What};
use sptrace_trace::{
    ExitStatus, Function, FunctionId, Header, Module, Names, Note, Order, SYSTEM_CALLS,
    StreamEncoder, StreamInfo, Summary, TraceReader, TraceWriter, Wanted, replay,
};
use sptrace_types::decode::call::Options;
use std::io::Cursor;

const READ: u32 = 0;
const FORK: u32 = 57;
const EXIT_GROUP: u32 = 231;
const OPENAT: u32 = 257;
const AT_FDCWD: u64 = -100i64 as u64;

fn values(encoder: &mut StreamEncoder, tsc: u64, number: u32, what: What, memory: &[(u64, &[u8])]) {
    let when = u8::from(!matches!(what, What::Begins(_)));
    let pieces = memory.iter().map(|(address, bytes)| Piece {
        when,
        address: *address,
        bytes,
    });
    let values = Values {
        number,
        thread: 0,
        what,
        pieces: pieces.collect(),
    };
    let mut bytes = Vec::new();
    values.put(&mut bytes);
    encoder.values(tsc, &bytes);
}

fn open_files() -> Note {
    Note::Descriptors {
        pid: 7,
        tsc: 1000,
        folder: "/home".to_owned(),
        open: vec![(3, "/dev/pts/1".to_owned())],
    }
}

/// A program that opens a file that is not there, forks, reads while its child ends, and ends.
fn trace() -> Vec<u8> {
    let header = Header {
        tsc_hz: 1_000_000_000,
        start_tsc: 1000,
        start_unix_ns: 86_400_000_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let mut module = |path: &str| {
        let svma = Svma(0)..Svma(0x1000);
        let build_id = Vec::new();
        let path = path.to_owned();
        writer
            .module(&Module {
                path,
                build_id,
                svma,
            })
            .unwrap()
    };
    let modules = [
        module("/bin/p"),
        module("/lib/libc.so"),
        module(SYSTEM_CALLS),
    ];
    let named = [
        (0, 0, "main"),
        (1, 0, "open"),
        (2, OPENAT, "openat"),
        (2, READ, "read"),
        (2, FORK, "fork"),
        (2, EXIT_GROUP, "exit_group"),
    ];
    for (module, number, symbol) in named {
        let function = Function {
            module: modules[module],
            svma: Svma(number.into()),
            size_bytes: 0,
            symbol: symbol.to_owned(),
        };
        writer.function(&function).unwrap();
    }
    let stream = |tid: u32, start_tsc| StreamInfo {
        pid: tid,
        tid,
        start_tsc,
        ..StreamInfo::default()
    };
    let first = writer.stream(&stream(7, 1000)).unwrap();
    let second = writer.stream(&stream(8, 5000)).unwrap();
    let mut parent = writer.encoder(first);
    let mut child = writer.encoder(second);
    let e = &mut parent;
    e.enter(1000, FunctionId(0));
    e.enter(1500, FunctionId(1));
    e.enter(2000, FunctionId(2));
    let begins = What::Begins([AT_FDCWD, 0x5000, 0, 0, 0, 0]);
    values(e, 2000, OPENAT, begins, &[(0x5000, b"/no/file\0")]);
    values(e, 4000, OPENAT, What::Returned(-2), &[]);
    e.exit(4000);
    e.exit(4100);
    e.enter(4200, FunctionId(4));
    values(e, 4200, FORK, What::Begins([0; 6]), &[]);
    values(e, 5000, FORK, What::Returned(8), &[]);
    e.exit(5000);
    e.enter(6000, FunctionId(3));
    values(e, 6000, READ, What::Begins([3, 0x6000, 16, 0, 0, 0]), &[]);
    child.enter(7000, FunctionId(5));
    values(
        &mut child,
        7000,
        EXIT_GROUP,
        What::Begins([2, 0, 0, 0, 0, 0]),
        &[],
    );
    child.exit(7000);
    values(e, 9000, READ, What::Returned(3), &[(0x6000, b"abc")]);
    e.exit(9000);
    writer.event_note(&open_files()).unwrap();
    writer.write_block(&mut parent).unwrap();
    writer.write_block(&mut child).unwrap();
    let status = ExitStatus::Signaled(15);
    let (pid, tsc) = (7, 9500);
    writer
        .event_note(&Note::ProcessExit { pid, tsc, status })
        .unwrap();
    writer.finish(&Summary::default()).unwrap()
}

fn options() -> LinesOptions<'static> {
    LinesOptions {
        calls: Options::default(),
        thread: ThreadColumn::Always,
        time: Time::None,
        is_relative: false,
        with_duration: false,
        column: 40,
        wanted: None,
        on_descriptors: None,
        succeeded: None,
        min_ticks: 0,
        with_number: false,
        limit: None,
        descriptors: DescriptorNames::None,
        paths: Vec::new(),
        resolve: |_| None,
        functions: None,
    }
}

fn lines(options: LinesOptions<'_>) -> String {
    let bytes = trace();
    let mut reader = TraceReader::new(Cursor::new(&bytes[..])).unwrap();
    let survey = reader.survey().unwrap();
    let (header, clock) = (reader.header().clone(), reader.clock());
    let mut out = Vec::new();
    let view = Lines::new(&mut out, &header, clock, options);
    let view = SystemCalls::new(&survey.dictionary, view);
    let wanted = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let lines = replay(&mut reader, &survey, &wanted, view)
        .unwrap()
        .finish();
    lines.result.unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_call_during_which_another_process_speaks_is_written_in_two_parts() {
    let want = "\
7     openat(AT_FDCWD, \"/no/file\", O_RDONLY)  = -1 ENOENT (No such file or directory)
7     fork()                                  = 8
7     read(3,  <unfinished ...>
8     exit_group(2)                           = ?
8     +++ exited with 2 +++
7     <... read resumed>\"abc\", 16)            = 3
7     +++ killed by SIGTERM +++
";
    assert_eq!(lines(options()), want);
}

#[test]
fn lines_are_chosen_by_how_a_call_ended_and_how_long_it_took() {
    let failed = LinesOptions {
        succeeded: Some(false),
        time: Time::Microseconds,
        with_duration: true,
        ..options()
    };
    let text = lines(failed);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("7     00:00:00.000001 openat("),
        "{first}"
    );
    assert!(
        first.ends_with("(No such file or directory) <0.000002>"),
        "{first}"
    );
    assert_eq!(
        text.lines().filter(|l| !l.contains("+++")).count(),
        1,
        "{text}"
    );
    let long = LinesOptions {
        min_ticks: 2500,
        ..options()
    };
    assert!(lines(long).contains("read(3, \"abc\", 16)"));
}

#[test]
fn sums_count_errors_and_know_no_time_of_what_did_not_return() {
    let bytes = trace();
    let mut reader = TraceReader::new(Cursor::new(&bytes[..])).unwrap();
    let survey = reader.survey().unwrap();
    let clock = reader.clock();
    let view = SystemCalls::new(&survey.dictionary, CallCounts::of(None));
    let wanted = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let sums = replay(&mut reader, &survey, &wanted, view)
        .unwrap()
        .finish();
    let mut out = Vec::new();
    sums.write(&mut out, clock, CountKey::Time, None).unwrap();
    let want = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 51.72    0.000003           3         1           read
 34.48    0.000002           2         1         1 openat
 13.79    0.000001           0         1           fork
  0.00    0.000000           0         1           exit_group
------ ----------- ----------- --------- --------- ----------------
100.00    0.000006           1         4         1 total
";
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn calls_across_modules_are_those_whose_caller_is_of_another() {
    let bytes = trace();
    let mut reader = TraceReader::new(Cursor::new(&bytes[..])).unwrap();
    let survey = reader.survey().unwrap();
    let clock = reader.clock();
    let view = LibraryCalls::new(&survey.dictionary);
    let sums = replay(&mut reader, &survey, &Wanted::default(), view).unwrap();
    let mut out = Vec::new();
    let names = Names::new(&survey.dictionary);
    let shown = (CountKey::Name, None);
    sums.write(&mut out, &names, clock, shown).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<_> = text.lines().filter_map(|l| l.split_once(" (")).collect();
    let names: Vec<_> = rows
        .iter()
        .filter_map(|(row, _)| row.split(' ').next_back())
        .collect();
    // The program's own main is called by nobody that was seen.
    assert_eq!(names, ["fork", "open", "openat", "read"], "{text}");
    assert!(
        text.contains("2.6         2.6         2.6         1 open (libc.so)"),
        "{text}"
    );
}

#[test]
fn descriptors_are_named_by_what_was_open_before() {
    let named = LinesOptions {
        descriptors: DescriptorNames::Paths,
        ..options()
    };
    let text = lines(named);
    assert!(text.contains("read(3</dev/pts/1>, "), "{text}");
    assert!(
        text.contains("openat(AT_FDCWD</home>, \"/no/file\""),
        "{text}"
    );
}

#[test]
fn calls_are_chosen_by_the_paths_that_they_name_or_that_descriptors_lead_to() {
    let of = |path: &str| LinesOptions {
        paths: vec![path.to_owned()],
        ..options()
    };
    let names = |path| {
        let text = lines(of(path));
        let names = ["openat", "read", "fork"].into_iter();
        names
            .filter(|name| text.contains(*name))
            .collect::<Vec<_>>()
    };
    assert_eq!(names("/no/file"), ["openat"]);
    assert_eq!(names("/dev/pts/1"), ["read"]);
    assert_eq!(names("/no"), [""; 0]);
}

/// What is written by the time that a call runs, and at its end.
#[test]
fn a_call_that_lasts_is_shown_while_it_does() {
    let header = Header {
        tsc_hz: 1_000_000_000,
        ..Header::default()
    };
    let of = Teller {
        pid: 7,
        tid: 7,
        ppid: 1,
    };
    let clock = sptrace_trace::Clock::of(&header);
    let options = LinesOptions {
        thread: ThreadColumn::WhenSeveral,
        ..options()
    };
    let mut calls = Calls::new(Lines::new(Vec::new(), &header, clock, options));
    let put = |calls: &mut Calls<Lines<'_, Vec<u8>>>, of, tsc, what| {
        let values = Values {
            number: READ,
            thread: 0,
            what,
            pieces: Vec::new(),
        };
        let mut bytes = Vec::new();
        values.put(&mut bytes);
        calls.values(of, tsc, &bytes);
    };
    put(&mut calls, of, 1, What::Begins([0, 0, 5, 0, 0, 0]));
    calls.listener.show_begun();
    put(&mut calls, of, 2, What::Returned(0));
    put(&mut calls, of, 3, What::Begins([0, 0, 6, 0, 0, 0]));
    calls.listener.show_begun();
    let other = Teller { tid: 8, ..of };
    put(&mut calls, other, 4, What::Begins([1, 0, 7, 0, 0, 0]));
    put(&mut calls, other, 5, What::Returned(0));
    put(&mut calls, of, 6, What::Returned(0));
    let text = String::from_utf8(calls.finish().into_inner()).unwrap();
    let expected = [
        "read(0, NULL, 5)                        = 0",
        "read(0,  <unfinished ...>",
        "8     read(1, NULL, 7)                        = 0",
        "7     <... read resumed>NULL, 6)              = 0",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_signal_cuts_the_call_that_it_interrupts() {
    let header = Header {
        tsc_hz: 1_000_000_000,
        ..Header::default()
    };
    let clock = sptrace_trace::Clock::of(&header);
    let options = LinesOptions {
        thread: ThreadColumn::WhenSeveral,
        ..options()
    };
    let mut calls = Calls::new(Lines::new(Vec::new(), &header, clock, options));
    let of = Teller {
        pid: 7,
        tid: 7,
        ppid: 1,
    };
    let mut info = [0u8; 128];
    (info[0], info[8], info[16], info[24]) = (17, 1, 9, 3);
    let mut put = |tsc, number, what, memory: &[u8]| {
        let piece = Piece {
            when: 0,
            address: 0x1000,
            bytes: memory,
        };
        let values = Values {
            number,
            thread: 0,
            what,
            pieces: (!memory.is_empty()).then_some(piece).into_iter().collect(),
        };
        let mut bytes = Vec::new();
        values.put(&mut bytes);
        calls.values(of, tsc, &bytes);
    };
    put(1, READ, What::Begins([0, 0, 5, 0, 0, 0]), &[]);
    put(2, 17, What::Signal, &info);
    put(3, 10, What::Signal, &[]);
    put(4, READ, What::Returned(-4), &[]);
    let text = String::from_utf8(calls.finish().into_inner()).unwrap();
    let expected = [
        "read(0,  <unfinished ...>",
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9, si_uid=0, si_status=3, si_utime=0, si_stime=0} ---",
        "--- SIGUSR1 {si_signo=SIGUSR1, ...} ---",
        "<... read resumed>NULL, 5)              = -1 EINTR (Interrupted system call)",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}
