//! Traces with every kind of event and note, and what makes their content wrong behind right
//! checksums.
//!
//! Shared by the tests of all crates that read traces, and by the fuzz targets. Knows no view.
#![allow(dead_code, reason = "each test takes what it needs")]

use sptrace_addr::{Avma, Svma};
use sptrace_trace::format::{SECTION_HEADER_BYTES, header_check};
use sptrace_trace::values::{Piece, Values, What};
use sptrace_trace::{
    Counted, EarlyEnd, ExitStatus, Function, FunctionId, Header, KeyColumn, KeyTold, Level, Module,
    ModuleId, Note, SYSTEM_CALLS, Section, Span, Spread, StreamEncoder, StreamInfo, Summary,
    TableRow, TableSums, TraceWriter, Turn, Window,
};

/// Numbers that are the same in each run.
pub struct XorShift(pub u64);

impl XorShift {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const PID: u32 = 1234;
const OPENAT: u32 = 257;
const READ: u32 = 0;
const FUNCTIONS: [(usize, u64, &str); 14] = [
    (0, 0, "main"),
    (0, 16, "work"),
    (0, 32, ""),
    (0, 48, "_ZN2ns5parseEic"),
    (0, 64, "_RNvC1a1b"),
    (1, 80, "x"),
    (2, OPENAT as u64, "openat"),
    (2, READ as u64, "read"),
    (3, 0, "preempted by other 7"),
    (3, 1, "woken by other 7"),
    (3, 2, "queued behind other 7"),
    (3, 3, "blocked"),
    (4, 0, "timer"),
    (5, 0, "vfs_read"),
];

/// A trace of two threads; or one that has what the kernel did for them, too.
pub fn trace(has_kernel: bool) -> Vec<u8> {
    let header = Header {
        tsc_hz: 2_400_000_000,
        start_tsc: 900,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let modules = modules(&mut writer);
    for (module, svma, symbol) in FUNCTIONS {
        let function = Function {
            module: modules[module],
            svma: Svma(svma),
            size_bytes: 9,
            symbol: symbol.to_owned(),
        };
        writer.function(&function).unwrap();
    }
    writer
        .description("int work(const char *path, int number)\t32")
        .unwrap();
    writer.name(FunctionId(5), "called later so").unwrap();
    for tid in [PID, PID + 1] {
        let info = StreamInfo {
            pid: PID,
            tid,
            start_tsc: 950,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&info).unwrap();
        let mut encoder = writer.encoder(stream);
        for round in 0..12 {
            program(&mut encoder, 1000 + round * 5000);
            if round >= 6 {
                without_times(&mut encoder, 4100 + round * 5000);
            }
            if round % 4 == 3 {
                writer.write_block(&mut encoder).unwrap();
            }
        }
        if has_kernel {
            let stream = writer.kernel_side(&info).unwrap();
            let mut encoder = writer.encoder(stream);
            (0..12).for_each(|round| kernel(&mut encoder, 1000 + round * 5000));
            writer.write_block(&mut encoder).unwrap();
        }
    }
    for note in notes(modules[0]) {
        writer.event_note(&note).unwrap();
    }
    let mut summary = Summary {
        end_tsc: 90_000,
        ..Summary::default()
    };
    summary.row(Section::Sites, "patched: call instruction", 1234);
    summary.row(Section::Loss, "events dropped", 12);
    writer.finish(&summary).unwrap()
}

fn modules(writer: &mut TraceWriter<Vec<u8>>) -> Vec<ModuleId> {
    let paths = [
        "/usr/bin/prog",
        "/lib/x86_64-linux-gnu/libc.so.6",
        SYSTEM_CALLS,
        "[scheduler]",
        "[interrupts]",
        "[kernel]",
    ];
    let module = |path: &str| {
        let module = Module {
            path: path.to_owned(),
            build_id: vec![7; 20],
            svma: Svma(0)..Svma(0x9999),
        };
        writer.module(&module).unwrap()
    };
    paths.into_iter().map(module).collect()
}

/// What the program does in a round.
fn program(e: &mut StreamEncoder, t: u64) {
    e.enter(t, FunctionId(0));
    e.enter(t + 100, FunctionId(1));
    let path: &[(u64, &[u8])] = &[(0x5000, b"/no/file\0")];
    values(e, t + 100, (0, What::Called(vec![0x5000, 3])), path);
    e.enter(t + 150, FunctionId(6));
    let arguments = [-100i64 as u64, 0x5000, 0, 0, 0, 0];
    values(e, t + 150, (OPENAT, What::Begins(arguments)), path);
    values(e, t + 160, (OPENAT, What::Returned(-2)), &[]);
    e.exit(t + 160);
    e.enter(t + 170, FunctionId(7));
    values(
        e,
        t + 170,
        (READ, What::Begins([3, 0x6000, 16, 0, 0, 0])),
        &[],
    );
    values(e, t + 180, (READ, What::Returned(3)), &[(0x6000, b"abc")]);
    e.exit(t + 180);
    values(e, t + 190, (11, What::Signal), &[(0x7000, &[0; 128])]);
    let answered = What::Answered {
        words: [7, 0, 0],
        errno: 2,
    };
    values(e, t + 200, (0, answered), &[]);
    e.tail(t + 300, FunctionId(2));
    e.enter_open(t + 500, FunctionId(3));
    e.close_open(t + 600, 1);
    e.exit(t + 900);
    e.enter(t + 1000, FunctionId(4));
    e.unwound(t + 1200, 1);
    e.resumed(t + 1300, FunctionId(5));
    e.lost(t + 1400, 12);
    e.enter_earlier(t + 1500, FunctionId(5));
    e.called_by(t + 1600, Some(FunctionId(0)));
    e.inherit(t + 1700, FunctionId(4));
    e.inherit_open(t + 1800, FunctionId(3));
    e.blocked(t + 2400, 1000);
    e.exit(t + 3000);
}

/// Calls whose times nobody knows, between this time and a later one: two runs of one span.
fn without_times(e: &mut StreamEncoder, t: u64) {
    let (from_tsc, to_tsc, moments) = (t, t + 500, 8);
    let spread = Spread::new(from_tsc, to_tsc, moments);
    for before in [0, 4] {
        let mut run = e.run();
        run.call(0, FunctionId(4), false);
        run.call(0, FunctionId(5), false);
        run.call(1, FunctionId(2), before > 0);
        run.call(1, FunctionId(1), false);
        let span = Span {
            from_tsc,
            to_tsc,
            moments,
            before,
        };
        let calls = run.stop();
        e.end_run(calls, span, spread.at(before + calls));
        e.unwound(t + 250, 2);
    }
}

/// What the kernel does meanwhile.
fn kernel(e: &mut StreamEncoder, t: u64) {
    for (at, function) in (8..14).enumerate() {
        let t = t + 3100 + at as u64 * 100;
        e.enter(t, FunctionId(function));
        e.enter(t + 10, FunctionId(13));
        e.exit(t + 20);
        e.exit(t + 50);
    }
}

fn values(e: &mut StreamEncoder, tsc: u64, what: (u32, What), memory: &[(u64, &[u8])]) {
    let (number, what) = what;
    let when = u8::from(!matches!(what, What::Begins(_) | What::Called(_)));
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
    e.values(tsc, &bytes);
}

/// One of each kind.
fn notes(module: ModuleId) -> Vec<Note> {
    let (pid, event) = (PID, "key:F1".to_owned());
    let turn = |tsc, turn| Note::Recording { pid, tsc, turn };
    let window = Window { number: 1, of: 2 };
    let tables = vec![TableSums {
        title: "sizes".to_owned(),
        left_out: 1,
        columns: vec![KeyColumn::Stack],
        told: vec![KeyTold::Stack(vec![1, 0]), KeyTold::Text("a".to_owned())],
        rows: vec![TableRow {
            keys: vec![1],
            count: 2,
            values: vec![3, 4],
        }],
    }];
    let counted = |caller, calls| Counted {
        caller,
        callee: FunctionId(1),
        calls,
    };
    let level = |tsc, level| Note::Level {
        pid,
        tsc,
        function: FunctionId(1),
        level,
    };
    let path = String::from("/bin/other");
    let (folder, open) = ("/home".to_owned(), vec![(3, "/dev/pts/1".to_owned())]);
    let edges = vec![counted(Some(FunctionId(0)), 9), counted(None, 1 << 40)];
    let between = Turn::Between {
        glob: "work".to_owned(),
        is_opening: true,
        event: event.clone(),
        missed: 1,
    };
    vec![
        turn(
            900,
            Turn::Begins {
                event: event.clone(),
                window: Some(window),
            },
        ),
        Note::ModuleMap {
            pid,
            tsc: 900,
            module,
            avma: Avma(0x5555_0000),
        },
        Note::Descriptors {
            pid,
            tsc: 1000,
            folder,
            open,
        },
        level(2000, Level::Counted),
        turn(2500, between),
        level(9000, Level::Recorded),
        Note::Counts {
            pid,
            tsc: 60_000,
            tid: PID,
            edges,
        },
        Note::Tables {
            pid,
            tsc: 61_000,
            tables,
        },
        turn(
            62_000,
            Turn::Ends {
                event: event.clone(),
                window,
            },
        ),
        turn(63_000, Turn::Dumped { event }),
        turn(64_000, Turn::EndsEarly(EarlyEnd::DiskLow)),
        Note::KernelExec {
            pid,
            tsc: 69_000,
            path: path.clone(),
        },
        Note::Exec {
            pid,
            tsc: 70_000,
            path,
        },
        Note::ProcessExit {
            pid,
            tsc: 80_000,
            status: ExitStatus::Signaled(9),
        },
    ]
}

/// Changes bytes of some sections and puts their checksums right.
pub fn corrupt(bytes: &mut [u8], random: &mut XorShift) {
    let mut at = 16;
    while at + SECTION_HEADER_BYTES <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let payload = at + SECTION_HEADER_BYTES..at + SECTION_HEADER_BYTES + length;
        if random.below(3) == 0 && length > 0 {
            for _ in 0..=random.below(4) {
                let position = payload.start + random.below(length as u64) as usize;
                bytes[position] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => 0xff,
                    _ => bytes[position] ^ 1 << random.below(8),
                };
            }
        }
        at = payload.end;
    }
    mend_checksums(bytes);
}

/// Makes any bytes the sections of a trace: lengths end within the file, checksums are right.
pub fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 16;
    while at + SECTION_HEADER_BYTES <= bytes.len() {
        let room = bytes.len() - at - SECTION_HEADER_BYTES;
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        let length = length.min(room as u32);
        let check = header_check(bytes[at], length).to_le_bytes();
        bytes[at + 1..at + 4].copy_from_slice(&check[..3]);
        bytes[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
        let payload = at + SECTION_HEADER_BYTES..at + SECTION_HEADER_BYTES + length as usize;
        let crc = crc32fast::hash(&bytes[payload.clone()]);
        bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        at = payload.end;
    }
}
