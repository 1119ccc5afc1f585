//! The call graph as text: an indented chain, each function below those that call it, with calls
//! and times of the pair, address, module and linkage; and as csv, a row for each pair.
//!
//! Each pair has one line: what a function calls is shown where the function first appears, and
//! elsewhere it says so. So the counts of all lines add up to all calls.

use crate::csv::field;
use crate::style::Style;
use crate::units::{Count, Duration};
use sptrace_trace::{Clock, Edge, FunctionId, Graph, GraphNames};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

/// Levels beyond this are not indented further.
const MAX_INDENT: usize = 60;

/// What of a graph is shown, and how.
pub struct GraphView<'a> {
    /// It.
    pub graph: &'a Graph,
    /// What its nodes are called.
    pub names: GraphNames<'a>,
    /// The trace's.
    pub clock: Clock,
    /// At most so many lines.
    pub limit: Option<usize>,
    /// Colours.
    pub style: Style,
}

/// A line to come.
struct Due {
    level: usize,
    caller: Option<FunctionId>,
    callee: FunctionId,
    /// Of the pair; none for a function whose own calls are not shown.
    edge: Option<Edge>,
}

type Callees = HashMap<Option<FunctionId>, Vec<(FunctionId, Edge)>>;

/// What each calls, those with most time last, as a stack gives them back.
fn callees_of(graph: &Graph) -> Callees {
    let mut callees = Callees::new();
    for ((caller, callee), edge) in graph.edges() {
        callees.entry(caller).or_default().push((callee, edge));
    }
    for list in callees.values_mut() {
        list.sort_by_key(|(id, edge)| (edge.inclusive_ticks, edge.calls, Reverse(*id)));
    }
    callees
}

/// Writes the graph as an indented chain.
///
/// # Errors
/// Those of `out`.
pub fn write_graph(out: &mut impl Write, view: &GraphView<'_>) -> io::Result<()> {
    let heading = format!(
        "{:>13} {:>11} {:>11} {:>11}  {:<8} {:>12}  ",
        "calls", "untimed", "total", "self", "linkage", "address"
    );
    let what = match view.names.is_of_modules() {
        true => "module",
        false => "function [module]",
    };
    let heading = format!("{heading}{what}");
    writeln!(out, "{}", view.style.heading(&heading))?;
    let callees = callees_of(view.graph);
    let mut chain = Chain {
        view,
        callees: &callees,
        expanded: HashSet::new(),
        lines_left: view.limit.unwrap_or(usize::MAX),
    };
    for (root, edge) in callees.get(&None).into_iter().flatten().rev() {
        chain.write(out, None, *root, Some(*edge))?;
    }
    // Those whose own calls are hidden (too short, or of unknown length) have callees all the same.
    let mut others: Vec<_> = callees.keys().flatten().copied().collect();
    others.sort();
    for root in others {
        if !chain.expanded.contains(&root) {
            chain.write(out, None, root, None)?;
        }
    }
    Ok(())
}

struct Chain<'a> {
    view: &'a GraphView<'a>,
    callees: &'a Callees,
    expanded: HashSet<FunctionId>,
    lines_left: usize,
}

impl Chain<'_> {
    /// Writes a root and all below it that is not written yet.
    fn write(
        &mut self,
        out: &mut impl Write,
        caller: Option<FunctionId>,
        callee: FunctionId,
        edge: Option<Edge>,
    ) -> io::Result<()> {
        let mut path: Vec<FunctionId> = Vec::new();
        let mut due = vec![Due {
            level: 0,
            caller,
            callee,
            edge,
        }];
        while let Some(next) = due.pop() {
            if self.lines_left == 0 {
                return Ok(());
            }
            self.lines_left -= 1;
            path.truncate(next.level);
            let below = self.callees.get(&Some(next.callee));
            let remark = match below {
                None => "",
                Some(_) if path.contains(&next.callee) => " (recursive)",
                Some(_) if self.expanded.contains(&next.callee) => " (see above)",
                Some(_) => "",
            };
            self.line(out, &next, remark)?;
            path.push(next.callee);
            if !self.expanded.insert(next.callee) {
                continue;
            }
            due.extend(below.into_iter().flatten().map(|(callee, edge)| Due {
                level: next.level + 1,
                caller: Some(next.callee),
                callee: *callee,
                edge: Some(*edge),
            }));
        }
        Ok(())
    }

    fn line(&self, out: &mut impl Write, due: &Due, remark: &str) -> io::Result<()> {
        let GraphView { names, style, .. } = self.view;
        match &due.edge {
            Some(edge) => {
                let untimed = Count(edge.calls - edge.timed);
                write!(out, "{:>13} {untimed:>11}", Count(edge.calls))?;
                for ns in times(edge, self.view.clock) {
                    match ns {
                        Some(ns) => {
                            let text = format!("{:>11}", Duration(ns));
                            write!(out, " {}", style.duration(ns, &text))?;
                        }
                        None => write!(out, " {:>11}", "?")?,
                    }
                }
            }
            None => write!(out, "{:>13} {:>11} {:>11} {:>11}", "-", "-", "-", "-")?,
        }
        let linkage = names.linkage(due.caller, due.callee).word();
        let address = names.address(due.callee);
        let address = address.map_or_else(|| "-".to_owned(), |svma| format!("{svma:#x}"));
        let indent = 2 * due.level.min(MAX_INDENT);
        let name = names.name(due.callee);
        write!(
            out,
            "  {linkage:<8} {address:>12}  {:indent$}{name}{}",
            "",
            style.aside(remark)
        )?;
        if names.is_of_modules() {
            return writeln!(out);
        }
        writeln!(
            out,
            " {}",
            style.aside(&format!("[{}]", names.module(due.callee)))
        )
    }
}

/// Total and own, if of any of the frames they are known.
fn times(edge: &Edge, clock: Clock) -> [Option<u64>; 2] {
    [
        (edge.known > 0).then(|| clock.ns(edge.total_ticks)),
        (edge.known_self > 0).then(|| clock.ns(edge.self_ticks)),
    ]
}

/// Writes the pairs as csv. Time that is not known is an empty field, and so is a caller that is
/// not.
///
/// # Errors
/// Those of `out`.
pub fn write_graph_csv(out: &mut impl Write, view: &GraphView<'_>) -> io::Result<()> {
    let columns = "caller_module,caller,callee_module,callee,linkage,callee_address,calls,timed_calls,total_ns,self_ns";
    write!(out, "{columns}\r\n")?;
    let names = view.names;
    let edges = view.graph.edges().into_iter();
    for ((caller, callee), edge) in edges.take(view.limit.unwrap_or(usize::MAX)) {
        for id in [caller, Some(callee)] {
            let module = id.map_or("", |id| names.module(id));
            let name = id.map_or("", |id| names.name(id));
            write!(out, "{},{},", field(module), field(name))?;
        }
        let address = names.address(callee);
        let address = address.map_or_else(String::new, |svma| format!("{svma:#x}"));
        let cell = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
        let [total, own] = times(&edge, view.clock).map(cell);
        let linkage = names.linkage(caller, callee).word();
        let (calls, timed) = (edge.calls, edge.timed);
        write!(out, "{linkage},{address},{calls},{timed},{total},{own}\r\n")?;
    }
    Ok(())
}
