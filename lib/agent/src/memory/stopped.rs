//! Where the threads stand that the host has stopped for a command.
//!
//! Given the attach block, which the host fills; says whether bytes of the text are in somebody's
//! way. Must not know what shall be written there.

use crate::memory::state;
use core::sync::atomic::Ordering;
use sptrace_wire::attach::*;
use sptrace_wire::control::FUTEX_OWNER_DIED;

/// Number `i` of a table of the block.
fn entry<T>(b: &AttachBlock, table_at: u64, i: usize) -> *mut T {
    let first = (&raw const *b as u64 + table_at) as *mut T;
    first.wrapping_add(i)
}

/// The addresses in a table of the block.
pub fn addresses(b: &AttachBlock, table_at: u64, count: u64) -> &[u64] {
    // SAFETY: the host has written so many, and waits.
    unsafe { core::slice::from_raw_parts(entry(b, table_at, 0), count as usize) }
}

/// Stopped thread `i`. `None`: there are not so many.
pub fn thread(b: &AttachBlock, i: u32) -> Option<AttachThread> {
    read(b, b.threads_at, b.threads, i)
}

/// Says something else of stopped thread `i`.
pub fn set_thread(b: &AttachBlock, i: u32, to: AttachThread) {
    write(b, b.threads_at, b.threads, i, to);
}

/// Open call `i`. `None`: there are not so many.
pub fn frame(b: &AttachBlock, i: u32) -> Option<AttachFrame> {
    read(b, b.frames_at, b.frames, i)
}

/// Writes pair `i` of the ranges; what there is no room for is left out.
pub fn set_range(b: &AttachBlock, i: u32, range: [u64; 2]) {
    write(b, b.ranges_at, b.ranges, i, range);
}

fn read<T: Copy>(b: &AttachBlock, table_at: u64, count: u32, i: u32) -> Option<T> {
    // SAFETY: as in addresses.
    (i < count).then(|| unsafe { entry::<T>(b, table_at, i as usize).read() })
}

fn write<T: Copy>(b: &AttachBlock, table_at: u64, count: u32, i: u32, to: T) {
    if i < count {
        // SAFETY: the host has made room for so many, and waits.
        unsafe { entry::<T>(b, table_at, i as usize).write(to) };
    }
}

/// True if a command that knows where the threads stand finds that the host has died, so that they
/// run again.
pub fn is_deserted() -> bool {
    state::process().pcs().is_some_and(|pcs| !pcs.is_empty())
        && state::control().tracer_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0
}

/// True in a command that finds the other threads stopped.
pub fn is_standing() -> bool {
    state::process().pcs().is_some()
}

/// True if a stopped thread stands, or will return to, between the two: bytes from `start` on must
/// not change.
pub fn is_in_flight(start: u64, end: u64) -> bool {
    let pcs = state::process().pcs().unwrap_or(&[]);
    let next = pcs.partition_point(|pc| *pc <= start);
    pcs.get(next).is_some_and(|pc| *pc < end)
}
