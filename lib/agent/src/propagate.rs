//! Propagation: before a callee runs, its own call sites are patched.
//!
//! Under one lock, since two threads may reach the same function at once and the second must not
//! run ahead unpatched.

use crate::state::*;
use crate::{attach, chunk, common, detach, module, slow, sys, text};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;
use sptrace_wire::record;

/// What became of a callee.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is instrumented as far as it can be: need not be asked again.
    Ready,
    /// Not now (too deep, lock busy, no answer): ask again at its next call.
    Later,
    /// Ready, and it must be given its original return address.
    ReturnAddress,
}

/// No slot has more bytes.
const SLOT_BYTES: usize = 512;

/// Functions waiting to be instrumented together (cold parts, shared tails).
const LINKED: usize = 256;

/// Waits for the host and the patching of a function, from about 2 us on, are taken out of durations.
const LONG_WAIT_TICKS: u64 = 1 << 12;

/// How long the lock is waited for at once, and how often: two minutes, longer than any wait for the host.
const LOCK_SLICE_MS: u64 = 20;
const LOCK_SLICES: u32 = 6000;

/// Makes sure that the sites of the function at `target` are patched.
pub unsafe fn reach(hot: *mut Hot, target: u64) -> Reach {
    // SAFETY: the module table is complete up to its count; the rest happens under the lock.
    unsafe {
        let known = module::known(target);
        if !known.is_null() && (*known).doubtful == 0 {
            if (*known).plan.is_null() {
                return Reach::Ready;
            }
            if let Some(i) = function_at(known, target)
                && (*(*known).functions.add(i)) == INSTRUMENTED
            {
                return verdict(known, i);
            }
        }
        if (*process()).may_propagate == 0 {
            return Reach::Ready;
        }
        let limit = crate::state::control().depth_limit;
        if limit > 0 && slow::depth(hot) >= limit {
            return Reach::Later;
        }
        let since = sys::tsc();
        if !lock((*hot).tid) {
            count_hole(hole::LOCK_BUSY);
            return when_busy(known, target);
        }
        let r = reach_locked(target);
        let gs_wanted = core::mem::take(&mut (*process()).gs_wanted);
        unlock();
        if gs_wanted != 0 {
            crate::process::gs_is_taken(hot);
        }
        waited(hot, since);
        r
    }
}

/// Another thread patches: nothing is done now. But a callee that reads its return address must not find a
/// foreign one meanwhile.
unsafe fn when_busy(known: *const Module, target: u64) -> Reach {
    // SAFETY: as in reach; a plan does not change.
    unsafe {
        if known.is_null() || (*known).plan.is_null() || (*known).doubtful != 0 {
            return Reach::Later;
        }
        match function_at(known, target).map(|i| verdict(known, i)) {
            Some(Reach::ReturnAddress) => Reach::ReturnAddress,
            _ => Reach::Later,
        }
    }
}

/// Makes the module at `target` known, which intercepts its special functions, and no more: for calls from
/// code that is not traced. What happens to the process must not go unseen.
pub unsafe fn know(hot: *mut Hot, target: u64) {
    // SAFETY: as in reach.
    unsafe {
        if !module::known(target).is_null() || (*process()).may_propagate == 0 {
            return;
        }
        let since = sys::tsc();
        if lock((*hot).tid) {
            module::find(target);
            unlock();
            waited(hot, since);
        }
    }
}

/// Records the time since `since` (TSC) as one that the program waited for sptrace, if it was long.
pub unsafe fn waited(hot: *mut Hot, since: u64) {
    let ticks = sys::tsc().wrapping_sub(since);
    if ticks >= LONG_WAIT_TICKS {
        // SAFETY: the thread's own block.
        unsafe { chunk::put(hot, record::BLOCKED, ticks) };
    }
}

/// [`reach`] with the lock held.
pub unsafe fn reach_locked(target: u64) -> Reach {
    // SAFETY: the lock is held.
    unsafe {
        let m = module::find(target);
        if m.is_null() {
            return Reach::Later;
        }
        if (*m).plan.is_null() {
            return Reach::Ready;
        }
        if (*m).doubtful != 0 {
            crate::process::check_module(m);
        }
        let Some(i) = function_at(m, target) else {
            let offset = target.wrapping_sub((*m).base);
            let h = header(m);
            if offset < h.plt_start as u64 || offset >= h.plt_end as u64 {
                count_hole(hole::UNKNOWN_ENTRY);
            }
            return Reach::Ready;
        };
        if *(*m).functions.add(i) != INSTRUMENTED {
            instrument(m, i);
        }
        verdict(m, i)
    }
}

unsafe fn verdict(m: *const Module, i: usize) -> Reach {
    // SAFETY: `i` came from function_at.
    unsafe {
        if (*functions(m).add(i)).flags & FN_RETURN_ADDRESS != 0 {
            Reach::ReturnAddress
        } else {
            Reach::Ready
        }
    }
}

/// The plan's header.
pub unsafe fn header(m: *const Module) -> &'static PlanHeader {
    // SAFETY: plans stay in the arena.
    unsafe { &*((*m).plan as *const PlanHeader) }
}

/// Its functions, by entry.
pub unsafe fn functions(m: *const Module) -> *const PlanFunction {
    // SAFETY: the host wrote offsets within the plan.
    unsafe { (*m).plan.add(header(m).functions_offset as usize) as *const PlanFunction }
}

/// Index of the function that begins at `address`.
unsafe fn function_at(m: *const Module, address: u64) -> Option<usize> {
    // SAFETY: binary search within the count.
    unsafe {
        let want = address.wrapping_sub((*m).base) as u32;
        let table = functions(m);
        let (mut low, mut high) = (0usize, header(m).functions as usize);
        while low < high {
            let middle = (low + high) / 2;
            if (*table.add(middle)).entry < want {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < header(m).functions as usize && (*table.add(low)).entry == want).then_some(low)
    }
}

/// Patches function number `first` of a module and those linked with it. Under the lock.
pub unsafe fn instrument(m: *mut Module, first: usize) {
    let mut waiting = [0u32; LINKED];
    let mut done = [0u32; LINKED];
    let (mut count, mut finished) = (1usize, 0usize);
    waiting[0] = first as u32;
    // SAFETY: the lock is held; indexes are checked against the plan's counts.
    unsafe {
        let h = header(m);
        let mut batch = text::Batch::take();
        while count > 0 {
            count -= 1;
            let Some(&i) = waiting.get(count) else { break };
            let state = (*m).functions.add(i as usize);
            if *state == INSTRUMENTED || done.iter().take(finished).any(|d| *d == i) {
                continue;
            }
            let f = &*functions(m).add(i as usize);
            if f.flags & FN_MUTED == 0 {
                if f.flags & FN_USES_GS != 0 {
                    (*process()).gs_wanted = 1;
                }
                if f.flags & FN_UNRESOLVED != 0 {
                    count_hole(hole::UNRESOLVED);
                }
                let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
                let tails_only = f.flags & FN_RESOLVER != 0 && crate::state::control().loader == 0;
                for k in 0..f.site_count as u32 {
                    if f.first_site + k < h.sites {
                        let s = &*sites.add((f.first_site + k) as usize);
                        if !tails_only || s.flags & SITE_TAIL != 0 {
                            site(m, s, &mut batch);
                        }
                    }
                }
                let links = (*m).plan.add(h.links_offset as usize) as *const u32;
                for l in 0..f.link_count as u32 {
                    if f.first_link + l < h.links {
                        let to = *links.add((f.first_link + l) as usize);
                        let known =
                            to < h.functions && *(*m).functions.add(to as usize) == INSTRUMENTED;
                        if to >= h.functions || known {
                            continue;
                        }
                        if count < LINKED {
                            waiting[count] = to;
                            count += 1;
                        } else {
                            count_hole(hole::TABLE_FULL);
                        }
                    }
                }
            }
            control().functions.fetch_add(1, Ordering::Relaxed);
            if finished < LINKED {
                done[finished] = i;
                finished += 1;
            } else {
                batch.flush();
                *state = INSTRUMENTED;
            }
        }
        batch.flush();
        for i in done.iter().take(finished) {
            *(*m).functions.add(*i as usize) = INSTRUMENTED;
        }
    }
}

unsafe fn site(m: *mut Module, s: &PlanSite, batch: &mut text::Batch) {
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

/// ld.so's lazy resolvers are patched before the program runs: the first call through a lazy slot
/// goes to the resolver, which jumps to the function.
pub unsafe fn instrument_resolvers(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        for i in 0..header(m).functions as usize {
            if (*functions(m).add(i)).flags & FN_RESOLVER != 0
                && *(*m).functions.add(i) != INSTRUMENTED
            {
                instrument(m, i);
            }
        }
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
unsafe fn direct(m: *mut Module, s: &PlanSite, at: u64, callee: u64) {
    // SAFETY: the slot lies within the area (checked).
    unsafe {
        let ready = match function_at(m, callee) {
            Some(i) => *(*m).functions.add(i) == INSTRUMENTED && verdict(m, i) == Reach::Ready,
            None => false,
        };
        let routine = if ready {
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

/// Intercepts the entries of a new module's special functions.
pub unsafe fn install_specials(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        let h = header(m);
        let table = (*m).plan.add(h.specials_offset as usize) as *const PlanSpecial;
        let mut batch = text::Batch::take();
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
                if s.kind == SPECIAL_PRCTL {
                    (*process()).sees_sandbox = 1;
                }
            } else {
                count_hole(hole::BYTES_DIFFER);
            }
        }
        batch.flush();
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

/// In a fork child: slots that the parent has wired since the fork go back to "first" where this
/// process has not instrumented the callee.
pub unsafe fn unwire(m: *mut Module) {
    // SAFETY: one thread, own area.
    unsafe {
        let h = header(m);
        let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
        for i in 0..h.functions as usize {
            let instrumented = *(*m).functions.add(i) == INSTRUMENTED;
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

/// Takes the propagation lock. Whoever ran ahead of a lock that is busy could be inside a function when it
/// is patched, between instructions that are moved together: so this waits as long as the owner lives, and
/// after that (a task that shares the memory was killed) nobody patches any more. False then, and if the
/// owner is this thread.
pub unsafe fn lock(tid: u32) -> bool {
    // SAFETY: the fork page is mapped for life.
    unsafe {
        let word = &(*(*process()).fork_page).lock;
        for _ in 0..LOCK_SLICES {
            let Err(owner) = word.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed)
            else {
                return true;
            };
            if owner == tid {
                return false;
            }
            sys::futex_wait(word.as_ptr(), owner, LOCK_SLICE_MS);
            if word.load(Ordering::Relaxed) == owner && !sys::is_alive(owner) {
                break;
            }
        }
        (*process()).may_propagate = 0;
        false
    }
}

/// Gives it back.
pub unsafe fn unlock() {
    // SAFETY: as above.
    unsafe {
        let word = &(*(*process()).fork_page).lock;
        word.store(0, Ordering::Release);
        sys::futex_wake(word.as_ptr(), 1);
    }
}
