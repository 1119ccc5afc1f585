//! Modules that may have gone, or have been mapped anew at the same place.
//!
//! Given a module; looks whether its patches stand, and whether its code is that of the plan.
//! Forgets what is not there any more. Under the propagation lock.

use crate::memory::state::{INSTRUMENTED, Module, UNTOUCHED};
use crate::memory::sys;
use crate::patch::special;
use crate::plans::patched::{Patch, Stands};
use crate::plans::plan;
use sptrace_wire::plan::*;

/// A module was mapped anew: none of its code is patched.
unsafe fn forget_patches(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        for (i, _) in plan::functions(m) {
            *(*m).functions.add(i as usize) = UNTOUCHED;
        }
        (*m).joined = 0;
        special::install_specials(m);
    }
}

/// A module that may have been unmapped, or mapped anew at the same place. If its patches are gone
/// but its code is there, its functions count as never reached; if other code is there, it is gone.
pub unsafe fn check_module(m: *mut Module) {
    // SAFETY: the lock is held; memory is read through the kernel.
    unsafe {
        (*m).doubtful = 0;
        if (*m).plan.is_none() {
            (*m).gone = 1;
            return;
        }
        match special::first_hook(m) {
            Some(Stands::Ours) => return,
            Some(Stands::Original) => return forget_patches(m),
            Some(Stands::Foreign) => {
                (*m).gone = 1;
                return;
            }
            None => {}
        }
        let mut fresh = 0;
        for (i, f) in plan::functions(m) {
            for s in plan::sites_of(m, f).filter(|s| s.form == SiteForm::Direct) {
                let Some(p) = Patch::of_site(m, &s) else {
                    continue;
                };
                let mut now = [0u8; JUMP_BYTES];
                let got = sys::read_own(p.at as usize, now.as_mut_ptr(), now.len());
                if got == now.len() && now == p.ours.bytes() {
                    return;
                }
                if got != now.len() || now != p.original.bytes() {
                    (*m).gone = 1;
                    return;
                }
                // Untouched code of a function that was instrumented: mapped anew.
                if *(*m).functions.add(i as usize) == INSTRUMENTED && !f.is_any(FN_MUTED) {
                    return forget_patches(m);
                }
                fresh += 1;
                if fresh > 64 {
                    return;
                }
            }
        }
    }
}
