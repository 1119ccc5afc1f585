//! `sptrace report export FORMAT`: a trace for other tools.
//!
//! Chooses the format and its limit, and says what was left out; writing is `sptrace-export`'s
//! work.

use super::wanted::selection;
use super::{ReportArgs, Session, explain, open_trace, output};
use crate::talk::say;
use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use sptrace_export::{self as export, Baseline, ExportError, Format, Measure, Source, Written};
use sptrace_trace::{Names, Wanted};
use std::io::Write;
use std::path::Path;

/// What stacks are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Nanoseconds of their own
    Time,
    /// Calls
    Calls,
}

/// The format that the user named.
///
/// # Errors
/// A sentence with the names of all formats.
pub fn format_of(name: Option<&str>) -> anyhow::Result<Format> {
    let names: Vec<_> = Format::ALL.iter().map(|(_, name)| *name).collect();
    let all = names.join(", ");
    let Some(name) = name else {
        bail!("`sptrace report export` needs a format: {all}");
    };
    Format::of_name(name).ok_or_else(|| anyhow!("there is no format '{name}' (there are: {all})"))
}

/// Refuses an unknown format, and what a terminal cannot show.
///
/// # Errors
/// A sentence that names the way out.
pub fn check(args: &ReportArgs) -> anyhow::Result<()> {
    let format = format_of(args.subject.as_deref())?;
    if args.max_size.is_some() && (!format.has_size() || args.partition) {
        bail!(
            "--max-size is for what has calls one by one, in one file (perfetto, firefox, chrome, jsonl, csv, parquet); choose less by --from, --to, --min-time, -D, -F, --limit"
        );
    }
    if args.partition {
        if !format.has_partitions() {
            bail!("--partition is for `export parquet`; leave it out");
        }
        if output::is_stdout(&args.output) {
            bail!("--partition writes a file for each process; name their folder by -o FOLDER");
        }
    } else if format.is_binary() && output::is_terminal(&args.output) {
        bail!("this format is not text: give -o FILE");
    }
    Ok(())
}

/// Writes the trace in a format.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn show(
    session: &Session<'_>,
    mut reader: super::Reader,
    format: Format,
    out: impl Write,
) -> anyhow::Result<()> {
    let args = session.args;
    let limit = match args.limit {
        Some(0) => None,
        Some(limit) => Some(limit as u64),
        None => format.viewer_limit(),
    };
    let header = reader.header().clone();
    let baseline = match &args.older {
        Some(path) => Some(baseline(session, path)?),
        None => None,
    };
    let folder = args.output.clone();
    let partition = args
        .partition
        .then_some(move |name: &str| output::open_part(&folder, name));
    let cx = export::Context {
        header: &header,
        names: session.names,
        clock: session.clock,
        limit,
        max_bytes: args.max_size,
        measure: measure(args),
        is_icicle: args.icicle,
        baseline: baseline.as_ref(),
        partition: partition.as_ref().map(|open| open as export::Partition<'_>),
    };
    let wanted = Wanted {
        selection: session.selection.clone(),
        min_ticks: session.clock.ticks(args.min_time),
        snapshots: session.snapshots.clone(),
        ..Wanted::default()
    };
    let source = Source {
        reader: &mut reader,
        survey: session.survey,
        wanted,
    };
    let written = export::export(format, source, &cx, out);
    let written = written.map_err(|error| match error {
        ExportError::Trace(error) => explain(&args.input, error),
        ExportError::Write(error) => error.into(),
    })?;
    say_what_is_left_out(session, format, &written);
    Ok(())
}

fn measure(args: &ReportArgs) -> Measure {
    match args.by {
        By::Time => Measure::Time,
        By::Calls => Measure::Calls,
    }
}

/// The stacks of an older trace, of which the same is chosen.
fn baseline(session: &Session<'_>, path: &Path) -> anyhow::Result<Baseline> {
    let args = session.args;
    let (mut reader, survey) = open_trace(path)?;
    let (names, clock) = (Names::new(&survey.dictionary), reader.clock());
    let wanted = Wanted {
        selection: selection(args, &names, clock).with_context(|| path.display().to_string())?,
        min_ticks: clock.ticks(args.min_time),
        ..Wanted::default()
    };
    let source = Source {
        reader: &mut reader,
        survey: &survey,
        wanted,
    };
    Baseline::of(source, (&names, clock), measure(args)).map_err(|error| match error {
        ExportError::Trace(error) => explain(path, error),
        ExportError::Write(error) => error.into(),
    })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn say_what_is_left_out(session: &Session<'_>, format: Format, written: &Written) {
    for remark in &written.remarks {
        say(&format!(
            "{remark} (choose by --from, --to, --tid, --min-time, -D, -F)"
        ));
    }
    if let Some(most) = format.viewer_bytes().filter(|most| written.bytes > *most) {
        say(&format!(
            "this file has {}, and most viewers of this format bear {} (choose less by --from, --to, --min-time, -D, -F, --max-size)",
            megabytes(written.bytes),
            megabytes(most),
        ));
    }
    if !written.is_cut {
        return;
    }
    let count = written.calls;
    let is_full = session
        .args
        .max_size
        .is_some_and(|most| written.bytes >= most);
    let why = match session.args.limit {
        _ if is_full => "--max-size",
        Some(_) => "--limit",
        None => "more than most viewers of this format bear",
    };
    let all = if is_full { "" } else { "; --limit 0 for all" };
    say(&format!(
        "only the first {count} calls are exported: {why} (choose others by --from, --to, --min-time, -D, -F{all})"
    ));
}
