//! `report tree`: nested calls, all of them or those around a moment, or the slowest of a function.
//!
//! Chooses what is shown, by a pass before if need be; showing is `sptrace-render`'s work.

use super::wanted::choose;
use super::{Reader, ReportArgs, Session, View, explain, output};
use crate::commands::duration::parse_time_ns;
use crate::talk::say;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use sptrace_render::{Column, Columns, FoldedTree, Style, Tree, TreeOptions};
use sptrace_trace::find::{Around, NthCall, Slowest};
use sptrace_trace::follow::Follower;
use sptrace_trace::{
    CallId, CallTree, Dictionary, Header, Item, Names, Order, Pick, Selection, TraceError, Visitor,
    Wanted, replay,
};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Calls shown around a moment.
const AROUND_CALLS: usize = 40;
/// How often a trace that grows is looked at.
const POLL: Duration = Duration::from_millis(50);
/// Blocks and notes of such a trace that are held.
const ITEMS_AT_ONCE: usize = 64;

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
    pub around: Option<String>,
    /// Show only the N slowest calls of FUNC (name or glob), and what they call
    #[arg(long, num_args = 2, value_names = ["N", "FUNC"], conflicts_with = "around")]
    slowest: Vec<String>,
    /// Read a trace that is being written, and show what is added until the recording ends: the
    /// lines of a thread at least every 0.1 s, those of several threads as they are written. Of
    /// what chooses, --min-time and --limit only
    #[arg(long, conflicts_with_all = ["fold", "around", "slowest"])]
    pub follow: bool,
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
        follow,
    } = &args.tree;
    if args.view != View::Tree && (*fold || *follow || around.is_some() || !slowest.is_empty()) {
        bail!("--fold, --follow, --around and --slowest are for `report tree`; leave them out");
    }
    Ok(())
}

/// Shows what is in a trace and what is added to it, until its recording has ended.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn follow(args: &ReportArgs, style: Style) -> anyhow::Result<()> {
    let path = &args.input;
    let mut follower = Follower::open(path).map_err(|error| explain(path, error))?;
    let globs = [&args.within, &args.without, &args.modules];
    let chooses = globs.iter().any(|globs| !globs.is_empty())
        || !args.tid.is_empty()
        || args.user
        || args.depth.is_some()
        || args.from.or(args.to).is_some()
        || args.range.is_some();
    if args.sources.source {
        bail!("--source is for traces that have ended; leave it out with --follow");
    }
    if chooses {
        bail!("--follow shows all that is written; leave out what chooses, or choose by `run -F`");
    }
    let columns = columns(args, follower.header(), style)?;
    let options = TreeOptions {
        min_ns: args.min_time,
        max_lines: args.limit.map(|limit| limit as u64),
        style,
    };
    let clock = follower.clock();
    let out = output::open(&args.output, path, false)?;
    let none = Dictionary::default();
    let mut paused = Tree::new(out, (&Names::new(&none), clock), columns, options).pause();
    let mut frames = CallTree::new();
    loop {
        let items = written(&mut follower).map_err(|error| explain_ring(path, error))?;
        let dictionary = follower.dictionary();
        let names = Names::new(dictionary);
        let mut tree = paused.resume(&names);
        for item in &items {
            match item {
                Item::Note(note) => {
                    frames.note(note);
                    tree.note(note);
                }
                Item::Block(block) => {
                    let told = frames.replay(block, dictionary, &mut tree);
                    told.map_err(|what| explain(path, what.at(0)))?;
                }
            }
        }
        if tree.is_finished() {
            return Ok(tree.finish()?);
        }
        if items.is_empty() && follower.is_complete() {
            frames.finish(dictionary, &mut tree);
            return Ok(tree.finish()?);
        }
        paused = tree.pause();
        if items.is_empty() {
            std::thread::sleep(POLL);
        }
    }
}

/// Some of what has been written since.
fn written(follower: &mut Follower) -> Result<Vec<Item>, TraceError> {
    let mut items = Vec::new();
    while items.len() < ITEMS_AT_ONCE
        && let Some(item) = follower.next_item()?
    {
        items.push(item);
    }
    Ok(items)
}

fn explain_ring(path: &Path, error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Damaged { what, .. } if what.contains("ring") => anyhow!(
            "{} is a ring, which is written over; show it when its recording has ended",
            path.display()
        ),
        error => explain(path, error),
    }
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
    let columns = columns(args, &header, session.style)?;
    let columns = columns.estimated(session.survey.is_in_order());
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
        snapshots: session.snapshots.clone(),
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
        snapshots: session.snapshots.clone(),
        ..Wanted::default()
    }
}

fn columns(args: &ReportArgs, header: &Header, style: Style) -> anyhow::Result<Columns> {
    let known: Vec<_> = Column::ALL.iter().map(|(_, name)| *name).collect();
    let chosen = args.calls.columns(Column::of_name, &known)?;
    let list = chosen.unwrap_or_else(|| Column::USUAL.to_vec());
    Ok(Columns::new(&list, header, style))
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
    let (from, to) = range_around(session, reader, at_tsc, calls.div_ceil(2))?;
    let Selection {
        from_tsc, to_tsc, ..
    } = &mut shown.selection;
    *from_tsc = Some(from_tsc.unwrap_or(0).max(from));
    *to_tsc = [*to_tsc, to].into_iter().flatten().min();
    shown.max_lines = None;
    Ok(())
}

/// From when to when so many calls before and after a moment begin.
fn range_around(
    session: &Session<'_>,
    reader: &mut Reader,
    at_tsc: u64,
    each: usize,
) -> anyhow::Result<(u64, Option<u64>)> {
    // Most often there are enough of them since a snapshot shortly before.
    let moments = session.snapshots.as_ref().map(|kept| kept.moments_tsc());
    let before = moments.as_ref().and_then(|moments| {
        let at = moments.partition_point(|&tsc| tsc < at_tsc);
        moments.get(at.checked_sub(2)?).copied()
    });
    if let Some(since_tsc) = before.filter(|_| session.selection.from_tsc.is_none()) {
        let mut wanted = by_time(session);
        wanted.selection.from_tsc = Some(since_tsc);
        let around = Around::since(since_tsc, at_tsc, each);
        let around = pass(session, reader, &wanted, around)?;
        if around.has_all_before() {
            return Ok(around.range_tsc());
        }
    }
    let around = Around::since(0, at_tsc, each);
    Ok(pass(session, reader, &by_time(session), around)?.range_tsc())
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
        _ => bail!("--slowest N FUNC: '{number}' is not how many calls; give a number from 1 on"),
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
