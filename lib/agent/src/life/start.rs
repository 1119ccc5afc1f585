//! Injection's last step: the agent's own start, called once in a fresh image before any of the
//! program's code runs.

use crate::memory::state::{ForkPage, TABLE_BITS};
use crate::memory::{state, sys};
use crate::patch::special;
use crate::reach::{module, propagate, thread};
use core::sync::atomic::Ordering;
use sptrace_wire::control::{Control, hole};

/// Takes up work. `entry` is the address where the program will begin (its own entry point, or
/// ld.so's); `loader_entry`: ld.so's entry, or 0 without ld.so. Every failure leaves the program
/// untouched.
///
/// # Safety
/// `arena` is mapped as `sptrace-wire` says; called once.
pub unsafe fn start(arena: *mut u8, entry: u64, loader_entry: u64, stack_top: u64) {
    // SAFETY: nobody else runs yet.
    unsafe {
        let c = &*(arena as *const Control);
        if c.magic != sptrace_wire::MAGIC || c.version != sptrace_wire::VERSION {
            // Nothing else in it may be believed, nor written.
            return;
        }
        let p = state::process();
        (*p).arena = arena;
        (*p).pid = sys::pid();
        thread::number();
        c.begun.fetch_add(1, Ordering::Relaxed);
        (*p).stack_top = stack_top;
        if !sys::may_write_text() {
            state::count_hole(hole::SANDBOX);
            return;
        }
        let fork_page = sys::map_private(4096) as *mut ForkPage;
        let table = sys::map_private(((1usize << TABLE_BITS) + 512) * 8) as *mut u64;
        if fork_page.is_null() || table.is_null() || !sys::wipe_on_fork(fork_page.cast(), 4096) {
            state::count_hole(hole::TABLE_FULL);
            return;
        }
        (*fork_page).mark = 1;
        (*p).fork_page = fork_page;
        (*p).table = table;
        (*p).may_propagate = 1;
        let hot = thread::ensure();
        if hot.is_null() {
            state::count_hole(hole::TABLE_FULL);
            return;
        }
        if loader_entry != 0 {
            let loader = module::find(loader_entry);
            if !loader.is_null() && (*loader).plan.is_some() {
                (*p).loader = (*loader).base;
                propagate::instrument_resolvers(loader);
            }
            if c.loader != 0 {
                propagate::reach(hot, loader_entry);
            }
        }
        let program = module::find(entry);
        if c.roots_only == 0 && !special::has_root(program) {
            propagate::reach(hot, entry);
        }
    }
}
