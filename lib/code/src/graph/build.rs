//! Following control through one function's code, block by block.
//!
//! Given what the code around knows ([`Code`]); gives the graph. First every instruction that
//! control reaches is decoded once, which shows where blocks begin; then the blocks are read off in
//! the order of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Code as Form, FastFormatter, FlowControl, Instruction, Mnemonic, OpKind};

use super::{Block, Call, Edge, EdgeKind, Exit, Graph};
use crate::history::History;

/// Where an indirect jump leads.
pub(super) enum Targets {
    /// Through a table, whose entries these are.
    Table(Vec<u64>),
    /// Through a pointer, to another function.
    Pointer,
    Unknown,
}

/// What is known of the code around.
pub(super) trait Code {
    /// The instruction at an address of the ranges.
    fn decode(&self, at: u64) -> Option<Instruction>;
    fn targets(&self, jump: &Instruction, history: &History) -> Targets;
    fn returns(&self, call: &Instruction) -> bool;
    /// A handler may go on behind this trap.
    fn goes_on_after(&self, trap: &Instruction) -> bool;
    /// A branch that is switched stands here; where it leads when it is on.
    fn switch(&self, _at: u64) -> Option<u64> {
        None
    }
    /// Control goes on there if this instruction faults.
    fn fixup(&self, _at: u64) -> Option<u64> {
        None
    }
    /// A jump to this address, outside of the function, is how it returns.
    fn is_return(&self, target: u64) -> bool;
}

/// How an instruction ends a block.
#[derive(Default)]
struct Ending {
    /// In the function, and how control comes there.
    next: Vec<(u64, EdgeKind)>,
    exit: Option<Exit>,
    table_entries: Option<u32>,
}

/// The graph of the function whose code lies in `ranges`, entered at the first one's beginning and
/// at `entered`. Blocks also begin at `leaders`, as far as instructions do.
pub(super) fn build(
    code: &dyn Code,
    ranges: &[Range<u64>],
    entered: &[u64],
    leaders: &[u64],
) -> Graph {
    let mut walk = Walk {
        code,
        ranges,
        reached: BTreeMap::new(),
        endings: BTreeMap::new(),
        fixups: BTreeMap::new(),
        leaders: leaders.iter().copied().collect(),
        waiting: Vec::new(),
    };
    let entry = ranges.first().map(|range| range.start);
    let entered: BTreeSet<u64> = entry.iter().chain(entered).copied().collect();
    for root in &entered {
        walk.leaders.insert(*root);
        walk.waiting.push((*root, History::default()));
    }
    while let Some((at, history)) = walk.waiting.pop() {
        walk.follow(at, history);
    }
    walk.graph(&entered)
}

struct Walk<'a> {
    code: &'a dyn Code,
    ranges: &'a [Range<u64>],
    /// Instructions that control reaches.
    reached: BTreeMap<u64, Instruction>,
    /// Of the instructions that end a block.
    endings: BTreeMap<u64, Ending>,
    /// Where control goes on if an instruction faults.
    fixups: BTreeMap<u64, u64>,
    leaders: BTreeSet<u64>,
    waiting: Vec<(u64, History)>,
}

impl Walk<'_> {
    fn contains(&self, at: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&at))
    }

    fn follow(&mut self, start: u64, mut history: History) {
        let mut at = start;
        while self.contains(at) && !self.reached.contains_key(&at) {
            let decoded = self.code.decode(at).filter(|i| !i.is_invalid());
            let Some(instruction) = decoded else {
                return;
            };
            history.push(at);
            self.reached.insert(at, instruction);
            if let Some(fixup) = self.code.fixup(at).filter(|to| self.contains(*to)) {
                self.fixups.insert(at, fixup);
                self.leaders.insert(fixup);
                self.waiting.push((fixup, history));
            }
            if let Some(ending) = self.ending(&instruction, &history) {
                for (next, _) in &ending.next {
                    self.leaders.insert(*next);
                    self.waiting.push((*next, history));
                }
                self.endings.insert(at, ending);
                return;
            }
            at = instruction.next_ip();
        }
    }

    /// `None`: control goes on to the next instruction of the block.
    fn ending(&self, instruction: &Instruction, history: &History) -> Option<Ending> {
        let next = instruction.next_ip();
        let mut ending = Ending::default();
        if let Some(target) = self.code.switch(instruction.ip()) {
            self.switch(instruction, target, &mut ending);
            return Some(ending);
        }
        match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => {
                self.trap(instruction, &mut ending);
            }
            FlowControl::Next => return None,
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                if instruction.op0_kind() != OpKind::NearBranch64 {
                    return None;
                }
                self.lead(
                    instruction.near_branch_target(),
                    EdgeKind::Taken,
                    &mut ending,
                );
                self.lead(next, EdgeKind::Falls, &mut ending);
            }
            FlowControl::UnconditionalBranch => {
                self.lead(
                    instruction.near_branch_target(),
                    EdgeKind::Jumps,
                    &mut ending,
                );
            }
            FlowControl::IndirectBranch => self.indirect(instruction, history, &mut ending),
            FlowControl::Return => ending.exit = Some(Exit::Return),
            FlowControl::Call | FlowControl::IndirectCall => {
                if self.code.returns(instruction) {
                    return None;
                }
                ending.exit = Some(Exit::NoReturn);
            }
            FlowControl::Interrupt => {
                if !matches!(instruction.code(), Form::Int3 | Form::Int1) {
                    return None;
                }
                self.trap(instruction, &mut ending);
            }
            FlowControl::Exception => self.trap(instruction, &mut ending),
        }
        Some(ending)
    }

    /// To a block of the function, or out of it.
    fn lead(&self, target: u64, kind: EdgeKind, ending: &mut Ending) {
        if self.contains(target) {
            ending.next.push((target, kind));
        } else if kind == EdgeKind::Falls {
            ending.exit = Some(Exit::Broken);
        } else if self.code.is_return(target) {
            ending.exit = Some(Exit::Return);
        } else {
            ending.exit = Some(Exit::Jump(Some(target)));
        }
    }

    /// Now it is a jump, or does nothing; it may be changed at any time.
    fn switch(&self, instruction: &Instruction, target: u64, ending: &mut Ending) {
        let is_on = instruction.flow_control() == FlowControl::UnconditionalBranch;
        let (now, other) = match is_on {
            true => ((target, EdgeKind::Jumps), instruction.next_ip()),
            false => ((instruction.next_ip(), EdgeKind::Falls), target),
        };
        self.lead(now.0, now.1, ending);
        self.lead(other, EdgeKind::Switch, ending);
    }

    fn trap(&self, instruction: &Instruction, ending: &mut Ending) {
        ending.exit = Some(Exit::Trap);
        let next = instruction.next_ip();
        if self.contains(next) && self.code.goes_on_after(instruction) {
            ending.next.push((next, EdgeKind::Trap));
        }
    }

    fn indirect(&self, jump: &Instruction, history: &History, ending: &mut Ending) {
        match self.code.targets(jump, history) {
            Targets::Table(targets) => {
                ending.table_entries = Some(targets.len() as u32);
                let distinct: BTreeSet<u64> = targets.into_iter().collect();
                for target in distinct {
                    self.lead(target, EdgeKind::Table, ending);
                }
            }
            Targets::Pointer => ending.exit = Some(Exit::Jump(None)),
            Targets::Unknown => ending.exit = Some(Exit::Unresolved),
        }
    }

    fn graph(mut self, entered: &BTreeSet<u64>) -> Graph {
        let endings = std::mem::take(&mut self.endings);
        let mut graph = Graph {
            ranges: self.ranges.to_vec(),
            unreached_bytes: self.unreached_bytes(),
            ..Graph::default()
        };
        let mut goes_to: Vec<Vec<(u64, EdgeKind)>> = Vec::new();
        let mut current: Option<Block> = None;
        let mut faults: Vec<(usize, u64)> = Vec::new();
        for (at, instruction) in &self.reached {
            let goes_on = current.as_ref().is_some_and(|b| b.end == *at);
            if let Some(before) = current.take_if(|_| !goes_on || self.leaders.contains(at)) {
                let falls = goes_on.then_some((*at, EdgeKind::Falls));
                finish(
                    &mut graph,
                    &mut goes_to,
                    before,
                    falls.into_iter().collect(),
                );
            }
            let begin = || begun(instruction, entered.contains(at));
            let mut block = current.take().unwrap_or_else(begin);
            block.last = *at;
            block.end = instruction.next_ip();
            block.instructions += 1;
            block.calls.extend(call(instruction));
            faults.extend(self.fixups.get(at).map(|to| (goes_to.len(), *to)));
            match endings.get(at) {
                None => current = Some(block),
                Some(ending) => {
                    (block.exit, block.table_entries) = (ending.exit, ending.table_entries);
                    finish(&mut graph, &mut goes_to, block, ending.next.clone());
                }
            }
        }
        if let Some(last) = current {
            finish(&mut graph, &mut goes_to, last, Vec::new());
        }
        for (from, fixup) in faults {
            if let Some(next) = goes_to.get_mut(from) {
                next.push((fixup, EdgeKind::Fault));
            }
        }
        for (from, next) in goes_to.into_iter().enumerate() {
            let to = next.into_iter().filter_map(|(at, kind)| {
                let to = graph.block_at(at)?;
                Some(Edge { from, to, kind })
            });
            let to: Vec<Edge> = to.collect();
            graph.edges.extend(to);
        }
        graph.edges.sort_unstable();
        graph.edges.dedup();
        graph
    }

    /// What was not reached, but for bytes that fill the space between blocks.
    fn unreached_bytes(&self) -> u64 {
        let mut unreached = 0;
        for range in self.ranges {
            let mut at = range.start;
            while at < range.end {
                if let Some(reached) = self.reached.get(&at) {
                    at = reached.next_ip();
                    continue;
                }
                let Some(instruction) = self.code.decode(at).filter(|i| !i.is_invalid()) else {
                    unreached += 1;
                    at += 1;
                    continue;
                };
                let is_filling = matches!(
                    instruction.mnemonic(),
                    Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Ud2
                );
                unreached += if is_filling {
                    0
                } else {
                    instruction.len() as u64
                };
                at = instruction.next_ip();
            }
        }
        unreached
    }
}

fn begun(first: &Instruction, is_entered: bool) -> Block {
    let start = first.ip();
    let mut words = String::new();
    FastFormatter::new().format(first, &mut words);
    Block {
        start,
        first: words,
        end: start,
        last: start,
        instructions: 0,
        calls: Vec::new(),
        exit: None,
        table_entries: None,
        is_entered,
    }
}

/// A block that leads nowhere, and does not leave the function either, could not be followed.
fn finish(
    graph: &mut Graph,
    goes_to: &mut Vec<Vec<(u64, EdgeKind)>>,
    mut block: Block,
    next: Vec<(u64, EdgeKind)>,
) {
    if next.is_empty() && block.exit.is_none() {
        block.exit = Some(Exit::Broken);
    }
    graph.blocks.push(block);
    goes_to.push(next);
}

/// iced counts `syscall` and its kin as calls.
fn call(instruction: &Instruction) -> Option<Call> {
    let target = instruction
        .is_call_near()
        .then(|| instruction.near_branch_target());
    let is_call = target.is_some() || instruction.is_call_near_indirect();
    let is_next = target == Some(instruction.next_ip());
    (is_call && !is_next).then(|| Call {
        at: instruction.ip(),
        target,
    })
}
