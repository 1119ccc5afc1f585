//! What each region is: a function, or a part of others; whether it returns; whom it links to.
//!
//! Judges by evidence gathered over the whole image. Knows nothing of instructions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sptrace_addr::Svma;
use sptrace_image::{Object, ObjectKind, SymbolKind};

use crate::discover::{Discovery, sort_unique};
use crate::follow::{Edge, EdgeKind, IndirectJump};
use crate::parallel::map_chunks;
use crate::regions::{Region, region_at};

/// Bytes of unwind entries that may be read to judge indirect jumps: a hostile file may make many
/// jumps share one long entry.
const UNWIND_BUDGET_BYTES: u64 = 64 << 20;

/// What each region is, by its index.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    cold: Vec<bool>,
    sure: Vec<bool>,
    no_return: Vec<bool>,
    suspect: Vec<bool>,
    /// The region's last instruction goes on into the next region.
    falls_on: Vec<bool>,
    indirect_jumps: Vec<(u64, IndirectJump)>,
    /// Pairs of region and linked region, sorted.
    pub links: Vec<(u32, u32)>,
    pub jump_tables: u64,
    pub unresolved_jumps: u64,
}

impl Classes {
    pub fn is_cold(&self, index: usize) -> bool {
        self.cold[index]
    }
    pub fn is_sure_entry(&self, index: usize) -> bool {
        self.sure[index]
    }
    pub fn is_no_return(&self, index: usize) -> bool {
        self.no_return[index]
    }
    pub fn is_suspect(&self, index: usize) -> bool {
        self.suspect[index]
    }
    pub fn falls_on(&self, index: usize) -> bool {
        self.falls_on[index]
    }

    pub fn indirect_jump(&self, svma: u64) -> Option<IndirectJump> {
        let index = self
            .indirect_jumps
            .binary_search_by_key(&svma, |jump| jump.0)
            .ok()?;
        Some(self.indirect_jumps[index].1)
    }

    /// A call or jump to `target` does not come back.
    pub fn never_returns(&self, discovery: &Discovery, target: u64) -> bool {
        match discovery.region_starting_at(target) {
            Some(index) => self.no_return[index],
            None => discovery.noreturn.binary_search(&target).is_ok(),
        }
    }
}

pub(crate) fn classify(object: &Object<'_>, discovery: &Discovery) -> Classes {
    let regions = &discovery.regions;
    let mut indirect_jumps = judge_indirect_jumps(object, discovery);
    settle_computed_gotos(regions, &mut indirect_jumps);
    let edges = real_edges(object, discovery);
    let evidence = Evidence::gather(object, discovery, &edges);
    let cold: Vec<bool> = regions
        .iter()
        .enumerate()
        .map(|(index, r)| evidence.is_cold(index, r))
        .collect();
    let mut classes = Classes {
        sure: (0..regions.len())
            .map(|i| evidence.named[i] || evidence.called[i] || evidence.tail_called[i])
            .collect(),
        falls_on: vec![false; regions.len()],
        cold,
        jump_tables: count(&indirect_jumps, IndirectJump::Table),
        unresolved_jumps: count(&indirect_jumps, IndirectJump::Unresolved),
        indirect_jumps,
        ..Classes::default()
    };
    for edge in &edges {
        if matches!(edge.kind, EdgeKind::Fall | EdgeKind::FallAfterCall) {
            classes.falls_on[edge.source as usize] = true;
        }
    }
    classes.links = find_links(discovery, &classes, &edges);
    classes.no_return = find_no_return(discovery, &classes, &edges);
    classes.suspect = find_suspects(discovery, &classes);
    classes
}

fn count(jumps: &[(u64, IndirectJump)], wanted: IndirectJump) -> u64 {
    jumps.iter().filter(|(_, shape)| *shape == wanted).count() as u64
}

/// A jump through a pointer is a tail call only where the frame is that of the function's entry.
fn judge_indirect_jumps(object: &Object<'_>, discovery: &Discovery) -> Vec<(u64, IndirectJump)> {
    let spent_bytes = AtomicU64::new(0);
    let stored = stored_addresses(object);
    let judged = map_chunks(&discovery.indirect_jumps, 256, |chunk| {
        let judge = |&(svma, shape): &(u64, IndirectJump)| {
            let is_array = shape == IndirectJump::Array;
            if !is_array && shape != IndirectJump::Pointer {
                return (svma, shape);
            }
            let entry_bytes = object
                .unwind
                .fde_at(Svma(svma))
                .map_or(0, |f| f.entry_bytes as u64);
            let within_budget = spent_bytes.fetch_add(entry_bytes, Relaxed) <= UNWIND_BUDGET_BYTES;
            let in_frame =
                !within_budget || object.unwind.is_entry_frame_at(Svma(svma)) == Some(false);
            let least = if is_array { 2 } else { INTERPRETERS_LABELS };
            let judged = match in_frame {
                true if has_labels(&stored, discovery, svma, least) => IndirectJump::Table,
                true => IndirectJump::Unresolved,
                false => IndirectJump::Pointer,
            };
            (svma, judged)
        };
        chunk.iter().map(judge).collect::<Vec<_>>()
    });
    judged.into_iter().flatten().collect()
}

/// Each address of code that the image's data holds, sorted; none where relocations do not say so.
fn stored_addresses(object: &Object<'_>) -> Vec<u64> {
    let pointers = object.code_pointers.iter().map(|p| p.target.0);
    let mut stored: Vec<u64> = match object.kind {
        ObjectKind::Relocatable => pointers.collect(),
        ObjectKind::Fixed => Vec::new(),
    };
    sort_unique(&mut stored);
    stored
}

/// Labels of a function that are stored in data, at least, for a jump through any pointer to be one
/// to them. Code that computes a goto from differences of labels stores no addresses of them.
const INTERPRETERS_LABELS: usize = 16;

/// True if an array of addresses that leads to labels of the function around `svma` can lead to
/// known ones only (`goto *labels[i]`, where the array's own address was kept on the stack, as in
/// Python's interpreter), or a pointer can (`goto *code[i].label`, where an interpreter has put
/// them into what it interprets, as Ruby's does), if there are at least so many. Of an image at any
/// bias each stored address has a relocation, and what instructions form was noted: control was
/// followed from all of them.
fn has_labels(stored: &[u64], discovery: &Discovery, svma: u64, least: usize) -> bool {
    let region = region_at(&discovery.regions, svma).map(|index| &discovery.regions[index]);
    region.is_some_and(|region| {
        let first = stored.partition_point(|target| *target <= region.start);
        let end = stored.partition_point(|target| *target < region.end);
        end.saturating_sub(first) >= least
    })
}

/// A function that computes gotos keeps its labels in tables of differences and in constants; both
/// were read. Its other jumps within the frame lead to the same labels.
fn settle_computed_gotos(regions: &[Region], jumps: &mut [(u64, IndirectJump)]) {
    for (svma, shape) in jumps {
        let computes = region_at(regions, *svma).is_some_and(|i| regions[i].seen.computed_gotos);
        if *shape == IndirectJump::Unresolved && computes {
            *shape = IndirectJump::Table;
        }
    }
}

/// An [`Edge`] that can be taken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RealEdge {
    /// Index of the region that it leaves.
    source: u32,
    target: u64,
    from: u64,
    kind: EdgeKind,
}

/// Edges without those that cannot be taken; with those that exceptions take into another region.
/// Sorted by source.
fn real_edges(object: &Object<'_>, discovery: &Discovery) -> Vec<RealEdge> {
    let regions = &discovery.regions;
    let landings = object.unwind.landing_pads().iter().map(|landing| Edge {
        target: landing.pad.0,
        from: landing.function.0,
        kind: EdgeKind::Table,
    });
    let all = discovery.edges.iter().copied().chain(landings);
    let real = all.filter_map(|edge| {
        let source = region_at(regions, edge.from)?;
        let own = &regions[source];
        if (own.start..own.end).contains(&edge.target) {
            return None;
        }
        let shares_fde =
            |next: &Region| next.fde_start.is_some() && next.fde_start == own.fde_start;
        let is_real = edge.kind != EdgeKind::FallAfterCall
            || region_at(regions, edge.target).is_some_and(|next| shares_fde(&regions[next]));
        is_real.then_some(RealEdge {
            source: source as u32,
            target: edge.target,
            from: edge.from,
            kind: edge.kind,
        })
    });
    // Nearly all are: growing would take more.
    let most = discovery.edges.len() + object.unwind.landing_pads().len();
    let mut edges = Vec::with_capacity(most);
    edges.extend(real);
    edges.shrink_to_fit();
    edges.sort_unstable();
    edges
}

/// Reasons to hold a region for a function.
struct Evidence {
    named: Vec<bool>,
    named_cold: Vec<bool>,
    called: Vec<bool>,
    pointed_at: Vec<bool>,
    /// From how many other regions its start is jumped to; 2 stands for more.
    jumped_from: Vec<u8>,
    /// Jumped to after the frame of the jump's own function was taken down.
    tail_called: Vec<bool>,
}

impl Evidence {
    fn gather(object: &Object<'_>, discovery: &Discovery, edges: &[RealEdge]) -> Self {
        let count = discovery.regions.len();
        let mut all = Self {
            named: vec![false; count],
            named_cold: vec![false; count],
            called: vec![false; count],
            pointed_at: vec![false; count],
            jumped_from: vec![0; count],
            tail_called: vec![false; count],
        };
        for symbol in object
            .symbols
            .iter()
            .filter(|s| s.kind != SymbolKind::Label)
        {
            let Some(index) = discovery.region_starting_at(symbol.svma.0) else {
                continue;
            };
            let list = if is_cold_name(symbol.name) {
                &mut all.named_cold
            } else {
                &mut all.named
            };
            list[index] = true;
        }
        mark(discovery, discovery.calls.iter().copied(), &mut all.called);
        let stated = object.start_functions.iter().copied().chain([object.entry]);
        let pointers = object
            .code_pointers
            .iter()
            .map(|p| p.target)
            .chain(stated)
            .map(|s| s.0);
        mark(discovery, pointers, &mut all.pointed_at);
        mark(
            discovery,
            discovery.code_constants.iter().copied(),
            &mut all.pointed_at,
        );
        all.count_jumps(discovery, edges);
        all.find_tail_calls(object, discovery, edges);
        if object.kind == ObjectKind::Fixed {
            all.scan_data(object, discovery);
        }
        all
    }

    /// Falling into a region says nothing about what it is.
    fn count_jumps(&mut self, discovery: &Discovery, edges: &[RealEdge]) {
        let mut last_source = vec![u32::MAX; discovery.regions.len()];
        for edge in edges {
            if matches!(edge.kind, EdgeKind::Fall | EdgeKind::FallAfterCall) {
                continue;
            }
            let Some(index) = discovery.region_starting_at(edge.target) else {
                continue;
            };
            if last_source[index] != edge.source {
                last_source[index] = edge.source;
                self.jumped_from[index] = (self.jumped_from[index] + 1).min(2);
            }
        }
    }

    /// Of the starts that one other region jumps to: a part shares the frame, or its function has
    /// none; where a frame was made and is gone again, the jump is a tail call.
    fn find_tail_calls(&mut self, object: &Object<'_>, discovery: &Discovery, edges: &[RealEdge]) {
        let mut spent_bytes = 0;
        for edge in edges.iter().filter(|e| e.kind == EdgeKind::Jump) {
            let frame = &discovery.regions[edge.source as usize].seen.frame;
            let Some(target) = discovery.region_starting_at(edge.target) else {
                continue;
            };
            let is_doubtful = self.jumped_from[target] == 1 && !self.tail_called[target];
            if !is_doubtful
                || !discovery.regions[target].entry_like
                || frame.pushes == 0 && !frame.lowers_rsp
                || spent_bytes > UNWIND_BUDGET_BYTES
            {
                continue;
            }
            let from = Svma(edge.from);
            spent_bytes += object
                .unwind
                .fde_at(from)
                .map_or(0, |f| f.entry_bytes as u64);
            self.tail_called[target] = object.unwind.is_entry_frame_at(from) == Some(true);
        }
    }

    /// A fixed image has no relocations for its pointers: the data is searched for the starts that
    /// only jumps lead to.
    fn scan_data(&mut self, object: &Object<'_>, discovery: &Discovery) {
        let doubtful: HashSet<u64> = (0..discovery.regions.len())
            .filter(|i| self.jumped_from[*i] > 0 && !self.named[*i] && !self.called[*i])
            .map(|i| discovery.regions[i].start)
            .collect();
        let data = object.space.segments().iter().filter(|s| !s.executable);
        let words = data.flat_map(|s| s.bytes.chunks_exact(8));
        let words = words.filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
        let (low, high) = (
            doubtful.iter().copied().min().unwrap_or(u64::MAX),
            doubtful.iter().copied().max().unwrap_or(0),
        );
        let found = words.filter(|w| (low..=high).contains(w) && doubtful.contains(w));
        mark(discovery, found, &mut self.pointed_at);
    }

    fn is_cold(&self, index: usize, region: &Region) -> bool {
        if self.named[index] {
            return false;
        }
        if self.named_cold[index] {
            return true;
        }
        if self.called[index] || self.pointed_at[index] || self.tail_called[index] {
            return false;
        }
        let owns_fde = region.fde_start == Some(region.start);
        match self.jumped_from[index] {
            0 => owns_fde && !region.entry_like,
            1 => true,
            _ => !region.entry_like,
        }
    }
}

fn mark(discovery: &Discovery, svmas: impl Iterator<Item = u64>, list: &mut [bool]) {
    for svma in svmas {
        if let Some(index) = discovery.region_starting_at(svma) {
            list[index] = true;
        }
    }
}

/// `name.cold`, `name.cold.3`: GCC and clang name the parts they move away so.
fn is_cold_name(name: &str) -> bool {
    name.split_once(".cold")
        .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('.'))
}

/// Parts, shared tails, entries that are not sure, and every target of a conditional jump.
fn find_links(discovery: &Discovery, classes: &Classes, edges: &[RealEdge]) -> Vec<(u32, u32)> {
    let mut links: Vec<(u32, u32)> = edges
        .iter()
        .filter_map(|edge| {
            let target = region_at(&discovery.regions, edge.target)?;
            let is_tail_call = edge.kind == EdgeKind::Jump
                && discovery.regions[target].start == edge.target
                && !classes.cold[target]
                && classes.sure[target];
            (!is_tail_call).then_some((edge.source, target as u32))
        })
        .collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// A region returns if it has a return or a way out, or leads to one that returns.
fn find_no_return(discovery: &Discovery, classes: &Classes, edges: &[RealEdge]) -> Vec<bool> {
    let regions = &discovery.regions;
    let mut may_return: Vec<bool> = regions
        .iter()
        .map(|r| r.seen.returns || r.seen.broken_paths > 0 || !r.followed)
        .collect();
    for (svma, shape) in &classes.indirect_jumps {
        if *shape != IndirectJump::Table
            && let Some(index) = region_at(regions, *svma)
        {
            may_return[index] = true;
        }
    }
    let mut sources: Vec<(u32, u32)> = Vec::new();
    for edge in edges {
        match region_at(regions, edge.target) {
            Some(target) => sources.push((target as u32, edge.source)),
            None => {
                may_return[edge.source as usize] |=
                    discovery.noreturn.binary_search(&edge.target).is_err();
            }
        }
    }
    for svma in &discovery.noreturn {
        if let Some(index) = discovery.region_starting_at(*svma) {
            may_return[index] = false;
        }
    }
    for svma in &discovery.switches {
        if let Some(index) = discovery.region_starting_at(*svma) {
            may_return[index] = true;
        }
    }
    sources.sort_unstable();
    sources.dedup();
    let mut open: Vec<u32> = (0..regions.len() as u32)
        .filter(|index| may_return[*index as usize])
        .collect();
    while let Some(target) = open.pop() {
        let first = sources.partition_point(|(t, _)| *t < target);
        for (_, source) in sources[first..].iter().take_while(|(t, _)| *t == target) {
            let is_named = discovery
                .noreturn
                .binary_search(&regions[*source as usize].start)
                .is_ok();
            if !is_named && !std::mem::replace(&mut may_return[*source as usize], true) {
                open.push(*source);
            }
        }
    }
    may_return.iter().map(|may| !may).collect()
}

/// Leaders may be missing where a jump could not be resolved, in what is linked with it, and in all
/// parts of the same FDE.
fn find_suspects(discovery: &Discovery, classes: &Classes) -> Vec<bool> {
    let regions = &discovery.regions;
    let mut suspect: Vec<bool> = regions
        .iter()
        .map(|r| r.seen.broken_paths > 0 || !discovery.is_complete)
        .collect();
    for (svma, shape) in &classes.indirect_jumps {
        if *shape == IndirectJump::Unresolved
            && let Some(index) = region_at(regions, *svma)
        {
            suspect[index] = true;
        }
    }
    let origin = suspect.clone();
    for (source, target) in &classes.links {
        let (source, target) = (*source as usize, *target as usize);
        suspect[source] |= origin[target];
        suspect[target] |= origin[source];
    }
    let fdes: HashSet<u64> = regions
        .iter()
        .zip(&origin)
        .filter(|(_, s)| **s)
        .filter_map(|(r, _)| r.fde_start)
        .collect();
    for (region, suspect) in regions.iter().zip(&mut suspect) {
        *suspect |= region.fde_start.is_some_and(|start| fdes.contains(&start));
    }
    suspect
}
