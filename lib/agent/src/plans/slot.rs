//! The parts of a slot, as return addresses and record ids lead to them.
//!
//! Given an address in a patch area; gives the exit, the callee, or the program's own return
//! address behind it. All of it is written in the slot itself, or in the table of return addresses
//! that hooks have replaced. Changes nothing.

use crate::frames::shadow::FRAME_DONE;
use crate::memory::area::Area;
use crate::memory::state;
use crate::memory::state::{ASKED, ORIGINALS, Original, PROBES, SHIFT};
use crate::plans::{kept_acts, modules};
use crate::routines::image;
use core::sync::atomic::Ordering;
use sptrace_wire::plan::kept_acts as kept;
use sptrace_wire::plan::{HOOK_EXIT_ID, common as routine, *};
use sptrace_wire::record::FRAME_OPEN;

/// `lea rsp, [rsp-8]; call`.
const RETURN_CODE: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0xf8, 0xe8];

pub(crate) fn candidates(place: u64) -> impl Iterator<Item = &'static Original> {
    let first = ((place >> 3) as u32).wrapping_mul(0x9E37_79B1) as usize >> SHIFT;
    let table = state::process().originals.get();
    (0..PROBES).filter_map(move |k| table?.get((first + k) % ORIGINALS))
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
    let p = state::process();
    p.originals.get().is_some() && modules::area(address).is_some_and(|a| is_return_in(a, address))
}

fn is_return_in(area: Area, address: u64) -> bool {
    let Some(code) = area.code::<{ HOOK_ENTRY_ID as usize }>(address) else {
        return false;
    };
    let exit = address + HOOK_EXIT_ID;
    code.starts_with(&RETURN_CODE)
        && rel32(area, exit) == Some(area.start() + u64::from(image::offset(routine::HOOK_EXIT)))
}

/// Where the `call rel32` or `jmp rel32` before `after` leads to.
#[inline]
fn rel32(area: Area, after: u64) -> Option<u64> {
    let rel = i32::from_le_bytes(area.code(after.wrapping_sub(4))?);
    Some(after.wrapping_add_signed(rel.into()))
}

/// The return of the hook with this entry id; 0: it is no hook's.
pub fn return_of(id: u64) -> u64 {
    let hooked = (id & !(FRAME_OPEN | FRAME_DONE)).wrapping_sub(HOOK_ENTRY_ID);
    if is_return(hooked) { hooked } else { 0 }
}

/// The original return address of the slot whose exit is at `exit` (`call exit; jmp back`, or what
/// stands for that jump: [`SITE_KEEPS_ACTS`]), or 0 if that is no slot's exit.
#[inline]
pub fn original_return(exit: u64) -> u64 {
    modules::area(exit).map_or(0, |area| original_return_in(area, exit))
}

#[inline]
fn original_return_in(area: Area, exit: u64) -> u64 {
    match area.code::<10>(exit) {
        Some([CALL, _, _, _, _, JUMP, a, b, c, d]) => {
            let rel = i32::from_le_bytes([a, b, c, d]);
            (exit + 10).wrapping_add_signed(rel.into())
        }
        Some([CALL, _, _, _, _, 0xff, 0x35, ..]) => back_in(area, exit + 5).unwrap_or(0),
        _ => 0,
    }
}

/// The program's own return address behind what lies at `word`, if that is one of ours, else 0. A
/// hook's return may lead to the exit of the slot from which the function was called.
#[inline]
pub fn original_of(value: u64, word: u64) -> u64 {
    match state::process().originals.get() {
        None => original_return(value),
        Some(_) => original_with_hooks(value, word),
    }
}

#[inline(never)]
fn original_with_hooks(mut value: u64, word: u64) -> u64 {
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

/// What `push [rip+BACK]` at `at` pushes, in a slot that keeps a callee with acts. Out of line:
/// walks of the stack ask what leads back for each frame.
#[cold]
#[inline(never)]
fn back_in(area: Area, at: u64) -> Option<u64> {
    let end = at + kept::PUSH_WORD.len() as u64 + 4;
    let is_it = area.code(at) == Some(kept::PUSH_WORD);
    let word = rel32(area, end).filter(|_| is_it)?;
    area.code(word).map(u64::from_le_bytes)
}

/// The same, given the id of the exit; 0: it is no such slot's.
pub fn back_of(exit_id: u64) -> u64 {
    let back = |area| back_in(area, exit_id);
    modules::area(exit_id).and_then(back).unwrap_or(0)
}

/// The exit in the slot of an entry id: after `call CALLEE` (5 bytes) or `call [rsp-8]` (4); 0: it
/// has none.
pub fn exit_of(id: u64) -> u64 {
    modules::area(id).map_or(0, |area| exit_in(area, id))
}

#[inline]
fn exit_in(area: Area, id: u64) -> u64 {
    match area.code(id) {
        Some([0xe8, _]) => id + 5,
        Some([0xff, 0x54]) => id + 4,
        _ => 0,
    }
}

/// The exit in the slot of an entry id, and the program's own return address behind it, where no
/// hook has replaced one. `None`: it has none.
#[inline]
pub fn exit_and_original(id: u64) -> Option<(u64, u64)> {
    let area = modules::area(id)?;
    let exit = exit_in(area, id);
    let original = original_return_in(area, exit);
    (original != 0).then_some((exit, original))
}

/// The id of the exit in the slot of an entry id.
pub fn exit_id(id: u64) -> u32 {
    match return_of(id) {
        0 => (exit_of(id << 2 >> 2) + 5) as u32,
        hooked => (hooked + HOOK_EXIT_ID) as u32,
    }
}

/// The entry id of the call whose return point has this id ([`SITE_RETURN`]); 0: it is none.
pub fn call_of_return(id: u64) -> u64 {
    let before = u64::from(RETURN_ID);
    let distance = modules::area(id).and_then(|area| area.code(id - before));
    let distance = distance.map(i32::from_le_bytes);
    distance.map_or(0, |by| id.wrapping_add_signed(by.into()))
}

/// True if the call with this entry id keeps its return address, and its end is not seen.
pub fn end_is_unseen(id: u64) -> bool {
    let code = modules::area(id).and_then(|area| area.code::<6>(id));
    match code {
        Some([JUMP, _, _, _, _, mark]) => mark == END_UNSEEN,
        Some([0xff, 0x64, _, _, mark, _]) => mark == END_UNSEEN,
        _ => false,
    }
}

/// Callee of a direct call or jump that follows the id; 0: there is none.
pub fn direct_target(id: u64) -> u64 {
    let target = |area: Area| match area.code(id)? {
        [0xe8 | 0xe9] => rel32(area, id + 5),
        _ => None,
    };
    modules::area(id).and_then(target).unwrap_or(0)
}

/// Of a direct call or jump that is counted: where its cell lies from a thread's block on. `None`:
/// the slot with this id is not written, or another's.
pub fn cell_of(id: u64) -> Option<u32> {
    match modules::area(id)?.code(id)? {
        [0x65, 0x48, 0xff, 0x04, 0x25, a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// The callee of a direct call or jump that is counted; 0: there is none.
pub fn counted_target(id: u64) -> u64 {
    direct_target(id + u64::from(COUNTED_JUMP - COUNTED_ID))
}

/// The callee of a direct call or jump that is recorded in order; 0: there is none.
pub fn ordered_target(id: u64) -> u64 {
    direct_target(id + u64::from(ORDERED_JUMP - ORDERED_ID))
}

/// The callee of a call with acts in its slot, given the id before or behind them; 0: it is none.
pub fn acts_target(id: u64) -> u64 {
    match asks_of_acts(id) {
        true => direct_target(id + u64::from(ACTS_JUMP - ACTS_ID)),
        false => match kept_acts::of(kept_acts::part(id, -kept::DONE)) {
            Some(kept) => kept.callee,
            None => direct_target(id),
        },
    }
}

/// Of the ids of such a slot: is it the first, before the acts?
pub fn asks_of_acts(id: u64) -> bool {
    modules::area(id).and_then(|area| area.code(id)) == Some([CALL])
}

/// True if the slot with this id, of a direct call or jump that is recorded in order, is written.
pub fn is_ordered(id: u64) -> bool {
    let code = modules::area(id).and_then(|area| area.code(id));
    code == Some(ORDERED_RESERVE)
}

/// What a slot keeps that counts calls to one callee by itself.
pub struct Kept {
    /// Where its cell lies from a thread's block on; 0: it has none yet.
    pub cell: u32,
    /// Where the callee stands, from the area's start on.
    pub callee_at: u64,
    /// Which it is; 0: none was seen.
    pub callee: u64,
}

/// The same of the slot with this id. `None`: it is no such slot.
pub fn kept(id: u64) -> Option<Kept> {
    let area = modules::area(id)?;
    let inc: [u8; 9] = area.code(id - KEPT_CELL_TO_ID - INC_GS.len() as u64)?;
    let cell = inc.strip_prefix(&INC_GS)?.first_chunk()?;
    let at = (id + KEPT_CALLEE_FROM_ID).next_multiple_of(8);
    Some(Kept {
        cell: u32::from_le_bytes(*cell),
        callee_at: at - area.start(),
        callee: u64::from_le_bytes(area.code(at)?),
    })
}
