//! What happens to the process as a whole: exec, libraries that go away, stack walkers, signal
//! handlers. These are functions whose *entry* is intercepted, whoever calls them.

use crate::exec::Exec;
use crate::patched::{Patch, Stands};
use crate::slow::{Frame, enter_unseen};
use crate::special::Special;
use crate::state::*;
use crate::{guarded, handlers, module, plan, propagate, special, sys, thread, unpatch, unwind};
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;
use sptrace_wire::plan::*;

const SYS_MPROTECT: u64 = 10;
const SYS_MADVISE: u64 = 28;
const SYS_CLONE: u64 = 56;
const SYS_PRCTL: u64 = 157;
const SYS_ARCH_PRCTL: u64 = 158;
const SYS_SECCOMP: u64 = 317;

/// prctl(2) calls after which rdtsc or our system calls may kill, or no text can be written: PR_SET_SECCOMP,
/// PR_SET_TSC with PR_TSC_SIGSEGV, PR_SET_MDWE.
fn forbids(option: u64, argument: u64) -> bool {
    option == 22 || option == 26 && argument == 2 || option == 65
}

/// True if the special function of this kind, with these arguments, is about to forbid either.
pub fn enters_sandbox(kind: SpecialKind, f: &Frame) -> bool {
    match (kind, f.rdi) {
        (SpecialKind::Prctl, option) => forbids(option, f.rsi),
        // The strict mode takes no flags: with some the kernel is asked whether it has the call (libseccomp).
        (SpecialKind::Syscall, SYS_SECCOMP) => f.rsi == 1 || f.rsi == 0 && f.rdx == 0,
        (SpecialKind::Syscall, SYS_PRCTL) => forbids(f.rsi, f.rdx),
        (SpecialKind::Sandbox, _) => true,
        _ => false,
    }
}

/// The address of the struct sock_fprog, if the special function of this kind, with these arguments, is about to
/// install a seccomp filter and does nothing else that [`enters_sandbox`] is true of.
fn installed_filter(kind: SpecialKind, f: &Frame) -> Option<u64> {
    const PR_SET_SECCOMP: u64 = 22;
    /// SECCOMP_MODE_FILTER of prctl(2).
    const MODE_FILTER: u64 = 2;
    /// SECCOMP_SET_MODE_FILTER of seccomp(2).
    const SET_MODE_FILTER: u64 = 1;
    match kind {
        SpecialKind::Prctl if f.rdi == PR_SET_SECCOMP && f.rsi == MODE_FILTER => Some(f.rdx),
        SpecialKind::Syscall if f.rdi == SYS_SECCOMP && f.rsi == SET_MODE_FILTER => Some(f.rcx),
        SpecialKind::Syscall if f.rdi == SYS_PRCTL && f.rsi == PR_SET_SECCOMP => {
            (f.rdx == MODE_FILTER).then_some(f.rcx)
        }
        _ => None,
    }
}

/// True if recording can go on behind what [`enters_sandbox`] is true of.
unsafe fn goes_on_within(kind: SpecialKind, f: &Frame) -> bool {
    if kind == SpecialKind::Sandbox {
        // libseccomp makes its system call by a function of libc's that is looked at in its turn.
        // SAFETY: a field of the process block.
        return unsafe { (*process()).sees_syscall } != 0;
    }
    let Some(filter) = installed_filter(kind, f) else {
        return false;
    };
    // SAFETY: called by the slow path.
    let answer = unsafe { module::question(ASK_FILTER, filter) };
    matches!(answer, Some([1, ..]))
}

/// True if the special function of this kind, with these arguments, is about to set the gs base.
pub fn sets_gs(kind: SpecialKind, f: &Frame) -> bool {
    const ARCH_SET_GS: u64 = 0x1001;
    match kind {
        SpecialKind::ArchPrctl => f.rdi == ARCH_SET_GS,
        SpecialKind::Syscall => f.rdi == SYS_ARCH_PRCTL && f.rsi == ARCH_SET_GS,
        _ => false,
    }
}

/// clone(2) flags by which the new task has our memory, and the gs and fs of its creator, at the same time.
fn shares_block(flags: u64) -> bool {
    const VM: u64 = 0x100;
    const VFORK: u64 = 0x4000;
    const SETTLS: u64 = 0x8_0000;
    flags & (VM | VFORK | SETTLS) == VM
}

/// madvise(2) that would put zeros in place of patched pages, which are anonymous, and does nothing to
/// those of a file.
unsafe fn drops_text(start: u64, bytes: u64, advice: u64) -> bool {
    const DONTNEED: u64 = 4;
    // SAFETY: the table is complete up to its count.
    unsafe {
        let p = process();
        advice == DONTNEED
            && (0..(*p).module_count as usize).any(|i| {
                let m = &raw const (*p).modules[i];
                start >= (*m).start & !4095
                    && start.saturating_add(bytes) <= ((*m).end + 4095) & !4095
            })
    }
}

/// madvise(2) is about to run: patched text stays. MADV_NORMAL takes the place of the advice.
pub unsafe fn keep_text(kind: SpecialKind, f: &mut Frame) {
    // SAFETY: the arguments are numbers.
    unsafe {
        match kind {
            SpecialKind::Madvise if drops_text(f.rdi, f.rsi, f.rdx) => f.rdx = 0,
            SpecialKind::Syscall if f.rdi == SYS_MADVISE && drops_text(f.rsi, f.rdx, f.rcx) => {
                f.rcx = 0;
            }
            _ => {}
        }
    }
}

/// mprotect(2) is about to run. Who makes code writable may write a part of an instruction of it: what is
/// patched there must not be.
unsafe fn text_is_written(start: u64, bytes: u64, protection: u64) {
    const WRITE: u64 = 2;
    let end = start.saturating_add(bytes);
    // SAFETY: called by the slow path; the table is complete up to its count.
    unsafe {
        let p = process();
        let is_text = |i: usize| {
            let m = &raw const (*p).modules[i];
            (*m).plan.is_some() && start < (*m).end && (*m).start < end
        };
        if protection & WRITE != 0 && (0..(*p).module_count as usize).any(is_text) {
            unpatch::range(start, end);
        }
    }
}

/// True if no system call may be made any more.
pub fn is_sandboxed() -> bool {
    // SAFETY: an atomic of the process block.
    unsafe { (*process()).sandboxed.load(Ordering::Relaxed) != 0 }
}

/// The same if nothing is recorded any more: modules that were not known before (the C library, after
/// an early end) may have entered a sandbox unseen.
pub fn may_be_sandboxed() -> bool {
    // SAFETY: a field of the process block.
    is_sandboxed() || unsafe { (*process()).sees_sandbox } == 0
}

/// From here on no system call is made.
pub fn set_sandboxed() {
    // SAFETY: an atomic of the process block.
    unsafe { (*process()).sandboxed.store(1, Ordering::Relaxed) };
}

/// From here on gs is the program's.
pub fn set_gs_taken() {
    // SAFETY: an atomic of the process block.
    unsafe { (*process()).dormant.fetch_or(GS_TAKEN, Ordering::AcqRel) };
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

/// mprotect(2) is about to run.
unsafe fn protect(hot: *mut Hot, above: u64, [start, bytes, protection]: [u64; 3]) {
    // SAFETY: the thread's own block.
    unsafe {
        text_is_written(start, bytes, protection);
        guarded::protect(start, bytes, protection, above..(*hot).stack_top);
    }
}

/// The program uses gs itself from here on: nothing is recorded any more.
pub unsafe fn gs_is_taken(hot: *mut Hot) {
    // SAFETY: the thread's own block; gs stays what it is until the program sets it.
    unsafe {
        count_hole(hole::GS);
        crate::chunk::hand_over(hot);
        (*process()).dormant.fetch_or(GS_TAKEN, Ordering::AcqRel);
        crate::chunk::fall_silent();
    }
}

/// A special function is about to run; its return address lies at `above`.
pub unsafe fn special(hot: *mut Hot, f: &mut Frame, above: u64, mask: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some(Special { kind, entry, .. }) = special::special_of(f.id) else {
            return;
        };
        if let Some(exec) = Exec::of(kind, f) {
            if kind != SpecialKind::Syscall {
                enter_unseen(hot, above + 8, entry);
            }
            exec.run(mask);
            return;
        }
        match kind {
            SpecialKind::Unwind | SpecialKind::Walk => {
                unwind::give_back(hot, above, mask);
                (*hot).looked = u64::from(kind == SpecialKind::Walk);
            }
            SpecialKind::Unload => {
                unwind::give_back_one(hot, above);
                unload();
            }
            SpecialKind::Return => unwind::give_back_one(hot, above),
            _ if enters_sandbox(kind, f) && goes_on_within(kind, f) => {}
            _ if enters_sandbox(kind, f) => enter_sandbox(hot),
            _ if sets_gs(kind, f) => gs_is_taken(hot),
            SpecialKind::Clone if shares_block(f.rdx) => thread::let_go(),
            SpecialKind::Syscall if f.rdi == SYS_CLONE && shares_block(f.rsi) => thread::let_go(),
            SpecialKind::Madvise => keep_text(kind, f),
            SpecialKind::Syscall if f.rdi == SYS_MADVISE => keep_text(kind, f),
            SpecialKind::Cancel => handlers::registered(),
            SpecialKind::Protect => protect(hot, above, [f.rdi, f.rsi, f.rdx]),
            SpecialKind::Syscall if f.rdi == SYS_MPROTECT => {
                protect(hot, above, [f.rsi, f.rdx, f.rcx]);
            }
            SpecialKind::Sigaction => {
                let action = f.rsi;
                let mut handler = 0u64;
                handlers::registered();
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
        for (i, _) in plan::functions(m) {
            *(*m).functions.add(i as usize) = UNTOUCHED;
        }
        (*m).joined = 0;
        special::install_specials(m);
    }
}

/// A module that may have been unmapped, or mapped anew at the same place. If its patches are gone but
/// its code is there, its functions count as never reached; if other code is there, it is gone.
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
