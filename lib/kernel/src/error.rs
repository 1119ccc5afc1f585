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
