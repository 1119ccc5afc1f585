//! Which slot an address of a patch area lies in, and where its parts are.
//!
//! Given an address in an area; gives a [`Place`] from the module's plan. Slow (it looks through all
//! sites): for contexts that a signal interrupted, not for events.

use crate::propagate::header;
use crate::site::blob;
use crate::state::Module;
use sptrace_wire::plan::*;

/// A slot; all addresses are in the process.
pub struct Place {
    /// Where the text jumps to.
    pub start: u64,
    /// After the call of the entry's routine.
    pub entry: u64,
    /// After the call of the exit's routine; 0 without.
    pub exit: u64,
    /// Bytes from `start` on that are moved instructions and must not be begun again.
    pub moved: u64,
    /// The patched instruction in the text; 0 if going back to it is not safe.
    pub text: u64,
    /// The operand is pushed just before the routine is called.
    pub operand: bool,
    /// Reached by a call that has pushed the original return address.
    pub keep_call: bool,
    /// A tail jump.
    pub tail: bool,
    /// The entry of a special function.
    pub special: bool,
    /// The same of a hooked one, whose return leads to `start`.
    pub hook: bool,
}

/// The slot that holds `address`, which lies in the area of `m`.
pub unsafe fn place(m: *const Module, address: u64) -> Option<Place> {
    // SAFETY: the plan's offsets and counts are the host's.
    unsafe {
        if (*m).plan.is_null() {
            return None;
        }
        let h = header(m);
        let offset = (address - (*m).area) as u32;
        let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
        let site = (0..h.sites as usize)
            .map(|i| &*sites.add(i))
            .filter(|s| s.form != FORM_REFUSED && s.slot <= offset)
            .max_by_key(|s| s.slot);
        let specials = (*m).plan.add(h.specials_offset as usize) as *const PlanSpecial;
        let special = (0..h.specials as usize)
            .map(|i| &*specials.add(i))
            .filter(|s| s.slot <= offset)
            .max_by_key(|s| s.slot);
        match (site, special) {
            (Some(site), special) if special.is_none_or(|s| s.slot < site.slot) => {
                of_site(m, site, offset)
            }
            (_, Some(s)) => {
                let t = inside(m, s.argument, s.slot, offset)?;
                let slot = (*m).area + s.slot as u64;
                let hook = s.kind >= SPECIAL_ROOT;
                Some(Place {
                    start: slot,
                    entry: slot + t.entry_id as u64,
                    exit: if hook { slot + HOOK_EXIT_ID } else { 0 },
                    moved: 0,
                    text: (*m).base + s.start as u64,
                    operand: false,
                    keep_call: false,
                    tail: false,
                    special: true,
                    hook,
                })
            }
            _ => None,
        }
    }
}

/// The template at `argument`, if `offset` lies in its slot.
unsafe fn inside(m: *const Module, argument: u32, slot: u32, offset: u32) -> Option<Template> {
    // SAFETY: checked by blob.
    let t = unsafe { (blob(m, argument)? as *const Template).read() };
    (offset - slot < t.code_bytes as u32).then_some(t)
}

unsafe fn of_site(m: *const Module, s: &PlanSite, offset: u32) -> Option<Place> {
    // SAFETY: as in place.
    unsafe {
        let slot = (*m).area + s.slot as u64;
        let (start, t) = match s.form {
            FORM_DIRECT if offset - s.slot < DIRECT_SLOT_BYTES => {
                let (entry_id, exit_id) = (8, 18);
                let t = Template {
                    entry_id,
                    exit_id,
                    ..Template::default()
                };
                (DIRECT_ENTRY as u64, t)
            }
            FORM_DIRECT => return None,
            _ => (0, inside(m, s.argument, s.slot, offset)?),
        };
        let at = (*m).base + s.start as u64;
        let in_hook = s.flags & SITE_IN_HOOK != 0;
        let text = match s.flags & (SITE_KEEP_OPCODE | SITE_SPRINGBOARD) {
            // The jump to the hook may stand there.
            _ if in_hook => 0,
            // The second byte of a conditional jump.
            SITE_KEEP_OPCODE if *((at - 1) as *const u8) == 0x0f => at - 1,
            SITE_KEEP_OPCODE => 0,
            _ => at,
        };
        Some(Place {
            start: slot + start,
            entry: slot + t.entry_id as u64,
            exit: if t.exit_id == 0 {
                0
            } else {
                slot + t.exit_id as u64
            },
            moved: if s.flags & SITE_REPEATABLE != 0 && !in_hook {
                0
            } else {
                t.moved as u64
            },
            text,
            operand: s.flags & SITE_INDIRECT != 0,
            keep_call: s.flags & SITE_KEEP_CALL != 0,
            tail: s.flags & SITE_TAIL != 0,
            special: false,
            hook: false,
        })
    }
}
