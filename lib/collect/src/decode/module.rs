//! A module as the collector sees it: its plan, what each place in its patch area means, and the
//! trace's numbers for its functions.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use super::callers::{Caller, Callers};
use super::names::Naming;
use super::rows::Rows;
use crate::modules::learned::Learned;
use sptrace_addr::Svma;
use sptrace_code::{Cached, Plan};
use sptrace_trace::{Function, FunctionId, ModuleId};
use sptrace_wire::plan::*;

pub use super::place::{
    PLACE_ENTRY, PLACE_EXIT, PLACE_IN_ORDER, PLACE_INDIRECT, PLACE_OPEN, PLACE_TAIL, Place,
};
pub use super::places::Places;

/// So many places are known of which somebody has asked who calls from there.
const CALLED_FROM: usize = 2048;

/// Who calls from a place.
#[derive(Clone, Copy, Default)]
struct CalledBy {
    offset: u32,
    caller: Option<Caller>,
    /// Its number in the trace, once it has one.
    id: Option<FunctionId>,
}

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
    callers: OnceLock<Callers>,
    /// Who calls from places that were asked for, by their offsets: a few are asked for again and
    /// again. Empty before the first.
    called_from: RefCell<Vec<CalledBy>>,
    /// Functions at whose calls something runs, or whose values are kept.
    valued: OnceLock<Vec<u64>>,
    /// How many functions it has, and of how many the return addresses stay.
    kept: (usize, usize),
    functions: HashMap<u64, FunctionId>,
    /// Those of them that go on with another coroutine and do not come back.
    switching: Vec<FunctionId>,
    /// Functions whose calls are in order from the beginning, by where they begin; and those of
    /// them that were named since somebody asked.
    pub(crate) begins: BTreeSet<u64>,
    pub(crate) begun: Vec<FunctionId>,
    /// What was learned of it before this recording. None: that is of no use in it.
    pub(crate) learned: Option<Learned>,
    /// Rows of direct calls that were met, and the callees.
    met: Vec<(u32, FunctionId)>,
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
    /// One with this plan, which begins with `h` and is given to the agents.
    pub fn new(
        path: String,
        cached: Arc<Cached>,
        (plan, h): (Plan, &PlanHeader),
        plan_offset: u64,
        id: ModuleId,
    ) -> Self {
        let base = h.base_svma;
        Self {
            path,
            cached,
            plan_offset,
            id,
            calls_without_end: 0,
            base_svma: base,
            plt: (base + u64::from(h.plt_start), base + u64::from(h.plt_end)),
            text: (base + u64::from(h.text_start), base + u64::from(h.text_end)),
            area_bytes: u64::from(h.area_bytes),
            area_key: h.area_key(),
            places: Places::new(h.area_bytes, Rows::of(plan)),
            callers: OnceLock::new(),
            called_from: RefCell::default(),
            valued: OnceLock::new(),
            kept: (h.functions as usize, h.runtime_functions as usize),
            functions: HashMap::new(),
            switching: Vec::new(),
            begins: BTreeSet::new(),
            begun: Vec::new(),
            learned: None,
            met: Vec::new(),
        }
    }

    /// Its plan.
    pub fn plan(&self) -> Option<PlanView<'_>> {
        self.places.rows().view()
    }

    /// The same, of a plan that was made anew: its functions have their numbers already.
    pub fn in_place_of(mut self, former: &mut Self) -> Self {
        self.functions = std::mem::take(&mut former.functions);
        self.switching = std::mem::take(&mut former.switching);
        self.calls_without_end = std::mem::take(&mut former.calls_without_end);
        self
    }

    /// Where the last function begins that does so at or before `svma`.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        let offset = u32::try_from(svma.checked_sub(self.base_svma)?).ok()?;
        let plan = self.plan()?;
        let after = plan.functions_before(offset.saturating_add(1));
        let function = plan.function(after.checked_sub(1)?)?;
        Some(self.base_svma + u64::from(function.entry))
    }

    /// Who calls from the place at `offset`, and the trace's number of that if it is named there.
    pub fn caller(&self, offset: u32) -> Option<(Caller, Option<FunctionId>)> {
        let mut known = self.called_from.borrow_mut();
        if known.is_empty() {
            known.resize(CALLED_FROM, CalledBy::default());
        }
        let known = known.get_mut(offset as usize / 8 % CALLED_FROM)?;
        if known.offset != offset {
            let rows = self.places.rows();
            let callers = || rows.view().map(Callers::of).unwrap_or_default();
            let caller = |site| self.callers.get_or_init(callers).at(site);
            *known = CalledBy {
                offset,
                caller: rows.site_at(offset).and_then(caller),
                id: None,
            };
        }
        let caller = known.caller?;
        known.id = known.id.or_else(|| self.named(caller.svma));
        Some((caller, known.id))
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

    /// Its functions that are named in the trace and of which each call is needed: something runs
    /// there, or values are kept.
    pub fn valued(&self) -> impl Iterator<Item = FunctionId> {
        let valued = || {
            let functions = self.plan().into_iter().flat_map(PlanView::functions);
            let valued = functions.filter(|f| f.is_any(FN_VALUES));
            valued
                .map(|f| self.base_svma + u64::from(f.entry))
                .collect()
        };
        let valued = self.valued.get_or_init(valued);
        valued.iter().filter_map(|svma| self.named(*svma))
    }

    /// How many of its functions are named in the trace.
    pub fn named_functions(&self) -> usize {
        self.functions.len()
    }

    /// Its functions that are named in the trace: their numbers, where they begin, and symbols.
    pub fn functions(&self) -> impl Iterator<Item = (FunctionId, u64, &str)> {
        self.functions.iter().map(|(svma, id)| {
            let named = self.cached.named_at(Svma(*svma)).unwrap_or_default();
            (*id, *svma, named.1)
        })
    }

    /// Sites of direct calls that can be recorded in two ways and were met, and the callees.
    pub fn met(&self) -> impl Iterator<Item = (u32, FunctionId)> {
        let twins = self.plan().map_or(0, |plan| plan.header().twins);
        let sites = self.met.iter().map(move |(row, callee)| {
            let site = row.checked_sub(twins).unwrap_or(*row);
            (site, *callee)
        });
        sites.filter(move |(site, _)| *site < twins)
    }

    /// The trace's number of what a site calls directly, if it has one.
    pub fn callee_of(&self, site: u32) -> Option<FunctionId> {
        self.named(self.places.rows().callee(site)?)
    }

    /// If calls of a site go through a pointer: the symbol that the linker puts there, if it is one
    /// of its pointers.
    pub fn pointer_of(&self, site: u32) -> Option<Option<&str>> {
        let plan = self.plan()?;
        let row = plan.site(site).filter(|row| row.is_any(SITE_INDIRECT))?;
        let slot = plan.got_slot(&row);
        let stub = slot.and_then(|slot| self.cached.import_at(Svma(slot)));
        Some(stub.map(|stub| stub.strip_suffix("@plt").unwrap_or(stub)))
    }

    /// Why not all calls in it are seen, if a runtime walks stacks through it.
    pub fn seen_in_part(&self) -> Option<String> {
        const HOW: &str = "direct calls are recorded without their ends, calls through pointers are \
                           not recorded (--stamps none or --count see all of them)";
        if self.keeps_returns() {
            Some(format!("its runtime walks its own stacks: {HOW}"))
        } else if self.calls_without_end > 0 {
            Some(format!(
                "{} functions have no unwind information, their runtime may walk its own stacks: in these {HOW}",
                self.kept.1
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
        let svma = self.places.rows().callee(place.number()).unwrap_or(0);
        let id = self.function(svma, names);
        self.places.set(offset, place.named(id));
        self.met.push((place.number(), id));
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
        if self.begins.contains(&svma) {
            self.begun.push(id);
        }
        // Go's runtime/asm_amd64.s: the second is local to that file.
        if matches!(symbol, "runtime.gogo" | "gogo") && self.keeps_returns() {
            self.switching.push(id);
        }
        id
    }

    /// Most of its functions are walked over by a runtime that knows return addresses.
    fn keeps_returns(&self) -> bool {
        let (all, kept) = self.kept;
        kept * 2 > all
    }

    /// Its functions that go on with another coroutine and do not come back, as far as they are
    /// named in the trace.
    pub fn switching(&self) -> &[FunctionId] {
        &self.switching
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

/// Numbers of the switches of values, by where their functions begin.
pub fn switches(plan: PlanView<'_>) -> Vec<(u64, u16)> {
    let base = plan.header().base_svma;
    let Some(values) = ValuesView::new(plan.values()) else {
        return Vec::new();
    };
    let all = (0..values.head.functions).map_while(|i| values.get(i));
    let switched = all.filter(|of| of.switch != 0);
    switched
        .map(|of| (base + u64::from(of.entry), of.switch))
        .collect()
}
