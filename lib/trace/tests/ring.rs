//! A ring holds the end of a recording, whole and readable whenever its writer is killed.

use sptrace_addr::Svma;
use sptrace_trace::ring::LEAST_RING_BYTES;
use sptrace_trace::{
    Ending, Event, Function, FunctionId, Header, Item, Module, Note, RingFile, Snapshot,
    StreamEncoder, StreamId, StreamInfo, Summary, TraceReader, TraceWriter, Turn,
};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

const FUNCTIONS: u64 = 5000;
const STREAMS: usize = 3;

struct Recording {
    writer: TraceWriter<RingFile>,
    encoders: Vec<StreamEncoder>,
    /// What was written, by stream.
    written: Vec<Vec<Event>>,
    random: u64,
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sptrace-ring-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn open(path: &Path) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(true);
    how.open(path).unwrap()
}

impl Recording {
    fn begin(path: &Path) -> Self {
        let ring = RingFile::new(open(path), LEAST_RING_BYTES);
        let mut writer = TraceWriter::create(ring, &Header::default()).unwrap();
        let module = Module {
            path: "m".into(),
            build_id: vec![],
            svma: Svma(0)..Svma(9),
        };
        let module = writer.module(&module).unwrap();
        for n in 0..FUNCTIONS {
            let function = Function {
                module,
                svma: Svma(n),
                size_bytes: 1,
                symbol: format!("f{n}"),
            };
            writer.function(&function).unwrap();
        }
        let encoders = (0..STREAMS).map(|n| {
            let info = StreamInfo {
                tid: n as u32,
                ..StreamInfo::default()
            };
            let id = writer.stream(&info).unwrap();
            writer.encoder(id)
        });
        let encoders = encoders.collect();
        Self {
            writer,
            encoders,
            written: vec![Vec::new(); STREAMS],
            random: 88_172_645_463_325_252,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// One block of a stream: an outer call that stays open, and calls in it.
    fn block(&mut self, stream: usize, calls: usize) {
        for n in 0..calls {
            let callee = FunctionId(self.below(FUNCTIONS) as u32);
            let tsc = 1 + self.written[stream].len() as u64 * 1000 + self.below(500);
            self.encoders[stream].enter(tsc, callee);
            let entry = sptrace_trace::Entry::Call;
            self.written[stream].push(Event::Enter { tsc, callee, entry });
            if n > 0 || self.written[stream].len() > 40 {
                let tsc = tsc + 400;
                self.encoders[stream].exit(tsc);
                self.written[stream].push(Event::Exit { tsc });
            }
        }
        let encoder = &mut self.encoders[stream];
        self.writer.write_block(encoder).unwrap();
    }

    fn all(&self) -> u64 {
        self.written.iter().map(|events| events.len() as u64).sum()
    }

    /// Reads the file: each stream's events are the last of what was written. Gives how many there
    /// were, and how many the file says were dropped.
    fn check(&self, path: &Path) -> (u64, u64, Ending) {
        let mut reader = TraceReader::open(path).unwrap();
        let survey = reader.survey().unwrap();
        let mut found = vec![Vec::new(); STREAMS];
        let mut opening = [0; STREAMS];
        while let Some(item) = reader.next_item().unwrap() {
            let Item::Block(block) = item else { continue };
            let StreamId(id) = block.stream;
            let events = &mut found[id as usize];
            if events.is_empty() {
                opening[id as usize] = block.opening().count();
            }
            events.extend(block.events().map(Result::unwrap));
        }
        for (id, events) in found.iter().enumerate() {
            let written = &self.written[id];
            let dropped = &written[written.len() - events.len()..];
            assert!(events == dropped, "stream {id} holds other events");
            let before = &written[..written.len() - events.len()];
            let open = before.iter().fold(0usize, |open, event| match event {
                Event::Exit { .. } => open - 1,
                _ => open + 1,
            });
            if !events.is_empty() {
                assert_eq!(opening[id], open, "frames open at the cut of stream {id}");
            }
        }
        let kept = found.iter().map(|events| events.len() as u64).sum();
        let dropped = survey.dropped.map_or(0, |dropped| dropped.events);
        (kept, dropped, survey.ending)
    }
}

#[test]
fn the_end_is_kept_and_the_rest_counted() {
    let folder = folder("end");
    let path = folder.join("trace");
    let mut recording = Recording::begin(&path);
    for n in 0..600 {
        let calls = 1 + recording.below(9000) as usize;
        // The third stream writes once, early, and then nothing for long.
        let stream = if n == 1 || n == 590 { 2 } else { n % 2 };
        recording.block(stream, calls);
        if n % 50 == 20 {
            let note = Note::Recording {
                pid: 0,
                tsc: 0,
                turn: Turn::Dumped {
                    event: "x".repeat(n),
                },
            };
            recording.writer.event_note(&note).unwrap();
        }
        if n % 11 == 0 {
            // As if the writer had been killed here.
            let copy = folder.join("copy");
            std::fs::copy(&path, &copy).unwrap();
            let (kept, dropped, ending) = recording.check(&copy);
            assert_eq!(kept + dropped, recording.all(), "after block {n}");
            assert!(matches!(ending, Ending::Early { .. }));
        }
    }
    let writer = std::mem::replace(
        &mut recording.writer,
        Recording::begin(&folder.join("other")).writer,
    );
    writer.finish(&Summary::default()).unwrap();
    let (kept, dropped, ending) = recording.check(&path);
    assert_eq!(kept + dropped, recording.all());
    assert!(dropped > 0 && kept > 100_000, "{kept} events are kept");
    assert!(matches!(ending, Ending::Complete(_)));
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < LEAST_RING_BYTES + (1 << 20), "{bytes} bytes");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_snapshot_is_a_trace_of_its_own_and_the_ring_goes_on() {
    let folder = folder("snapshot");
    let (path, copy) = (folder.join("trace"), folder.join("copy"));
    let mut recording = Recording::begin(&path);
    let mut ring_dropped = 0;
    for n in 0..500 {
        let calls = 1 + recording.below(9000) as usize;
        recording.block(n % 2, calls);
        if n % 49 != 0 {
            continue;
        }
        // Events that the encoder of the first stream holds go into the copy only.
        let mut ahead = recording.encoders[0].clone();
        let tsc = 1 + recording.written[0].len() as u64 * 1000;
        ahead.enter(tsc, FunctionId(7));
        let (ahead, _) = recording.writer.pack(ahead).unwrap();
        let mut snapshot = Snapshot::of(&File::open(&path).unwrap()).unwrap();
        snapshot.add_blocks(&ahead);
        ring_dropped = snapshot.dropped().events;
        snapshot.write(open(&copy), &Summary::default()).unwrap();
        let (callee, entry) = (FunctionId(7), sptrace_trace::Entry::Call);
        recording.written[0].push(Event::Enter { tsc, callee, entry });
        let (kept, dropped, ending) = recording.check(&copy);
        assert_eq!(kept + dropped, recording.all(), "after block {n}");
        assert_eq!(dropped, ring_dropped);
        assert!(matches!(ending, Ending::Complete(_)));
        recording.written[0].pop();
        let (kept, dropped, _) = recording.check(&path);
        assert_eq!(kept + dropped, recording.all(), "the ring itself");
    }
    assert!(ring_dropped > 0);
    assert!(Snapshot::of(&open(&copy)).is_err(), "an empty file");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn functions_are_classified_as_they_are_named() {
    let mut writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
    writer.classify(Box::new(|function| u64::from(function.symbol == "f")));
    let module = Module {
        path: "m".into(),
        build_id: vec![],
        svma: Svma(0)..Svma(9),
    };
    let module = writer.module(&module).unwrap();
    let classes = ["f", "g"].map(|symbol| {
        let function = Function {
            module,
            svma: Svma(1),
            size_bytes: 1,
            symbol: symbol.to_owned(),
        };
        let id = writer.function(&function).unwrap();
        writer.class(id)
    });
    assert_eq!(classes, [1, 0]);
    assert_eq!(writer.class(FunctionId(99)), 0);
}

#[test]
fn a_short_recording_leaves_a_short_file() {
    let folder = folder("short");
    let path = folder.join("trace");
    let mut recording = Recording::begin(&path);
    recording.block(0, 300);
    let writer = std::mem::replace(
        &mut recording.writer,
        Recording::begin(&folder.join("other")).writer,
    );
    writer.finish(&Summary::default()).unwrap();
    let (kept, dropped, ending) = recording.check(&path);
    assert_eq!((kept, dropped), (recording.all(), 0));
    assert!(matches!(ending, Ending::Complete(_)));
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_ring_section_that_lies_is_refused() {
    let folder = folder("lies");
    let path = folder.join("trace");
    let mut recording = Recording::begin(&path);
    for n in 0..300 {
        recording.block(n % 2, 4000);
    }
    let whole = std::fs::read(&path).unwrap();
    for at in (16..400).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        // Refused, or read as far as it makes sense: never a panic, never without an end.
        let Ok(mut reader) = TraceReader::open(&path) else {
            continue;
        };
        let mut items = 0;
        while let Ok(Some(_)) = reader.next_item() {
            items += 1;
            assert!(items < 1000);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
