//! Injection's last step: the agent's own start, called once in a fresh image before any of the
//! program's code runs.

use crate::frames::handlers;
use crate::memory::state::Arena;
use crate::memory::{certain, counters, state, sys};
use crate::patch::special;
use crate::reach::{instrument, module, propagate, thread};
use core::sync::atomic::Ordering;
use sptrace_wire::control::hole;

/// Takes up work. `entry` is the address where the program will begin (its own entry point, or
/// ld.so's); `loader_entry`: ld.so's entry, or 0 without ld.so. Every failure leaves the program
/// untouched.
///
/// # Safety
/// `arena` is mapped as `sptrace-wire` says; called once.
pub unsafe fn start(arena: *mut u8, entry: u64, loader_entry: u64, stack_top: u64) {
    // SAFETY: the caller's.
    let Some(arena) = (unsafe { Arena::at(arena) }) else {
        return;
    };
    let p = state::process();
    p.begin_with(&arena);
    let c = state::control();
    p.pid.set(sys::pid());
    thread::number();
    counters::begin_process();
    c.begun.fetch_add(1, Ordering::Relaxed);
    p.stack_top.set(stack_top);
    certain::begin(stack_top);
    handlers::begin(sys::signal_mask());
    if !sys::may_write_text() {
        state::count_hole(hole::SANDBOX);
        return;
    }
    if !p.make_tables() {
        state::count_hole(hole::TABLE_FULL);
        return;
    }
    p.may_propagate.set(true);
    let Some(hot) = thread::ensure() else {
        state::count_hole(hole::TABLE_FULL);
        return;
    };
    if loader_entry != 0 {
        if let Some(loader) = module::find(loader_entry).filter(|m| m.has_plan()) {
            p.loader.set(loader.base.get());
            instrument::instrument_resolvers(loader);
        }
        if c.loader != 0 {
            propagate::reach(hot, loader_entry);
        }
    }
    let program = module::find(entry);
    let is_whole = c.roots_only == 0 && !program.is_some_and(special::has_root);
    // What runs outside of roots, or is too deep, is not seen.
    if !is_whole || c.depth_limit != 0 {
        p.runs_unseen.set(true);
    }
    if is_whole {
        propagate::reach(hot, entry);
    }
    p.may_have_threads.set(true);
}
