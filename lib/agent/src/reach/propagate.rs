//! Propagation: before a callee runs, its own call sites are patched.
//!
//! Given the address that a call leads to; gives what has become of it
//! ([`crate::plans::ready::Reach`]). Under one lock, since two threads may reach the same function
//! at once and the second must not run ahead unpatched. Must not know how a site is written.

use crate::frames::shadow;
use crate::memory::table::{INSTRUMENTED, Module, TAILS};
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, state, sys};
use crate::patch::{site, text};
use crate::plans::ready::Reach;
use crate::plans::{modules, plan, ready, slot};
use crate::reach::return_points::Points;
use crate::reach::{check, module, return_points};
use crate::record::{chunk, end};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;
use sptrace_wire::record;

/// Functions waiting to be instrumented together (cold parts, shared tails).
const LINKED: usize = 256;
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

/// The same, before code runs that is not seen.
fn reach_first(target: u64, wanted: u8) -> Reach {
    let Some(m) = module::find(target) else {
        state::process().will_run_unseen.set(true);
        return Reach::Later;
    };
    let Some(plan) = m.plan() else {
        if !m.calls_nothing.get() {
            state::process().will_run_unseen.set(true);
        }
        return Reach::Ready;
    };
    if m.doubtful.get() {
        check::check_module(m);
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
    ready::verdict(m, i)
}

/// Functions by their numbers, as many as there is room for.
struct Numbers {
    numbers: [u32; LINKED],
    count: usize,
}

impl Numbers {
    fn none() -> Self {
        Self {
            numbers: [0; LINKED],
            count: 0,
        }
    }

    fn all(&self) -> &[u32] {
        self.numbers.get(..self.count).unwrap_or(&[])
    }

    /// False: there is no room.
    fn add(&mut self, i: u32) -> bool {
        let place = self.numbers.get_mut(self.count);
        place.is_some_and(|place| {
            *place = i;
            self.count += 1;
            true
        })
    }

    fn take_last(&mut self) -> Option<u32> {
        let last = self.all().last().copied();
        self.count = self.count.saturating_sub(1);
        last
    }
}

/// Patches function number `first` of a module and those linked with it, or only their tail jumps,
/// as `wanted` says: [`crate::memory::table::INSTRUMENTED`] or [`crate::memory::table::TAILS`].
/// Under the lock.
pub fn instrument(m: &Module, first: u32, wanted: u8) {
    let Some(plan) = m.plan() else {
        return;
    };
    let (mut waiting, mut done) = (Numbers::none(), Numbers::none());
    waiting.add(first);
    let mut batch = text::Batch::of(m);
    while let Some(i) = waiting.take_last() {
        let Some(f) = plan.function(i) else { continue };
        let before = m.function(i);
        if before == INSTRUMENTED || before == wanted || done.all().contains(&i) {
            continue;
        }
        if f.is_any(FN_USES_GS) {
            state::process().gs_wanted.set(true);
        }
        if f.is_any(FN_UNRESOLVED | FN_MUTED) && !f.is_any(FN_CALLS_NOTHING) {
            state::process().will_run_unseen.set(true);
        }
        if !f.is_any(FN_MUTED) {
            patch_sites(m, (i, &f), (before, wanted), &mut batch);
            let lacking = |to: &u32| ![INSTRUMENTED, wanted].contains(&m.function(*to));
            for to in plan.links_of(&f).filter(lacking) {
                if !waiting.add(to) {
                    state::count_hole(hole::TABLE_FULL);
                }
            }
        }
        if wanted == INSTRUMENTED {
            state::control().functions.fetch_add(1, Ordering::Relaxed);
        }
        if !done.add(i) {
            batch.flush();
            m.set_function(i, wanted);
        }
    }
    batch.flush();
    for i in done.all() {
        m.set_function(*i, wanted);
    }
}

/// Adds the sites of a function, given with its number, to the batch that are to be patched, given
/// how far it is instrumented and how far it shall be.
fn patch_sites(
    m: &Module,
    (number, f): (u32, &PlanFunction),
    (before, wanted): (u8, u8),
    batch: &mut text::Batch,
) {
    if f.is_any(FN_UNRESOLVED) && wanted == INSTRUMENTED {
        state::count_hole(hole::UNRESOLVED);
    }
    let is_loaders = f.is_any(FN_RESOLVER) && state::control().loader == 0;
    let calls = wanted == INSTRUMENTED && !is_loaders;
    let tails = before != TAILS;
    let is_wanted = |s: &PlanSite| if s.is_any(SITE_TAIL) { tails } else { calls };
    let is_unseen = |s: &PlanSite| {
        s.form == SiteForm::Refused && !s.is_any(SITE_TAIL | SITE_CALLEE_LINKED) && is_wanted(s)
    };
    // What is done with return points depends on it.
    if plan::sites_of(m, *f).any(|s| is_unseen(&s)) {
        state::process().will_run_unseen.set(true);
    }
    let sees_returns = calls && counters::keeps_returns();
    // Short calls, as far as that is known beforehand.
    let begins = counters::is_mixed();
    let mut points = Points::of(m, (number, *f));
    // Each with its return point: the text is written from one end to the other.
    for (i, s) in f.sites().zip(plan::sites_of(m, *f)) {
        if is_wanted(&s) {
            let may_begin = begins && !s.is_any(SITE_IN_HOOK);
            let twin = may_begin.then(|| m.plan_ref()?.twin(i).filter(PlanSite::begins));
            let way = twin.flatten().map_or(s, |twin| PlanSite {
                verdict: s.verdict,
                ..twin
            });
            site::patch(m, &way, batch);
        }
        if sees_returns && let Some(point) = m.plan_ref().and_then(|plan| plan.twin(i)) {
            points.add(&s, &point, batch);
        }
    }
    points.add_others(batch);
}

/// ld.so's lazy resolvers are patched before the program runs: the first call through a lazy slot
/// goes to the resolver, which jumps to the function.
pub fn instrument_resolvers(m: &Module) {
    for (i, f) in plan::functions(m) {
        if f.is_any(FN_RESOLVER) && m.function(i) != INSTRUMENTED {
            instrument(m, i, INSTRUMENTED);
        }
    }
}
