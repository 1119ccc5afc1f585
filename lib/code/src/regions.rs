//! Regions: the disjoint ranges of code that become functions.
//!
//! Starts come from FDEs, function symbols, the entry point, start-up arrays, and later from call
//! and jump targets. A region ends where its FDE or symbol says, at the latest at the next start.
//! Knows nothing of instructions.

use sptrace_addr::Svma;
use sptrace_image::{Object, SymbolKind};

use crate::bits::CodeMap;

/// One region and what was seen while following it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    /// What to add to an address to get its bit.
    pub delta: u64,
    /// Start of the FDE that covers the region's start.
    pub fde_start: Option<u64>,
    /// The region starts where its FDE does, and that FDE begins with CFA = rsp+8.
    pub entry_like: bool,
    /// It was followed at least once.
    pub followed: bool,
    pub seen: Seen,
}

/// What following a region showed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub returns: bool,
    /// By a `ret imm16`.
    pub pops: bool,
    /// Left by an indirect jump that is no table.
    pub leaves_indirectly: bool,
    pub below_rsp: bool,
    /// That of an array counted from rsp could be.
    pub element_below_rsp: bool,
    pub uses_gs: bool,
    pub sets_gs: bool,
    /// It has tables of differences of its labels.
    pub computed_gotos: bool,
    pub broken_paths: u32,
    pub frame: FrameUse,
}

/// Use of the frame: to tell whether it lies below rsp, and whether the return address is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameUse {
    pub sets_rbp: bool,
    pub lowers_rsp: bool,
    pub pushes: u32,
    /// Deepest displacement from rbp, as a positive number of bytes.
    pub deepest_bytes: u64,
    /// By how much immediates lower rsp, all together.
    pub lowered_bytes: u64,
    /// Bit n: eight bytes at rsp + 8 n are loaded into a register.
    pub loads_from_rsp: u128,
    /// The farthest of those that have no bit.
    pub farthest_load_bytes: u64,
    /// Eight bytes at rbp + 8 are.
    pub loads_above_rbp: bool,
}

impl FrameUse {
    /// The word above everything that is pushed and reserved is loaded. Where a function has
    /// several prologues it is not found.
    pub fn reads_return(&self) -> bool {
        let depth_bytes = (8 * u64::from(self.pushes)).saturating_add(self.lowered_bytes);
        let by_rsp = match depth_bytes / 8 {
            words @ 0..128 => self.loads_from_rsp >> words & 1 != 0,
            _ => self.farthest_load_bytes == depth_bytes,
        };
        by_rsp || self.sets_rbp && self.loads_above_rbp
    }
}

impl Seen {
    pub fn merge(&mut self, other: &Self) {
        self.returns |= other.returns;
        self.pops |= other.pops;
        self.leaves_indirectly |= other.leaves_indirectly;
        self.below_rsp |= other.below_rsp;
        self.element_below_rsp |= other.element_below_rsp;
        self.uses_gs |= other.uses_gs;
        self.sets_gs |= other.sets_gs;
        self.computed_gotos |= other.computed_gotos;
        self.broken_paths += other.broken_paths;
        self.frame.sets_rbp |= other.frame.sets_rbp;
        self.frame.lowers_rsp |= other.frame.lowers_rsp;
        self.frame.pushes += other.frame.pushes;
        let lowered = &mut self.frame.lowered_bytes;
        *lowered = lowered.saturating_add(other.frame.lowered_bytes);
        self.frame.loads_from_rsp |= other.frame.loads_from_rsp;
        let farthest = &mut self.frame.farthest_load_bytes;
        *farthest = (*farthest).max(other.frame.farthest_load_bytes);
        self.frame.loads_above_rbp |= other.frame.loads_above_rbp;
        self.frame.deepest_bytes = self.frame.deepest_bytes.max(other.frame.deepest_bytes);
    }

    /// The push of rbp itself lies above the frame.
    pub fn uses_red_zone(&self) -> bool {
        let frame = &self.frame;
        let pushed_bytes = 8 * u64::from(frame.pushes.saturating_sub(1));
        let below = frame.sets_rbp && !frame.lowers_rsp && frame.deepest_bytes > pushed_bytes;
        self.below_rsp || below || self.element_below_rsp && !frame.lowers_rsp
    }
}

/// Index in `regions` of the one that holds `svma`.
pub(crate) fn region_at(regions: &[Region], svma: u64) -> Option<usize> {
    let index = regions
        .partition_point(|r| r.start <= svma)
        .checked_sub(1)?;
    (svma < regions[index].end).then_some(index)
}

/// Index in `regions` of the one that starts at `svma`.
pub(crate) fn region_starting_at(regions: &[Region], svma: u64) -> Option<usize> {
    regions.binary_search_by_key(&svma, |r| r.start).ok()
}

/// The regions that the file itself states.
pub(crate) fn stated_regions(object: &Object<'_>, map: &CodeMap) -> Vec<Region> {
    let functions = object
        .symbols
        .iter()
        .filter(|s| s.kind != SymbolKind::Label)
        .map(|s| {
            (
                s.svma,
                s.svma
                    .0
                    .checked_add(s.size_bytes)
                    .filter(|_| s.size_bytes > 0),
            )
        });
    let mut starts: Vec<(u64, Option<u64>)> = object
        .unwind
        .fdes()
        .iter()
        .map(|f| (f.start, Some(f.end.0)))
        .chain(functions)
        .chain(object.start_functions.iter().map(|s| (*s, None)))
        .chain([(object.entry, None)])
        .filter(|(start, _)| is_function_code(object, *start))
        .map(|(start, end)| (start.0, end))
        .collect();
    // Of several stated ends the farthest counts: it is cut at the next start anyway.
    starts.sort_unstable_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
    starts.dedup_by_key(|(start, _)| *start);
    let mut regions: Vec<Region> = starts
        .iter()
        .filter_map(|(start, end)| region(object, map, *start, *end))
        .collect();
    cut_at_next(&mut regions);
    regions
}

/// Adds regions that start at `starts`, which no stated region does; cuts those that they lie in.
/// Gives the starts of all regions to follow anew.
pub(crate) fn add_regions(
    object: &Object<'_>,
    map: &CodeMap,
    regions: &mut Vec<Region>,
    starts: &[u64],
) -> Vec<u64> {
    let mut changed = Vec::new();
    let mut added = Vec::new();
    for &start in starts {
        let end = region_at(regions, start).map(|index| {
            changed.push(regions[index].start);
            regions[index].end
        });
        added.extend(region(object, map, start, end));
    }
    changed.extend(added.iter().map(|r| r.start));
    regions.append(&mut added);
    regions.sort_by_key(|r| r.start);
    cut_at_next(regions);
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Code that may belong to a function: a PLT does not.
pub(crate) fn is_function_code(object: &Object<'_>, svma: Svma) -> bool {
    object.code_range_at(svma).is_some_and(|r| !r.is_plt) && object.plt_stub_at(svma).is_none()
}

fn region(object: &Object<'_>, map: &CodeMap, start: u64, end: Option<u64>) -> Option<Region> {
    let range = object.code_range_at(Svma(start))?;
    let fde = object.unwind.fde_at(Svma(start));
    let stated_end = end
        .into_iter()
        .chain(fde.map(|f| f.end.0))
        .max()
        .unwrap_or(u64::MAX);
    Some(Region {
        start,
        end: stated_end.min(range.end().0),
        delta: map.delta_at(start)?,
        fde_start: fde.map(|f| f.start.0),
        entry_like: fde.is_some_and(|f| f.start.0 == start && f.entry_like),
        ..Region::default()
    })
}

fn cut_at_next(regions: &mut [Region]) {
    for index in 1..regions.len() {
        let next_start = regions[index].start;
        let before = &mut regions[index - 1];
        before.end = before.end.min(next_start);
    }
}
