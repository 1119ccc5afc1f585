//! `report lines` and `report syscalls`: system calls as strace shows them.
//!
//! Given the options; gives the views of `sptrace-render` what they need. Must not know how a call
//! is shown.

use std::io::Write;
use std::path::Path;

use anyhow::{anyhow, bail};
use clap::{ArgAction, Args};
use sptrace_render::{CallCounts, CountKey, LibraryCalls, Lines, LinesOptions, SystemCalls, Time};
use sptrace_trace::{Order, SYSTEM_CALLS, Wanted, replay};
use sptrace_types::calls::Selection;
use sptrace_types::decode::call::{Hex, Options};

use super::{Reader, ReportArgs, Session, Sort, View, explain, open_trace};
use crate::commands::selection;

/// Options of lines, with strace's letters.
#[derive(Args, Debug)]
#[command(next_help_heading = "System calls (lines, syscalls)")]
pub struct CallArgs {
    /// Show only these system calls: SET or trace=SET, as of strace (names, %file, %process,
    /// %network, %memory, %desc, %signal, %ipc, !, /regex/)
    #[arg(short = 'e', long = "trace", value_name = "SET")]
    wanted: Option<String>,
    /// Show the time of the day (UTC) in front of lines; -tt: with microseconds; -ttt: seconds
    /// since 1970
    #[arg(short = 't', action = ArgAction::Count)]
    time: u8,
    /// Show the time since the line before
    #[arg(short = 'r')]
    relative: bool,
    /// Show how long each call took
    #[arg(short = 'T')]
    duration: bool,
    /// Show the thread's id, also where there is one thread
    #[arg(short = 'f')]
    with_tid: bool,
    /// Show at most N bytes of strings
    #[arg(
        short = 's',
        long = "string-limit",
        value_name = "N",
        default_value_t = 32
    )]
    string_limit: usize,
    /// Show structures whole
    #[arg(short = 'v')]
    verbose: bool,
    /// Show strings with bytes that are not printable ASCII in hexadecimal; -xx: all strings
    #[arg(short = 'x', action = ArgAction::Count)]
    hex: u8,
    /// Of `lines`: show results in this column [default: 40]. Of `functions` and `tree`: which
    /// columns, as `calls,self,function`, of calls, untimed, earlier, total, self, min, mean, p50,
    /// p99, max, module, function, address, symbol; of the tree: duration, self, time, wall, tid,
    /// pid, thread
    #[arg(short = 'a', long = "columns", value_name = "COLUMN|NAMES")]
    columns: Option<String>,
    /// Show only calls that succeeded
    #[arg(short = 'z', conflicts_with = "failed")]
    succeeded: bool,
    /// Show only calls that failed
    #[arg(short = 'Z')]
    failed: bool,
    /// Show the numbers of calls
    #[arg(short = 'n')]
    number: bool,
}

/// Where the results of lines stand.
const RESULT_COLUMN: usize = 40;

impl CallArgs {
    /// Refuses --columns for a view that has none to choose, and what is no column.
    pub fn check(&self, args: &ReportArgs) -> anyhow::Result<()> {
        match (args.view, &self.columns) {
            (_, None) | (View::Functions | View::Tree, _) => Ok(()),
            (View::Lines, Some(_)) => self.column().map(|_| ()),
            _ => bail!("--columns is for functions, tree and lines; leave it out"),
        }
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

    fn wanted(&self) -> anyhow::Result<Option<Selection>> {
        let Some(text) = &self.wanted else {
            return Ok(None);
        };
        let set = text.strip_prefix("trace=").unwrap_or(text);
        match selection::parse(set) {
            Ok(selection) => Ok(Some(selection)),
            Err(why) => bail!("-e {text}: {why}"),
        }
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
    let wanted = calls.wanted()?;
    let header = reader.header().clone();
    if as_sums {
        let sums = CallCounts::of(wanted);
        let view = SystemCalls::new(dictionary, sums);
        let sums = session.replay(reader, 0, Order::Time, view)?.finish();
        let (key, limit) = (key_of(session.args.sort), session.args.limit);
        return Ok(sums.write(out, session.clock, key, limit)?);
    }
    let options = lines_of(session, wanted);
    let lines = Lines::new(out, &header, session.clock, options);
    let view = SystemCalls::new(dictionary, lines);
    let lines = session.replay(reader, 0, Order::Time, view)?.finish();
    Ok(lines.result?)
}

/// How lines shall look.
fn lines_of<'a>(session: &Session<'_>, wanted: Option<Selection>) -> LinesOptions<'a> {
    let calls = &session.args.calls;
    let dictionary = &session.survey.dictionary;
    let threads = dictionary.streams.iter().map(|s| s.tid);
    let first = dictionary.streams.first().map(|s| s.tid);
    LinesOptions {
        calls: Options {
            string_limit: calls.string_limit,
            verbose: calls.verbose,
            hex: match calls.hex {
                0 => Hex::Never,
                1 => Hex::NonAscii,
                _ => Hex::All,
            },
            path_of: None,
        },
        with_tid: calls.with_tid || threads.into_iter().any(|tid| Some(tid) != first),
        time: match calls.time {
            0 => Time::None,
            1 => Time::Seconds,
            2 => Time::Microseconds,
            _ => Time::Unix,
        },
        is_relative: calls.relative,
        with_duration: calls.duration,
        column: calls.column().unwrap_or(RESULT_COLUMN),
        wanted,
        succeeded: match (calls.succeeded, calls.failed) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        min_ticks: session.clock.ticks(session.args.min_time),
        with_number: calls.number,
        limit: session.args.limit,
    }
}
