//! Puts the program's own bytes back into its text: into all of it once nothing is recorded any
//! more, or into a part that the program is about to write to itself.
//!
//! Given modules and their plans; writes the original bytes at hooked entries and at sites. From
//! then on no code runs in slots but what was on its way there, and that of the patches that stay.
//! So a stack walker that is loaded later, and is not intercepted, hardly meets a signal that
//! interrupted a slot.
//!
//! This is safe at any moment for other threads: of what is put back only the first instruction had
//! been changed, into a jump, and nothing of ours stands behind it in the text. Where that is not
//! so the patch stays. A counted call without filling leads to its callee again, by one store or a
//! page that is replaced. The patch of other kept calls stays (there is filling before them, and
//! whoever writes another displacement there changes a call), and so do jumps behind filling,
//! springboards and the room made for them, return points that share their bytes, bytes that do not
//! look like our jump, and the entries of special functions, whose callers must still be served
//! (unless the end came before there could be anything to serve).

use crate::memory::table::{INSTRUMENTED, Module, UNTOUCHED};
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
    fn is(&mut self, at: u64, expected: &[u8]) -> bool {
        expected.iter().zip(at..).all(|(byte, address)| {
            let start = address & !(PART - 1);
            if start != self.start {
                self.start = start;
                self.bytes = sys::read(start).unwrap_or([0; PART as usize]);
            }
            self.bytes.get((address - start) as usize) == Some(byte)
        })
    }
}

/// Puts all modules' bytes back, unless the propagation lock stays busy.
pub fn all() {
    if sandbox::is_sandboxed() || !lock::lock(sys::tid()) {
        return;
    }
    let mut now = Now {
        start: 1,
        bytes: [0; PART as usize],
    };
    let mut batch = text::Batch::take();
    // No walker needs to be served then, and a signal would be let in while one is.
    let all_specials = sandbox::ended_early();
    for m in state::process().known_modules() {
        if !m.has_plan() || m.area_start() == 0 || m.gone.get() || m.doubtful.get() {
            continue;
        }
        specials(m, all_specials, &mut now, &mut batch);
        for (i, f) in plan::functions(m) {
            if m.function(i) != UNTOUCHED {
                sites(m, f, &(0..u64::MAX), &mut now, &mut batch);
            }
        }
        // What is written together is one range of pages: nothing of another module's may lie
        // in it.
        batch.flush();
    }
    lock::unlock();
}

/// Puts back the sites that lie in `[start, end)`, and has none patched there again, unless the
/// propagation lock stays busy.
#[inline(never)]
pub fn range(start: u64, end: u64) {
    if !lock::lock(sys::tid()) {
        state::count_hole(hole::LOCK_BUSY);
        return;
    }
    let mut now = Now {
        start: 1,
        bytes: [0; PART as usize],
    };
    let mut batch = text::Batch::take();
    for m in state::process().known_modules() {
        let is_hit = start < m.end.get() && m.start.get() < end;
        if !is_hit || !m.has_plan() || m.area_start() == 0 || m.gone.get() {
            continue;
        }
        for (i, f) in plan::functions(m) {
            let Some(was_patched) = sites(m, f, &(start..end), &mut now, &mut batch) else {
                continue;
            };
            if was_patched || m.function(i) != INSTRUMENTED {
                state::count_hole(hole::TEXT_WRITTEN);
            }
            m.set_function(i, INSTRUMENTED);
            m.is_written.set(true);
        }
        batch.flush();
    }
    lock::unlock();
}

/// Hooks, and what serves system calls; else only where all are put back.
fn specials(m: &Module, all: bool, now: &mut Now, batch: &mut text::Batch) {
    let is_optional = |s: &PlanSpecial| all || s.kind.is_hook() || s.kind.is_for_system_calls();
    for s in plan::specials(m).filter(is_optional) {
        let Some(p) = Patch::of_special(m, &s) else {
            continue;
        };
        if now.is(p.at, p.ours.bytes()) {
            batch.add_bytes(p.at, p.overwritten());
        }
    }
}

/// The sites of one function that lie in `range`: None if there are none, else whether any was
/// patched.
fn sites(
    m: &Module,
    function: PlanFunction,
    range: &Range<u64>,
    now: &mut Now,
    batch: &mut text::Batch,
) -> Option<bool> {
    let mut found = None;
    for s in plan::sites_of(m, function) {
        if !range.contains(&(m.base.get() + s.start as u64)) {
            continue;
        }
        found = found.or(Some(false));
        if site(m, &s, now, batch) {
            found = Some(true);
        }
    }
    for (_, twin) in plan::twins_of(m, function) {
        if range.contains(&(m.base.get() + twin.start as u64)) && site(m, &twin, now, batch) {
            found = Some(true);
        }
    }
    found
}

/// True if it was patched, and is not any more.
fn site(m: &Module, s: &PlanSite, now: &mut Now, batch: &mut text::Batch) -> bool {
    let is_plain = matches!(
        s.form,
        SiteForm::Counted | SiteForm::Ordered | SiteForm::Acts | SiteForm::Kept
    );
    // A call of five bytes has no filling in front of it.
    let is_plain = is_plain || s.keeps_acts() && s.span as usize == JUMP_BYTES;
    let is_kept = s.is_any(SITE_KEEP_CALL | SITE_JUMP_LAST) && !is_plain;
    let is_shared = s.is_return() && s.is_any(SITE_LENDS);
    if is_kept || is_shared || s.is_any(SITE_IN_HOOK | SITE_SPRINGBOARD) {
        return false;
    }
    let patch = Patch::of_site(m, s).filter(|p| now.is(p.at, p.ours.bytes()));
    if let Some(p) = &patch {
        batch.add_bytes(p.at, p.overwritten());
    }
    patch.is_some()
}
