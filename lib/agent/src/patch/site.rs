//! One call site: its slot is written, and the jump to it is put among the writes to the text.
//!
//! Given the site's row in the plan; writes into the patch area at once, and into the text by a
//! [`crate::patch::text::Batch`]. A site whose bytes are not those of the plan, or which a thread
//! is in the middle of, stays as it is and is counted. In a fork child slots are written again.
//! Under the propagation lock. Must not know which functions are patched, and when.

use crate::memory::area::Area;
use crate::memory::table::{Module, UNTOUCHED};
use crate::memory::{counters, state, stopped};
use crate::patch::{kept_slot, text};
use crate::plans::patched::{Patch, Springboard};
use crate::plans::{kept_acts, kept_order, modules, padding, payloads, plan, ready, slot};
use crate::routines::image;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use sptrace_wire::control::{self, hole};
use sptrace_wire::plan::*;

/// No slot has more bytes.
const SLOT_BYTES: usize = 512;

/// Patches a site, or counts why not; the text is written with the batch.
pub fn patch(m: &Module, s: &PlanSite, batch: &mut text::Batch) {
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
    let is_original = m.stands(p.at, p.original.bytes())
        && room.is_none_or(|room| m.stands(room.start, room.original));
    if !is_original || !write_slot(m, s) {
        // Fine if it is our own patch already.
        if !m.stands(p.at, p.ours.bytes()) {
            state::count_hole(hole::BYTES_DIFFER);
        }
        return;
    }
    match spring {
        Some(spring) => {
            if put_springboard(m, &p, &spring, batch) {
                count_patched(s);
            }
        }
        None => {
            count_patched(s);
            batch.add(&p);
        }
    }
}

/// A two-byte jump at the site to a long one nearby: in padding, or where instructions stood that
/// are in the slot now. The short jump is written last. False: it cannot be done, which is counted.
pub fn put_springboard(
    m: &Module,
    p: &Patch,
    spring: &Springboard,
    batch: &mut text::Batch,
) -> bool {
    batch.keep_together(3);
    if let Some(room) = spring.room {
        let end = room.start + room.original.len() as u64;
        if stopped::is_in_flight(room.start, end) {
            state::count_hole(hole::IN_FLIGHT);
            return false;
        }
        batch.add_bytes(room.start, &room.jump);
    } else if !spring.is_lent {
        // Only over what is still padding: bytes of nop forms and int3.
        let filling = |b: u8| {
            matches!(
                b,
                0x0f | 0x1f | 0x66 | 0x90 | 0xcc | 0x2e | 0x84 | 0x80 | 0x44 | 0x40 | 0
            )
        };
        let now = m.text::<JUMP_BYTES>(spring.at);
        let Some(now) = now.filter(|now| now.iter().all(|b| filling(*b))) else {
            state::count_hole(hole::BYTES_DIFFER);
            return false;
        };
        if !padding::keep_padding(spring.at, now) {
            state::count_hole(hole::TABLE_FULL);
            return false;
        }
    }
    batch.add_bytes(spring.at, &spring.jump);
    batch.add(p);
    true
}

/// Whether the end of a call is seen, as its return point is patched or stays as it is: its slot
/// says so.
pub fn set_end(m: &Module, call: &PlanSite, is_seen: bool) {
    let ids = m.plan_ref().and_then(|plan| plan.ids(call));
    let is_kept = matches!(call.form, SiteForm::Template | SiteForm::Kept);
    let Some((entry, _)) = ids.filter(|_| is_kept) else {
        return;
    };
    // Behind `jmp CALLEE` or `jmp [rsp-8]`.
    let jump = if call.is_any(SITE_INDIRECT) {
        4
    } else {
        JUMP_BYTES as u64
    };
    let mark = u64::from(call.slot) + u64::from(entry) + jump;
    let now = m.area().code(m.area_start() + mark);
    if (now != Some([END_UNSEEN])) == is_seen {
        return;
    }
    m.area()
        .renew(mark, &[if is_seen { 0 } else { END_UNSEEN }]);
    let [seen, unseen] = &state::control().kept;
    let (less, more) = if is_seen {
        (unseen, seen)
    } else {
        (seen, unseen)
    };
    less.fetch_sub(1, Ordering::Relaxed);
    more.fetch_add(1, Ordering::Relaxed);
}

/// True if the bytes for the long jump of `point` lie in the patch of another of the return points
/// `all`, which is in place or about to be.
pub fn is_lent(m: &Module, point: &PlanSite, all: impl Iterator<Item = PlanSite>) -> bool {
    let spring = Springboard::of_site(m, point);
    spring
        .and_then(|spring| lender(m, &spring, all))
        .is_some_and(|p| {
            let is_about_to = || {
                let end = p.at + p.original.bytes().len() as u64;
                m.stands(p.at, p.original.bytes()) && !stopped::is_in_flight(p.at, end)
            };
            // A slot that could not be written has no call.
            let is_written = modules::area(p.to).and_then(|area| area.code(p.to)) == Some([CALL]);
            is_written && (m.stands(p.at, p.ours.bytes()) || is_about_to())
        })
}

/// The patch of that of the return points `all` in whose bytes this long jump stands.
pub fn lender(
    m: &Module,
    spring: &Springboard,
    all: impl Iterator<Item = PlanSite>,
) -> Option<Patch> {
    let lenders = all.filter(|one| !one.is_any(SITE_SPRINGBOARD));
    let mut patches = lenders.filter_map(|one| Patch::of_site(m, &one));
    patches.find(|p| {
        let end = p.at + p.original.bytes().len() as u64;
        p.at < spring.at && spring.at < end
    })
}

/// Counts a site that is patched; a return point is none.
fn count_patched(s: &PlanSite) {
    if !s.is_return() {
        count(&state::control().patched, s.verdict);
    }
    if counters::keeps_returns() && !s.is_return() && !s.is_any(SITE_TAIL) {
        let is_unseen = s.is_any(SITE_ENTRY_ONLY);
        count(&state::control().kept, is_unseen.into());
    }
}

fn count(counts: &[core::sync::atomic::AtomicU64], verdict: u8) {
    if let Some(c) = counts.get(verdict as usize) {
        c.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes the slot of a site, as the plan says. False: it does not fit into the area.
pub fn write_slot(m: &Module, s: &PlanSite) -> bool {
    match s.form {
        SiteForm::Refused => false,
        SiteForm::Direct => direct(m, s),
        SiteForm::Template if s.keeps_in_order() => keeps_in_order(m, s),
        SiteForm::Template if s.is_any(SITE_KEEPS_CALLEE) => kept(m, s),
        SiteForm::Template if s.keeps_acts() => keeps_acts(m, s),
        SiteForm::Template => template(m, s.argument, s.slot),
        SiteForm::Counted => counted(m, s),
        SiteForm::Ordered => ordered(m, s),
        SiteForm::Acts => acts(m, s),
        SiteForm::Kept => kept_slot::call(m, s),
        SiteForm::Return => kept_slot::return_point(m, s),
    }
}

/// Writes the slot of a direct call or jump that is counted. One that was written before keeps its
/// cell.
fn counted(m: &Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + COUNTED_SLOT_BYTES as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    let slot = m.area_start() + s.slot as u64;
    let id = slot + COUNTED_ID as u64;
    let own = slot::cell_of(id).filter(|cell| counters::is_cell_of(*cell, id));
    let cell = own.or_else(|| counters::new_cell(id, 0).map(counters::displacement));
    let Some(cell) = cell else {
        state::count_hole(hole::NO_CELL);
        return false;
    };
    m.area_used.raise(end);
    let callee = m.base.get() + s.argument as u64;
    let first = m.area_start() + image::offset(sptrace_wire::plan::common::COUNT_FIRST) as u64;
    let asks = match ready::is_ready(m, callee) {
        true => NOP_5,
        false => branch(CALL, slot, first),
    };
    let jump = slot + COUNTED_JUMP as u64;
    let mut code = [0xcc; COUNTED_SLOT_BYTES as usize];
    let parts: [&[u8]; 4] = [
        &asks,
        &INC_GS,
        &cell.to_le_bytes(),
        &branch(JUMP, jump, callee),
    ];
    let bytes = parts.into_iter().flatten();
    code.iter_mut()
        .zip(bytes)
        .for_each(|(to, byte)| *to = *byte);
    m.area().renew(s.slot.into(), &code)
}

/// Writes the slot of a direct call or jump that is recorded in order.
fn ordered(m: &Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + ORDERED_SLOT_BYTES as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    m.area_used.raise(end);
    let slot = m.area_start() + s.slot as u64;
    let callee = m.base.get() + s.argument as u64;
    let routine = |number| m.area_start() + image::offset(number) as u64;
    let at = |offset: u16| slot + u64::from(offset);
    let asks = match ready::is_ready(m, callee) {
        true => NOP_5,
        false => branch(CALL, slot, routine(sptrace_wire::plan::common::ORDER_FIRST)),
    };
    let full = routine(sptrace_wire::plan::common::ORDER_FULL);
    let mut code = [0xcc; ORDERED_SLOT_BYTES as usize];
    let parts: [&[u8]; 12] = [
        &asks,
        &ORDERED_RESERVE,
        &control::block::CURSOR.to_le_bytes(),
        &ORDERED_COMPARE,
        &control::block::LIMIT.to_le_bytes(),
        &ORDERED_WRITE,
        &(at(ORDERED_ID) as u32).to_le_bytes(),
        &[POP_RCX],
        &branch(JUMP, at(ORDERED_JUMP), callee),
        &[POP_RCX],
        &branch(CALL, at(ORDERED_FULL + 1), full),
        &branch(JUMP, at(ORDERED_FULL_ID), callee),
    ];
    let bytes = parts.into_iter().flatten();
    code.iter_mut()
        .zip(bytes)
        .for_each(|(to, byte)| *to = *byte);
    m.area().renew(s.slot.into(), &code)
}

/// Writes the slot of a direct call at which the callee's acts run. Where their code cannot be,
/// each call asks for them.
fn acts(m: &Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + DIRECT_SLOT_BYTES as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    m.area_used.raise(end);
    let slot = m.area_start() + s.slot as u64;
    let at = |offset: u16| slot + u64::from(offset);
    let callee = m.base.get() + s.argument as u64;
    let first = m.area_start() + image::offset(sptrace_wire::plan::common::ACTS_FIRST) as u64;
    let asks = match ready::may_bring_acts(m, callee) {
        true => NOP_5,
        false => branch(CALL, slot, first),
    };
    let code = match payloads::place_in_slots(m, callee) {
        0 => first,
        code => code,
    };
    let mut bytes = [0xcc; DIRECT_SLOT_BYTES as usize];
    let parts = [
        asks,
        branch(CALL, at(ACTS_ID), code),
        branch(JUMP, at(ACTS_JUMP), callee),
    ];
    bytes
        .iter_mut()
        .zip(parts.iter().flatten())
        .for_each(|(to, byte)| *to = *byte);
    m.area().renew(s.slot.into(), &bytes)
}

/// Writes a direct call's slot.
fn direct(m: &Module, s: &PlanSite) -> bool {
    let end = s.slot as u64 + DIRECT_SLOT_BYTES as u64;
    if s.slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    m.area_used.raise(end);
    let at = m.base.get() + s.start as u64;
    let callee = m.base.get() + s.argument as u64;
    let routine = if ready::is_ready(m, callee) {
        image::offset(counters::entry_routine())
    } else {
        image::offset(sptrace_wire::plan::common::FIRST)
    };
    let slot = m.area_start() + s.slot as u64;
    let rel = |to: u64, next: u64| (to.wrapping_sub(next) as u32) as u64;
    // +0: cc cc cc e8 rel32 | +8: e8 rel32 e8 .. | +16: .. rel32 (3 of 4) e9? see wire's
    // site.rs
    let r1 = rel(m.area_start() + routine as u64, slot + 8);
    let r2 = rel(callee, slot + 13);
    let r3 = rel(
        m.area_start() + image::offset(sptrace_wire::plan::common::EXIT) as u64,
        slot + 18,
    );
    let r4 = rel(at + 5, slot + 23);
    let words = [
        0xe8cc_cccc | r1 << 32,
        0xe8 | r2 << 8 | 0xe8 << 40 | (r3 & 0xffff) << 48,
        r3 >> 16 | 0xe9 << 16 | r4 << 24 | 0xcc << 56,
    ];
    let mut code = [0; DIRECT_SLOT_BYTES as usize];
    for (to, word) in code.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    m.area().renew(s.slot.into(), &code)
}

/// Writes the slot of a call through a pointer that keeps its callee. One that was written before
/// stays as it is.
fn kept(m: &Module, s: &PlanSite) -> bool {
    let Some((entry, _)) = m.plan_ref().and_then(|plan| plan.ids(s)) else {
        return false;
    };
    let id = m.area_start() + s.slot as u64 + u64::from(entry);
    if slot::kept(id).is_some_and(|kept| counters::is_cell_of(kept.cell, id)) {
        return true;
    }
    if !template(m, s.argument, s.slot) {
        return false;
    }
    let Some(cell) = counters::new_cell(id, 0).map(counters::displacement) else {
        state::count_hole(hole::NO_CELL);
        return false;
    };
    let at = id - KEPT_CELL_TO_ID - m.area_start();
    m.area().renew(at, &cell.to_le_bytes())
}

/// Writes the slot of a call through a pointer that keeps a callee which has acts: none yet. One
/// that was written before, as by the parent of a fork child, has the same code; threads may be in
/// it, which go where they have been going.
fn keeps_acts(m: &Module, s: &PlanSite) -> bool {
    let Some((entry, _)) = m.plan_ref().and_then(|plan| plan.ids(s)) else {
        return false;
    };
    let id = m.area_start() + u64::from(s.slot) + u64::from(entry);
    let is_written = kept_acts::of(id).is_some() || template(m, s.argument, s.slot);
    let back = m.base.get() + u64::from(s.start) + u64::from(s.span);
    is_written && kept_acts::begin(m, id, back)
}

/// Writes the slot of a call through a pointer that is recorded in order: it keeps no callee from
/// here on. One that was written before has the same code.
fn keeps_in_order(m: &Module, s: &PlanSite) -> bool {
    let Some((entry, _)) = m.plan_ref().and_then(|plan| plan.ids(s)) else {
        return false;
    };
    let slot = m.area_start() + u64::from(s.slot);
    let id = slot + u64::from(entry);
    if kept_order::of(id).is_none() {
        let plan = m.plan_ref();
        let moved = plan.and_then(|plan| Some(plan.template(s.argument)?.head.moved));
        let pushed = match s.is_any(SITE_PUSHES_BACK) {
            true => PUSHED_BACK_BYTES,
            false => 0,
        };
        let push = slot + u64::from(moved.unwrap_or(0)) + pushed;
        if !template(m, s.argument, s.slot) || !kept_order::write(m, id, push) {
            return false;
        }
    }
    kept_order::begin(m, id)
}

/// Copies a template's code into its slot and fills in what depends on addresses. False: there is
/// no such, or it does not fit into the area.
pub fn template(m: &Module, argument: u32, slot: u32) -> bool {
    let Some(t) = m.plan_ref().and_then(|plan| plan.template(argument)) else {
        return false;
    };
    let mut new = [0u8; SLOT_BYTES];
    let end = slot as u64 + t.code.len() as u64;
    let Some(code) = new.get_mut(..t.code.len()) else {
        return false;
    };
    if slot < SLOTS_START || end > m.area_bytes() {
        return false;
    }
    code.copy_from_slice(t.code);
    for x in t.fixups() {
        let target = match x.kind {
            FixupKind::Common => {
                m.area_start() + image::offset(counters::routine_of(x.value)) as u64
            }
            FixupKind::Area => m.area_start() + x.value as u32 as u64,
            FixupKind::Text => m.base.get().wrapping_add(x.value as i64 as u64),
        };
        let position = x.position as usize;
        let next = m.area_start() + slot as u64 + position as u64 + x.to_end as u64;
        let Some(rel32) = code.get_mut(position..position + 4) else {
            return false;
        };
        rel32.copy_from_slice(&(target.wrapping_sub(next) as u32).to_le_bytes());
    }
    m.area_used.raise(end);
    // Somebody may still come back to a slot that was written before: what differs is the
    // displacement of a wired call.
    m.area().renew(slot.into(), code)
}

/// Wirings that were done in an area, by whichever process.
pub fn wirings(area: Area) -> u64 {
    image::word(area, offset_of!(AreaHeader, wirings))
}

/// In a fork child: slots that the parent has wired since the fork go back to "first" where this
/// process has not instrumented the callee.
pub fn unwire(m: &Module) {
    kept_acts::forget_in(m);
    kept_order::forget_in(m);
    for (i, f) in plan::functions(m) {
        let is_instrumented = m.function(i) != UNTOUCHED;
        for s in plan::sites_of(m, f) {
            // A hook leads to its site's slot also before its function is instrumented.
            let is_written = is_instrumented || s.is_any(SITE_IN_HOOK);
            if is_written && !s.is_any(SITE_INDIRECT) {
                write_slot(m, &s);
            }
        }
        for (_, twin) in plan::twins_of(m, f).filter(|_| is_instrumented) {
            let id = m.area_start() + u64::from(twin.slot) + u64::from(COUNTED_ID);
            let is_written = match twin.form {
                SiteForm::Counted => slot::cell_of(id).is_some(),
                SiteForm::Ordered => slot::is_ordered(id),
                _ => false,
            };
            if is_written {
                write_slot(m, &twin);
            }
        }
    }
    m.wirings.set(wirings(m.area()));
}
