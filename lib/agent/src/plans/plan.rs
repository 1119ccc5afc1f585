//! What a module's plan says of addresses in the process.
//!
//! Given a module; gives functions by the addresses that they have here. The plan itself is read by
//! [`PlanView`].
//!
//! Must not know: what is patched.

use crate::memory::table::{Module, UNTOUCHED};
use sptrace_wire::plan::*;

/// The plan whose first byte is `first`, of which at most `bytes_max` bytes are mapped. `None`: it
/// is none, or one of another version.
///
/// # Safety
/// So many bytes are mapped for life, and nobody writes to a plan that was announced.
pub unsafe fn at(first: *const u8, bytes_max: usize) -> Option<PlanView<'static>> {
    if bytes_max < PlanHeader::BYTES {
        return None;
    }
    // SAFETY: the caller's.
    let head = unsafe { core::slice::from_raw_parts(first, PlanHeader::BYTES) };
    let bytes = PlanHeader::read(head)?.total_bytes as usize;
    if bytes > bytes_max {
        return None;
    }
    // SAFETY: the caller's.
    PlanView::new(unsafe { core::slice::from_raw_parts(first, bytes) })
}

/// The plan of a module that has one.
fn of(m: &Module) -> Option<(PlanView<'static>, u64)> {
    Some((m.plan()?, m.base.get()))
}

/// The sites of all functions.
pub fn functions(m: &Module) -> impl Iterator<Item = (u32, PlanFunction)> {
    let plan = of(m).map(|(plan, _)| plan);
    plan.into_iter()
        .flat_map(|plan| (0..).zip(plan.functions()))
}

/// The special functions and hooks.
pub fn specials(m: &Module) -> impl Iterator<Item = PlanSpecial> {
    let plan = of(m).map(|(plan, _)| plan);
    plan.into_iter().flat_map(PlanView::specials)
}

/// The sites of a function.
pub fn sites_of(m: &Module, f: PlanFunction) -> impl Iterator<Item = PlanSite> + use<'_> {
    let plan = m.plan_ref();
    f.sites().map_while(move |i| plan?.site(i))
}

/// The sites of a function, each with the other way in which it can be patched, if there is one.
pub fn sites_with_twins(
    m: &Module,
    f: PlanFunction,
) -> impl Iterator<Item = (PlanSite, Option<PlanSite>)> + use<'_> {
    let plan = m.plan_ref();
    f.sites()
        .map_while(move |i| plan.and_then(|plan| Some((plan.site(i)?, plan.twin(i)))))
}

/// The sites of a function that can be patched in two ways, each with its twin.
pub fn twins_of(
    m: &Module,
    f: PlanFunction,
) -> impl Iterator<Item = (PlanSite, PlanSite)> + use<'_> {
    sites_with_twins(m, f).filter_map(|(site, twin)| Some((site, twin?)))
}

/// Number of the function that begins at `address`.
pub fn function_at(m: &Module, address: u64) -> Option<u32> {
    let (plan, base) = (m.plan_ref()?, m.base.get());
    plan.function_at(address.wrapping_sub(base) as u32)
}

/// The function that `address` probably lies in, the last that begins at or before it, and its
/// number.
pub fn function_around(m: &Module, address: u64) -> Option<(u32, PlanFunction)> {
    let (plan, base) = (m.plan_ref()?, m.base.get());
    let after = plan.functions_before((address.wrapping_sub(base) as u32).saturating_add(1));
    let i = after.checked_sub(1)?;
    Some((i, plan.function(i)?))
}

/// Flags of function number `i`.
pub fn flags_of(m: &Module, i: u32) -> u16 {
    let function = m.plan_ref().and_then(|plan| plan.function(i));
    function.map_or(0, |f| f.flags)
}

/// Calls `act` for each site, and each twin of one, of which `is_it` is true, in functions whose
/// slots may be written; with the id of its entry.
pub fn each_id(m: &Module, is_it: &dyn Fn(&PlanSite) -> bool, act: &dyn Fn(&PlanSite, u64)) {
    let Some(plan) = m.plan().filter(|_| m.area_start() != 0) else {
        return;
    };
    for (i, f) in functions(m) {
        let is_touched = m.function(i) != UNTOUCHED;
        // A hook leads to its site's slot also before its function is instrumented.
        let is_written = |s: &PlanSite| is_touched || s.is_any(SITE_IN_HOOK);
        let twins = twins_of(m, f).map(|(_, twin)| twin);
        let all = sites_of(m, f).chain(twins).filter(is_written);
        for s in all.filter(is_it) {
            if let Some((entry, _)) = plan.ids(&s) {
                act(&s, m.area_start() + u64::from(s.slot) + u64::from(entry));
            }
        }
    }
}
