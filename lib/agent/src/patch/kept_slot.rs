//! The slots of direct calls that keep their return addresses, and of the places that they return
//! to ([`SiteForm::Kept`], [`SiteForm::Return`]).
//!
//! Given a row of a plan; writes its slot into the patch area, as `lib/wire/src/plan/site.rs` has
//! it. Must not know when.

use crate::memory::counters;
use crate::memory::table::Module;
use crate::plans::{modules, ready};
use crate::routines::image;
use sptrace_wire::plan::*;

/// No return point covers more.
const COVERED_BYTES: usize = 32;

/// Writes a call's slot. False: it does not fit into the area.
pub fn call(m: &Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + KEPT_SLOT_BYTES as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    m.area_used.raise(end);
    let slot = m.area_start() + u64::from(s.slot);
    let callee = m.base.get() + u64::from(s.argument);
    let routine = match ready::is_ready(m, callee) {
        true => common::KEPT,
        false => common::KEPT_FIRST,
    };
    let routine = m.area_start() + u64::from(image::offset(counters::routine_of(routine)));
    let mut code = [0xcc; KEPT_SLOT_BYTES as usize];
    put(&mut code, 0, &branch(CALL, slot, routine));
    let jump = branch(JUMP, slot + u64::from(KEPT_ID), callee);
    put(&mut code, KEPT_ID.into(), &jump);
    put(&mut code, KEPT_MARK.into(), &[mark_of(s, slot)]);
    m.area().renew(s.slot.into(), &code)
}

/// Puts bytes there, where they fit.
fn put(code: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = code.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Whether the end is seen: as the slot says, if it was written before (a return point may have
/// been left alone since), else as the plan does.
fn mark_of(s: &PlanSite, slot: u64) -> u8 {
    let area = modules::area(slot);
    let is_written = area.and_then(|area| area.code(slot)) == Some([CALL]);
    let before = area.and_then(|area| area.code(slot + u64::from(KEPT_MARK)));
    match before {
        Some([mark]) if is_written => mark,
        _ if s.is_any(SITE_ENTRY_ONLY) => END_UNSEEN,
        _ => 0,
    }
}

/// Writes a return point's slot. False: it does not fit into the area.
pub fn return_point(m: &Module, s: &PlanSite) -> bool {
    let Some(point) = m.plan_ref().and_then(|plan| plan.return_point(s)) else {
        return false;
    };
    let bytes = s.return_slot_bytes() as usize;
    let end = u64::from(s.slot) + bytes as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() || point.covered.len() > COVERED_BYTES {
        return false;
    }
    m.area_used.raise(end);
    let slot = m.area_start() + u64::from(s.slot);
    let routine = m.area_start() + u64::from(image::offset(counters::routine_of(common::RETURN)));
    let text = m.base.get() + u64::from(s.start);
    let back = text + u64::from(s.span);
    let jump_at = slot + u64::from(RETURN_ID) + u64::from(s.span);
    let mut code = [0xcc; RETURN_ID as usize + COVERED_BYTES + JUMP_BYTES];
    put(&mut code, 0, &point.distance.to_le_bytes());
    let call = branch(CALL, slot + u64::from(RETURN_ENTRY), routine);
    put(&mut code, RETURN_ENTRY as usize, &call);
    put(&mut code, RETURN_ID.into(), point.covered);
    let jump_from = usize::from(RETURN_ID) + usize::from(s.span);
    put(&mut code, jump_from, &branch(JUMP, jump_at, back));
    let from = (slot + u64::from(RETURN_ID)).wrapping_sub(text);
    let moved = code.get_mut(usize::from(RETURN_ID)..);
    if !moved.is_some_and(|moved| point.move_by(from, moved)) {
        return false;
    }
    code.get(..bytes)
        .is_some_and(|code| m.area().renew(s.slot.into(), code))
}
