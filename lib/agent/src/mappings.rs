//! How many mappings the text is in: a process may have vm.max_map_count of them.
//!
//! Given a module that is about to be patched for the first time. Pages that were writable for a moment are
//! charged to the process (VM_ACCOUNT), and the kernel joins mappings only if all or none of them are. So
//! where this thread is the only user of the memory, the whole text is made writable once, before the first
//! patch, and what [`crate::text`] writes in place later leaves one mapping. The host says where that lies;
//! what it did not name is not touched.

use crate::state::*;
use crate::{module, sys};
use sptrace_wire::control::*;

/// [`Module::joined`]: not patched yet.
pub const UNTRIED: u32 = 0;
/// [`Module::joined`]: what is written in place leaves no mapping of its own.
pub const JOINED: u32 = 1;
/// [`Module::joined`]: every patched page may become one.
pub const SPLIT: u32 = 2;

/// Segments of code of one module that are made ready.
const SEGMENTS: usize = 4;

/// Before the first patch of a module, and then nothing. The lock is held, signals are blocked.
pub unsafe fn prepare(m: *mut Module, alone: bool) {
    // SAFETY: the table is changed under the lock.
    unsafe {
        if (*m).joined == UNTRIED {
            let is_joined = alone && join(m);
            (*m).joined = if is_joined { JOINED } else { SPLIT };
        }
    }
}

/// True if all of the module's text has been writable.
unsafe fn join(m: *const Module) -> bool {
    // SAFETY: as in prepare; the table of modules is not changed by a question.
    unsafe {
        let mut at = (*m).start;
        for _ in 0..SEGMENTS {
            let Some([start, end, ..]) = module::question(ASK_TEXT, at) else {
                return false;
            };
            if start >= (*m).end || end <= at || !toggle(start as usize, (end - start) as usize) {
                return false;
            }
            at = end;
            if at >= (*m).end {
                return true;
            }
        }
        false
    }
}

unsafe fn toggle(start: usize, bytes: usize) -> bool {
    // SAFETY: nobody executes there, and both change the protection of one whole mapping: no memory
    // is needed for the second.
    unsafe {
        let charged = sys::protect(start, bytes, sys::PROT_RW);
        let restored =
            sys::protect(start, bytes, sys::PROT_RX) || sys::protect(start, bytes, sys::PROT_RX);
        charged && restored
    }
}
