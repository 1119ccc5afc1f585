//! One call site: its slot is written, and the jump to it is put among the writes to the text.
//!
//! Given the site's row in the plan; writes into the patch area at once, and into the text by a
//! [`crate::patch::text::Batch`]. A site whose bytes are not those of the plan, or which a thread
//! is in the middle of, stays as it is and is counted. In a fork child slots are written again.
//! Under the propagation lock. Must not know which functions are patched, and when.

use crate::memory::state::{Module, UNTOUCHED};
use crate::memory::{state, stopped};
use crate::patch::text;
use crate::plans::patched::{Patch, Springboard};
use crate::plans::{padding, patched, plan, ready};
use crate::routines::image;
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// No slot has more bytes.
const SLOT_BYTES: usize = 512;

/// Patches a site, or counts why not; the text is written with the batch.
pub unsafe fn patch(m: *mut Module, s: &PlanSite, batch: &mut text::Batch) {
    // SAFETY: the lock is held.
    unsafe {
        if s.form == SiteForm::Refused {
            count(&state::control().refused, s.verdict);
            return;
        }
        let Some(p) = Patch::of_site(m, s) else {
            return;
        };
        if s.is_any(SITE_IN_HOOK) {
            count(&state::control().patched, s.verdict);
            return;
        }
        if stopped::is_in_flight(p.at, p.at + s.span as u64) {
            state::count_hole(hole::IN_FLIGHT);
            return;
        }
        let spring = Springboard::of_site(m, s);
        let room = spring.and_then(|spring| spring.room);
        let is_original = patched::stands(p.at, p.original.bytes())
            && room.is_none_or(|room| patched::stands(room.start, room.original));
        if !is_original || !write_slot(m, s) {
            // Fine if it is our own patch already.
            if !patched::stands(p.at, p.ours.bytes()) {
                state::count_hole(hole::BYTES_DIFFER);
            }
            return;
        }
        match spring {
            Some(spring) => {
                if put_springboard(&p, &spring, batch) {
                    count(&state::control().patched, s.verdict);
                }
            }
            None => {
                count(&state::control().patched, s.verdict);
                batch.add(&p);
            }
        }
    }
}

/// A two-byte jump at the site to a long one nearby: in padding, or where instructions stood that
/// are in the slot now. The short jump is written last. False: it cannot be done, which is counted.
pub unsafe fn put_springboard(p: &Patch, spring: &Springboard, batch: &mut text::Batch) -> bool {
    // SAFETY: the template was read before; the lock is held.
    unsafe {
        batch.keep_together(3);
        if let Some(room) = spring.room {
            let end = room.start + room.original.len() as u64;
            if stopped::is_in_flight(room.start, end) {
                state::count_hole(hole::IN_FLIGHT);
                return false;
            }
            batch.add_bytes(room.start, &room.jump);
        } else {
            // Only over what is still padding: bytes of nop forms and int3.
            let filling = |b: u8| {
                matches!(
                    b,
                    0x0f | 0x1f | 0x66 | 0x90 | 0xcc | 0x2e | 0x84 | 0x80 | 0x44 | 0x40 | 0
                )
            };
            if !(0..5).all(|k| filling(*(spring.at as *const u8).add(k))) {
                state::count_hole(hole::BYTES_DIFFER);
                return false;
            }
            if !padding::keep_padding(spring.at) {
                state::count_hole(hole::TABLE_FULL);
                return false;
            }
        }
        batch.add_bytes(spring.at, &spring.jump);
        batch.add(p);
        true
    }
}

fn count(counts: &[core::sync::atomic::AtomicU64], verdict: u8) {
    if let Some(c) = counts.get(verdict as usize) {
        c.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes the slot of a site, as the plan says. False: it does not fit into the area.
pub unsafe fn write_slot(m: *mut Module, s: &PlanSite) -> bool {
    // SAFETY: the lock is held.
    unsafe {
        match s.form {
            SiteForm::Refused => false,
            SiteForm::Direct => direct(m, s),
            SiteForm::Template => template(m, s.argument, s.slot),
        }
    }
}

/// Writes a direct call's slot.
unsafe fn direct(m: *mut Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + DIRECT_SLOT_BYTES as u64;
    // SAFETY: the slot lies within the area (checked).
    unsafe {
        if s.slot < SLOTS_START || end > (*m).area_bytes {
            return false;
        }
        (*m).area_used = (*m).area_used.max(end);
        let at = (*m).base + s.start as u64;
        let callee = (*m).base + s.argument as u64;
        let routine = if ready::is_ready(m, callee) {
            image::offset(sptrace_wire::plan::common::ENTRY)
        } else {
            image::offset(sptrace_wire::plan::common::FIRST)
        };
        let slot = (*m).area + s.slot as u64;
        let rel = |to: u64, next: u64| (to.wrapping_sub(next) as u32) as u64;
        let w = ((*m).area_rw + s.slot as u64) as *mut u64;
        // +0: cc cc cc e8 rel32 | +8: e8 rel32 e8 .. | +16: .. rel32 (3 of 4) e9? see wire's
        // site.rs
        let r1 = rel((*m).area + routine as u64, slot + 8);
        let r2 = rel(callee, slot + 13);
        let r3 = rel(
            (*m).area + image::offset(sptrace_wire::plan::common::EXIT) as u64,
            slot + 18,
        );
        let r4 = rel(at + 5, slot + 23);
        w.write_volatile(0xe8cc_cccc | r1 << 32);
        w.add(1)
            .write_volatile(0xe8 | r2 << 8 | 0xe8 << 40 | (r3 & 0xffff) << 48);
        w.add(2)
            .write_volatile(r3 >> 16 | 0xe9 << 16 | r4 << 24 | 0xcc << 56);
        true
    }
}

/// Copies a template's code into its slot and fills in what depends on addresses. False: there is
/// no such, or it does not fit into the area.
pub unsafe fn template(m: *mut Module, argument: u32, slot: u32) -> bool {
    // SAFETY: of the module table; the copy stays within the area.
    unsafe {
        let Some(t) = (*m).plan.and_then(|plan| plan.template(argument)) else {
            return false;
        };
        let mut new = [0u8; SLOT_BYTES];
        let end = slot as u64 + t.code.len() as u64;
        let Some(code) = new.get_mut(..t.code.len()) else {
            return false;
        };
        if slot < SLOTS_START || end > (*m).area_bytes {
            return false;
        }
        code.copy_from_slice(t.code);
        for x in t.fixups() {
            let target = match x.kind {
                FixupKind::Common => (*m).area + image::offset(x.value) as u64,
                FixupKind::Area => (*m).area + x.value as u32 as u64,
                FixupKind::Text => (*m).base.wrapping_add(x.value as i64 as u64),
            };
            let position = x.position as usize;
            let next = (*m).area + slot as u64 + position as u64 + x.to_end as u64;
            let Some(rel32) = code.get_mut(position..position + 4) else {
                return false;
            };
            rel32.copy_from_slice(&(target.wrapping_sub(next) as u32).to_le_bytes());
        }
        (*m).area_used = (*m).area_used.max(end);
        renew(((*m).area_rw + slot as u64) as *mut u8, code);
        true
    }
}

/// Somebody may still come back to a slot that was written before: only what differs is written,
/// which is the displacement of a wired call, by one store.
unsafe fn renew(to: *mut u8, new: &[u8]) {
    let mut k = 0;
    // SAFETY: within the area (checked).
    unsafe {
        while let Some(byte) = new.get(k) {
            let at = to.add(k);
            let word = new.get(k..).and_then(|rest| rest.first_chunk());
            match word.filter(|_| (at as usize).is_multiple_of(8)) {
                Some(word) => {
                    let word = u64::from_le_bytes(*word);
                    if at.cast::<u64>().read_volatile() != word {
                        at.cast::<u64>().write_volatile(word);
                    }
                    k += 8;
                }
                None => {
                    if at.read_volatile() != *byte {
                        at.write_volatile(*byte);
                    }
                    k += 1;
                }
            }
        }
    }
}

/// In a fork child: slots that the parent has wired since the fork go back to "first" where this
/// process has not instrumented the callee.
pub unsafe fn unwire(m: *mut Module) {
    // SAFETY: one thread, own area.
    unsafe {
        for (i, f) in plan::functions(m) {
            let is_instrumented = *(*m).functions.add(i as usize) != UNTOUCHED;
            for s in plan::sites_of(m, f) {
                // A hook leads to its site's slot also before its function is instrumented.
                let is_written = is_instrumented || s.is_any(SITE_IN_HOOK);
                if is_written && !s.is_any(SITE_INDIRECT) {
                    write_slot(m, &s);
                }
            }
        }
        (*m).wirings = *((*m).area_rw as *const u64).add(1);
    }
}
