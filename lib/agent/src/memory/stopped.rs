//! Where the threads stand that the host has stopped for a command.
//!
//! Given the attach block, which the host fills; says whether bytes of the text are in somebody's
//! way. Must not know what shall be written there.

use crate::memory::state;
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::control::FUTEX_OWNER_DIED;

/// A table of the block.
pub unsafe fn table<T>(b: &AttachBlock, at: u64) -> *mut T {
    (b as *const AttachBlock as u64 + at) as *mut T
}

/// True if a command that knows where the threads stand finds that the host has died, so that they
/// run again.
pub fn is_deserted() -> bool {
    // SAFETY: reads the process block and the arena.
    unsafe {
        (*state::process()).pc_count != 0
            && state::control().tracer_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
    }
}

/// True in a command that finds the other threads stopped.
pub fn is_standing() -> bool {
    // SAFETY: reads the process block.
    unsafe { !(*state::process()).pcs.is_null() }
}

/// True if a stopped thread stands, or will return to, between the two: bytes from `start` on must
/// not change.
pub fn is_in_flight(start: u64, end: u64) -> bool {
    // SAFETY: the host wrote so many.
    unsafe {
        let p = state::process();
        if (*p).pc_count == 0 {
            return false;
        }
        let pcs = core::slice::from_raw_parts((*p).pcs, (*p).pc_count as usize);
        let next = pcs.partition_point(|pc| *pc <= start);
        pcs.get(next).is_some_and(|pc| *pc < end)
    }
}
