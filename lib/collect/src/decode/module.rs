//! A module as the collector sees it: its plan, what each place in its patch area means, and the
//! trace's numbers for its functions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::callers::{Caller, Callers};
use super::names::Naming;
use sptrace_addr::Svma;
use sptrace_code::Cached;
use sptrace_trace::{Function, FunctionId, ModuleId};
use sptrace_wire::control::ARENA_BYTES;
use sptrace_wire::plan::*;

/// What an id stands for. In four bytes, because the table of places is the largest thing that is
/// read for each event, and what of it is in the caches decides what the event costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place(u32);

/// A kind takes the bits below; a site or a function the rest.
const KIND_BITS: u32 = 6;
/// Of these: the number is that of a function, not of a site.
const NAMED: u32 = 32;
/// Every site has a number: a plan lies in the arena.
const _: () = assert!(ARENA_BYTES / (PlanSite::BYTES as u64) < 1 << (32 - KIND_BITS));

impl Place {
    fn of_site(kind: u8, site: u32) -> Self {
        Self(site << KIND_BITS | u32::from(kind))
    }

    /// With its direct callee; unchanged if that has too large a number.
    fn named(self, callee: FunctionId) -> Self {
        if callee.0 >= 1 << (32 - KIND_BITS) {
            return self;
        }
        Self(callee.0 << KIND_BITS | NAMED | u32::from(self.kind()))
    }

    /// The same with the callee of an indirect one; None if that has too large a number.
    #[inline]
    pub fn resolved(self, callee: FunctionId) -> Option<Self> {
        let kind = u32::from(self.kind() & !PLACE_INDIRECT);
        let place = Self(callee.0 << KIND_BITS | NAMED | kind);
        (callee.0 < 1 << (32 - KIND_BITS)).then_some(place)
    }

    /// A call of, or a tail jump to, a known function, or an exit.
    #[inline]
    pub fn is_plain(self) -> bool {
        const fn named(kind: u8) -> u64 {
            1 << (NAMED | kind as u32)
        }
        // One decision: which of these it is nobody could foretell.
        const PLAIN: u64 = named(PLACE_ENTRY) | named(PLACE_ENTRY | PLACE_TAIL) | 1 << PLACE_EXIT;
        PLAIN >> (self.0 % (1 << KIND_BITS)) & 1 != 0
    }

    /// A tail jump.
    #[inline]
    pub fn is_tail(self) -> bool {
        self.0 & u32::from(PLACE_TAIL) != 0
    }

    /// A call or jump that is recorded in order.
    #[inline]
    pub fn is_in_order(self) -> bool {
        self.kind() & PLACE_IN_ORDER == PLACE_IN_ORDER
    }

    /// The end of a call.
    pub fn exit() -> Self {
        Self(u32::from(PLACE_EXIT))
    }

    /// The beginning of a call or of what one goes on with, of a known function.
    #[inline]
    pub fn entry(callee: FunctionId, is_tail: bool) -> Option<Self> {
        let kind = if is_tail {
            PLACE_ENTRY | PLACE_TAIL
        } else {
            PLACE_ENTRY
        };
        Self::of_site(kind, 0).resolved(callee)
    }

    /// `PLACE_*` bits.
    #[inline]
    pub fn kind(self) -> u8 {
        (self.0 & (NAMED - 1)) as u8
    }

    /// The trace's number of the direct callee, once it is resolved.
    #[inline]
    pub fn callee(self) -> Option<FunctionId> {
        (self.0 & NAMED != 0).then_some(FunctionId(self.0 >> KIND_BITS))
    }
}

/// The places of a patch area, by 8 bytes of it. Shared by all processes that have one.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<[AtomicU32]>);

impl Places {
    /// What lies at `offset` of the patch area.
    #[inline]
    pub fn at(&self, offset: u32) -> Option<Place> {
        let place = self.0.get((offset >> 3) as usize)?;
        let place = place.load(Ordering::Relaxed);
        (place != 0).then_some(Place(place))
    }

    /// A table with just these: offset, bits `PLACE_*`, and the callee, if it is known.
    #[cfg(test)]
    pub(super) fn of(places: &[(u32, u8, Option<FunctionId>)]) -> Self {
        let table = Self((0..512).map(|_| AtomicU32::new(0)).collect());
        for (offset, kind, callee) in places {
            let place = Place::of_site(*kind, 0);
            table.set(*offset, callee.map_or(place, |callee| place.named(callee)));
        }
        table
    }

    fn set(&self, offset: u32, place: Place) {
        if let Some(p) = self.0.get((offset >> 3) as usize) {
            p.store(place.0, Ordering::Relaxed);
        }
    }
}

/// [`Place::kind`]: an entry.
pub const PLACE_ENTRY: u8 = 1;
/// [`Place::kind`]: an exit.
pub const PLACE_EXIT: u8 = 2;
/// [`Place::kind`]: a tail jump.
pub const PLACE_TAIL: u8 = 4;
/// [`Place::kind`], with the bits of an entry: it is recorded in order.
pub const PLACE_IN_ORDER: u8 = PLACE_ENTRY | PLACE_EXIT;
/// [`Place::kind`]: the low half of the callee follows.
pub const PLACE_INDIRECT: u8 = 8;
/// [`Place::kind`]: its exit will not be seen.
pub const PLACE_OPEN: u8 = 16;

/// A module of the recording.
pub struct Module {
    /// The file's path.
    pub path: String,
    /// Names and hash.
    pub cached: Arc<Cached>,
    /// Where its plan lies in the arena.
    pub plan_offset: u64,
    /// Its number in the trace.
    pub id: ModuleId,
    /// What the ids in a patch area stand for.
    pub places: Places,
    callees: Vec<u64>,
    /// Where functions begin, from the base, sorted.
    entries: Box<[u32]>,
    functions: HashMap<u64, FunctionId>,
    callers: Callers,
    /// Calls whose ends are not recorded, because their caller keeps its return addresses.
    pub calls_without_end: u64,
    /// First svma of the plan's offsets.
    pub base_svma: u64,
    /// PLT stubs, svma range.
    pub plt: (u64, u64),
    /// Executable part, svma range.
    pub text: (u64, u64),
    /// Bytes of a patch area.
    pub area_bytes: u64,
    /// What an area with this plan's slots is known by.
    pub area_key: u64,
}

impl Module {
    /// Reads the plan that the agents were given. None: it is not a plan.
    pub fn new(
        path: String,
        cached: Arc<Cached>,
        plan: &[u8],
        plan_offset: u64,
        id: ModuleId,
    ) -> Option<Self> {
        let plan = PlanView::new(plan)?;
        let h = plan.header();
        let base = h.base_svma;
        let entries = plan.functions().map(|f| f.entry).collect();
        let (places, callees) = read_places(plan);
        Some(Self {
            path,
            cached,
            plan_offset,
            id,
            places,
            callees,
            entries,
            functions: HashMap::new(),
            callers: Callers::of(plan),
            calls_without_end: 0,
            base_svma: base,
            plt: (base + u64::from(h.plt_start), base + u64::from(h.plt_end)),
            text: (base + u64::from(h.text_start), base + u64::from(h.text_end)),
            area_bytes: u64::from(h.area_bytes),
            area_key: h.area_key(),
        })
    }

    /// The same, of a plan that was made anew: its functions have their numbers already.
    pub fn in_place_of(mut self, former: &mut Self) -> Self {
        self.functions = std::mem::take(&mut former.functions);
        self.calls_without_end = std::mem::take(&mut former.calls_without_end);
        self
    }

    /// Where the last function begins that does so at or before `svma`.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        let offset = u32::try_from(svma.checked_sub(self.base_svma)?).ok()?;
        let after = self.entries.partition_point(|entry| *entry <= offset);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        Some(self.base_svma + u64::from(*entry))
    }

    /// Who calls from the place at `offset`.
    pub fn caller(&self, offset: u32) -> Option<Caller> {
        self.callers.at(offset)
    }

    /// The trace's number of the function at `svma`, if it is named in the trace.
    pub fn named(&self, svma: u64) -> Option<FunctionId> {
        self.functions.get(&svma).copied()
    }

    /// Where the function with this number begins, if it is one of the module's.
    pub fn svma_of(&self, function: FunctionId) -> Option<u64> {
        let mut known = self.functions.iter();
        known
            .find(|(_, id)| **id == function)
            .map(|(svma, _)| *svma)
    }

    /// Why not all calls in it are seen, if a runtime walks stacks through it.
    pub fn seen_in_part(&self) -> Option<String> {
        const HOW: &str =
            "direct calls are recorded without their ends, calls through pointers are not recorded";
        let (all, kept) = self.callers.kept();
        if kept * 2 > all {
            Some(format!("its runtime walks its own stacks: {HOW}"))
        } else if self.calls_without_end > 0 {
            Some(format!(
                "{kept} functions have no unwind information, their runtime may walk its own stacks: in these {HOW}"
            ))
        } else {
            None
        }
    }

    /// The trace's number of the direct callee of the place at `offset`, resolved once.
    pub fn direct_callee(
        &mut self,
        offset: u32,
        place: Place,
        names: &mut impl Naming,
    ) -> FunctionId {
        if let Some(known) = place.callee() {
            return known;
        }
        let site = (place.0 >> KIND_BITS) as usize;
        let svma = self.callees.get(site).copied().unwrap_or(0);
        let id = self.function(svma, names);
        self.places.set(offset, place.named(id));
        id
    }

    /// The trace's number of the function at `svma`.
    pub fn function(&mut self, svma: u64, names: &mut impl Naming) -> FunctionId {
        if let Some(id) = self.functions.get(&svma) {
            return *id;
        }
        let (size_bytes, symbol) = self.cached.named_at(Svma(svma)).unwrap_or_default();
        let function = Function {
            module: self.id,
            svma: Svma(svma),
            size_bytes,
            symbol: symbol.to_owned(),
        };
        let id = names.function(&function);
        self.functions.insert(svma, id);
        id
    }

    /// The trace's number of the PLT stub at `svma` or whose second half is there.
    pub fn stub(&mut self, svma: u64, names: &mut impl Naming) -> FunctionId {
        let start = svma.wrapping_sub(SECOND_HALF_BYTES);
        let is_half = start.is_multiple_of(8)
            && self
                .cached
                .named_at(Svma(start))
                .is_some_and(|n| !n.1.is_empty());
        self.function(if is_half { start } else { svma }, names)
    }
}

/// Where the second half of a PLT stub begins, which an unbound slot points at: after `jmp [slot]`
/// (psABI 5.2, Procedure Linkage Table).
const SECOND_HALF_BYTES: u64 = 6;

fn read_places(plan: PlanView<'_>) -> (Places, Vec<u64>) {
    let h = plan.header();
    let places = (0..h.area_bytes / 8).map(|_| AtomicU32::new(0));
    let places = Places(places.collect());
    let mut callees = vec![0; h.sites as usize];
    for (i, site) in (0..).zip(plan.sites()) {
        let Some((entry, exit)) = plan.ids(&site) else {
            continue;
        };
        let mut kind = PLACE_ENTRY;
        for (flag, bit) in [
            (SITE_TAIL, PLACE_TAIL),
            (SITE_INDIRECT, PLACE_INDIRECT),
            (SITE_ENTRY_ONLY, PLACE_OPEN),
        ] {
            if site.is_any(flag) {
                kind |= bit;
            }
        }
        if let Some(c) = callees.get_mut(i as usize) {
            *c = plan.callee(&site).unwrap_or(0);
        }
        if site.is_any(SITE_IN_ORDER) {
            kind |= PLACE_IN_ORDER;
        }
        let set = |offset: u16, kind: u8| {
            if offset != 0 {
                let at = site.slot.wrapping_add(u32::from(offset));
                places.set(at, Place::of_site(kind, i));
            }
        };
        set(entry, kind);
        set(exit, PLACE_EXIT);
    }
    add_hooks(plan, &places, &mut callees);
    (places, callees)
}

/// Hooks count as sites after the others.
fn add_hooks(plan: PlanView<'_>, places: &Places, callees: &mut Vec<u64>) {
    let base_svma = plan.header().base_svma;
    for hook in plan.specials().filter(|s| s.kind == SpecialKind::Root) {
        let site = callees.len() as u32;
        callees.push(base_svma + u64::from(hook.entry));
        for (offset, kind) in [(HOOK_ENTRY_ID, PLACE_ENTRY), (HOOK_EXIT_ID, PLACE_EXIT)] {
            let offset = hook.slot.wrapping_add(offset as u32);
            places.set(offset, Place::of_site(kind, site));
        }
    }
}
