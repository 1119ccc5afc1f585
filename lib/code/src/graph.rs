//! The control-flow graph of one function: its basic blocks, and how control passes between them.
//!
//! A function may have several ranges of code: compilers keep what is hardly ever executed
//! elsewhere. A block is left at its end only, but for calls, from which control comes back.
//! [`of_image`] makes the graph of a function of a file, [`of_text`] that of code of which nothing
//! but the bytes is known, as that of a running kernel. Does not know what is done to a block.

mod build;
mod of_image;
mod of_text;

use std::ops::Range;

pub use of_image::{analyze_with_graph, parts_of};
pub use of_text::{Text, of_text};

/// See the module. Addresses are as the code is linked, or where it lies in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// Where the function's code lies. The first range begins with its entry.
    pub ranges: Vec<Range<u64>>,
    /// By address.
    pub blocks: Vec<Block>,
    /// By the block that they leave.
    pub edges: Vec<Edge>,
    /// Bytes of the ranges that nothing was seen to lead to, filling between blocks left out: code
    /// that runs after a fault only, or behind a branch that is switched off.
    pub unreached_bytes: u64,
}

/// Instructions that are executed one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its first instruction.
    pub start: u64,
    /// Behind its last instruction.
    pub end: u64,
    /// Its last instruction.
    pub last: u64,
    /// Its first instruction, in words.
    pub first: String,
    /// How many it has.
    pub instructions: u32,
    /// Its calls, by address.
    pub calls: Vec<Call>,
    /// How the function is left at its end; of a conditional jump that leaves it, if it is taken.
    pub exit: Option<Exit>,
    /// Entries of the jump table that it ends with.
    pub table_entries: Option<u32>,
    /// Control comes here otherwise than from a block: at the entry, or at a place where
    /// exceptions are caught.
    pub is_entered: bool,
}

/// A call in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The instruction.
    pub at: u64,
    /// Where it leads, if the instruction says so.
    pub target: Option<u64>,
}

/// How a function is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By a return.
    Return,
    /// By a jump to another function, if the instruction says to which one.
    Jump(Option<u64>),
    /// By a call from which nothing comes back.
    NoReturn,
    /// By an instruction that ends in a trap.
    Trap,
    /// By a jump whose targets are not known: they may be blocks of the function.
    Unresolved,
    /// Behind it is nothing that could be decoded.
    Broken,
}

/// Control may pass from one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the block that it leaves.
    pub from: usize,
    /// Index of the block that it leads to.
    pub to: usize,
    /// How it is taken.
    pub kind: EdgeKind,
}

/// How control passes from one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The next instruction begins a block; a condition was not met, if there is one.
    Falls,
    /// A condition is met.
    Taken,
    /// A jump.
    Jumps,
    /// An entry of a table.
    Table,
    /// A branch that is switched: at the moment it goes the other way.
    Switch,
    /// An instruction of the block has faulted.
    Fault,
    /// A trap after which a handler may go on with the next instruction, as the kernel's warnings.
    Trap,
}

impl Graph {
    /// Index of the block that begins at `address`.
    pub fn block_at(&self, address: u64) -> Option<usize> {
        self.blocks
            .binary_search_by_key(&address, |block| block.start)
            .ok()
    }

    /// Where the function begins.
    pub fn entry(&self) -> u64 {
        self.ranges.first().map_or(0, |range| range.start)
    }

    /// The edges that leave a block.
    pub fn edges_from(&self, block: usize) -> &[Edge] {
        let first = self.edges.partition_point(|edge| edge.from < block);
        let after = self.edges.partition_point(|edge| edge.from <= block);
        &self.edges[first..after]
    }

    /// The edges that lead to a block.
    pub fn edges_to(&self, block: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.to == block)
    }

    /// True if control may pass from one block to the other.
    pub fn has_edge(&self, from: usize, to: usize) -> bool {
        self.edges_from(from).iter().any(|edge| edge.to == to)
    }

    /// The function's code holds this address.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}
