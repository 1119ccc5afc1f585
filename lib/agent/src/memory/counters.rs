//! Counts of calls, where calls are counted and not recorded.
//!
//! Given a thread's block; lets its counts be the words of a region of the arena
//! ([`sptrace_wire::counts`]), so that they outlive the process. Given a call's id and callee;
//! gives the cell in which such calls are counted, the same for all threads of the process. The
//! assembly of `crate::routines::counts` and the slots find the cells of a thread behind its block.
//! Must not know what an id means.

use crate::memory::mapped::{self, Fresh};
use crate::memory::pointers::{self, ASKS, Pointers};
use crate::memory::state::{self, Edges};
use crate::memory::sys;
use crate::memory::thread::{BLOCK_BYTES, Hot};
use crate::memory::word::Word;
use core::sync::atomic::{AtomicU64, Ordering};
use sptrace_wire::control::{MIXED_PLACED, NONE, hole};
use sptrace_wire::counts::*;
use sptrace_wire::plan::common;

/// Where the cells of a thread begin, from its block on.
pub const CELLS_AT: usize = BLOCK_BYTES;
const _: () = assert!(CELLS_AT.is_multiple_of(4096));

/// True if some calls are counted, or all.
pub fn has_cells() -> bool {
    state::control().regions != 0
}

/// True if calls are recorded in order, without stamps and ends.
pub fn is_in_order() -> bool {
    state::control().in_order != 0
}

/// True if calls are recorded, and those of some functions in order at times.
pub fn is_mixed() -> bool {
    state::control().mixed != 0
}

/// True if some calls may be recorded in order.
pub fn may_record_in_order() -> bool {
    is_in_order() || is_mixed() || state::control().has_levels != 0
}

/// True if recorded calls among such say where the stack pointer stood.
pub fn says_places() -> bool {
    state::control().mixed == MIXED_PLACED
}

/// The routine by which the entry of a direct call is recorded.
pub fn entry_routine() -> i32 {
    match says_places() {
        true => common::ENTRY_PLACED,
        false => common::ENTRY,
    }
}

/// The routine that stands for one that a template asks for.
pub fn routine_of(wanted: i32) -> i32 {
    match wanted {
        common::INDIRECT if says_places() => common::INDIRECT_PLACED,
        common::KEPT if has_lanes() => common::KEPT_IN_LANE,
        common::KEPT_INDIRECT if has_lanes() => common::KEPT_INDIRECT_IN_LANE,
        common::RETURN if has_lanes() => common::RETURN_IN_LANE,
        common::RETURN_IN_CALL if has_lanes() => common::RETURN_IN_CALL_IN_LANE,
        other => other,
    }
}

/// True if threads run lanes.
pub fn has_lanes() -> bool {
    state::process().lane_number.get() != 0
}

/// True if calls keep their return addresses, and their ends are seen where they return to.
pub fn keeps_returns() -> bool {
    state::control().keeps_returns != 0
}

/// True if calls are counted and not recorded.
pub fn is_counting() -> bool {
    has_cells() && state::control().has_levels == 0
}

/// Bytes of a thread's block with what stands behind it.
pub fn block_bytes() -> usize {
    match has_cells() {
        true => CELLS_AT + REGION_BYTES as usize,
        false => BLOCK_BYTES,
    }
}

fn region_at(index: u32) -> u64 {
    let first = state::process().arena() + state::control().regions_offset;
    region_offset(first, index)
}

/// `None`: there is no such region.
fn head(index: u32) -> Option<&'static RegionHead> {
    let is_one = index < state::control().regions;
    // SAFETY: the arena is mapped for life, and has so many regions; a head consists of atomics.
    is_one.then(|| unsafe { &*(region_at(index) as *const RegionHead) })
}

/// The words of a region.
fn cells(index: u32) -> &'static [AtomicU64] {
    if head(index).is_none() {
        return &[];
    }
    // SAFETY: as in `head`; words that others may change are atomics.
    unsafe { core::slice::from_raw_parts(region_at(index) as *const AtomicU64, CELLS as usize) }
}

/// A region that was nobody's.
fn take() -> Option<u32> {
    let is_free = |i: &u32| {
        let state = head(*i).map(|head| &head.state);
        state.is_some_and(|state| {
            let (taken, free) = (REGION_TAKEN, 0);
            let (here, not) = (Ordering::Acquire, Ordering::Relaxed);
            state.load(not) == free && state.compare_exchange(free, taken, here, not).is_ok()
        })
    };
    (0..state::control().regions).find(is_free)
}

fn is_of_this_process(index: u32) -> bool {
    let number = state::process().number.get();
    head(index).is_some_and(|head| {
        head.state.load(Ordering::Relaxed) == REGION_COUNTS
            && head.process.load(Ordering::Relaxed) == number
    })
}

/// Counts of the thread of `hot`, whose stream has begun, go to a region from here on.
pub fn begin(hot: &Hot) {
    if !has_cells() {
        return;
    }
    if !is_of_this_process(hot.region.get()) {
        hot.region.set(take().unwrap_or(NONE));
        if !show(hot, hot.region.get()) {
            state::count_hole(hole::NOT_COUNTED);
        }
    }
    if let Some(head) = head(hot.region.get()) {
        head.process
            .store(state::process().number.get(), Ordering::Relaxed);
        head.stream.store(hot.stream.get(), Ordering::Relaxed);
        head.epoch.store(hot.epoch.get(), Ordering::Relaxed);
        head.state.store(REGION_COUNTS, Ordering::Release);
    }
    let pointers = state::process().pointers.get();
    hot.pointers
        .set(pointers.map_or(0, |table| &raw const *table as u64));
}

/// The words behind the block are a region's from here on, or, without one, nobody else's. False:
/// what is counted is lost.
fn show(hot: &Hot, region: u32) -> bool {
    let (at, bytes) = (hot.block() + CELLS_AT as u64, REGION_BYTES as usize);
    // SAFETY: the block's own bytes, which nobody but its thread uses.
    let shows = |from: u64| unsafe { sys::duplicate_shared(from as usize, bytes, at as usize) };
    if head(region).is_some() && shows(region_at(region)) {
        return true;
    }
    // A fork child must not count for its parent; and what could not be put there may have left
    // nothing there (mremap(2) unmaps first), to which a slot would write.
    if let Some(own) = Fresh::private(bytes) {
        // SAFETY: as above.
        unsafe { own.move_all_over(at) };
    }
    false
}

/// What is counted in this process begins, or begins anew in a fork child: with the cells that its
/// slots have from its parent.
pub fn begin_process() {
    let p = state::process();
    if !has_cells() {
        return;
    }
    if p.pointers.get().is_none() {
        p.pointers.set(mapped::make::<Pointers>());
    }
    if p.edges_known.get().is_none() {
        p.edges_known.set(mapped::make::<Edges>());
    }
    let own = take().unwrap_or(NONE);
    p.edges.set(own);
    let Some(new) = head(own) else {
        return;
    };
    let next = p.cells_used.get().clamp(FIRST_CELL, CELLS);
    let known = p.edges_known.get().into_iter().flatten().zip(cells(own));
    for (from, to) in known.take(next as usize).skip(FIRST_CELL as usize) {
        to.store(from.get(), Ordering::Relaxed);
    }
    new.next.store(next, Ordering::Relaxed);
    new.process.store(p.number.get(), Ordering::Relaxed);
    new.state.store(REGION_EDGES, Ordering::Release);
}

/// A cell for the calls with this id, to `callee` if the id does not say it. Under the propagation
/// lock. `None`: there are no more.
pub fn new_cell(id: u64, callee: u64) -> Option<u32> {
    let p = state::process();
    let head = head(p.edges.get())?;
    let cell = p.cells_used.get();
    let word = edge(id as u32, callee as u32);
    let known = p.edges_known.get()?.get(cell as usize)?;
    let place = cells(p.edges.get()).get(cell as usize)?;
    known.set(word);
    place.store(word, Ordering::Relaxed);
    p.cells_used.set(cell + 1);
    head.next.store(cell + 1, Ordering::Release);
    Some(cell)
}

/// True if the cell at `displacement` was made for this id, in this process or before it was
/// forked. What a slot of a fork child says may be its parent's, which went on writing into it.
pub fn is_cell_of(displacement: u32, id: u64) -> bool {
    known_of(displacement).is_some_and(|known| known.get() as u32 == id as u32)
}

/// True if the cell at `displacement` counts the calls with this id to `callee`.
pub fn is_named(displacement: u32, id: u64, callee: u64) -> bool {
    let word = edge(id as u32, callee as u32);
    known_of(displacement).is_some_and(|known| known.get() == word)
}

fn known_of(displacement: u32) -> Option<&'static Word> {
    let cell = (displacement as usize).checked_sub(CELLS_AT)? / size_of::<u64>();
    state::process().edges_known.get()?.get(cell)
}

/// In a fork child: the ids of which a cell has no callee yet that the id does not say.
pub fn unnamed() -> impl Iterator<Item = u32> {
    let p = state::process();
    let known = p.edges_known.get().into_iter().flatten();
    let known = known.take(p.cells_used.get() as usize);
    let known = known.map(|word| id_and_callee(word.get()));
    known
        .filter(|(id, callee)| *id != 0 && *callee == 0)
        .map(|(id, _)| id)
}

/// Says what a cell counts that was nobody's so far. Under the propagation lock.
pub fn name_cell(displacement: u32, id: u64, callee: u64) {
    let cell = (displacement as usize).wrapping_sub(CELLS_AT) / size_of::<u64>();
    let p = state::process();
    let word = edge(id as u32, callee as u32);
    known_of(displacement)
        .into_iter()
        .for_each(|known| known.set(word));
    if let Some(place) = cells(p.edges.get()).get(cell) {
        place.store(word, Ordering::Release);
    }
}

/// Where a cell lies, from a thread's block on.
pub fn displacement(cell: u32) -> u32 {
    CELLS_AT as u32 + cell * size_of::<u64>() as u32
}

/// Counts one call of this thread's in the cell at `displacement`.
pub fn count_at(hot: &Hot, displacement: u32) {
    let cell = (displacement as usize)
        .checked_sub(CELLS_AT)
        .map(|at| at / 8);
    if cell.is_none_or(|cell| cell >= CELLS as usize || !has_cells()) {
        return;
    }
    let at = (hot.block() + u64::from(displacement)) as *const Word;
    // SAFETY: a word behind the block, which is mapped for life.
    unsafe { &*at }.add_in_one(1);
}

/// The cell of the calls through a pointer with this id to `callee`, which may be called without
/// asking from here on if it `is_ready`. Under the propagation lock. `None`: there is no room.
pub fn cell_of_pointer(callee: u64, id: u64, is_ready: bool) -> Option<u32> {
    let table = state::process().pointers.get()?;
    let asks = if is_ready { 0 } else { ASKS };
    if let Some(known) = pointers::find(table, callee, id) {
        let cell = known.cell.get() & !ASKS;
        known.cell.set(cell | asks);
        return Some(cell);
    }
    let cell = new_cell(id, callee)?;
    pointers::add(table, callee, id, cell | asks).then_some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_lie_behind_the_block_one_after_the_other() {
        assert_eq!(displacement(0) as usize, BLOCK_BYTES);
        assert_eq!(
            displacement(CELLS - 1) as usize + 8,
            BLOCK_BYTES + REGION_BYTES as usize
        );
    }
}
