//! Special functions: functions whose entry is intercepted, whoever calls them, because something
//! happens to the process as a whole there.
//!
//! Given the kind of a special function and the program's registers at its entry. The table
//! ([`deeds_of`]) says for each kind what must be done before the function runs: while the process
//! is recorded, which [`crate::events::process`] carries out, and when nothing is recorded in it
//! any more, which [`crate::events::dormant`] does. Must not know how the entry was intercepted.

use crate::events::entered::Entered;
use crate::events::{delivered, dormant, process};
use crate::memory::frame::Frame;
use crate::memory::thread::Hot;
use crate::plans::modules;
use sptrace_wire::plan::SpecialKind;

/// What must be done before a function runs, in a process that is recorded.
type Recording = fn(&Hot, &mut Entered);
/// What must be done when nothing is recorded any more.
type Dormant = fn(&mut Entered);

/// The table of special functions.
fn deeds_of(kind: SpecialKind) -> (Recording, Dormant) {
    use SpecialKind::*;
    match kind {
        Exec | ExecAt | ExecFd => (process::exec, dormant::nothing),
        Unwind => (process::unwind, dormant::walk),
        Walk => (process::walk, dormant::walk),
        Return => (process::give_back_one, dormant::give_back_one),
        Unload => (process::unload, dormant::give_back_one),
        Sigaction => (process::sigaction, dormant::handlers_change),
        Thread => (process::thread, dormant::nothing),
        Cancel => (process::handlers_change, dormant::handlers_change),
        Protect => (process::protect, dormant::protect),
        Madvise => (process::madvise, dormant::madvise),
        Clone => (process::clone, dormant::nothing),
        Prctl | Sandbox => (process::sandbox, dormant::sandbox),
        ArchPrctl => (process::gs, dormant::gs),
        Syscall => (process::syscall, dormant::syscall),
        // Hooks, and instructions, have routines of their own.
        Root | RootOpen | Mapped => (process::nothing, dormant::nothing),
        RootCall | SystemCall | SystemCallFar | SystemCallRefused => {
            (process::nothing, dormant::nothing)
        }
        Handler => (delivered::enter, dormant::nothing),
        Nothing => (process::nothing, dormant::nothing),
    }
}

fn entered(f: &mut Frame, mask: u64) -> Option<Entered<'_>> {
    let special = modules::special_of(f.id)?;
    Some(Entered { special, f, mask })
}

/// The special function of `f.id` is about to run in a process that is recorded.
pub fn enter(hot: &Hot, f: &mut Frame, mask: u64) {
    if let Some(mut entered) = entered(f, mask) {
        let (recording, _) = deeds_of(entered.special.kind);
        recording(hot, &mut entered);
    }
}

/// The same when nothing is recorded any more. `mask`: the thread's own signal mask; unless the
/// process may be in a sandbox, signals are blocked: a handler that walked meanwhile would find no
/// way through the agent.
#[inline(never)]
pub fn enter_dormant(f: &mut Frame, mask: u64) {
    if let Some(mut entered) = entered(f, mask) {
        let (_, dormant) = deeds_of(entered.special.kind);
        dormant(&mut entered);
    }
}
