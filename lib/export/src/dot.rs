//! The call graph for graphviz: functions by module, an edge for each pair of caller and callee.
//!
//! Which of them, and what is said of each, is `graph.rs`'s to say.

use crate::graph::{GraphSource, Node, Picture, SHADES};
use crate::output::Output;
use crate::{Context, Written};
use sptrace_trace::{Graph, GraphNames};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Fills from light to dark, by the share of own time; of one hue, so that all eyes tell them
/// apart.
const FILLS: [&str; SHADES] = ["#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#4a90c4"];

/// Writes the graph of an export.
pub fn write<W: Write>(cx: &Context<'_>, graph: &Graph, out: &mut Output<W>) -> Written {
    let picture = Picture::of(&GraphSource {
        title: cx.header.command.join(" "),
        graph,
        names: GraphNames::of_functions(cx.names),
        clock: cx.clock,
        limit: cx.limit,
    });
    draw(&picture, out);
    picture.written()
}

/// Writes any graph.
///
/// # Errors
/// Those of `out`.
pub fn write_graph_dot(source: &GraphSource<'_>, out: impl Write) -> io::Result<()> {
    let mut out = Output::new(out);
    draw(&Picture::of(source), &mut out);
    out.finish()
}

fn draw<W: Write>(picture: &Picture<'_>, out: &mut Output<W>) {
    out.text("digraph calls {\n  rankdir=TB;\n  newrank=true;\n");
    out.text("  graph [fontname=\"sans-serif\", labelloc=b, label=");
    out.text(&quoted(&picture.title.join("\\n")));
    out.text("];\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontcolor=black];\n");
    out.text("  edge [fontname=\"sans-serif\", color=\"#555555\"];\n");
    let mut modules: BTreeMap<&str, Vec<&Node<'_>>> = BTreeMap::new();
    for node in &picture.nodes {
        modules.entry(node.module).or_default().push(node);
    }
    for (number, (module, nodes)) in modules.iter().enumerate() {
        out.text(&format!(
            "  subgraph cluster_{number} {{\n    label={};\n",
            quoted(module)
        ));
        nodes.iter().for_each(|node| write_node(node, out));
        out.text("  }\n");
    }
    for arrow in &picture.arrows {
        let (from, to) = (&picture.nodes[arrow.from], &picture.nodes[arrow.to]);
        let (calls, ns) = (arrow.calls, arrow.ns);
        out.text(&format!(
            "  f{} -> f{} [label=\"{calls}\", penwidth={:.2}, tooltip=\"{calls} calls, {ns} ns\"];\n",
            from.id.0,
            to.id.0,
            1.0 + 4.0 * arrow.share
        ));
        out.pass();
    }
    out.text("}\n");
}

fn write_node<W: Write>(node: &Node<'_>, out: &mut Output<W>) {
    let (total_ns, own_ns) = (node.total_ns, node.own_ns);
    let label = format!(
        "{}\\n{} calls\\ntotal {total_ns} ns, self {own_ns} ns",
        node.name.replace('\\', "\\\\"),
        node.calls
    );
    out.text(&format!(
        "    f{} [label={}, fillcolor=\"{}\"];\n",
        node.id.0,
        quoted(&label),
        FILLS[node.shade]
    ));
}

/// A string of the language; backslashes are the caller's.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    format!("\"{}\"", text.replace('"', "\\\""))
}
