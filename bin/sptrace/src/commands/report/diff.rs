//! `sptrace report diff OLD... NEW`: what a run does otherwise than others.
//!
//! Reads each trace by itself, so that one at a time is open, and joins functions by module and
//! name: addresses change from build to build. Gives whether there is a difference.

use super::{ReportArgs, explain, open_trace, selection};
use anyhow::bail;
use sptrace_render::Style;
use sptrace_render::diff::{Compared, Did, Kind, select, write_diff, write_diff_csv};
use sptrace_trace::compare::{Excerpt, PIECE_CALLS, Run};
use sptrace_trace::{FunctionId, Names, Order, Recast, StreamId, Survey, Visitor, Wanted, replay};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Functions shown of each kind.
const SHOWN: usize = 20;
/// Frames of a stack shown, the innermost.
const SHOWN_FRAMES: usize = 8;

/// A function in any of the traces.
type Key = (String, String);

/// What is kept of a trace.
struct Seen {
    path: PathBuf,
    run: Run,
    functions: BTreeMap<Key, Did>,
    calls: u64,
}

/// Where two runs part.
struct Parting {
    call: u64,
    thread: usize,
    stack: Vec<Key>,
    old: Option<Key>,
    new: Option<Key>,
}

/// Writes how the last of the traces differs from the others; true if it does.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn show(args: &ReportArgs, style: Style, out: &mut impl Write) -> anyhow::Result<bool> {
    let (old, new) = match &args.others[..] {
        [] => bail!("name two traces: sptrace report diff OLD NEW"),
        [old @ .., new] => (old, new),
    };
    let first = PathBuf::from(args.subject.clone().unwrap_or_default());
    let old: Vec<Seen> = std::iter::once(&first)
        .chain(old)
        .map(|path| read(args, path))
        .collect::<anyhow::Result<_>>()?;
    let new = read(args, new)?;
    let functions = compare(&old, &new);
    let rows = select(&functions);
    let parting = match &old[..] {
        [only] => part(args, only, &new)?,
        // What several runs have in common is not one order.
        _ => None,
    };
    if args.format() == super::Format::Csv {
        write_diff_csv(out, &rows)?;
    } else {
        write_text(args, style, (&old, &new), &rows, parting.as_ref(), out)?;
    }
    out.flush()?;
    Ok(!rows.is_empty() || parting.is_some())
}

fn write_text(
    args: &ReportArgs,
    style: Style,
    (old, new): (&[Seen], &Seen),
    rows: &[(Kind, &Compared)],
    parting: Option<&Parting>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    for (word, seen) in old.iter().map(|seen| ("old", seen)).chain([("new", new)]) {
        writeln!(
            out,
            "{word}  {}  {} calls of {} functions",
            seen.path.display(),
            seen.calls,
            seen.functions.len()
        )?;
    }
    write_diff(out, rows, args.limit.unwrap_or(SHOWN), style)?;
    if let Some(parting) = parting {
        let name = |key: &Option<Key>| match key {
            Some((module, name)) => format!("{name} ({module})"),
            None => "nothing more".to_owned(),
        };
        let heading = format!(
            "order  parts at call {} of thread {}: old {}, new {}",
            parting.call,
            parting.thread,
            name(&parting.old),
            name(&parting.new)
        );
        writeln!(out, "{}", style.heading(&heading))?;
        let from = parting.stack.len().saturating_sub(SHOWN_FRAMES);
        let more = if from > 0 { "... > " } else { "" };
        let names: Vec<_> = parting.stack[from..]
            .iter()
            .map(|(_, name)| &name[..])
            .collect();
        writeln!(out, "       in {more}{}", names.join(" > "))?;
    }
    if rows.is_empty() && parting.is_none() {
        writeln!(out, "no difference")?;
    }
    Ok(())
}

fn read(args: &ReportArgs, path: &Path) -> anyhow::Result<Seen> {
    let mut keys = Vec::new();
    let (run, clock) = with_trace(args, path, |names, program| {
        keys = keys_of(names, program);
        Run::new(keys.iter().map(hash).collect())
    })?;
    let mut functions: BTreeMap<Key, Did> = BTreeMap::new();
    let mut calls: u64 = 0;
    for (id, tally) in run.tallies() {
        calls = calls.saturating_add(tally.calls);
        let Some(key) = keys.get(id.0 as usize) else {
            continue;
        };
        let did = functions.entry(key.clone()).or_default();
        // Of several functions of a name, the one with most known calls has the median.
        if tally.known > did.timed {
            did.median_ns = clock.ns(tally.median_ticks());
        }
        did.calls = did.calls.saturating_add(tally.calls);
        did.timed = did.timed.saturating_add(tally.known);
        did.self_ns = did.self_ns.saturating_add(clock.ns(tally.self_ticks));
    }
    let path = path.to_owned();
    Ok(Seen {
        path,
        run,
        functions,
        calls,
    })
}

/// Module and name of each function. The program itself may have another name in each trace.
fn keys_of(names: &Names<'_>, program: &str) -> Vec<Key> {
    let ids = (0..names.dictionary().functions.len() as u32).map(FunctionId);
    let key = |id| {
        let (module, name) = (names.module(id), names.name(id));
        match module {
            _ if module == program => ("program".to_owned(), name.to_owned()),
            // Code of no file lies at another page in each process.
            _ if module.starts_with('[') && name.starts_with("sub_") => {
                let in_page = name.len().saturating_sub(3).max("sub_".len());
                (
                    module.to_owned(),
                    format!("sub_*{}", name.get(in_page..).unwrap_or("")),
                )
            }
            _ => (module.to_owned(), name.to_owned()),
        }
    };
    ids.map(key).collect()
}

fn hash(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn compare(old: &[Seen], new: &Seen) -> Vec<Compared> {
    let all = old
        .iter()
        .chain([new])
        .flat_map(|seen| seen.functions.keys());
    let all: std::collections::BTreeSet<_> = all.collect();
    let of = |seen: &Seen, key: &Key| seen.functions.get(key).copied().unwrap_or_default();
    let compared = |key: &Key| Compared {
        module: key.0.clone(),
        name: key.1.clone(),
        old: old.iter().map(|seen| of(seen, key)).collect(),
        new: of(new, key),
    };
    all.into_iter().map(compared).collect()
}

/// The first thread whose calls do not come in the same order, and where.
fn part(args: &ReportArgs, old: &Seen, new: &Seen) -> anyhow::Result<Option<Parting>> {
    let pairs = old.run.streams().into_iter().zip(new.run.streams());
    for (thread, (a, b)) in pairs.enumerate() {
        let Some(piece) = old.run.parting(a, &new.run, b) else {
            continue;
        };
        let (old_calls, old_stack) = excerpt(args, &old.path, a, piece)?;
        let (new_calls, new_stack) = excerpt(args, &new.path, b, piece)?;
        let pairs = old_calls.iter().zip(&new_calls);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let key = |calls: &[(u32, Key)]| calls.get(same).map(|(_, key)| key.clone());
        let (old, new) = (key(&old_calls), key(&new_calls));
        return Ok(Some(Parting {
            call: piece * PIECE_CALLS + same as u64 + 1,
            thread: thread + 1,
            stack: if old.is_some() {
                old_stack(same)
            } else {
                new_stack(same)
            },
            old,
            new,
        }));
    }
    Ok(None)
}

/// The stack of a call of an excerpt.
type StackOf = Box<dyn Fn(usize) -> Vec<Key>>;

/// The calls of a piece, and what says in which stack each is made.
fn excerpt(
    args: &ReportArgs,
    path: &Path,
    stream: StreamId,
    piece: u64,
) -> anyhow::Result<(Vec<(u32, Key)>, StackOf)> {
    let mut keys = Vec::new();
    let (excerpt, _) = with_trace(args, path, |names, program| {
        keys = keys_of(names, program);
        Excerpt::new(stream, piece)
    })?;
    let key = move |id: FunctionId| keys.get(id.0 as usize).cloned().unwrap_or_default();
    let calls = excerpt.calls.iter().map(|(depth, id)| (*depth, key(*id)));
    let calls = calls.collect();
    let stack_of = move |at| excerpt.stack_at(at).into_iter().map(&key).collect();
    Ok((calls, Box::new(stack_of)))
}

/// Replays a trace to a view that is made for its names.
fn with_trace<V: Visitor>(
    args: &ReportArgs,
    path: &Path,
    make: impl FnOnce(&Names<'_>, &str) -> V,
) -> anyhow::Result<(V, sptrace_trace::Clock)> {
    let (mut reader, survey) = open_trace(path)?;
    let names = Names::new(&survey.dictionary);
    let wanted = Wanted {
        selection: selection(args, &names, reader.clock())?,
        min_ticks: reader.clock().ticks(args.min_time),
        order: Order::File,
        snapshots: None,
    };
    let program = reader.header().command.first().cloned().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let view = make(&names, program);
    let view = Recast::new(without_kernel(&survey), view);
    let view = replay(&mut reader, &survey, &wanted, view);
    let view = view.map_err(|error| explain(path, error))?;
    Ok((view.inner, reader.clock()))
}

/// Where programs are recorded with the kernel's side, that is left out of a comparison: when an
/// interrupt comes, and who has the processor, is different in each run.
fn without_kernel(survey: &Survey) -> Vec<Option<FunctionId>> {
    let dictionary = &survey.dictionary;
    let sides = dictionary.kernel_sides.len();
    if sides == 0 || sides == dictionary.streams.len() {
        return Vec::new();
    }
    let functions = dictionary.functions.iter().enumerate();
    let told_as = functions.map(|(i, function)| {
        let module = dictionary.module(function.module);
        let is_of_kernel = module.is_some_and(|module| module.is_of_kernel());
        (!is_of_kernel).then_some(FunctionId(i as u32))
    });
    told_as.collect()
}
