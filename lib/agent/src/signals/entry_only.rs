//! Out of the slots of calls that keep their return addresses: those that are counted, and those
//! that are recorded in order.
//!
//! Part of [`crate::signals::context`]. They end in a jump to the callee, and to that the context
//! goes, counted or recorded if that had begun. Must not know the common routines.

use crate::memory::thread::Hot;
use crate::memory::{counters, loss, sys};
use crate::plans::place::Place;
use crate::plans::{modules, slot};
use crate::signals::context::{Context, R11};
use crate::signals::interrupted;
use crate::signals::sigframe::{RCX, RIP, RSP};
use sptrace_wire::plan::{
    ORDERED_FULL, ORDERED_FULL_ID, ORDERED_ID, ORDERED_JUMP, ORDERED_RESERVED, ORDERED_WRITTEN,
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
            && interrupted::complete(hot, self.0[RCX], (place.entry as u32, rsp as u32));
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
}
