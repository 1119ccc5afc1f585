//! Which function a call is made from: the one that the call's site lies in.
//!
//! Given a module's plan; tells for a place in its patch area which function has the site. Asked
//! where the end of an open call is not recorded, and of calls in order at first, or again in
//! threads with very many sites.

use sptrace_wire::plan::{FN_RUNTIME, PlanView, SpecialKind};

/// Of a slot that is not a call site's: who calls a hooked function is not known.
const NOBODY: u32 = u32::MAX;
/// Some twenty slots have room in such a stretch of an area.
const STRETCH_BITS: u32 = 10;
/// With a function's offset: its return addresses stay what they are.
const KEEPS_RETURNS: u64 = 1 << 32;

/// The functions with call sites.
#[derive(Debug, Default)]
pub struct Callers {
    base_svma: u64,
    /// Slot, and which of the functions has its site; sorted.
    slots: Box<[(u32, u32)]>,
    /// How many of them lie before each 2^[`STRETCH_BITS`] bytes of the area, and how many there
    /// are.
    before: Box<[u32]>,
    /// Where they begin, from the base.
    functions: Box<[u64]>,
}

/// A function that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where it begins.
    pub svma: u64,
    /// Its return addresses stay, because a runtime looks them up: its direct calls have no
    /// recorded ends, and its calls through pointers are not recorded.
    pub keeps_returns: bool,
}

impl Callers {
    /// Those of a plan.
    pub fn of(plan: PlanView<'_>) -> Self {
        let header = plan.header();
        let mut slots = Vec::with_capacity(header.sites as usize);
        let mut functions = Vec::new();
        for function in plan.functions() {
            let index = functions.len() as u32;
            let keeps = u64::from(function.is_any(FN_RUNTIME)) * KEEPS_RETURNS;
            functions.push(keeps | u64::from(function.entry));
            let twins = plan.twins_of(&function).map(|(_, twin)| twin);
            let sites = plan.sites_of(&function).chain(twins);
            // Nobody calls from a return point.
            let with_slot = sites.filter(|site| site.slot != 0 && !site.is_return());
            slots.extend(with_slot.map(|site| (site.slot, index)));
        }
        let hooks = plan.specials().filter(|s| s.kind == SpecialKind::Root);
        slots.extend(hooks.map(|hook| (hook.slot, NOBODY)));
        Self::with(header.base_svma, slots, functions)
    }

    /// Of slots in any order.
    fn with(base_svma: u64, mut slots: Vec<(u32, u32)>, functions: Vec<u64>) -> Self {
        // They come in long runs that are sorted.
        slots.sort();
        let stretches = slots.last().map_or(0, |(slot, _)| slot >> STRETCH_BITS) + 1;
        let before = (0..=stretches).map(|stretch| {
            let lies_before = |slot: u32| slot >> STRETCH_BITS < stretch;
            slots.partition_point(|(slot, _)| lies_before(*slot)) as u32
        });
        Self {
            before: before.collect(),
            base_svma,
            slots: slots.into(),
            functions: functions.into(),
        }
    }

    /// Who calls from the slot that `offset` of the patch area lies in.
    pub fn at(&self, offset: u32) -> Option<Caller> {
        let stretch = (offset >> STRETCH_BITS) as usize;
        let number = |at: usize| self.before.get(at).map(|before| *before as usize);
        let from = number(stretch).unwrap_or(self.slots.len());
        let to = number(stretch + 1).unwrap_or(self.slots.len());
        let there = self.slots.get(from..to)?;
        let after = from + there.partition_point(|(slot, _)| *slot <= offset);
        let (_, index) = self.slots.get(after.checked_sub(1)?)?;
        let function = *self.functions.get(*index as usize)?;
        Some(Caller {
            svma: self.base_svma + (function & (KEEPS_RETURNS - 1)),
            keeps_returns: function & KEEPS_RETURNS != 0,
        })
    }

    /// How many functions there are, and how many of them keep their return addresses.
    pub fn kept(&self) -> (usize, usize) {
        let kept = self.functions.iter().filter(|f| *f & KEEPS_RETURNS != 0);
        (self.functions.len(), kept.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_slot_s() {
        let starts = [3000, 64, 96, 1500, 1023, 1024, 70_000];
        let slots = starts.into_iter().zip(0..).collect();
        let callers = Callers::with(0x1000, slots, (0..7).collect());
        let first = |offset| {
            starts
                .into_iter()
                .zip(0..)
                .filter(move |(at, _)| *at <= offset)
        };
        for offset in (0..4000).chain(69_990..70_010).chain([u32::MAX]) {
            let expected = first(offset).max().map(|(_, index)| 0x1000 + index);
            assert_eq!(callers.at(offset).map(|caller| caller.svma), expected);
        }
        assert_eq!(Callers::default().at(64), None);
        assert_eq!(Callers::with(0, Vec::new(), Vec::new()).at(64), None);
    }
}
