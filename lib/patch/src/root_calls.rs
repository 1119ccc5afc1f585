//! Calls of functions at which recording begins, noted in a copy of a plan whose calls keep their
//! return addresses ([`SpecialKind::RootCall`]).
//!
//! Given which functions these are, which GOT slots lead to such, and which functions have calls
//! that must not be missed in any case; the agent patches the calls when the module comes in,
//! before anybody can make them, and so sees where they return to. Must not know names.

use sptrace_wire::plan::*;

use crate::system_calls::rewritten;

/// Adds the calls of the functions for which `is_root` says so, given their svma, and those through
/// the GOT slots for which `is_root_import` does, and all that the functions make for whose entries
/// `is_caller` does. `None`: there are none.
pub fn add_root_calls(
    plan: &[u8],
    is_root: &dyn Fn(u64) -> bool,
    is_root_import: &dyn Fn(u64) -> bool,
    is_caller: &dyn Fn(u64) -> bool,
) -> Option<Vec<u8>> {
    let view = PlanView::new(plan)?;
    let h = view.header();
    let callers = view
        .functions()
        .filter(|f| is_caller(h.base_svma + u64::from(f.entry)));
    let made_by_callers: Vec<_> = callers.map(|f| f.sites()).collect();
    let is_call = |number: u32, site: &PlanSite| {
        let is_named = view.callee(site).is_some_and(is_root);
        let is_led_to = is_named || view.got_slot(site).is_some_and(is_root_import);
        let is_made = || made_by_callers.iter().any(|sites| sites.contains(&number));
        !site.is_any(SITE_TAIL) && (is_led_to || is_made())
    };
    let own = (0..h.sites.saturating_sub(h.twins)).zip(view.sites());
    let calls =
        own.filter(|(number, site)| site.form != SiteForm::Refused && is_call(*number, site));
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
