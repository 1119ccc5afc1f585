//! Who calls a function, and whom it calls: calls and times of each, as aligned text or csv.

use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration};
use sptrace_trace::{Clock, Edge, FunctionId, Graph, Names, call_words};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

/// Which way from a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To those that call it.
    Callers,
    /// To those that it calls.
    Callees,
}

/// A pair of functions: the chosen one, and its relative. Without one it began or ran at the bottom
/// of a stack.
pub type Relative = (FunctionId, Option<FunctionId>, Edge);

/// The relatives of the functions that `chosen` marks, those with most time first for each.
pub fn select_relatives(
    graph: &Graph,
    chosen: &[bool],
    way: Way,
    limit: Option<usize>,
) -> Vec<Relative> {
    let is_chosen = |id: FunctionId| chosen.get(id.0 as usize).copied().unwrap_or(false);
    let mut rows: HashMap<FunctionId, Vec<Relative>> = HashMap::new();
    for ((caller, callee), edge) in graph.edges() {
        let (of, relative) = match way {
            Way::Callers => (Some(callee), caller),
            Way::Callees => (caller, Some(callee)),
        };
        if let Some(of) = of.filter(|id| is_chosen(*id)) {
            rows.entry(of).or_default().push((of, relative, edge));
        }
    }
    let mut groups: Vec<_> = rows.into_iter().collect();
    groups.sort_by_key(|(id, _)| *id);
    for (_, group) in &mut groups {
        group.sort_by_key(|(_, relative, edge)| {
            (Reverse((edge.total_ticks, edge.calls)), *relative)
        });
        group.truncate(limit.unwrap_or(usize::MAX));
    }
    groups.into_iter().flat_map(|(_, group)| group).collect()
}

fn total_ns(edge: &Edge, clock: Clock) -> Option<u64> {
    (edge.known > 0).then(|| clock.ns(edge.total_ticks))
}

/// Where the one calls the other, in words; empty: not known.
fn places(names: &Names<'_>, (of, relative): (FunctionId, Option<FunctionId>), way: Way) -> String {
    let Some(relative) = relative else {
        return String::new();
    };
    let (caller, callee) = match way {
        Way::Callers => (relative, of),
        Way::Callees => (of, relative),
    };
    call_words(names.call_places(caller, callee), ToString::to_string)
}

/// Writes the pairs as aligned text, a paragraph for each chosen function.
///
/// # Errors
/// Those of `out`.
pub fn write_relatives(
    out: &mut impl Write,
    rows: &[Relative],
    (names, clock): (&Names<'_>, Clock),
    way: Way,
    style: Style,
) -> io::Result<()> {
    let module = |id: &Option<FunctionId>| id.map_or("-", |id| names.module(id));
    let widths = rows.iter().map(|(_, id, _)| module(id).chars().count());
    let width = widths.max().unwrap_or(0).max("module".len());
    let mut last = None;
    for (of, relative, edge) in rows {
        if last != Some(*of) {
            let gap = if last.is_some() { "\n" } else { "" };
            let word = match way {
                Way::Callers => "callers",
                Way::Callees => "callees",
            };
            writeln!(
                out,
                "{gap}{word} of {} ({})",
                names.name(*of),
                names.module(*of)
            )?;
            let heading = format!(
                "{:>13} {:>11} {:>11} {:>11}  {:width$}  function",
                "calls", "untimed", "total", "self", "module"
            );
            writeln!(out, "{}", style.heading(&heading))?;
            last = Some(*of);
        }
        let untimed = edge.calls - edge.timed;
        write!(out, "{:>13} {:>11}", Count(edge.calls), Count(untimed))?;
        let own_ns = (edge.known_self > 0).then(|| clock.ns(edge.self_ticks));
        for ns in [total_ns(edge, clock), own_ns] {
            match ns {
                Some(ns) => write!(
                    out,
                    " {}",
                    style.duration(ns, &format!("{:>11}", Duration(ns)))
                )?,
                None => write!(out, " {:>11}", "?")?,
            }
        }
        let name = relative.map_or("(bottom of the stack)", |id| names.name(id));
        write!(out, "  {:width$}  {name}", module(relative))?;
        let places = places(names, (*of, *relative), way);
        match places.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, "  at {}", crate::units::clean(&places))?,
        }
    }
    Ok(())
}

/// Writes the pairs as csv. Time that is not known is an empty field, and so is a caller that is
/// not.
///
/// # Errors
/// Those of `out`.
pub fn write_relatives_csv(
    out: &mut impl Write,
    rows: &[Relative],
    (names, clock): (&Names<'_>, Clock),
    way: Way,
) -> io::Result<()> {
    let columns = "caller_module,caller,callee_module,callee,calls,timed_calls,total_ns,self_ns";
    let with_source = names.has_sources();
    let source = if with_source { ",call_source" } else { "" };
    write!(out, "{columns}{source}\r\n")?;
    for (of, relative, edge) in rows {
        let (caller, callee) = match way {
            Way::Callers => (*relative, Some(*of)),
            Way::Callees => (Some(*of), *relative),
        };
        for id in [caller, callee] {
            let module = id.map_or("", |id| names.module(id));
            let name = id.map_or("", |id| names.name(id));
            write!(out, "{},{},", field(module), field(name))?;
        }
        let cell = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
        let own_ns = (edge.known_self > 0).then(|| clock.ns(edge.self_ticks));
        let (calls, timed) = (edge.calls, edge.timed);
        let (total, own) = (cell(total_ns(edge, clock)), cell(own_ns));
        write!(out, "{calls},{timed},{total},{own}")?;
        if with_source {
            let places = places(names, (*of, *relative), way);
            write!(out, ",{}", field(&places))?;
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}
