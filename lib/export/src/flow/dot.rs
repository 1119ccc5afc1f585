//! A control-flow graph for graphviz.
//!
//! What stands in the boxes is `flow.rs`'s to say.

use super::{Flow, FlowBlock, SHADES};
use crate::output::Output;
use std::io::Write;

/// From light to dark, of one hue.
const FILLS: [&str; SHADES] = ["#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#4a90c4"];

/// Writes it.
pub fn write<W: Write>(flow: &Flow, out: &mut Output<W>) {
    out.text("digraph flow {\n  rankdir=TB;\n  graph [fontname=\"sans-serif\", labelloc=t, label=");
    out.text(&quoted([flow.title.as_str(), &flow.said]));
    out.text("];\n  node [shape=box, style=filled, fontname=\"monospace\", fontcolor=black];\n");
    out.text("  edge [fontname=\"sans-serif\", fontsize=10, color=\"#555555\"];\n");
    for (number, block) in flow.blocks.iter().enumerate() {
        out.text(&format!(
            "  b{number} [label={}, fillcolor=\"{}\"{}];\n",
            label(block),
            FILLS[flow.shade(block)],
            match block.is_entered || block.is_left {
                true => ", penwidth=2",
                false => "",
            }
        ));
        out.pass();
    }
    for arrow in &flow.arrows {
        out.text(&format!(
            "  b{} -> b{} [label={}, penwidth={:.2}{}];\n",
            arrow.from,
            arrow.to,
            quoted([arrow.label().as_str(), ""]),
            flow.width_px(arrow),
            match arrow.is_dashed {
                true => ", style=dashed",
                false => "",
            }
        ));
        out.pass();
    }
    out.text("}\n");
}

/// Lines stand at the left.
fn label(block: &FlowBlock) -> String {
    let head = match block.count {
        Some(count) => format!("{}  {count} times", block.name),
        None => block.name.clone(),
    };
    let mut text = String::from("\"");
    for line in std::iter::once(&head).chain(&block.lines) {
        text.push_str(&escaped(line));
        text.push_str("\\l");
    }
    text.push('"');
    text
}

/// A string of the language: these lines, as far as they are not empty.
fn quoted(lines: [&str; 2]) -> String {
    let lines = lines.into_iter().filter(|line| !line.is_empty());
    let lines: Vec<String> = lines.map(escaped).collect();
    format!("\"{}\"", lines.join("\\n"))
}

fn escaped(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
