//! A module as the collector sees it: its plan, what each place in its patch area means, and the
//! trace's numbers for its functions.

use std::collections::HashMap;
use std::sync::Arc;

use super::callers::Caller;
use super::names::Naming;
use super::tables::Tables;
use sptrace_addr::Svma;
use sptrace_code::Cached;
use sptrace_trace::{Function, FunctionId, ModuleId};
use sptrace_wire::plan::{PlanHeader, PlanView};

pub use super::places::{
    PLACE_ENTRY, PLACE_EXIT, PLACE_IN_ORDER, PLACE_INDIRECT, PLACE_OPEN, PLACE_TAIL, Place, Places,
};

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
    tables: Tables,
    functions: HashMap<u64, FunctionId>,
    /// Those of them that go on with another coroutine and do not come back.
    switching: Vec<FunctionId>,
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
    /// One whose plan, as the agents were given it, says this.
    pub fn new(
        path: String,
        cached: Arc<Cached>,
        h: &PlanHeader,
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
            places: Places::none(h.area_bytes),
            tables: Tables::default(),
            functions: HashMap::new(),
            switching: Vec::new(),
        }
    }

    /// What its plan says of places, before anybody looks something up.
    pub fn read(&mut self, plan: PlanView<'_>) {
        self.tables = Tables::of(plan, &self.places);
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
        let after = self
            .tables
            .entries
            .partition_point(|entry| *entry <= offset);
        let entry = self.tables.entries.get(after.checked_sub(1)?)?;
        Some(self.base_svma + u64::from(*entry))
    }

    /// Who calls from the place at `offset`.
    pub fn caller(&self, offset: u32) -> Option<Caller> {
        self.tables.callers.at(offset)
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
        self.tables
            .valued
            .iter()
            .filter_map(|svma| self.named(*svma))
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

    /// Why not all calls in it are seen, if a runtime walks stacks through it.
    pub fn seen_in_part(&self) -> Option<String> {
        const HOW: &str = "direct calls are recorded without their ends, calls through pointers are \
                           not recorded (--stamps none or --count see all of them)";
        if self.keeps_returns() {
            Some(format!("its runtime walks its own stacks: {HOW}"))
        } else if self.calls_without_end > 0 {
            Some(format!(
                "{} functions have no unwind information, their runtime may walk its own stacks: in these {HOW}",
                self.tables.callers.kept().1
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
        let site = (place.number()) as usize;
        let svma = self.tables.callees.get(site).copied().unwrap_or(0);
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
        // Go's runtime/asm_amd64.s: the second is local to that file.
        if matches!(symbol, "runtime.gogo" | "gogo") && self.keeps_returns() {
            self.switching.push(id);
        }
        id
    }

    /// Most of its functions are walked over by a runtime that knows return addresses.
    fn keeps_returns(&self) -> bool {
        let (all, kept) = self.tables.callers.kept();
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
