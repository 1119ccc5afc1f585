//! Modules and their plans: asking the host, mapping patch areas, the table of instrumented
//! entries, and making areas private after a fork.
//!
//! A patch area is shared anonymous memory mapped twice: readable and executable near the module,
//! readable and writable elsewhere. No page of it is ever both.

use crate::state::*;
use crate::{common, plan, silent, site, special, sys};
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::control::*;
use sptrace_wire::module_answer::{ModuleAnswer, PlannedModule};
use sptrace_wire::plan::*;

/// A host whose heart beats may take this long, for it answers one question after the other and may
/// have a large module to analyse: a minute.
const ANSWER_SLICES: u32 = 1200;
/// One whose heart does not beat: two seconds.
const SILENCE_SLICES: u32 = 40;
const SLICE_MS: u64 = 50;

/// The module that holds `address`, asking the host if it is new. Under the propagation lock.
pub unsafe fn find(address: u64) -> *mut Module {
    // SAFETY: the table is changed under the lock only.
    unsafe {
        let there = known(address);
        if !there.is_null() {
            return there;
        }
        for _ in 0..3 {
            match ask(address) {
                Asked::Module(m, unwinder) => {
                    if unwinder != 0 && known(unwinder).is_null() {
                        ask(unwinder);
                    }
                    return m;
                }
                Asked::Nothing => return core::ptr::null_mut(),
                Asked::PlaceTaken => {}
            }
        }
        count_hole(hole::NO_AREA);
        core::ptr::null_mut()
    }
}

/// The module that holds `address`, if it is known already.
pub unsafe fn known(address: u64) -> *mut Module {
    // SAFETY: entries below module_count are complete.
    unsafe {
        let p = process();
        for i in 0..(*p).module_count as usize {
            let m = &raw mut (*p).modules[i];
            if address >= (*m).start && address < (*m).end && (*m).gone == 0 {
                return m;
            }
        }
        core::ptr::null_mut()
    }
}

enum Asked {
    /// It, and an address in an unwinder that should be asked for next (or 0).
    Module(*mut Module, u64),
    Nothing,
    PlaceTaken,
}

unsafe fn ask(address: u64) -> Asked {
    // SAFETY: answers are checked before use; the entry behind the last is nobody's yet.
    unsafe {
        let Some(answer) = question(ASK_MODULE, address) else {
            count_hole(hole::NO_ANSWER);
            return Asked::Nothing;
        };
        let p = process();
        let index = (*p).module_count as usize;
        if index >= MODULES {
            count_hole(hole::TABLE_FULL);
            return Asked::Nothing;
        }
        let m = &raw mut (*p).modules[index];
        match ModuleAnswer::from_words(answer) {
            ModuleAnswer::Planned(answer) => take_in(m, &answer),
            ModuleAnswer::LeftAlone {
                is_without_file,
                start,
                end,
                is_wide,
            } => {
                count_hole(match is_without_file {
                    true => hole::JIT,
                    false => hole::NO_PLAN,
                });
                if end <= address {
                    return Asked::Nothing;
                }
                // The range is remembered, so that the next call into it asks nobody.
                *m = Module {
                    start,
                    end,
                    wide: u32::from(is_wide),
                    ..NO_MODULE
                };
                make_known();
                Asked::Module(m, 0)
            }
        }
    }
}

/// The entry behind the last is complete: whoever looks for a module finds it from here on.
unsafe fn make_known() {
    core::sync::atomic::fence(Ordering::Release);
    // SAFETY: the number changes under the propagation lock only.
    unsafe { (*process()).module_count += 1 };
}

/// Maps what a module with a plan needs, and enters it at `m`.
unsafe fn take_in(m: *mut Module, answer: &PlannedModule) -> Asked {
    // SAFETY: the plan is checked before use, the area is mapped here.
    unsafe {
        let p = process();
        let arena_bytes = (*((*p).arena as *const Control)).arena_bytes;
        if !(CHUNK_DATA_OFFSET..arena_bytes).contains(&answer.plan_offset) {
            return Asked::Nothing;
        }
        let bytes_max = (arena_bytes - answer.plan_offset) as usize;
        let Some(plan) = plan::at((*p).arena.add(answer.plan_offset as usize), bytes_max) else {
            count_hole(hole::VERSION);
            return Asked::Nothing;
        };
        let header = plan.header();
        let functions = sys::map_private(function_bytes(&plan) as usize);
        if functions.is_null() {
            return Asked::Nothing;
        }
        let bytes = (answer.area_bytes as usize + 4095) & !4095;
        let base = header.base_svma.wrapping_add(answer.bias);
        let rw = match answer.is_left {
            true => take_back(answer.area_at, bytes, header.area_key(), base),
            false => make_area(bytes, answer.area_at as usize),
        };
        if rw.is_null() {
            sys::unmap(functions as usize, function_bytes(&plan) as usize);
            return Asked::PlaceTaken;
        }
        let h = &mut *(rw as *mut AreaHeader);
        if answer.is_left {
            if (*p).originals.is_null() {
                (*p).originals = h.originals as *mut crate::hook::Original;
            }
        } else {
            (h.magic, h.key, h.base) = (AREA_MAGIC, header.area_key(), base);
        }
        *m = Module {
            start: base + header.text_start as u64,
            end: base + header.text_end as u64,
            base,
            plan: Some(plan),
            area: answer.area_at,
            area_rw: rw as u64,
            area_bytes: bytes as u64,
            functions,
            wide: u32::from(answer.is_wide),
            joined: u32::from(answer.is_left),
            is_left: u32::from(answer.is_left && (*p).preparing != 0),
            area_used: h.used.max(SLOTS_START as u64),
            wirings: h.wirings,
            ..NO_MODULE
        };
        h.used = 0;
        make_known();
        if (*p).preparing == 0 {
            if answer.is_left {
                silent::wake(rw);
            }
            special::install_specials(m);
        }
        Asked::Module(m, answer.unwinder)
    }
}

/// Bytes of the table that says which functions of a plan are instrumented.
pub fn function_bytes(plan: &PlanView<'_>) -> u64 {
    (plan.header().functions as u64 + 4096) & !4095
}

/// A patch area: write view anywhere, execute view at `at`. Null if something is there.
unsafe fn make_area(bytes: usize, at: usize) -> *mut u8 {
    // SAFETY: `at` is reserved before it is mapped over.
    unsafe {
        if bytes < SLOTS_START as usize || !sys::reserve_exactly(at, bytes) {
            return core::ptr::null_mut();
        }
        let rw = sys::map_shared(bytes);
        if rw.is_null() {
            sys::unmap(at, bytes);
            return rw;
        }
        common::install(rw);
        if !sys::duplicate_shared(rw as usize, bytes, at) || !sys::protect(at, bytes, sys::PROT_RX)
        {
            sys::unmap(at, bytes);
            sys::unmap(rw as usize, bytes);
            return core::ptr::null_mut();
        }
        rw
    }
}

/// Copies a patch area that an agent has left behind, silent: children share what there is, and go on with it
/// without an agent. In a process that is prepared only [`move_in`] puts the copy in its place: until then its
/// children have what there was. Gives the write view; null if it is another area.
unsafe fn take_back(at: u64, bytes: usize, key: u64, base: u64) -> *mut u8 {
    // SAFETY: the host has found it in the process's maps; nobody writes there.
    unsafe {
        let mut old = AreaHeader::default();
        let want = size_of::<AreaHeader>();
        let got = sys::read_own(at as usize, (&raw mut old).cast(), want);
        let is_it = got == want && old.magic == AREA_MAGIC && old.key == key && old.base == base;
        if !is_it || old.used == 0 || old.used as usize > bytes {
            return core::ptr::null_mut();
        }
        let new = sys::map_shared(bytes);
        if new.is_null() {
            return new;
        }
        core::ptr::copy_nonoverlapping(at as *const u8, new, old.used as usize);
        if (*process()).preparing == 0 && !put_over(new, bytes, at) {
            sys::unmap(new as usize, bytes);
            return core::ptr::null_mut();
        }
        new
    }
}

/// Puts the copy of an area that was left behind in its place; false if that is impossible.
pub unsafe fn move_in(m: *mut Module) -> bool {
    // SAFETY: of the module table.
    unsafe {
        let is_left = (*m).is_left != 0 && (*m).gone == 0;
        if is_left && !put_over((*m).area_rw as *mut u8, (*m).area_bytes as usize, (*m).area) {
            return false;
        }
        (*m).is_left = 0;
        true
    }
}

/// An execute view of `rw` takes the place of another that holds the same bytes; false if that is impossible.
unsafe fn put_over(rw: *mut u8, bytes: usize, at: u64) -> bool {
    // SAFETY: areas are mapped for life; who executes there finds the same bytes before and after.
    unsafe {
        let view = sys::duplicate_shared_anywhere(rw as usize, bytes);
        let is_there = view != 0
            && sys::protect(view, bytes, sys::PROT_RX)
            && sys::move_over(view, bytes, at as usize);
        if view != 0 && !is_there {
            sys::unmap(view, bytes);
        }
        is_there
    }
}

/// Fork children shall not inherit what was mapped for a module, until something leads there.
pub unsafe fn keep_private(m: *mut Module) {
    // SAFETY: of the module table.
    unsafe {
        if (*m).plan.is_some() && (*m).gone == 0 && (*m).is_private == 0 {
            (*m).is_private = 1;
            inherit(m, false);
        }
    }
}

/// Before the first patch of a module: what it leads to must be there in fork children, too. One system call a
/// mapping, of which a large program has a thousand: so not for all modules at once, while it stands still.
pub unsafe fn share(m: *mut Module) {
    // SAFETY: of the module table.
    unsafe {
        if (*m).is_private != 0 {
            inherit(m, true);
            (*m).is_private = 0;
        }
    }
}

unsafe fn inherit(m: *const Module, shall: bool) {
    // SAFETY: mapped for the module.
    unsafe {
        let bytes = (*m).area_bytes as usize;
        sys::inherit((*m).area_rw as usize, bytes, shall);
        if let Some(plan) = &(*m).plan {
            let bytes = function_bytes(plan) as usize;
            sys::inherit((*m).functions as usize, bytes, shall);
        }
        // What a former agent has left is the children's, too.
        if (*m).is_left == 0 {
            sys::inherit((*m).area as usize, bytes, shall);
        }
    }
}

/// In a fork child: modules that nothing leads to from there are as if they had never been met.
unsafe fn forget_private() {
    // SAFETY: one thread; nobody holds a place in the table.
    unsafe {
        let p = process();
        let first = (&raw mut (*p).modules).cast::<Module>();
        // The first is the program's own, which none takes the place of.
        if (*first).is_private != 0 {
            *first = NO_MODULE;
        }
        let mut kept = 0;
        for i in 0..(*p).module_count as usize {
            if (*first.add(i)).is_private == 0 {
                *first.add(kept) = *first.add(i);
                kept += 1;
            }
        }
        for i in kept..(*p).module_count as usize {
            *first.add(i) = NO_MODULE;
        }
        (*p).module_count = kept as u32;
    }
}

/// In a fork child: replaces the areas, which are shared with the parent, by copies of what was
/// used, and puts back to "first" what the parent has wired since the fork.
pub unsafe fn own_areas() -> bool {
    // SAFETY: one thread, signals blocked; this code does not lie in an area.
    unsafe {
        forget_private();
        let p = process();
        for i in 0..(*p).module_count as usize {
            let m = &raw mut (*p).modules[i];
            if (*m).area == 0 {
                continue;
            }
            let bytes = (*m).area_bytes as usize;
            let old = (*m).area_rw as usize;
            let new = sys::map_shared(bytes);
            if new.is_null() {
                return false;
            }
            let used = ((*m).area_used as usize).min(bytes);
            core::ptr::copy_nonoverlapping(old as *const u8, new, used);
            if !sys::duplicate_shared(new as usize, bytes, (*m).area as usize)
                || !sys::protect((*m).area as usize, bytes, sys::PROT_RX)
            {
                return false;
            }
            sys::unmap(old, bytes);
            (*m).area_rw = new as u64;
            if (*(new as *const u64).add(1)) != (*m).wirings {
                site::unwire(m);
            }
        }
    }
    true
}

/// Where `address` in an execute view can be written, or 0.
pub unsafe fn write_view(address: u64) -> u64 {
    // SAFETY: reads the module table.
    unsafe {
        let p = process();
        for i in 0..(*p).module_count as usize {
            let m = &raw const (*p).modules[i];
            if address.wrapping_sub((*m).area) < (*m).area_bytes {
                return address - (*m).area + (*m).area_rw;
            }
        }
        0
    }
}

/// The module whose patch area holds `address`.
pub unsafe fn of_area(address: u64) -> *mut Module {
    // Return addresses on a stack come in runs of one module's.
    static LAST: AtomicU32 = AtomicU32::new(0);
    // SAFETY: reads the module table.
    unsafe {
        let p = process();
        let last = LAST.load(Ordering::Relaxed);
        for i in core::iter::once(last).chain(0..(*p).module_count) {
            let m = &raw mut (*p).modules[i as usize];
            if address.wrapping_sub((*m).area) < (*m).area_bytes {
                if i != last {
                    LAST.store(i, Ordering::Relaxed);
                }
                return m;
            }
        }
        core::ptr::null_mut()
    }
}

/// True if the slot of `id` belongs to ld.so's lazy resolver and the loader's work is not wanted.
pub unsafe fn is_resolver_site(id: u64) -> bool {
    // SAFETY: reads the module table.
    unsafe {
        control().loader == 0 && (*process()).loader != 0 && {
            let m = of_area(id);
            !m.is_null() && (*m).base == (*process()).loader
        }
    }
}

fn hash(address: u64) -> usize {
    (((address >> 4) as u32).wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)) as usize
}

/// True if the host knows from the low half of `address` which one it is.
pub unsafe fn is_narrow(address: u64) -> bool {
    // SAFETY: entries of the module table are complete.
    unsafe {
        let m = known(address);
        !m.is_null() && (*m).wide == 0
    }
}

/// Enters `address` into the table that calls through pointers consult, if its low half is enough.
/// Lock-free: one word.
pub unsafe fn remember(address: u64) {
    // SAFETY: the table has a spare entry at its end.
    unsafe {
        if !is_narrow(address) {
            return;
        }
        let at = (*process()).table.add(hash(address));
        for k in 0..2 {
            let entry = at.add(k);
            let now = entry.read_volatile();
            if now == address {
                return;
            }
            if now == 0 {
                entry.write_volatile(address);
                return;
            }
        }
        // Both taken: replace the second, so that of two hot callees one stays.
        at.add(1).write_volatile(address);
    }
}

/// Drops all entries in `[start, end)`.
pub unsafe fn forget(start: u64, end: u64) {
    // SAFETY: within the table.
    unsafe {
        for i in 0..(1usize << TABLE_BITS) + 1 {
            let entry = (*process()).table.add(i);
            let now = entry.read_volatile();
            if now >= start && now < end {
                entry.write_volatile(0);
            }
        }
    }
}

fn host_is_dead() -> bool {
    control().host_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
}

fn waits_in_vain(slices: u32) -> bool {
    host_is_dead()
        || slices >= ANSWER_SLICES
        || slices >= SILENCE_SLICES && crate::chunk::host_is_stopped()
}

/// A free slot for a question.
unsafe fn take_slot() -> Option<*mut Question> {
    // SAFETY: the slots lie in the arena.
    unsafe {
        let slots = (*process()).arena.add(QUESTIONS_OFFSET as usize) as *mut Question;
        let take = |&q: &*mut Question| {
            let (free, taken) = (QUESTION_FREE, QUESTION_TAKEN);
            (*q).state
                .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        for waited in 0..ANSWER_SLICES {
            let slot = (0..QUESTIONS).map(|i| slots.add(i)).find(take);
            if slot.is_some() || waits_in_vain(waited) {
                return slot;
            }
            sys::futex_wait((*slots).state.as_ptr(), QUESTION_ASKED, SLICE_MS);
        }
        None
    }
}

/// Asks the host and waits. None: no slot, no host, or no answer in time. Without an answer about a
/// module nothing is recorded any more: its stack walkers would meet our return addresses, and a
/// sandbox that it enters would not be noticed.
pub unsafe fn question(kind: u32, argument: u64) -> Option<[u64; 6]> {
    // SAFETY: the slot is ours while its state says so.
    unsafe {
        let answer = take_slot().and_then(|slot| ask_in(slot, kind, argument));
        let goes_on = kind == ASK_TEXT;
        let needs_it = matches!(kind, ASK_MODULE | ASK_MAPPED);
        if answer.is_none() && (needs_it || host_is_dead() && !goes_on) {
            crate::chunk::fall_silent();
        }
        answer
    }
}

unsafe fn ask_in(slot: *mut Question, kind: u32, argument: u64) -> Option<[u64; 6]> {
    // SAFETY: as in question.
    unsafe {
        (*slot).kind = kind;
        // A vfork child asks about memory that is its parent's.
        (*slot).pid = if matches!(kind, ASK_MODULE | ASK_MAPPED | ASK_TEXT) {
            (*process()).pid
        } else {
            sys::pid()
        };
        (*slot).tid = sys::tid();
        (*slot).process = (*process()).number;
        (*slot).argument = argument;
        (*slot).state.store(QUESTION_ASKED, Ordering::Release);
        crate::chunk::ring();
        let mut waited = 0;
        loop {
            let state = (*slot).state.load(Ordering::Acquire);
            if state == QUESTION_ANSWERED {
                break;
            }
            if waits_in_vain(waited) {
                // The host may answer in this very moment: only one of us gets the slot back.
                let (here, given_up) = (Ordering::AcqRel, QUESTION_ABANDONED);
                let back = &(*slot).state;
                if back
                    .compare_exchange(state, given_up, here, Ordering::Relaxed)
                    .is_ok()
                {
                    return None;
                }
                continue;
            }
            sys::futex_wait((*slot).state.as_ptr(), state, SLICE_MS);
            waited += 1;
        }
        let answer = core::array::from_fn(|i| match (*slot).answer.get(i) {
            Some(a) => a.load(Ordering::Relaxed),
            None => 0,
        });
        (*slot).state.store(QUESTION_FREE, Ordering::Release);
        Some(answer)
    }
}
