//! Every export of one trace, one after the other.
//!
//! Given the bytes of a trace; gives how many bytes were written, or why the reader refuses it.
//! Shared by the test of hostile traces and a fuzz target. Judges nothing of what is written.

use sptrace_export::{
    Baseline, Context, ExportError, Format, GraphSource, Measure, Source, export, write_graph_dot,
    write_graph_svg,
};
use sptrace_trace::{Graph, GraphNames, Names, Selection, Survey, TraceReader, Wanted, replay};
use std::io::{self, Cursor, Write};

type Reader = TraceReader<Cursor<Vec<u8>>>;

fn open(bytes: &[u8]) -> Result<(Reader, Survey), ExportError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()))?;
    let survey = reader.survey()?;
    Ok((reader, survey))
}

/// How much is written: all, or some of it.
struct Part {
    limit: Option<u64>,
    max_bytes: Option<u64>,
    min_ticks: u64,
    measure: Measure,
    has_partition: bool,
    has_baseline: bool,
}

const WHOLE: Part = Part {
    limit: None,
    max_bytes: None,
    min_ticks: 0,
    measure: Measure::Time,
    has_partition: false,
    has_baseline: false,
};

const PARTS: [Part; 4] = [
    WHOLE,
    Part {
        limit: Some(5),
        measure: Measure::Calls,
        has_baseline: true,
        ..WHOLE
    },
    Part {
        limit: Some(9),
        min_ticks: 700,
        ..WHOLE
    },
    Part {
        max_bytes: Some(2000),
        has_partition: true,
        ..WHOLE
    },
];

/// Every export, whole and in part; gives the bytes that were written.
///
/// # Errors
/// Those of the reader: the trace cannot be used.
pub fn export_all(bytes: &[u8]) -> Result<usize, ExportError> {
    let (_, survey) = open(bytes)?;
    let names = Names::new(&survey.dictionary);
    let mut written = 0;
    for (format, _) in Format::ALL {
        for part in &PARTS {
            written += export_part(bytes, *format, part, &names)?;
        }
    }
    Ok(written + draw_graph(bytes, &names)?)
}

fn export_part(
    bytes: &[u8],
    format: Format,
    part: &Part,
    names: &Names<'_>,
) -> Result<usize, ExportError> {
    let (mut reader, survey) = open(bytes)?;
    let (header, clock) = (reader.header().clone(), reader.clock());
    let baseline = match part.has_baseline {
        true => {
            let (mut older, survey) = open(bytes)?;
            let source = Source {
                reader: &mut older,
                survey: &survey,
                wanted: Wanted::default(),
            };
            Some(Baseline::of(source, (names, clock), part.measure)?)
        }
        false => None,
    };
    let sink = |_: &str| -> io::Result<Box<dyn Write + Send>> { Ok(Box::new(io::sink())) };
    let cx = Context {
        max_bytes: part.max_bytes,
        header: &header,
        names,
        clock,
        limit: part.limit,
        measure: part.measure,
        is_icicle: part.limit.is_some(),
        partition: part
            .has_partition
            .then_some(&sink as sptrace_export::Partition<'_>),
        baseline: baseline.as_ref(),
    };
    let selection = Selection {
        max_depth: part.limit.map(|limit| limit as u32),
        ..Selection::default()
    };
    let source = Source {
        reader: &mut reader,
        survey: &survey,
        wanted: Wanted {
            selection,
            min_ticks: part.min_ticks,
            ..Wanted::default()
        },
    };
    let mut out = Vec::new();
    export(format, source, &cx, &mut out)?;
    Ok(out.len())
}

/// The call graph as pictures.
fn draw_graph(bytes: &[u8], names: &Names<'_>) -> Result<usize, ExportError> {
    let (mut reader, survey) = open(bytes)?;
    let graph = replay(&mut reader, &survey, &Wanted::default(), Graph::default())?;
    let mut out = Vec::new();
    for limit in [None, Some(3)] {
        let source = GraphSource {
            title: "prog <&>".to_owned(),
            graph: &graph,
            names: GraphNames::of_functions(names),
            clock: reader.clock(),
            limit,
        };
        write_graph_dot(&source, &mut out)?;
        write_graph_svg(&source, &mut out)?;
    }
    Ok(out.len())
}
