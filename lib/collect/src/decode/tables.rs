//! What a plan says of a module, in the tables that the collector looks things up in.
//!
//! Given a plan; gives what each place of a patch area means, and who calls from there. The process
//! that asks for the module does not wait for it. Must not know what is looked up, and when.

use std::collections::HashSet;

use super::callers::Callers;
use super::places::{
    PLACE_ENTRY, PLACE_EXIT, PLACE_IN_ORDER, PLACE_INDIRECT, PLACE_OPEN, PLACE_TAIL, Place, Places,
};
use sptrace_wire::plan::*;

/// What is read of a plan, beside the places.
#[derive(Default)]
pub struct Tables {
    /// The direct callees of sites, by their numbers.
    pub callees: Vec<u64>,
    /// Where functions begin, from the base, sorted.
    pub entries: Box<[u32]>,
    /// Who calls.
    pub callers: Callers,
    /// Functions at whose calls something runs, or whose values are kept.
    pub valued: HashSet<u64>,
}

impl Tables {
    /// Those of a plan; what the ids in a patch area stand for comes into `places`.
    pub fn of(plan: PlanView<'_>, places: &Places) -> Self {
        let entries = plan.functions().map(|f| f.entry).collect();
        let valued = plan.functions().filter(|f| f.is_any(FN_VALUES));
        let base_svma = plan.header().base_svma;
        let valued = valued.map(|f| base_svma + u64::from(f.entry)).collect();
        Self {
            callees: read_places(plan, places),
            entries,
            callers: Callers::of(plan),
            valued,
        }
    }
}

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

fn read_places(plan: PlanView<'_>, places: &Places) -> Vec<u64> {
    let h = plan.header();
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
    add_hooks(plan, places, &mut callees);
    callees
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
