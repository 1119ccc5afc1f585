//! Calls of functions at which recording begins, noted in a copy of a plan whose calls keep their
//! return addresses ([`SpecialKind::RootCall`]).
//!
//! Given which functions these are, and which GOT slots lead to such; the agent patches the calls
//! when the module comes in, before anybody can make them, and so sees where they return to. Must
//! not know names.

use sptrace_wire::plan::*;

use crate::system_calls::rewritten;

/// Adds the calls of the functions for which `is_root` says so, given their svma, and those through
/// the GOT slots for which `is_root_import` does. `None`: there are none.
pub fn add_root_calls(
    plan: &[u8],
    is_root: &dyn Fn(u64) -> bool,
    is_root_import: &dyn Fn(u64) -> bool,
) -> Option<Vec<u8>> {
    let view = PlanView::new(plan)?;
    let h = view.header();
    let is_call = |site: &PlanSite| {
        let is_named = view.callee(site).is_some_and(is_root);
        !site.is_any(SITE_TAIL) && (is_named || view.got_slot(site).is_some_and(is_root_import))
    };
    let own = (0..h.sites.saturating_sub(h.twins)).zip(view.sites());
    let calls = own.filter(|(_, site)| site.form != SiteForm::Refused && is_call(site));
    let before = view.specials().count();
    let calls = calls.map(|(number, site)| PlanSpecial {
        entry: number,
        kind: SpecialKind::RootCall,
        start: site.start,
        // Behind all that have slots: they are in the order of these.
        slot: u32::MAX,
        argument: u32::MAX,
        ..PlanSpecial::default()
    });
    let specials: Vec<PlanSpecial> = view.specials().chain(calls).collect();
    match specials.len() {
        all if all == before => None,
        _ => rewritten(view, plan, &specials, &[], h.area_bytes),
    }
}
