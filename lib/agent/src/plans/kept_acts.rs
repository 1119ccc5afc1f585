//! The slots of calls through pointers that keep a callee which has acts ([`SITE_KEEPS_ACTS`]).
//!
//! Given the entry id of such a slot, or its site; says which callee it keeps, gives it one, and
//! takes that away. Threads may execute there: the code is written before the callee that leads to
//! it, and stays when that is gone. Must not know what acts do.

use crate::memory::table::{Module, UNTOUCHED};
use crate::plans::{modules, payloads, plan, ready};
use crate::routines::image;
use sptrace_wire::plan::kept_acts::{ASK, ASKED, END, NOBODY, POP_TO_TOP, PUSH_WORD, RETURN};
use sptrace_wire::plan::*;

/// A slot is asked so often, the first time of a callee that the linker's stub may stand for.
const TRIES: u64 = 2;
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
    Some(KeptActs {
        at: is_it.then_some(at - area.start())?,
        callee: word(CALLEE)?,
        back: word(BACK)?,
        tries: word(TRIED)?,
    })
}

/// True if the slot has been written.
pub fn is_written(id: u64) -> bool {
    of(id).is_some_and(|kept| kept.tries != 0)
}

/// A slot that has just been written: it keeps no callee yet. `back`: the program's own return
/// address.
pub fn begin(m: &Module, id: u64, back: u64) -> bool {
    let Some(kept) = of(id) else {
        return false;
    };
    let words = [
        (0, NOBODY),
        (CODE, part(id, RETURN)),
        (BACK, back),
        (TRIED, 1),
    ];
    for (at, word) in words {
        set(m, kept.at + at, word);
    }
    true
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
    let code = code_of(callee).filter(|code| *code != 0 && may_be);
    if let Some(code) = code {
        set(m, kept.at + CALLEE, callee);
        set(m, kept.at + CODE, code);
        set(m, kept.at, callee.wrapping_neg());
    }
    set(m, kept.at + TRIED, kept.tries + 1);
    modules::note_wiring(m);
    if code.is_some() || kept.tries >= TRIES {
        ask(m, id, NOP_5);
    }
}

/// Puts the call of the question there, or filling, by one store: it lies in one aligned word.
fn ask(m: &Module, id: u64, bytes: [u8; JUMP_BYTES]) {
    m.area().renew(part(id, ASK) - m.area_start(), &bytes);
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
    modules::modules().for_each(forget_in);
}

/// The same of one module's, in a fork child: the parent may have put another one there since.
pub fn forget_in(m: &Module) {
    let first = m.area_start() + u64::from(image::offset(common::ACTS_FIRST));
    each(m, &|id, at| {
        set(m, at, NOBODY);
        set(m, at + TRIED, 1);
        let question = part(id, ASK);
        ask(m, id, branch(CALL, question, first));
    });
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
