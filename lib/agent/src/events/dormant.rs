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

use crate::frames::{handlers, shadow, stacks};
use crate::memory::frame::Frame;
use crate::memory::state::{DORMANT, TEXT_BACK};
use crate::memory::{frame, guarded, sandbox, state, sys};
use crate::patch::unpatch;
use crate::plans::modules;
use crate::plans::modules::Special;
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
    // SAFETY: called by the slow path.
    unsafe {
        let silent = &(*state::process()).dormant;
        let is_first = silent.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |bits| {
            (bits & (DORMANT | TEXT_BACK) == DORMANT).then_some(bits | TEXT_BACK)
        });
        if is_first.is_ok() {
            unpatch::all();
        }
    }
}

/// A call that was on its way when the end came: its slot calls the routine again, which is silent
/// now and leaves no return address of ours. None: it is no call.
pub fn begin_again(f: &mut Frame) -> Option<u64> {
    if !matches!(
        f.routine as i32,
        common::ENTRY | common::FIRST | common::INDIRECT
    ) {
        return None;
    }
    // SAFETY: the id stands behind the call of the routine (5 bytes).
    unsafe {
        let m = modules::of_area(f.id);
        if m.is_null() || (*m).area_rw == 0 {
            return None;
        }
        let area = (*m).area_rw as *mut u8;
        if !silent::is_silent(area) {
            silent::silence(area);
        }
        f.id -= 5;
    }
    Some(frame::RET)
}

/// The special function of `f.id` is about to run; its return address lies at `above`. `mask`: the
/// thread's own signal mask; unless the process may be in a sandbox, signals are blocked: a handler
/// that walked meanwhile would find no way through the agent.
#[inline(never)]
pub unsafe fn special(f: &mut Frame, above: u64, mask: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some(Special { kind, .. }) = modules::special_of(f.id) else {
            return;
        };
        match kind {
            SpecialKind::Unwind | SpecialKind::Walk if sandbox::may_be_sandboxed() => {
                scan_mapped(above & !7)
            }
            SpecialKind::Unwind | SpecialKind::Walk => {
                let interrupted = context::move_contexts(core::ptr::null_mut(), above, mask);
                for start in core::iter::once(above).chain(interrupted) {
                    if start != 0 {
                        restore::scan(start & !7, end_of_stack(start));
                    }
                }
            }
            SpecialKind::Return | SpecialKind::Unload => {
                restore::restore(above, (above as *const u64).read_volatile())
            }
            SpecialKind::Sigaction | SpecialKind::Cancel => handlers::registered(),
            SpecialKind::Protect => {
                guarded::protect(f.rdi, f.rsi, f.rdx, above..(*state::process()).stack_top);
            }
            _ if sandbox::enters_sandbox(kind, f) => sandbox::set_sandboxed(),
            _ if sandbox::sets_gs(kind, f) => sandbox::set_gs_taken(),
            SpecialKind::Madvise | SpecialKind::Syscall => sandbox::keep_text(kind, f),
            _ => {}
        }
    }
}

/// The end of the stack that `at` lies in, or a bound for it. A thread's control block lies at the
/// end of its stack.
fn end_of_stack(at: u64) -> u64 {
    // SAFETY: plain queries.
    let (alternate, first) = unsafe { (sys::alternate_stack(), (*state::process()).stack_top) };
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

/// The same without a system call: only what is surely mapped.
unsafe fn scan_mapped(mut at: u64) {
    // SAFETY: other threads' stacks are mapped up to the highest stack pointer that was seen.
    unsafe {
        let first = (*state::process()).stack_top;
        let end = if stacks::is_first(at) {
            first
        } else {
            let gs = sys::gs_base();
            if gs == 0 || (gs as *const u64).read() != sys::fs_base() {
                return;
            }
            (*shadow::hot_of(gs)).stack_top
        };
        if end > at + UNKNOWN_STACK_BYTES && end != first {
            return;
        }
        while at < end && !guarded::holds(at) {
            restore::restore(at, (at as *const u64).read_volatile());
            at += 8;
        }
    }
}
