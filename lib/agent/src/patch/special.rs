//! Functions whose entry is intercepted, whoever calls them: special ones and hooks.
//!
//! Given a module that is new; its plan says where such functions begin. What happens at the entry
//! is the business of [`crate::events::process`] and [`crate::events::hook`].

use crate::memory::table::Module;
use crate::memory::{certain, counters, mapped, state, stopped, sys};
use crate::patch::{site, text};
use crate::plans::patched::{Patch, Springboard, Stands};
use crate::plans::plan;
use core::ops::Range;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// Intercepts the entries of a new module's special functions.
pub fn install_specials(m: &Module) {
    let mut batch = text::Batch::of(m);
    let p = state::process();
    if has_root(m) && p.originals.get().is_none() && !counters::keeps_returns() {
        p.originals.set(mapped::make());
    }
    // The slots that hooks lead to, before anything can get there.
    if first_hook_of(m).is_some()
        && let Some(plan) = m.plan()
    {
        for s in plan.sites().filter(|s| s.is_any(SITE_IN_HOOK)) {
            // That its bytes are the plan's is found by the hook, which covers them.
            site::write_slot(m, &s);
        }
    }
    for s in plan::specials(m) {
        match s.kind {
            SpecialKind::SystemCallRefused => {
                state::count_hole(hole::SYSTEM_CALLS);
                certain::leave_alone(s.call_number());
            }
            // Until the kernel is told of it; or no entry.
            SpecialKind::Handler | SpecialKind::RootCall => {}
            _ => {
                let is_added = install(m, &s, &mut batch);
                if !is_added && s.kind.is_system_call() {
                    certain::leave_alone(s.call_number());
                }
            }
        }
    }
    batch.flush();
}

/// Intercepts the entry of the function at this address, which is to be a signal handler. False:
/// that is impossible. `may_hold`: whether somebody may be about to go on at one of these
/// addresses; a function may have been called before it is a handler.
pub fn install_handler(m: &Module, entry: u64, may_hold: &dyn Fn(Range<u64>) -> bool) -> bool {
    let offset = entry.wrapping_sub(m.base.get());
    let is_it = |s: &PlanSpecial| s.kind == SpecialKind::Handler && u64::from(s.entry) == offset;
    let Some(s) = plan::specials(m).find(is_it) else {
        return false;
    };
    let Some(p) = Patch::of_special(m, &s) else {
        return false;
    };
    if !m.stands(p.at, p.ours.bytes()) {
        if !s.is_one_instruction() && may_hold(p.at + 1..p.at + u64::from(s.span)) {
            return false;
        }
        let mut batch = text::Batch::of(m);
        install(m, &s, &mut batch);
        batch.flush();
    }
    m.stands(p.at, p.ours.bytes())
}

/// Adds the patch of a special function. False: its bytes are not those of the plan, or a thread
/// stands there or where its springboard would.
fn install(m: &Module, s: &PlanSpecial, batch: &mut text::Batch) -> bool {
    let Some(p) = Patch::of_special(m, s) else {
        return false;
    };
    let is_standing = match s.kind.is_system_call() {
        // A call that is begun again is found where it stands: see
        // [`crate::plans::place::SystemCall`].
        true if is_intact(s) => stopped::is_in_flight(p.at, p.at + p.ours.bytes().len() as u64),
        true => stopped::is_in_flight(p.at, p.at + s.span as u64 + 1),
        false => stopped::is_in_flight(p.at, p.at + s.span as u64),
    };
    if is_standing {
        state::count_hole(hole::IN_FLIGHT);
        false
    } else if m.stands(p.at, p.original.bytes()) && site::template(m, s.argument, s.slot) {
        let is_added = match Springboard::of_special(m, s) {
            Some(spring) => site::put_springboard(m, &p, &spring, batch),
            None => {
                batch.add(&p);
                true
            }
        };
        match s.kind {
            SpecialKind::Prctl => state::process().sees_sandbox.set(true),
            SpecialKind::Syscall => state::process().sees_syscall.set(true),
            _ => {}
        }
        is_added
    } else {
        state::count_hole(hole::BYTES_DIFFER);
        false
    }
}

/// True if the jump leaves the instruction that calls the kernel as it is, or takes its place: a
/// thread that is in its call may come back to it.
pub fn is_intact(s: &PlanSpecial) -> bool {
    s.kind == SpecialKind::SystemCallFar || s.entry - s.start >= JUMP_BYTES as u32
}

/// True if there is a function in this module whose return address a hook replaces, or at which
/// recording begins.
pub fn has_root(m: &Module) -> bool {
    let is_root = |s: PlanSpecial| matches!(s.kind, SpecialKind::Root | SpecialKind::RootOpen);
    plan::specials(m).any(is_root)
}

/// The first special function, if it is a hook: these come before all others.
fn first_hook_of(m: &Module) -> Option<PlanSpecial> {
    let first = m.plan()?.special(0)?;
    first.kind.is_hook().then_some(first)
}

/// What stands at the entry of a module's first hooked function, if it has any; the text may be
/// unmapped.
pub fn first_hook(m: &Module) -> Option<Stands> {
    let p = Patch::of_special(m, &first_hook_of(m)?)?;
    Some(match sys::read::<JUMP_BYTES>(p.at) {
        Some(now) if now == p.ours.bytes() => Stands::Ours,
        Some(now) if now == p.overwritten() => Stands::Original,
        _ => Stands::Foreign,
    })
}
