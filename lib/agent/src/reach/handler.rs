//! Signal handlers: their entries are intercepted when the kernel is told of them.
//!
//! Given a handler's address, in a recording of system calls; what is done at its entry is the
//! business of [`crate::events::delivered`]. A handler whose entry cannot be intercepted is left
//! alone and counted: also one that somebody may be in the middle of the first bytes of, since a
//! function may be called before it is a handler. Must not know signals.

use crate::memory::thread::Hot;
use crate::memory::{lock, state, sys};
use crate::patch::special;
use crate::reach::{check, module, propagate};
use crate::signals::sigframe;
use core::ops::Range;
use sptrace_wire::control::hole;

/// SIG_DFL, SIG_IGN and SIG_ERR are no handlers.
const NO_HANDLERS: [u64; 3] = [0, 1, u64::MAX];

/// True if it is recorded that signals are delivered.
fn is_wanted() -> bool {
    state::control().captures_offset != 0
}

/// The kernel is about to be told of this handler, by code with this stack pointer.
pub fn watch(hot: &Hot, handler: u64, rsp: u64) {
    if NO_HANDLERS.contains(&handler) || !is_wanted() || !state::process().may_propagate.get() {
        return;
    }
    let since = sys::tsc();
    if !lock::lock(hot.tid.get()) {
        state::count_hole(hole::LOCK_BUSY);
        return;
    }
    // Where other threads are cannot be known, nor changed.
    let may_hold = |bytes: Range<u64>| !sys::alone() || sigframe::is_interrupted_in(bytes, rsp);
    watch_locked(handler, &may_hold);
    lock::unlock();
    propagate::waited(hot, since);
}

/// The same of all that the kernel has been told of before, while it is known where threads are.
/// Under the propagation lock.
pub fn watch_all() {
    if !is_wanted() {
        return;
    }
    for signal in 1..=64 {
        let handler = sys::handler(signal).map_or(0, |handler| handler.address);
        if !NO_HANDLERS.contains(&handler) {
            watch_locked(handler, &|_| false);
        }
    }
}

fn watch_locked(handler: u64, may_hold: &dyn Fn(Range<u64>) -> bool) {
    let Some(m) = module::find(handler) else {
        state::count_hole(hole::HANDLERS);
        return;
    };
    if m.doubtful.get() {
        check::check_module(m);
    }
    if !m.has_plan() || m.gone.get() || !special::install_handler(m, handler, may_hold) {
        state::count_hole(hole::HANDLERS);
    }
}
