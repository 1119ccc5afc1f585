//! Which calls a user wants: `-e trace=` as strace has it.
//!
//! Given a text as `openat,%network` or `!%file`, and for `/expression/` a matcher of the caller,
//! so that this crate needs none; gives the set of numbers.
//!
//! Must not know: what is done with the calls.

use super::by_number;
use crate::decode::types::{Returns, Type};
use crate::syscalls;

/// A set of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// By number: whether it is in the set.
    wanted: Vec<bool>,
}

/// Why a text is no selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionError {
    /// The part that is wrong.
    pub part: String,
    /// Where it begins in the text, in bytes.
    pub at: usize,
    /// What is wrong with it.
    pub cause: String,
}

/// Says whether a regular expression matches a name; an error is what is wrong with it.
pub type Matcher<'a> = &'a dyn Fn(&str, &str) -> Result<bool, String>;

const MEMORY: &str = "break brk get_mempolicy madvise mbind migrate_pages mincore mlock mlock2 \
    mlockall mmap move_pages mprotect mremap msync munlock munlockall munmap pkey_mprotect \
    process_madvise remap_file_pages set_mempolicy set_mempolicy_home_node shmat shmdt";
const PROCESS: &str = "clone clone3 execve execveat exit exit_group fork kill pidfd_open \
    pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo tgkill tkill unshare vfork wait4 waitid";
const SIGNAL: &str = "kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask \
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack \
    signalfd signalfd4 tgkill tkill";
const IPC: &str =
    "msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget";
const CREDS: &str = "capget capset getegid geteuid getgid getgroups getresgid getresuid getuid prctl \
    setfsgid setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid";
const CLOCK: &str = "adjtimex clock_adjtime clock_getres clock_gettime clock_settime gettimeofday \
    settimeofday time";
const NETWORK: &str = "accept accept4 bind connect getpeername getpmsg getsockname getsockopt listen \
    putpmsg recvfrom recvmmsg recvmsg sendfile sendmmsg sendmsg sendto setsockopt shutdown socket \
    socketpair";
/// Sets that strace knows without the % also, as it did before there was one.
const PLAIN_SETS: [&str; 7] = [
    "file", "process", "network", "signal", "ipc", "desc", "memory",
];
const PURE: &str = "getegid geteuid getgid getpgrp getpid getppid gettid getuid";

impl Selection {
    /// Reads a selection.
    ///
    /// # Errors
    /// A name, set or expression is none; says where.
    pub fn parse(text: &str, matches: Matcher<'_>) -> Result<Self, SelectionError> {
        let most = syscalls::all()
            .iter()
            .map(|call| call.number as usize)
            .max()
            .unwrap_or(0);
        let (inverse, list) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut wanted = vec![false; most + 1];
        let mut at = usize::from(inverse);
        for part in list.split(',') {
            let error = |cause: String| SelectionError {
                part: part.to_owned(),
                at,
                cause,
            };
            // Between two commas, as strace has it: nothing, beside something.
            let mut any = part.is_empty() && list.len() > 1;
            for call in syscalls::all() {
                if is_in(part, call, matches).map_err(error)? {
                    any = true;
                    if let Some(place) = wanted.get_mut(call.number as usize) {
                        *place = true;
                    }
                }
            }
            if !any && part != "none" && !part.starts_with(['?', '/']) {
                return Err(error(format!("there is no system call or set {part:?}")));
            }
            at += part.len() + 1;
        }
        for place in wanted.iter_mut().filter(|_| inverse) {
            *place = !*place;
        }
        Ok(Self { wanted })
    }

    /// Whether a call is in the set.
    pub fn contains(&self, number: u32) -> bool {
        self.wanted.get(number as usize).copied().unwrap_or(false)
    }
}

fn is_in(part: &str, call: &syscalls::SystemCall, matches: Matcher<'_>) -> Result<bool, String> {
    if let Some(expression) = part.strip_prefix('/') {
        return matches(
            expression.strip_suffix('/').unwrap_or(expression),
            call.name,
        );
    }
    let part = part.strip_prefix('?').unwrap_or(part);
    let listed = |names: &str| names.split_whitespace().any(|name| name == call.name);
    let plain = PLAIN_SETS.contains(&part).then_some(part);
    let Some(set) = part.strip_prefix('%').or(plain) else {
        return Ok(part == "all" || part == call.name || part.parse() == Ok(call.number));
    };
    Ok(match set {
        "file" => has(call, |ty| matches!(ty, Type::At(_, Type::Path))) || call.name == "getcwd",
        "desc" => {
            let fd = has(call, |ty| matches!(ty, Type::Fd | Type::DirFd));
            fd || by_number(call.number).is_some_and(|c| matches!(c.returns, Returns::Fd))
        }
        "memory" => listed(MEMORY),
        "process" => listed(PROCESS),
        "signal" => listed(SIGNAL),
        "ipc" => listed(IPC),
        "creds" => listed(CREDS),
        "clock" => listed(CLOCK),
        "network" | "net" => listed(NETWORK),
        "pure" => listed(PURE),
        "stat" => call.name == "stat",
        "lstat" => call.name == "lstat",
        "fstat" => listed_in(call.name, "fstat fstatat newfstatat"),
        "%stat" => listed_in(call.name, "stat lstat fstat newfstatat statx"),
        "statfs" => call.name == "statfs",
        "fstatfs" => call.name == "fstatfs",
        "%statfs" => listed_in(call.name, "statfs fstatfs ustat"),
        _ => return Err(format!("there is no set %{set}")),
    })
}

fn listed_in(name: &str, names: &str) -> bool {
    names.split_whitespace().any(|other| other == name)
}

fn has(call: &syscalls::SystemCall, is: impl Fn(&Type) -> bool) -> bool {
    by_number(call.number).is_some_and(|call| call.parameters.iter().any(is))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<&'static str>, SelectionError> {
        let starts = |expression: &str, name: &str| Ok(name.starts_with(expression));
        let selection = Selection::parse(text, &starts)?;
        let all = syscalls::all()
            .iter()
            .filter(|call| selection.contains(call.number));
        Ok(all.map(|call| call.name).collect())
    }

    #[test]
    fn names_and_sets_are_found() {
        assert_eq!(names("read,write").unwrap(), ["read", "write"]);
        assert!(names("%file").unwrap().contains(&"openat"));
        assert!(!names("%file").unwrap().contains(&"read"));
        assert!(names("%desc").unwrap().contains(&"epoll_create1"));
        assert!(!names("!%desc").unwrap().contains(&"read"));
        assert_eq!(names("/openat").unwrap(), ["openat", "openat2"]);
        assert_eq!(
            names("%%stat").unwrap(),
            ["stat", "fstat", "lstat", "newfstatat", "statx"]
        );
        assert_eq!(names("none").unwrap().len(), 0);
        assert_eq!(names("ipc").unwrap(), names("%ipc").unwrap());
        assert_eq!(names(",read,").unwrap(), ["read"]);
    }

    #[test]
    fn a_wrong_name_is_told_with_its_place() {
        let error = names("read,raed").unwrap_err();
        assert_eq!((error.at, error.part.as_str()), (5, "raed"));
        assert!(names("%fiel").is_err());
        assert!(names("").is_err() && names("fiel").is_err());
    }
}
