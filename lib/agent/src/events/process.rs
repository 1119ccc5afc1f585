//! Special functions: functions whose entry is intercepted, whoever calls them, because something
//! happens to the process as a whole there.
//!
//! Given the kind of a special function and the program's registers at its entry; does what must be
//! done before the function runs: hands a program over to an exec, gives a stack walker the
//! original return addresses, forgets modules at a dlclose, patches a signal handler's callees when
//! it is registered, ends the recording before a sandbox. What must happen when nothing is recorded
//! any more stands in [`crate::events::dormant`].
//!
//! Must not know how the entry was intercepted.

use crate::events::exec::Exec;
use crate::events::unwind;
use crate::frames::handlers;
use crate::memory::frame::Frame;
use crate::memory::sandbox::{SYS_MADVISE, SYS_PRCTL, SYS_SECCOMP};
use crate::memory::state::Hot;
use crate::memory::{guarded, lock, sandbox, state, sys};
use crate::patch::unpatch;
use crate::plans::modules;
use crate::plans::modules::Special;
use crate::reach::{propagate, thread};
use crate::record::{end, question, settle};
use sptrace_wire::control::*;
use sptrace_wire::plan::*;

const SYS_MPROTECT: u64 = 10;
const SYS_CLONE: u64 = 56;

/// The address of the struct sock_fprog, if the special function of this kind, with these
/// arguments, is about to install a seccomp filter and does nothing else that
/// [`crate::memory::sandbox::enters_sandbox`] is true of.
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

/// True if recording can go on behind what [`crate::memory::sandbox::enters_sandbox`] is true of.
fn goes_on_within(kind: SpecialKind, f: &Frame) -> bool {
    if kind == SpecialKind::Sandbox {
        // libseccomp makes its system call by a function of libc's that is looked at in its turn.
        // SAFETY: a field of the process block.
        return unsafe { (*state::process()).sees_syscall } != 0;
    }
    let Some(filter) = installed_filter(kind, f) else {
        return false;
    };
    let answer = question::question(ASK_FILTER, filter);
    matches!(answer, Some([1, ..]))
}

/// mprotect(2) is about to run. Who makes code writable may write a part of an instruction of it:
/// what is patched there must not be.
unsafe fn text_is_written(start: u64, bytes: u64, protection: u64) {
    const WRITE: u64 = 2;
    let end = start.saturating_add(bytes);
    // SAFETY: called by the slow path; the table is complete up to its count.
    unsafe {
        let p = state::process();
        let is_text = |i: usize| {
            let m = &raw const (*p).modules[i];
            (*m).plan.is_some() && start < (*m).end && (*m).start < end
        };
        if protection & WRITE != 0 && (0..(*p).module_count as usize).any(is_text) {
            unpatch::range(start, end);
        }
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

/// A special function is about to run; its return address lies at `above`.
pub unsafe fn special(hot: *mut Hot, f: &mut Frame, above: u64, mask: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some(Special { kind, entry, .. }) = modules::special_of(f.id) else {
            return;
        };
        if let Some(exec) = Exec::of(kind, f) {
            if kind != SpecialKind::Syscall {
                settle::enter_unseen(hot, above + 8, entry);
            }
            (*hot).asked_exec = 1;
            exec.run(hot, mask);
            return;
        }
        match kind {
            SpecialKind::Unwind | SpecialKind::Walk => {
                unwind::give_back(hot, above, mask);
                (*hot).looked = u64::from(kind == SpecialKind::Walk);
            }
            SpecialKind::Unload => {
                settle::give_back_one(hot, above);
                unload();
            }
            SpecialKind::Return => settle::give_back_one(hot, above),
            _ if sandbox::enters_sandbox(kind, f) && goes_on_within(kind, f) => {}
            _ if sandbox::enters_sandbox(kind, f) => end::enter_sandbox(hot),
            _ if sandbox::sets_gs(kind, f) => end::gs_is_taken(hot),
            SpecialKind::Clone if thread::shares_block(f.rdx) => thread::let_go(),
            SpecialKind::Syscall if f.rdi == SYS_CLONE && thread::shares_block(f.rsi) => {
                thread::let_go();
            }
            SpecialKind::Madvise => sandbox::keep_text(kind, f),
            SpecialKind::Syscall if f.rdi == SYS_MADVISE => sandbox::keep_text(kind, f),
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
        let p = state::process();
        if !lock::lock(sys::tid()) {
            state::count_hole(hole::LOCK_BUSY);
            return;
        }
        for i in 1..(*p).module_count as usize {
            let m = &raw mut (*p).modules[i];
            (*m).doubtful = 1;
            modules::forget((*m).start, (*m).end);
        }
        lock::unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::called_with;

    #[test]
    fn a_filter_is_found_by_whichever_call_installs_it() {
        let filter = |kind, arguments| installed_filter(kind, &called_with(arguments));
        assert_eq!(filter(SpecialKind::Prctl, [22, 2, 7, 0, 0, 0]), Some(7));
        assert_eq!(
            filter(SpecialKind::Syscall, [SYS_PRCTL, 22, 2, 7, 0, 0]),
            Some(7)
        );
        assert_eq!(
            filter(SpecialKind::Syscall, [SYS_SECCOMP, 1, 0, 7, 0, 0]),
            Some(7)
        );
    }

    #[test]
    fn the_strict_mode_has_no_filter() {
        let filter = |kind, arguments| installed_filter(kind, &called_with(arguments));
        assert_eq!(filter(SpecialKind::Prctl, [22, 1, 7, 0, 0, 0]), None);
        assert_eq!(
            filter(SpecialKind::Syscall, [SYS_PRCTL, 22, 1, 7, 0, 0]),
            None
        );
        assert_eq!(
            filter(SpecialKind::Syscall, [SYS_SECCOMP, 0, 0, 7, 0, 0]),
            None
        );
        // Whoever forbids rdtsc installs none either.
        assert_eq!(filter(SpecialKind::Prctl, [26, 2, 7, 0, 0, 0]), None);
    }
}
