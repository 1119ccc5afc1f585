//! The slots of a module that count by themselves, record in order, or have acts, when nothing of
//! it is done any more.
//!
//! Given a module; has such slots lead to the callee alone, each by one store, since other threads
//! execute there, and forgets their cells where nobody does. The gs base may be the program's then.
//! Must not know why nothing is counted.

use crate::memory::table::Module;
use crate::memory::{pointers, state};
use crate::plans::{kept_acts, kept_order, modules, plan, slot};
use sptrace_wire::plan::*;

/// No callee has this address: a slot that keeps it asks its routine.
const NOBODY: u64 = 1;
/// Nor this: of what the slot has kept nothing is known any more, so it asks, too, until that has
/// been reached again.
pub const FORGOTTEN: u64 = 2;

/// What stands in the place of the counting, of as many bytes.
const NOTHING: [u8; (COUNTED_JUMP - COUNTED_ID) as usize] =
    [0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00];

/// No slot of the module counts or records in order from here on.
pub fn stop(m: &Module) {
    kept_acts::stop(m);
    kept_order::stop(m);
    each(m, &|s, id| match s.form {
        SiteForm::Counted => stop_direct(m, s, id),
        SiteForm::Ordered => stop_ordered(m, s, id),
        SiteForm::Acts => stop_acts(m, s, id),
        _ => keep_instead(m, id, NOBODY),
    });
}

/// The same for good: the cells are nobody's any more, and who takes the area up again gives the
/// slots others. Nobody executes where they count.
pub fn retire(m: &Module) {
    stop(m);
    kept_acts::retire(m);
    each(m, &|s, id| {
        let (counts_at, kept_at) = (id, id - KEPT_CELL_TO_ID);
        match s.form {
            SiteForm::Counted if slot::cell_of(id).is_some() => {
                m.area().renew(counts_at - m.area_start(), &NOTHING);
            }
            SiteForm::Template if slot::kept(id).is_some() => {
                m.area().renew(kept_at - m.area_start(), &[0; 4]);
            }
            _ => {}
        }
    });
}

/// Calls through pointers ask again: where a callee was, another may be. Their slots may keep the
/// one that they kept again, whose name their cells have.
pub fn forget_callees() {
    for m in modules::modules() {
        each(m, &|s, id| {
            let is_kept = |kept: &slot::Kept| kept.callee != 0 && kept.callee != NOBODY;
            if s.form == SiteForm::Template && slot::kept(id).as_ref().is_some_and(is_kept) {
                keep_instead(m, id, FORGOTTEN);
            }
        });
    }
    state::process()
        .pointers
        .get()
        .into_iter()
        .for_each(pointers::ask_all);
}

/// Calls `act` for each site of the module that may have such a slot, with its id.
fn each(m: &Module, act: &dyn Fn(&PlanSite, u64)) {
    let is_it = |s: &PlanSite| {
        let is_form = matches!(
            s.form,
            SiteForm::Counted | SiteForm::Ordered | SiteForm::Acts
        );
        is_form || s.is_any(SITE_KEEPS_CALLEE) && !s.keeps_in_order()
    };
    plan::each_id(m, &is_it, act);
}

/// A short jump over the counting.
fn stop_direct(m: &Module, s: &PlanSite, id: u64) {
    const OVER: [u8; 2] = [SHORT_JUMP, COUNTED_JUMP as u8 - 2];
    if slot::cell_of(id).is_some() {
        begin_with(m, s, OVER);
    }
}

/// The same over the recording.
fn stop_ordered(m: &Module, s: &PlanSite, id: u64) {
    const OVER: [u8; 2] = [SHORT_JUMP, ORDERED_JUMP as u8 - 2];
    if slot::is_ordered(id) {
        begin_with(m, s, OVER);
    }
}

/// The same over the acts.
fn stop_acts(m: &Module, s: &PlanSite, id: u64) {
    const OVER: [u8; 2] = [SHORT_JUMP, ACTS_JUMP as u8 - 2];
    if slot::acts_target(id) != 0 {
        begin_with(m, s, OVER);
    }
}

fn begin_with(m: &Module, s: &PlanSite, jump: [u8; 2]) {
    if let Some(word) = m.area().word(s.slot.into()) {
        let mut bytes = word.get().to_le_bytes();
        bytes.iter_mut().zip(jump).for_each(|(to, byte)| *to = byte);
        word.set(u64::from_le_bytes(bytes));
    }
}

/// The slot of a call through a pointer that has this id does not count by itself any more.
pub fn stop_at(m: &Module, id: u64) {
    keep_instead(m, id, NOBODY);
}

/// The slot keeps this, which is no callee.
fn keep_instead(m: &Module, id: u64, nobody: u64) {
    let kept = slot::kept(id).filter(|kept| kept.cell != 0);
    if let Some(word) = kept.and_then(|kept| m.area().word(kept.callee_at)) {
        word.set(nobody);
    }
}
