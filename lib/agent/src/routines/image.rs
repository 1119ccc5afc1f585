//! The common routines as bytes: where they lie in the agent's image, and where each begins.
//!
//! Given a fresh patch area; copies them there. The bytes come from [`crate::routines::common`], by
//! the symbols of its assembly. Must not know what the routines do.

use crate::memory::area::Area;
use crate::memory::word::Word;
use crate::routines::door;
use core::mem::offset_of;
use sptrace_wire::plan::{AreaHeader, SLOTS_START};

unsafe extern "C" {
    static sptrace_common_start: u8;
    static sptrace_common_end: u8;
    static sptrace_common_offsets: [u32; sptrace_wire::plan::common::COUNT];
}

/// Copies the routines to the start of a fresh area and wires the slow path. False: it is too
/// small, or they would lie where the first slot does.
pub fn install(area: &mut [u8]) -> bool {
    if bytes() > SLOTS_START as usize {
        return false;
    }
    let door = door::address().to_le_bytes();
    let parts: [(usize, &[u8]); 3] = [
        (0, code()),
        (offset_of!(AreaHeader, door), &door),
        (offset_of!(AreaHeader, agent_door), &door),
    ];
    parts.iter().all(|(at, bytes)| {
        let place = area.get_mut(*at..*at + bytes.len());
        place.is_some_and(|place| {
            place.copy_from_slice(bytes);
            true
        })
    })
}

/// A word of an area's header.
pub fn word(area: Area, offset: usize) -> u64 {
    area.word(offset as u64).map_or(0, Word::get)
}

/// Writes a word of an area's header. False: it has none.
pub fn set(area: Area, offset: usize, value: u64) -> bool {
    let word = area.word(offset as u64);
    word.is_some_and(|word| {
        word.set(value);
        true
    })
}

/// Offset of routine `number` in an area.
pub fn offset(number: i32) -> u32 {
    // SAFETY: an immutable table of the image.
    let table = unsafe { &sptrace_common_offsets };
    table.get(number as usize).copied().unwrap_or(0)
}

/// The routines in the agent's image.
pub fn code() -> &'static [u8] {
    // SAFETY: between two marks of the image.
    unsafe { core::slice::from_raw_parts(&raw const sptrace_common_start, bytes()) }
}

/// Bytes of the routines.
pub fn bytes() -> usize {
    &raw const sptrace_common_end as usize - &raw const sptrace_common_start as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routines_end_before_the_first_slot() {
        assert!(bytes() <= SLOTS_START as usize, "{:#x}", bytes());
    }
}
