//! Where a function's graph is hooked: which addresses, and what it means that control is there.
//!
//! Given a graph and a strategy; gives hooks. A pre-hook stands at a block's first instruction, a
//! post-hook at its last one, which is executed after it. A block of one instruction has one hook
//! for both.
//!
//! Must not know: how a hook is made.

use super::wanted::Strategy;
use sptrace_code::graph::{Block, Exit, Graph};
use std::collections::BTreeMap;

/// What it means that control comes to a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hook {
    /// This block begins.
    pub begins: Option<usize>,
    /// This block ends.
    pub ends: Option<usize>,
    /// The function is entered.
    pub enters: bool,
    /// The function is left.
    pub leaves: bool,
}

/// The hooks, by address.
///
/// # Errors
/// The first offset that lies in no block.
pub fn hooks(graph: &Graph, strategy: &Strategy) -> Result<BTreeMap<u64, Hook>, u64> {
    let mut hooks: BTreeMap<u64, Hook> = BTreeMap::new();
    let entry = graph.entry();
    let is_function = !matches!(strategy, Strategy::Only(_));
    let chosen = chosen(graph, strategy)?;
    for index in chosen {
        let Some(block) = graph.blocks.get(index) else {
            continue;
        };
        let is_entry = is_function && block.start == entry;
        let leaves = is_function && is_left_at_end(graph, index, block);
        if *strategy != Strategy::Exits || is_entry {
            let pre = hooks.entry(block.start).or_default();
            // Of a call whose blocks are not followed, the first one's end would not be seen.
            pre.begins = (*strategy != Strategy::Exits).then_some(index);
            pre.enters = is_entry;
        }
        if leaves || !is_function {
            let post = hooks.entry(block.last).or_default();
            (post.ends, post.leaves) = (Some(index), leaves);
        }
    }
    Ok(hooks)
}

fn chosen(graph: &Graph, strategy: &Strategy) -> Result<Vec<usize>, u64> {
    let all = 0..graph.blocks.len();
    let Strategy::Only(offsets) = strategy else {
        return Ok(all.collect());
    };
    let of = |offset: &u64| {
        let at = graph.entry().wrapping_add(*offset);
        let holds = |block: &Block| (block.start..block.end).contains(&at);
        graph.blocks.iter().position(holds).ok_or(*offset)
    };
    offsets.iter().map(of).collect()
}

/// A jump that leaves the function if a condition is met says nothing when it is executed; nor does
/// what ends in a trap, which cannot be hooked.
fn is_left_at_end(graph: &Graph, index: usize, block: &Block) -> bool {
    let leaves = matches!(block.exit, Some(Exit::Return | Exit::Jump(_)));
    leaves && graph.edges_from(index).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_code::graph::{Edge, EdgeKind};

    /// 0x10 leads to 0x20 and 0x30, 0x20 to 0x30, which returns at once.
    fn graph() -> Graph {
        let block = |start, last, end, exit| Block {
            start,
            end,
            last,
            first: String::new(),
            instructions: 2,
            calls: Vec::new(),
            exit,
            table_entries: None,
            is_entered: start == 0x10,
        };
        let edge = |from, to| Edge {
            from,
            to,
            kind: EdgeKind::Taken,
        };
        Graph {
            ranges: vec![0x10..0x40],
            blocks: vec![
                block(0x10, 0x18, 0x20, None),
                block(0x20, 0x28, 0x30, None),
                block(0x30, 0x30, 0x31, Some(Exit::Return)),
            ],
            edges: vec![edge(0, 1), edge(0, 2), edge(1, 2)],
            unreached_bytes: 0,
        }
    }

    #[test]
    fn a_path_hooks_all_beginnings_and_the_exits_ends() {
        let hooks = hooks(&graph(), &Strategy::Path).unwrap();
        assert_eq!(
            hooks.keys().copied().collect::<Vec<_>>(),
            [0x10, 0x20, 0x30]
        );
        assert!(hooks[&0x10].enters && !hooks[&0x20].leaves);
        let both = hooks[&0x30];
        assert_eq!(
            (both.begins, both.ends, both.leaves),
            (Some(2), Some(2), true)
        );
    }

    #[test]
    fn exits_hook_the_entry_and_what_leaves() {
        let hooks = hooks(&graph(), &Strategy::Exits).unwrap();
        assert_eq!(hooks.keys().copied().collect::<Vec<_>>(), [0x10, 0x30]);
        assert_eq!((hooks[&0x30].begins, hooks[&0x30].ends), (None, Some(2)));
    }

    #[test]
    fn chosen_blocks_are_hooked_before_and_after() {
        let hooks = hooks(&graph(), &Strategy::Only(vec![0x14])).unwrap();
        assert_eq!(hooks.keys().copied().collect::<Vec<_>>(), [0x20, 0x28]);
        assert!(!hooks[&0x20].enters);
        assert_eq!(
            super::hooks(&graph(), &Strategy::Only(vec![0x99])),
            Err(0x99)
        );
    }
}
