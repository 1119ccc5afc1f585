//! The graph of a function of a file, from what the analysis of the whole file has found.
//!
//! Given an image and which function is meant; gives the analysis, and the graph. Jump tables,
//! functions that never return, and places where exceptions are caught are those of the analysis.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use sptrace_addr::Svma;
use sptrace_image::Object;

use super::Graph;
use super::build::{Code, Targets, build};
use crate::analyze::analyze_and;
use crate::classify::Classes;
use crate::discover::Discovery;
use crate::follow::IndirectJump;
use crate::history::History;
use crate::model::{Analysis, FunctionFlags};
use crate::noreturn::is_noreturn_import;

/// As [`crate::analyze`], with the graph of the function whose index `wanted` gives.
pub fn analyze_with_graph(
    object: &Object<'_>,
    wanted: &dyn Fn(&Analysis) -> Option<usize>,
) -> (Analysis, Option<Graph>) {
    analyze_and(object, |analysis, discovery, classes| {
        let parts = parts_of(analysis, wanted(analysis)?);
        let code = Image {
            object,
            discovery,
            classes,
        };
        let ranges: Vec<_> = parts
            .iter()
            .map(|index| &analysis.functions[*index])
            .map(|function| function.entry.0..function.end.0)
            .collect();
        let is_inside = |at: &u64| ranges.iter().any(|range| range.contains(at));
        let pads = object.unwind.landing_pads();
        let caught: Vec<u64> = pads.iter().map(|p| p.pad.0).filter(is_inside).collect();
        let leaders: Vec<u64> = parts.iter().flat_map(|i| code.leaders(*i)).collect();
        Some(build(&code, &ranges, &caught, &leaders))
    })
}

/// A function, and the parts of it that are kept elsewhere.
pub fn parts_of(analysis: &Analysis, function: usize) -> Vec<usize> {
    let mut found = vec![function];
    let mut seen = BTreeSet::from([function]);
    let mut next = 0;
    while let Some(index) = found.get(next).copied() {
        next += 1;
        let Some(from) = analysis.functions.get(index) else {
            continue;
        };
        for link in analysis.links_of(from).iter().map(|link| *link as usize) {
            let part = analysis.functions.get(link);
            let is_part = part.is_some_and(|f| f.flags.contains(FunctionFlags::COLD_PART));
            if is_part && seen.insert(link) {
                found.push(link);
            }
        }
    }
    found
}

struct Image<'a, 'data> {
    object: &'a Object<'data>,
    discovery: &'a Discovery,
    classes: &'a Classes,
}

impl Image<'_, '_> {
    /// Where blocks of a function begin, as far as the analysis of the file knows.
    fn leaders(&self, function: usize) -> Vec<u64> {
        let region = &self.discovery.regions[function];
        let is_leader = |at: &u64| {
            let bit = at.wrapping_add(region.delta);
            self.discovery.leaders.get(bit) && self.discovery.reached.get(bit)
        };
        (region.start..region.end).filter(is_leader).collect()
    }
}

impl Code for Image<'_, '_> {
    fn decode(&self, at: u64) -> Option<Instruction> {
        let bytes = self.object.code_from(Svma(at))?;
        let bytes = &bytes[..bytes.len().min(15)];
        Some(Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode())
    }

    fn targets(&self, jump: &Instruction, _history: &History) -> Targets {
        match self.classes.indirect_jump(jump.ip()) {
            Some(IndirectJump::Table) => {}
            Some(IndirectJump::Pointer) => return Targets::Pointer,
            _ => return Targets::Unknown,
        }
        let tables = &self.discovery.tables;
        let first = tables.partition_point(|table| table.jump < jump.ip());
        let own = tables[first..].iter().take_while(|t| t.jump == jump.ip());
        let entries = own.flat_map(|t| {
            (0..u64::from(t.entries)).filter_map(|index| t.table.target(self.object, index))
        });
        Targets::Table(entries.collect())
    }

    fn returns(&self, call: &Instruction) -> bool {
        if call.is_call_near() {
            let target = call.near_branch_target();
            return !self.classes.never_returns(self.discovery, target);
        }
        let name = call
            .is_ip_rel_memory_operand()
            .then(|| self.object.slot_name(Svma(call.ip_rel_memory_address())));
        !name.flatten().is_some_and(is_noreturn_import)
    }

    fn goes_on_after(&self, _trap: &Instruction) -> bool {
        false
    }

    fn is_return(&self, _target: u64) -> bool {
        false
    }
}
