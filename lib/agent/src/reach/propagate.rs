//! Propagation: before a callee runs, its own call sites are patched.
//!
//! Given the address that a call leads to; gives what has become of it
//! ([`crate::plans::ready::Reach`]). Under one lock, since two threads may reach the same function
//! at once and the second must not run ahead unpatched. Must not know how sites are patched.

use crate::frames::shadow;
use crate::memory::table::{INSTRUMENTED, Module, TAILS};
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, state, sys};
use crate::patch::text;
use crate::plans::ready::Reach;
use crate::plans::{modules, plan, ready, slot};
use crate::reach::instrument::{ahead, instrument};
use crate::reach::{check, module, return_points};
use crate::record::{chunk, end};
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;
use sptrace_wire::record;

/// Waits for the host and the patching of a function, from about 2 us on, are taken out of
/// durations.
const LONG_WAIT_TICKS: u64 = 1 << 12;

/// A call or jump whose callee may not be instrumented yet: reach it, then wire the slot so that
/// it does not come here again. `id` points at the `call`/`jmp` to the callee.
pub fn first(hot: &Hot, id: u64, then: i32) -> Reach {
    let reach = reach(hot, slot::direct_target(id));
    if reach == Reach::Ready {
        text::wire(id, then);
    }
    reach
}

/// Makes sure that the sites of the function at `target` are patched, or those of its tail jumps
/// that its return address makes necessary, if it is too deep.
pub fn reach(hot: &Hot, target: u64) -> Reach {
    let known = modules::known(target);
    let limit = state::control().depth_limit;
    let wanted = if limit > 0 && shadow::depth(hot) >= limit {
        TAILS
    } else {
        INSTRUMENTED
    };
    if let Some(m) = known.filter(|m| !m.doubtful.get()) {
        if !m.has_plan() {
            return Reach::Ready;
        }
        if let Some(i) = plan::function_at(m, target)
            && !lacks(m, i, wanted)
        {
            m.meet(i);
            return ready::verdict(m, i);
        }
    }
    if !state::process().may_propagate.get() {
        return match when_not_now(known, target) {
            Reach::Later => Reach::Ready,
            as_it_is => as_it_is,
        };
    }
    let since = sys::tsc();
    if !lock::lock(hot.tid.get()) {
        state::count_hole(hole::LOCK_BUSY);
        return when_not_now(known, target);
    }
    let r = reach_locked(target, wanted);
    let gs_wanted = state::process().gs_wanted.take();
    lock::unlock();
    if gs_wanted {
        end::gs_is_taken(hot);
    }
    waited(hot, since);
    r
}

/// Nothing can be patched. But a callee that reads its return address must not find a foreign one,
/// nor may one that it jumps to.
fn when_not_now(known: Option<&Module>, target: u64) -> Reach {
    let Some(m) = known.filter(|m| m.has_plan() && !m.doubtful.get()) else {
        return Reach::Later;
    };
    match plan::function_at(m, target) {
        Some(i) if lacks(m, i, TAILS) => Reach::ReturnAddress,
        Some(i) => ready::verdict(m, i),
        None => Reach::Later,
    }
}

/// True if function number `i` is not instrumented as far as `wanted`,
/// [`crate::memory::table::INSTRUMENTED`] or [`crate::memory::table::TAILS`].
fn lacks(m: &Module, i: u32, wanted: u8) -> bool {
    let flags = plan::flags_of(m, i);
    let needs_nothing = wanted == TAILS && flags & (FN_TAILS | FN_USES_GS) == 0;
    match m.function(i) {
        INSTRUMENTED => false,
        TAILS => wanted != TAILS,
        _ => !needs_nothing,
    }
}

/// True if a function that is known begins there.
pub fn is_entry(target: u64) -> bool {
    let known = modules::known(target).filter(|m| m.has_plan());
    known.is_some_and(|m| plan::function_at(m, target).is_some())
}

/// Makes the module at `target` known, which intercepts its special functions, and no more: for
/// calls from code that is not traced. What happens to the process must not go unseen.
pub fn know(hot: &Hot, target: u64) {
    if modules::known(target).is_some() || !state::process().may_propagate.get() {
        return;
    }
    let since = sys::tsc();
    if lock::lock(hot.tid.get()) {
        module::find(target);
        let gs_wanted = state::process().gs_wanted.take();
        lock::unlock();
        if gs_wanted {
            end::gs_is_taken(hot);
        }
        waited(hot, since);
    }
}

/// Records the time since `since` (TSC) as one that the program waited for sptrace, if it was long.
pub fn waited(hot: &Hot, since: u64) {
    let ticks = sys::tsc().wrapping_sub(since);
    if ticks >= LONG_WAIT_TICKS {
        chunk::put(hot, record::BLOCKED, ticks);
    }
}

/// [`reach`] with the lock held: instruments as far as `wanted`,
/// [`crate::memory::table::INSTRUMENTED`] or [`crate::memory::table::TAILS`].
pub fn reach_locked(target: u64, wanted: u8) -> Reach {
    let p = state::process();
    if p.may_have_threads.take() && !sys::alone() {
        p.runs_unseen.set(true);
    }
    let reach = reach_first(target, wanted);
    if p.will_run_unseen.take() && !p.runs_unseen.get() {
        // This is the last moment at which nobody is where he was not seen to go.
        if counters::keeps_returns() && state::control().roots_only == 0 {
            let most = return_points::most_ahead(sys::alone());
            modules::modules().for_each(|m| return_points::patch_ahead(m, most));
        }
        p.runs_unseen.set(true);
    }
    reach
}

/// The module that holds `target`, and not the one that it has taken the place of.
fn find(target: u64) -> Option<&'static Module> {
    let mut m = module::find(target)?;
    if m.doubtful.get() {
        check::check_module(m);
        if m.gone.get() {
            m = module::find(target)?;
        }
    }
    Some(m)
}

/// The same, before code runs that is not seen.
fn reach_first(target: u64, wanted: u8) -> Reach {
    let Some(m) = find(target) else {
        state::process().will_run_unseen.set(true);
        return Reach::Later;
    };
    let Some(plan) = m.plan() else {
        if !m.calls_nothing.get() {
            state::process().will_run_unseen.set(true);
        }
        return Reach::Ready;
    };
    if m.is_new.take() {
        ahead(m);
    }
    let Some(i) = plan::function_at(m, target) else {
        let offset = target.wrapping_sub(m.base.get());
        let h = plan.header();
        if offset < h.plt_start as u64 || offset >= h.plt_end as u64 {
            state::count_hole(hole::UNKNOWN_ENTRY);
            let around = plan::function_around(m, target);
            // All functions of a program with lanes are known: this one goes on where it waited.
            let is_seen = |i| counters::has_lanes() && m.function(i) == INSTRUMENTED;
            if around.is_none_or(|(i, f)| f.site_count > 0 && !is_seen(i)) {
                state::process().will_run_unseen.set(true);
            }
        }
        return Reach::Ready;
    };
    if lacks(m, i, wanted) {
        instrument(m, i, wanted);
    }
    m.meet(i);
    ready::verdict(m, i)
}
