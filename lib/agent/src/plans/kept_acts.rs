//! The slots of calls through pointers that keep a callee which has acts ([`SITE_KEEPS_ACTS`]).
//!
//! Given the entry id of such a slot, or its site; says which callee it keeps, gives it one, and
//! takes that away. Threads may execute there: the code is written before the callee that leads to
//! it, and stays when that is gone. Must not know what acts do.

use crate::memory::table::{Module, UNTOUCHED};
use crate::plans::{modules, payloads, plan, ready};
use sptrace_wire::plan::*;

/// No callee has this address: the slot asks no more.
const NOBODY: u64 = 1;
/// A slot is asked so often, the first time of a callee that the linker's stub may stand for.
const TRIES: u64 = 2;
/// From the callee on: where its code stands, and the tries.
const CODE: u64 = 8;
const TRIES_AT: u64 = 16;

/// What a slot keeps.
pub struct KeptActs {
    /// Where the callee stands, from the area's start on.
    at: u64,
    /// Which it is; 0: none yet.
    pub callee: u64,
    /// How often it was asked for one, and 1; 0: the slot is not written.
    tries: u64,
}

/// What the slot with this entry id keeps. `None`: it is no such slot.
pub fn of(id: u64) -> Option<KeptActs> {
    let area = modules::area(id)?;
    let is_it = area.code(id - KEPT_ACTS_DONE) == Some(JUMP_R11)
        && area.code(id - KEPT_ACTS_FAR) == Some(PUT_R11);
    let at = (id + KEPT_ACTS_CALLEE).next_multiple_of(8);
    let word = |at| area.code(at).map(u64::from_le_bytes);
    Some(KeptActs {
        at: is_it.then_some(at - area.start())?,
        callee: word(at)?,
        tries: word(at + TRIES_AT)?,
    })
}

/// True if the slot has been written.
pub fn is_written(id: u64) -> bool {
    of(id).is_some_and(|kept| kept.tries != 0)
}

/// A slot that has just been written: its code is `nothing`, a `ret`, until it keeps a callee.
pub fn begin(m: &Module, id: u64, nothing: u64) -> bool {
    let Some(kept) = of(id) else {
        return false;
    };
    set(m, kept.at + CODE, nothing);
    set(m, kept.at + TRIES_AT, 1);
    true
}

/// The slot asks whether to keep `callee`, which has been reached. Under the propagation lock.
pub fn keep(id: u64, callee: u64) {
    let Some((m, kept)) = modules::of_area(id).zip(of(id)) else {
        return;
    };
    let is_first = kept.callee == 0 && kept.tries != 0;
    if !is_first {
        return;
    }
    let code = code_of(callee).unwrap_or(0);
    if code != 0 {
        set(m, kept.at + CODE, code);
        set(m, kept.at, callee);
    } else if kept.tries >= TRIES {
        set(m, kept.at, NOBODY);
    }
    set(m, kept.at + TRIES_AT, kept.tries + 1);
    modules::note_wiring(m);
}

/// Where the acts of a callee are that is instrumented, and whose module is certain.
fn code_of(callee: u64) -> Option<u64> {
    let is_certain = |m: &&Module| !m.doubtful.get() && !m.gone.get();
    let m = modules::known(callee).filter(is_certain)?;
    let is_ready = m.has_plan() && ready::may_bring_acts(m, callee);
    is_ready.then(|| payloads::place_in_slots(m, callee))
}

/// No slot of any module keeps a callee any more: it may be gone.
pub fn forget_all() {
    for m in modules::modules() {
        each(m, &|at| forget(m, at, 1));
    }
}

/// The same of one module's, in a fork child: the parent may have put another one there since.
pub fn forget_in(m: &Module) {
    each(m, &|at| forget(m, at, 1));
}

/// No acts run by themselves in the module's slots any more.
pub fn stop(m: &Module) {
    each(m, &|at| set(m, at, NOBODY));
}

/// The same for good: who takes the area up again writes the slots again.
pub fn retire(m: &Module) {
    each(m, &|at| forget(m, at, 0));
}

fn forget(m: &Module, at: u64, tries: u64) {
    set(m, at, 0);
    set(m, at + TRIES_AT, tries);
}

fn set(m: &Module, at: u64, value: u64) {
    m.area()
        .word(at)
        .into_iter()
        .for_each(|word| word.set(value));
}

/// Calls `act` for each slot of the module that is written, with where its callee stands.
fn each(m: &Module, act: &dyn Fn(u64)) {
    let Some(plan) = m.plan().filter(|_| m.area_start() != 0) else {
        return;
    };
    for (i, f) in plan::functions(m) {
        if m.function(i) == UNTOUCHED {
            continue;
        }
        for s in plan::sites_of(m, f).filter(PlanSite::keeps_acts) {
            let id = plan
                .ids(&s)
                .map(|(entry, _)| u64::from(s.slot) + u64::from(entry));
            let kept = id.and_then(|id| of(m.area_start() + id));
            kept.filter(|kept| kept.tries != 0)
                .into_iter()
                .for_each(|kept| act(kept.at));
        }
    }
}
