//! Whether a seccomp filter permits what the agent does in a process.
//!
//! Given a filter that a process is about to install, or a stopped process that is under some;
//! gives the first system call of the agent's that would be refused, or would end the process. The
//! list of those calls stands here: whoever has the agent make another one adds it.
//!
//! Must not know: when the agent makes its calls, and what follows from a refusal.

mod bpf;

use crate::error::TraceeError;
use crate::proc::Status;
use bpf::{Action, Call, Instruction};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Instructions of one filter, at most (BPF_MAXINSNS).
const INSTRUCTIONS_MAX: usize = 4096;

/// A system call that the agent makes.
struct Need {
    name: &'static str,
    call: Call,
    /// The agent has another way if it fails.
    may_fail: bool,
}

const ANY: Option<u64> = None;

const fn need(name: &'static str, number: i64, arguments: [Option<u64>; 6]) -> Need {
    Need {
        name,
        call: Call {
            number: number as u32,
            arguments,
        },
        may_fail: false,
    }
}

const fn wish(name: &'static str, number: i64, arguments: [Option<u64>; 6]) -> Need {
    Need {
        may_fail: true,
        ..need(name, number, arguments)
    }
}

const fn mmap(protection: u64, flags: u64, fd: Option<u64>) -> Need {
    let arguments = [ANY, ANY, Some(protection), Some(flags), fd, ANY];
    need("mmap", libc::SYS_mmap, arguments)
}

const fn protect(protection: u64) -> Need {
    let name = match protection & 4 {
        0 => "mprotect",
        _ => "mprotect with PROT_EXEC",
    };
    let arguments = [ANY, ANY, Some(protection), ANY, ANY, ANY];
    need(name, libc::SYS_mprotect, arguments)
}

const fn advise(advice: u64) -> Need {
    let arguments = [ANY, ANY, Some(advice), ANY, ANY, ANY];
    need("madvise", libc::SYS_madvise, arguments)
}

const fn remap(flags: u64) -> Need {
    let arguments = [ANY, ANY, ANY, Some(flags), ANY, ANY];
    need("mremap", libc::SYS_mremap, arguments)
}

const NO_FD: Option<u64> = Some(u64::MAX);
const NONE: [Option<u64>; 6] = [ANY; 6];

/// All of them: `lib/agent/src/memory/sys.rs`, the code that leads there ([`crate::inside`]), and
/// the way back. Not userfaultfd(2), which a gate needs, and not readlink(2), by which it is found
/// out what descriptors lead to: processes under a filter get none of these.
static NEEDS: [Need; 37] = [
    mmap(3, 0x4022, NO_FD),
    mmap(3, 0x21, NO_FD),
    mmap(0, 0x10_4022, NO_FD),
    mmap(3, 0x10_4001, ANY),
    mmap(1, 0x10_0002, ANY),
    mmap(3, 0x10_0002, ANY),
    mmap(5, 0x10_0002, ANY),
    protect(1),
    protect(3),
    protect(5),
    remap(1),
    remap(3),
    advise(10),
    advise(11),
    advise(18),
    need("munmap", libc::SYS_munmap, NONE),
    need("rt_sigprocmask", libc::SYS_rt_sigprocmask, NONE),
    need("rt_sigaction", libc::SYS_rt_sigaction, NONE),
    need("rt_sigreturn", libc::SYS_rt_sigreturn, NONE),
    need("futex", libc::SYS_futex, [ANY, Some(0), ANY, ANY, ANY, ANY]),
    need("futex", libc::SYS_futex, [ANY, Some(1), ANY, ANY, ANY, ANY]),
    need("getpid", libc::SYS_getpid, NONE),
    need("gettid", libc::SYS_gettid, NONE),
    need("getppid", libc::SYS_getppid, NONE),
    need("process_vm_readv", libc::SYS_process_vm_readv, NONE),
    wish(
        "madvise",
        libc::SYS_madvise,
        [ANY, ANY, Some(4), ANY, ANY, ANY],
    ),
    need("close", libc::SYS_close, NONE),
    wish("open", libc::SYS_open, NONE),
    wish("fstatfs", libc::SYS_fstatfs, NONE),
    wish("pwrite64", libc::SYS_pwrite64, NONE),
    wish(
        "socketpair",
        libc::SYS_socketpair,
        [Some(1), Some(0x80801), Some(0), ANY, ANY, ANY],
    ),
    wish(
        "recvmsg",
        libc::SYS_recvmsg,
        [ANY, ANY, Some(0x4000_0040), ANY, ANY, ANY],
    ),
    wish("sigaltstack", libc::SYS_sigaltstack, NONE),
    wish("sched_yield", libc::SYS_sched_yield, NONE),
    wish("tkill", libc::SYS_tkill, [ANY, Some(0), ANY, ANY, ANY, ANY]),
    wish(
        "unshare",
        libc::SYS_unshare,
        [Some(0x100), ANY, ANY, ANY, ANY, ANY],
    ),
    wish(
        "prctl",
        libc::SYS_prctl,
        [Some(66), Some(0), Some(0), Some(0), Some(0), ANY],
    ),
];

/// The first of the agent's calls that this filter does not permit.
fn forbidden(filter: &[Instruction]) -> Option<&'static str> {
    let is_refused = |need: &&Need| {
        let may = |action: &Action| match action {
            Action::Allow => true,
            Action::Fail(errno) => need.may_fail && *errno != 0,
            Action::Interfere => false,
        };
        !bpf::actions(filter, &need.call).is_some_and(|found| found.iter().all(may))
    };
    NEEDS.iter().find(is_refused).map(|need| need.name)
}

/// Permits a filter that a process is about to install everything that the agent does? `program` is
/// the address of its struct sock_fprog in the process, whose memory is given. What lies at no
/// address is not installed, so it permits everything: libseccomp asks so which flags the kernel
/// knows.
pub fn permits(memory: &File, program: u64) -> bool {
    let mut head = [0; 16];
    if memory.read_exact_at(&mut head, program).is_err() {
        return true;
    }
    let (count, at) = head.split_at(8);
    let count = usize::from(u16::from_le_bytes([count[0], count[1]]));
    let at = u64::from_le_bytes(std::array::from_fn(|i| at[i]));
    if count > INSTRUCTIONS_MAX {
        return true;
    }
    let mut bytes = vec![0; count * size_of::<Instruction>()];
    if memory.read_exact_at(&mut bytes, at).is_err() {
        return true;
    }
    let instruction = |b: &[u8]| Instruction {
        code: u16::from_le_bytes([b[0], b[1]]),
        jt: b[2],
        jf: b[3],
        k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
    };
    let filter: Vec<_> = bytes.chunks_exact(8).map(instruction).collect();
    forbidden(&filter).is_none()
}

/// Looks whether all filters of a thread that is stopped and held by the caller's thread permit
/// what the agent does. One without a filter does.
///
/// # Errors
/// The first call that is not permitted, or why the filters cannot be read.
pub fn check(tid: u32) -> Result<(), Refusal> {
    match mode(tid) {
        Mode::None => return Ok(()),
        Mode::Strict => return Err(Refusal::Strict),
        Mode::Filter => {}
    }
    for index in 0.. {
        let Some(filter) = installed(tid, index)? else {
            break;
        };
        if let Some(call) = forbidden(&filter) {
            return Err(Refusal::Forbidden(call));
        }
    }
    Ok(())
}

/// Why the agent may not work in a process.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It may read, write and end, no more.
    #[error("it is in a seccomp sandbox that permits no system call of the agent's")]
    Strict,
    /// One of the calls is not permitted.
    #[error("it is in a seccomp sandbox, whose filter does not permit {0}, which the agent needs")]
    Forbidden(&'static str),
    /// We may not look at filters.
    #[error(
        "it is in a seccomp sandbox, where the agent's system calls could end it: what its filter permits \
         is shown to root alone, and only outside of any sandbox; `sptrace run` can trace it up to that point"
    )]
    Hidden,
    /// The kernel does not show filters.
    #[error(
        "it is in a seccomp sandbox, where the agent's system calls could end it: this kernel does not show \
         what its filter permits (CONFIG_CHECKPOINT_RESTORE); `sptrace run` can trace it up to that point"
    )]
    Unknown,
    /// The task is gone.
    #[error("the process ended")]
    Gone,
}

impl From<Refusal> for TraceeError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Gone => Self::Gone,
            other => Self::NotPermitted(other.to_string()),
        }
    }
}

/// What /proc/PID/status says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is in no sandbox.
    None,
    /// It may read, write and end.
    Strict,
    /// Filters decide.
    Filter,
}

/// In which mode a task is; one that is gone is in none.
pub fn mode(tid: u32) -> Mode {
    Status::of(tid).map_or(Mode::None, |status| mode_of(&status))
}

/// True if no thread of a process is in any mode.
pub fn is_free(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut numbers = tasks.into_iter().flatten().map(|task| {
        let name = task.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let is_known = std::path::Path::new(&format!("/proc/{pid}")).exists();
    is_known && numbers.all(|tid| tid.is_some_and(|tid| mode(tid) == Mode::None))
}

/// In which mode a task was.
pub fn mode_of(status: &Status) -> Mode {
    match status.seccomp_mode() {
        Some(libc::SECCOMP_MODE_STRICT) => Mode::Strict,
        Some(libc::SECCOMP_MODE_FILTER) => Mode::Filter,
        _ => Mode::None,
    }
}

/// One filter of a stopped task, the latest first; `None` behind the last.
fn installed(tid: u32, index: usize) -> Result<Option<Vec<Instruction>>, Refusal> {
    const GET_FILTER: libc::c_uint = 0x420c;
    let empty = Instruction {
        code: 0,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let mut filter = vec![empty; INSTRUCTIONS_MAX];
    // SAFETY: no filter has more instructions than there is room for.
    let count = unsafe { libc::ptrace(GET_FILTER, tid, index, filter.as_mut_ptr()) };
    if count >= 0 {
        filter.truncate(count as usize);
        return Ok(Some(filter));
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT) if index > 0 => Ok(None),
        Some(libc::EACCES) => Err(Refusal::Hidden),
        Some(libc::ESRCH) => Err(Refusal::Gone),
        _ => Err(Refusal::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(code: u16, k: u32) -> Instruction {
        Instruction {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    /// Allows all but one call, which ends as `action` says.
    fn all_but(number: i64, action: u32) -> Vec<Instruction> {
        let is_it = Instruction {
            code: 0x15,
            jt: 0,
            jf: 1,
            k: number as u32,
        };
        let allow = statement(0x06, libc::SECCOMP_RET_ALLOW);
        vec![statement(0x20, 0), is_it, statement(0x06, action), allow]
    }

    #[test]
    fn a_filter_of_what_the_agent_does_not_do_is_permitted() {
        let killed = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(forbidden(&all_but(libc::SYS_ptrace, killed)), None);
        assert_eq!(forbidden(&[statement(0x06, libc::SECCOMP_RET_ALLOW)]), None);
    }

    #[test]
    fn a_call_that_is_needed_is_named() {
        let failed = libc::SECCOMP_RET_ERRNO | 1;
        assert_eq!(
            forbidden(&all_but(libc::SYS_mremap, failed)),
            Some("mremap")
        );
        let killed = [statement(0x06, libc::SECCOMP_RET_KILL_PROCESS)];
        assert_eq!(forbidden(&killed), Some("mmap"));
    }

    #[test]
    fn what_may_fail_must_fail_openly() {
        let with = |action| forbidden(&all_but(libc::SYS_unshare, action));
        assert_eq!(with(libc::SECCOMP_RET_ERRNO | 1), None);
        // It would look as if the thread were the only one.
        assert_eq!(with(libc::SECCOMP_RET_ERRNO), Some("unshare"));
        assert_eq!(with(libc::SECCOMP_RET_TRAP), Some("unshare"));
        assert_eq!(with(libc::SECCOMP_RET_USER_NOTIF), Some("unshare"));
    }
}
