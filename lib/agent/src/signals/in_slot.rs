//! Out of the slots of calls at which acts run, and out of the code of acts that they call.
//!
//! Part of [`crate::signals::context`]. Where nothing has been added to a table yet, the call is
//! begun again; else it goes on to the callee. What has been added of acts that add more than once
//! may be a part of it, and is counted. Must not know what the code adds.

use crate::memory::table::Module;
use crate::memory::thread::Hot;
use crate::memory::{loss, state, sys};
use crate::plans::place::{self, Place};
use crate::plans::{kept_acts, modules, slot};
use crate::signals::context::{Context, REGISTERS};
use crate::signals::moved;
use crate::signals::sigframe::{FLAGS, RAX, RCX, RDX, RIP, RSP};
use sptrace_wire::control::hole;
use sptrace_wire::plan::kept_acts as kept;
use sptrace_wire::plan::{
    Done, SLOT_ACTS_BELOW_FROM, SLOT_ACTS_FLAGS_KEPT_FROM, SLOT_ACTS_JUMP_BYTES,
    SLOT_ACTS_KEPT_FROM, SLOT_ACTS_SAVED_BYTES, SlotActs,
};

/// `ret` (Intel SDM, RET).
const RET: u8 = 0xc3;

/// What was moved in front of a call may be done again, or nothing was.
fn can_begin_again(place: &Place) -> bool {
    place.moved == 0 && place.text != 0
}

impl Context<'_> {
    /// In the slot itself: before the acts the call is begun again, behind them it goes on.
    pub(super) fn out_of_acts_slot(&mut self, place: &Place) -> bool {
        match self.0[RIP] < place::acts_end_of(place) {
            true => self.back(place),
            false => self.on_to_callee(place),
        }
    }

    /// In the code of acts that a slot has called, which begins at `at`.
    pub(super) fn out_of_acts(&mut self, m: &Module, (acts, at): (SlotActs, u64)) -> bool {
        let rip = self.0[RIP];
        let offset = (rip - at) as u16;
        let is_last = offset + SLOT_ACTS_JUMP_BYTES == acts.bytes
            || modules::area(rip).and_then(|area| area.code(rip)) == Some([RET]);
        let is_below = offset >= SLOT_ACTS_BELOW_FROM && !is_last;
        let base = self.0[RSP] + if is_below { SLOT_ACTS_SAVED_BYTES } else { 0 };
        let mut words = [0; 5];
        if sys::read_words(base - SLOT_ACTS_SAVED_BYTES, &mut words) != size_of_val(&words) {
            return false;
        }
        let [flags, rax, rdx, rcx, id] = words;
        let place = modules::of_area(id).and_then(|m| place::place(m, id));
        let Some(place) = place.filter(|place| {
            // Of a direct call both lie in one area.
            let is_its = place.keeps_acts || place.acts && m.area_holds(id);
            is_its && place::acts_end_of(place) == id
        }) else {
            return false;
        };
        if offset > SLOT_ACTS_KEPT_FROM {
            (self.0[RAX], self.0[RCX], self.0[RDX]) = (rax, rcx, rdx);
        }
        if offset >= SLOT_ACTS_FLAGS_KEPT_FROM {
            self.restore_flags(flags);
        }
        self.0[RSP] = base + 8;
        let done = acts.done_at(offset);
        match done {
            Done::Nothing if place.keeps_acts && !can_begin_again(&place) => {
                state::count_hole(hole::PAYLOADS);
            }
            Done::Nothing => return self.back_to_call(&place),
            Done::Part => state::count_hole(hole::PAYLOADS),
            Done::All => {}
        }
        self.on_to_callee(&place)
    }

    /// In the slot of a call through a pointer that keeps a callee with acts, behind what was moved
    /// there: before anything has happened the call is begun again, or it goes on without what
    /// would have. `None`: it is as in the slot of any other pointer there.
    pub(super) fn out_of_kept_acts(&mut self, hot: Option<&Hot>, place: &Place) -> Option<bool> {
        let at = self.0[RIP].wrapping_sub(place.entry) as i64;
        let kept_acts::KeptActs {
            callee,
            back,
            is_kept,
            ..
        } = kept_acts::of(place.entry)?;
        match at {
            kept::DONE.. => return Some(self.on_to_callee(place)),
            kept::RETURN => {
                self.0[RSP] += 8;
                self.0[RIP] = back;
                return Some(true);
            }
            kept::PUT if !can_begin_again(place) => return None,
            0..kept::RETURN => return None,
            _ => {}
        }
        // What has been pushed, up to the return address.
        let mut words = [0; 2];
        let pushed = match at {
            kept::TWO..kept::POPPED_TWO => 2,
            kept::ONE | kept::POPPED_TWO..kept::POPPED_ONE => 1,
            kept::ASK..=kept::ASKED | kept::HIT => 1,
            _ => 0,
        };
        let bytes = 8 * pushed;
        if sys::read_words(self.0[RSP], words.get_mut(..pushed)?) != bytes {
            return Some(false);
        }
        self.0[RSP] += bytes as u64;
        let is_asking = (kept::ASK..=kept::ASKED).contains(&at);
        match (pushed, words) {
            (1, [rcx, _]) if !is_asking => self.0[RCX] = rcx,
            (2, [rdx, rcx]) => (self.0[RDX], self.0[RCX]) = (rdx, rcx),
            _ => {}
        }
        if can_begin_again(place) {
            return Some(self.back_to_call(place));
        }
        let target = match at {
            kept::ASK..=kept::ASKED => words[0],
            kept::HIT.. => callee,
            _ => match self.operand(place) {
                Some(target) => target,
                None => return Some(false),
            },
        };
        match hot {
            Some(_) if is_kept && target == callee => state::count_hole(hole::PAYLOADS),
            Some(hot) => loss::count(hot),
            None => {}
        }
        self.0[RIP] = target;
        Some(target != 0 && !modules::is_in_area(target))
    }

    /// What the call through a pointer leads to, which has nothing pushed but its return address.
    fn operand(&self, place: &Place) -> Option<u64> {
        let registers = REGISTERS.map(|i| self.0[i]);
        let part = |by| kept_acts::part(place.entry, by);
        let mut run = moved::Run::new(registers, part(kept::OPERAND), self.0[FLAGS]);
        while run.rip != part(kept::ASK) {
            let mut code = [0; moved::LONGEST_BYTES];
            let m = modules::of_area(run.rip)?;
            let code = m.area().read(run.rip, &mut code);
            if let Some(target) = run.operand_pushed(code, sys::read_word) {
                return Some(target);
            }
            run.step(code, sys::read_word)?;
        }
        None
    }

    /// To the text's call, whose return address is on the stack.
    fn back_to_call(&mut self, place: &Place) -> bool {
        self.0[RSP] += if place.keeps_acts { 8 } else { 0 };
        self.back(place)
    }

    fn on_to_callee(&mut self, place: &Place) -> bool {
        let target = match place.keeps_acts {
            true => kept_acts::of(place.entry).map_or(0, |kept| kept.callee),
            false => slot::acts_target(place.entry),
        };
        if target == 0 || modules::is_in_area(target) {
            return false;
        }
        self.0[RIP] = target;
        true
    }
}
