//! Makes traces of one thread from events written by hand, and logs the frames that the call tree
//! finds in them. Knows no test.
#![allow(dead_code, reason = "each test takes what it needs")]

use sptrace_addr::Svma;
use sptrace_trace::{
    CallTree, Dictionary, Frame, Function, FunctionId, Header, Item, Mark, Module, ModuleId, Note,
    StreamEncoder, StreamId, StreamInfo, StreamTotals, Summary, TraceReader, TraceWriter, Visitor,
};

pub const A: FunctionId = FunctionId(0);
pub const B: FunctionId = FunctionId(1);
pub const C: FunctionId = FunctionId(2);

#[derive(Default)]
pub struct Log {
    pub shown: Vec<FunctionId>,
    pub frames: Vec<Frame>,
    pub marks: Vec<Mark>,
    pub totals: StreamTotals,
}

impl Visitor for Log {
    fn enter(&mut self, _: StreamId, frame: &Frame) {
        self.shown.push(frame.function);
    }
    fn leave(&mut self, _: StreamId, frame: &Frame) {
        self.frames.push(*frame);
    }
    fn mark(&mut self, _: StreamId, _: u64, _: u32, mark: Mark) {
        self.marks.push(mark);
    }
    fn end(&mut self, _: StreamId, totals: &StreamTotals) {
        self.totals = *totals;
    }
}

/// The one module of such traces.
fn module(writer: &mut TraceWriter<Vec<u8>>) -> ModuleId {
    let module = Module {
        path: "m".into(),
        build_id: vec![],
        svma: Svma(0)..Svma(9),
    };
    writer.module(&module).unwrap()
}

/// A function of it that no symbol names.
pub fn nameless(module: ModuleId, svma: u64) -> Function {
    Function {
        module,
        svma: Svma(svma),
        size_bytes: 1,
        symbol: String::new(),
    }
}

/// A trace with so many of these functions, before its first stream.
pub fn begun(functions: u64) -> TraceWriter<Vec<u8>> {
    let mut writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
    let module = module(&mut writer);
    for svma in 0..functions {
        writer.function(&nameless(module, svma)).unwrap();
    }
    writer
}

pub fn trace(encode: impl Fn(&mut StreamEncoder), notes: &[Note]) -> Vec<u8> {
    streams(&[(0, &encode)], notes)
}

pub type Encode<'a> = &'a dyn Fn(&mut StreamEncoder);

/// Streams of one thread, each from its start on.
pub fn streams(all: &[(u64, Encode<'_>)], notes: &[Note]) -> Vec<u8> {
    let header = Header {
        tsc_hz: 1_000_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let module = module(&mut writer);
    for symbol in ["a", "b", "c"] {
        let function = Function {
            symbol: symbol.into(),
            ..nameless(module, 1)
        };
        writer.function(&function).unwrap();
    }
    for (start_tsc, encode) in all {
        let stream = StreamInfo {
            pid: 5,
            tid: 5,
            start_tsc: *start_tsc,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&stream).unwrap();
        let mut encoder = writer.encoder(stream);
        encode(&mut encoder);
        writer.write_block(&mut encoder).unwrap();
    }
    for note in notes {
        writer.event_note(note).unwrap();
    }
    writer.finish(&Summary::default()).unwrap()
}

pub fn replay<V: Visitor>(bytes: &[u8], visitor: &mut V) -> Dictionary {
    let mut reader = TraceReader::new(bytes).unwrap();
    let mut tree = CallTree::new();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Block(block) => tree.replay(&block, reader.dictionary(), visitor).unwrap(),
            Item::Note(note) => tree.note(&note),
        }
    }
    tree.finish(reader.dictionary(), visitor);
    reader.dictionary().clone()
}

pub fn log(encode: impl Fn(&mut StreamEncoder), notes: &[Note]) -> Log {
    let mut log = Log::default();
    replay(&trace(encode, notes), &mut log);
    let own: u64 = log.frames.iter().filter_map(|frame| frame.self_ticks).sum();
    assert_eq!(own, log.totals.known_ticks);
    let known = own + log.totals.outside_ticks;
    if log.frames.iter().all(|frame| frame.self_ticks.is_some()) {
        assert_eq!(known, log.totals.ticks);
    }
    assert!(known <= log.totals.ticks);
    log
}

/// Function, total and self time of the frames, whose ends were all seen.
pub fn times(log: &Log) -> Vec<(u32, u64, u64)> {
    let known = |ticks: Option<u64>| ticks.expect("an end was not seen");
    log.frames
        .iter()
        .map(|f| (f.function.0, known(f.total_ticks), known(f.self_ticks)))
        .collect()
}

/// The same where not all ends were seen.
pub fn known_times(log: &Log) -> Vec<(u32, Option<u64>, Option<u64>)> {
    log.frames
        .iter()
        .map(|f| (f.function.0, f.total_ticks, f.self_ticks))
        .collect()
}

pub fn ended_at(tsc: u64) -> Note {
    Note::ProcessExit {
        pid: 5,
        tsc,
        status: sptrace_trace::ExitStatus::Exited(0),
    }
}
