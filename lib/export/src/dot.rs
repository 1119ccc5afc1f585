//! The call graph for graphviz: functions by module, an edge for each pair of caller and callee.
//!
//! Of many functions those with most time are drawn, and the graph says how many are not: more than
//! some dozens cannot be read. Known times are shown; darker is more time of its own.

use crate::output::Output;
use crate::{Context, Written};
use sptrace_trace::{Edge, FunctionId, Graph};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

/// Functions drawn if nothing else is asked for.
const DEFAULT_FUNCTIONS: u64 = 80;
/// Fills from light to dark, by the share of own time; of one hue, so that all eyes tell them
/// apart.
const FILLS: [&str; 5] = ["#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#4a90c4"];

/// Writes the graph.
pub fn write<W: Write>(cx: &Context<'_>, graph: &Graph, out: &mut Output<W>) -> Written {
    let all = graph.functions();
    let mut functions = all.clone();
    functions.sort_by_key(|(id, edge)| (Reverse((edge.inclusive_ticks, edge.calls)), *id));
    let most = cx.limit.unwrap_or(DEFAULT_FUNCTIONS);
    functions.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let drawn: HashSet<_> = functions.iter().map(|(id, _)| *id).collect();
    let total_ticks = all
        .iter()
        .map(|(_, edge)| edge.self_ticks)
        .fold(0, u64::saturating_add);
    out.text("digraph calls {\n  rankdir=TB;\n  newrank=true;\n");
    out.text("  graph [fontname=\"sans-serif\", labelloc=b, label=");
    out.text(&quoted(&format!(
        "{}\\n{} of {} functions with a frame",
        cx.header.command.join(" "),
        functions.len(),
        all.len()
    )));
    out.text("];\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontcolor=black];\n");
    out.text("  edge [fontname=\"sans-serif\", color=\"#555555\"];\n");
    let mut modules: BTreeMap<&str, Vec<&(FunctionId, Edge)>> = BTreeMap::new();
    for function in &functions {
        let module = cx.names.module(function.0);
        modules.entry(module).or_default().push(function);
    }
    let mut written = Written {
        calls: 0,
        // The graph itself says what it leaves out.
        is_cut: false,
        ..Written::default()
    };
    for (number, (module, functions)) in modules.iter().enumerate() {
        out.text(&format!(
            "  subgraph cluster_{number} {{\n    label={};\n",
            quoted(module)
        ));
        for (id, edge) in functions {
            written.calls += edge.calls;
            write_node(cx, *id, edge, total_ticks, out);
        }
        out.text("  }\n");
    }
    for ((caller, callee), edge) in graph.edges() {
        let Some(caller) = caller.filter(|id| drawn.contains(id) && drawn.contains(&callee)) else {
            continue;
        };
        let (calls, ns) = (edge.calls, cx.clock.ns(edge.inclusive_ticks));
        let share = part_of(edge.inclusive_ticks, total_ticks);
        out.text(&format!(
            "  f{} -> f{} [label=\"{calls}\", penwidth={:.2}, tooltip=\"{calls} calls, {ns} ns\"];\n",
            caller.0,
            callee.0,
            1.0 + 4.0 * share
        ));
        out.pass();
    }
    out.text("}\n");
    written
}

fn write_node<W: Write>(
    cx: &Context<'_>,
    id: FunctionId,
    edge: &Edge,
    total_ticks: u64,
    out: &mut Output<W>,
) {
    let share = part_of(edge.self_ticks, total_ticks);
    // The root spreads small shares over the fills.
    let fill = FILLS[((share.sqrt() * FILLS.len() as f64) as usize).min(FILLS.len() - 1)];
    let (total_ns, own_ns) = (
        cx.clock.ns(edge.inclusive_ticks),
        cx.clock.ns(edge.self_ticks),
    );
    let label = format!(
        "{}\\n{} calls\\ntotal {total_ns} ns, self {own_ns} ns",
        cx.names.name(id).replace('\\', "\\\\"),
        edge.calls
    );
    out.text(&format!(
        "    f{} [label={}, fillcolor=\"{fill}\"];\n",
        id.0,
        quoted(&label)
    ));
}

fn part_of(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// A string of the language; backslashes are the caller's.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    format!("\"{}\"", text.replace('"', "\\\""))
}
