//! A call graph to be drawn: which of its nodes and pairs, and what is said of them.
//!
//! Given sums of who called whom; gives a picture by graphviz's language (`dot.rs`) or as SVG
//! (`graph/svg.rs`). Of many nodes those with most time are drawn, and the picture says how many
//! are not: more than some dozens cannot be read. Known times are shown; darker is more time of
//! its own.

pub(crate) mod layout;
mod svg;

use crate::Written;
use crate::output::Output;
use sptrace_trace::{Clock, Edge, FunctionId, Graph, GraphNames};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

/// Nodes drawn if nothing else is asked for.
const DEFAULT_NODES: u64 = 80;
/// Shades from light to dark.
pub const SHADES: usize = 5;

/// What is to be drawn.
pub struct GraphSource<'a> {
    /// Its title.
    pub title: String,
    /// The sums.
    pub graph: &'a Graph,
    /// What its nodes are called.
    pub names: GraphNames<'a>,
    /// The trace's.
    pub clock: Clock,
    /// At most so many nodes.
    pub limit: Option<u64>,
}

/// A node as it is drawn.
pub struct Node<'a> {
    /// Its number in the trace.
    pub id: FunctionId,
    /// Its name.
    pub name: &'a str,
    /// Its module's name.
    pub module: &'a str,
    /// Its calls.
    pub calls: u64,
    /// Time in it and in what it calls, as far as it is known.
    pub total_ns: u64,
    /// Time of its own, as far as it is known.
    pub own_ns: u64,
    /// How dark, below [`SHADES`].
    pub shade: usize,
    /// How it is bound to those that call it, if to all in one way.
    pub linkage: &'static str,
}

/// A pair as it is drawn.
pub struct Arrow {
    /// Index of the caller.
    pub from: usize,
    /// Index of the callee.
    pub to: usize,
    /// Calls.
    pub calls: u64,
    /// Time in the callee, as far as it is known.
    pub ns: u64,
    /// Its part of all time.
    pub share: f64,
}

/// What is drawn.
pub struct Picture<'a> {
    /// Title, and what is left out.
    pub title: [String; 2],
    /// Those with most time first.
    pub nodes: Vec<Node<'a>>,
    /// In the order of their nodes in the trace.
    pub arrows: Vec<Arrow>,
}

impl<'a> Picture<'a> {
    /// Of the nodes with most time.
    pub fn of(source: &GraphSource<'a>) -> Self {
        let all = source.graph.functions();
        let total_ticks = all.iter().map(|(_, edge)| edge.self_ticks);
        let total_ticks = total_ticks.fold(0, u64::saturating_add);
        let mut chosen = all.clone();
        chosen.sort_by_key(|(id, edge)| (Reverse((edge.inclusive_ticks, edge.calls)), *id));
        let most = source.limit.unwrap_or(DEFAULT_NODES);
        chosen.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let edges = source.graph.edges();
        let mut linkages: HashMap<FunctionId, &'static str> = HashMap::new();
        for ((caller, callee), _) in &edges {
            let word = source.names.linkage(*caller, *callee).word();
            let known = linkages.entry(*callee).or_insert(word);
            *known = match *known {
                "-" => word,
                known if known == word || word == "-" => known,
                _ => "static and dynamic",
            };
        }
        let node = |(id, edge): &(FunctionId, Edge)| Node {
            id: *id,
            name: source.names.name(*id),
            module: source.names.module(*id),
            calls: edge.calls,
            total_ns: source.clock.ns(edge.inclusive_ticks),
            own_ns: source.clock.ns(edge.self_ticks),
            shade: shade(part_of(edge.self_ticks, total_ticks)),
            linkage: linkages.get(id).copied().unwrap_or("-"),
        };
        let nodes: Vec<_> = chosen.iter().map(node).collect();
        let index: HashMap<_, _> = nodes.iter().enumerate().map(|(i, n)| (n.id, i)).collect();
        let arrow = |((caller, callee), edge): &((Option<FunctionId>, FunctionId), Edge)| {
            Some(Arrow {
                from: *index.get(&(*caller)?)?,
                to: *index.get(callee)?,
                calls: edge.calls,
                ns: source.clock.ns(edge.inclusive_ticks),
                share: part_of(edge.inclusive_ticks, total_ticks),
            })
        };
        let what = match source.names.is_of_modules() {
            true => "modules",
            false => "functions",
        };
        let (drawn, known) = (nodes.len(), all.len());
        let said = format!("{drawn} of {known} {what} with a frame");
        Self {
            title: [source.title.clone(), said],
            arrows: edges.iter().filter_map(arrow).collect(),
            nodes,
        }
    }

    /// What is written of it: it says itself what it leaves out.
    pub fn written(&self) -> Written {
        Written {
            calls: self.nodes.iter().map(|node| node.calls).sum(),
            ..Written::default()
        }
    }
}

/// The root spreads small shares over the shades.
fn shade(share: f64) -> usize {
    ((share.sqrt() * SHADES as f64) as usize).min(SHADES - 1)
}

fn part_of(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// Writes a graph as a picture for browsers.
///
/// # Errors
/// Those of `out`.
pub fn write_graph_svg(source: &GraphSource<'_>, out: impl Write) -> io::Result<()> {
    let mut out = Output::new(out);
    svg::write(&Picture::of(source), &mut out);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::shade;

    #[test]
    fn shades_stay_within_their_number() {
        assert_eq!(shade(0.0), 0);
        assert_eq!(shade(0.05), 1);
        assert_eq!(shade(1.0), 4);
    }
}
