//! Counts of calls, where calls are counted and not recorded (`--count`).
//!
//! Behind the plans the arena has *regions*, each of [`CELLS`] words. A process has one whose cells
//! say what is counted there, its *edges*, and each of its threads has one with the counts
//! themselves, which the slots add to without asking anybody: cell `n` of a thread counts the calls
//! of edge `n` of its process. The first words of a region are its [`RegionHead`].
//!
//! An edge is a word: in its low half the id of a site, as in a record ([`crate::record`]), in its
//! high half the low half of the callee's address where that is not the site's own, otherwise 0. It
//! is written before anything is counted in its cell.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Words of a region.
pub const CELLS: u32 = 1 << 19;
/// Bytes of a region.
pub const REGION_BYTES: u64 = CELLS as u64 * size_of::<u64>() as u64;
/// The first cell that counts: a region's head stands before it.
pub const FIRST_CELL: u32 = 8;
/// An arena has no more.
pub const REGIONS: u32 = 1024;

/// Where region `index` lies in an arena whose regions begin at `first`.
pub const fn region_offset(first: u64, index: u32) -> u64 {
    first + index as u64 * REGION_BYTES
}

/// Whose a region is.
#[repr(C)]
pub struct RegionHead {
    /// Agent: [`REGION_TAKEN`], then [`REGION_EDGES`] or [`REGION_COUNTS`]; host: 0, nobody's, when
    /// all of it is zero again.
    pub state: AtomicU32,
    /// Agent: number of the process in the recording ([`crate::control::Stream::process`]).
    pub process: AtomicU32,
    /// Agent: the stream of the thread.
    pub stream: AtomicU32,
    /// Agent: the epoch of that stream.
    pub epoch: AtomicU32,
    /// Agent: of a process's edges: the next cell that is nobody's.
    pub next: AtomicU32,
    /// Unused.
    pub reserved: AtomicU32,
    /// Unused.
    pub more: [AtomicU64; 5],
}

/// [`RegionHead::state`]: being filled in.
pub const REGION_TAKEN: u32 = 1;
/// [`RegionHead::state`]: says what the cells of a process count.
pub const REGION_EDGES: u32 = 2;
/// [`RegionHead::state`]: the counts of one thread.
pub const REGION_COUNTS: u32 = 3;

/// The word of an edge.
pub const fn edge(id: u32, callee: u32) -> u64 {
    id as u64 | (callee as u64) << 32
}

/// Id and callee of an edge.
pub const fn id_and_callee(edge: u64) -> (u32, u32) {
    (edge as u32, (edge >> 32) as u32)
}

const _: () = assert!(size_of::<RegionHead>() == FIRST_CELL as usize * size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_its_halves() {
        assert_eq!(id_and_callee(edge(7, u32::MAX)), (7, u32::MAX));
        assert_eq!(edge(1, 2), 0x2_0000_0001);
    }

    #[test]
    fn regions_lie_side_by_side() {
        assert_eq!(region_offset(5, 2) - region_offset(5, 1), REGION_BYTES);
    }
}
