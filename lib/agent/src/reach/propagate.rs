//! Propagation: before a callee runs, its own call sites are patched.
//!
//! Given the address that a call leads to; gives what has become of it
//! ([`crate::plans::ready::Reach`]). Under one lock, since two threads may reach the same function
//! at once and the second must not run ahead unpatched. Must not know how a site is written.

use crate::frames::shadow;
use crate::memory::state::{Hot, INSTRUMENTED, Module, TAILS};
use crate::memory::{lock, state, sys};
use crate::patch::{site, text};
use crate::plans::ready::Reach;
use crate::plans::{modules, plan, ready};
use crate::reach::{check, module};
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

/// Makes sure that the sites of the function at `target` are patched, or those of its tail jumps
/// that its return address makes necessary, if it is too deep.
pub unsafe fn reach(hot: *mut Hot, target: u64) -> Reach {
    // SAFETY: the module table is complete up to its count; the rest happens under the lock.
    unsafe {
        let known = modules::known(target);
        let limit = state::control().depth_limit;
        let wanted = if limit > 0 && shadow::depth(hot) >= limit {
            TAILS
        } else {
            INSTRUMENTED
        };
        if !known.is_null() && (*known).doubtful == 0 {
            if (*known).plan.is_none() {
                return Reach::Ready;
            }
            if let Some(i) = plan::function_at(known, target)
                && !lacks(known, i, wanted)
            {
                return ready::verdict(known, i);
            }
        }
        if (*state::process()).may_propagate == 0 {
            return match when_not_now(known, target) {
                Reach::Later => Reach::Ready,
                as_it_is => as_it_is,
            };
        }
        let since = sys::tsc();
        if !lock::lock((*hot).tid) {
            state::count_hole(hole::LOCK_BUSY);
            return when_not_now(known, target);
        }
        let r = reach_locked(target, wanted);
        let gs_wanted = core::mem::take(&mut (*state::process()).gs_wanted);
        lock::unlock();
        if gs_wanted != 0 {
            end::gs_is_taken(hot);
        }
        waited(hot, since);
        r
    }
}

/// Nothing can be patched. But a callee that reads its return address must not find a foreign one,
/// nor may one that it jumps to.
unsafe fn when_not_now(known: *const Module, target: u64) -> Reach {
    // SAFETY: as in reach; a plan does not change.
    unsafe {
        if known.is_null() || (*known).plan.is_none() || (*known).doubtful != 0 {
            return Reach::Later;
        }
        match plan::function_at(known, target) {
            Some(i) if lacks(known, i, TAILS) => Reach::ReturnAddress,
            Some(i) => ready::verdict(known, i),
            None => Reach::Later,
        }
    }
}

/// True if function number `i` is not instrumented as far as `wanted`,
/// [`crate::memory::state::INSTRUMENTED`] or [`crate::memory::state::TAILS`].
unsafe fn lacks(m: *const Module, i: u32, wanted: u8) -> bool {
    // SAFETY: `i` came from function_at.
    unsafe {
        let flags = plan::flags_of(m, i);
        let needs_nothing = wanted == TAILS && flags & (FN_TAILS | FN_USES_GS) == 0;
        match *(*m).functions.add(i as usize) {
            INSTRUMENTED => false,
            TAILS => wanted != TAILS,
            _ => !needs_nothing,
        }
    }
}

/// Makes the module at `target` known, which intercepts its special functions, and no more: for
/// calls from code that is not traced. What happens to the process must not go unseen.
pub unsafe fn know(hot: *mut Hot, target: u64) {
    // SAFETY: as in reach.
    unsafe {
        if !modules::known(target).is_null() || (*state::process()).may_propagate == 0 {
            return;
        }
        let since = sys::tsc();
        if lock::lock((*hot).tid) {
            module::find(target);
            lock::unlock();
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

/// [`reach`] with the lock held: instruments as far as `wanted`,
/// [`crate::memory::state::INSTRUMENTED`] or [`crate::memory::state::TAILS`].
pub unsafe fn reach_locked(target: u64, wanted: u8) -> Reach {
    // SAFETY: the lock is held.
    unsafe {
        let m = module::find(target);
        if m.is_null() {
            return Reach::Later;
        }
        let Some(plan) = (*m).plan else {
            return Reach::Ready;
        };
        if (*m).doubtful != 0 {
            check::check_module(m);
        }
        let Some(i) = plan::function_at(m, target) else {
            let offset = target.wrapping_sub((*m).base);
            let h = plan.header();
            if offset < h.plt_start as u64 || offset >= h.plt_end as u64 {
                state::count_hole(hole::UNKNOWN_ENTRY);
            }
            return Reach::Ready;
        };
        if lacks(m, i, wanted) {
            instrument(m, i, wanted);
        }
        ready::verdict(m, i)
    }
}

/// Patches function number `first` of a module and those linked with it, or only their tail jumps,
/// as `wanted` says: [`crate::memory::state::INSTRUMENTED`] or [`crate::memory::state::TAILS`].
/// Under the lock.
pub unsafe fn instrument(m: *mut Module, first: u32, wanted: u8) {
    let mut waiting = [0u32; LINKED];
    let mut done = [0u32; LINKED];
    let (mut count, mut finished) = (1usize, 0usize);
    waiting[0] = first;
    // SAFETY: the lock is held; numbers of functions are those of the plan.
    unsafe {
        let Some(plan) = (*m).plan else {
            return;
        };
        let mut batch = text::Batch::of(m);
        while count > 0 {
            count -= 1;
            let Some(&i) = waiting.get(count) else { break };
            let Some(f) = plan.function(i) else { continue };
            let state = (*m).functions.add(i as usize);
            let before = *state;
            if before == INSTRUMENTED
                || before == wanted
                || done.iter().take(finished).any(|d| *d == i)
            {
                continue;
            }
            if f.is_any(FN_USES_GS) {
                (*state::process()).gs_wanted = 1;
            }
            if !f.is_any(FN_MUTED) {
                patch_sites(m, &f, (before, wanted), &mut batch);
                for to in plan.links_of(&f) {
                    let linked = *(*m).functions.add(to as usize);
                    if linked == INSTRUMENTED || linked == wanted {
                        continue;
                    }
                    match waiting.get_mut(count) {
                        Some(place) => {
                            *place = to;
                            count += 1;
                        }
                        None => state::count_hole(hole::TABLE_FULL),
                    }
                }
            }
            if wanted == INSTRUMENTED {
                state::control().functions.fetch_add(1, Ordering::Relaxed);
            }
            match done.get_mut(finished) {
                Some(place) => {
                    *place = i;
                    finished += 1;
                }
                None => {
                    batch.flush();
                    *state = wanted;
                }
            }
        }
        batch.flush();
        for i in done.iter().take(finished) {
            *(*m).functions.add(*i as usize) = wanted;
        }
    }
}

/// Adds the sites of a function to the batch that are to be patched, given how far it is
/// instrumented and how far it shall be.
unsafe fn patch_sites(
    m: *mut Module,
    f: &PlanFunction,
    (before, wanted): (u8, u8),
    batch: &mut text::Batch,
) {
    // SAFETY: the lock is held.
    unsafe {
        if f.is_any(FN_UNRESOLVED) && wanted == INSTRUMENTED {
            state::count_hole(hole::UNRESOLVED);
        }
        let is_loaders = f.is_any(FN_RESOLVER) && state::control().loader == 0;
        let calls = wanted == INSTRUMENTED && !is_loaders;
        let tails = before != TAILS;
        for s in plan::sites_of(m, *f) {
            let is_wanted = if s.is_any(SITE_TAIL) { tails } else { calls };
            if is_wanted {
                site::patch(m, &s, batch);
            }
        }
    }
}

/// ld.so's lazy resolvers are patched before the program runs: the first call through a lazy slot
/// goes to the resolver, which jumps to the function.
pub unsafe fn instrument_resolvers(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        for (i, f) in plan::functions(m) {
            if f.is_any(FN_RESOLVER) && *(*m).functions.add(i as usize) != INSTRUMENTED {
                instrument(m, i, INSTRUMENTED);
            }
        }
    }
}
