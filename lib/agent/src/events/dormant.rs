//! A *dormant* process: nothing is recorded in it any more, because the host is gone or because a
//! sandbox forbids the clock.
//!
//! Given a special function that is about to run in such a process; serves stack walkers, which
//! must not meet return addresses of ours. No shadow stack is kept up any more. When the process
//! became dormant, all stacks got the program's own return addresses back, and calls have left no
//! others since ([`crate::routines::silent`]). Some may remain: that of a call which another thread
//! was in the middle of, and those on stacks that no shadow stack described. So a walker is served
//! by a scan of the stacks that it will see: the one it runs on, and those that signals
//! interrupted.
//!
//! No system call is made for anything else, and none at all in a sandbox.

use crate::events::entered::Entered;
use crate::frames::{handlers, stacks};
use crate::memory::frame::Frame;
use crate::memory::live::StackWord;
use crate::memory::state::{DORMANT, TEXT_BACK};
use crate::memory::{frame, guarded, sandbox, state, sys, thread};
use crate::patch::unpatch;
use crate::plans::{modules, slot};
use crate::record::restore;
use crate::routines::silent;
use crate::signals::context;
use core::sync::atomic::Ordering;
use sptrace_wire::plan::*;

/// No stack is larger, where its end is known.
const STACK_BYTES: u64 = 1 << 30;
/// Scanned at most, where it is not.
const UNKNOWN_STACK_BYTES: u64 = 16 << 20;

/// Once, after the event at which the end came: the locks that it held are free again.
#[inline(never)] // the slow path often runs on a small stack of the program
pub fn put_text_back() {
    let silent = &state::process().dormant;
    let is_first = silent.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |bits| {
        (bits & (DORMANT | TEXT_BACK) == DORMANT).then_some(bits | TEXT_BACK)
    });
    if is_first.is_ok() {
        unpatch::all();
    }
}

/// A call that was on its way when the end came: its slot calls the routine again, which is silent
/// now and leaves no return address of ours. None: it is no call.
pub fn begin_again(f: &mut Frame) -> Option<u64> {
    if f.routine as i32 == common::COUNT_FIRST {
        // Not counted any more: gs may be the program's.
        f.id += u64::from(COUNTED_JUMP - COUNTED_ID);
        return Some(frame::RET);
    }
    if f.routine as i32 == common::ACTS_FIRST {
        if slot::asks_of_acts(f.id) {
            f.id += u64::from(ACTS_JUMP - ACTS_ID);
        }
        return Some(frame::RET);
    }
    if !matches!(
        f.routine as i32,
        common::ENTRY
            | common::FIRST
            | common::INDIRECT
            | common::ENTRY_PLACED
            | common::INDIRECT_PLACED
    ) {
        return None;
    }
    let area = modules::area(f.id)?;
    if !silent::is_silent(area) {
        silent::silence(area);
    }
    // The id stands behind the call of the routine (5 bytes).
    f.id -= 5;
    Some(frame::RET)
}

/// Nothing must be done.
pub(super) fn nothing(_: &mut Entered) {}

/// A walker is about to run.
pub(super) fn walk(entered: &mut Entered) {
    let above = entered.f.above_at();
    if sandbox::may_be_sandboxed() {
        scan_mapped(above & !7);
        return;
    }
    let interrupted = context::move_contexts(None, above, entered.mask);
    for start in core::iter::once(above).chain(interrupted) {
        if start != 0 {
            restore::scan(start & !7, end_of_stack(start));
        }
    }
}

/// It reads its return address.
pub(super) fn give_back_one(entered: &mut Entered) {
    let word = entered.f.word_above(0);
    restore::restore(word.address(), word.get());
}

/// There may be new handlers.
pub(super) fn handlers_change(_: &mut Entered) {
    handlers::registered();
}

/// mprotect(2) is about to run.
pub(super) fn protect(entered: &mut Entered) {
    let f = &*entered.f;
    let stack = f.above_at()..state::process().stack_top.get();
    guarded::protect(f.rdi, f.rsi, f.rdx, stack);
}

/// madvise(2) is about to run.
pub(super) fn madvise(entered: &mut Entered) {
    sandbox::keep_text(entered.special.kind, entered.f);
}

/// A sandbox may be entered.
pub(super) fn sandbox(entered: &mut Entered) {
    if sandbox::enters_sandbox(entered.special.kind, entered.f) {
        sandbox::set_sandboxed();
    }
}

/// The gs base may be set.
pub(super) fn gs(entered: &mut Entered) {
    if sandbox::sets_gs(entered.special.kind, entered.f) {
        sandbox::set_gs_taken();
    }
}

/// syscall(2) is about to run, which may be any of these.
pub(super) fn syscall(entered: &mut Entered) {
    sandbox(entered);
    gs(entered);
    madvise(entered);
}

/// The end of the stack that `at` lies in, or a bound for it. A thread's control block lies at the
/// end of its stack.
fn end_of_stack(at: u64) -> u64 {
    let (alternate, first) = (sys::alternate_stack(), state::process().stack_top.get());
    match alternate {
        Some((low, high)) if at > low && at <= high => return high,
        _ => {}
    }
    let known = [first, sys::fs_base()]
        .into_iter()
        .filter(|end| *end > at && end - at < STACK_BYTES)
        .min();
    known.unwrap_or(at + UNKNOWN_STACK_BYTES)
}

/// The same without a system call: only what is surely mapped, up to the highest stack pointer that
/// was seen.
fn scan_mapped(mut at: u64) {
    if sandbox::ended_early() {
        return;
    }
    let first = state::process().stack_top.get();
    let end = if stacks::is_first(at) {
        first
    } else {
        // SAFETY: gs holds zero or one of our blocks until the program sets it, which is noticed.
        let own = unsafe { thread::of_gs() };
        let Some(own) = own.filter(|hot| hot.key().get() == sys::fs_base()) else {
            return;
        };
        own.stack_top.get()
    };
    if end > at + UNKNOWN_STACK_BYTES && end != first {
        return;
    }
    while at < end && !guarded::holds(at) {
        // SAFETY: see above.
        let word = unsafe { StackWord::at(at) };
        restore::restore(at, word.get());
        at += 8;
    }
}
