//! What a trace has counted of one function: its calls, what it called, and its blocks.
//!
//! Given a trace and which function is meant; gives numbers. Blocks are there if `sptrace ktrace
//! --blocks` has recorded them: as frames within the function's, whose names are its own with an
//! offset. Of two that follow each other within a call control has passed from one to the other.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use sptrace_code::graph::Graph;
use sptrace_trace::{
    Dictionary, Frame, Function, FunctionId, Module, Order, StreamId, Visitor, Wanted, replay,
};

use crate::commands::report::{explain, open_trace};

/// See the module.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls of the function.
    pub calls: u64,
    /// How often each of its blocks was executed, of those that were recorded at all.
    pub blocks: HashMap<String, u64>,
    /// How often one of them came after the other.
    pub edges: HashMap<(String, String), u64>,
    /// How often it has called another function, by the name of that.
    pub callees: HashMap<String, u64>,
}

impl Counts {
    /// Of the function that `is_meant`.
    ///
    /// # Errors
    /// A sentence for the user: the trace cannot be read, or has no call of the function.
    pub fn of(
        trace: &Path,
        name: &str,
        is_meant: &dyn Fn(&Function, &Module) -> bool,
    ) -> anyhow::Result<Self> {
        let (mut reader, survey) = open_trace(trace)?;
        let dictionary = &survey.dictionary;
        let meant = meant(dictionary, is_meant);
        let mut view = View {
            dictionary,
            blocks: blocks(dictionary, &meant),
            meant,
            open: HashMap::new(),
            counts: Self::default(),
        };
        for symbol in view.blocks.values() {
            view.counts.blocks.insert(symbol.clone(), 0);
        }
        let wanted = Wanted {
            order: Order::File,
            ..Wanted::default()
        };
        let replayed = replay(&mut reader, &survey, &wanted, view);
        let counts = replayed.map_err(|e| explain(trace, e))?.counts;
        if counts.calls == 0 {
            anyhow::bail!("{} has no call of {name}", trace.display());
        }
        Ok(counts)
    }

    /// Of blocks that were not hooked: how often they were executed, where the blocks before and
    /// after leave but one way.
    pub fn complete(&mut self, graph: &Graph, place: &dyn Fn(u64) -> String) {
        let names: Vec<String> = graph.blocks.iter().map(|b| place(b.start)).collect();
        let number = |name: &String| names.iter().position(|n| n == name);
        let is_hooked: Vec<bool> = names.iter().map(|n| self.blocks.contains_key(n)).collect();
        let steps: Vec<_> = self
            .edges
            .iter()
            .map(|(step, n)| (step.clone(), *n))
            .collect();
        for ((from, to), count) in steps {
            let Some((start, end)) = number(&from).zip(number(&to)) else {
                continue;
            };
            if graph.has_edge(start, end) {
                continue;
            }
            let mut ways = Vec::new();
            find_ways(graph, &is_hooked, end, &mut vec![start], &mut ways);
            let [way] = ways.as_slice() else {
                continue;
            };
            for pair in way.windows(2) {
                let step = (names[pair[0]].clone(), names[pair[1]].clone());
                *self.edges.entry(step).or_default() += count;
                if pair[1] != end {
                    *self.blocks.entry(names[pair[1]].clone()).or_default() += count;
                }
            }
        }
    }

    /// How often control has passed from a block to another. `None`: they were not both recorded.
    pub fn edge(&self, from: &str, to: &str) -> Option<u64> {
        let are_known = self.blocks.contains_key(from) && self.blocks.contains_key(to);
        let key = (from.to_owned(), to.to_owned());
        are_known.then(|| self.edges.get(&key).copied().unwrap_or(0))
    }
}

/// Ways to `end` through blocks that are not hooked; of many two are enough.
fn find_ways(
    graph: &Graph,
    is_hooked: &[bool],
    end: usize,
    way: &mut Vec<usize>,
    ways: &mut Vec<Vec<usize>>,
) {
    let Some(last) = way.last().copied() else {
        return;
    };
    let mut nexts: Vec<usize> = graph.edges_from(last).iter().map(|e| e.to).collect();
    nexts.dedup();
    for next in nexts {
        if ways.len() > 1 {
            return;
        }
        let may_pass = !is_hooked.get(next).copied().unwrap_or(true) && !way.contains(&next);
        if next != end && !may_pass {
            continue;
        }
        way.push(next);
        match next == end {
            true => ways.push(way.clone()),
            false => find_ways(graph, is_hooked, end, way, ways),
        }
        way.pop();
    }
}

fn meant(
    dictionary: &Dictionary,
    is_meant: &dyn Fn(&Function, &Module) -> bool,
) -> HashSet<FunctionId> {
    let of = |(number, function): (usize, &Function)| {
        let module = dictionary.module(function.module)?;
        is_meant(function, module).then_some(FunctionId(number as u32))
    };
    let functions = dictionary.functions.iter().enumerate();
    functions.filter_map(of).collect()
}

/// Functions of the trace that are blocks of the one that is meant, or of its parts.
fn blocks(dictionary: &Dictionary, meant: &HashSet<FunctionId>) -> HashMap<FunctionId, String> {
    let names = meant.iter().filter_map(|id| dictionary.function(*id));
    let names: Vec<&Function> = names.collect();
    let is_block = |function: &Function| {
        let (part, _) = function.symbol.rsplit_once("+0x")?;
        let of = |f: &&&Function| {
            let rest = part.strip_prefix(f.symbol.as_str());
            f.module == function.module && rest.is_some_and(|r| r.is_empty() || r.starts_with('.'))
        };
        names.iter().find(of).map(|_| ())
    };
    let functions = dictionary.functions.iter().enumerate();
    functions
        .filter(|(_, function)| is_block(function).is_some())
        .map(|(number, function)| (FunctionId(number as u32), function.symbol.clone()))
        .collect()
}

/// A frame that is open.
struct Open {
    is_meant: bool,
    is_block: bool,
    /// The block that it has executed last.
    last: Option<FunctionId>,
}

struct View<'a> {
    dictionary: &'a Dictionary,
    meant: HashSet<FunctionId>,
    blocks: HashMap<FunctionId, String>,
    open: HashMap<StreamId, Vec<Open>>,
    counts: Counts,
}

impl View<'_> {
    fn block(&mut self, before: Option<FunctionId>, block: FunctionId) {
        let Some(symbol) = self.blocks.get(&block) else {
            return;
        };
        *self.counts.blocks.entry(symbol.clone()).or_default() += 1;
        if let Some(before) = before.and_then(|id| self.blocks.get(&id)) {
            let key = (before.clone(), symbol.clone());
            *self.counts.edges.entry(key).or_default() += 1;
        }
    }

    fn callee(&mut self, callee: FunctionId) {
        let name = self.dictionary.function(callee).map(|f| &f.symbol);
        if let Some(name) = name {
            *self
                .counts
                .callees
                .entry(bare(name).to_owned())
                .or_default() += 1;
        }
    }
}

/// A name without the version that an import has.
pub fn bare(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

impl Visitor for View<'_> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        let (is_meant, is_block) = (
            self.meant.contains(&frame.function),
            self.blocks.contains_key(&frame.function),
        );
        let open = self.open.entry(stream).or_default();
        let below_block = open.last().is_some_and(|f| f.is_block);
        let at = match below_block {
            true => open.len().checked_sub(2),
            false => open.len().checked_sub(1),
        };
        let around = at.and_then(|at| open.get_mut(at)).filter(|f| f.is_meant);
        let is_around = around.is_some();
        let mut before = None;
        if let Some(around) = around.filter(|_| is_block) {
            before = around.last.replace(frame.function);
        }
        open.push(Open {
            is_meant,
            is_block,
            last: None,
        });
        match (is_block, is_around) {
            (true, _) => self.block(before, frame.function),
            (false, true) => self.callee(frame.function),
            _ => {}
        }
        self.counts.calls += u64::from(is_meant);
    }

    fn leave(&mut self, stream: StreamId, _frame: &Frame) {
        if let Some(open) = self.open.get_mut(&stream) {
            open.pop();
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.leave(stream, frame);
    }
}
