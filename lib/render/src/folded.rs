//! Folded stacks for flame graphs: `a;b;c ns`, one line a distinct path with self time that is
//! known.

use sptrace_trace::{Clock, Frame, FunctionId, Names, StreamId, StreamTotals, Visitor};
use std::collections::HashMap;
use std::io::{self, Write};

/// Distinct paths kept; the time of further ones goes to their longest known part.
const MAX_PATHS: usize = 4 << 20;
const ROOT: u32 = 0;

struct Node {
    parent: u32,
    function: FunctionId,
    self_ticks: u64,
}

/// Collects paths while a trace is replayed.
pub struct Folded {
    nodes: Vec<Node>,
    children: HashMap<(u32, FunctionId), u32>,
    /// Path of each open frame.
    open: HashMap<StreamId, Vec<u32>>,
}

impl Default for Folded {
    fn default() -> Self {
        let root = Node {
            parent: ROOT,
            function: FunctionId(u32::MAX),
            self_ticks: 0,
        };
        Self {
            nodes: vec![root],
            children: HashMap::new(),
            open: HashMap::new(),
        }
    }
}

impl Folded {
    /// Writes the paths that have time of their own.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write, names: &Names<'_>, clock: Clock) -> io::Result<()> {
        let mut path = Vec::new();
        for node in self.nodes.iter().skip(1) {
            let ns = clock.ns(node.self_ticks);
            if ns == 0 {
                continue;
            }
            path.clear();
            path.push(node.function);
            let mut at = node.parent;
            while at != ROOT {
                path.push(self.nodes[at as usize].function);
                at = self.nodes[at as usize].parent;
            }
            let functions = path.iter().rev();
            // A semicolon inside a name would split it.
            let path: Vec<String> = functions
                .map(|&id| names.name(id).replace(';', ":"))
                .collect();
            writeln!(out, "{} {ns}", path.join(";"))?;
        }
        Ok(())
    }
}

impl Visitor for Folded {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let open = self.open.entry(stream).or_default();
        let parent = open.last().copied().unwrap_or(ROOT);
        let key = (parent, frame.function);
        let node = match self.children.get(&key) {
            Some(&node) => node,
            None if self.nodes.len() >= MAX_PATHS => parent,
            None => {
                let node = self.nodes.len() as u32;
                self.nodes.push(Node {
                    parent,
                    function: frame.function,
                    self_ticks: 0,
                });
                self.children.insert(key, node);
                node
            }
        };
        open.push(node);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if let Some(node) = self.open.get_mut(&stream).and_then(Vec::pop) {
            let node = &mut self.nodes[node as usize];
            node.self_ticks = node
                .self_ticks
                .saturating_add(frame.self_ticks.unwrap_or(0));
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        self.open.get_mut(&stream).and_then(Vec::pop);
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.open.remove(&stream);
    }
}
