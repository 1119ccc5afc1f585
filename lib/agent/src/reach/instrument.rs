//! Functions are instrumented: their call sites are patched, and where calls return to.
//!
//! Given functions of a module, one that is about to run or all that an earlier run has met; has
//! their sites patched, together with those of the functions that are linked with them. Under the
//! propagation lock. Must not know how a site is written, nor what led there.

use crate::memory::table::{INSTRUMENTED, Module, TAILS, UNTOUCHED};
use crate::memory::{counters, state, sys};
use crate::patch::{site, text};
use crate::plans::plan;
use crate::reach::return_points::Points;
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// Functions waiting to be instrumented together (cold parts, shared tails).
const LINKED: usize = 256;

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
        m.meet(*i);
    }
}

/// Instruments the functions of a new module that were met before: by an earlier recording of this
/// file, or an earlier process of this one. All at once that takes a tenth of the time, and calls
/// between them need not ask. Under the lock; only while there is one thread, since functions count
/// as instrumented before their text is written.
pub fn ahead(m: &Module) {
    let Some(plan) = m.plan().filter(|_| may_be_ahead(m)) else {
        return;
    };
    let met = || (0..plan.header().functions).filter(|i| m.is_met(*i));
    if met().count() > MOST_AHEAD {
        return;
    }
    for i in met() {
        if let Some(linked) = not_reached(m, &plan, i) {
            linked.all().iter().for_each(|i| m.set_ahead(*i));
        }
    }
    let (mut batch, mut count) = (text::Batch::of(m), 0);
    for (i, f) in plan::functions(m).filter(|(i, _)| m.take_ahead(*i)) {
        if f.is_any(FN_UNRESOLVED) && !f.is_any(FN_CALLS_NOTHING) {
            state::process().will_run_unseen.set(true);
        }
        patch_sites(m, (i, &f), (UNTOUCHED, INSTRUMENTED), &mut batch);
        count += 1;
    }
    batch.flush();
    let ahead = &state::control().functions_ahead;
    ahead.fetch_add(count, Ordering::Relaxed);
}

/// Function number `first` and those that are linked with it, as far as they are not instrumented.
/// `None`: they are too many, or one of them must not be so before it is called.
fn not_reached(m: &Module, plan: &PlanView<'_>, first: u32) -> Option<Numbers> {
    let (mut waiting, mut found) = (Numbers::none(), Numbers::none());
    waiting.add(first);
    while let Some(i) = waiting.take_last() {
        if m.function(i) == INSTRUMENTED || found.all().contains(&i) {
            continue;
        }
        let f = plan.function(i)?;
        let may_be = m.function(i) == UNTOUCHED && !f.is_any(NOT_AHEAD) && found.add(i);
        if !may_be || !plan.links_of(&f).all(|to| waiting.add(to)) {
            return None;
        }
    }
    Some(found)
}

/// Of more, slots would take too much of each process that calls some of them. Of a browser, which
/// has several processes, 78,000 are called.
const MOST_AHEAD: usize = 1 << 17;

/// Functions with one of these flags are instrumented when they are called, or not at all.
const NOT_AHEAD: u16 = FN_USES_GS | FN_MUTED | FN_RESOLVER;

/// The loader's functions may be running when it becomes known.
fn may_be_ahead(m: &Module) -> bool {
    let is_loader = m.base.get() == state::process().loader.get();
    state::control().ahead != 0 && !is_loader && sys::alone()
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
