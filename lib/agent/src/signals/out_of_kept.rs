//! Out of the slots of calls that keep their return addresses: where such an address is pushed, and
//! where it leads to.
//!
//! Part of [`crate::signals::context`]. Must not know the common routines.

use crate::memory::sys;
use crate::memory::thread::Hot;
use crate::plans::modules;
use crate::plans::place::Place;
use crate::signals::around::write_ahead;
use crate::signals::context::Context;
use crate::signals::pushed;
use crate::signals::sigframe::{RAX, RIP, RSP};

impl Context<'_> {
    /// In the slot of a return point, or where that of a call begins with a return: to the text,
    /// or behind what was moved from there. Coming to the return once more ends no call.
    pub(super) fn out_of_return(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        let is_moved = place.is_return && self.0[RIP] > place.exit;
        if is_moved && self.execute_moved(hot, 0) {
            return true;
        }
        (!is_moved || place.is_repeatable) && self.back(place)
    }

    /// Where a slot pushes a return address: behind that and the callee, or before it.
    pub(super) fn out_of_push(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        let (start, rip) = (place.push, self.0[RIP]);
        if rip < start + pushed::BYTES {
            let code = modules::area(rip).and_then(|area| area.code(start + pushed::ADDRESS_AT));
            let rsp = self.0[RSP];
            let registers = (rsp, self.0[RAX], sys::read_word(rsp).unwrap_or(0));
            let displacement = code.map_or(0, i32::from_le_bytes);
            let behind = pushed::finish((start, rip - start), displacement, registers);
            let Some(behind) = behind.filter(|behind| write_ahead(behind.rsp, behind.back)) else {
                return false;
            };
            (self.0[RSP], self.0[RAX]) = (behind.rsp, behind.rax);
            self.0[RIP] = start + pushed::BYTES;
        }
        if place.kept_jump != 0 {
            return self.execute_moved(hot, place.loaded());
        }
        if place.moved == 0 {
            self.0[RSP] += 8;
            return self.back(place);
        }
        match place.operand {
            true => self.forward_unpushed(hot, place),
            false => self.skip_entry(hot, place),
        }
    }
}
