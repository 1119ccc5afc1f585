//! Puts the program's own bytes back into its text: into all of it once nothing is recorded any
//! more, or into a part that the program is about to write to itself.
//!
//! Given modules and their plans; writes the original bytes at hooked entries and at sites. From
//! then on no code runs in slots but what was on its way there. So a stack walker that is loaded
//! later, and is not intercepted, meets no signal that interrupted a slot.
//!
//! This is safe at any moment for other threads: of what is put back only the first instruction had
//! been changed, into a jump, and nothing of ours stands behind it in the text. Where that is not
//! so the patch stays. That holds for kept calls (there is filling before them, and whoever writes
//! another displacement there changes a call), for springboards and the room made for them, for
//! bytes that do not look like our jump, and for the entries of special functions, whose callers
//! must still be served.

use crate::memory::state::{INSTRUMENTED, Module, UNTOUCHED};
use crate::memory::{lock, sandbox, state, sys};
use crate::patch::text;
use crate::plans::patched::Patch;
use crate::plans::plan;
use core::ops::Range;
use sptrace_wire::control::hole;
use sptrace_wire::plan::*;

/// Read at once: a part of a page, since this may run on a small stack of the program.
const PART: u64 = 512;

/// A part of the text as it is: modules may have been unmapped.
struct Now {
    start: u64,
    bytes: [u8; PART as usize],
}

impl Now {
    /// True if `expected` stands at `at`.
    unsafe fn is(&mut self, at: u64, expected: &[u8]) -> bool {
        expected.iter().zip(at..).all(|(byte, address)| {
            let start = address & !(PART - 1);
            if start != self.start {
                self.start = start;
                let to = self.bytes.as_mut_ptr();
                // SAFETY: read through the kernel.
                if unsafe { sys::read_own(start as usize, to, PART as usize) } != PART as usize {
                    self.bytes.fill(0);
                }
            }
            self.bytes.get((address - start) as usize) == Some(byte)
        })
    }
}

/// Puts all modules' bytes back, unless the propagation lock stays busy.
pub unsafe fn all() {
    // SAFETY: signals are blocked; the text and the tables are changed under the lock.
    unsafe {
        if sandbox::is_sandboxed() || !lock::lock(sys::tid()) {
            return;
        }
        let mut now = Now {
            start: 1,
            bytes: [0; PART as usize],
        };
        let mut batch = text::Batch::take();
        for i in 0..(*state::process()).module_count as usize {
            let m: *const Module = &raw const (*state::process()).modules[i];
            if (*m).plan.is_none() || (*m).area == 0 || (*m).gone != 0 || (*m).doubtful != 0 {
                continue;
            }
            hooks(m, &mut now, &mut batch);
            for (i, f) in plan::functions(m) {
                if *(*m).functions.add(i as usize) != UNTOUCHED {
                    sites(m, f, &(0..u64::MAX), &mut now, &mut batch);
                }
            }
            // What is written together is one range of pages: nothing of another module's may lie
            // in it.
            batch.flush();
        }
        lock::unlock();
    }
}

/// Puts back the sites that lie in `[start, end)`, and has none patched there again, unless the
/// propagation lock stays busy.
#[inline(never)]
pub unsafe fn range(start: u64, end: u64) {
    // SAFETY: as in all.
    unsafe {
        if !lock::lock(sys::tid()) {
            state::count_hole(hole::LOCK_BUSY);
            return;
        }
        let mut now = Now {
            start: 1,
            bytes: [0; PART as usize],
        };
        let mut batch = text::Batch::take();
        for i in 0..(*state::process()).module_count as usize {
            let m: *const Module = &raw const (*state::process()).modules[i];
            let is_hit = start < (*m).end && (*m).start < end;
            if !is_hit || (*m).plan.is_none() || (*m).area == 0 || (*m).gone != 0 {
                continue;
            }
            for (i, f) in plan::functions(m) {
                let Some(was_patched) = sites(m, f, &(start..end), &mut now, &mut batch) else {
                    continue;
                };
                let state = (*m).functions.add(i as usize);
                if was_patched || *state != INSTRUMENTED {
                    state::count_hole(hole::TEXT_WRITTEN);
                }
                *state = INSTRUMENTED;
            }
            batch.flush();
        }
        lock::unlock();
    }
}

unsafe fn hooks(m: *const Module, now: &mut Now, batch: &mut text::Batch) {
    // SAFETY: reads the plan; the text is read through the kernel.
    unsafe {
        let is_optional = |s: &PlanSpecial| s.kind.is_hook() || s.kind.is_system_call();
        for s in plan::specials(m).filter(is_optional) {
            let Some(p) = Patch::of_special(m, &s) else {
                continue;
            };
            if now.is(p.at, p.ours.bytes()) {
                batch.add_bytes(p.at, p.overwritten());
            }
        }
    }
}

/// The sites of one function that lie in `range`: None if there are none, else whether any was
/// patched.
unsafe fn sites(
    m: *const Module,
    function: PlanFunction,
    range: &Range<u64>,
    now: &mut Now,
    batch: &mut text::Batch,
) -> Option<bool> {
    let mut found = None;
    // SAFETY: reads the plan; the text is read through the kernel.
    unsafe {
        for s in plan::sites_of(m, function) {
            if !range.contains(&((*m).base + s.start as u64)) {
                continue;
            }
            found = found.or(Some(false));
            if s.is_any(SITE_IN_HOOK | SITE_KEEP_CALL | SITE_SPRINGBOARD) {
                continue;
            }
            let Some(p) = Patch::of_site(m, &s) else {
                continue;
            };
            if now.is(p.at, p.ours.bytes()) {
                batch.add_bytes(p.at, p.overwritten());
                found = Some(true);
            }
        }
    }
    found
}
