//! What happens to the process as a whole: exec, libraries that go away, stack walkers, signal
//! handlers. These are functions whose *entry* is intercepted, whoever calls them.

use crate::slow::{Frame, enter_unseen};
use crate::state::*;
use crate::{module, propagate, sigframe, sys, unwind};
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;
use sptrace_wire::plan::*;

const SYS_PRCTL: u64 = 157;
const SYS_SECCOMP: u64 = 317;

/// prctl(2) calls after which rdtsc or our system calls may kill: PR_SET_SECCOMP, and PR_SET_TSC with
/// PR_TSC_SIGSEGV.
fn forbids(option: u64, argument: u64) -> bool {
    option == 22 || option == 26 && argument == 2
}

/// True if the special function of this kind, with these arguments, is about to forbid either.
pub fn enters_sandbox(kind: u32, f: &Frame) -> bool {
    match (kind, f.rdi) {
        (SPECIAL_PRCTL, option) => forbids(option, f.rsi),
        (SPECIAL_SYSCALL, SYS_SECCOMP) => f.rsi <= 1,
        (SPECIAL_SYSCALL, SYS_PRCTL) => forbids(f.rsi, f.rdx),
        (SPECIAL_SANDBOX, _) => true,
        _ => false,
    }
}

/// True if no system call may be made any more.
pub fn is_sandboxed() -> bool {
    // SAFETY: an atomic of the process block.
    unsafe { (*process()).sandboxed.load(Ordering::Relaxed) != 0 }
}

/// From here on no system call is made.
pub fn set_sandboxed() {
    // SAFETY: an atomic of the process block.
    unsafe { (*process()).sandboxed.store(1, Ordering::Relaxed) };
}

/// Nothing is recorded from here on: after this call neither rdtsc nor a system call is safe.
unsafe fn enter_sandbox(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        count_hole(hole::SANDBOX);
        set_sandboxed();
        crate::chunk::hand_over(hot);
        crate::chunk::fall_silent();
    }
}

/// A special function is about to run; its return address lies at `above`.
pub unsafe fn special(hot: *mut Hot, f: &mut Frame, above: u64, mask: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some((kind, entry)) = propagate::special_of(f.id) else {
            return;
        };
        match kind {
            SPECIAL_UNWIND => unwind::give_back(hot, above, mask),
            SPECIAL_EXEC => {
                enter_unseen(hot, above + 8, entry);
                exec(f, mask);
            }
            SPECIAL_UNLOAD => {
                unwind::give_back_one(hot, above);
                unload();
            }
            SPECIAL_RETURN => unwind::give_back_one(hot, above),
            _ if enters_sandbox(kind, f) => enter_sandbox(hot),
            SPECIAL_SIGACTION => {
                let action = f.rsi;
                let mut handler = 0u64;
                sigframe::handler_registered();
                if action != 0
                    && sys::read_own(action as usize, (&raw mut handler).cast(), 8) == 8
                    && handler > 4096
                {
                    propagate::reach(hot, handler);
                }
            }
            _ => {}
        }
    }
}

/// execve(path, argv, envp): the host takes hold of us, we do the call ourselves. If it fails, the
/// host lets go and the program's own function runs (and fails the same way).
unsafe fn exec(f: &Frame, mask: u64) {
    // SAFETY: the arguments are the program's.
    unsafe {
        match module::question(ASK_EXEC, f.rdi) {
            Some([1, ..]) => {
                // The new image inherits the signal mask: it must be the program's.
                sys::restore_signals(mask);
                sys::execve(f.rdi as usize, f.rsi as usize, f.rdx as usize);
                sys::block_signals();
                module::question(ASK_EXEC_FAILED, 0);
            }
            _ => count_hole(hole::EXEC_UNSEEN),
        }
    }
}

/// dlclose: any module but the first may go away. Calls through pointers must ask again, and a
/// module is looked at before its plan is used.
unsafe fn unload() {
    // SAFETY: the table is changed under the lock; a busy lock leaves everything as it is, and the
    // comparison of bytes still protects every write.
    unsafe {
        let p = process();
        if !propagate::lock(sys::tid()) {
            count_hole(hole::LOCK_BUSY);
            return;
        }
        for i in 1..(*p).module_count as usize {
            let m = &raw mut (*p).modules[i];
            (*m).doubtful = 1;
            module::forget((*m).start, (*m).end);
        }
        propagate::unlock();
    }
}

/// A module was mapped anew: none of its code is patched.
unsafe fn forget_patches(m: *mut Module) {
    // SAFETY: the lock is held.
    unsafe {
        let h = &*((*m).plan as *const PlanHeader);
        for k in 0..h.functions as usize {
            *(*m).functions.add(k) = UNTOUCHED;
        }
        propagate::install_specials(m);
    }
}

/// A module that may have been unmapped, or mapped anew at the same place. If its patches are gone but
/// its code is there, its functions count as never reached; if other code is there, it is gone.
pub unsafe fn check_module(m: *mut Module) {
    // SAFETY: the lock is held; memory is read through the kernel.
    unsafe {
        (*m).doubtful = 0;
        if (*m).plan.is_null() {
            (*m).gone = 1;
            return;
        }
        match propagate::first_hook(m) {
            Some(propagate::HookText::Patched) => return,
            Some(propagate::HookText::Original) => return forget_patches(m),
            Some(propagate::HookText::Foreign) => {
                (*m).gone = 1;
                return;
            }
            None => {}
        }
        let h = &*((*m).plan as *const PlanHeader);
        let sites = (*m).plan.add(h.sites_offset as usize) as *const PlanSite;
        let functions = (*m).plan.add(h.functions_offset as usize) as *const PlanFunction;
        let mut fresh = 0;
        for i in 0..h.functions as usize {
            let f = &*functions.add(i);
            for k in 0..f.site_count as u32 {
                let s = &*sites.add((f.first_site + k) as usize);
                if s.form != FORM_DIRECT {
                    continue;
                }
                let mut now = [0u8; 5];
                let at = (*m).base + s.start as u64;
                if sys::read_own(at as usize, now.as_mut_ptr(), 5) != 5 {
                    (*m).gone = 1;
                    return;
                }
                let rel = u32::from_le_bytes([now[1], now[2], now[3], now[4]]);
                let callee = (*m).base + s.argument as u64;
                let slot = (*m).area + (s.slot + DIRECT_ENTRY) as u64;
                let original = now[0] == 0xe8 && rel == callee.wrapping_sub(at + 5) as u32;
                let patched = now[0] == 0xe9 && rel == slot.wrapping_sub(at + 5) as u32;
                if patched {
                    return;
                }
                if !original {
                    (*m).gone = 1;
                    return;
                }
                // Untouched code of a function that was instrumented: mapped anew.
                if *(*m).functions.add(i) == INSTRUMENTED && f.flags & FN_MUTED == 0 {
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
