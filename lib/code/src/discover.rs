//! Finding all reachable code: rounds of following regions until nothing new appears.
//!
//! A round follows regions in parallel; what it found (call targets, jumps to code that no region
//! owns, jumps into the middle of others, tables) gives the next round's regions and roots. The
//! number of rounds is bounded; code that is still open then is marked by the caller.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use sptrace_addr::Svma;
use sptrace_image::{Object, ObjectKind, SymbolKind};

use crate::bits::{CodeBits, CodeMap};
use crate::follow::{Context, Edge, Found, IndirectJump, PendingTable, follow};
use crate::noreturn::{is_noreturn_definition, is_noreturn_import, is_switch};
use crate::parallel::map_chunks;
use crate::regions::{
    Region, Seen, add_regions, is_function_code, region_at, region_starting_at, stated_regions,
};
use crate::sweep::Sweep;
use crate::tables::{JumpTable, Table, TableForm, is_entry};

/// Compiled programs with unwind ranges need two to four. Without them a function is found in the
/// round after its caller, so that there are as many as a chain of calls has links that nothing
/// else tells of (Chromium: 110).
const MOST_ROUNDS: usize = 1024;
/// How often the whole code may be followed, all rounds together: a hostile file may have each
/// round split a large region.
const MOST_FOLLOWS: u64 = 64;
const REGIONS_PER_CHUNK: usize = 64;
/// What compilers align functions to.
const FUNCTION_ALIGNMENT: u64 = 16;
/// Entries of a table whose length no comparison tells.
const MOST_OPEN_ENTRIES: u64 = 4096;

/// Everything that following found.
pub(crate) struct Discovery {
    pub regions: Vec<Region>,
    pub reached: CodeBits,
    pub leaders: CodeBits,
    /// Sorted by target.
    pub edges: Vec<Edge>,
    /// Targets of calls, sorted.
    pub calls: Vec<u64>,
    /// Addresses of code formed by instructions, sorted.
    pub code_constants: Vec<u64>,
    /// Sorted by address.
    pub indirect_jumps: Vec<(u64, IndirectJump)>,
    /// Sorted by the jump.
    pub tables: Vec<JumpTable>,
    /// Functions named as never returning, sorted.
    pub noreturn: Vec<u64>,
    /// Entries whose callers go on though nothing shows that: see [`is_switch`].
    pub switches: Vec<u64>,
    /// Nothing was left open.
    pub is_complete: bool,
    sweep: Sweep,
}

pub(crate) fn discover(object: &Object<'_>) -> Discovery {
    let map = CodeMap::new(&object.code_ranges);
    let mut d = Discovery {
        regions: stated_regions(object, &map),
        reached: map.bits(),
        leaders: map.bits(),
        edges: Vec::new(),
        calls: Vec::new(),
        code_constants: Vec::new(),
        indirect_jumps: Vec::new(),
        tables: Vec::new(),
        noreturn: noreturn_entries(object),
        switches: switches(object),
        is_complete: false,
        sweep: Sweep::new(&map),
    };
    let stated_roots = stated_roots(object);
    for symbol in &object.symbols {
        if let Some(delta) = map.delta_at(symbol.svma.0) {
            d.leaders.set(symbol.svma.0.wrapping_add(delta));
        }
    }
    let mut data_constants = Vec::new();
    let mut work: Work = d.regions.iter().map(|r| (r.start, Vec::new())).collect();
    let code_bytes: u64 = object
        .code_ranges
        .iter()
        .map(|r| r.bytes.len() as u64)
        .sum();
    let mut left_bytes = code_bytes.saturating_mul(MOST_FOLLOWS);
    for _ in 0..MOST_ROUNDS {
        let mut new = d.follow_all(object, &work, &stated_roots);
        data_constants.append(&mut new.data_constants);
        sort_unique(&mut data_constants);
        let left = left_bytes.checked_sub(new.followed_bytes);
        work = d.absorb(object, &map, new, &data_constants);
        let Some(left) = left else {
            break;
        };
        left_bytes = left;
        if work.is_empty() {
            let starts = d.starts_by_address(object);
            let changed = d.split(object, &map, &starts);
            work = d.work(&changed, Vec::new());
        }
        if work.is_empty() {
            d.is_complete = true;
            break;
        }
    }
    d.sort();
    d
}

/// Regions to follow, by start, with roots beside the usual ones.
type Work = Vec<(u64, Vec<u64>)>;

impl Discovery {
    /// Index of the region that starts at `svma`.
    pub fn region_starting_at(&self, svma: u64) -> Option<usize> {
        region_starting_at(&self.regions, svma)
    }

    fn sort(&mut self) {
        sort_unique(&mut self.edges);
        sort_unique(&mut self.code_constants);
        sort_unique(&mut self.indirect_jumps);
        self.indirect_jumps.dedup_by_key(|(svma, _)| *svma);
        // Of a region that was followed anew, the latest look at a table counts.
        self.tables.reverse();
        self.tables
            .sort_by_key(|table| (table.jump, table.table.base, table.table.origin));
        self.tables
            .dedup_by_key(|table| (table.jump, table.table.base, table.table.origin));
        self.edges.shrink_to_fit();
        self.calls.shrink_to_fit();
        self.regions.shrink_to_fit();
    }

    fn follow_all(&mut self, object: &Object<'_>, work: &Work, stated_roots: &[u64]) -> Found {
        let context = Context {
            object,
            regions: &self.regions,
            reached: &self.reached,
            leaders: &self.leaders,
            noreturn: &self.noreturn,
            sweep: &self.sweep,
        };
        let results = map_chunks(work, REGIONS_PER_CHUNK, |chunk| {
            let mut found = Found::default();
            for (start, extra) in chunk {
                let Some(index) = region_starting_at(context.regions, *start) else {
                    continue;
                };
                let region = &context.regions[index];
                let first = stated_roots.partition_point(|root| *root < region.start);
                let inner = stated_roots[first..].iter().copied();
                let inner = inner.take_while(|root| *root < region.end);
                let roots = [region.start]
                    .into_iter()
                    .chain(inner)
                    .chain(extra.iter().copied());
                follow(&context, region, roots, &mut found);
            }
            sort_unique(&mut found.calls);
            found
        });
        let mut all = Found::default();
        for mut found in results {
            all.calls.append(&mut found.calls);
            all.edges.append(&mut found.edges);
            all.code_constants.append(&mut found.code_constants);
            all.data_constants.append(&mut found.data_constants);
            all.indirect_jumps.append(&mut found.indirect_jumps);
            all.pending.append(&mut found.pending);
            all.tables.append(&mut found.tables);
            all.seen.append(&mut found.seen);
            all.followed_bytes += found.followed_bytes;
        }
        all
    }

    /// Takes in what a round found; gives the work of the next.
    fn absorb(
        &mut self,
        object: &Object<'_>,
        map: &CodeMap,
        mut new: Found,
        data_constants: &[u64],
    ) -> Work {
        for (start, seen) in &new.seen {
            if let Some(index) = self.region_starting_at(*start) {
                self.regions[index].seen.merge(seen);
                self.regions[index].followed = true;
            }
        }
        for pending in std::mem::take(&mut new.pending) {
            self.resolve(object, &pending, data_constants, &mut new);
        }
        self.indirect_jumps.append(&mut new.indirect_jumps);
        self.tables.append(&mut new.tables);
        self.code_constants.append(&mut new.code_constants);
        sort_unique(&mut new.calls);
        let mut starts: Vec<u64> = new
            .calls
            .iter()
            .copied()
            .filter(|t| self.is_new_start(object, *t))
            .collect();
        let mut roots = Vec::new();
        for edge in &new.edges {
            match region_at(&self.regions, edge.target) {
                None if is_function_code(object, Svma(edge.target)) => starts.push(edge.target),
                None => {}
                Some(index) => {
                    let region = &self.regions[index];
                    let bit = edge.target.wrapping_add(region.delta);
                    self.leaders.set(bit);
                    if !self.reached.get(bit) {
                        roots.push(edge.target);
                    }
                }
            }
        }
        self.edges.append(&mut new.edges);
        self.calls.append(&mut new.calls);
        sort_unique(&mut self.calls);
        sort_unique(&mut starts);
        let changed = self.split(object, map, &starts);
        self.work(&changed, roots)
    }

    /// Regions that changed are followed anew, from every place that a jump was seen to lead to.
    fn work(&self, changed: &[u64], roots: Vec<u64>) -> Work {
        let mut work: HashMap<u64, Vec<u64>> =
            changed.iter().map(|start| (*start, Vec::new())).collect();
        for root in roots {
            if let Some(index) = region_at(&self.regions, root) {
                work.entry(self.regions[index].start)
                    .or_default()
                    .push(root);
            }
        }
        // Of all regions they are few in most rounds.
        let changed = changed.iter().filter_map(|start| {
            let region = &self.regions[self.region_starting_at(*start)?];
            Some((region.start, region.end))
        });
        let changed: Vec<(u64, u64)> = changed.collect();
        let old_targets = self.edges.iter().map(|edge| edge.target);
        for target in old_targets.filter(|_| !changed.is_empty()) {
            let after = changed.partition_point(|(start, _)| *start <= target);
            if let Some((start, end)) = after.checked_sub(1).map(|index| changed[index])
                && (start + 1..end).contains(&target)
            {
                work.entry(start).or_default().push(target);
            }
        }
        let mut work: Work = work.into_iter().collect();
        for (_, roots) in &mut work {
            sort_unique(roots);
        }
        work.sort_unstable();
        work
    }

    /// Functions whose address is formed or stored, but that nothing calls, in code without unwind
    /// ranges: there nothing else tells where functions begin (mplayer's main).
    fn starts_by_address(&mut self, object: &Object<'_>) -> Vec<u64> {
        sort_unique(&mut self.code_constants);
        let stored = object.code_pointers.iter().map(|p| p.target.0);
        let formed = self.code_constants.iter().copied();
        let mut starts: Vec<u64> = stored
            .chain(words_of_data(object))
            .chain(formed)
            .filter(|svma| self.is_start_by_address(object, *svma))
            .collect();
        sort_unique(&mut starts);
        starts
    }

    fn is_start_by_address(&self, object: &Object<'_>, svma: u64) -> bool {
        if object.unwind.fde_at(Svma(svma)).is_some() || !self.is_new_start(object, svma) {
            return false;
        }
        let Some(region) = region_at(&self.regions, svma).map(|index| &self.regions[index]) else {
            return true;
        };
        // A label of the function around it is fallen into or lies between its blocks.
        let Some(before) = self.sweep.instruction_before(object, region, svma) else {
            return false;
        };
        let ends = matches!(
            before.flow_control(),
            FlowControl::Return
                | FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                // Not ud2 alone: clang says by an operand of ud1 which check has failed.
                | FlowControl::Exception
        );
        let is_filling = matches!(
            before.mnemonic(),
            Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt
        );
        let is_exchange =
            before.mnemonic() == Mnemonic::Xchg && before.op0_register() == before.op1_register();
        let is_call = matches!(
            before.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        ends || is_filling || is_exchange || is_call && svma.is_multiple_of(FUNCTION_ALIGNMENT)
    }

    /// A call target becomes a region unless it is one, is a stub, or lies inside an instruction.
    fn is_new_start(&self, object: &Object<'_>, target: u64) -> bool {
        if self.region_starting_at(target).is_some() || !is_function_code(object, Svma(target)) {
            return false;
        }
        match region_at(&self.regions, target) {
            Some(index) => !self.is_inside_instruction(object, &self.regions[index], target),
            None => true,
        }
    }

    fn split(&mut self, object: &Object<'_>, map: &CodeMap, starts: &[u64]) -> Vec<u64> {
        if starts.is_empty() {
            return Vec::new();
        }
        let changed = add_regions(object, map, &mut self.regions, starts);
        for start in &changed {
            let Some(index) = self.region_starting_at(*start) else {
                continue;
            };
            let region = &mut self.regions[index];
            region.seen = Seen::default();
            let bits =
                region.start.wrapping_add(region.delta)..region.end.wrapping_add(region.delta);
            region.followed = false;
            self.reached.clear(bits.clone());
            self.leaders.set(bits.start);
        }
        changed
    }

    /// Reads tables whose length no comparison told: up to the next known constant, and only as
    /// long as the entries are sensible.
    fn resolve(
        &self,
        object: &Object<'_>,
        pending: &PendingTable,
        data_constants: &[u64],
        new: &mut Found,
    ) {
        let mut entries = 0;
        for table in &pending.tables {
            let (length, targets) = self.open_targets(object, pending.jump, table, data_constants);
            entries += targets.len();
            if length > 0 {
                new.tables.push(JumpTable {
                    jump: pending.jump,
                    table: *table,
                    entries: length,
                });
            }
            new.edges.extend(targets.into_iter().map(|target| Edge {
                target,
                from: pending.jump,
                kind: crate::follow::EdgeKind::Table,
            }));
        }
        let verdict = if entries >= 2 {
            IndirectJump::Table
        } else if self.is_array_of_functions(object, &pending.tables) {
            IndirectJump::Pointer
        } else {
            IndirectJump::Unresolved
        };
        new.indirect_jumps.push((pending.jump, verdict));
    }

    fn is_array_of_functions(&self, object: &Object<'_>, tables: &[Table]) -> bool {
        let [table] = tables else { return false };
        table.form == TableForm::Addresses64
            && (0..2).all(|index| {
                table
                    .target(object, index)
                    .is_some_and(|target| is_entry(&self.regions, target))
            })
    }

    fn open_targets(
        &self,
        object: &Object<'_>,
        jump: u64,
        table: &Table,
        data_constants: &[u64],
    ) -> (u32, Vec<u64>) {
        let next = data_constants.partition_point(|constant| *constant <= table.base);
        let limit = data_constants.get(next).map_or(MOST_OPEN_ENTRIES, |next| {
            ((next - table.base) / table.entry_bytes()).min(MOST_OPEN_ENTRIES)
        });
        let Some(own) = region_at(&self.regions, jump) else {
            return (0, Vec::new());
        };
        let mut targets: Vec<u64> = (0..limit)
            .map_while(|index| table.target(object, index))
            .take_while(|target| {
                region_at(&self.regions, *target).is_some_and(|index| {
                    let region = &self.regions[index];
                    let is_part = region.fde_start.is_some() && !region.entry_like;
                    // A moved part shares its function's tables.
                    let is_whole = !self.regions[own].entry_like && region.start != *target;
                    (index == own || is_part || is_whole)
                        && !self.is_inside_instruction(object, region, *target)
                        && self.sweep.begins_at(object, region, *target)
                })
            })
            .collect();
        let length = targets.len() as u32;
        sort_unique(&mut targets);
        (length, targets)
    }

    fn is_inside_instruction(&self, object: &Object<'_>, region: &Region, svma: u64) -> bool {
        let bit = svma.wrapping_add(region.delta);
        if self.reached.get(bit) {
            return false;
        }
        let most = (svma - region.start).min(14);
        (1..=most)
            .filter(|back| self.reached.get(bit - back))
            .any(|back| {
                let Some(bytes) = object.code_from(Svma(svma - back)) else {
                    return false;
                };
                let bytes = &bytes[..bytes.len().min(15)];
                let mut decoder = Decoder::with_ip(64, bytes, svma - back, DecoderOptions::NONE);
                decoder.decode().len() as u64 > back
            })
    }
}

/// Words of an image at a fixed place that may be addresses of functions: no relocation says so
/// there (busybox's table of applets). Tables of jumps lie in memory that is never written.
fn words_of_data<'a>(object: &'a Object<'a>) -> impl Iterator<Item = u64> + 'a {
    let is_fixed = object.kind == ObjectKind::Fixed;
    let segments = object.space.segments().iter();
    let written = segments.filter(move |s| is_fixed && s.writable && !s.executable);
    let words = written.flat_map(|s| {
        let unaligned_bytes = s.svma.0.wrapping_neg() as usize % 8;
        let aligned = s.bytes.get(unaligned_bytes..).unwrap_or(&[]);
        aligned.chunks_exact(8)
    });
    let words = words.filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    words.filter(|word| object.code_range_at(Svma(*word)).is_some())
}

/// Landing pads and the targets of relocations: control comes there without an instruction saying.
fn stated_roots(object: &Object<'_>) -> Vec<u64> {
    let pointers = object.code_pointers.iter().map(|p| p.target);
    let mut roots: Vec<u64> = object
        .unwind
        .landing_pads()
        .iter()
        .map(|p| p.pad)
        .chain(pointers)
        .map(|s| s.0)
        .collect();
    sort_unique(&mut roots);
    roots
}

fn noreturn_entries(object: &Object<'_>) -> Vec<u64> {
    let definitions = object
        .symbols
        .iter()
        .filter(|s| s.kind == SymbolKind::Function && is_noreturn_definition(s.name))
        .map(|s| s.svma.0);
    let stubs = object
        .plt_stubs
        .iter()
        .filter(|s| s.name.is_some_and(is_noreturn_import))
        .map(|s| s.stub.0);
    let mut all: Vec<u64> = definitions.chain(stubs).collect();
    sort_unique(&mut all);
    all
}

fn switches(object: &Object<'_>) -> Vec<u64> {
    let of_go = |svma: &Svma| object.go_code.contains(svma);
    let all = object.symbols.iter().filter(|s| is_switch(s.name));
    all.map(|s| s.svma)
        .filter(of_go)
        .map(|svma| svma.0)
        .collect()
}

pub(crate) fn sort_unique<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}
