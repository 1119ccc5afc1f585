//! What each stack has had in an older trace, for a differential flame graph.
//!
//! Given the older trace; gives for each stack of a newer one what the same stack had: functions
//! are the same by module and name (of several of one name in a module, by their order in it).
//! Holds the older trace's distinct stacks. Knows nothing of pictures.

use crate::paths::{Measure, Node, Paths, ROOT};
use crate::{ExportError, Source};
use sptrace_trace::{Clock, FunctionId, Names, Order, Wanted, replay};
use std::collections::HashMap;
use std::io::{Read, Seek};

/// A function as it is known across traces.
type Key = (String, String, usize);

/// The stacks of an older trace.
pub struct Baseline {
    children: HashMap<(u32, Key), u32>,
    totals: Vec<u64>,
    own: Vec<u64>,
}

impl Baseline {
    /// Of a trace, of which the same is wanted as of the newer one.
    ///
    /// # Errors
    /// The trace cannot be used.
    pub fn of<R: Read + Seek + Send>(
        source: Source<'_, R>,
        (names, clock): (&Names<'_>, Clock),
        measure: Measure,
    ) -> Result<Self, ExportError> {
        let wanted = Wanted {
            order: Order::File,
            ..source.wanted
        };
        let paths = replay(source.reader, source.survey, &wanted, Paths::default())?;
        let (nodes, keys) = (paths.nodes(), keys(names));
        let mut baseline = Self {
            children: HashMap::new(),
            totals: vec![0],
            own: vec![0],
        };
        for (index, node) in nodes.iter().enumerate().skip(1) {
            let key = keys.get(&node.function).cloned().unwrap_or_default();
            baseline.children.insert((node.parent, key), index as u32);
            baseline.own.push(node.own(measure, clock));
            baseline.totals.push(0);
        }
        for index in (0..nodes.len()).rev() {
            baseline.totals[index] = baseline.totals[index].saturating_add(baseline.own[index]);
            if index as u32 != ROOT {
                let (total, parent) = (baseline.totals[index], nodes[index].parent as usize);
                baseline.totals[parent] = baseline.totals[parent].saturating_add(total);
            }
        }
        Ok(baseline)
    }

    /// What each stack of a newer trace has had, none if it is new; and what those have had that
    /// are gone.
    pub fn of_stacks(&self, nodes: &[Node], names: &Names<'_>) -> (Vec<Option<u64>>, u64) {
        let keys = keys(names);
        let mut same: Vec<Option<u32>> = vec![None; nodes.len()];
        let mut is_gone = vec![true; self.totals.len()];
        same[ROOT as usize] = Some(ROOT);
        is_gone[ROOT as usize] = false;
        for (index, node) in nodes.iter().enumerate().skip(1) {
            let key = keys.get(&node.function).cloned().unwrap_or_default();
            let parent = same[node.parent as usize];
            let found = parent.and_then(|parent| self.children.get(&(parent, key)));
            same[index] = found.copied();
            if let Some(&found) = found {
                is_gone[found as usize] = false;
            }
        }
        let gone = self
            .own
            .iter()
            .zip(&is_gone)
            .filter(|(_, is_gone)| **is_gone);
        let gone = gone.fold(0_u64, |sum, (own, _)| sum.saturating_add(*own));
        let had = same
            .into_iter()
            .map(|same| same.map(|at| self.totals[at as usize]));
        (had.collect(), gone)
    }
}

fn keys(names: &Names<'_>) -> HashMap<FunctionId, Key> {
    let functions = &names.dictionary().functions;
    let mut order: Vec<_> = (0..functions.len() as u32).map(FunctionId).collect();
    order.sort_by_key(|id| functions[id.0 as usize].svma);
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let mut keys = HashMap::new();
    for id in order {
        let (module, name) = (names.module(id).to_owned(), names.name(id).to_owned());
        let number = seen.entry((module.clone(), name.clone())).or_default();
        keys.insert(id, (module, name, *number));
        *number += 1;
    }
    keys
}
