//! What can go wrong with another process, by cause.

/// Cause of a failure; the caller says what it was trying to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceeError {
    /// A system call on our side or on the tracee's memory.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The command could not be executed; errno of execve.
    #[error("{0}")]
    Exec(std::io::Error),
    /// The embedded agent image is not what we built.
    #[error("the embedded agent image is broken: {0}")]
    Image(&'static str),
    /// The process has no place for the arena or the stub.
    #[error("no room in the process: {0}")]
    NoRoom(&'static str),
    /// What was to be done could change what it does; how.
    #[error("{0}")]
    LeftAlone(&'static str),
    /// The process ended meanwhile.
    #[error("the process ended")]
    Gone,
    /// It is not the program any more that was looked at. Said if it never is for long enough.
    #[error(
        "it executes another program again and again, none for long enough to attach to it; try again when one \
         stays, or trace it from its start (`sptrace run`)"
    )]
    Replaced,
    /// A thread waits for something that no signal interrupts.
    #[error("thread {0} cannot be stopped: it waits for a vfork child or for a disk")]
    Unstoppable(u32),
    /// ptrace is refused; why, and what would permit it.
    #[error("{0}")]
    NotPermitted(String),
    /// A signal ended the process before its program began.
    #[error("killed by signal {0}")]
    Killed(i32),
}

impl TraceeError {
    /// The last system error, with what was tried.
    pub fn last(what: &'static str) -> Self {
        Self::System {
            what,
            source: std::io::Error::last_os_error(),
        }
    }
}
