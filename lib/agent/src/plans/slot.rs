//! The parts of a slot, as return addresses and record ids lead to them.
//!
//! Given an address in a patch area; gives the exit, the callee, or the program's own return
//! address behind it. All of it is written in the slot itself, or in the table of return addresses
//! that hooks have replaced. Changes nothing.

use crate::frames::shadow::FRAME_DONE;
use crate::memory::state;
use crate::memory::state::{ASKED, ORIGINALS, Original, PROBES, SHIFT};
use crate::plans::modules;
use crate::routines::image;
use core::sync::atomic::Ordering;
use sptrace_wire::plan::{HOOK_EXIT_ID, common as routine, *};
use sptrace_wire::record::FRAME_OPEN;

/// `lea rsp, [rsp-8]; call`.
const RETURN_CODE: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0xf8, 0xe8];

pub(crate) fn candidates(place: u64) -> impl Iterator<Item = &'static Original> {
    let first = ((place >> 3) as u32).wrapping_mul(0x9E37_79B1) as usize >> SHIFT;
    // SAFETY: the table lives as long as the process; indexes stay in it.
    (0..PROBES).filter_map(move |k| unsafe {
        let table = (*state::process()).originals;
        (!table.is_null()).then(|| &*table.add((first + k) % ORIGINALS))
    })
}

/// What the return address at `place` was before a hook replaced it, or 0.
pub fn original(place: u64) -> u64 {
    let is_its = |o: &&Original| o.place.load(Ordering::Acquire) & !ASKED == place;
    let Some(entry) = candidates(place).find(is_its) else {
        return 0;
    };
    let address = entry.address.load(Ordering::Acquire);
    // Whoever takes the entry over changes the place first.
    if is_its(&entry) { address } else { 0 }
}

/// Is this where the return address of a hooked function leads to?
pub fn is_return(address: u64) -> bool {
    // SAFETY: read only inside an area.
    unsafe {
        if (*state::process()).originals.is_null() {
            return false;
        }
        let m = modules::of_area(address);
        if m.is_null() || address + HOOK_ENTRY_ID > (*m).area + (*m).area_bytes {
            return false;
        }
        let code = address as *const u8;
        RETURN_CODE
            .iter()
            .enumerate()
            .all(|(k, b)| *code.add(k) == *b)
            && target(address + HOOK_EXIT_ID)
                == (*m).area + image::offset(routine::HOOK_EXIT) as u64
    }
}

/// Where the `call rel32` before `after` leads to.
unsafe fn target(after: u64) -> u64 {
    // SAFETY: four bytes of a slot.
    unsafe {
        let rel = ((after - 4) as *const i32).read_unaligned();
        after.wrapping_add(rel as i64 as u64)
    }
}

/// The return of the hook with this entry id; 0: it is no hook's.
pub fn return_of(id: u64) -> u64 {
    let hooked = (id & !(FRAME_OPEN | FRAME_DONE)).wrapping_sub(HOOK_ENTRY_ID);
    if is_return(hooked) { hooked } else { 0 }
}

/// The original return address of the slot whose exit is at `exit` (`call exit; jmp back`), or 0 if
/// that is no slot's exit.
pub fn original_return(exit: u64) -> u64 {
    // SAFETY: read only inside an area.
    unsafe {
        let m = modules::of_area(exit);
        if m.is_null() || exit + 10 > (*m).area + (*m).area_bytes {
            return 0;
        }
        let p = exit as *const u8;
        if *p != 0xe8 || *p.add(5) != 0xe9 {
            return 0;
        }
        let rel = p.add(6).cast::<i32>().read_unaligned();
        (exit + 10).wrapping_add(rel as i64 as u64)
    }
}

/// The program's own return address behind what lies at `word`, if that is one of ours, else 0. A
/// hook's return may lead to the exit of the slot from which the function was called.
pub fn original_of(mut value: u64, word: u64) -> u64 {
    // SAFETY: reads areas and the table of originals.
    unsafe {
        if (*state::process()).originals.is_null() {
            return original_return(value);
        }
        let mut found = 0;
        for _ in 0..2 {
            let original = if is_return(value) {
                original(word)
            } else {
                original_return(value)
            };
            if original == 0 {
                break;
            }
            found = original;
            value = original;
        }
        found
    }
}

/// The exit in the slot of an entry id: after `call CALLEE` (5 bytes) or `call [rsp-8]` (4).
pub unsafe fn exit_of(id: u64) -> u64 {
    // SAFETY: ids point into slots.
    unsafe {
        match *(id as *const u8) {
            0xe8 => id + 5,
            0xff => id + 4,
            _ => 0,
        }
    }
}

/// The id of the exit in the slot of an entry id.
pub unsafe fn exit_id(id: u64) -> u32 {
    // SAFETY: as in exit_of; flags are cut off.
    unsafe {
        match return_of(id) {
            0 => (exit_of(id << 2 >> 2) + 5) as u32,
            hooked => (hooked + HOOK_EXIT_ID) as u32,
        }
    }
}

/// Callee of a direct call or jump that follows the id.
pub unsafe fn direct_target(id: u64) -> u64 {
    // SAFETY: ids point into slots.
    unsafe {
        let p = id as *const u8;
        if *p != 0xe8 && *p != 0xe9 {
            return 0;
        }
        (id + 5).wrapping_add(p.add(1).cast::<i32>().read_unaligned() as i64 as u64)
    }
}
