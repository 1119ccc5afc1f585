//! What a program may forbid itself by a system call so that the agent can no longer work: system
//! calls (seccomp), rdtsc, writing text. Also a gs register that the program sets itself.
//!
//! Given the kind and the arguments of a special function that is about to run; says whether it
//! forbids any of that, and remembers it for the process. Must not know how a recording ends.

use crate::memory::frame::Frame;
use crate::memory::state;
use crate::memory::state::GS_TAKEN;
use core::sync::atomic::Ordering;
use sptrace_wire::plan::*;

pub(crate) const SYS_MADVISE: u64 = 28;
pub(crate) const SYS_PRCTL: u64 = 157;
const SYS_ARCH_PRCTL: u64 = 158;
pub(crate) const SYS_SECCOMP: u64 = 317;

/// prctl(2) calls after which rdtsc or our system calls may kill, or no text can be written:
/// PR_SET_SECCOMP, PR_SET_TSC with PR_TSC_SIGSEGV, PR_SET_MDWE.
fn forbids(option: u64, argument: u64) -> bool {
    option == 22 || option == 26 && argument == 2 || option == 65
}

/// True if the special function of this kind, with these arguments, is about to forbid either.
pub fn enters_sandbox(kind: SpecialKind, f: &Frame) -> bool {
    match (kind, f.rdi) {
        (SpecialKind::Prctl, option) => forbids(option, f.rsi),
        // The strict mode takes no flags: with some the kernel is asked whether it has the call
        // (libseccomp).
        (SpecialKind::Syscall, SYS_SECCOMP) => f.rsi == 1 || f.rsi == 0 && f.rdx == 0,
        (SpecialKind::Syscall, SYS_PRCTL) => forbids(f.rsi, f.rdx),
        (SpecialKind::Sandbox, _) => true,
        _ => false,
    }
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

/// madvise(2) that would put zeros in place of patched pages, which are anonymous, and does nothing
/// to those of a file.
fn drops_text(start: u64, bytes: u64, advice: u64) -> bool {
    const DONTNEED: u64 = 4;
    advice == DONTNEED
        && state::process().known_modules().iter().any(|m| {
            start >= m.start.get() & !4095
                && start.saturating_add(bytes) <= (m.end.get() + 4095) & !4095
        })
}

/// madvise(2) is about to run: patched text stays. MADV_NORMAL takes the place of the advice.
pub fn keep_text(kind: SpecialKind, f: &mut Frame) {
    match kind {
        SpecialKind::Madvise if drops_text(f.rdi, f.rsi, f.rdx) => f.rdx = 0,
        SpecialKind::Syscall if f.rdi == SYS_MADVISE && drops_text(f.rsi, f.rdx, f.rcx) => {
            f.rcx = 0;
        }
        _ => {}
    }
}

/// True if no system call may be made any more.
pub fn is_sandboxed() -> bool {
    state::process().sandboxed.load(Ordering::Relaxed) != 0
}

/// The same if nothing is recorded any more: modules that were not known before (the C library,
/// after an early end) may have entered a sandbox unseen.
pub fn may_be_sandboxed() -> bool {
    is_sandboxed() || !state::process().sees_sandbox.get()
}

/// True if the end came before the C library was known, to a process of one thread. It got all of
/// its return addresses back then, and no other thread was in the middle of a call: there is
/// nothing to find for a stack walker. Nor could it be looked for: mprotect(2) is not seen, so a
/// page of the stack may be one that must not be read.
pub fn ended_early() -> bool {
    let p = state::process();
    !is_sandboxed() && !p.sees_sandbox.get() && p.threads().nth(1).is_none()
}

/// From here on no system call is made.
pub fn set_sandboxed() {
    state::process().sandboxed.store(1, Ordering::Relaxed);
}

/// From here on gs is the program's.
pub fn set_gs_taken() {
    state::process()
        .dormant
        .fetch_or(GS_TAKEN, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::called_with;
    use std::vec::Vec;

    fn enters(kind: SpecialKind, arguments: [u64; 6]) -> bool {
        enters_sandbox(kind, &called_with(arguments))
    }

    #[test]
    fn prctl_enters_a_sandbox_only_by_three_options() {
        let entering: Vec<u64> = (0..80)
            .filter(|option| enters(SpecialKind::Prctl, [*option, 2, 0, 0, 0, 0]))
            .collect();
        assert_eq!(entering, [22, 26, 65]);
        // PR_TSC_ENABLE takes nothing away.
        assert!(!enters(SpecialKind::Prctl, [26, 1, 0, 0, 0, 0]));
    }

    #[test]
    fn a_raw_system_call_enters_a_sandbox_as_its_function_does() {
        let call = |arguments| enters(SpecialKind::Syscall, arguments);
        assert!(call([SYS_PRCTL, 22, 2, 0, 0, 0]));
        assert!(!call([SYS_PRCTL, 15, 2, 0, 0, 0]));
        assert!(call([SYS_SECCOMP, 1, 0, 0, 0, 0]));
        assert!(call([SYS_SECCOMP, 0, 0, 0, 0, 0]));
        // Libseccomp asks so whether the kernel has the call.
        assert!(!call([SYS_SECCOMP, 0, 1, 0, 0, 0]));
        assert!(!call([SYS_SECCOMP, 2, 0, 0, 0, 0]));
        assert!(!call([SYS_MADVISE, 22, 2, 0, 0, 0]));
    }

    #[test]
    fn libseccomps_load_enters_a_sandbox_whatever_it_is_given() {
        assert!(enters(SpecialKind::Sandbox, [0; 6]));
        assert!(!enters(SpecialKind::Walk, [22, 2, 0, 0, 0, 0]));
    }

    #[test]
    fn gs_is_set_by_one_code_of_arch_prctl() {
        let sets = |kind, arguments| sets_gs(kind, &called_with(arguments));
        assert!(sets(SpecialKind::ArchPrctl, [0x1001, 0, 0, 0, 0, 0]));
        // ARCH_SET_FS.
        assert!(!sets(SpecialKind::ArchPrctl, [0x1002, 0, 0, 0, 0, 0]));
        assert!(sets(
            SpecialKind::Syscall,
            [SYS_ARCH_PRCTL, 0x1001, 0, 0, 0, 0]
        ));
        assert!(!sets(SpecialKind::Syscall, [SYS_PRCTL, 0x1001, 0, 0, 0, 0]));
        assert!(!sets(SpecialKind::Prctl, [0x1001, 0, 0, 0, 0, 0]));
    }
}
