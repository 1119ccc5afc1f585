//! `report tree`: nested calls, all of them or those around a moment, or the slowest of a function.
//!
//! Chooses what is shown, by a pass before if need be; showing is `sptrace-render`'s work.

use super::wanted::{choose, parse_time_ns};
use super::{Reader, ReportArgs, Session, View, explain};
use crate::talk::say;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use sptrace_render::{Column, Columns, FoldedTree, Tree, TreeOptions};
use sptrace_trace::find::{Around, NthCall, Slowest};
use sptrace_trace::{CallId, Header, Order, Pick, Selection, Visitor, Wanted, replay};
use std::io::Write;

/// Calls shown around a moment.
const AROUND_CALLS: usize = 40;

/// Options of the tree.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tree (tree)")]
pub struct TreeArgs {
    /// Show once what repeats: a call with all below it, or a sequence of up to eight, that is the
    /// same in all but time. `x 1000` says how often; durations are of all together
    #[arg(long)]
    fold: bool,
    /// Show what is open at a moment, and the calls that begin shortly before and after it: 40, or
    /// as --limit says. A time since the start of the trace, or a function (name or glob; #N for
    /// its Nth call)
    #[arg(long, value_name = "TIME|CALL")]
    around: Option<String>,
    /// Show only the N slowest calls of FUNC (name or glob), and what they call
    #[arg(long, num_args = 2, value_names = ["N", "FUNC"], conflicts_with = "around")]
    slowest: Vec<String>,
}

/// Refuses options of the tree for other views.
///
/// # Errors
/// A sentence that names the option.
pub fn check(args: &ReportArgs) -> anyhow::Result<()> {
    let TreeArgs {
        fold,
        around,
        slowest,
    } = &args.tree;
    if args.view != View::Tree && (*fold || around.is_some() || !slowest.is_empty()) {
        bail!("--fold, --around and --slowest are for `report tree`");
    }
    Ok(())
}

/// Which frames, in which order, and which of these calls alone.
struct Shown {
    selection: Selection,
    only: Option<Vec<CallId>>,
    max_lines: Option<u64>,
}

/// Shows the tree.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn show(session: &Session<'_>, mut reader: Reader, out: impl Write) -> anyhow::Result<()> {
    let args = session.args;
    let header = reader.header().clone();
    let columns = columns(session, &header)?;
    let mut shown = Shown {
        selection: session.selection.clone(),
        only: None,
        max_lines: args.limit.map(|limit| limit as u64),
    };
    if let Some(text) = &args.tree.around {
        around(session, &mut reader, text, &mut shown)?;
    } else if let [number, function] = args.tree.slowest.as_slice() {
        shown.only = Some(slowest(session, &mut reader, number, function)?);
    }
    let names = (session.names, session.clock);
    if args.tree.fold {
        let tree = FoldedTree::new(out, names, columns, shown.max_lines, session.style);
        let min_ticks = session.clock.ticks(args.min_time);
        return Ok(tell(session, &mut reader, &shown, min_ticks, tree)?.finish()?);
    }
    let options = TreeOptions {
        min_ns: args.min_time,
        max_lines: shown.max_lines,
        style: session.style,
    };
    let tree = Tree::new(out, names, columns, options);
    // The tree hides short calls itself: it shows what was lost inside of them.
    Ok(tell(session, &mut reader, &shown, 0, tree)?.finish()?)
}

fn tell<V: Visitor>(
    session: &Session<'_>,
    reader: &mut Reader,
    shown: &Shown,
    min_ticks: u64,
    view: V,
) -> anyhow::Result<V> {
    let wanted = Wanted {
        selection: shown.selection.clone(),
        min_ticks,
        order: Order::Time,
    };
    match &shown.only {
        None => pass(session, reader, &wanted, view),
        Some(calls) => {
            let pick = Pick::new(calls.iter().copied(), view);
            Ok(pass(session, reader, &wanted, pick)?.inner)
        }
    }
}

/// Reads the trace once, in the order of time; that may be done again.
fn pass<V: Visitor>(
    session: &Session<'_>,
    reader: &mut Reader,
    wanted: &Wanted,
    view: V,
) -> anyhow::Result<V> {
    let told = replay(reader, session.survey, wanted, view);
    told.map_err(|error| explain(&session.args.input, error))
}

fn by_time(session: &Session<'_>) -> Wanted {
    Wanted {
        selection: session.selection.clone(),
        order: Order::Time,
        ..Wanted::default()
    }
}

fn columns(session: &Session<'_>, header: &Header) -> anyhow::Result<Columns> {
    let known: Vec<_> = Column::ALL.iter().map(|(_, name)| *name).collect();
    let chosen = session.args.calls.columns(Column::of_name, &known)?;
    let list = chosen.unwrap_or_else(|| Column::USUAL.to_vec());
    Ok(Columns::new(&list, header, session.style))
}

fn around(
    session: &Session<'_>,
    reader: &mut Reader,
    text: &str,
    shown: &mut Shown,
) -> anyhow::Result<()> {
    let at_tsc = match parse_time_ns(text) {
        Ok(ns) => session.clock.tsc_at(ns),
        Err(_) => nth_call(session, reader, text)?,
    };
    let calls = session.args.limit.unwrap_or(AROUND_CALLS);
    let around = Around::new(at_tsc, calls.div_ceil(2));
    let (from, to) = pass(session, reader, &by_time(session), around)?.range_tsc();
    let Selection {
        from_tsc, to_tsc, ..
    } = &mut shown.selection;
    *from_tsc = Some(from_tsc.unwrap_or(0).max(from));
    *to_tsc = [*to_tsc, to].into_iter().flatten().min();
    shown.max_lines = None;
    Ok(())
}

/// When the call begins that `FUNC` or `FUNC#N` names.
fn nth_call(session: &Session<'_>, reader: &mut Reader, text: &str) -> anyhow::Result<u64> {
    let (function, number) = match text.rsplit_once('#') {
        Some((function, number)) if number.bytes().all(|b| b.is_ascii_digit()) => {
            let number: u64 = number.parse().context("--around FUNC#N needs a number")?;
            (function, number)
        }
        _ => (text, 1),
    };
    let chosen = choose("--around", &[function.to_owned()], session.names)?;
    let found = pass(
        session,
        reader,
        &by_time(session),
        NthCall::new(chosen, number),
    )?;
    let begun = found.begun_tsc;
    begun.ok_or_else(|| anyhow!("what is shown has fewer than {number} calls of '{function}'"))
}

fn slowest(
    session: &Session<'_>,
    reader: &mut Reader,
    number: &str,
    function: &str,
) -> anyhow::Result<Vec<CallId>> {
    let number: usize = match number.parse() {
        Ok(number) if number > 0 => number,
        _ => bail!("--slowest N FUNC: '{number}' is not how many calls"),
    };
    let chosen = choose("--slowest", &[function.to_owned()], session.names)?;
    let found = pass(
        session,
        reader,
        &by_time(session),
        Slowest::new(chosen, number),
    )?;
    if found.unknown > 0 {
        let unknown = found.unknown;
        say(&format!(
            "calls of which it is not known how long they took: {unknown}"
        ));
    }
    let calls = found.calls();
    if calls.is_empty() {
        bail!("of no call of '{function}' it is known how long it took");
    }
    Ok(calls.into_iter().map(|(id, _)| id).collect())
}
