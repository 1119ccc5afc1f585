//! Which calls must be seen so that others can be shown by what their descriptors lead to (`-y`),
//! or chosen by a path (`-P`).
//!
//! Given which calls are to be shown; gives those that must be recorded for it. Must not know who
//! follows descriptors, and which paths are asked for.

use crate::calls;
use crate::decode::types::{Call, Phase, Type};
use crate::syscalls;

/// Calls that say what descriptors lead to, or which processes have them, or in which folder one
/// is. Whoever follows descriptors learns from no others.
const TELLING: [&str; 42] = [
    "accept",
    "accept4",
    "bind",
    "chdir",
    "clone",
    "clone3",
    "close",
    "close_range",
    "connect",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "fanotify_init",
    "fchdir",
    "fcntl",
    "fork",
    "getpeername",
    "getsockname",
    "inotify_init",
    "inotify_init1",
    "io_uring_setup",
    "memfd_create",
    "open",
    "openat",
    "openat2",
    "perf_event_open",
    "pidfd_open",
    "pipe",
    "pipe2",
    "signalfd",
    "signalfd4",
    "socket",
    "socketpair",
    "timerfd_create",
    "userfaultfd",
    "vfork",
    // Who it executes has other descriptors.
    "execve",
];

/// True if the call may say what a descriptor leads to.
pub fn is_telling(name: &str) -> bool {
    TELLING.contains(&name)
}

/// True if a call may be about a path: it is given one, or a descriptor.
pub fn may_be_on_path(call: &Call) -> bool {
    let variants = call.variants.iter().flat_map(|variants| variants.arms);
    let of_variants = variants.flat_map(|variant| variant.parameters);
    let mut all = call.parameters.iter().chain(of_variants);
    all.any(|ty| {
        matches!(
            ty,
            Type::Fd | Type::DirFd | Type::At(Phase::Entry, Type::Path)
        )
    })
}

/// The arguments that are descriptors, as bits, of a call that is about no path but by them, and
/// that says nothing of what descriptors lead to; of others none.
pub fn on_descriptors_alone(call: &Call) -> u8 {
    let variants = call.variants.iter().flat_map(|variants| variants.arms);
    let of_variants = variants.map(|variant| variant.parameters);
    let all = || of_variants.clone().chain([call.parameters]);
    let is_path = |ty: &Type| matches!(ty, Type::At(Phase::Entry, Type::Path));
    if is_telling(call.name) || all().flatten().any(is_path) {
        return 0;
    }
    let is_one = |ty: &Type| matches!(ty, Type::Fd | Type::DirFd);
    let numbered = all().flat_map(|parameters| (0..8).zip(parameters));
    numbered
        .filter(|(_, ty)| is_one(ty))
        .fold(0, |mask, (i, _)| mask | 1 << i)
}

/// The names of the calls that must be recorded, with commas, if those of `is_shown` are shown; of
/// these, only such as are about a path, if `on_paths`.
pub fn needed(is_shown: impl Fn(u32) -> bool, on_paths: bool) -> String {
    let is_needed = |call: &&syscalls::SystemCall| {
        let may_be_shown = || {
            let description = calls::by_number(call.number);
            !on_paths || description.is_some_and(may_be_on_path)
        };
        is_telling(call.name) || is_shown(call.number) && may_be_shown()
    };
    let names = syscalls::all().iter().filter(is_needed);
    names.map(|call| call.name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed_of(shown: &str, on_paths: bool) -> Vec<String> {
        let all = needed(
            |number| {
                shown == "all" || syscalls::by_number(number).is_some_and(|call| call.name == shown)
            },
            on_paths,
        );
        all.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn calls_on_descriptors_alone_are_about_no_path_and_tell_nothing() {
        let of = |name: &str| on_descriptors_alone(calls::by_name(name).unwrap());
        assert_eq!((of("read"), of("mmap"), of("fstat")), (1, 16, 1));
        for other in [
            "openat",
            "newfstatat",
            "close",
            "dup",
            "fcntl",
            "getpid",
            "clone",
        ] {
            assert_eq!(of(other), 0, "{other}");
        }
    }

    #[test]
    fn who_tells_of_descriptors_is_always_needed() {
        let tell: Vec<_> = TELLING.iter().map(|name| (*name).to_owned()).collect();
        for name in TELLING {
            assert!(syscalls::by_name(name).is_some(), "{name}");
        }
        let mut found = needed_of("getpid", true);
        found.sort();
        let mut expected = tell;
        expected.sort();
        assert_eq!(found, expected);
        assert!(needed_of("getpid", false).contains(&"getpid".to_owned()));
    }

    #[test]
    fn a_call_without_a_path_or_a_descriptor_is_about_none() {
        let found = needed_of("all", true);
        let has = |name: &str| found.iter().any(|found| found == name);
        for name in [
            "read", "mmap", "statfs", "unlinkat", "rename", "fstat", "sendfile", "execveat",
        ] {
            assert!(has(name), "{name}");
        }
        for name in [
            "getpid",
            "brk",
            "munmap",
            "futex",
            "rt_sigaction",
            "clock_nanosleep",
            "wait4",
        ] {
            assert!(!has(name), "{name}");
        }
        assert_eq!(needed_of("all", false).len(), syscalls::all().len());
    }
}
