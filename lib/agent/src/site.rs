//! One call site: its slot is written, and the jump to it is put among the writes to the text.
//!
//! Given the site's row in the plan; writes into the patch area at once, and into the text by a
//! [`text::Batch`]. A site whose bytes are not those of the plan, or which a thread is in the middle of,
//! stays as it is and is counted. In a fork child slots are written again. Under the propagation lock.
//! Must not know which functions are patched, and when.

use crate::propagate::{functions, header, is_ready};
use crate::state::*;
use crate::{attach, common, detach, text};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// No slot has more bytes.
const SLOT_BYTES: usize = 512;

/// Patches a site, or counts why not; the text is written with the batch.
pub unsafe fn patch(m: *mut Module, s: &PlanSite, batch: &mut text::Batch) {
    // SAFETY: the lock is held.
    unsafe {
        let at = (*m).base + s.start as u64;
        if s.form == FORM_REFUSED {
            refuse(s.tactic as usize);
            return;
        }
        if s.slot < SLOTS_START || s.slot as u64 + 64 > (*m).area_bytes {
            return;
        }
        if s.flags & SITE_IN_HOOK != 0 {
            count_patched(s.tactic);
            return;
        }
        if attach::is_in_flight(at, at + s.span as u64) {
            count_hole(hole::IN_FLIGHT);
            return;
        }
        let slot = (*m).area + s.slot as u64;
        (*m).area_used = (*m).area_used.max((s.slot + DIRECT_SLOT_BYTES) as u64);
        let jump_to = match s.form {
            FORM_DIRECT => {
                let callee = (*m).base + s.argument as u64;
                let rel = callee.wrapping_sub(at + 5) as u32;
                let text = at as *const u8;
                if *text != 0xe8 || text.add(1).cast::<u32>().read_unaligned() != rel {
                    foreign_bytes(at, slot + DIRECT_ENTRY as u64);
                    return;
                }
                direct(m, s, at, callee);
                slot + DIRECT_ENTRY as u64
            }
            _ if template(m, s.argument, s.slot, at) => slot,
            _ => {
                foreign_bytes(at, slot);
                return;
            }
        };
        if s.flags & SITE_SPRINGBOARD != 0 {
            springboard(m, s, at, jump_to, batch);
            return;
        }
        let opcode = match s.flags & (SITE_KEEP_CALL | SITE_KEEP_OPCODE) {
            0 => 0xe9,
            SITE_KEEP_CALL => 0xe8,
            _ => *(at as *const u8),
        };
        let patched_at = at
            + if s.flags & SITE_KEEP_CALL != 0 {
                s.span as u64 - 5
            } else {
                0
            };
        count_patched(s.tactic);
        let nops = (patched_at - at) as u8;
        batch.add(patched_at, opcode, jump_to, nops);
    }
}

/// A two-byte jump at the site to a long one nearby: in padding, or where instructions stood that
/// are in the slot now. The short jump is written last.
unsafe fn springboard(
    m: *mut Module,
    s: &PlanSite,
    at: u64,
    jump_to: u64,
    batch: &mut text::Batch,
) {
    // SAFETY: the template was read before; the lock is held.
    unsafe {
        let Some(b) = blob(m, s.argument) else { return };
        let t = (b as *const Template).read();
        let spring = (at + 2).wrapping_add(t.springboard as i64 as u64);
        batch.keep_together(3);
        if t.room_to != 0 {
            let room = b.add(8 + t.original_bytes as usize);
            let (back, bytes) = (*room as u64, *room.add(1) as u64);
            if attach::is_in_flight(spring - back, spring - back + bytes) {
                count_hole(hole::IN_FLIGHT);
                return;
            }
            let moved_to = (*m).area + s.slot as u64 + t.room_to as u64;
            batch.add(spring - back, 0xe9, moved_to, 0);
        } else {
            // Only over what is still padding: bytes of nop forms and int3.
            let filling = |b: u8| {
                matches!(
                    b,
                    0x0f | 0x1f | 0x66 | 0x90 | 0xcc | 0x2e | 0x84 | 0x80 | 0x44 | 0x40 | 0
                )
            };
            if !(0..5).all(|k| filling(*(spring as *const u8).add(k))) {
                count_hole(hole::BYTES_DIFFER);
                return;
            }
            if !detach::keep_padding(spring) {
                count_hole(hole::TABLE_FULL);
                return;
            }
        }
        let opcode = match s.flags & SITE_KEEP_OPCODE {
            0 => 0xeb,
            _ => *(at as *const u8),
        };
        count_patched(s.tactic);
        batch.add(spring, 0xe9, jump_to, 0);
        batch.add_short(at, opcode, t.springboard);
    }
}

fn count_patched(tactic: u8) {
    if let Some(c) = control().patched.get(tactic as usize) {
        c.fetch_add(1, Ordering::Relaxed);
    }
}

fn refuse(reason: usize) {
    if let Some(c) = control().refused.get(reason) {
        c.fetch_add(1, Ordering::Relaxed);
    }
}

/// The bytes are not those of the plan: fine if they are our own patch already.
unsafe fn foreign_bytes(at: u64, jump_to: u64) {
    // SAFETY: text of the module.
    unsafe {
        let text = at as *const u8;
        let rel = jump_to.wrapping_sub(at + 5) as u32;
        let ours = *text == 0xeb
            || (*text == 0xe9 || *text == 0xe8)
                && text.add(1).cast::<u32>().read_unaligned() == rel;
        if !ours {
            count_hole(hole::BYTES_DIFFER);
        }
    }
}

/// Writes a direct call's slot.
pub unsafe fn direct(m: *mut Module, s: &PlanSite, at: u64, callee: u64) {
    // SAFETY: the slot lies within the area (checked).
    unsafe {
        let routine = if is_ready(m, callee) {
            common::offset(sptrace_wire::plan::common::ENTRY)
        } else {
            common::offset(sptrace_wire::plan::common::FIRST)
        };
        let slot = (*m).area + s.slot as u64;
        let rel = |to: u64, next: u64| (to.wrapping_sub(next) as u32) as u64;
        let w = ((*m).area_rw + s.slot as u64) as *mut u64;
        // +0: cc cc cc e8 rel32 | +8: e8 rel32 e8 .. | +16: .. rel32 (3 of 4) e9? see plan.rs
        let r1 = rel((*m).area + routine as u64, slot + 8);
        let r2 = rel(callee, slot + 13);
        let r3 = rel(
            (*m).area + common::offset(sptrace_wire::plan::common::EXIT) as u64,
            slot + 18,
        );
        let r4 = rel(at + 5, slot + 23);
        w.write_volatile(0xe8cc_cccc | r1 << 32);
        w.add(1)
            .write_volatile(0xe8 | r2 << 8 | 0xe8 << 40 | (r3 & 0xffff) << 48);
        w.add(2)
            .write_volatile(r3 >> 16 | 0xe9 << 16 | r4 << 24 | 0xcc << 56);
    }
}

/// The template at `offset`.
pub unsafe fn blob(m: *const Module, offset: u32) -> Option<*const u8> {
    // SAFETY: stays within the templates.
    unsafe {
        let h = header(m);
        (offset as u64 + 8 <= h.blob_bytes as u64)
            .then(|| (*m).plan.add(h.blob_offset as usize + offset as usize))
    }
}

/// Writes a slot from its template, if the original bytes are still there.
pub unsafe fn template(m: *mut Module, offset: u32, slot: u32, at: u64) -> bool {
    // SAFETY: the host wrote the template; the copy stays within the area.
    unsafe {
        let Some(b) = blob(m, offset) else {
            return false;
        };
        let t = (b as *const Template).read();
        let original = b.add(8);
        for k in 0..t.original_bytes as usize {
            if *original.add(k) != *(at as *const u8).add(k) {
                return false;
            }
        }
        let code = code_of(b, &t);
        if t.room_to != 0 {
            let room = original.add(t.original_bytes as usize);
            let (back, bytes) = (*room as u64, *room.add(1) as usize);
            let moved = (at + 2)
                .wrapping_add(t.springboard as i64 as u64)
                .wrapping_sub(back) as *const u8;
            if !(0..bytes).all(|k| *room.add(2 + k) == *moved.add(k)) {
                return false;
            }
        }
        write_slot(m, &t, code, slot)
    }
}

/// Where the code of the template at `b` begins: after the original bytes of the site and, if there
/// is one, of the room.
unsafe fn code_of(b: *const u8, t: &Template) -> *const u8 {
    // SAFETY: the host wrote whole templates.
    unsafe {
        let room = b.add(8 + t.original_bytes as usize);
        match t.room_to {
            0 => room,
            _ => room.add(2 + *room.add(1) as usize),
        }
    }
}

/// Copies a template's code into its slot and fills in what depends on addresses.
unsafe fn write_slot(m: *mut Module, t: &Template, code: *const u8, slot: u32) -> bool {
    // SAFETY: the host wrote the template; the copy stays within the area.
    unsafe {
        let fixups = code.add(t.code_bytes as usize) as *const Fixup;
        if slot as u64 + t.code_bytes as u64 > (*m).area_bytes {
            return false;
        }
        (*m).area_used = (*m).area_used.max(slot as u64 + t.code_bytes as u64);
        let bytes = t.code_bytes as usize;
        let mut new = [0u8; SLOT_BYTES];
        if bytes > SLOT_BYTES {
            return false;
        }
        core::ptr::copy_nonoverlapping(code, new.as_mut_ptr(), bytes);
        for k in 0..t.fixups as usize {
            let x = fixups.add(k).read_unaligned();
            let target = match x.kind {
                TO_COMMON => (*m).area + common::offset(x.value) as u64,
                TO_AREA => (*m).area + x.value as u32 as u64,
                _ => (*m).base.wrapping_add(x.value as i64 as u64),
            };
            let next = (*m).area + slot as u64 + x.position as u64 + x.to_end as u64;
            let rel = target.wrapping_sub(next) as u32;
            if x.position as usize + 4 > bytes {
                return false;
            }
            let at = new.as_mut_ptr().add(x.position as usize);
            at.cast::<u32>().write_unaligned(rel);
        }
        // Somebody may still come back to a slot that was written before: only what differs is written,
        // which is the displacement of a wired call, by one store.
        let to = ((*m).area_rw + slot as u64) as *mut u8;
        let mut k = 0;
        while k < bytes {
            let at = to.add(k);
            let is_whole = (at as usize).is_multiple_of(8) && k + 8 <= bytes;
            if is_whole {
                let word = new.as_ptr().add(k).cast::<u64>().read_unaligned();
                if at.cast::<u64>().read_volatile() != word {
                    at.cast::<u64>().write_volatile(word);
                }
            } else if at.read_volatile() != new[k] {
                at.write_volatile(new[k]);
            }
            k += if is_whole { 8 } else { 1 };
        }
        true
    }
}

/// In a fork child: slots that the parent has wired since the fork go back to "first" where this
/// process has not instrumented the callee.
pub unsafe fn unwire(m: *mut Module) {
    // SAFETY: one thread, own area.
    unsafe {
        let h = header(m);
        let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
        for i in 0..h.functions as usize {
            let instrumented = *(*m).functions.add(i) != UNTOUCHED;
            let f = &*functions(m).add(i);
            for k in 0..f.site_count as u32 {
                let s = &*sites.add((f.first_site + k) as usize);
                // A hook leads to its site's slot also before its function is instrumented.
                if !instrumented && s.flags & SITE_IN_HOOK == 0 {
                    continue;
                }
                if s.form == FORM_DIRECT {
                    let callee = (*m).base + s.argument as u64;
                    direct(m, s, (*m).base + s.start as u64, callee);
                } else if s.form == FORM_TEMPLATE
                    && s.flags & SITE_INDIRECT == 0
                    && let Some(b) = blob(m, s.argument)
                {
                    let t = (b as *const Template).read();
                    write_slot(m, &t, code_of(b, &t), s.slot);
                }
            }
        }
        (*m).wirings = *((*m).area_rw as *const u64).add(1);
    }
}
