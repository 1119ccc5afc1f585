//! Whole outputs of the views on a hand-made trace.

use sptrace_addr::Svma;
use sptrace_render::{
    Column, Columns, SortKey, Style, SummaryView, Tree, TreeOptions, select_functions,
    write_coverage, write_coverage_csv, write_functions, write_functions_csv, write_summary,
};
use sptrace_trace::{
    CallTree, Clock, Ending, ExitStatus, Function, FunctionId, Header, Item, Module, Names, Note,
    Section, Stats, StreamEncoder, StreamInfo, Summary, Survey, TraceReader, TraceWriter, Visitor,
};
use std::io::Cursor;

const MAIN: FunctionId = FunctionId(0);
const WORK: FunctionId = FunctionId(1);
const LEAF: FunctionId = FunctionId(2);
const PARSE: FunctionId = FunctionId(3);

type Reader = TraceReader<Cursor<Vec<u8>>>;

/// A tree with the usual columns.
fn usual_tree<'a>(
    out: &'a mut Vec<u8>,
    names: &'a Names<'a>,
    clock: Clock,
    options: TreeOptions,
) -> Tree<'a, &'a mut Vec<u8>> {
    let columns = Columns::new(&Column::USUAL, &Header::default(), options.style);
    Tree::new(out, (names, clock), columns, options)
}

/// A trace's writer, and the stream of its one thread.
fn begin() -> (TraceWriter<Vec<u8>>, StreamEncoder) {
    let header = Header {
        command: vec!["prog".into(), "-v".into()],
        host: "host".into(),
        kernel: "6.1".into(),
        cpu: "CPU".into(),
        tsc_hz: 1_000_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let path = "/usr/bin/prog".into();
    let module = Module {
        path,
        build_id: vec![],
        svma: Svma(0)..Svma(999),
    };
    let module = writer.module(&module).unwrap();
    for (svma, symbol) in [
        (0x10, "main"),
        (0x20, "work"),
        (0x30, ""),
        (0x40, "_ZN2ns5parseEic"),
    ] {
        let (svma, symbol) = (Svma(svma), symbol.into());
        writer
            .function(&Function {
                module,
                svma,
                size_bytes: 9,
                symbol,
            })
            .unwrap();
    }
    let stream = StreamInfo {
        pid: 1234,
        tid: 1234,
        ..StreamInfo::default()
    };
    let stream = writer.stream(&stream).unwrap();
    let encoder = writer.encoder(stream);
    (writer, encoder)
}

fn trace_of(encode: impl Fn(&mut StreamEncoder)) -> Vec<u8> {
    let (mut writer, mut encoder) = begin();
    encode(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    writer.finish(&Summary::default()).unwrap()
}

fn trace() -> Vec<u8> {
    let (mut writer, mut encoder) = begin();
    encoder.enter(1_000, MAIN);
    encoder.enter(2_000, WORK);
    encoder.enter(2_500, LEAF);
    encoder.exit(2_600);
    encoder.tail(3_000, PARSE);
    encoder.exit(9_234);
    encoder.enter(10_000, WORK);
    encoder.enter(10_010, LEAF);
    encoder.unwound(10_200, 2);
    encoder.lost(10_300, 12);
    encoder.blocked(210_300, 200_000);
    encoder.enter_open(211_000, LEAF);
    encoder.exit(2_211_000);
    writer.write_block(&mut encoder).unwrap();
    let status = ExitStatus::Exited(3);
    writer
        .event_note(&Note::ProcessExit {
            pid: 1234,
            tsc: 2_220_000,
            status,
        })
        .unwrap();
    let mut summary = Summary {
        end_tsc: 2_220_000,
        ..Summary::default()
    };
    summary.row(Section::Sites, "patched: call instruction", 1234);
    summary.row(Section::Sites, "patched: call block", 6);
    summary.row(Section::Refused, "no room", 3);
    summary.row(Section::Loss, "events dropped", 12);
    summary.row(Section::Recorded, "times", 3);
    summary.row(
        Section::SeenInPart,
        "prog: its runtime walks its own stacks",
        1,
    );
    summary.row(Section::WithoutEnd, "called by code that is not seen", 1);
    summary.row(Section::RecordedFor, "ticks", 2_000_000);
    writer.finish(&summary).unwrap()
}

/// What `show` writes about the trace.
fn shown(show: impl FnOnce(&mut Reader, &Survey, &Names<'_>, &mut Vec<u8>)) -> String {
    shown_of(&trace(), show)
}

fn shown_of(
    bytes: &[u8],
    show: impl FnOnce(&mut Reader, &Survey, &Names<'_>, &mut Vec<u8>),
) -> String {
    let mut reader = TraceReader::new(Cursor::new(bytes.to_vec())).unwrap();
    let survey = reader.survey().unwrap();
    let mut text = Vec::new();
    show(
        &mut reader,
        &survey,
        &Names::new(&survey.dictionary),
        &mut text,
    );
    String::from_utf8(text).unwrap()
}

fn replay<V: Visitor>(reader: &mut Reader, mut visitor: V) -> V {
    let mut tree = CallTree::new();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Block(block) => tree
                .replay(&block, reader.dictionary(), &mut visitor)
                .unwrap(),
            Item::Note(note) => tree.note(&note),
        }
    }
    tree.finish(reader.dictionary(), &mut visitor);
    visitor
}

fn tree_text(options: TreeOptions) -> String {
    shown(|reader, _, names, text| {
        let clock = reader.clock();
        let mut tree = replay(reader, usual_tree(text, names, clock, options));
        tree.note(&Note::ProcessExit {
            pid: 1234,
            tsc: 0,
            status: ExitStatus::Exited(3),
        });
        tree.finish().unwrap();
    })
}

#[test]
fn tree() {
    let expected = "\
# DURATION     TID     FUNCTION
            [   1234] | main() {
            [   1234] |   work() {
     100 ns [   1234] |     sub_30();
   6.234 us [   1234] |     ns::parse(int, char); /* tail */
   7.234 us [   1234] |   } /* work */
            [   1234] |   work() {
         ?  [   1234] |     sub_30(); /* unwound */
         ?  [   1234] |   } /* work, unwound */
            [   1234] |   /* 12 events lost */
            [   1234] |   /* waited 200.000 us for sptrace */
         ?  [   1234] |   sub_30(); /* end not seen */
         ?  [   1234] | } /* main, end not seen */
            [   1234] | /* process exited with status 3 */
";
    assert_eq!(tree_text(TreeOptions::default()), expected);
}

#[test]
fn tree_without_short_calls_keeps_what_was_lost() {
    let expected = "\
# DURATION     TID     FUNCTION
            [   1234] | main() {
            [   1234] |   work() {
   6.234 us [   1234] |     ns::parse(int, char); /* tail */
   7.234 us [   1234] |   } /* work */
            [   1234] |   /* 12 events lost */
            [   1234] |   /* waited 200.000 us for sptrace */
         ?  [   1234] | } /* main, end not seen */
            [   1234] | /* process exited with status 3 */
";
    assert_eq!(
        tree_text(TreeOptions {
            min_ns: 1_000,
            ..TreeOptions::default()
        }),
        expected
    );
}

#[test]
fn tree_stops_at_the_limit_and_is_painted_on_request() {
    let options = TreeOptions {
        max_lines: Some(2),
        ..TreeOptions::default()
    };
    assert_eq!(tree_text(options).lines().count(), 3);
    let style = Style { is_coloured: true };
    assert!(
        tree_text(TreeOptions {
            style,
            ..TreeOptions::default()
        })
        .contains("\u{1b}[")
    );
    assert!(!tree_text(TreeOptions::default()).contains('\u{1b}'));
}

#[test]
fn functions_as_csv() {
    let text = shown(|reader, _, names, text| {
        let stats = replay(reader, Stats::new());
        let rows = select_functions(&stats, names, SortKey::Calls, None);
        write_functions_csv(text, &rows, names, reader.clock()).unwrap();
    });
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(
        lines[0],
        "module,function,calls,total_ns,self_ns,address,symbol,min_ns,mean_ns,max_ns,p99_ns,timed_calls"
    );
    assert_eq!(lines[1], "prog,sub_30,3,100,100,0x30,,100,100,100,100,1");
    assert_eq!(
        lines[2],
        "prog,work,2,7234,900,0x20,work,7234,7234,7234,7234,1"
    );
    assert!(
        lines[4].starts_with("prog,\"ns::parse(int, char)\",1,6234,6234,0x40,_ZN2ns5parseEic,")
    );
    assert_eq!(lines[5], "");
}

#[test]
fn functions_as_text() {
    let text = shown(|reader, _, names, text| {
        let stats = replay(reader, Stats::new());
        let rows = select_functions(&stats, names, SortKey::SelfTime, Some(2));
        write_functions(text, &rows, names, reader.clock(), Style::default()).unwrap();
    });
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let expected = [
        "calls", "untimed", "total", "self", "min", "mean", "max", "p99", "module", "function",
    ];
    assert_eq!(lines[0], expected);
    assert_eq!(lines[1][..4], ["1", "0", "6.234", "us"]);
    assert_eq!(lines[1][lines[1].len() - 2..], ["ns::parse(int,", "char)"]);
    assert_eq!(lines[2][..4], ["2", "1", "7.234", "us"]);
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_time_that_is_not_known_is_a_question_mark_an_empty_field_and_last_in_the_order() {
    let bytes = trace_of(|encoder| {
        encoder.enter(0, MAIN);
        encoder.enter_open(1_000, LEAF);
        encoder.called_by(1_900_000, Some(MAIN));
        encoder.enter(1_900_000, WORK);
        encoder.exit(1_900_010);
        encoder.exit(2_000_000);
    });
    let rows = |is_csv: bool| {
        shown_of(&bytes, |reader, _, names, text| {
            let (stats, clock) = (replay(reader, Stats::new()), reader.clock());
            let rows = select_functions(&stats, names, SortKey::SelfTime, None);
            match is_csv {
                true => write_functions_csv(text, &rows, names, clock).unwrap(),
                false => write_functions(text, &rows, names, clock, Style::default()).unwrap(),
            }
        })
    };
    let csv = rows(true);
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines[1], "prog,work,1,10,10,0x20,work,10,10,10,10,1");
    assert_eq!(
        lines[2],
        "prog,main,1,2000000,,0x10,main,2000000,2000000,2000000,2000000,1"
    );
    assert_eq!(lines[3], "prog,sub_30,1,,,0x30,,,,,,0");
    let text = rows(false);
    let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(
        last,
        ["1", "1", "?", "?", "?", "?", "?", "?", "prog", "sub_30"]
    );
}

#[test]
fn coverage() {
    let expected = "\
sites
 1,234   99.52 %   patched: call instruction
     6    0.48 %   patched: call block

refused
 3   100.00 %   no room

loss
 12   100.00 %   events dropped

recorded
 3   100.00 %   times

seen in part
 1   100.00 %   prog: its runtime walks its own stacks

calls without an end
 1   100.00 %   called by code that is not seen

recorded for
 2,000,000   100.00 %   ticks
";
    let summary = |survey: &Survey| match &survey.ending {
        Ending::Complete(summary) => summary.clone(),
        other => panic!("{other:?}"),
    };
    let text = shown(|_, survey, _, text| {
        write_coverage(text, &summary(survey), Style::default()).unwrap();
    });
    assert_eq!(text, expected);
    let csv = shown(|_, survey, _, text| write_coverage_csv(text, &summary(survey)).unwrap());
    assert!(csv.starts_with("section,key,count\r\nsites,patched: call instruction,1234\r\n"));
}

#[test]
fn summary() {
    let text = shown(|reader, survey, names, text| {
        let header = reader.header().clone();
        let stats = replay(reader, Stats::new());
        let top = select_functions(&stats, names, SortKey::SelfTime, Some(10));
        let view = SummaryView {
            header: &header,
            survey,
            stats: &stats,
            top: &top,
            names,
        };
        write_summary(text, &view, Style::default()).unwrap();
    });
    assert!(
        text.starts_with("command    prog -v\nmachine    host, Linux 6.1, CPU\n"),
        "{text}"
    );
    for line in [
        "started    1970-01-01 00:00:00 UTC, ran 2.220 ms",
        "recorded   3 times, 2.000 ms together",
        "processes  1, threads 1",
        "waiting    200.000 us for sptrace, not counted in durations",
        "time       0.3 % of the threads' 2.020 ms is known, 0.4 % is outside of the calls seen",
        "           4 calls without an end: 1 called by code that is not seen, 2 left by a throw or longjmp, \
         1 that began earlier, or were open at the recording's end or where events were lost",
        "seen poorly: of most of its time it is not known which function it was spent in",
        "seen in part: prog: its runtime walks its own stacks",
        "coverage   99.75 % of 1,243 call sites patched, refused 3",
        "loss       12 events lost",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
