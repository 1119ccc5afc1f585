//! The slots of calls through pointers that are recorded in order and keep a callee
//! ([`sptrace_wire::plan::kept_order`]).
//!
//! Given the entry id of such a slot, or its module; says which callee it keeps, gives it one, and
//! takes that away. Threads may execute there: it is one word, which may change at any time. Must
//! not know how calls are recorded.

use crate::memory::state;
use crate::memory::table::Module;
use crate::plans::{modules, plan};
use core::sync::atomic::{Ordering, fence};
use sptrace_wire::control::block;
use sptrace_wire::plan::kept_order::*;
use sptrace_wire::plan::*;

/// What a slot keeps.
pub struct KeptOrder {
    /// Where its word stands, from the area's start on.
    at: u64,
    minus: u64,
}

/// What the slot with this id keeps. `None`: it is no such slot, or not written.
pub fn of(id: u64) -> Option<KeptOrder> {
    let area = modules::area(id)?;
    let is_it = area.code(id + HIT) == Some(RESERVE)
        && area.code(id + NUMBER) == Some((id as u32).to_le_bytes());
    let at = (id + END).next_multiple_of(8);
    Some(KeptOrder {
        at: is_it.then_some(at - area.start())?,
        minus: u64::from_le_bytes(area.code(at)?),
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
    let word = (id + END).next_multiple_of(8);
    let minus = (word.wrapping_sub(id + MINUS_NAMED) as u32).to_le_bytes();
    let mut code = [NOP; BYTES as usize];
    let parts: [&[u8]; 19] = [
        &PUSH_TWO,
        &operand.load(push_end, id + LOAD),
        &LOAD_MINUS,
        &minus,
        &ADD,
        &POP_TWO,
        &operand.push(push_end, id + ASK),
        &short_jump(id + PUSHED, push_end),
        &RESERVE,
        &block::CURSOR.to_le_bytes(),
        &ORDERED_COMPARE,
        &block::LIMIT.to_le_bytes(),
        &WRITE_ID,
        &(id as u32).to_le_bytes(),
        &WRITE,
        &POP_TWO,
        &JUMP_HELD,
        &POP_TWO,
        &short_jump(id + BACK, id + ASK),
    ];
    let bytes = parts.into_iter().flatten();
    code.iter_mut()
        .zip(bytes)
        .for_each(|(to, byte)| *to = *byte);
    let after = (word - (id + LOOK)) as usize;
    let place = code.iter_mut().skip(after);
    place
        .zip(FREE.to_le_bytes())
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
    of(id).is_some_and(|kept| set(m, kept.at, FREE))
}

/// True if the slot with this id may keep this callee, which is instrumented, and does not yet.
pub fn may_keep(id: u64, callee: u64) -> bool {
    let may = |kept: &KeptOrder| ![STOPPED, callee.wrapping_neg()].contains(&kept.minus);
    of(id).as_ref().is_some_and(may) && may_be_kept(callee)
}

/// It does, instead of another one, if it may still. Under the propagation lock.
pub fn keep(id: u64, callee: u64) {
    let may = may_keep(id, callee);
    let Some((m, kept)) = modules::of_area(id).zip(of(id)).filter(|_| may) else {
        return;
    };
    modules::note_wiring(m);
    set(m, kept.at, callee.wrapping_neg());
    // Whoever ends the recording does not wait for this.
    fence(Ordering::SeqCst);
    if state::process().dormant.load(Ordering::Relaxed) != 0 {
        set(m, kept.at, STOPPED);
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
            set(m, kept.at, FREE);
        }
    });
}

/// No slot of the module records by itself any more.
pub fn stop(m: &Module) {
    each(m, &|kept| {
        set(m, kept.at, STOPPED);
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
