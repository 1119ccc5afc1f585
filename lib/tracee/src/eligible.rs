//! Whether a running process can be attached to: looked up in /proc before anything is touched.
//!
//! Gives the reason why not in one line, with what the user can do about it. Says nothing of
//! processes that cannot be told from ones that can: ptrace itself gives the last word.

use crate::arena::Arena;
use crate::maps;
use crate::seccomp;
use crate::threads::{state, threads_of};
use std::path::Path;

/// Why a process cannot be attached to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

fn unfit<T>(why: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit(why.into()))
}

/// What /proc/PID/status says.
struct Status(String);

impl Status {
    fn of(pid: u32) -> Option<Self> {
        std::fs::read(format!("/proc/{pid}/status"))
            .ok()
            .map(|s| Self(String::from_utf8_lossy(&s).into_owned()))
    }

    fn field(&self, name: &str) -> &str {
        let line = self
            .0
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("").trim()
    }
}

/// Looks for reasons not to attach to `pid`.
///
/// # Errors
/// The first that is found.
pub fn check(pid: u32) -> Result<(), Unfit> {
    let Some(status) = Status::of(pid) else {
        return unfit("no such process (`ps -e` lists them)");
    };
    let thread_group = status.field("Tgid");
    if thread_group != pid.to_string() {
        return unfit(format!(
            "it is a thread of process {thread_group}; attach to that"
        ));
    }
    if status.field("State").starts_with(['Z', 'X']) {
        return unfit("it has ended already (a zombie, which its parent has not waited for)");
    }
    let is_kernel = |stat: &str| {
        const PF_KTHREAD: u64 = 0x0020_0000;
        let flags = stat
            .rsplit_once(") ")
            .and_then(|r| r.1.split(' ').nth(6)?.parse().ok());
        flags.is_some_and(|f: u64| f & PF_KTHREAD != 0)
    };
    if std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| is_kernel(&s)) {
        return unfit("it is a kernel thread, which has no program to trace");
    }
    if is_ours(pid) {
        return unfit("sptrace runs in it or under it, and would wait for itself");
    }
    is_free(&status)?;
    if status.field("x86_Thread_features").contains("shstk") {
        return unfit("it runs with a shadow stack (CET), which forbids patched return addresses");
    }
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
        Some(status) => is_free(&status),
        None => unfit("it has just ended"),
    }
}

/// Nobody traces it, and it is in no sandbox where nothing is permitted.
fn is_free(status: &Status) -> Result<(), Unfit> {
    let tracer = status.field("TracerPid");
    if !matches!(tracer, "0" | "") {
        let name = std::fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return unfit(format!(
            "it is traced already, by {} (pid {tracer}); end that first",
            name.trim_end()
        ));
    }
    // What filters permit is looked at when its threads are stopped.
    if status.field("Seccomp") == "1" {
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
    let caught = |status: Status| u64::from_str_radix(status.field("SigCgt"), 16).ok();
    let caught = Status::of(pid).and_then(caught).unwrap_or(0);
    caught & 1 << (libc::SIGPROF - 1) != 0
}

/// True if there is no such process, or only what its parent has not waited for.
pub fn has_ended(pid: u32) -> bool {
    Status::of(pid).is_none_or(|s| s.field("State").starts_with(['Z', 'X']))
}

/// The process itself, or one of those that wait for it.
fn is_ours(pid: u32) -> bool {
    let mut at = std::process::id();
    while at > 1 {
        if at == pid {
            return true;
        }
        let parent = Status::of(at).and_then(|s| s.field("PPid").parse().ok());
        at = parent.unwrap_or(0);
    }
    pid == at
}

/// Another process that uses the same memory (clone(2) with CLONE_VM alone). A vfork child is over
/// soon.
fn shares_memory(pid: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut others = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    // One that is about to end has none, as all threads of the kernel.
    let has_memory = || Path::new(&format!("/proc/{pid}/exe")).exists();
    others.find(|&other| {
        // It may have come to its exec meanwhile.
        let same = || same_memory(pid, other);
        other != pid && same() && !is_parent_waiting(pid) && same() && has_memory()
    })
}

fn same_memory(pid: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0, 0) == 0 }
}

/// True if the process waits for a vfork child.
fn is_parent_waiting(pid: u32) -> bool {
    let tids = threads_of(pid).unwrap_or_default();
    tids.iter().any(|tid| state(pid, *tid) == Some('D'))
}

/// True if the process uses the memory of its parent: what is done to one is done to both.
pub fn is_vfork_child(pid: u32) -> bool {
    let parent = Status::of(pid).and_then(|s| s.field("PPid").parse().ok());
    parent.is_some_and(|parent| same_memory(pid, parent))
}

fn may_look(pid: u32, status: &Status) -> Result<(), Unfit> {
    let Err(e) = std::fs::File::open(format!("/proc/{pid}/mem")) else {
        return Ok(());
    };
    if e.raw_os_error() == Some(libc::ENOENT) {
        return unfit("it has just ended");
    }
    let uid = |s: &Status| s.field("Uid").split_whitespace().next().map(str::to_owned);
    let own = Status::of(std::process::id());
    let same_user = own.as_ref().and_then(uid) == uid(status);
    let why = why_not_permitted(pid, same_user);
    unfit(format!(
        "{why} (opening /proc/{pid}/mem: {e}; `sptrace doctor` says what is permitted here)"
    ))
}

/// The reason why ptrace is not permitted, and the command that permits it.
pub fn why_not_permitted(pid: u32, same_user: bool) -> String {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    if program.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
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
    use std::io::Read;
    let mut head = [0u8; 20];
    let read = std::fs::File::open(format!("/proc/{pid}/exe"))
        .and_then(|mut exe| exe.read_exact(&mut head));
    if read.is_err() {
        if has_ended(pid) {
            return unfit("it has just ended");
        }
        return unfit("its program cannot be read (/proc/PID/exe)");
    }
    if head[4] != 2 || head[18] != 62 {
        return unfit("it is not a 64-bit x86 program");
    }
    Ok(())
}

/// Their numbers.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// Processes into which this arena is mapped.
pub fn holders(arena: &Arena) -> Vec<u32> {
    let own = std::process::id();
    processes()
        .filter(|pid| *pid != own && Path::new(&format!("/proc/{pid}/exe")).exists())
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
