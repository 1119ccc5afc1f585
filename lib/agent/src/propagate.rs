//! Propagation: before a callee runs, its own call sites are patched.
//!
//! Under one lock, since two threads may reach the same function at once and the second must not
//! run ahead unpatched.

use crate::plan::{self, flags_of, function_at};
use crate::state::*;
use crate::{chunk, module, site, slow, sys, text};
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

/// Functions waiting to be instrumented together (cold parts, shared tails).
const LINKED: usize = 256;

/// Waits for the host and the patching of a function, from about 2 us on, are taken out of durations.
const LONG_WAIT_TICKS: u64 = 1 << 12;

/// How long the lock is waited for at once, and how often: two minutes, longer than any wait for the host.
const LOCK_SLICE_MS: u64 = 20;
const LOCK_SLICES: u32 = 6000;

/// Makes sure that the sites of the function at `target` are patched, or those of its tail jumps that
/// its return address makes necessary, if it is too deep.
pub unsafe fn reach(hot: *mut Hot, target: u64) -> Reach {
    // SAFETY: the module table is complete up to its count; the rest happens under the lock.
    unsafe {
        let known = module::known(target);
        let limit = crate::state::control().depth_limit;
        let wanted = if limit > 0 && slow::depth(hot) >= limit {
            TAILS
        } else {
            INSTRUMENTED
        };
        if !known.is_null() && (*known).doubtful == 0 {
            if (*known).plan.is_none() {
                return Reach::Ready;
            }
            if let Some(i) = function_at(known, target)
                && !lacks(known, i, wanted)
            {
                return verdict(known, i);
            }
        }
        if (*process()).may_propagate == 0 {
            return match when_not_now(known, target) {
                Reach::Later => Reach::Ready,
                as_it_is => as_it_is,
            };
        }
        let since = sys::tsc();
        if !lock((*hot).tid) {
            count_hole(hole::LOCK_BUSY);
            return when_not_now(known, target);
        }
        let r = reach_locked(target, wanted);
        let gs_wanted = core::mem::take(&mut (*process()).gs_wanted);
        unlock();
        if gs_wanted != 0 {
            crate::process::gs_is_taken(hot);
        }
        waited(hot, since);
        r
    }
}

/// Nothing can be patched. But a callee that reads its return address must not find a foreign one, nor may
/// one that it jumps to.
unsafe fn when_not_now(known: *const Module, target: u64) -> Reach {
    // SAFETY: as in reach; a plan does not change.
    unsafe {
        if known.is_null() || (*known).plan.is_none() || (*known).doubtful != 0 {
            return Reach::Later;
        }
        match function_at(known, target) {
            Some(i) if lacks(known, i, TAILS) => Reach::ReturnAddress,
            Some(i) => verdict(known, i),
            None => Reach::Later,
        }
    }
}

/// True if function number `i` is not instrumented as far as `wanted`, [`INSTRUMENTED`] or [`TAILS`].
unsafe fn lacks(m: *const Module, i: u32, wanted: u8) -> bool {
    // SAFETY: `i` came from function_at.
    unsafe {
        let flags = flags_of(m, i);
        let needs_nothing = wanted == TAILS && flags & (FN_TAILS | FN_USES_GS) == 0;
        match *(*m).functions.add(i as usize) {
            INSTRUMENTED => false,
            TAILS => wanted != TAILS,
            _ => !needs_nothing,
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

/// [`reach`] with the lock held: instruments as far as `wanted`, [`INSTRUMENTED`] or [`TAILS`].
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
            crate::process::check_module(m);
        }
        let Some(i) = function_at(m, target) else {
            let offset = target.wrapping_sub((*m).base);
            let h = plan.header();
            if offset < h.plt_start as u64 || offset >= h.plt_end as u64 {
                count_hole(hole::UNKNOWN_ENTRY);
            }
            return Reach::Ready;
        };
        if lacks(m, i, wanted) {
            instrument(m, i, wanted);
        }
        verdict(m, i)
    }
}

/// Of a function that lacks nothing.
unsafe fn verdict(m: *const Module, i: u32) -> Reach {
    // SAFETY: `i` came from function_at.
    unsafe {
        let flags = flags_of(m, i);
        // What is muted keeps its tail jumps as they are.
        if flags & FN_RETURN_ADDRESS != 0 || flags & FN_MUTED != 0 && flags & FN_TAILS != 0 {
            Reach::ReturnAddress
        } else if *(*m).functions.add(i as usize) == INSTRUMENTED {
            Reach::Ready
        } else {
            Reach::Later
        }
    }
}

/// True if the function at `callee` is instrumented: a call of it need not ask.
pub unsafe fn is_ready(m: *const Module, callee: u64) -> bool {
    // SAFETY: the module's own tables.
    unsafe { function_at(m, callee).is_some_and(|i| verdict(m, i) == Reach::Ready) }
}

/// Patches function number `first` of a module and those linked with it, or only their tail jumps, as
/// `wanted` says: [`INSTRUMENTED`] or [`TAILS`]. Under the lock.
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
                (*process()).gs_wanted = 1;
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
                        None => count_hole(hole::TABLE_FULL),
                    }
                }
            }
            if wanted == INSTRUMENTED {
                control().functions.fetch_add(1, Ordering::Relaxed);
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

/// Adds the sites of a function to the batch that are to be patched, given how far it is instrumented and how far it
/// shall be.
unsafe fn patch_sites(
    m: *mut Module,
    f: &PlanFunction,
    (before, wanted): (u8, u8),
    batch: &mut text::Batch,
) {
    // SAFETY: the lock is held.
    unsafe {
        if f.is_any(FN_UNRESOLVED) && wanted == INSTRUMENTED {
            count_hole(hole::UNRESOLVED);
        }
        let is_loaders = f.is_any(FN_RESOLVER) && crate::state::control().loader == 0;
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
