//! A module comes in: the host is asked for it, its patch area is mapped, its special functions are
//! intercepted.
//!
//! Given an address that belongs to no known module; gives the module, or the fact that it is left
//! alone. Also areas that become private after a fork, and those that a former agent has left. A
//! patch area is shared anonymous memory mapped twice: readable and executable near the module,
//! readable and writable elsewhere. No page of it is ever both.

use crate::memory::state::{MODULES, Module, NO_MODULE};
use crate::memory::{state, sys};
use crate::patch::{site, special};
use crate::plans::{modules, plan};
use crate::record::question;
use crate::routines::{image, silent};
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;
use sptrace_wire::module_answer::{ModuleAnswer, PlannedModule};
use sptrace_wire::plan::*;

/// The module that holds `address`, asking the host if it is new. Under the propagation lock.
pub unsafe fn find(address: u64) -> *mut Module {
    // SAFETY: the table is changed under the lock only.
    unsafe {
        let there = modules::known(address);
        if !there.is_null() {
            return there;
        }
        for _ in 0..3 {
            match ask(address) {
                Asked::Module(m, unwinder) => {
                    if unwinder != 0 && modules::known(unwinder).is_null() {
                        ask(unwinder);
                    }
                    return m;
                }
                Asked::Nothing => return core::ptr::null_mut(),
                Asked::PlaceTaken => {}
            }
        }
        state::count_hole(hole::NO_AREA);
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
        let Some(answer) = question::question(ASK_MODULE, address) else {
            state::count_hole(hole::NO_ANSWER);
            return Asked::Nothing;
        };
        let p = state::process();
        let index = (*p).module_count as usize;
        if index >= MODULES {
            state::count_hole(hole::TABLE_FULL);
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
                state::count_hole(match is_without_file {
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
    unsafe { (*state::process()).module_count += 1 };
}

/// Maps what a module with a plan needs, and enters it at `m`.
unsafe fn take_in(m: *mut Module, answer: &PlannedModule) -> Asked {
    // SAFETY: the plan is checked before use, the area is mapped here.
    unsafe {
        let p = state::process();
        let arena_bytes = (*((*p).arena as *const Control)).arena_bytes;
        if !(CHUNK_DATA_OFFSET..arena_bytes).contains(&answer.plan_offset) {
            return Asked::Nothing;
        }
        let bytes_max = (arena_bytes - answer.plan_offset) as usize;
        let Some(plan) = plan::at((*p).arena.add(answer.plan_offset as usize), bytes_max) else {
            state::count_hole(hole::VERSION);
            return Asked::Nothing;
        };
        let header = plan.header();
        let functions = sys::map_private(modules::function_bytes(&plan) as usize);
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
            sys::unmap(functions as usize, modules::function_bytes(&plan) as usize);
            return Asked::PlaceTaken;
        }
        let h = &mut *(rw as *mut AreaHeader);
        if answer.is_left {
            if (*p).originals.is_null() {
                (*p).originals = h.originals as *mut state::Original;
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
        (*p).has_values |= u32::from(header.values_bytes > 0);
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
        image::install(rw);
        if !sys::duplicate_shared(rw as usize, bytes, at) || !sys::protect(at, bytes, sys::PROT_RX)
        {
            sys::unmap(at, bytes);
            sys::unmap(rw as usize, bytes);
            return core::ptr::null_mut();
        }
        rw
    }
}

/// Copies a patch area that an agent has left behind, silent: children share what there is, and go
/// on with it without an agent. In a process that is prepared only [`move_in`] puts the copy in its
/// place: until then its children have what there was. Gives the write view; null if it is another
/// area.
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
        if (*state::process()).preparing == 0 && !put_over(new, bytes, at) {
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

/// An execute view of `rw` takes the place of another that holds the same bytes; false if that is
/// impossible.
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

/// In a fork child: modules that nothing leads to from there are as if they had never been met.
unsafe fn forget_private() {
    // SAFETY: one thread; nobody holds a place in the table.
    unsafe {
        let p = state::process();
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
        let p = state::process();
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
