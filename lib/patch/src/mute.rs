//! Filters that act before anything is patched: a copy of a plan in which chosen functions are
//! muted. Their own sites are left alone, and so are direct calls and jumps to them, but for jumps
//! to those that read their return address, or may end so: these must be seen to give it back.

use std::collections::HashSet;

use sptrace_wire::plan::*;

use crate::tactic::Refusal;

/// Mutes the functions for which `is_muted` says so, given their svma, and the calls through the
/// PLT stubs for which `is_muted_import` says so, given the svma of the GOT slot. Gives how many
/// functions and imports there were.
pub fn mute(
    plan: &mut [u8],
    is_muted: &dyn Fn(u64) -> bool,
    is_muted_import: &dyn Fn(u64) -> bool,
) -> usize {
    let Some(view) = PlanView::new(plan) else {
        return 0;
    };
    let h = *view.header();
    let svma = |f: &PlanFunction| h.base_svma + u64::from(f.entry);
    let functions: Vec<(u32, PlanFunction)> = (0..)
        .zip(view.functions())
        .filter(|(_, f)| is_muted(svma(f)))
        .collect();
    let muted: HashSet<u64> = functions.iter().map(|(_, f)| svma(f)).collect();
    let may_read = functions
        .iter()
        .filter(|(_, f)| f.is_any(FN_RETURN_ADDRESS | FN_TAILS));
    let readers: HashSet<u64> = may_read.map(|(_, f)| svma(f)).collect();
    let is_left_alone = |site: &PlanSite| {
        let callee = view.callee(site);
        let is_needed = site.is_any(SITE_TAIL) && callee.is_some_and(|c| readers.contains(&c));
        callee.is_some_and(|c| muted.contains(&c)) && !is_needed
            || view.got_slot(site).is_some_and(is_muted_import)
    };
    let sites: Vec<(u32, PlanSite)> = (0..)
        .zip(view.sites())
        .filter(|(_, site)| is_left_alone(site))
        .collect();
    for (i, f) in functions {
        let flags = f.flags | FN_MUTED;
        put(
            plan,
            h.functions_offset,
            i,
            &PlanFunction { flags, ..f }.to_bytes(),
        );
    }
    let refused = sites.len();
    for (i, site) in sites {
        let site = PlanSite {
            form: SiteForm::Refused,
            verdict: Refusal::Filtered as u8,
            ..site
        };
        put(plan, h.sites_offset, i, &site.to_bytes());
    }
    muted.len() + refused
}

/// Writes record number `i` of the table at `offset`.
pub(crate) fn put(plan: &mut [u8], offset: u32, i: u32, record: &[u8]) {
    let at = offset as usize + i as usize * record.len();
    if let Some(place) = plan.get_mut(at..at + record.len()) {
        place.copy_from_slice(record);
    }
}
