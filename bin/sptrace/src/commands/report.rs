//! `sptrace report`: views of a recorded trace.
//!
//! Chooses the view, the filters and the colours; reading is `sptrace-trace`'s work and showing
//! `sptrace-render`'s or `sptrace-export`'s. A closed pipe (`| head`) ends it quietly.

mod calls;
mod diff;
mod export;
mod graph;
mod index;
mod output;
mod pager;
mod progress;
mod script;
mod sources;
mod tree;
mod waits;
mod wanted;

use crate::commands::duration::parse_time_ns;
use crate::exit_code::{FAILURE, WRONG_USAGE};
use crate::talk::say;
use anyhow::bail;
use calls::CallArgs;
pub use calls::print_call_counts;
use clap::{Args, ValueEnum};
use export::By;
use graph::GraphArgs;
pub(crate) use output::explain;
use progress::Progress;
pub use script::tell as tell_script;
use sources::SourceArgs;
use sptrace_export::Format as ExportFormat;
use sptrace_render::{
    FunctionColumn, SortKey, Style, SummaryView, Way, dropped_text, select_functions,
    select_relatives, write_coverage, write_coverage_csv, write_function_columns, write_functions,
    write_functions_csv, write_levels, write_relatives, write_relatives_csv, write_summary,
};
use sptrace_trace::{
    Clock, Ending, Focus, Graph, Header, Names, Order, Selection, Snapshots, Sources, Summary,
    Survey, TraceFile, TraceReader, Visitor, Wanted, replay,
};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::TreeArgs;
use waits::WaitArgs;
use wanted::{choose, selection};

const EXAMPLES: &str = "\
Examples:
  sptrace report                                what ran, and what took the time
  sptrace report functions --sort calls --limit 20
  sptrace report tree -F main --min-time 10us | less
  sptrace report -N 'malloc*' -N free functions
  sptrace report tree --user                    own functions, and what they call directly
  sptrace report tree --slowest 3 handle_request --fold
  sptrace report tree --around 'parse#7' --columns time,duration,self
  sptrace report functions --sort self --columns self,calls,p50,p99,function
  sptrace report callers malloc
  sptrace report graph --focus parse -D 8       what leads to parse, and what it calls
  sptrace report graph --per module -o graph.svg
  sptrace report diff old.data new.data || echo differs
  sptrace report timeline -o trace.html         then: a browser
  sptrace report waits --laps nanosleep         why this frame came late, and that one
  sptrace report flame -o flame.svg
  sptrace report flame --diff old.data -i new.data -o changes.svg
  sptrace report export perfetto --from 1s --to 2s -o trace.pftrace
  sptrace report export csv -F main -D 3 | head
  sptrace report export parquet --partition -o calls/

Formats of export:
  perfetto  a track for each thread, for ui.perfetto.dev
  firefox   for profiler.firefox.com
  chrome    trace events as JSON, for chrome://tracing, speedscope
  jsonl     one JSON object a call and line
  csv       one row a call, for DuckDB, pandas
  parquet   the same in columns, for DuckDB, ClickHouse, Spark, DataFusion
  callgrind calls and times, for KCachegrind and callgrind_annotate
  folded    stacks and their own time, for flamegraph.pl
  dot       the call graph, for graphviz

Exit status: 0; 1 if the trace or a filter cannot be used; 2: wrong usage.
Of diff: 0 if there is no difference, 1 if there is one, 2 if a trace or a filter cannot be used.";

/// Show a recorded trace
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// What to show
    #[arg(value_enum, default_value_t = View::Summary)]
    view: View,

    /// Of `export`: the format; of `callers` and `callees`: the function (name or glob); of `diff`:
    /// the old trace; of `script`: its file or name
    #[arg(value_name = "FORMAT|FUNC|OLD|SCRIPT")]
    subject: Option<String>,

    /// Of `diff`: more old traces, if any, whose differences are chance; the last one is the new.
    /// Of `script`, after --: its options
    #[arg(value_name = "NEW|OPTION")]
    others: Vec<PathBuf>,

    /// Trace file to read
    #[arg(short, long, value_name = "FILE", default_value = "sptrace.data")]
    input: PathBuf,

    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,

    /// Form of the output; csv for `functions`, `callers`, `callees`, `graph`, `coverage`, `diff`,
    /// `waits` and `script`, json for `script`, dot and svg for `graph` [default: text; of `graph`
    /// what the ending of OUT says]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Show only functions matching GLOB (`*`, `?`; raw or demangled name) and what they call
    #[arg(short = 'F', long = "filter", value_name = "GLOB")]
    within: Vec<String>,

    /// Hide functions matching GLOB and what they call
    #[arg(short = 'N', long = "notrace", value_name = "GLOB")]
    without: Vec<String>,

    /// Show only functions of modules whose file name or path matches GLOB, whoever calls them
    #[arg(short = 'l', long = "module", value_name = "GLOB")]
    modules: Vec<String>,

    /// Show only functions of modules outside of the distribution's folders, and what they call
    /// directly
    #[arg(long, conflicts_with = "modules")]
    user: bool,

    /// Show at most N levels of calls
    #[arg(short = 'D', long = "depth", value_name = "N")]
    depth: Option<u32>,

    /// Hide calls shorter than TIME (as 5us, 1.5ms, 2s; a bare number is nanoseconds) or of unknown
    /// length
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, default_value = "0")]
    min_time: u64,

    /// Show what runs after TIME since the start of the trace
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns)]
    from: Option<u64>,

    /// Show what begins before TIME since the start of the trace
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns)]
    to: Option<u64>,

    /// The same as --from and --to in one; either time may be left out
    #[arg(long, value_name = "FROM..TO", value_parser = wanted::parse_range, conflicts_with_all = ["from", "to"])]
    range: Option<wanted::Range>,

    /// Show only this thread, or goroutine (g17); may be repeated
    #[arg(long, value_name = "TID", value_parser = sptrace_trace::parse_tid)]
    tid: Vec<u32>,

    /// Order of `functions`
    #[arg(long, value_enum, default_value_t = Sort::Total)]
    sort: Sort,

    /// Of `export parquet`: a file for each process, in the folder OUT, as
    /// host=NAME/pid=N/START-1.parquet
    #[arg(long)]
    partition: bool,

    /// Of `flame`: colour what has become more or less than in the trace OLD
    #[arg(long = "diff", value_name = "OLD")]
    older: Option<PathBuf>,

    /// Draw `flame` from the top down
    #[arg(long)]
    icicle: bool,

    /// What stacks are measured by, of `folded` and `flame`
    #[arg(long, value_enum, default_value_t = By::Time)]
    by: By,

    /// Show at most N functions, lines of the tree, or calls of an export (there 0 for all), or of
    /// `timeline` one by one
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Of `export` of calls one by one (perfetto, firefox, chrome, jsonl, csv, parquet): end with
    /// the calls that have ended, or of firefox begun, when SIZE is reached
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse_size)]
    max_size: Option<u64>,

    /// Colours
    #[arg(long, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    color: Colour,

    /// Write to the terminal as it is. Else what is read there goes through $SPTRACE_PAGER, $PAGER
    /// or less
    #[arg(long)]
    no_pager: bool,

    /// Keep the sums of `summary` and `functions` beside the trace, as FILE.index, with what makes
    /// a range of time (--from, --to, --around) begin at once, and use them when they are there:
    /// for traces of more than some ten million events, always, or never
    #[arg(long, value_enum, default_value_t = index::When::Auto, value_name = "WHEN")]
    index: index::When,

    /// Of `script`: the script itself, in place of its name
    #[arg(long, value_name = "TEXT")]
    eval: Option<String>,

    #[command(flatten)]
    tree: TreeArgs,

    #[command(flatten)]
    graph: GraphArgs,

    #[command(flatten)]
    waits: WaitArgs,

    #[command(flatten)]
    calls: CallArgs,

    #[command(flatten)]
    sources: SourceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    /// What ran, how long, the ten functions with most time of their own
    Summary,
    /// Calls and times of each function
    Functions,
    /// Nested calls with durations
    Tree,
    /// What was traced, what was refused and why, what was lost
    Coverage,
    /// Stacks and their time, for flame graphs
    Folded,
    /// The trace in another tool's format
    Export,
    /// Who calls a function, how often and for how long
    Callers,
    /// Whom a function calls, how often and for how long
    Callees,
    /// The call graph: who calls whom, how often and for how long, as an indented chain, or drawn
    Graph,
    /// A flame graph to look at in a browser
    Flame,
    /// What a run does otherwise than older ones: functions, calls, times, order
    Diff,
    /// A time line to look at in a browser: threads, nested calls, from hours to nanoseconds
    Timeline,
    /// A line a system call, as strace prints them
    Lines,
    /// Calls, errors and times of each system call, as `strace -c` prints them
    Syscalls,
    /// Calls from one module into another, and their times, as `ltrace -c` prints them
    Libcalls,
    /// Where time went, where the kernel's side is recorded (`run -K`): programs and their
    /// functions on the processor, in the kernel, interrupted, preempted, blocked, and woken but
    /// not running yet (queued); where each wait was and who woke, preempted or interrupted
    Waits,
    /// Functions that were called too often for `run --hot-limit`: from when to when their calls
    /// were counted, and how many
    Levels,
    /// What a script makes of it (`sptrace script list`, man sptrace-script)
    Script,
}

impl View {
    /// Shows calls of which only the number is known.
    fn shows_counts(self) -> bool {
        matches!(
            self,
            Self::Summary
                | Self::Functions
                | Self::Coverage
                | Self::Callers
                | Self::Callees
                | Self::Graph
                | Self::Levels
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Csv,
    Json,
    Dot,
    Svg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Total,
    #[value(name = "self")]
    SelfTime,
    Calls,
    Min,
    Mean,
    Max,
    P99,
    Name,
}

impl ReportArgs {
    /// It is read from top to bottom, so that a pager serves.
    fn is_read(&self) -> bool {
        let is_picture = matches!(self.view, View::Export | View::Flame | View::Timeline);
        !self.no_pager && !is_picture && !self.tree.follow
    }

    /// What it shows comes while the trace is read, line by line, so that one sees how far it is.
    fn shows_at_once(&self) -> bool {
        matches!(self.view, View::Tree | View::Lines) && output::is_terminal(&self.output)
    }

    /// The form of the output, chosen or told by the file's name.
    fn format(&self) -> Format {
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        match (self.format, self.view, ending) {
            (Some(format), ..) => format,
            (None, View::Graph, Some("svg")) => Format::Svg,
            (None, View::Graph, Some("dot" | "gv")) => Format::Dot,
            (None, View::Graph, Some("csv")) => Format::Csv,
            _ => Format::Text,
        }
    }
}

impl Sort {
    fn key(self) -> SortKey {
        match self {
            Self::Total => SortKey::Total,
            Self::SelfTime => SortKey::SelfTime,
            Self::Calls => SortKey::Calls,
            Self::Min => SortKey::Min,
            Self::Mean => SortKey::Mean,
            Self::Max => SortKey::Max,
            Self::P99 => SortKey::P99,
            Self::Name => SortKey::Name,
        }
    }
}

type Reader = TraceReader<BufReader<TraceFile>>;

/// Shows the trace that `args` names.
///
/// # Errors
/// A sentence for the user after "sptrace: ", one line; the exit status is [`failure`].
pub fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    let style = Style {
        is_coloured: args.color.is_on(output::is_terminal(&args.output)),
    };
    let shown = match args.view {
        View::Diff => show_diff(args, style),
        View::Script => script::show(args, style),
        _ => show(args, style).map(|()| 0),
    };
    match shown {
        Err(error) if output::is_closed_pipe(&error) => Ok(0),
        Err(error) if error.is::<io::Error>() => {
            let what = match output::is_stdout(&args.output) {
                true => "cannot write the report (is stdout's disk full?)".to_owned(),
                false => format!("cannot write {}", args.output.display()),
            };
            Err(error.context(what))
        }
        other => other,
    }
}

/// The exit status if [`run`] fails; 1 says of `diff` that there are differences.
pub fn failure(args: &ReportArgs) -> u8 {
    match args.view {
        View::Diff => WRONG_USAGE,
        _ => FAILURE,
    }
}

impl Colour {
    fn is_on(self, is_terminal: bool) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
                is_terminal && !is_set("NO_COLOR") && !is_dumb
            }
        }
    }
}

fn show_diff(args: &ReportArgs, style: Style) -> anyhow::Result<u8> {
    check(args)?;
    let mut out = output::open(&args.output, &args.input, args.is_read())?;
    Ok(u8::from(diff::show(args, style, &mut out)?))
}

/// Opens a trace and surveys it; says if it is not whole.
pub(crate) fn open_trace(path: &Path) -> anyhow::Result<(Reader, Survey)> {
    let mut reader = TraceReader::open(path).map_err(|error| explain(path, error))?;
    let survey = reader.survey().map_err(|error| explain(path, error))?;
    if let Ending::Early { offset } = survey.ending {
        say(&format!(
            "{} ends early, at byte {offset}: sptrace did not finish it",
            path.display()
        ));
    }
    if let Some(dropped) = survey.dropped {
        say(&dropped_text(dropped));
    }
    Ok((reader, survey))
}

fn show(args: &ReportArgs, style: Style) -> anyhow::Result<()> {
    check(args)?;
    if args.tree.follow {
        return tree::follow(args, style);
    }
    let path = &args.input;
    let (reader, mut survey) = match args.view {
        // These say so themselves.
        View::Summary | View::Coverage => {
            let mut reader = TraceReader::open(path).map_err(|error| explain(path, error))?;
            let survey = reader.survey().map_err(|error| explain(path, error))?;
            (reader, survey)
        }
        _ => open_trace(path)?,
    };
    if survey.counted_calls().is_some() && !args.view.shows_counts() {
        say(
            "the calls of this trace were counted: what is shown here has none of them (see report functions, callers, callees, graph)",
        );
    }
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    let _progress = (!args.shows_at_once()).then(|| Progress::begin(reader.passed(), length));
    let sources = named_from_outside(args, reader.header(), &mut survey)?;
    let names = Names::new(&survey.dictionary).with_sources(sources);
    let names = match args.sources.no_demangle {
        true => names.as_symbols(),
        false => names,
    };
    let session = Session {
        args,
        snapshots: index::snapshots(args, &survey)?,
        survey: &survey,
        clock: reader.clock(),
        selection: selection(args, &names, reader.clock())?,
        names: &names,
        style,
    };
    let out = match args.partition {
        true => Box::new(io::sink()),
        false => output::open(&args.output, path, args.is_read())?,
    };
    session.show(reader, out)
}

/// Gives functions the names that others have for them; gives the lines of the source, if they are
/// asked for.
fn named_from_outside(
    args: &ReportArgs,
    header: &Header,
    survey: &mut Survey,
) -> anyhow::Result<Option<Sources>> {
    let (files, dictionary) = (&args.sources, &mut survey.dictionary);
    files.rename(header, dictionary)?;
    let with_calls = matches!(
        args.view,
        View::Tree | View::Lines | View::Callers | View::Callees | View::Export
    );
    let is_asked_for = files.source || args.calls.has_column("source");
    Ok(is_asked_for.then(|| sources::read(dictionary, with_calls)))
}

/// Refuses options that do not fit together.
fn check(args: &ReportArgs) -> anyhow::Result<()> {
    match (args.view, &args.subject) {
        (View::Export, _) => export::check(args)?,
        (View::Callers | View::Callees, None) => bail!("name the function: a name or a glob"),
        (view, _) if args.partition && view != View::Export => {
            bail!("--partition is for `export parquet`; leave it out")
        }
        (view, _) if args.max_size.is_some() && view != View::Export => {
            bail!("--max-size is for `export`; --limit shortens what other views show")
        }
        (view, _) if args.older.is_some() && view != View::Flame => {
            bail!("--diff is for `report flame`; `report diff OLD NEW` says it in words")
        }
        (View::Diff, None) => bail!("name two traces: sptrace report diff OLD NEW"),
        (View::Script, None) if args.eval.is_none() => {
            bail!("name the script: a path or a name (`sptrace script list`), or give --eval TEXT")
        }
        (View::Script | View::Callers | View::Callees | View::Diff, Some(_)) | (_, None) => {}
        (_, Some(subject)) => bail!("this view takes no '{subject}' (functions are chosen by -F)"),
    }
    let takes_more = matches!(args.view, View::Diff | View::Script);
    if let (Some(other), false) = (args.others.first(), takes_more) {
        bail!("this view takes no '{}'", other.display());
    }
    check_format(args)?;
    graph::check(args)?;
    tree::check(args)?;
    waits::check(args)?;
    args.calls.check(args)?;
    if args.eval.is_some() && (args.view != View::Script || args.subject.is_some()) {
        bail!("--eval is for `report script`, in place of a name");
    }
    Ok(())
}

/// Refuses a form that the view does not have.
fn check_format(args: &ReportArgs) -> anyhow::Result<()> {
    let view = args.view;
    let is_of_graph = view == View::Graph;
    let has_csv = matches!(
        view,
        View::Functions
            | View::Coverage
            | View::Levels
            | View::Callers
            | View::Callees
            | View::Diff
            | View::Waits
    );
    match args.format() {
        Format::Csv if !has_csv && !is_of_graph && view != View::Script => bail!(
            "--format csv is for functions, callers, callees, graph, coverage, levels, diff, waits and script; leave it out for others"
        ),
        Format::Json if view != View::Script => {
            bail!("--format json is for script; `export jsonl` writes calls as JSON")
        }
        Format::Dot | Format::Svg if !is_of_graph => {
            bail!("--format dot and svg are for graph; `flame` and `timeline` are pictures anyway")
        }
        _ => Ok(()),
    }
}

/// What all views need.
struct Session<'a> {
    args: &'a ReportArgs,
    survey: &'a Survey,
    names: &'a Names<'a>,
    selection: Selection,
    /// If a range of time of a large trace is shown.
    snapshots: Option<Arc<Snapshots>>,
    clock: Clock,
    style: Style,
}

impl Session<'_> {
    fn show(&self, reader: Reader, mut out: impl Write) -> anyhow::Result<()> {
        match self.args.view {
            View::Summary => self.show_summary(reader, &mut out)?,
            View::Functions => self.show_functions(reader, &mut out)?,
            View::Tree => return tree::show(self, reader, out),
            View::Coverage => self.show_coverage(&mut out)?,
            View::Folded => export::show(self, reader, ExportFormat::Folded, &mut out)?,
            View::Flame => export::show(self, reader, ExportFormat::Flame, &mut out)?,
            View::Timeline => export::show(self, reader, ExportFormat::Timeline, &mut out)?,
            View::Diff | View::Script => {} // See `show_diff` and `script::show`.
            View::Lines => calls::show(self, reader, &mut out, false)?,
            View::Syscalls => calls::show(self, reader, &mut out, true)?,
            View::Libcalls => calls::show_library_calls(self, reader, &mut out)?,
            View::Callers => self.show_relatives(reader, &mut out, Way::Callers)?,
            View::Callees => self.show_relatives(reader, &mut out, Way::Callees)?,
            View::Levels => self.show_levels(reader.header().start_tsc, &mut out)?,
            View::Waits => waits::show(self, reader, &mut out)?,
            View::Graph => graph::show(self, reader, &mut out)?,
            View::Export => {
                let format = export::format_of(self.args.subject.as_deref())?;
                export::show(self, reader, format, &mut out)?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn show_summary(&self, reader: Reader, out: &mut impl Write) -> anyhow::Result<()> {
        let header = reader.header().clone();
        let stats = index::stats(self, reader)?;
        let limit = Some(self.args.limit.unwrap_or(10));
        let top = select_functions(&stats, self.names, SortKey::SelfTime, limit);
        let view = SummaryView {
            header: &header,
            survey: self.survey,
            stats: &stats,
            top: &top,
            names: self.names,
        };
        Ok(write_summary(out, &view, self.style)?)
    }

    fn show_functions(&self, reader: Reader, out: &mut impl Write) -> anyhow::Result<()> {
        let (names, clock, style) = (self.names, self.clock, self.style);
        let known: Vec<_> = FunctionColumn::ALL
            .iter()
            .map(|(_, name, _)| *name)
            .collect();
        let columns = self.args.calls.columns(FunctionColumn::of_name, &known)?;
        let stats = index::stats(self, reader)?;
        let (key, limit) = (self.args.sort.key(), self.args.limit);
        let rows = select_functions(&stats, names, key, limit);
        let is_csv = self.args.format() == Format::Csv;
        match columns {
            Some(columns) => {
                let (names, form) = ((names, clock), (is_csv, style));
                write_function_columns(out, &rows, &columns, names, form)?;
            }
            None if is_csv => write_functions_csv(out, &rows, names, clock)?,
            None => write_functions(out, &rows, names, clock, style)?,
        }
        Ok(())
    }

    fn show_relatives(&self, reader: Reader, out: &mut impl Write, way: Way) -> anyhow::Result<()> {
        let glob = self.args.subject.clone().unwrap_or_default();
        let chosen = choose("FUNC", &[glob], self.names)?;
        let graph = self.add_up(reader, Graph::default())?;
        let rows = select_relatives(&graph, &chosen, way, self.args.limit);
        let names = (self.names, self.clock);
        match self.args.format() {
            Format::Text => write_relatives(out, &rows, names, way, self.style)?,
            _ => write_relatives_csv(out, &rows, names, way)?,
        }
        Ok(())
    }

    fn show_levels(&self, start_tsc: u64, out: &mut impl Write) -> anyhow::Result<()> {
        let is_csv = self.args.format() == Format::Csv;
        let of = (self.names, self.clock, start_tsc);
        let notes = (&self.survey.notes[..], &self.survey.ending);
        write_levels(out, notes, of, (is_csv, self.style))?;
        Ok(())
    }

    fn show_coverage(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Ending::Complete(summary) = &self.survey.ending else {
            bail!(
                "{} ends early and so has no coverage; the other views show what was recorded",
                self.args.input.display()
            );
        };
        let summary: &Summary = summary;
        match self.args.format() {
            Format::Text => write_coverage(out, summary, self.style)?,
            _ => write_coverage_csv(out, summary)?,
        }
        Ok(())
    }

    fn add_up<V: Visitor>(&self, reader: Reader, view: V) -> anyhow::Result<V> {
        let focus = self.args.graph.focus.as_slice();
        if focus.is_empty() {
            return self.replay(reader, self.args.min_time, Order::File, view);
        }
        let view = Focus::new(choose("--focus", focus, self.names)?, view);
        let view = self.replay(reader, self.args.min_time, Order::File, view)?;
        Ok(view.inner)
    }

    /// Tells `view` of what is to be shown.
    fn replay<V: Visitor>(
        &self,
        mut reader: Reader,
        min_time_ns: u64,
        order: Order,
        view: V,
    ) -> anyhow::Result<V> {
        let wanted = Wanted {
            selection: self.selection.clone(),
            min_ticks: self.clock.ticks(min_time_ns),
            order,
            snapshots: self.snapshots.clone(),
        };
        replay(&mut reader, self.survey, &wanted, view)
            .map_err(|error| explain(&self.args.input, error))
    }
}
