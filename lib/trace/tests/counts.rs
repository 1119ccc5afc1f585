//! Calls that were counted and not recorded: what is written is read, views add it up, and numbers
//! that no function has are refused.

use sptrace_addr::Svma;
use sptrace_trace::{
    Counted, Function, FunctionId, Graph, Header, Module, Note, Selection, Stats, Survey,
    TraceReader, TraceWriter, Wanted, replay,
};
use std::io::Cursor;

const MAIN: FunctionId = FunctionId(0);
const PARSE: FunctionId = FunctionId(1);
const FREE: FunctionId = FunctionId(2);

fn counted(caller: Option<FunctionId>, callee: FunctionId, calls: u64) -> Counted {
    Counted {
        caller,
        callee,
        calls,
    }
}

fn note(tid: u32, edges: Vec<Counted>) -> Note {
    let (pid, tsc) = (7, 90);
    Note::Counts {
        pid,
        tsc,
        tid,
        edges,
    }
}

/// A trace of three functions with these notes.
fn trace(notes: &[Note]) -> Vec<u8> {
    let mut writer = TraceWriter::create(Vec::new(), &Header::default()).unwrap();
    let module = Module {
        path: "/bin/program".to_owned(),
        build_id: vec![1],
        svma: Svma(0)..Svma(0),
    };
    let module = writer.module(&module).unwrap();
    for (svma, symbol) in [(0x10, "main"), (0x20, "parse"), (0x30, "free")] {
        let function = Function {
            module,
            svma: Svma(svma),
            size_bytes: 16,
            symbol: symbol.to_owned(),
        };
        writer.function(&function).unwrap();
    }
    for note in notes {
        writer.event_note(note).unwrap();
    }
    writer.finish(&sptrace_trace::Summary::default()).unwrap()
}

fn opened(bytes: Vec<u8>) -> (TraceReader<Cursor<Vec<u8>>>, Survey) {
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey = reader.survey().unwrap();
    (reader, survey)
}

fn two_threads() -> Vec<u8> {
    trace(&[
        note(
            7,
            vec![
                counted(None, MAIN, 1),
                counted(Some(MAIN), PARSE, u64::MAX - 5),
            ],
        ),
        note(
            8,
            vec![
                counted(Some(MAIN), PARSE, 3),
                counted(Some(PARSE), FREE, 40),
            ],
        ),
    ])
}

fn calls(selection: Selection) -> Vec<(FunctionId, u64)> {
    let (mut reader, survey) = opened(two_threads());
    let wanted = Wanted {
        selection,
        ..Wanted::default()
    };
    let stats = replay(&mut reader, &survey, &wanted, Stats::new()).unwrap();
    stats
        .functions()
        .map(|(id, stats)| {
            assert_eq!((stats.timed, stats.total_ticks()), (0, None));
            (id, stats.calls)
        })
        .collect()
}

#[test]
fn what_is_written_is_read_and_added_up_without_times() {
    let (_, survey) = opened(two_threads());
    assert_eq!(survey.notes.len(), 2);
    assert_eq!(survey.counted_calls(), Some(u64::MAX));
    let all = calls(Selection::default());
    assert_eq!(all, [(MAIN, 1), (PARSE, u64::MAX - 2), (FREE, 40)]);
    let (_, plain) = opened(trace(&[]));
    assert_eq!(plain.counted_calls(), None);
}

#[test]
fn the_graph_has_who_called_whom() {
    let (mut reader, survey) = opened(two_threads());
    let graph = replay(&mut reader, &survey, &Wanted::default(), Graph::default()).unwrap();
    let edges = graph.edges();
    let edges: Vec<_> = edges
        .iter()
        .map(|(pair, edge)| (*pair, edge.calls))
        .collect();
    let parse = ((Some(MAIN), PARSE), u64::MAX - 2);
    assert_eq!(edges, [((None, MAIN), 1), parse, ((Some(PARSE), FREE), 40)]);
}

#[test]
fn a_selection_chooses_by_callee_and_thread() {
    let chosen = |of: &[FunctionId]| (0..3).map(|i| of.contains(&FunctionId(i))).collect();
    let without = Selection {
        without: chosen(&[FREE]),
        tids: vec![8],
        ..Selection::default()
    };
    assert_eq!(calls(without), [(PARSE, 3)]);
    let within = Selection {
        within: chosen(&[PARSE]),
        ..Selection::default()
    };
    assert_eq!(calls(within), [(PARSE, u64::MAX - 2), (FREE, 40)]);
}

#[test]
fn functions_that_are_not_named_are_refused() {
    for edge in [
        counted(None, FunctionId(3), 1),
        counted(Some(FunctionId(3)), MAIN, 1),
    ] {
        let bytes = trace(&[note(7, vec![edge])]);
        let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
        assert!(reader.survey().is_err());
    }
}
