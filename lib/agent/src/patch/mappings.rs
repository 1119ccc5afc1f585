//! How many mappings the text is in: a process may have vm.max_map_count of them.
//!
//! Given a module that is about to be patched for the first time. Pages that were writable for a
//! moment are charged to the process (VM_ACCOUNT), and the kernel joins mappings only if all or
//! none of them are. So where this thread is the only user of the memory, the whole text is made
//! writable once, before the first patch, and what [`crate::patch::text`] writes in place later
//! leaves one mapping. The host says where that lies; what it did not name is not touched. Threads
//! that are only stopped are users: should sptrace be killed, they run on, and all of their text
//! would not be executable. Nor is anybody asked while a process stands still: what is patched then
//! is joined with the rest at the first patch after it.

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
