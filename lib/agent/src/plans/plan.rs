//! What a module's plan says of addresses in the process.
//!
//! Given a module; gives functions by the addresses that they have here. The plan itself is read by
//! [`PlanView`].
//!
//! Must not know: what is patched.

use crate::memory::state::Module;
use sptrace_wire::plan::*;

/// The plan whose first byte is `first`, of which at most `bytes_max` bytes are mapped. `None`: it
/// is none, or one of another version.
pub unsafe fn at(first: *const u8, bytes_max: usize) -> Option<PlanView<'static>> {
    if bytes_max < PlanHeader::BYTES {
        return None;
    }
    // SAFETY: the caller's: so many bytes are mapped for life, and nobody writes to a plan that was
    // announced.
    let head = unsafe { core::slice::from_raw_parts(first, PlanHeader::BYTES) };
    let bytes = PlanHeader::read(head)?.total_bytes as usize;
    if bytes > bytes_max {
        return None;
    }
    // SAFETY: as above.
    PlanView::new(unsafe { core::slice::from_raw_parts(first, bytes) })
}

/// The plan of a module that has one.
unsafe fn of(m: *const Module) -> Option<(PlanView<'static>, u64)> {
    // SAFETY: of the module table.
    unsafe { Some(((*m).plan?, (*m).base)) }
}

/// The sites of all functions.
pub unsafe fn functions(m: *const Module) -> impl Iterator<Item = (u32, PlanFunction)> {
    // SAFETY: as in of.
    let plan = unsafe { of(m) }.map(|(plan, _)| plan);
    plan.into_iter()
        .flat_map(|plan| (0..).zip(plan.functions()))
}

/// The special functions and hooks.
pub unsafe fn specials(m: *const Module) -> impl Iterator<Item = PlanSpecial> {
    // SAFETY: as in of.
    let plan = unsafe { of(m) }.map(|(plan, _)| plan);
    plan.into_iter().flat_map(PlanView::specials)
}

/// The sites of a function.
pub unsafe fn sites_of(m: *const Module, f: PlanFunction) -> impl Iterator<Item = PlanSite> {
    // SAFETY: as in of.
    let plan = unsafe { of(m) }.map(|(plan, _)| plan);
    plan.into_iter().flat_map(move |plan| plan.sites_of(&f))
}

/// Number of the function that begins at `address`.
pub unsafe fn function_at(m: *const Module, address: u64) -> Option<u32> {
    // SAFETY: as in of.
    let (plan, base) = unsafe { of(m) }?;
    plan.function_at(address.wrapping_sub(base) as u32)
}

/// The function that `address` probably lies in, the last that begins at or before it, and its
/// number.
pub unsafe fn function_around(m: *const Module, address: u64) -> Option<(u32, PlanFunction)> {
    // SAFETY: as in of.
    let (plan, base) = unsafe { of(m) }?;
    let after = plan.functions_before((address.wrapping_sub(base) as u32).saturating_add(1));
    let i = after.checked_sub(1)?;
    Some((i, plan.function(i)?))
}

/// Flags of function number `i`.
pub unsafe fn flags_of(m: *const Module, i: u32) -> u16 {
    // SAFETY: as in of.
    let function = unsafe { of(m) }.and_then(|(plan, _)| plan.function(i));
    function.map_or(0, |f| f.flags)
}
