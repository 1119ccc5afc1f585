//! Where a patch area goes: within reach of a rel32 from every byte of the module, and so that the
//! low halves of addresses stay unique within the process (they are the records' ids).

use sptrace_tracee::maps::{self, Mapping};
use sptrace_wire::record::CONTROL_IDS;

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

fn ids_are_free(taken: &[(u64, u64)], at: u64, bytes: u64) -> bool {
    let low = |v: u64| v & 0xffff_ffff;
    let (start, end) = (low(at), low(at) + bytes);
    // Not across a 4 GiB boundary, not among the control ids.
    start >= u64::from(CONTROL_IDS)
        && end <= 1 << 32
        && taken
            .iter()
            .all(|(t, n)| low(*t) + n <= start || end <= low(*t))
}
