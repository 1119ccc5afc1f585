//! Functions whose entry is intercepted, whoever calls them: special ones and hooks.
//!
//! Given a module that is new; its plan says where such functions begin. What happens at the entry is the
//! business of [`crate::process`] and [`crate::hook`].

use crate::propagate::header;
use crate::site::{blob, direct, template};
use crate::state::*;
use crate::{attach, module, sys, text};
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// Intercepts the entries of a new module's special functions.
pub unsafe fn install_specials(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        let h = header(m);
        let table = (*m).plan.add(h.specials_offset as usize) as *const PlanSpecial;
        let mut batch = text::Batch::of(m);
        // The slots that hooks lead to, before anything can get there.
        let has_hooks = h.specials > 0 && table.read().kind >= SPECIAL_ROOT;
        let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
        for i in 0..if has_hooks { h.sites as usize } else { 0 } {
            let s = &*sites.add(i);
            if s.flags & SITE_IN_HOOK != 0 {
                slot_in_hook(m, s);
            }
        }
        for i in 0..h.specials as usize {
            let s = table.add(i).read();
            let at = (*m).base + s.start as u64;
            if attach::is_in_flight(at, at + s.span as u64) {
                count_hole(hole::IN_FLIGHT);
            } else if template(m, s.argument, s.slot, at) {
                batch.add(at, 0xe9, entry_of(m, &s), 0);
                match s.kind {
                    SPECIAL_PRCTL => (*process()).sees_sandbox = 1,
                    SPECIAL_SYSCALL => (*process()).sees_syscall = 1,
                    _ => {}
                }
            } else {
                count_hole(hole::BYTES_DIFFER);
            }
        }
        batch.flush();
    }
}

/// Writes the slot of a site that lies under a hook. That its bytes are the plan's is found by the
/// hook, which covers them.
unsafe fn slot_in_hook(m: *mut Module, s: &PlanSite) {
    // SAFETY: the lock is held; the slot is checked against the area.
    unsafe {
        if s.slot < SLOTS_START || s.slot as u64 + 64 > (*m).area_bytes {
            return;
        }
        let at = (*m).base + s.start as u64;
        if s.form == FORM_DIRECT {
            (*m).area_used = (*m).area_used.max((s.slot + DIRECT_SLOT_BYTES) as u64);
            direct(m, s, at, (*m).base + s.argument as u64);
        } else {
            template(m, s.argument, s.slot, at);
        }
    }
}

/// Where the text jumps to in the slot of a special function.
pub unsafe fn entry_of(m: *const Module, s: &PlanSpecial) -> u64 {
    let entry = if s.kind >= SPECIAL_ROOT {
        HOOK_ENTRY
    } else {
        0
    };
    // SAFETY: modules stay in their table.
    unsafe { (*m).area + s.slot as u64 + entry }
}

/// What stands at the entry of a module's first hooked function.
pub enum HookText {
    /// The jump to the hook.
    Patched,
    /// What the plan says.
    Original,
    /// Something else, or nothing.
    Foreign,
}

/// Looks at the first hook of a module; `None`: it has none.
pub unsafe fn first_hook(m: *mut Module) -> Option<HookText> {
    // SAFETY: reads the plan; the text is read through the kernel.
    unsafe {
        let h = header(m);
        let table = (*m).plan.add(h.specials_offset as usize) as *const PlanSpecial;
        let s = (h.specials > 0)
            .then(|| table.read())
            .filter(|s| s.kind >= SPECIAL_ROOT)?;
        let t = blob(m, s.argument)?;
        let at = (*m).base + s.start as u64;
        let mut now = [0u8; 5];
        if sys::read_own(at as usize, now.as_mut_ptr(), 5) != 5 {
            return Some(HookText::Foreign);
        }
        let rel = entry_of(m, &s).wrapping_sub(at + 5) as u32;
        if now[0] == 0xe9 && now[1..] == rel.to_le_bytes() {
            return Some(HookText::Patched);
        }
        let original = core::slice::from_raw_parts(t.add(8), 5);
        Some(if now == original {
            HookText::Original
        } else {
            HookText::Foreign
        })
    }
}

/// The special function whose slot holds `id`: its kind and entry.
pub unsafe fn special_of(id: u64) -> Option<(u32, u64)> {
    // SAFETY: reads plans.
    unsafe {
        let m = module::of_area(id);
        if m.is_null() {
            return None;
        }
        let h = header(m);
        let table = (*m).plan.add(h.specials_offset as usize) as *const PlanSpecial;
        let offset = (id - (*m).area) as u32;
        // In the order of their slots.
        let (mut low, mut high) = (0usize, h.specials as usize);
        while low < high {
            let middle = (low + high) / 2;
            if (*table.add(middle)).slot < offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let s = table.add(low.checked_sub(1)?).read();
        Some((s.kind, (*m).base + s.entry as u64))
    }
}
