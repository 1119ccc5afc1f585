//! A trace with wrong content behind right checksums goes through every view without a panic:
//! either the reader refuses it or something is shown.

use sptrace_addr::Svma;
use sptrace_render::{
    Column, Columns, FoldedTree, GraphView, SortKey, Style, SummaryView, Tree, TreeOptions,
    select_functions, write_coverage, write_functions, write_functions_csv, write_graph,
    write_graph_csv, write_summary,
};
use sptrace_trace::compare::{Excerpt, Run};
use sptrace_trace::{
    CallTree, Clock, Dictionary, Ending, ExitStatus, Focus, Function, FunctionId, Graph,
    GraphNames, Header, Item, Module, Names, Note, Order, Recast, Section, Selection, Stats,
    StreamInfo, Summary, TraceError, TraceReader, TraceWriter, Visitor, Wanted, replay as pipeline,
};
use std::io::{Cursor, Write};

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

fn replay<V: Visitor>(bytes: &[u8], visitor: V) -> Result<V, TraceError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let dictionary: Dictionary = reader.survey()?.dictionary;
    let (mut tree, mut visitor) = (CallTree::new(), visitor);
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Block(block) => {
                tree.replay(&block, &dictionary, &mut visitor)
                    .map_err(|what| what.at(0))?;
            }
            Item::Note(note) => tree.note(&note),
        }
    }
    tree.finish(&dictionary, &mut visitor);
    Ok(visitor)
}

/// Every view; gives the bytes that were shown.
fn show_all(bytes: &[u8]) -> Result<usize, TraceError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let survey = reader.survey()?;
    let clock: Clock = reader.clock();
    let names = Names::new(&survey.dictionary);
    let style = Style { is_coloured: false };
    let mut out = Vec::new();
    let stats = replay(bytes, Stats::new())?;
    let top = select_functions(&stats, &names, SortKey::P99, Some(10));
    write_functions(&mut out, &top, &names, clock, style).unwrap();
    write_functions_csv(&mut out, &top, &names, clock).unwrap();
    let header = reader.header().clone();
    let view = SummaryView {
        header: &header,
        survey: &survey,
        stats: &stats,
        top: &top,
        names: &names,
    };
    write_summary(&mut out, &view, style).unwrap();
    if let Ending::Complete(summary) = &survey.ending {
        write_coverage(&mut out, summary, style).unwrap();
    }
    let keys = vec![7; survey.dictionary.functions.len()];
    let run = replay(bytes, Run::new(keys))?;
    for stream in run.streams() {
        assert_eq!(run.parting(stream, &run, stream), None);
        let excerpt = replay(bytes, Excerpt::new(stream, 0))?;
        let frames = excerpt.stack_at(3).len() + excerpt.stack_at(usize::MAX).len();
        writeln!(out, "{frames}").unwrap();
    }
    let options = || TreeOptions {
        min_ns: 10,
        max_lines: Some(500),
        style,
    };
    let all = Column::ALL.map(|(column, _)| column);
    let columns = || Columns::new(&all, &header, style);
    let folded = FoldedTree::new(&mut out, (&names, clock), columns(), None, style);
    replay(bytes, folded)?.finish().unwrap();
    replay(
        bytes,
        Tree::new(&mut out, (&names, clock), columns(), options()),
    )?
    .finish()
    .unwrap();
    let focused = Focus::new(vec![false, true], Graph::default());
    let graph = replay(bytes, Recast::new(vec![None], focused))?.inner.inner;
    for names in [
        GraphNames::of_functions(&names),
        GraphNames::of_modules(&names),
    ] {
        let view = GraphView {
            graph: &graph,
            names,
            clock,
            limit: Some(50),
            style,
        };
        write_graph(&mut out, &view).unwrap();
        write_graph_csv(&mut out, &view).unwrap();
    }
    let selection = Selection {
        within: names.choose("*").unwrap_or_default(),
        max_depth: Some(3),
        from_tsc: Some(clock.tsc_at(1000)),
        to_tsc: Some(clock.tsc_at(20_000)),
        ..Selection::default()
    };
    for order in [Order::File, Order::Time] {
        let wanted = Wanted {
            selection: selection.clone(),
            min_ticks: 3,
            order,
            snapshots: None,
        };
        let tree = Tree::new(&mut out, (&names, clock), columns(), options());
        pipeline(&mut reader, &survey, &wanted, tree)?
            .finish()
            .unwrap();
        let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
        let everything = Wanted {
            order,
            ..Wanted::default()
        };
        pipeline(&mut reader, &survey, &everything, Stats::new())?;
    }
    Ok(out.len())
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
fn hostile_traces_are_refused_or_shown() {
    let good = trace();
    assert!(show_all(&good).unwrap() > 500);
    let mut random = XorShift(0x7ace);
    let (mut refused, mut shown) = (0, 0);
    for _ in 0..6000 {
        let mut bytes = good.clone();
        corrupt(&mut bytes, &mut random);
        match show_all(&bytes) {
            Ok(_) => shown += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 100 && shown > 100,
        "{refused} refused, {shown} shown"
    );
}
