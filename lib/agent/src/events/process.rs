//! What is done at special functions while the process is recorded: a program is handed over to an
//! exec, a stack walker gets the original return addresses, modules are forgotten at a dlclose, a
//! signal handler's callees are patched when it is registered, the recording ends before a sandbox.
//!
//! Given a special function that is about to run ([`crate::events::special`] says which leads to
//! what); does what must be done before it. Must not know how the entry was intercepted.

use crate::events::entered::Entered;
use crate::events::exec::Exec;
use crate::events::unwind;
use crate::frames::handlers;
use crate::memory::frame::Frame;
use crate::memory::sandbox::{SYS_MADVISE, SYS_PRCTL, SYS_SECCOMP};
use crate::memory::table::Module;
use crate::memory::thread::Hot;
use crate::memory::{counters, guarded, lock, sandbox, state, sys};
use crate::patch::unpatch;
use crate::plans::{counted, kept_acts, kept_order, modules, payloads};
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
        return state::process().sees_syscall.get();
    }
    let Some(filter) = installed_filter(kind, f) else {
        return false;
    };
    let answer = question::question(ASK_FILTER, filter);
    matches!(answer, Some([1, ..]))
}

/// mprotect(2) is about to run. Who makes code writable may write a part of an instruction of it:
/// what is patched there must not be.
fn text_is_written(start: u64, bytes: u64, protection: u64) {
    const WRITE: u64 = 2;
    let end = start.saturating_add(bytes);
    let is_text = |m: &Module| m.has_plan() && start < m.end.get() && m.start.get() < end;
    if protection & WRITE != 0 && modules::modules().any(is_text) {
        unpatch::range(start, end);
    }
}

/// Nothing must be done.
pub(super) fn nothing(_: &Hot, _: &mut Entered) {}

/// Another program is about to be executed.
pub(super) fn exec(hot: &Hot, entered: &mut Entered) {
    let Some(exec) = Exec::of(entered.special.kind, entered.f) else {
        return;
    };
    if entered.special.kind != SpecialKind::Syscall {
        settle::enter_unseen(hot, entered.f.above_at() + 8, entered.special.entry);
    }
    hot.asked_exec.set(true);
    exec.run(hot, entered.mask);
}

/// A walker is about to run that takes frames away.
pub(super) fn unwind(hot: &Hot, entered: &mut Entered) {
    unwind::give_back(hot, entered.f.above_at(), entered.mask);
    hot.looked.set(0);
}

/// A walker is about to run that only looks.
pub(super) fn walk(hot: &Hot, entered: &mut Entered) {
    unwind::give_back(hot, entered.f.above_at(), entered.mask);
    hot.looked.set(1);
}

/// It reads its return address.
pub(super) fn give_back_one(hot: &Hot, entered: &mut Entered) {
    settle::give_back_one(hot, entered.f.word_above(0));
}

/// dlclose: any module but the first may go away. Calls through pointers must ask again, and a
/// module is looked at before its plan is used. A busy lock leaves everything as it is, and the
/// comparison of bytes still protects every write.
pub(super) fn unload(hot: &Hot, entered: &mut Entered) {
    give_back_one(hot, entered);
    if !lock::lock(sys::tid()) {
        state::count_hole(hole::LOCK_BUSY);
        return;
    }
    for m in modules::modules().skip(1) {
        m.doubtful.set(true);
        modules::forget(m.start.get(), m.end.get());
        payloads::forget(m.start.get(), m.end.get());
    }
    if state::process().has_values.get() {
        kept_acts::forget_all();
    }
    if counters::may_record_in_order() {
        kept_order::forget_all();
    }
    if counters::has_cells() {
        counted::forget_callees();
    }
    lock::unlock();
}

/// There may be new handlers.
pub(super) fn handlers_change(_: &Hot, entered: &mut Entered) {
    handlers::touched(entered.f.rdi);
}

/// sigaction(2): the handler is a function to follow.
pub(super) fn sigaction(hot: &Hot, entered: &mut Entered) {
    if entered.f.rsi != 0 {
        handlers::touched(entered.f.rdi);
    }
    let handler = match entered.f.rsi {
        0 => None,
        action => sys::read_word(action),
    };
    if let Some(handler) = handler.filter(|handler| *handler > 4096) {
        propagate::reach(hot, handler);
    }
}

/// pthread_create(3): where the thread begins is followed at once, since what calls that may be
/// left out (`run -l`), unless only what hooks lead to is.
pub(super) fn thread(hot: &Hot, entered: &mut Entered) {
    if state::control().roots_only == 0 {
        propagate::reach(hot, entered.f.rdx);
    }
}

fn protect_range(hot: &Hot, f: &Frame, [start, bytes, protection]: [u64; 3]) {
    text_is_written(start, bytes, protection);
    guarded::protect(start, bytes, protection, f.above_at()..hot.stack_top.get());
}

/// mprotect(2) is about to run.
pub(super) fn protect(hot: &Hot, entered: &mut Entered) {
    let f = &*entered.f;
    protect_range(hot, f, [f.rdi, f.rsi, f.rdx]);
}

/// madvise(2) is about to run.
pub(super) fn madvise(_: &Hot, entered: &mut Entered) {
    sandbox::keep_text(entered.special.kind, entered.f);
}

/// clone(2) is about to run.
pub(super) fn clone(_: &Hot, entered: &mut Entered) {
    if thread::shares_block(entered.f.rdx) {
        thread::let_go();
    }
}

/// A sandbox may be entered.
pub(super) fn sandbox(hot: &Hot, entered: &mut Entered) {
    let kind = entered.special.kind;
    if sandbox::enters_sandbox(kind, entered.f) && !goes_on_within(kind, entered.f) {
        end::enter_sandbox(hot);
    }
}

/// The gs base may be set.
pub(super) fn gs(hot: &Hot, entered: &mut Entered) {
    if sandbox::sets_gs(entered.special.kind, entered.f) {
        end::gs_is_taken(hot);
    }
}

/// syscall(2) is about to run: whatever its number says.
pub(super) fn syscall(hot: &Hot, entered: &mut Entered) {
    let f = &*entered.f;
    match f.rdi {
        SYS_MPROTECT => protect_range(hot, f, [f.rsi, f.rdx, f.rcx]),
        SYS_CLONE if thread::shares_block(f.rsi) => thread::let_go(),
        SYS_MADVISE => madvise(hot, entered),
        _ => {
            exec(hot, entered);
            sandbox(hot, entered);
            gs(hot, entered);
        }
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
