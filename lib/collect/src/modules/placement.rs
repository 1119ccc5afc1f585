//! Where a patch area goes: within reach of a rel32 from every byte of the module, and so that the
//! low halves of addresses stay unique within the process (they are the records' ids).

use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use sptrace_tracee::maps::{self, Mapping};
use sptrace_tracee::memory;
use sptrace_wire::plan::{AREA_MAGIC, AreaHeader};
use sptrace_wire::record::SLOT_IDS;

/// A jump reaches 2 GiB; keep away from the edge.
const REACH_BYTES: u64 = (2 << 30) - (4 << 20);
/// Distance from the module at which the search begins: what ld.so and malloc map next stays near.
const FIRST_DISTANCE: u64 = 64 << 20;
/// Room that brk keeps above a program that lies at a fixed low address.
const BRK_BYTES: u64 = 1536 << 20;
const STEP: u64 = 32 << 20;

/// An address for `bytes` of patch area for the module in `[start, end)`; `taken` are the areas of
/// the process. None: no room within reach.
pub fn place(
    maps: &[Mapping],
    taken: &[(u64, u64)],
    start: u64,
    end: u64,
    bytes: u64,
) -> Option<u64> {
    let fits = |at: u64| {
        at >= 0x1_0000
            && at + bytes <= 0x7fff_ffff_f000
            && end.max(at + bytes) - start.min(at) < REACH_BYTES
            && maps::is_free(maps, at.saturating_sub(4096), bytes + 8192)
            && ids_are_free(taken, at, bytes)
    };
    let below = (0..).map(|k| start.checked_sub(FIRST_DISTANCE + bytes + k * STEP));
    let below = below.take(64).flatten();
    let low = start < 1 << 31;
    let first_above = end + if low { BRK_BYTES } else { FIRST_DISTANCE };
    let above = (0..64).map(|k| first_above + k * STEP / 4);
    below
        .chain(above)
        .map(|at| at & !0xffff)
        .find(|at| fits(*at))
}

/// The area of `bytes` that an agent has left behind in a process it was detached from, if it holds
/// the slots of the same plan for the same module: `wanted` is the plan's key and the module's
/// base.
pub fn left_area(
    pid: u32,
    maps: &[Mapping],
    taken: &[(u64, u64)],
    wanted: (u64, u64),
    bytes: u64,
) -> Option<u64> {
    let memory = memory::open(pid).ok()?;
    let is_it = |m: &&Mapping| {
        let mut header = [0u8; size_of::<AreaHeader>()];
        let word = |header: &[u8], at: usize| {
            let bytes = header.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        m.is_shared
            && m.access == [true, false, true]
            && m.end - m.start == (bytes + 4095) & !4095
            && ids_are_free(taken, m.start, bytes)
            && memory.read_exact_at(&mut header, m.start).is_ok()
            && word(&header, offset_of!(AreaHeader, magic)) == AREA_MAGIC
            && word(&header, offset_of!(AreaHeader, used)) != 0
            && (
                word(&header, offset_of!(AreaHeader, key)),
                word(&header, offset_of!(AreaHeader, base)),
            ) == wanted
    };
    maps.iter().find(is_it).map(|m| m.start)
}

fn ids_are_free(taken: &[(u64, u64)], at: u64, bytes: u64) -> bool {
    let low = |v: u64| v & 0xffff_ffff;
    let (start, end) = (low(at), low(at) + bytes);
    // Not across a 4 GiB boundary, not among the ids of other records.
    start >= u64::from(SLOT_IDS)
        && end <= 1 << 32
        && taken
            .iter()
            .all(|(t, n)| low(*t) + n <= start || end <= low(*t))
}
