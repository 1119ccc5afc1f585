//! Bytes in, events out: what the decoder makes of chunks, without a process, an arena or a trace.

mod in_order;
mod valued;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sptrace_trace::{
    Entry, Event, Function, FunctionId, Header, Item, Module, ModuleId, Run, Span, StreamEncoder,
    StreamInfo, Summary, TraceReader, TraceWriter,
};
use sptrace_wire::record::*;

use super::book::AddressBook;
use super::module::*;
use super::names::Naming;
use super::process::{Area, Areas, Process};
use super::sink::{Inherited, Plain, Sink};
use super::{Cursor, Decoder, Torn};

const PID: u32 = 7;
const AREA: u32 = 0x7000_0000;
const ENTRY: u32 = AREA + 0x08;
const EXIT: u32 = AREA + 0x10;
const TAIL: u32 = AREA + 0x18;
const POINTER: u32 = AREA + 0x20;
const ORDERED: u32 = AREA + 0x200;
const ORDERED_TAIL: u32 = AREA + 0x240;
const ORDERED_POINTER: u32 = AREA + 0x280;
const OPEN: u32 = AREA + 0x28;
/// In the area, where no slot is.
const NO_SLOT: u32 = AREA + 0x30;
/// Code that belongs to no module: a range whose low halves stand for its addresses.
const CODE: u64 = 0x7fff_1234_0000;
/// Numbers that this sink gives to functions begin here.
const NAMED: u32 = 100;
const HIGH: u64 = 5 << 32;

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Enter(u64, u8, u32),
    Exit(u64),
    Unwound(u64, u32),
    Closed(u64, u32),
    Resumed(u64, u32),
    Lost(u64, u64),
    Blocked(u64, u64),
    Values(u64, Vec<u8>),
    Inherited(u64, Inherited, u32),
    Between(u64, u64),
}
use Told::*;

/// Keeps what it is told.
struct Kept {
    told: Vec<Told>,
    /// Addresses of the functions that it has numbered.
    named: Vec<u64>,
    takes_rows: bool,
    /// Calls without times are told in runs; each is written into a trace of its own.
    takes_runs: bool,
    run: Option<(TraceWriter<Vec<u8>>, StreamEncoder)>,
    /// So many have begun.
    runs: usize,
    until_tsc: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            told: Vec::new(),
            named: Vec::new(),
            takes_rows: true,
            takes_runs: false,
            run: None,
            runs: 0,
            until_tsc: u64::MAX,
        }
    }
}

impl Naming for Kept {
    fn module(&mut self, _: &Module) -> ModuleId {
        ModuleId(0)
    }
    fn function(&mut self, function: &Function) -> FunctionId {
        self.named.push(function.svma.0);
        FunctionId(NAMED + self.named.len() as u32 - 1)
    }
    fn description(&mut self, _: &str) -> u32 {
        0
    }
}

impl Sink for Kept {
    fn come_to(&mut self, tsc: u64, _: u64) -> bool {
        tsc <= self.until_tsc
    }
    fn enter(
        &mut self,
        tsc: u64,
        kind: u8,
        callee: FunctionId,
        _: impl FnOnce(bool) -> Option<FunctionId>,
    ) {
        self.told
            .push(Enter(tsc.wrapping_sub(HIGH), kind, callee.0));
    }
    fn exit(&mut self, tsc: u64) {
        self.told.push(Exit(tsc.wrapping_sub(HIGH)));
    }
    fn unwound(&mut self, tsc: u64, frames: u32) {
        self.told.push(Unwound(tsc.wrapping_sub(HIGH), frames));
    }
    fn closed(&mut self, tsc: u64, frames: u32) {
        self.told.push(Closed(tsc.wrapping_sub(HIGH), frames));
    }
    fn resumed(&mut self, tsc: u64, callee: FunctionId) {
        self.told.push(Resumed(tsc.wrapping_sub(HIGH), callee.0));
    }
    fn lost(&mut self, tsc: u64, events: u64) {
        self.told.push(Lost(tsc.wrapping_sub(HIGH), events));
    }
    fn values(&mut self, tsc: u64, bytes: &[u8]) {
        self.told
            .push(Values(tsc.wrapping_sub(HIGH), bytes.to_vec()));
    }
    fn blocked(&mut self, tsc: u64, ticks: u64) {
        self.told.push(Blocked(tsc.wrapping_sub(HIGH), ticks));
    }
    fn inherited(&mut self, tsc: u64, how: Inherited, callee: FunctionId) {
        self.told
            .push(Inherited(tsc.wrapping_sub(HIGH), how, callee.0));
    }
    fn between(&mut self, from_tsc: u64, to_tsc: u64) {
        self.told.push(Between(
            from_tsc.wrapping_sub(HIGH),
            to_tsc.wrapping_sub(HIGH),
        ));
    }
    fn takes_rows(&self) -> bool {
        self.takes_rows
    }
    fn takes_runs(&self) -> bool {
        self.takes_runs
    }
    fn run(&mut self) -> Option<(Run<'_>, &[u64])> {
        self.runs += 1;
        let mut writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
        let stream = writer.stream(&StreamInfo::default()).unwrap();
        let encoder = writer.encoder(stream);
        let (_, encoder) = self.run.insert((writer, encoder));
        Some((encoder.run(), &[]))
    }
    fn end_run(&mut self, calls: u64, span: Span, last_tsc: u64) {
        let (mut writer, mut encoder) = self.run.take().unwrap();
        encoder.end_run(calls, span, last_tsc);
        writer.write_block(&mut encoder).unwrap();
        let bytes = writer.finish(&Summary::default()).unwrap();
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        while let Some(item) = reader.next_item().unwrap() {
            let Item::Block(block) = item else { continue };
            for event in block.events() {
                match event.unwrap() {
                    Event::Exit { tsc } => self.exit(tsc),
                    Event::Enter { tsc, callee, entry } => {
                        let tail = if entry == Entry::Tail { PLACE_TAIL } else { 0 };
                        self.enter(tsc, PLACE_ENTRY | tail, callee, |_| None);
                    }
                    Event::Between { tsc, back, ahead } => self.between(tsc - back, tsc + ahead),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    fn row(&mut self, high: u64, events: &[Plain], spans: &[(u64, u64)]) {
        for event in events {
            let tsc = high << 32 | u64::from(event.stamp);
            match (event.place.callee(), event.place.as_span()) {
                (Some(callee), _) => self.enter(tsc, event.place.kind(), callee, |_| None),
                (None, Some(span)) => self.between(spans[span].0, spans[span].1),
                (None, None) => self.exit(tsc),
            }
        }
    }
}

fn areas() -> Areas {
    let mut areas = Areas::default();
    areas.push(Area {
        start: AREA.into(),
        bytes: 0x1000,
        module: 0,
        places: Places::of(&[
            (ENTRY - AREA, PLACE_ENTRY, Some(FunctionId(1))),
            (EXIT - AREA, PLACE_EXIT, None),
            (TAIL - AREA, PLACE_ENTRY | PLACE_TAIL, Some(FunctionId(2))),
            (POINTER - AREA, PLACE_ENTRY | PLACE_INDIRECT, None),
            (OPEN - AREA, PLACE_ENTRY | PLACE_OPEN, Some(FunctionId(3))),
            (ORDERED - AREA, PLACE_IN_ORDER, Some(FunctionId(4))),
            (
                ORDERED_TAIL - AREA,
                PLACE_IN_ORDER | PLACE_TAIL,
                Some(FunctionId(5)),
            ),
            (
                ORDERED_POINTER - AREA,
                PLACE_IN_ORDER | PLACE_INDIRECT,
                None,
            ),
        ]),
    });
    areas
}

/// One thread of a process.
struct Thread {
    book: AddressBook,
    areas: Areas,
    cursor: Cursor,
    torn: Torn,
    sink: Kept,
}

impl Thread {
    fn new() -> Self {
        let mut process = Process::default();
        process.leave_alone(CODE, CODE + 0x1000);
        process.areas = Arc::new(areas());
        let mut book = AddressBook::default();
        book.processes.insert(PID, process);
        Self {
            book,
            areas: areas(),
            cursor: Cursor::new(PID, HIGH),
            torn: Torn::default(),
            sink: Kept::default(),
        }
    }

    /// Decodes a chunk; gives what was told of it.
    fn chunk(&mut self, halves: &[u32]) -> Vec<Told> {
        let halves: Vec<_> = halves.iter().copied().map(AtomicU32::new).collect();
        let decoder = Decoder {
            book: &mut self.book,
            areas: &self.areas,
            cursor: &mut self.cursor,
            torn: &mut self.torn,
            sink: &mut self.sink,
        };
        decoder.decode(&halves);
        std::mem::take(&mut self.sink.told)
    }
}

/// A control record.
fn control(stamp: u32, id: u32, payload: u64) -> [u32; 4] {
    [stamp, id, payload as u32, (payload >> 32) as u32]
}

#[test]
fn calls_tails_and_returns_are_told_alike_one_by_one_and_in_a_row() {
    let chunk = [10, ENTRY, 20, TAIL, 30, EXIT, 40, OPEN, 50, ENTRY];
    let want = [
        Enter(10, PLACE_ENTRY, 1),
        Enter(20, PLACE_ENTRY | PLACE_TAIL, 2),
        Exit(30),
        Enter(40, PLACE_ENTRY | PLACE_OPEN, 3),
        Enter(50, PLACE_ENTRY, 1),
    ];
    for takes_rows in [true, false] {
        let mut thread = Thread::new();
        thread.sink.takes_rows = takes_rows;
        assert_eq!(thread.chunk(&chunk), want);
        assert_eq!(thread.torn, Torn::default());
    }
}

#[test]
fn a_callee_s_low_half_stands_for_its_address_unless_the_whole_comes_before() {
    let mut thread = Thread::new();
    let low = CODE as u32 + 8;
    let calls = PLACE_ENTRY | PLACE_INDIRECT;
    let told = thread.chunk(&[10, POINTER, low, 20, POINTER, low]);
    // The second one is in a row: its callee is known by then, so nothing is left to look up.
    assert_eq!(
        told,
        [Enter(10, calls, NAMED), Enter(20, PLACE_ENTRY, NAMED)]
    );
    let wide = 0x5555_0000_0000 | u64::from(low);
    let whole = [&control(30, WIDE_CALLEE, wide)[..], &[40, POINTER, low]].concat();
    assert_eq!(thread.chunk(&whole), [Enter(40, calls, NAMED + 1)]);
    assert_eq!(thread.sink.named, [CODE + 8, wide]);
}

#[test]
fn a_whole_address_whose_low_half_is_another_s_belongs_to_no_call() {
    let mut thread = Thread::new();
    let low = CODE as u32 + 8;
    let chunk = [
        &control(10, WIDE_CALLEE, 0x5555_0000_1111)[..],
        &[20, POINTER, low],
    ]
    .concat();
    thread.chunk(&chunk);
    assert_eq!(thread.sink.named, [CODE + 8]);
}

#[test]
fn control_records_are_told_with_what_they_say() {
    let mut thread = Thread::new();
    let chunk = [
        control(10, ENTERED, CODE),
        control(20, UNWOUND, 3),
        control(30, CLOSED, 2),
        control(40, LOST, 9),
        control(50, BLOCKED, 77),
        control(60, RESUMED, EXIT.into()),
    ];
    assert_eq!(Thread::new().chunk(&[7, ENDED]), [Closed(7, 1)]);
    let told = thread.chunk(&chunk.concat());
    let first = &told[..5];
    assert_eq!(
        first,
        [
            Enter(10, PLACE_OPEN, NAMED),
            Unwound(20, 3),
            Closed(30, 2),
            Lost(40, 9),
            Blocked(50, 77)
        ]
    );
    assert!(matches!(told[5..], [Resumed(60, _)]), "{told:?}");
}

#[test]
fn a_frame_that_was_open_takes_two_records() {
    let mut thread = Thread::new();
    let frame = |frame: u64| [control(10, INHERITED, frame), control(10, INHERITED, CODE)].concat();
    let told = thread.chunk(&frame(FRAME_OPEN));
    assert_eq!(told, [Inherited(10, Inherited::Found, NAMED)]);
    // Half of one at a chunk's end.
    assert_eq!(thread.chunk(&control(20, INHERITED, FRAME_OPEN)), []);
    let told = thread.chunk(&control(20, INHERITED, CODE));
    assert_eq!(told, [Inherited(20, Inherited::Found, NAMED)]);
}

#[test]
fn time_goes_on_across_the_low_half_s_end() {
    let mut thread = Thread::new();
    let last = u32::MAX - 5;
    let anchor = control(last, ANCHOR, HIGH + (1 << 32));
    // A stamp of the new period may come before its anchor.
    let chunk = [&[last, ENTRY, 3, EXIT][..], &anchor, &[9, ENTRY]].concat();
    let told = thread.chunk(&chunk);
    assert_eq!(told[0], Enter(last.into(), PLACE_ENTRY, 1));
    assert_eq!(told[1], Exit((1 << 32) + 3));
    assert_eq!(told[2], Enter((1 << 32) + 9, PLACE_ENTRY, 1));
}

#[test]
fn holes_are_passed_over_and_the_last_one_is_told() {
    let mut thread = Thread::new();
    let chunk = [10, ENTRY, 0, 0, 15, 0, 20, EXIT, 30, NOTHING, 40, ENTRY];
    let want = [
        Enter(10, PLACE_ENTRY, 1),
        Exit(20),
        Enter(40, PLACE_ENTRY, 1),
    ];
    assert_eq!(thread.chunk(&chunk), want);
    assert!(!thread.cursor.is_cut_off);
    // A stamp that was written, and no id.
    assert_eq!(thread.chunk(&[50, ENTRY, 60]), [Enter(50, PLACE_ENTRY, 1)]);
    assert!(thread.cursor.is_cut_off);
    assert_eq!(thread.chunk(&[70, EXIT]), [Exit(70)]);
    assert!(!thread.cursor.is_cut_off);
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn what_makes_no_sense_is_counted_and_what_follows_is_read() {
    let mut thread = Thread::new();
    // A stamp that is no id of a control record.
    let told = thread.chunk(&[10, NO_SLOT, 200, ENTRY]);
    assert_eq!(told, [Enter(200, PLACE_ENTRY, 1)]);
    assert!(thread.torn.nonsense > 0 && thread.torn.unknown_process == 0);
    // The same of a process of which nothing is known.
    thread.areas = Areas::default();
    thread.chunk(&[230, ENTRY]);
    assert!(thread.torn.unknown_process > 0);
}

#[test]
fn what_happens_after_the_end_is_not_told() {
    let mut thread = Thread::new();
    (thread.sink.takes_rows, thread.sink.until_tsc) = (false, HIGH + 20);
    let told = thread.chunk(&[10, ENTRY, 20, EXIT, 30, ENTRY]);
    assert_eq!(told, [Enter(10, PLACE_ENTRY, 1), Exit(20)]);
}

#[test]
fn no_bytes_make_the_decoder_fail() {
    // Every half is one of those that mean something, or none of them.
    let halves = [
        0,
        1,
        5,
        ENTRY,
        EXIT,
        TAIL,
        POINTER,
        OPEN,
        NO_SLOT,
        WIDE_CALLEE,
        INHERITED,
        RESUMED,
        CLOSED,
        NOTHING,
        NOTHING_NARROW,
        CONTROL_IDS - 1,
        valued_id(1, 5),
        valued_id(NO_VALUED_NUMBER, 3),
        u32::MAX,
    ];
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        halves[(seed >> 33) as usize % halves.len()]
    };
    for takes_rows in [true, false] {
        let mut thread = Thread::new();
        thread.sink.takes_rows = takes_rows;
        for length in 0..400 {
            let chunk: Vec<u32> = (0..length % 64).map(|_| next()).collect();
            thread.chunk(&chunk);
        }
    }
}

/// A record with values, whole or not.
fn with_values(stamp: u32, id: u32, low: u32, words: &[u64], is_whole: bool) -> Vec<u32> {
    let mut halves: Vec<u32> = words
        .iter()
        .flat_map(|w| [*w as u32, (w >> 32) as u32])
        .collect();
    halves.push(if is_whole {
        sptrace_wire::values::END
    } else {
        0
    });
    let bytes = 4 * halves.len() as u64;
    let mut record = control(stamp, id, u64::from(low) | bytes << 32).to_vec();
    record.extend(halves);
    record
}

/// The words of a piece of four bytes.
fn piece(address: u64, bytes: [u8; 4]) -> Vec<u64> {
    let head = sptrace_wire::values::Piece {
        address,
        bytes: 4,
        ..Default::default()
    };
    let all: Vec<u8> = [&head.to_bytes()[..], &bytes, &[0; 4]].concat();
    let (words, _) = all.as_chunks::<8>();
    words.iter().map(|w| u64::from_le_bytes(*w)).collect()
}

fn told_values(tsc: u64, values: &sptrace_trace::values::Values<'_>) -> Told {
    let mut bytes = Vec::new();
    values.put(&mut bytes);
    Values(tsc, bytes)
}

#[test]
fn a_system_call_is_a_frame_with_what_it_took_and_gave() {
    use sptrace_trace::values::{Piece, Values, What};
    const READ: u32 = 0;
    let mut words = vec![0, 3, 0x1000, 4, 0, 0, 0];
    words.extend(piece(0x1000, *b"abcd"));
    let mut chunk = with_values(10, SYSTEM_CALL, READ, &words, true);
    chunk.extend([15, ENTRY, 16, EXIT]);
    chunk.extend(with_values(
        20,
        SYSTEM_RETURN,
        RETURNED,
        &[READ.into(), 4],
        true,
    ));
    let values = |what, pieces| Values {
        number: READ,
        thread: 0,
        what,
        pieces,
    };
    let memory = Piece {
        when: 0,
        address: 0x1000,
        bytes: b"abcd",
    };
    // Four bytes of filling stand behind the piece, which are no piece.
    let want = [
        Enter(10, PLACE_ENTRY, NAMED),
        told_values(
            10,
            &values(What::Begins([3, 0x1000, 4, 0, 0, 0]), vec![memory]),
        ),
        Enter(15, PLACE_ENTRY, 1),
        Exit(16),
        told_values(20, &values(What::Returned(4), vec![])),
        Exit(20),
    ];
    let mut thread = Thread::new();
    assert_eq!(thread.chunk(&chunk), want);
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn a_call_that_is_left_out_when_it_has_ended_is_not_told() {
    const READ: u32 = 0;
    let call = || with_values(10, SYSTEM_CALL, READ, &[0; 7], true);
    let ended = || with_values(20, SYSTEM_RETURN, RETURNED, &[READ.into(), 0], true);
    let mut chunk = [call(), vec![1, LEFT_OUT], call(), ended()].concat();
    // Nothing is left out by what follows a return.
    chunk.extend([1, LEFT_OUT]);
    let mut thread = Thread::new();
    let told = thread.chunk(&chunk);
    let entered = told.iter().filter(|told| matches!(told, Enter(..)));
    assert_eq!((entered.count(), told.len()), (1, 4));
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn a_signal_stands_alone_inside_of_the_call_that_it_interrupts() {
    use sptrace_trace::values::{Piece, Values, What};
    const PAUSE: u32 = 34;
    const SIGUSR1: u32 = 10;
    let mut words = vec![0];
    words.extend(piece(0x1000, *b"info"));
    let mut chunk = with_values(10, SYSTEM_CALL, PAUSE, &[0; 7], true);
    chunk.extend(with_values(12, SIGNAL, SIGUSR1, &words, true));
    chunk.extend(with_values(13, SIGNAL, SIGUSR1, &[0], true));
    let signal = |pieces| Values {
        number: SIGUSR1,
        thread: 0,
        what: What::Signal,
        pieces,
    };
    let info = Piece {
        when: 0,
        address: 0x1000,
        bytes: b"info",
    };
    let mut thread = Thread::new();
    let told = thread.chunk(&chunk);
    assert_eq!(
        told[2..],
        [
            told_values(12, &signal(vec![info])),
            told_values(13, &signal(vec![])),
        ]
    );
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn a_call_that_may_not_return_ends_at_once_and_its_return_stands_alone() {
    const CLONE: u32 = 56;
    let mut thread = Thread::new();
    let chunk = with_values(10, SYSTEM_CALL, CLONE | CALL_ALONE, &[0; 7], true);
    assert!(matches!(
        thread.chunk(&chunk)[..],
        [Enter(10, PLACE_ENTRY, NAMED), Values(10, _), Exit(10)]
    ));
    let late = with_values(30, SYSTEM_RETURN, RETURNED_LATE, &[CLONE.into(), 77], true);
    assert!(matches!(thread.chunk(&late)[..], [Values(30, _)]));
    let left = with_values(40, SYSTEM_RETURN, LEFT, &[CLONE.into(), 0], true);
    assert!(matches!(
        thread.chunk(&left)[..],
        [Values(40, _), Unwound(40, 1)]
    ));
}

#[test]
fn values_that_a_killed_thread_was_writing_are_unfinished() {
    let mut thread = Thread::new();
    let mut chunk = vec![5, ENTRY];
    chunk.extend(with_values(
        10,
        SYSTEM_CALL,
        1,
        &[0, 1, 2, 3, 0, 0, 0],
        false,
    ));
    assert_eq!(thread.chunk(&chunk), [Enter(5, PLACE_ENTRY, 1)]);
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn values_longer_than_their_chunk_are_torn() {
    let mut thread = Thread::new();
    let chunk = control(10, SYSTEM_CALL, 1 | 4096 << 32);
    assert_eq!(thread.chunk(&chunk), []);
    assert!(thread.torn.nonsense > 0);
}
