//! A module as the collector sees it: its plan, what each place in its patch area means, and the
//! trace's numbers for its functions.

use std::collections::HashMap;
use std::sync::Arc;

use sptrace_addr::Svma;
use sptrace_code::Cached;
use sptrace_patch::read_plan::PlanReader;
use sptrace_trace::{Function, FunctionId, ModuleId, TraceWriter};
use sptrace_wire::plan::*;

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// `PLACE_*` bits.
    pub kind: u8,
    /// The trace's number of the direct callee plus one; 0: not resolved yet or through a pointer.
    pub callee: u32,
    /// Site number.
    pub site: u32,
}

/// [`Place::kind`]: an entry.
pub const PLACE_ENTRY: u8 = 1;
/// [`Place::kind`]: an exit.
pub const PLACE_EXIT: u8 = 2;
/// [`Place::kind`]: a tail jump.
pub const PLACE_TAIL: u8 = 4;
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
    /// By 8 bytes of the patch area.
    places: Vec<Place>,
    callees: Vec<u64>,
    functions: HashMap<u64, FunctionId>,
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
        let plan = PlanReader::new(plan)?;
        let (places, callees) = read_places(plan);
        let h = plan.header();
        let base = h.base_svma;
        Some(Self {
            path,
            cached,
            plan_offset,
            id,
            places,
            callees,
            functions: HashMap::new(),
            base_svma: base,
            plt: (base + u64::from(h.plt_start), base + u64::from(h.plt_end)),
            text: (base + u64::from(h.text_start), base + u64::from(h.text_end)),
            area_bytes: u64::from(h.area_bytes),
            area_key: h.area_key(),
        })
    }

    /// What lies at `offset` of the patch area.
    #[inline]
    pub fn place(&self, offset: u32) -> Option<Place> {
        self.places
            .get((offset >> 3) as usize)
            .copied()
            .filter(|p| p.kind != 0)
    }

    /// The trace's number of the direct callee of a place, resolved once.
    pub fn direct_callee<W: std::io::Write>(
        &mut self,
        offset: u32,
        place: Place,
        writer: &mut TraceWriter<W>,
    ) -> FunctionId {
        let svma = self.callees.get(place.site as usize).copied().unwrap_or(0);
        let id = self.function(svma, writer);
        if let Some(p) = self.places.get_mut((offset >> 3) as usize) {
            p.callee = id.0 + 1;
        }
        id
    }

    /// The trace's number of the function at `svma`.
    pub fn function<W: std::io::Write>(
        &mut self,
        svma: u64,
        writer: &mut TraceWriter<W>,
    ) -> FunctionId {
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
        let id = writer.function(&function).unwrap_or(FunctionId(0));
        self.functions.insert(svma, id);
        id
    }

    /// The trace's number of the PLT stub at `svma` or whose second half is there.
    pub fn stub<W: std::io::Write>(
        &mut self,
        svma: u64,
        writer: &mut TraceWriter<W>,
    ) -> FunctionId {
        let start = svma.wrapping_sub(SECOND_HALF_BYTES);
        let is_half = start.is_multiple_of(8)
            && self
                .cached
                .named_at(Svma(start))
                .is_some_and(|n| !n.1.is_empty());
        self.function(if is_half { start } else { svma }, writer)
    }
}

/// Where the second half of a PLT stub begins, which an unbound slot points at: after `jmp [slot]`
/// (psABI 5.2, Procedure Linkage Table).
const SECOND_HALF_BYTES: u64 = 6;

fn read_places(plan: PlanReader<'_>) -> (Vec<Place>, Vec<u64>) {
    let h = plan.header();
    let mut places = vec![Place::default(); h.area_bytes as usize / 8];
    let mut callees = vec![0; h.sites as usize];
    for i in 0..h.sites {
        let Some(site) = plan.site(i) else { continue };
        let Some((entry, exit, callee)) = plan.ids(&site) else {
            continue;
        };
        let mut kind = PLACE_ENTRY;
        for (flag, bit) in [
            (SITE_TAIL, PLACE_TAIL),
            (SITE_INDIRECT, PLACE_INDIRECT),
            (SITE_ENTRY_ONLY, PLACE_OPEN),
        ] {
            if site.flags & flag != 0 {
                kind |= bit;
            }
        }
        if let Some(c) = callees.get_mut(i as usize) {
            *c = callee.unwrap_or(0);
        }
        let mut set = |offset: u32, kind: u8| {
            if offset != 0
                && let Some(p) = places.get_mut(((site.slot + offset) >> 3) as usize)
            {
                *p = Place {
                    kind,
                    callee: 0,
                    site: i,
                };
            }
        };
        set(entry, kind);
        set(exit, PLACE_EXIT);
    }
    add_hooks(plan, &mut places, &mut callees);
    (places, callees)
}

/// Hooks count as sites after the others.
fn add_hooks(plan: PlanReader<'_>, places: &mut [Place], callees: &mut Vec<u64>) {
    let base_svma = plan.header().base_svma;
    for hook in plan.specials().iter().filter(|s| s.kind == SPECIAL_ROOT) {
        let site = callees.len() as u32;
        callees.push(base_svma + u64::from(hook.entry));
        for (offset, kind) in [(HOOK_ENTRY_ID, PLACE_ENTRY), (HOOK_EXIT_ID, PLACE_EXIT)] {
            if let Some(place) = places.get_mut(((hook.slot + offset as u32) >> 3) as usize) {
                *place = Place {
                    kind,
                    callee: 0,
                    site,
                };
            }
        }
    }
}
