//! A trace with wrong content behind right checksums, or cut short, goes through every export
//! without a panic: either the reader refuses it or something is written.

use sptrace_addr::Svma;
use sptrace_export::{Context, ExportError, Format, Measure, Source, export};
use sptrace_trace::{
    ExitStatus, Function, FunctionId, Header, Module, Names, Note, Section, Selection, StreamInfo,
    Summary, TraceReader, TraceWriter, Wanted,
};
use std::io::Cursor;

type Reader = TraceReader<Cursor<Vec<u8>>>;

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A trace of two streams with every kind of event and note.
fn trace() -> Vec<u8> {
    let header = Header {
        tsc_hz: 2_400_000_000,
        start_tsc: 900,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let path = "/usr/bin/prog".to_owned();
    let module = Module {
        path,
        build_id: vec![7; 20],
        svma: Svma(0)..Svma(0x9999),
    };
    let module = writer.module(&module).unwrap();
    for (n, symbol) in ["main", "work", "", "_ZN2ns5parseEic", "_RNvC1a1b", "x"]
        .iter()
        .enumerate()
    {
        let svma = Svma(n as u64 * 16);
        let symbol = (*symbol).to_owned();
        writer
            .function(&Function {
                module,
                svma,
                size_bytes: 9,
                symbol,
            })
            .unwrap();
    }
    for tid in [1234, 1235] {
        let info = StreamInfo {
            pid: 1234,
            tid,
            start_tsc: 950,
            ..StreamInfo::default()
        };
        let stream = writer.stream(&info).unwrap();
        let mut e = writer.encoder(stream);
        for round in 0..12u64 {
            let t = 1000 + round * 5000;
            e.enter(t, FunctionId(0));
            e.enter(t + 100, FunctionId(1));
            e.tail(t + 300, FunctionId(2));
            e.enter_open(t + 500, FunctionId(3));
            e.close_open(t + 600, 1);
            e.exit(t + 900);
            e.enter(t + 1000, FunctionId(4));
            e.unwound(t + 1200, 1);
            e.resumed(t + 1300, FunctionId(5));
            e.lost(t + 1400, 12);
            e.blocked(t + 2400, 1000);
            e.exit(t + 3000);
        }
        writer.write_block(&mut e).unwrap();
    }
    let exec = Note::Exec {
        pid: 1234,
        tsc: 70_000,
        path: "/bin/other".into(),
    };
    writer.event_note(&exec).unwrap();
    let exit = Note::ProcessExit {
        pid: 1234,
        tsc: 80_000,
        status: ExitStatus::Signaled(9),
    };
    writer.event_note(&exit).unwrap();
    let mut summary = Summary {
        end_tsc: 90_000,
        ..Summary::default()
    };
    summary.row(Section::Sites, "patched: call instruction", 1234);
    summary.row(Section::Loss, "events dropped", 12);
    writer.finish(&summary).unwrap()
}

/// Every export; gives the bytes that were written.
fn export_all(bytes: &[u8]) -> Result<usize, ExportError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let survey = reader.survey()?;
    let header = reader.header().clone();
    let names = Names::new(&survey.dictionary);
    let mut written = 0;
    for (format, _) in Format::ALL {
        for (limit, min_ticks, measure) in [
            (None, 0, Measure::Time),
            (Some(5), 0, Measure::Calls),
            (Some(9), 700, Measure::Time),
        ] {
            let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
            let cx = Context {
                max_bytes: None,
                header: &header,
                names: &names,
                clock: reader.clock(),
                limit,
                measure,
                is_icicle: limit.is_some(),
                partition: None,
                baseline: None,
            };
            let selection = Selection {
                max_depth: limit.map(|limit| limit as u32),
                ..Selection::default()
            };
            let wanted = Wanted {
                selection,
                min_ticks,
                ..Wanted::default()
            };
            let source = Source {
                reader: &mut reader,
                survey: &survey,
                wanted,
            };
            let mut out = Vec::new();
            export(*format, source, &cx, &mut out)?;
            written += out.len();
        }
    }
    Ok(written)
}

/// Changes bytes of some sections and puts their checksums right.
fn corrupt(bytes: &mut [u8], random: &mut XorShift) {
    let mut at = 16;
    while at + 12 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let payload = at + 12..at + 12 + length;
        if random.below(3) == 0 && length > 0 {
            for _ in 0..=random.below(4) {
                let position = payload.start + random.below(length as u64) as usize;
                bytes[position] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => 0xff,
                    _ => bytes[position] ^ 1 << random.below(8),
                };
            }
            let crc = crc32fast::hash(&bytes[payload.clone()]);
            bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        }
        at = payload.end;
    }
}

#[test]
fn hostile_traces_are_refused_or_exported() {
    let good = trace();
    assert!(export_all(&good).unwrap() > 5000);
    let mut random = XorShift(0x7ace);
    let (mut refused, mut written) = (0, 0);
    for round in 0..600 {
        let mut bytes = good.clone();
        match round % 3 {
            0 => bytes.truncate(random.below(good.len() as u64) as usize),
            _ => corrupt(&mut bytes, &mut random),
        }
        match export_all(&bytes) {
            Ok(_) => written += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 10 && written > 10,
        "{refused} refused, {written} written"
    );
}
