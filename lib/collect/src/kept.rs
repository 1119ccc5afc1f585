//! The command in the process that was started, which is not our child: when it has ended, and how.
//!
//! Given the process; gives a descriptor to wait for and its wait status. Without a process nothing
//! is waited for.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use sptrace_tracee::keep::Kept;
use sptrace_tracee::{pidfd, proc};

/// See the file's header.
#[derive(Default)]
pub struct KeptCommand(Option<(Kept, Option<OwnedFd>)>);

impl KeptCommand {
    /// Watches it.
    pub fn new(kept: Kept) -> Self {
        Self(Some((kept, pidfd::open(kept.command))))
    }

    /// For the launch.
    pub fn process(&self) -> Option<Kept> {
        self.0.as_ref().map(|(kept, _)| *kept)
    }

    /// Readable once it has ended; -1: nothing to wait for.
    pub fn watched(&self) -> RawFd {
        let descriptor = self.0.as_ref().and_then(|(_, fd)| fd.as_ref());
        descriptor.map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Its wait status if it has ended, `Some(None)` if nobody can tell that.
    pub fn ended(&self) -> Option<Option<i32>> {
        let (kept, descriptor) = self.0.as_ref()?;
        match descriptor {
            Some(fd) => pidfd::has_ended(fd).then(|| pidfd::status(kept.command, fd)),
            None => (!proc::exists(kept.command)).then_some(None),
        }
    }
}
