//! A module comes in: the host is asked for it, its patch area is mapped, its special functions are
//! intercepted.
//!
//! Given an address that belongs to no known module; gives the module, or the fact that it is left
//! alone. Must not know what led there.

use crate::memory::counters;
use crate::memory::mapped::{self, Fresh};
use crate::memory::rows::Rows;
use crate::memory::running;
use crate::memory::state;
use crate::memory::state::Originals;
use crate::memory::table::{MODULES, Mapped, Module};
use crate::patch::special;
use crate::plans::{modules, plan};
use crate::reach::areas::{self, Identity};
use crate::reach::{check, return_points};
use crate::record::question;
use crate::routines::{image, silent};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;
use sptrace_wire::module_answer::{ModuleAnswer, PlannedModule};
use sptrace_wire::plan::*;

/// The module that holds `address`, asking the host if it is new. Under the propagation lock.
pub fn find(address: u64) -> Option<&'static Module> {
    let there = modules::known(address);
    if there.is_some() {
        return there;
    }
    for _ in 0..3 {
        match ask(address) {
            Asked::Module(m, unwinder) => {
                if unwinder != 0 && modules::known(unwinder).is_none() {
                    ask(unwinder);
                }
                return Some(m);
            }
            Asked::Nothing => return None,
            Asked::PlaceTaken => {}
        }
    }
    state::count_hole(hole::NO_AREA);
    None
}

enum Asked {
    /// It, and an address in an unwinder that should be asked for next (or 0).
    Module(&'static Module, u64),
    Nothing,
    PlaceTaken,
}

fn ask(address: u64) -> Asked {
    let Some(answer) = question::question(ASK_MODULE, address) else {
        state::count_hole(hole::NO_ANSWER);
        return Asked::Nothing;
    };
    if state::process().module_count.get() as usize >= MODULES {
        state::count_hole(hole::TABLE_FULL);
        return Asked::Nothing;
    }
    match ModuleAnswer::from_words(answer) {
        ModuleAnswer::Planned(answer) => take_in(&answer),
        ModuleAnswer::LeftAlone {
            is_without_file,
            start,
            end,
            is_wide,
            calls_nothing,
        } => {
            state::count_hole(match is_without_file {
                true => hole::JIT,
                false => hole::NO_PLAN,
            });
            if end <= address {
                return Asked::Nothing;
            }
            // The range is remembered, so that the next call into it asks nobody.
            let alone = Module::none();
            alone.start.set(start);
            alone.end.set(end);
            alone.wide.set(is_wide);
            alone.calls_nothing.set(calls_nothing);
            make_known(&alone).map_or(Asked::Nothing, |m| Asked::Module(m, 0))
        }
    }
}

/// Enters a module behind the last: whoever looks for one finds it from here on. `None`: there are
/// too many.
fn make_known(new: &Module) -> Option<&'static Module> {
    let p = state::process();
    let m = p.modules.get(p.module_count.get() as usize)?;
    // SAFETY: behind the last one.
    unsafe { m.become_other(new) };
    core::sync::atomic::fence(Ordering::Release);
    p.module_count.add(1);
    Some(m)
}

/// The plan at this offset in the arena. `None`: there is none that can be used.
fn plan_at(offset: u64) -> Option<PlanView<'static>> {
    let arena_bytes = state::control().arena_bytes;
    if !(CHUNK_DATA_OFFSET..arena_bytes).contains(&offset) {
        return None;
    }
    let first = (state::process().arena() + offset) as *const u8;
    // SAFETY: the arena is mapped to its end, and the host has announced the plan.
    let plan = unsafe { plan::at(first, (arena_bytes - offset) as usize) };
    if plan.is_none() {
        state::count_hole(hole::VERSION);
    }
    plan
}

/// Where the bytes lie that say which functions were met, of the plan at this offset in the arena;
/// 0: not in it.
fn met_at(plan_offset: u64, header: &PlanHeader) -> u64 {
    let at = plan_offset + header.met_at();
    let ends = at + u64::from(header.functions);
    match ends <= state::control().arena_bytes {
        true => state::process().arena() + at,
        false => 0,
    }
}

/// Maps what a module with a plan needs, and enters it.
fn take_in(answer: &PlannedModule) -> Asked {
    let Some(plan) = plan_at(answer.plan_offset) else {
        return Asked::Nothing;
    };
    let header = plan.header();
    let Some(functions) = Fresh::private(modules::function_bytes(&plan) as usize) else {
        return Asked::Nothing;
    };
    let bytes = (answer.area_bytes as usize + 4095) & !4095;
    let base = header.base_svma.wrapping_add(answer.bias);
    let key = header.area_key();
    let rw = match answer.is_left {
        true => areas::take_back(answer.area_at, bytes, Identity { key, base }),
        false => areas::make(bytes, answer.area_at as usize),
    };
    let Some(rw) = rw else {
        functions.give_back();
        return Asked::PlaceTaken;
    };
    let is_preparing = state::process().preparing.get();
    let mapped = Mapped {
        plan,
        area: answer.area_at,
        area_rw: rw.keep(),
        area_bytes: bytes as u64,
        functions: functions.keep(),
        met: met_at(answer.plan_offset, header),
    };
    // SAFETY: all of it was mapped just now, and stays.
    let new = unsafe { Module::none().with(&mapped) };
    new.start.set(base + header.text_start as u64);
    new.end.set(base + header.text_end as u64);
    new.base.set(base);
    new.print.set(check::print_of(base, new.start.get()));
    new.wide.set(answer.is_wide);
    new.joined.set(answer.is_left);
    new.is_left.set(answer.is_left && is_preparing);
    new.is_new.set(!is_preparing && !answer.is_left);
    take_up(&new, answer.is_left, key);
    heed(header);
    let Some(m) = make_known(&new) else {
        return Asked::Nothing;
    };
    if !is_preparing {
        if answer.is_left {
            silent::wake(m.area());
        }
        special::install_specials(m);
        return_points::patch_calls_of_roots(m);
    }
    Asked::Module(m, answer.unwinder)
}

/// What a plan says of the process as a whole.
fn heed(header: &PlanHeader) {
    let p = state::process();
    if header.uses_gs != 0 {
        p.gs_wanted.set(true);
    }
    if header.lane_number != 0 {
        p.small_stacks.set(true);
    }
    if header.lane_number != 0 && counters::keeps_returns() {
        running::begin(header.lane_at, header.lane_number);
    }
    if header.values_bytes > 0 {
        p.has_values.set(true);
        if p.rows.get().is_none() {
            p.rows.set(mapped::make::<Rows>());
        }
    }
}

/// Marks the area of a new module, or goes on with one that was left.
fn take_up(m: &Module, is_left: bool, key: u64) {
    let area = m.area();
    let header = |offset| image::word(area, offset);
    if is_left {
        take_up_originals(header(offset_of!(AreaHeader, originals)));
    } else {
        image::set(area, offset_of!(AreaHeader, magic), AREA_MAGIC);
        image::set(area, offset_of!(AreaHeader, key), key);
        image::set(area, offset_of!(AreaHeader, base), m.base.get());
    }
    let used = header(offset_of!(AreaHeader, used));
    m.area_used.set(used.max(SLOTS_START as u64));
    m.wirings.set(header(offset_of!(AreaHeader, wirings)));
    image::set(area, offset_of!(AreaHeader, used), 0);
}

/// The table of replaced return addresses that a former agent has left.
fn take_up_originals(left: u64) {
    let p = state::process();
    if p.originals.get().is_none() {
        // SAFETY: an agent of the same version has made it, and it stays mapped.
        p.originals
            .set(unsafe { (left as *const Originals).as_ref() });
    }
}
