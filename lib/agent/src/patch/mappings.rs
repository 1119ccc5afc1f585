//! Keeps the number of the text's mappings small, of which a process may have vm.max_map_count.
//!
//! Given a module that is about to be patched for the first time; makes its whole text writable
//! once. The kernel charges pages that were writable to the process (VM_ACCOUNT) and joins
//! neighbouring mappings only if all of them are charged, or none. So what [`crate::patch::text`]
//! writes in place later leaves one mapping instead of one for each page.
//!
//! This is done only where this thread is the only user of the memory. Threads that are merely
//! stopped count as users: if sptrace were killed they would run on, in text that is not executable
//! for a moment. The host says where a module's text lies, and what it does not name is not
//! touched. It is not asked while a process stands still; what is patched then is joined with the
//! rest at the first patch afterwards.

use crate::memory::state::Module;
use crate::memory::{stopped, sys};
use crate::record::question;
use sptrace_wire::control::*;

/// Segments of code of one module that are made ready.
const SEGMENTS: usize = 4;

/// Before the first patch of a module, and then nothing. The lock is held, signals are blocked.
pub unsafe fn prepare(m: *mut Module) {
    // SAFETY: the table is changed under the lock.
    unsafe {
        if (*m).joined == 0 && !stopped::is_standing() {
            (*m).joined = 1;
            if sys::alone() {
                join(m);
            }
        }
    }
}

/// Makes the module's text writable and executable again, as far as the host names it.
unsafe fn join(m: *const Module) {
    // SAFETY: as in prepare; the table of modules is not changed by a question.
    unsafe {
        let mut at = (*m).start;
        for _ in 0..SEGMENTS {
            let Some([start, end, ..]) = question::question(ASK_TEXT, at) else {
                return;
            };
            if start >= (*m).end || end <= at || !toggle(start as usize, (end - start) as usize) {
                return;
            }
            at = end;
            if at >= (*m).end {
                return;
            }
        }
    }
}

unsafe fn toggle(start: usize, bytes: usize) -> bool {
    // SAFETY: nobody executes there, and the first joins all to one mapping: no memory is needed
    // for the second.
    unsafe {
        let charged = sys::protect(start, bytes, sys::PROT_RW);
        let restored =
            sys::protect(start, bytes, sys::PROT_RX) || sys::protect(start, bytes, sys::PROT_RX);
        charged && restored
    }
}
