//! Keeps the number of the text's mappings small, of which a process may have vm.max_map_count.
//!
//! Given a module that is about to be patched for the first time, where its text cannot be written
//! past its protection ([`crate::patch::forced`]); makes its whole text writable once. The kernel
//! charges pages that were writable to the process (VM_ACCOUNT) and joins neighbouring mappings
//! only if all of them are charged, or none. So what [`crate::patch::text`] writes in place later
//! leaves one mapping instead of one for each page.
//!
//! This is done only where this thread is the only user of the memory. Threads that are merely
//! stopped count as users: if sptrace were killed they would run on, in text that is not executable
//! for a moment. The host says where a module's text lies, and what it does not name is not
//! touched. It is not asked while a process stands still; what is patched then is joined with the
//! rest at the first patch afterwards.

use crate::memory::table::Module;
use crate::memory::{stopped, sys};
use crate::patch::pages;
use crate::record::question;
use sptrace_wire::control::*;

/// Segments of code of one module that are made ready.
const SEGMENTS: usize = 4;

/// Before the first such patch of a module, and then nothing. The lock is held, and signals are
/// blocked.
pub fn prepare(m: &Module) {
    if !m.joined.get() && !stopped::is_standing() {
        m.joined.set(true);
        if sys::alone() {
            join(m);
        }
    }
}

/// Makes the module's text writable and executable again, as far as the host names it.
fn join(m: &Module) {
    let mut at = m.start.get();
    for _ in 0..SEGMENTS {
        let Some([start, end, ..]) = question::question(ASK_TEXT, at) else {
            return;
        };
        if start >= m.end.get() || end <= at || !toggle(start as usize, (end - start) as usize) {
            return;
        }
        at = end;
        if at >= m.end.get() {
            return;
        }
    }
}

/// Nobody executes there, and the first joins all to one mapping: no memory is needed for the
/// second.
fn toggle(start: usize, bytes: usize) -> bool {
    let charged = pages::make_writable(start, bytes);
    pages::make_executable(start, bytes) && charged
}
