//! What stood in padding between functions before a springboard was put there.
//!
//! The plan does not tell it, since padding is nobody's code. Given an address; keeps five bytes,
//! and gives them back for an undo. Filled under the propagation lock.

use crate::memory::state::Padding;
use crate::memory::{state, sys};

/// Springboards in padding: one call site in a thousand.
pub(crate) const PADDINGS: usize = 1 << 16;

/// Keeps the five bytes at `at`, under the propagation lock. False: no room.
pub unsafe fn keep_padding(at: u64) -> bool {
    // SAFETY: text of a module; the table is changed under the lock only.
    unsafe {
        let p = state::process();
        if (*p).padding.is_null() {
            (*p).padding = sys::map_private(PADDINGS * size_of::<Padding>()) as *mut Padding;
        }
        let count = (*p).padding_count as usize;
        if (*p).padding.is_null() || count >= PADDINGS {
            return false;
        }
        let mut bytes = [0; 8];
        core::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), 5);
        (*p).padding.add(count).write(Padding { at, bytes });
        (*p).padding_count += 1;
        true
    }
}

pub(crate) fn padding(at: u64) -> Option<[u8; 8]> {
    // SAFETY: entries up to the count are complete.
    unsafe {
        let p = state::process();
        (0..(*p).padding_count as usize)
            .map(|i| (*p).padding.add(i).read())
            .find(|padding| padding.at == at)
            .map(|padding| padding.bytes)
    }
}
