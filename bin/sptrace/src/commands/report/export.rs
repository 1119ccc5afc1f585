//! `sptrace report export FORMAT`: a trace for other tools.
//!
//! Chooses the format and its limit, and says what was left out; writing is `sptrace-export`'s
//! work.

use super::{ReportArgs, Session, explain, output};
use crate::talk::say;
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use sptrace_export::{self as export, ExportError, Format, Measure, Source, Written};
use sptrace_trace::Wanted;
use std::io::Write;

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
    if format.is_binary() && output::is_terminal(&args.output) {
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
    let cx = export::Context {
        header: &header,
        names: session.names,
        clock: session.clock,
        limit,
        measure: match args.by {
            By::Time => Measure::Time,
            By::Calls => Measure::Calls,
        },
        is_icicle: args.icicle,
    };
    let wanted = Wanted {
        selection: session.selection.clone(),
        min_ticks: session.clock.ticks(args.min_time),
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
    say_what_is_left_out(session, &written);
    Ok(())
}

fn say_what_is_left_out(session: &Session<'_>, written: &Written) {
    for remark in &written.remarks {
        say(&format!(
            "{remark} (choose by --from, --to, --tid, --min-time, -D, -F)"
        ));
    }
    if !written.is_cut {
        return;
    }
    let count = written.calls;
    let why = match session.args.limit {
        Some(_) => "--limit",
        None => "more than most viewers of this format bear",
    };
    say(&format!(
        "only the first {count} calls are exported: {why} (choose others by --from, --to, --min-time, -D, -F; \
         --limit 0 for all)"
    ));
}
