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

use crate::memory::mapped::Fresh;
use crate::memory::{stopped, sys};
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;

const PAGE_BYTES: usize = 4096;

/// Carries out [`COMMAND_GATE`]. On failure nothing is left of it.
pub fn make(b: &AttachBlock) -> u32 {
    let addresses = stopped::addresses(b, b.modules_at, b.modules.into());
    let mapped = addresses
        .iter()
        .take_while(|at| map_code(**at as usize))
        .count();
    let bytes = b.gate_pages as usize * PAGE_BYTES;
    let gates = Fresh::private(bytes + PAGE_BYTES);
    let watched = gates.as_ref().and_then(|gates| watch(gates, bytes));
    if mapped == addresses.len()
        && let Some(descriptor) = watched
        && let Some(gates) = gates
    {
        b.gates_at.store(gates.keep(), Ordering::Relaxed);
        b.descriptor.store(descriptor as u64, Ordering::Relaxed);
        return RESULT_DONE;
    }
    watched.into_iter().for_each(sys::close);
    for at in addresses.iter().take(mapped) {
        // SAFETY: mapped just now, and nobody knows of it.
        unsafe { Fresh::again(*at, PAGE_BYTES as u64) }.give_back();
    }
    gates.into_iter().for_each(Fresh::give_back);
    RESULT_FAILED
}

fn watch(gates: &Fresh, bytes: usize) -> Option<usize> {
    // SAFETY: fresh memory, which is unused.
    unsafe { sys::watch_faults(gates.at() as usize, bytes) }
}

/// A page for code. False: something is there, or it is impossible.
fn map_code(at: usize) -> bool {
    let page = Fresh::place(at, PAGE_BYTES).and_then(|page| page.may_run(PAGE_BYTES));
    page.map(Fresh::keep).is_some()
}

/// Carries out [`COMMAND_CLOSE`].
pub fn close(b: &AttachBlock) -> u32 {
    sys::close(b.descriptor.load(Ordering::Relaxed) as usize);
    RESULT_DONE
}
