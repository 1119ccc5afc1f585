//! Every view of one trace, one after the other.
//!
//! Given the bytes of a trace; gives how many bytes were shown, or why the reader refuses it.
//! Shared by the test of hostile traces and a fuzz target: what is not shown here is tested by
//! neither. Judges nothing of what is shown.

use sptrace_render::diff::{Compared, Did, select, write_diff, write_diff_csv};
use sptrace_render::{
    CallCounts, Column, Columns, CountKey, DescriptorNames, FoldedTree, FunctionColumn, GraphView,
    LibraryCalls, Lines, LinesOptions, SortKey, Style, SummaryView, SystemCalls, ThreadColumn,
    Time, Tree, TreeOptions, Waits, Way, select_functions, select_relatives, write_coverage,
    write_coverage_csv, write_function_columns, write_functions, write_functions_csv, write_graph,
    write_graph_csv, write_levels, write_relatives, write_relatives_csv, write_summary,
};
use sptrace_trace::compare::{Excerpt, Run};
use sptrace_trace::find::{Around, NthCall, Slowest};
use sptrace_trace::{
    CallTree, Clock, Dictionary, Ending, Focus, Graph, GraphNames, Header, Item, Names, Order,
    Pick, Recast, Selection, Snapshots, Stats, Survey, TraceError, TraceReader, Visitor, Wanted,
    replay as pipeline, replay_and_keep,
};
use sptrace_types::decode::call::Options;
use std::io::{Cursor, Write};
use std::sync::Arc;

type Reader = TraceReader<Cursor<Vec<u8>>>;
type Shown = Result<(), TraceError>;

/// Not coloured: what is shown is compared with nothing.
const STYLE: Style = Style { is_coloured: false };

/// What every view is given.
struct Cx<'a> {
    bytes: &'a [u8],
    header: Header,
    survey: &'a Survey,
    names: Names<'a>,
    clock: Clock,
}

impl Cx<'_> {
    fn replay<V: Visitor>(&self, wanted: &Wanted, visitor: V) -> Result<V, TraceError> {
        let mut reader = Reader::new(Cursor::new(self.bytes.to_vec()))?;
        reader.survey()?;
        pipeline(&mut reader, self.survey, wanted, visitor)
    }

    fn all<V: Visitor>(&self, visitor: V) -> Result<V, TraceError> {
        self.replay(&Wanted::default(), visitor)
    }

    fn columns(&self) -> Columns {
        let all = Column::ALL.map(|(column, _)| column);
        Columns::new(&all, &self.header, STYLE)
    }

    fn names(&self) -> (&Names<'_>, Clock) {
        (&self.names, self.clock)
    }
}

/// Every view; gives the bytes that were shown.
///
/// # Errors
/// Those of the reader: the trace cannot be used.
pub fn show_all(bytes: &[u8]) -> Result<usize, TraceError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let survey = reader.survey()?;
    let cx = Cx {
        bytes,
        header: reader.header().clone(),
        survey: &survey,
        names: Names::new(&survey.dictionary),
        clock: reader.clock(),
    };
    let mut out = Vec::new();
    block_by_block(bytes)?;
    sums(&cx, &mut out)?;
    relatives(&cx, &mut out)?;
    graphs(&cx, &mut out)?;
    trees(&cx, &mut out)?;
    calls(&cx, &mut out)?;
    orders(&cx, &mut out)?;
    ranges(&cx, &mut out)?;
    Ok(out.len())
}

/// As who follows a trace reads it.
fn block_by_block(bytes: &[u8]) -> Shown {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let dictionary: Dictionary = reader.survey()?.dictionary;
    let (mut tree, mut stats) = (CallTree::new(), Stats::new());
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Block(block) => {
                let told = tree.replay(&block, &dictionary, &mut stats);
                told.map_err(|what| what.at(0))?;
            }
            Item::Note(note) => tree.note(&note),
        }
    }
    tree.finish(&dictionary, &mut stats);
    Ok(())
}

/// `summary`, `functions`, `coverage`, `levels`, `waits`, `libcalls`.
fn sums(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let (names, clock) = cx.names();
    let stats = cx.all(Stats::new())?;
    let top = select_functions(&stats, names, SortKey::P99, Some(10));
    write_functions(out, &top, names, clock, STYLE).unwrap();
    write_functions_csv(out, &top, names, clock).unwrap();
    let columns = FunctionColumn::ALL.map(|(column, ..)| column);
    for is_csv in [false, true] {
        write_function_columns(out, &top, &columns, cx.names(), (is_csv, STYLE)).unwrap();
        let of = (names, clock, cx.header.start_tsc);
        let notes = (&cx.survey.notes[..], &cx.survey.ending);
        write_levels(out, notes, of, (is_csv, STYLE)).unwrap();
    }
    let view = SummaryView {
        header: &cx.header,
        survey: cx.survey,
        stats: &stats,
        top: &top,
        names,
    };
    write_summary(out, &view, STYLE).unwrap();
    if let Ending::Complete(summary) = &cx.survey.ending {
        write_coverage(out, summary, STYLE).unwrap();
        write_coverage_csv(out, summary).unwrap();
    }
    let waits = cx.all(Waits::new(names))?;
    waits.write(out, cx.names(), Some(5), STYLE).unwrap();
    waits.write_csv(out, cx.names()).unwrap();
    let library = cx.all(LibraryCalls::new(&cx.survey.dictionary))?;
    let key = (CountKey::Time, None);
    library.write(out, names, clock, key).unwrap();
    Ok(())
}

/// `callers`, `callees`.
fn relatives(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let graph = cx.all(Graph::default())?;
    let all = vec![true; cx.survey.dictionary.functions.len()];
    for way in [Way::Callers, Way::Callees] {
        let rows = select_relatives(&graph, &all, way, Some(20));
        write_relatives(out, &rows, cx.names(), way, STYLE).unwrap();
        write_relatives_csv(out, &rows, cx.names(), way).unwrap();
    }
    Ok(())
}

/// `graph`, by function and by module.
fn graphs(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let focused = Focus::new(vec![false, true], Graph::default());
    let graph = cx.all(Recast::new(vec![None], focused))?.inner.inner;
    for names in [
        GraphNames::of_functions(&cx.names),
        GraphNames::of_modules(&cx.names),
    ] {
        let view = GraphView {
            graph: &graph,
            names,
            clock: cx.clock,
            limit: Some(50),
            style: STYLE,
        };
        write_graph(out, &view).unwrap();
        write_graph_csv(out, &view).unwrap();
    }
    Ok(())
}

fn tree_of<'a>(cx: &'a Cx<'a>, out: &'a mut Vec<u8>) -> Tree<'a, &'a mut Vec<u8>> {
    let options = TreeOptions {
        min_ns: 10,
        max_lines: Some(500),
        style: STYLE,
    };
    Tree::new(out, cx.names(), cx.columns(), options)
}

/// `tree`, folded, around a call, the slowest of a function.
fn trees(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let by_time = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let folded = FoldedTree::new(&mut *out, cx.names(), cx.columns(), Some(300), STYLE);
    cx.replay(&by_time, folded)?.finish().unwrap();
    let chosen = vec![true; cx.survey.dictionary.functions.len()];
    let slowest = cx.replay(&by_time, Slowest::new(chosen.clone(), 3))?;
    let calls = slowest.calls().into_iter().map(|(id, _)| id);
    let tree = Pick::new(calls, tree_of(cx, out));
    cx.replay(&by_time, tree)?.inner.finish().unwrap();
    let found = cx.replay(&by_time, NthCall::new(chosen, 5))?;
    let at_tsc = found.begun_tsc.unwrap_or(0);
    let around = cx.replay(&by_time, Around::since(0, at_tsc, 10))?;
    let (from_tsc, to_tsc) = around.range_tsc();
    let wanted = range(from_tsc, to_tsc, Order::Time, None);
    cx.replay(&wanted, tree_of(cx, out))?.finish().unwrap();
    Ok(())
}

/// `lines`, `syscalls`.
fn calls(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let by_time = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let options = LinesOptions {
        calls: Options::default(),
        thread: ThreadColumn::WhenSeveral,
        time: Time::Microseconds,
        is_relative: true,
        with_duration: true,
        column: 40,
        wanted: None,
        on_descriptors: None,
        succeeded: None,
        min_ticks: 0,
        with_number: true,
        limit: Some(500),
        descriptors: DescriptorNames::Paths,
        paths: Vec::new(),
        resolve: |_| None,
        functions: Some(&cx.names),
    };
    let dictionary = &cx.survey.dictionary;
    let lines = Lines::new(&mut *out, &cx.header, cx.clock, options);
    let view = SystemCalls::new(dictionary, lines).with_stacks();
    cx.replay(&by_time, view)?.finish().result.unwrap();
    let view = SystemCalls::new(dictionary, CallCounts::of(None));
    let sums = cx.replay(&by_time, view)?.finish();
    sums.write(out, cx.clock, CountKey::Errors, None).unwrap();
    Ok(())
}

/// `diff`: with itself, and with a run that did nothing.
fn orders(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let keys = vec![7; cx.survey.dictionary.functions.len()];
    let run = cx.all(Run::new(keys))?;
    for stream in run.streams() {
        assert_eq!(run.parting(stream, &run, stream), None);
        let excerpt = cx.all(Excerpt::new(stream, 0))?;
        let frames = excerpt.stack_at(3).len() + excerpt.stack_at(usize::MAX).len();
        writeln!(out, "{frames}").unwrap();
    }
    let compared = run.tallies().map(|(id, tally)| Compared {
        module: cx.names.module(id).to_owned(),
        name: cx.names.name(id).to_owned(),
        old: vec![Did::default()],
        new: Did {
            calls: tally.calls,
            timed: tally.known,
            median_ns: cx.clock.ns(tally.median_ticks()),
            self_ns: cx.clock.ns(tally.self_ticks),
        },
    });
    let compared: Vec<_> = compared.collect();
    let rows = select(&compared);
    write_diff(out, &rows, 20, STYLE).unwrap();
    write_diff_csv(out, &rows).unwrap();
    Ok(())
}

fn range(from: u64, to: Option<u64>, order: Order, snapshots: Option<Arc<Snapshots>>) -> Wanted {
    Wanted {
        selection: Selection {
            from_tsc: Some(from),
            to_tsc: to,
            ..Selection::default()
        },
        order,
        snapshots,
        ..Wanted::default()
    }
}

/// What is chosen, in both orders; a range with and without what is kept of the trace.
fn ranges(cx: &Cx<'_>, out: &mut Vec<u8>) -> Shown {
    let selection = Selection {
        within: cx.names.choose("*").unwrap_or_default(),
        max_depth: Some(3),
        from_tsc: Some(cx.clock.tsc_at(1000)),
        to_tsc: Some(cx.clock.tsc_at(20_000)),
        ..Selection::default()
    };
    let mut reader = Reader::new(Cursor::new(cx.bytes.to_vec()))?;
    reader.survey()?;
    let (_, kept) = replay_and_keep(&mut reader, cx.survey, 20, Stats::new())?;
    let kept = Arc::new(kept);
    for order in [Order::File, Order::Time] {
        let wanted = Wanted {
            selection: selection.clone(),
            min_ticks: 3,
            order,
            snapshots: None,
        };
        cx.replay(&wanted, tree_of(cx, out))?.finish().unwrap();
        let everything = Wanted {
            order,
            ..Wanted::default()
        };
        cx.replay(&everything, Stats::new())?;
        let (from, to) = (cx.clock.tsc_at(5000), cx.clock.tsc_at(15_000));
        let wanted = range(from, Some(to), order, Some(Arc::clone(&kept)));
        cx.replay(&wanted, tree_of(cx, out))?.finish().unwrap();
    }
    Ok(())
}
