//! Whether a running process can be attached to: looked up in /proc before anything is touched.
//!
//! Gives the reason why not in one line, with what the user can do about it. Says nothing of
//! processes that cannot be told from ones that can: ptrace itself gives the last word.

use crate::arena::Arena;
use crate::maps;
use crate::memory;
use crate::proc::{self, Stat, Status, files};
use crate::seccomp;

/// Why a process cannot be attached to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

fn unfit<T>(why: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit(why.into()))
}

/// Looks for reasons not to attach to `pid`.
///
/// # Errors
/// The first that is found.
pub fn check(pid: u32) -> Result<(), Unfit> {
    let Ok(status) = Status::of(pid) else {
        return unfit("no such process (`ps -e` lists them)");
    };
    let thread_group = status.thread_group().unwrap_or(0);
    if thread_group != pid {
        return unfit(format!(
            "it is a thread of process {thread_group}; attach to that"
        ));
    }
    if status.has_ended() {
        return unfit("it has ended already (a zombie, which its parent has not waited for)");
    }
    if Stat::of(pid).is_ok_and(|stat| stat.is_kernel()) {
        return unfit("it is a kernel thread, which has no program to trace");
    }
    if is_ours(pid) {
        return unfit("sptrace runs in it or under it, and would wait for itself");
    }
    is_free(&status)?;
    may_look(pid, &status)?;
    if let Some(other) = shares_memory(pid) {
        return unfit(format!(
            "it shares its memory with process {other}, which cannot be stopped with it"
        ));
    }
    is_64_bit(pid)
}

/// Looks for what may have come since [`check`] found nothing.
///
/// # Errors
/// As there.
pub fn check_again(pid: u32) -> Result<(), Unfit> {
    match Status::of(pid) {
        Ok(status) => is_free(&status),
        Err(_) => unfit("it has just ended"),
    }
}

/// Nobody traces it, it is in no sandbox where nothing is permitted, and its return addresses may
/// be replaced.
fn is_free(status: &Status) -> Result<(), Unfit> {
    if status.has_shadow_stack() {
        return unfit("it runs with a shadow stack (CET), which forbids patched return addresses");
    }
    if let Some(tracer) = status.tracer() {
        let name = proc::thread_name(tracer, tracer);
        return unfit(format!(
            "it is traced already, by {name} (pid {tracer}); end that first"
        ));
    }
    // What filters permit is looked at when its threads are stopped.
    if seccomp::mode_of(status) == seccomp::Mode::Strict {
        return unfit(format!(
            "{}; `sptrace run` can trace it up to that point",
            seccomp::Refusal::Strict
        ));
    }
    Ok(())
}

/// True if the process catches SIGPROF, as profilers inside of programs do: their handlers walk
/// stacks at any moment.
pub fn is_sampled_within(pid: u32) -> bool {
    Status::of(pid).is_ok_and(|status| status.catches(libc::SIGPROF))
}

/// True if there is no such process, or only what its parent has not waited for.
pub fn has_ended(pid: u32) -> bool {
    Status::of(pid).map_or(true, |status| status.has_ended())
}

/// The process itself, or one of those that wait for it.
fn is_ours(pid: u32) -> bool {
    let mut at = std::process::id();
    while at > 1 {
        if at == pid {
            return true;
        }
        at = parent_of(at).unwrap_or(0);
    }
    pid == at
}

/// Another process that uses the same memory (clone(2) with CLONE_VM alone). A vfork child is over
/// soon.
fn shares_memory(pid: u32) -> Option<u32> {
    proc::processes().into_iter().find(|&other| {
        // It may have come to its exec meanwhile.
        let same = || same_memory(pid, other);
        // One that is about to end has no memory, as all threads of the kernel.
        other != pid && same() && !is_parent_waiting(pid) && same() && files::has_program(pid)
    })
}

fn parent_of(pid: u32) -> Option<u32> {
    Status::of(pid).ok()?.parent()
}

fn same_memory(pid: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0, 0) == 0 }
}

/// True if the process waits for a vfork child.
fn is_parent_waiting(pid: u32) -> bool {
    let waits = |tid: &u32| Stat::of_thread(pid, *tid).is_ok_and(|stat| stat.state == 'D');
    proc::threads(pid).iter().any(waits)
}

/// True if the process uses the memory of its parent: what is done to one is done to both.
pub fn is_vfork_child(pid: u32) -> bool {
    parent_of(pid).is_some_and(|parent| same_memory(pid, parent))
}

fn may_look(pid: u32, status: &Status) -> Result<(), Unfit> {
    let Err(e) = memory::look_at(pid) else {
        return Ok(());
    };
    if e.raw_os_error() == Some(libc::ENOENT) {
        return unfit("it has just ended");
    }
    let own = Status::of(std::process::id()).ok();
    let same_user = own.and_then(|own| own.user()) == status.user();
    let why = why_not_permitted(pid, same_user);
    unfit(format!(
        "{why} (opening /proc/{pid}/mem: {e}; `sptrace doctor` says what is permitted here)"
    ))
}

/// The reason why ptrace is not permitted, and the command that permits it.
pub fn why_not_permitted(pid: u32, same_user: bool) -> String {
    if files::program_name(pid).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return "it has just ended".to_owned();
    }
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = yama.ok().and_then(|s| s.trim().parse::<u32>().ok());
    let sudo = format!("`sudo sptrace attach -p {pid}`");
    match scope {
        _ if !same_user => format!("not permitted: it belongs to another user; try {sudo}"),
        Some(3) => {
            "not permitted: kernel.yama.ptrace_scope is 3, which stays so until the machine is \
                    started anew"
                .to_owned()
        }
        Some(s @ 1..) => format!(
            "not permitted: kernel.yama.ptrace_scope is {s}; `sudo sysctl kernel.yama.ptrace_scope=0` \
             permits it, or {sudo}"
        ),
        _ => format!(
            "not permitted: it runs with privileges of its own, or CAP_SYS_PTRACE is missing; try {sudo}"
        ),
    }
}

fn is_64_bit(pid: u32) -> Result<(), Unfit> {
    match files::is_64_bit(pid) {
        Ok(true) => Ok(()),
        Ok(false) => unfit("it is not a 64-bit x86 program"),
        Err(_) if has_ended(pid) => unfit("it has just ended"),
        Err(_) => unfit("its program cannot be read (/proc/PID/exe)"),
    }
}

/// Processes into which this arena is mapped.
pub fn holders(arena: &Arena) -> Vec<u32> {
    let own = std::process::id();
    let others = proc::processes().into_iter();
    others
        .filter(|pid| *pid != own && files::has_program(*pid))
        .filter(|pid| holds(*pid, arena))
        .collect()
}

/// True if this arena is mapped into the process.
pub fn holds(pid: u32, arena: &Arena) -> bool {
    let inode = arena.inode();
    maps::read(pid).is_ok_and(|maps| {
        maps::is_traced(&maps)
            && maps
                .iter()
                .any(|m| m.start == crate::arena::ARENA_AVMA && m.file.1 == inode)
    })
}
