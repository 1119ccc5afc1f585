//! The distinct stacks of a trace, as a tree: calls and own time of each.
//!
//! A visitor. Holds a node for each distinct stack, up to a bound. Folded stacks and flame graphs
//! are made of it. Knows nothing of how they look.

use rustc_hash::FxHashMap as HashMap;
use sptrace_trace::{Clock, Frame, FunctionId, StreamId, StreamTotals, Visitor};

/// Distinct stacks kept; what further ones have goes to their longest known part.
const MAX_PATHS: usize = 4 << 20;

/// The node below all stacks.
pub const ROOT: u32 = 0;

/// What a stack is measured by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Measure {
    /// Nanoseconds of its innermost function's own, as far as they are known.
    #[default]
    Time,
    /// Calls of its innermost function.
    Calls,
}

/// A stack.
pub struct Node {
    /// The stack without its innermost function.
    pub parent: u32,
    /// The innermost function.
    pub function: FunctionId,
    /// Calls of it.
    pub calls: u64,
    self_ticks: u64,
}

impl Node {
    /// What the stack has of its own.
    pub fn own(&self, measure: Measure, clock: Clock) -> u64 {
        match measure {
            Measure::Time => clock.ns(self.self_ticks),
            Measure::Calls => self.calls,
        }
    }
}

/// Collects stacks while a trace is replayed.
pub struct Paths {
    nodes: Vec<Node>,
    children: HashMap<(u32, FunctionId), u32>,
    /// Stack of each open frame.
    open: HashMap<StreamId, Vec<u32>>,
}

impl Default for Paths {
    fn default() -> Self {
        let root = Node {
            parent: ROOT,
            function: FunctionId(u32::MAX),
            calls: 0,
            self_ticks: 0,
        };
        Self {
            nodes: vec![root],
            children: HashMap::default(),
            open: HashMap::default(),
        }
    }
}

impl Paths {
    /// All stacks by their index, the empty one first; each comes after its parent.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

impl Visitor for Paths {
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
                    calls: 0,
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
            let own_ticks = frame.self_ticks.unwrap_or(0);
            node.self_ticks = node.self_ticks.saturating_add(own_ticks);
            node.calls += u64::from(!frame.flags.begin_unseen);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        self.open.get_mut(&stream).and_then(Vec::pop);
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.open.remove(&stream);
    }
}
