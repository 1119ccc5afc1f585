//! A trace in the formats of other tools: one file a format, each upon `sptrace_trace::replay`.
//!
//! Given an open trace, what of it is wanted, and an output; gives bytes. What is written call by
//! call is never held; what adds up holds its sums. Knows nothing of the command line or of
//! terminals.
#![forbid(unsafe_code)]

mod baseline;
mod callgrind;
mod chrome;
mod csv;
mod dot;
mod firefox;
mod flame;
mod flow;
mod folded;
mod graph;
mod jsonl;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod paths;
mod perfetto;
mod rows;
mod sums;
mod timeline;
mod words;

pub use baseline::Baseline;
pub use dot::write_graph_dot;
pub use flow::{Flow, FlowArrow, FlowBlock, write_flow_dot, write_flow_svg};
pub use graph::{GraphSource, write_graph_svg};
pub use paths::Measure;

use rows::{RowSink, Rows};
use sptrace_trace::{
    Clock, Header, Names, Order, Survey, TraceError, TraceReader, Visitor, Wanted, replay,
};
use std::io::{self, Read, Seek, Write};
use sums::Sums;

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Trace events of Chrome, as JSON.
    Chrome,
    /// One object a call and line.
    JsonLines,
    /// One row a call.
    Csv,
    /// One row a call, in columns.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Perfetto's own.
    Perfetto,
    /// The Firefox Profiler's.
    Firefox,
    /// Callgrind's profile.
    Callgrind,
    /// Stacks and what they took.
    Folded,
    /// The call graph, for graphviz.
    Dot,
    /// A flame graph, as SVG.
    Flame,
    /// A time line, as HTML.
    Timeline,
}

impl Format {
    /// All of them by name.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Perfetto, "perfetto"),
        (Self::Firefox, "firefox"),
        (Self::Chrome, "chrome"),
        (Self::JsonLines, "jsonl"),
        (Self::Csv, "csv"),
        #[cfg(feature = "parquet")]
        (Self::Parquet, "parquet"),
        (Self::Callgrind, "callgrind"),
        (Self::Folded, "folded"),
        (Self::Dot, "dot"),
        (Self::Flame, "flame"),
        (Self::Timeline, "timeline"),
    ];

    /// The format of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| *known == name).map(|found| found.0)
    }

    /// Calls that the format's viewers are known to bear.
    pub fn viewer_limit(self) -> Option<u64> {
        match self {
            Self::Chrome | Self::Firefox => Some(1_000_000),
            _ => None,
        }
    }

    /// Is it of calls one by one, so that it can end at a size?
    pub fn has_size(self) -> bool {
        match self {
            Self::Chrome | Self::JsonLines | Self::Csv | Self::Perfetto | Self::Firefox => true,
            #[cfg(feature = "parquet")]
            Self::Parquet => true,
            _ => false,
        }
    }

    /// Bytes that the format's viewers are known to bear: more is written, and said.
    pub fn viewer_bytes(self) -> Option<u64> {
        match self {
            // A page of a browser has 4 GiB at most, and holds the file beside what it makes of it.
            Self::Perfetto => Some(2 << 30),
            // The longest string of V8.
            Self::Chrome => Some((1 << 29) - 24),
            _ => None,
        }
    }

    /// Is it nothing for a terminal?
    pub fn is_binary(self) -> bool {
        match self {
            #[cfg(feature = "parquet")]
            Self::Parquet => true,
            format => format == Self::Perfetto,
        }
    }

    /// Can it be written as a file for each process?
    pub fn has_partitions(self) -> bool {
        match self {
            #[cfg(feature = "parquet")]
            Self::Parquet => true,
            _ => false,
        }
    }
}

/// Opens a file of a partition by its name relative to all of them.
pub type Partition<'a> = &'a dyn Fn(&str) -> io::Result<Box<dyn Write + Send>>;

impl Context<'_> {
    /// So many calls and bytes are all that is wanted.
    fn is_enough(&self, calls: u64, bytes: u64) -> bool {
        self.limit.is_some_and(|limit| calls >= limit)
            || self.max_bytes.is_some_and(|most| bytes >= most)
    }
}

/// What all formats need.
pub struct Context<'a> {
    /// Of the trace.
    pub header: &'a Header,
    /// Of its functions, modules and threads.
    pub names: &'a Names<'a>,
    /// Its clock.
    pub clock: Clock,
    /// At most so many calls (or, of what adds up, functions).
    pub limit: Option<u64>,
    /// Of formats that have calls one by one: no more calls once there are so many bytes.
    pub max_bytes: Option<u64>,
    /// What stacks are measured by.
    pub measure: Measure,
    /// Flame graphs are drawn from the top down.
    pub is_icicle: bool,
    /// What a flame graph is compared with.
    pub baseline: Option<&'a Baseline>,
    /// A file for each process, of formats that have partitions.
    pub partition: Option<Partition<'a>>,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// So many calls.
    pub calls: u64,
    /// There is more than the limit.
    pub is_cut: bool,
    /// So many bytes, of formats that have calls one by one.
    pub bytes: u64,
    /// What was made coarser or left out, as sentences.
    pub remarks: Vec<String>,
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// A format on its way: it is told of the calls and then asked for the rest.
pub trait Exporter: Visitor + Sized {
    /// Writes what is not written yet.
    ///
    /// # Errors
    /// Those of the output.
    fn finish(self) -> io::Result<Written>;
}

/// A trace to export.
pub struct Source<'a, R> {
    /// It.
    pub reader: &'a mut TraceReader<R>,
    /// Its survey.
    pub survey: &'a Survey,
    /// What of it; the order is the format's to choose.
    pub wanted: Wanted,
}

/// Writes what is wanted of a trace.
///
/// # Errors
/// [`ExportError`]: of the trace, or of the output.
pub fn export<R: Read + Seek + Send, W: Write>(
    format: Format,
    source: Source<'_, R>,
    cx: &Context<'_>,
    out: W,
) -> Result<Written, ExportError> {
    match format {
        Format::Chrome => rows(source, cx, chrome::Chrome::default(), out),
        Format::JsonLines => rows(source, cx, jsonl::JsonLines::default(), out),
        Format::Csv => rows(source, cx, csv::Csv::default(), out),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let sink = parquet::Parquet::new(cx.partition);
            run(source, Order::Time, Rows::new(cx, sink, out))
        }
        Format::Perfetto => run(source, order_of(cx), perfetto::Perfetto::new(cx, out)),
        Format::Firefox => run(source, order_of(cx), firefox::Firefox::new(cx, out)),
        Format::Callgrind => sums(source, cx, callgrind::write, out),
        Format::Folded => sums(source, cx, folded::write, out),
        Format::Flame => sums(source, cx, flame::write, out),
        Format::Dot => sums(source, cx, dot::write, out),
        Format::Timeline => run(source, Order::File, timeline::Timeline::new(cx, out)),
    }
}

fn rows<R: Read + Seek + Send, W: Write>(
    source: Source<'_, R>,
    cx: &Context<'_>,
    sink: impl RowSink,
    out: W,
) -> Result<Written, ExportError> {
    run(source, order_of(cx), Rows::new(cx, sink, out))
}

fn sums<R: Read + Seek + Send, V: Visitor + Default, W: Write>(
    source: Source<'_, R>,
    cx: &Context<'_>,
    write: sums::WriteSums<V, W>,
    out: W,
) -> Result<Written, ExportError> {
    run(source, Order::File, Sums::new(cx, write, out))
}

/// The first calls are the first in time, which costs some; else any order is right.
fn order_of(cx: &Context<'_>) -> Order {
    match (cx.limit, cx.max_bytes) {
        (None, None) => Order::File,
        _ => Order::Time,
    }
}

fn run<R: Read + Seek + Send>(
    source: Source<'_, R>,
    order: Order,
    exporter: impl Exporter,
) -> Result<Written, ExportError> {
    let wanted = Wanted {
        order,
        ..source.wanted
    };
    let exporter = replay(source.reader, source.survey, &wanted, exporter)?;
    Ok(exporter.finish()?)
}
