//! The table of functions whose calls the common routines record with their values.
//!
//! Given what a plan says of a function; gives the row that the assembly of
//! `crate::routines::values` looks up by the function's address. A row is complete before its
//! address stands in it, and no function ever takes another's. Changed under the propagation lock;
//! a fork child has its own by copy. Must not know where code comes from.

use crate::memory::mapped::Zeroed;
use crate::memory::word::{Half, Word};
use core::sync::atomic::{Ordering, fence};

/// log2 of the rows.
pub const ROW_BITS: u32 = 13;
/// log2 of a row's bytes.
pub const ROW_SHIFT: u32 = 5;

/// In [`Row::kinds`]: the call's return has something to record.
pub const RETURNS: u32 = 1 << 16;
/// In [`Row::kinds`]: the common routine can record it.
pub const RETURNS_BY_ROUTINE: u32 = 1 << 17;
/// In [`Row::kinds`]: unless the lower half of the result is -1.
pub const FAILS_BY_MINUS_ONE: u32 = 1 << 18;
/// In [`Row::kinds`]: unless the lower half of the result is 0.
pub const FAILS_BY_NULL: u32 = 1 << 19;

/// In [`Row::kinds`]: the code that decides adds to tables, and runs once at every call.
pub const ACTS: u32 = 1 << 20;
/// In [`Row::kinds`]: the second code is that of a return, and the common routine can run it.
pub const EXITS_BY_ROUTINE: u32 = 1 << 21;
/// In [`Row::kinds`]: it asks how long the call took.
pub const EXIT_TIMED: u32 = 1 << 22;
/// In [`Row::kinds`]: the result is rax alone.
pub const RESULT_IS_INTEGER: u32 = 1 << 23;
/// In what the code that decides gives: [`PASSED`], and the return is waited for.
pub const HELD: u32 = 4;
/// The same of a call that is recorded.
pub const HELD_RECORDED: u32 = 5;
/// What the code that decides gives if the call goes on without a record (`contract::in_place` of
/// `sptrace-payload`).
pub const PASSED: u32 = 3;
/// The same if it could not add anything.
pub const UNDECIDED: u32 = 2;

/// What the assembly finds of a function.
#[repr(C)]
pub struct Row {
    /// Where the function begins; 0: the row is free.
    pub callee: Word,
    /// The code that decides whether a call is wanted; 0: all are.
    pub decides: Word,
    /// The code that writes the call's words; 0: the slow path does. Of a function whose returns
    /// have a payload: its code.
    pub writes: Word,
    /// The id of the records of direct calls ([`sptrace_wire::record::VALUED_IDS`]): of others it
    /// says one half more.
    pub id: Half,
    /// Bytes of the words of a call, below bit 16; above it, what kind of function it is.
    pub kinds: Half,
}

const _: () = assert!(size_of::<Row>() == 1 << ROW_SHIFT);

// SAFETY: numbers.
unsafe impl Zeroed for Row {}

/// The table, with a spare row.
pub type Rows = [Row; (1 << ROW_BITS) + 1];

/// What a row says.
#[derive(Clone, Copy)]
pub struct Says {
    /// [`Row::decides`].
    pub decides: u64,
    /// [`Row::writes`].
    pub writes: u64,
    /// [`Row::id`].
    pub id: u32,
    /// [`Row::kinds`].
    pub kinds: u32,
}

fn candidates(rows: &Rows, callee: u64) -> &[Row] {
    let hash = ((callee >> 4) as u32).wrapping_mul(0x9E37_79B1) >> (32 - ROW_BITS);
    rows.get(hash as usize..hash as usize + 2).unwrap_or(&[])
}

/// The row of a function.
pub fn find(rows: &Rows, callee: u64) -> Option<&Row> {
    let mut rows = candidates(rows, callee).iter();
    rows.find(|row| row.callee.get() == callee)
}

/// True if a function has a row, or could get one.
pub fn has_place(rows: &Rows, callee: u64) -> bool {
    let fits = |row: &Row| row.callee.get() == 0 || row.callee.get() == callee;
    candidates(rows, callee).iter().any(fits)
}

/// Gives a function a row, if one is free: where both are taken, its calls go on by the slow path.
pub fn enter(rows: &Rows, callee: u64, says: &Says) {
    let mut free = candidates(rows, callee).iter();
    if find(rows, callee).is_some() {
        return;
    }
    if let Some(row) = free.find(|row| row.callee.get() == 0) {
        row.decides.set(says.decides);
        row.writes.set(says.writes);
        row.id.set(says.id);
        row.kinds.set(says.kinds);
        fence(Ordering::Release);
        row.callee.set(callee);
    }
}

/// Frees the rows of functions in `[start, end)`.
pub fn forget(rows: &Rows, start: u64, end: u64) {
    for row in rows {
        if (start..end).contains(&row.callee.get()) {
            row.callee.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mapped;

    const SAYS: Says = Says {
        decides: 1,
        writes: 2,
        id: 3,
        kinds: 4,
    };

    #[test]
    fn a_function_keeps_its_row_and_what_is_gone_frees_it() {
        let rows = mapped::make::<Rows>().unwrap();
        enter(rows, 0x40_1000, &SAYS);
        enter(rows, 0x40_1000, &Says { id: 9, ..SAYS });
        let row = find(rows, 0x40_1000).unwrap();
        assert_eq!((row.id.get(), row.kinds.get()), (3, 4));
        forget(rows, 0x40_1001, 0x50_0000);
        assert!(find(rows, 0x40_1000).is_some());
        forget(rows, 0x40_0000, 0x40_1001);
        assert!(find(rows, 0x40_1000).is_none() && has_place(rows, 0x40_1000));
    }

    #[test]
    fn no_function_takes_the_row_of_another() {
        let rows = mapped::make::<Rows>().unwrap();
        // The hash sees no more than 36 bits.
        let same = |i: u64| 0x40_1000 + (i << 36);
        for i in 0..3 {
            enter(rows, same(i), &SAYS);
        }
        assert!(find(rows, same(0)).is_some() && find(rows, same(1)).is_some());
        assert!(find(rows, same(2)).is_none() && !has_place(rows, same(2)));
        // The last hash has a row behind it, too.
        for callee in (0..1 << 18).map(|i| i << 4) {
            assert_eq!(candidates(rows, callee).len(), 2);
        }
    }
}
