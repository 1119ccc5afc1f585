//! Ends the recording from within, when the host is gone or a question has no answer.
//!
//! Turns the routines of all patch areas into those that record nothing, and puts the program's own
//! return addresses back on all stacks. May be called again, and by several threads at once. Must
//! not know who called it, and why.

use crate::memory::counters;
use crate::memory::state;
use crate::memory::state::DORMANT;
use crate::plans::counted;
use crate::record::restore;
use crate::routines::silent;
use core::sync::atomic::Ordering;

/// Records nothing more.
pub fn fall_silent() {
    let p = state::process();
    if p.dormant.fetch_or(DORMANT, Ordering::AcqRel) & DORMANT != 0 {
        return;
    }
    for m in p.known_modules() {
        silent::silence(m.area());
        let is_in_order = counters::is_in_order() || counters::is_mixed();
        if counters::has_cells() || is_in_order || p.has_values.get() {
            counted::stop(m);
        }
    }
    restore::give_back_all();
}
