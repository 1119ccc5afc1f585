//! `report lines` and `report syscalls`: system calls as strace shows them.
//!
//! Given the options; gives the views of `sptrace-render` what they need. Must not know how a call
//! is shown.

use std::io::Write;
use std::path::Path;

use anyhow::{anyhow, bail};
use clap::Args;
use sptrace_render::ThreadColumn;
use sptrace_render::{CallCounts, CountKey, LibraryCalls, Lines, LinesOptions, SystemCalls};
use sptrace_trace::{Order, SYSTEM_CALLS, Wanted, replay};

use super::{Reader, ReportArgs, Session, Sort, View, explain, open_trace};
use crate::commands::lines::{LineArgs, RESULT_COLUMN};

/// Options of what is shown of system calls.
#[derive(Args, Debug)]
#[command(next_help_heading = "Lines of system calls (report lines, --live)")]
pub struct CallArgs {
    #[command(flatten)]
    lines: LineArgs,
    /// Show at most N bytes of strings
    #[arg(
        short = 's',
        long = "string-limit",
        value_name = "N",
        default_value_t = 32
    )]
    string_limit: usize,
    /// Of `lines`: show results in this column [default: 40]. Of `functions` and `tree`: which
    /// columns, as `calls,self,function`, of calls, untimed, earlier, total, self, min, mean, p50,
    /// p99, max, module, function, address, symbol, source; of the tree: duration, self, time,
    /// wall, tid, pid, thread
    #[arg(short = 'a', long = "columns", value_name = "COLUMN|NAMES")]
    columns: Option<String>,
    /// Show the functions that each call was made in, as far as they were recorded beside it
    #[arg(short = 'k', long = "stack-traces")]
    with_stack: bool,
}

impl CallArgs {
    /// Refuses --columns for a view that has none to choose, and what is no column.
    pub fn check(&self, args: &ReportArgs) -> anyhow::Result<()> {
        match (args.view, &self.columns) {
            (_, None) | (View::Functions | View::Tree, _) => Ok(()),
            (View::Lines, Some(_)) => self.column().map(|_| ()),
            _ => bail!("--columns is for functions, tree and lines; leave it out"),
        }
    }

    /// True if this column is named.
    pub fn has_column(&self, name: &str) -> bool {
        let mut named = self.columns.iter().flat_map(|names| names.split(','));
        named.any(|named| named.trim() == name)
    }

    fn column(&self) -> anyhow::Result<usize> {
        let Some(text) = &self.columns else {
            return Ok(RESULT_COLUMN);
        };
        text.parse()
            .or_else(|_| bail!("-a of lines is a number, not '{text}'"))
    }

    /// The columns that are named, if any, of those that `of_name` knows.
    ///
    /// # Errors
    /// A sentence with the names of all.
    pub fn columns<C>(
        &self,
        of_name: impl Fn(&str) -> Option<C>,
        known: &[&str],
    ) -> anyhow::Result<Option<Vec<C>>> {
        let Some(text) = &self.columns else {
            return Ok(None);
        };
        let column = |name: &str| {
            let all = known.join(", ");
            of_name(name.trim())
                .ok_or_else(|| anyhow!("there is no column '{name}' (there are: {all})"))
        };
        text.split(',')
            .map(column)
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Prints the sums of a recording that has just ended, to stderr, where the command's own output is
/// not.
///
/// # Errors
/// The trace cannot be read.
pub fn print_call_counts(path: &Path) -> anyhow::Result<()> {
    let (mut reader, survey) = open_trace(path)?;
    let clock = reader.clock();
    let view = SystemCalls::new(&survey.dictionary, CallCounts::of(None));
    let wanted = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let view = replay(&mut reader, &survey, &wanted, view).map_err(|e| explain(path, e))?;
    let mut err = std::io::stderr().lock();
    Ok(view.finish().write(&mut err, clock, CountKey::Time, None)?)
}

/// Shows the sums of calls from one module into another.
pub fn show_library_calls(
    session: &Session<'_>,
    reader: Reader,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let view = LibraryCalls::new(&session.survey.dictionary);
    let sums = session.add_up(reader, view)?;
    let shown = (key_of(session.args.sort), session.args.limit);
    Ok(sums.write(out, session.names, session.clock, shown)?)
}

fn key_of(sort: Sort) -> CountKey {
    match sort {
        Sort::Calls => CountKey::Calls,
        Sort::Name => CountKey::Name,
        _ => CountKey::Time,
    }
}

/// Shows lines, or sums.
pub fn show(
    session: &Session<'_>,
    reader: Reader,
    out: &mut impl Write,
    as_sums: bool,
) -> anyhow::Result<()> {
    let ReportArgs { calls, .. } = session.args;
    let dictionary = &session.survey.dictionary;
    if !dictionary.modules.iter().any(|m| m.path == SYSTEM_CALLS) {
        bail!(
            "{} has no system calls; record them with `sptrace run --syscalls` or --syscalls-only",
            session.args.input.display()
        );
    }
    let header = reader.header().clone();
    if as_sums {
        let sums = CallCounts::of(calls.lines.wanted()?);
        let view = SystemCalls::new(dictionary, sums);
        let sums = session.replay(reader, 0, Order::Time, view)?.finish();
        let (key, limit) = (key_of(session.args.sort), session.args.limit);
        return Ok(sums.write(out, session.clock, key, limit)?);
    }
    let lines = Lines::new(out, &header, session.clock, lines_of(session)?);
    let view = match calls.with_stack {
        true => SystemCalls::new(dictionary, lines).with_stacks(),
        false => SystemCalls::new(dictionary, lines),
    };
    let lines = session.replay(reader, 0, Order::Time, view)?.finish();
    Ok(lines.result?)
}

/// How lines shall look.
fn lines_of<'a>(session: &Session<'a>) -> anyhow::Result<LinesOptions<'a>> {
    let calls = &session.args.calls;
    let dictionary = &session.survey.dictionary;
    let mut options = calls.lines.options(calls.string_limit, calls.column()?)?;
    let mut threads = dictionary.streams.iter().map(|s| s.tid);
    let first = threads.next();
    if threads.any(|tid| Some(tid) != first) {
        options.thread = ThreadColumn::Always;
    }
    options.min_ticks = session.clock.ticks(session.args.min_time);
    options.limit = session.args.limit;
    if calls.with_stack {
        let mut modules = dictionary.functions.iter().map(|f| f.module.0 as usize);
        let is_function = |module: usize| {
            let module = dictionary.modules.get(module);
            module.is_some_and(|module| module.path != SYSTEM_CALLS)
        };
        if !modules.any(is_function) {
            bail!(
                "-k shows functions, and none were recorded: record with `sptrace run --syscalls`"
            );
        }
        options.functions = Some(session.names);
    }
    Ok(options)
}
