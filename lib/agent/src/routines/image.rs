//! The common routines as bytes: where they lie in the agent's image, and where each begins.
//!
//! Given a fresh patch area; copies them there. The bytes come from [`crate::routines::common`], by
//! the symbols of its assembly. Must not know what the routines do.

use crate::routines::door;
use sptrace_wire::plan::AreaHeader;

unsafe extern "C" {
    static sptrace_common_start: u8;
    static sptrace_common_end: u8;
    static sptrace_common_offsets: [u32; sptrace_wire::plan::common::COUNT];
}

/// Copies the routines to the start of an area's write view and wires the slow path.
///
/// # Safety
/// `area_rw` is a fresh area of at least `SLOTS_START` bytes.
pub unsafe fn install(area_rw: *mut u8) {
    // SAFETY: the routines are smaller than SLOTS_START (checked by a test).
    unsafe {
        core::ptr::copy_nonoverlapping(image(), area_rw, bytes());
        let h = &mut *(area_rw as *mut AreaHeader);
        (h.door, h.agent_door) = (door::address(), door::address());
    }
}

/// Offset of routine `number` in an area.
pub fn offset(number: i32) -> u32 {
    // SAFETY: an immutable table of the image.
    let table = unsafe { &sptrace_common_offsets };
    table.get(number as usize).copied().unwrap_or(0)
}

/// The routines in the agent's image.
pub fn image() -> *const u8 {
    &raw const sptrace_common_start
}

/// Bytes of the routines.
pub fn bytes() -> usize {
    &raw const sptrace_common_end as usize - image() as usize
}
