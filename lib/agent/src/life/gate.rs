//! Gates: pages at which a thread that calls a certain function waits for the host, without a
//! system call of its own.
//!
//! Given where pages for code shall lie, and how many gates there are; maps the pages for code, a
//! page for each gate, and one page behind them for counts. The first touch of a gate is reported
//! to a userfaultfd(2) instead of being served. The host takes the descriptor over
//! (pidfd_getfd(2)), and writes the code and the counts. If the host ends, its descriptor is closed
//! and a gate is an ordinary page: whoever waits, or comes later, goes on.
//!
//! Must not know which functions lead here.

use crate::memory::{stopped, sys};
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;

/// Of a page.
const PAGE: usize = 4096;

/// Carries out [`COMMAND_GATE`]. On failure nothing is left of it.
pub unsafe fn make(b: &AttachBlock) -> u32 {
    // SAFETY: all other threads are stopped; the host wrote so many addresses.
    unsafe {
        let addresses: *const u64 = stopped::table(b, b.modules_at);
        let at = |i: usize| addresses.add(i).read() as usize;
        let count = b.modules as usize;
        let mapped = (0..count).take_while(|i| map_code(at(*i))).count();
        let bytes = b.gate_pages as usize * PAGE;
        let all_bytes = bytes + PAGE;
        let gates = sys::map_private(all_bytes);
        if mapped == count
            && !gates.is_null()
            && let Some(descriptor) = sys::watch_faults(gates as usize, bytes)
        {
            b.gates_at.store(gates as u64, Ordering::Relaxed);
            b.descriptor.store(descriptor as u64, Ordering::Relaxed);
            return RESULT_DONE;
        }
        (0..mapped).for_each(|i| sys::unmap(at(i), PAGE));
        if !gates.is_null() {
            sys::unmap(gates as usize, all_bytes);
        }
        RESULT_FAILED
    }
}

unsafe fn map_code(at: usize) -> bool {
    // SAFETY: nothing is there, or it fails.
    unsafe {
        if !sys::reserve_exactly(at, PAGE) {
            return false;
        }
        let may_run = sys::protect(at, PAGE, sys::PROT_RX);
        if !may_run {
            sys::unmap(at, PAGE);
        }
        may_run
    }
}

/// Carries out [`COMMAND_CLOSE`].
pub unsafe fn close(b: &AttachBlock) -> u32 {
    // SAFETY: it is the one that was opened by `make`, a moment ago.
    unsafe { sys::close(b.descriptor.load(Ordering::Relaxed) as usize) };
    RESULT_DONE
}
