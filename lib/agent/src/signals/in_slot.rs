//! Out of the slots of calls at which acts run, and out of the code of acts that they call.
//!
//! Part of [`crate::signals::context`]. Where nothing has been added to a table yet, the call is
//! begun again; else it goes on to the callee. What has been added of acts that add more than once
//! may be a part of it, and is counted. Must not know what the code adds.

use crate::memory::table::Module;
use crate::memory::thread::Hot;
use crate::memory::{loss, state, sys};
use crate::plans::place::{self, Place};
use crate::plans::{modules, slot};
use crate::signals::context::{Context, R11};
use crate::signals::sigframe::{RAX, RCX, RDX, RIP, RSP};
use sptrace_wire::control::hole;
use sptrace_wire::plan::{
    Done, KEPT_ACTS_RETURN, SLOT_ACTS_BELOW_FROM, SLOT_ACTS_FLAGS_KEPT_FROM, SLOT_ACTS_JUMP_BYTES,
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

    /// In the slot of a call through a pointer that keeps a callee with acts, where the callee is
    /// in r11: before anything has happened the call is begun again, or it goes on without what
    /// would have. `None`: it is as in the slot of any other pointer there.
    pub(super) fn out_of_kept_acts(&mut self, hot: Option<&Hot>, place: &Place) -> Option<bool> {
        let rip = self.0[RIP];
        if rip >= place.entry {
            let last = place.exit + KEPT_ACTS_RETURN;
            if rip <= place.exit || rip > last {
                return None;
            }
            // It has returned, and its exit is seen.
            let back = slot::back_of(place.exit);
            self.0[RSP] += if rip == last { 8 } else { 0 };
            self.0[RIP] = back;
            return Some(back != 0);
        }
        if rip == place.kept_jump {
            return Some(self.on_to_callee(place));
        }
        if can_begin_again(place) {
            return Some(self.back_to_call(place));
        }
        if rip > place::far_of(place) {
            return None;
        }
        match (hot, rip < place.kept_jump) {
            (Some(_), true) => state::count_hole(hole::PAYLOADS),
            (Some(hot), false) => loss::count(hot),
            (None, _) => {}
        }
        Some(self.on_to_callee(place))
    }

    /// To the text's call, whose return address is on the stack.
    fn back_to_call(&mut self, place: &Place) -> bool {
        self.0[RSP] += if place.keeps_acts { 8 } else { 0 };
        self.back(place)
    }

    fn on_to_callee(&mut self, place: &Place) -> bool {
        let target = match place.keeps_acts {
            true => self.0[R11],
            false => slot::acts_target(place.entry),
        };
        if target == 0 || modules::is_in_area(target) {
            return false;
        }
        self.0[RIP] = target;
        true
    }
}
