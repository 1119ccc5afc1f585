//! What can go wrong with the kernel's tracing, by cause, with what the user can do about it.

use std::path::{Path, PathBuf};

/// Why something cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Not root.
    #[error(
        "not permitted: tracing the kernel takes root; try `sudo sptrace ktrace` (`sptrace doctor` says what this machine permits)"
    )]
    NotRoot,
    /// The kernel has no tracefs, or does not let it be mounted.
    #[error(
        "this kernel does not offer tracefs: {0} (a container needs it mounted from outside; kernel lockdown in \
         confidentiality mode forbids it)"
    )]
    NoTracefs(std::io::Error),
    /// There is no such clock: times could not be compared with those of programs.
    #[error("the kernel's tracing has no x86-tsc clock: is the time stamp counter switched off?")]
    NoClock,
    /// Addresses of functions are hidden.
    #[error(
        "/proc/kallsyms shows no addresses: kernel.kptr_restrict hides them; `sysctl kernel.kptr_restrict=1` shows them to root"
    )]
    NoAddresses,
    /// No function is called so.
    #[error(
        "no function of the kernel that can be traced matches {0}; available_filter_functions in tracefs lists them"
    )]
    NoFunction(String),
    /// No function has this name.
    #[error("no function of the kernel is called {0}; /proc/kallsyms lists them")]
    NoSuchFunction(String),
    /// No block of a function lies there.
    #[error("no block holds {0}; `sptrace analyze --kernel FUNC` shows them")]
    NoBlock(String),
    /// The text of a function is not what it was.
    #[error(
        "somebody's probe stands in {0} (at {1:#x}), so its text cannot be read; remove it first (/sys/kernel/debug/kprobes/list shows all)"
    )]
    Hooked(String, u64),
    /// Too many blocks are asked for.
    #[error("this would hook {0} blocks, at most 2000 can be; name fewer functions")]
    TooManyBlocks(usize),
    /// The text of a function is not in the kernel's memory as we see it.
    #[error("the text of {0} cannot be read from /proc/kcore")]
    NoText(String),
    /// More functions are asked for than a machine bears.
    #[error(
        "this would trace {0} functions of the kernel; fewer levels (-D), or functions left out (-N), make them fewer"
    )]
    TooMany(usize),
    /// The kernel does not offer a level.
    #[error(
        "this kernel does not let its {what} be traced ({why}); `sptrace ktrace --check` says what it does, --level events works on all"
    )]
    NotOffered {
        /// Of what level.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Tasks have other numbers for us than for the kernel's tracing.
    #[error(
        "the kernel's tracing knows tasks by the numbers that they have outside of this pid namespace (a container?); run sptrace outside, with -p, or share the namespace (docker run --pid=host)"
    )]
    PidNamespace,
    /// Nothing of what was asked for is possible, and why.
    #[error("none of the values can be recorded: {0}")]
    Refused(String),
    /// Somebody else uses what there is only one of.
    #[error("{what}: somebody else uses the kernel's tracing, and is left alone; {remedy}")]
    InUse {
        /// How that is seen.
        what: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A file of tracefs refused what was asked of it.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The trace cannot be written.
    #[error("cannot write the trace: {0}")]
    Trace(#[from] sptrace_trace::TraceError),
    /// The command cannot be started.
    #[error("{0}")]
    Command(std::io::Error),
}

impl KernelError {
    /// Of a file.
    pub fn of(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
