//! What sptrace was started with, kept from its own doings and handed on to the command.
//!
//! Remembered before anything is changed: which standard streams are closed (Rust's runtime opens
//! /dev/null in their place, which keeps our own files from landing there), the disposition of
//! SIGPIPE, and the limits on resources that are in our own way. Those are lifted for us as far as
//! that is permitted; the command gets all as it was.
//!
//! Must not know: what the command is, and how it is traced.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};

/// Limits that would end or hinder us, and how much of each is enough. A limit on the size of files
/// is not among them: it holds for the trace as well.
const IN_OUR_WAY: [(Resource, rlim_t); 5] = [
    (Resource::RLIMIT_AS, RLIM_INFINITY),
    (Resource::RLIMIT_CPU, RLIM_INFINITY),
    (Resource::RLIMIT_DATA, RLIM_INFINITY),
    (Resource::RLIMIT_NPROC, RLIM_INFINITY),
    // More are not for the having everywhere (fs.nr_open).
    (Resource::RLIMIT_NOFILE, 1024),
];

/// A limit that was lifted: soft and hard, as it was.
type Lifted = Option<(rlim_t, rlim_t)>;

/// See the file's header.
#[derive(Clone, Copy, Debug)]
pub struct AtStart {
    /// Disposition of SIGPIPE.
    pub sigpipe: libc::sighandler_t,
    /// Is standard input, output, error closed?
    pub closed: [bool; 3],
    lifted: [Lifted; IN_OUR_WAY.len()],
    memory_limit: u64,
}

impl AtStart {
    /// Notes the limits, and lifts those that are in our way.
    pub fn lift(sigpipe: libc::sighandler_t, closed: [bool; 3]) -> Self {
        let (memory_limit, _) = getrlimit(Resource::RLIMIT_AS).unwrap_or((RLIM_INFINITY, 0));
        let lifted = IN_OUR_WAY.map(|(which, enough)| lift(which, enough));
        if getrlimit(Resource::RLIMIT_AS).is_ok_and(|(soft, _)| soft != RLIM_INFINITY) {
            // For each thread glibc would set 64 MiB of address space apart, and fails where those
            // are not left. SAFETY: a setting of the allocator, made while there is one thread.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
        Self {
            sigpipe,
            closed,
            lifted,
            memory_limit,
        }
    }

    /// Bytes of address space that the command may have; `u64::MAX`: any number.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// In the command's process, before it executes: everything as we found it. Async-signal-safe.
    ///
    /// # Safety
    /// Nothing uses the standard streams that were closed.
    pub unsafe fn hand_on(&self) {
        // SAFETY: a disposition of this process.
        unsafe { libc::signal(libc::SIGPIPE, self.sigpipe) };
        for (stream, _) in (0..).zip(self.closed).filter(|(_, is_closed)| *is_closed) {
            // SAFETY: the caller's promise.
            unsafe { libc::close(stream) };
        }
        for ((which, _), lifted) in IN_OUR_WAY.iter().zip(self.lifted) {
            if let Some((soft, hard)) = lifted {
                // Lowering is always permitted.
                let _ = setrlimit(*which, soft, hard);
            }
        }
    }
}

/// Lifts it as far as that is permitted: root may pass the hard limit.
fn lift(which: Resource, enough: rlim_t) -> Lifted {
    let (soft, hard) = getrlimit(which).ok()?;
    if soft >= enough {
        return None;
    }
    setrlimit(which, enough, hard.max(enough))
        .or_else(|_| setrlimit(which, enough.min(hard), hard))
        .ok()?;
    Some((soft, hard))
}
