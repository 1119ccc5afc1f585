//! Out of the slots of calls that keep their return addresses: those that are counted, and those
//! that are recorded in order.
//!
//! Part of [`crate::signals::context`]. They end in a jump to the callee, and to that the context
//! goes, counted or recorded if that had begun. Must not know the common routines.

use crate::memory::thread::Hot;
use crate::memory::{counters, loss, sys};
use crate::plans::place::Place;
use crate::plans::{kept_order, modules, slot};
use crate::signals::context::{Context, R11, REGISTERS};
use crate::signals::sigframe::{FLAGS, RCX, RDX, RIP, RSP};
use crate::signals::{interrupted, moved, pushed};
use sptrace_wire::plan::kept_order as kept;
use sptrace_wire::plan::{
    JUMP_BYTES, ORDERED_FULL, ORDERED_FULL_ID, ORDERED_ID, ORDERED_JUMP, ORDERED_RESERVED,
    ORDERED_WRITTEN,
};

impl Context<'_> {
    /// Behind the question of a counted call's slot: to the callee, counted.
    pub(super) fn out_of_counted(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        let target = slot::counted_target(place.entry);
        if target == 0 || modules::is_in_area(target) {
            return false;
        }
        if self.0[RIP] == place.entry
            && let (Some(hot), Some(cell)) = (hot, slot::cell_of(place.entry))
        {
            counters::count_at(hot, cell);
        }
        self.0[RIP] = target;
        true
    }

    /// Behind the question of the slot of a call that is recorded in order: to the callee, with its
    /// record if that was reserved.
    pub(super) fn out_of_ordered(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        const PUSHED: u16 = ORDERED_ID + 1;
        let target = slot::ordered_target(place.entry);
        let at = (self.0[RIP] - place.start) as u16;
        if target == 0 || modules::is_in_area(target) {
            return false;
        }
        let has_pushed = (PUSHED..=ORDERED_WRITTEN).contains(&at) || at == ORDERED_FULL;
        let is_reserved = (ORDERED_RESERVED..ORDERED_WRITTEN).contains(&at);
        let is_over = matches!(at, ORDERED_WRITTEN | ORDERED_JUMP | ORDERED_FULL_ID);
        let rsp = self.0[RSP];
        let is_written = is_reserved
            && interrupted::complete(hot, self.0[RCX], [rsp as u32, place.entry as u32]);
        if let Some(hot) = hot.filter(|_| !is_over && !is_written) {
            loss::count(hot);
        }
        if has_pushed {
            let Some(rcx) = sys::read_word(rsp) else {
                return false;
            };
            self.0[RCX] = rcx;
            self.0[RSP] += 8;
        }
        self.0[RIP] = target;
        true
    }

    /// A slot that keeps its callee has put the one that is called into r11: to that, counted.
    pub(super) fn out_of_kept(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        let target = self.0[R11];
        if modules::is_in_area(target) {
            return false;
        }
        if let Some(hot) = hot.filter(|_| self.0[RIP] != place.kept_jump) {
            match slot::kept(place.entry).filter(|kept| kept.callee == target) {
                Some(kept) => counters::count_at(hot, kept.cell),
                None => loss::count(hot),
            }
        }
        self.0[RIP] = target;
        true
    }

    /// In a slot that keeps a callee, whose calls it records in order: to that if it is known that
    /// it is called, with its record if that was reserved. `None`: nothing has happened yet, and it
    /// is as in the slot of any other pointer there.
    pub(super) fn out_of_kept_order(&mut self, hot: Option<&Hot>, place: &Place) -> Option<bool> {
        kept_order::of(place.entry)?;
        let at = self.0[RIP].wrapping_sub(place.entry);
        if !(kept::LOOK..kept::END).contains(&at) {
            return None;
        }
        if at <= kept::ASK {
            self.0[RIP] = match place.push {
                0 => place.looks,
                push => push + pushed::BYTES,
            };
            let pushed = match at {
                kept::LOOK | kept::ASK => 0,
                _ if at == kept::LOOK + 1 || at == kept::MISS + 1 => 1,
                _ => 2,
            };
            return (!self.pop_two(pushed)).then_some(false);
        }
        if at <= kept::PUSHED {
            self.0[RIP] = place.entry - JUMP_BYTES as u64;
            return None;
        }
        let pushed = match at {
            kept::JUMP | kept::BACK => 0,
            _ if at + 1 == kept::JUMP || at + 1 == kept::BACK => 1,
            _ => 2,
        };
        let rsp = self.0[RSP];
        let callee = match at < kept::HELD {
            true => Some(self.0[RDX]),
            false => sys::read_word(rsp.wrapping_sub(8 * (3 - pushed))),
        };
        let Some(callee) = callee else {
            return Some(false);
        };
        let is_reserved = (kept::RESERVED..kept::WRITTEN).contains(&at);
        let record = [
            (rsp as u32).wrapping_add(8),
            place.entry as u32,
            callee as u32,
        ];
        let is_written = is_reserved && interrupted::complete(hot, self.0[RCX], record);
        let is_over = (kept::WRITTEN..=kept::JUMP).contains(&at);
        if let Some(hot) = hot.filter(|_| !is_over && !is_written) {
            loss::count(hot);
        }
        self.0[RIP] = callee;
        Some(self.pop_two(pushed as usize) && !modules::is_in_area(callee))
    }

    /// In such a slot, before what is called is pushed: to that, without a record.
    pub(super) fn forward_looking(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        let push = place.entry + kept::ASK;
        let run = moved::Run::new(REGISTERS.map(|i| self.0[i]), push, self.0[FLAGS]);
        let mut room = [0; moved::LONGEST_BYTES];
        let code = modules::area(push).map(|area| area.read(push, &mut room));
        let target = code.and_then(|code| run.operand_pushed(code, sys::read_word));
        let Some(target) = target.filter(|target| !modules::is_in_area(*target)) else {
            return false;
        };
        self.0[RIP] = target;
        hot.into_iter().for_each(loss::count);
        true
    }

    /// Of rcx and rdx, which are pushed in this order, the last are still to be popped.
    fn pop_two(&mut self, pushed: usize) -> bool {
        let mut words = [0; 2];
        let Some(on_stack) = words.get_mut(..pushed) else {
            return false;
        };
        if sys::read_words(self.0[RSP], on_stack) != 8 * pushed {
            return false;
        }
        match (pushed, words) {
            (1, [rcx, _]) => self.0[RCX] = rcx,
            (2, [rdx, rcx]) => (self.0[RDX], self.0[RCX]) = (rdx, rcx),
            _ => {}
        }
        self.0[RSP] += 8 * pushed as u64;
        true
    }
}
