//! The table of calls through pointers that are counted: in which cell each is.
//!
//! Given a call's id and its callee; gives the entry that the assembly of
//! `crate::routines::counts` finds by itself: from the place that both say on, up to the first free
//! entry. An entry is complete before its callee stands in it, and never changes but for
//! [`ASKS`]. Changed under the propagation lock; a fork child has its own by copy. Must not know
//! what is counted where.

use crate::memory::mapped::Zeroed;
use crate::memory::word::{Half, Word};
use core::sync::atomic::{Ordering, fence};

/// log2 of the places.
pub const BITS: u32 = 17;
/// log2 of an entry's bytes.
pub const SHIFT: u32 = 4;
/// In [`Pointer::cell`]: the callee may not be instrumented yet, so the slow path is asked.
pub const ASKS: u32 = 1 << 31;
/// So far from its place an entry may stand.
const FAR: usize = 63;

/// A call through a pointer.
#[repr(C)]
pub struct Pointer {
    /// The callee; 0: the entry is free.
    pub callee: Word,
    /// Low half of the call's id.
    pub id: Half,
    /// In which cell it is counted, and [`ASKS`].
    pub cell: Half,
}

const _: () = assert!(size_of::<Pointer>() == 1 << SHIFT);

// SAFETY: numbers.
unsafe impl Zeroed for Pointer {}

/// The table; its last entry is always free.
pub type Pointers = [Pointer; (1 << BITS) + FAR + 1];

fn candidates(table: &Pointers, callee: u64, id: u64) -> &[Pointer] {
    let hash = ((callee >> 4) as u32 ^ id as u32).wrapping_mul(0x9E37_79B1) >> (32 - BITS);
    table.get(hash as usize..hash as usize + FAR).unwrap_or(&[])
}

/// The entry of the calls with this id to `callee`.
pub fn find(table: &Pointers, callee: u64, id: u64) -> Option<&Pointer> {
    let is_it = |p: &&Pointer| p.callee.get() == callee && p.id.get() == id as u32;
    candidates(table, callee, id).iter().find(is_it)
}

/// Enters such calls. False: there is no room.
pub fn add(table: &Pointers, callee: u64, id: u64, cell: u32) -> bool {
    let mut entries = candidates(table, callee, id).iter();
    let Some(free) = entries.find(|p| p.callee.get() == 0) else {
        return false;
    };
    free.id.set(id as u32);
    free.cell.set(cell);
    fence(Ordering::Release);
    free.callee.set(callee);
    true
}

/// All ask from here on: where a callee was, another may be.
pub fn ask_all(table: &Pointers) {
    for known in table.iter().filter(|known| known.callee.get() != 0) {
        known.cell.set(known.cell.get() | ASKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn table() -> Box<Pointers> {
        // SAFETY: zero is good for numbers.
        unsafe { Box::<Pointers>::new_zeroed().assume_init() }
    }

    #[test]
    fn each_call_has_its_own_entry_until_there_is_no_room() {
        let table = table();
        for id in 0..FAR as u64 {
            // All have one place.
            let callee = 0x10_0000 ^ id << 4;
            assert!(find(&table, callee, id).is_none());
            assert!(add(&table, callee, id, id as u32 + 8), "{id}");
        }
        assert!(!add(&table, 0x10_0000 ^ 99 << 4, 99, 1));
        let cell = |id: u64| find(&table, 0x10_0000 ^ id << 4, id).map(|p| p.cell.get());
        assert!((0..FAR as u64).all(|id| cell(id) == Some(id as u32 + 8)));
    }

    #[test]
    fn the_last_entry_stays_free() {
        let table = table();
        let last_place = (0..1 << 20).find(|id| {
            let hash = (*id as u32).wrapping_mul(0x9E37_79B1) >> (32 - BITS);
            hash as usize == (1 << BITS) - 1
        });
        for n in 0..FAR as u64 {
            let callee = n << 36;
            assert!(n == 0 || add(&table, callee, last_place.unwrap_or(0), 8));
        }
        assert!(table.last().is_some_and(|p| p.callee.get() == 0));
    }
}
