//! The slots of calls through pointers that are recorded in order and keep a callee
//! ([`sptrace_wire::plan::kept_order`]).
//!
//! Given the entry id of such a slot, or its module; says which callee it keeps, gives it one, and
//! takes that away. Threads may execute there: a callee is written before what leads to it, and
//! stays when that is gone, so that a slot has one for good. Must not know how calls are recorded.

use crate::memory::state;
use crate::memory::table::Module;
use crate::plans::{modules, plan};
use core::sync::atomic::{Ordering, fence};
use sptrace_wire::control::block;
use sptrace_wire::plan::kept_order::*;
use sptrace_wire::plan::*;

/// The second word of a slot, from the first on.
const MINUS: u64 = 8;

/// What a slot keeps.
pub struct KeptOrder {
    /// Where its words stand, from the area's start on.
    at: u64,
    /// The callee that it keeps, or has kept last and may keep again; 0: none yet.
    pub callee: u64,
    minus: u64,
}

/// What the slot with this id keeps. `None`: it is no such slot, or not written.
pub fn of(id: u64) -> Option<KeptOrder> {
    let area = modules::area(id)?;
    let is_it = area.code(id + HIT) == Some(RESERVE)
        && area.code(id + NUMBER) == Some((id as u32).to_le_bytes());
    let at = (id + END).next_multiple_of(8);
    let word = |offset| area.code(at + offset).map(u64::from_le_bytes);
    Some(KeptOrder {
        at: is_it.then_some(at - area.start())?,
        callee: word(0)?,
        minus: word(MINUS)?,
    })
}

/// What the agent puts behind the template of such a slot, and into it. Nobody executes there yet.
/// `push`: where its operand is pushed. False: it cannot be so.
pub fn write(m: &Module, id: u64, push: u64) -> bool {
    let (area, push_end) = (m.area(), id - JUMP_BYTES as u64);
    let mut room = [0; OPERAND_BYTES];
    let pushes = room.get_mut(..push_end.wrapping_sub(push) as usize);
    let Some(operand) = pushes.and_then(|room| Operand::of_push(area.read(push, room))) else {
        return false;
    };
    let words = (id + END).next_multiple_of(8);
    let rel = |to: u64, end: u64| (to.wrapping_sub(id + end) as u32).to_le_bytes();
    let mut code = [NOP; BYTES as usize];
    let parts: [&[u8]; 22] = [
        &PUSH_TWO,
        &operand.load(push_end, id + LOAD),
        &LOAD_MINUS,
        &rel(words + MINUS, MINUS_NAMED),
        &ADD,
        &POP_TWO,
        &operand.push(push_end, id + ASK),
        &short_jump(id + PUSHED, push_end),
        &RESERVE,
        &block::CURSOR.to_le_bytes(),
        &ORDERED_COMPARE,
        &block::LIMIT.to_le_bytes(),
        &WRITE,
        &(id as u32).to_le_bytes(),
        &LOAD_CALLEE,
        &rel(words, NAMED),
        &WRITE_CALLEE,
        &POP_TWO,
        &JUMP_CALLEE,
        &rel(words, FULL),
        &POP_TWO,
        &short_jump(id + BACK, id + ASK),
    ];
    let bytes = parts.into_iter().flatten();
    code.iter_mut()
        .zip(bytes)
        .for_each(|(to, byte)| *to = *byte);
    let after = (words - (id + LOOK)) as usize;
    let both = [0, FREE].into_iter().flat_map(u64::to_le_bytes);
    code.iter_mut()
        .skip(after)
        .zip(both)
        .for_each(|(to, byte)| *to = byte);
    let offset = |place: u64| place - m.area_start();
    m.area_used.raise(offset(id + LOOK) + u64::from(BYTES));
    area.renew(offset(id + LOOK), &code) && area.renew(offset(push), &short_jump(push, id + LOOK))
}

/// `jmp rel8` at `at`.
fn short_jump(at: u64, to: u64) -> [u8; 2] {
    [SHORT_JUMP, to.wrapping_sub(at + 2) as u8]
}

/// A slot that has been written keeps no callee from here on. False: there is no such slot.
pub fn begin(m: &Module, id: u64) -> bool {
    of(id).is_some_and(|kept| set(m, kept.at + MINUS, FREE))
}

/// True if the slot with this id keeps no callee, and may keep this one, which is instrumented.
pub fn may_keep(id: u64, callee: u64) -> bool {
    let is_free = |kept: &KeptOrder| {
        let may_be = kept.callee == 0 || kept.callee == callee;
        kept.minus == FREE && may_be
    };
    of(id).as_ref().is_some_and(is_free) && may_be_kept(callee)
}

/// It does, if it may still. Under the propagation lock: of two callees that come at once, the
/// words of one must not stand beside those of the other.
pub fn keep(id: u64, callee: u64) {
    let may = may_keep(id, callee);
    let Some((m, kept)) = modules::of_area(id).zip(of(id)).filter(|_| may) else {
        return;
    };
    modules::note_wiring(m);
    set(m, kept.at, callee);
    set(m, kept.at + MINUS, callee.wrapping_neg());
    // Whoever ends the recording does not wait for this.
    fence(Ordering::SeqCst);
    if state::process().dormant.load(Ordering::Relaxed) != 0 {
        set(m, kept.at + MINUS, STOPPED);
    }
}

/// It reads no flag, its low half says which it is, and it stands for no other.
fn may_be_kept(callee: u64) -> bool {
    let reads_no_flags = |m: &Module| {
        let function = plan::function_at(m, callee);
        function.is_some_and(|i| plan::flags_of(m, i) & FN_READS_NO_FLAGS != 0)
    };
    let module = modules::known(callee).filter(|m| !m.doubtful.get() && !m.gone.get());
    modules::is_narrow(callee)
        && module.is_some_and(|m| reads_no_flags(m) && !modules::is_stub(m, callee))
}

/// No slot of any module keeps a callee any more: it may be gone.
pub fn forget_all() {
    modules::modules().for_each(forget_in);
}

/// The same of one module's, in a fork child: the parent may have put another one there since.
pub fn forget_in(m: &Module) {
    each(m, &|kept| {
        if kept.minus != STOPPED {
            set(m, kept.at + MINUS, FREE);
        }
    });
}

/// No slot of the module records by itself any more.
pub fn stop(m: &Module) {
    each(m, &|kept| {
        set(m, kept.at + MINUS, STOPPED);
    });
}

fn set(m: &Module, at: u64, value: u64) -> bool {
    let word = m.area().word(at);
    word.is_some_and(|word| {
        word.set(value);
        true
    })
}

/// Calls `act` for each slot of the module that is written.
fn each(m: &Module, act: &dyn Fn(&KeptOrder)) {
    plan::each_id(m, &PlanSite::keeps_in_order, &|_, id| {
        of(id).iter().for_each(act);
    });
}
