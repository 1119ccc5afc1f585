//! How many mappings the text is in: a process may have vm.max_map_count of them.
//!
//! Given a module that is about to be patched for the first time. Pages that were writable for a moment are
//! charged to the process (VM_ACCOUNT), and the kernel joins mappings only if all or none of them are. So
//! where this thread is the only user of the memory, the whole text is made writable once, before the first
//! patch, and what [`crate::text`] writes in place later leaves one mapping. The host says where that lies;
//! what it did not name is not touched. Elsewhere each page may become a mapping: how many more there may be
//! is for the host to say, from time to time, and what is beyond is not patched.

use crate::state::*;
use crate::{module, propagate, sys};
use sptrace_wire::control::*;
use sptrace_wire::plan::PlanHeader;

/// [`Module::joined`]: not patched yet.
pub const UNTRIED: u32 = 0;
/// [`Module::joined`]: what is written in place leaves no mapping of its own.
pub const JOINED: u32 = 1;
/// [`Module::joined`]: every patched page may become one.
pub const SPLIT: u32 = 2;

/// Segments of code of one module that are made ready.
const SEGMENTS: usize = 4;

/// Mappings that a page adds if it becomes one.
const SPLITS: u32 = 2;
/// After a refusal so many windows are left alone before the host is asked again: it reads long maps.
const REFUSED_WINDOWS: u32 = 1024;
const PAGE: u64 = 4096;

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

/// Pages that a plan's text may lie in.
pub fn pages(h: &PlanHeader) -> u64 {
    (h.text_end.saturating_sub(h.text_start)) as u64 / PAGE + 2
}

/// True if the pages from `start` to `end` may become mappings of their own, or will not. The lock is held.
pub unsafe fn may_split(m: *const Module, start: u64, end: u64, alone: bool) -> bool {
    // SAFETY: the module's own tables, indexes checked.
    unsafe {
        if alone && (*m).joined == JOINED {
            return true;
        }
        let h = propagate::header(m);
        let table = (*m).functions.add(h.functions as usize);
        let first = start.wrapping_sub((*m).start & !(PAGE - 1)) / PAGE;
        let end = first.saturating_add((end - start) / PAGE).min(pages(h));
        if first < end && (first..end).all(|i| *table.add(i as usize) != 0) {
            return true;
        }
        if !take_splits() {
            return false;
        }
        (first..end).for_each(|i| *table.add(i as usize) = 1);
        true
    }
}

unsafe fn take_splits() -> bool {
    // SAFETY: changed under the lock only.
    unsafe {
        let p = process();
        if (*p).splits_left < SPLITS {
            if (*p).splits_refused > 0 {
                (*p).splits_refused -= 1;
                return false;
            }
            let answer = module::question(ASK_SPLITS, 0);
            (*p).splits_left = answer.map_or(0, |a| a[0].min(u32::MAX as u64) as u32);
        }
        let Some(left) = (*p).splits_left.checked_sub(SPLITS) else {
            (*p).splits_refused = REFUSED_WINDOWS;
            return false;
        };
        (*p).splits_left = left;
        true
    }
}
