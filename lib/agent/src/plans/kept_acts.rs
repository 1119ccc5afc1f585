//! The slots of calls through pointers that keep a callee which has acts ([`SITE_KEEPS_ACTS`]).
//!
//! Given the entry id of such a slot, or its site; says which callee it keeps, gives it one, and
//! takes that away. Threads may execute there: the code is written before the callee that leads to
//! it, and stays when that is gone. Must not know what acts do.

use crate::memory::state;
use crate::memory::table::{Module, UNTOUCHED};
use crate::plans::{modules, payloads, plan, ready};
use crate::routines::image;
use core::sync::atomic::{Ordering, fence};
use sptrace_wire::plan::kept_acts::{ASK, ASKED, END, NOBODY, POP_TO_TOP, PUSH_WORD, RETURN};
use sptrace_wire::plan::*;

/// A slot asks until this: a callee without acts is half of it, one of which nothing is known yet
/// is one.
const TRIES: u64 = 8;
/// The words of a slot, from the first on.
const CALLEE: u64 = 8;
const CODE: u64 = 16;
const BACK: u64 = 24;
const TRIED: u64 = 32;

/// What a slot keeps.
pub struct KeptActs {
    /// Where its words stand, from the area's start on.
    at: u64,
    /// The callee that it has kept last, and may keep again; 0: none yet.
    pub callee: u64,
    /// It keeps that now.
    pub is_kept: bool,
    /// The program's own return address.
    pub back: u64,
    /// How often it was asked for a callee, and 1; 0: the slot is not written.
    tries: u64,
}

/// `by` behind the entry id of a slot, or before it.
pub fn part(id: u64, by: i64) -> u64 {
    id.wrapping_add_signed(by)
}

/// What the slot with this entry id keeps. `None`: it is no such slot.
pub fn of(id: u64) -> Option<KeptActs> {
    let area = modules::area(id)?;
    let is_it = area.code(part(id, ASKED)) == Some(POP_TO_TOP)
        && area.code(part(id, kept_acts::BACK)) == Some(PUSH_WORD);
    let at = part(id, END).next_multiple_of(8);
    let word = |offset| area.code(at + offset).map(u64::from_le_bytes);
    let callee = word(CALLEE)?;
    Some(KeptActs {
        at: is_it.then_some(at - area.start())?,
        callee,
        is_kept: word(0)? == callee.wrapping_neg(),
        back: word(BACK)?,
        tries: word(TRIED)?,
    })
}

/// A slot that has been written: it keeps no callee from here on, and asks. `back`: the program's
/// own return address. False: there is no such slot.
pub fn begin(m: &Module, id: u64, back: u64) -> bool {
    let Some(kept) = of(id) else {
        return false;
    };
    set(m, kept.at + BACK, back);
    forget(m, id, kept.at);
    true
}

/// What is known of a callee that a slot asks about.
enum Known {
    /// Where its acts are.
    Acts(u64),
    /// It has none.
    Nothing,
    /// It is not instrumented yet, or the linker's stub stands for it.
    NotYet,
}

/// The slot asks whether to keep `callee`, which has been reached. Under the propagation lock.
pub fn keep(id: u64, callee: u64) {
    let Some((m, kept)) = modules::of_area(id).zip(of(id)) else {
        return;
    };
    if kept.tries == 0 {
        return;
    }
    // A thread may stand between the compare and the jump: there is one callee for good.
    let may_be = kept.callee == 0 || kept.callee == callee;
    let known = known(callee);
    modules::note_wiring(m);
    let tries = match known {
        Known::Acts(code) if may_be => {
            set(m, kept.at + CALLEE, callee);
            set(m, kept.at + CODE, code);
            set(m, kept.at, callee.wrapping_neg());
            TRIES
        }
        Known::Acts(_) | Known::Nothing => kept.tries + TRIES / 2,
        Known::NotYet => kept.tries + 1,
    };
    set(m, kept.at + TRIED, tries);
    if tries >= TRIES {
        ask(m, id, NOP_5);
    }
    // Whoever ends the recording does not wait for this.
    fence(Ordering::SeqCst);
    if state::process().dormant.load(Ordering::Relaxed) != 0 {
        set(m, kept.at, NOBODY);
    }
}

/// Puts the call of the question there, or filling, by one store: it lies in one aligned word.
fn ask(m: &Module, id: u64, bytes: [u8; JUMP_BYTES]) {
    m.area().renew(part(id, ASK) - m.area_start(), &bytes);
}

/// What is known of a callee whose module is certain.
fn known(callee: u64) -> Known {
    let is_certain = |m: &&Module| !m.doubtful.get() && !m.gone.get();
    let Some(m) = modules::known(callee).filter(is_certain) else {
        return Known::NotYet;
    };
    if !m.has_plan() {
        return Known::Nothing;
    }
    if !ready::may_bring_acts(m, callee) || modules::is_stub(m, callee) {
        return Known::NotYet;
    }
    match payloads::place_in_slots(m, callee) {
        0 => Known::Nothing,
        code => Known::Acts(code),
    }
}

/// No slot of any module keeps a callee any more: it may be gone.
pub fn forget_all() {
    modules::modules().for_each(forget_in);
}

/// The same of one module's, in a fork child: the parent may have put another one there since.
pub fn forget_in(m: &Module) {
    each(m, &|id, at| forget(m, id, at));
}

fn forget(m: &Module, id: u64, at: u64) {
    let first = m.area_start() + u64::from(image::offset(common::ACTS_FIRST));
    set(m, at, NOBODY);
    set(m, at + CODE, part(id, RETURN));
    set(m, at + TRIED, 1);
    ask(m, id, branch(CALL, part(id, ASK), first));
}

/// No acts run by themselves in the module's slots any more.
pub fn stop(m: &Module) {
    each(m, &|_, at| set(m, at, NOBODY));
}

/// The same for good: who takes the area up again writes the slots again.
pub fn retire(m: &Module) {
    each(m, &|_, at| {
        set(m, at, NOBODY);
        set(m, at + TRIED, 0);
    });
}

fn set(m: &Module, at: u64, value: u64) {
    let word = m.area().word(at);
    word.into_iter().for_each(|word| word.set(value));
}

/// Calls `act` for each slot of the module that is written, with its id and where its words stand.
fn each(m: &Module, act: &dyn Fn(u64, u64)) {
    let Some(plan) = m.plan().filter(|_| m.area_start() != 0) else {
        return;
    };
    for (i, f) in plan::functions(m) {
        if m.function(i) == UNTOUCHED {
            continue;
        }
        for s in plan::sites_of(m, f).filter(PlanSite::keeps_acts) {
            let Some((entry, _)) = plan.ids(&s) else {
                continue;
            };
            let id = m.area_start() + u64::from(s.slot) + u64::from(entry);
            if let Some(kept) = of(id).filter(|kept| kept.tries != 0) {
                act(id, kept.at);
            }
        }
    }
}
