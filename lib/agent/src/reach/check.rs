//! Modules that may have gone, or have been mapped anew at the same place.
//!
//! Given a module; looks whether its patches stand, and whether its code is that of the plan.
//! Forgets what is not there any more. Under the propagation lock.

use crate::memory::table::{INSTRUMENTED, Module, UNTOUCHED};
use crate::memory::{counters, sys};
use crate::patch::special;
use crate::plans::patched::{Patch, Stands};
use crate::plans::plan;
use crate::reach::return_points;
use sptrace_wire::plan::*;

/// Bytes from the start of a module by which it is told from another, at most: its headers, and of
/// most the build id and the first names. They end where its code begins, which is patched.
const PRINT_BYTES: usize = 1024;

/// A number that two files hardly have in common, given where one of them is mapped, and where its
/// code begins; 0: it cannot be read.
pub fn print_of(base: u64, code: u64) -> u64 {
    let mut bytes = [0; PRINT_BYTES];
    let before = usize::try_from(code.saturating_sub(base)).unwrap_or(PRINT_BYTES);
    let room = bytes.get_mut(..before.min(PRINT_BYTES)).unwrap_or(&mut []);
    if room.is_empty() || sys::read_into(base, room) != room.len() {
        return 0;
    }
    // FNV-1a (draft-eastlake-fnv), by words.
    let mix = |hash: u64, word: &[u8; 8]| {
        (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3)
    };
    let (words, _) = bytes.as_chunks();
    words.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// True if another file is certainly mapped there now.
fn is_another(m: &Module) -> bool {
    let now = print_of(m.base.get(), m.start.get());
    now != 0 && m.print.get() != 0 && m.print.get() != now
}

/// A module was mapped anew: none of its code is patched.
fn forget_patches(m: &Module) {
    for (i, _) in plan::functions(m) {
        m.set_function(i, UNTOUCHED);
    }
    m.has_off.set(false);
    m.is_written.set(false);
    m.joined.set(false);
    special::install_specials(m);
    return_points::patch_calls_of_roots(m);
}

/// True if of this site five bytes are changed, in which its patch is known.
fn is_short(s: &PlanSite) -> bool {
    use SiteForm::{Acts, Counted, Direct, Kept, Ordered, Template};
    let is_kept = s.form == Template && s.is_any(SITE_KEEP_CALL) && s.span as usize == JUMP_BYTES;
    matches!(s.form, Direct | Counted | Ordered | Acts | Kept)
        || is_kept && counters::keeps_returns()
}

/// A module that may have been unmapped, or mapped anew at the same place. If its patches are gone
/// but its code is there, its functions count as never reached; if other code is there, or another
/// file, it is gone. Of a file without patches the code says nothing.
pub fn check_module(m: &Module) {
    m.doubtful.set(false);
    if !m.has_plan() || is_another(m) {
        m.gone.set(true);
        return;
    }
    match special::first_hook(m) {
        Some(Stands::Ours) => return,
        Some(Stands::Original) => return forget_patches(m),
        Some(Stands::Foreign) => {
            m.gone.set(true);
            return;
        }
        None => {}
    }
    let (mut fresh, mut is_off) = (0, false);
    for (i, f) in plan::functions(m) {
        let sites = plan::sites_with_twins(m, f);
        for (s, twin) in sites.filter(|(s, _)| is_short(s)) {
            let Some(p) = Patch::of_site(m, &s) else {
                continue;
            };
            let twin = twin.filter(|twin| !twin.is_return());
            let twin = twin.and_then(|twin| Patch::of_site(m, &twin));
            let begins = |p: &Patch, now: &[u8]| p.ours.bytes().get(..JUMP_BYTES) == Some(now);
            match sys::read::<JUMP_BYTES>(p.at) {
                Some(now) if begins(&p, &now) => return,
                // Its calls are counted.
                Some(now) if twin.is_some_and(|twin| begins(&twin, &now)) => return,
                Some(now) if now == p.original.bytes() => {}
                _ => {
                    m.gone.set(true);
                    return;
                }
            }
            // Untouched code of a function that was instrumented: mapped anew.
            if m.function(i) == INSTRUMENTED && !f.is_any(FN_MUTED) {
                if m.has_off.get() {
                    // Unless nothing of ours is found elsewhere.
                    is_off = true;
                    continue;
                }
                return forget_patches(m);
            }
            fresh += 1;
            if fresh > 64 && !is_off {
                return;
            }
        }
    }
    if is_off {
        forget_patches(m);
    }
}
