//! Places at which sptrace can be made to kill itself: tests/kill_points.py tries each.
//!
//! Given an action on another process and its name, does the action and nothing else. Built with
//! the feature `kill-points`, which no shipped binary has, it raises SIGKILL before or after the
//! action that SPTRACE_KILL_AT names ("before ptrace(DETACH) 2": the second time), and
//! SPTRACE_KILL_LIST names a file that gets a line for each point passed. Must not know what the
//! actions are for.

#[cfg(not(feature = "kill-points"))]
mod chosen {
    use crate::error::TraceeError;

    /// Does the action.
    #[inline(always)]
    pub fn around<T>(_what: &str, action: impl FnOnce() -> T) -> T {
        action()
    }

    /// Nothing.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn through_stub(_pid: u32) -> Result<(), TraceeError> {
        Ok(())
    }
}

#[cfg(feature = "kill-points")]
mod chosen {
    use crate::error::TraceeError;
    use std::collections::HashMap;
    use std::io::Write;
    use std::ptr::null_mut;
    use std::sync::{LazyLock, Mutex, PoisonError};

    static WANTED: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("SPTRACE_KILL_AT").ok());
    static LIST: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("SPTRACE_KILL_LIST").ok());
    static PASSED: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);

    /// Does the action, unless it is our end before or after. Keeps errno.
    pub fn around<T>(what: &str, action: impl FnOnce() -> T) -> T {
        pass(&format!("before {what}"));
        let result = action();
        // SAFETY: errno of this thread.
        let errno = unsafe { *libc::__errno_location() };
        pass(&format!("after {what}"));
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        result
    }

    fn pass(what: &str) {
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        let times = passed.entry(what.to_owned()).or_insert(0);
        *times += 1;
        let point = format!("{what} {times}");
        if let Some(list) = LIST.as_ref() {
            let file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(list);
            let _ = file.and_then(|mut f| f.write_all(format!("{point}\n").as_bytes()));
        }
        if WANTED.as_ref() == Some(&point) {
            // SAFETY: our own end.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            loop {
                std::thread::park();
            }
        }
    }

    /// Leads a process that stands in the stub, at the end of a system call, from one to the next,
    /// up to the end of rt_sigreturn, each a point; only if such a point is wanted or points are
    /// listed.
    ///
    /// # Errors
    /// The process is gone.
    pub fn through_stub(pid: u32) -> Result<(), TraceeError> {
        let is_wanted = WANTED
            .as_ref()
            .is_some_and(|w| w.contains(" remote system call "));
        if !is_wanted && LIST.is_none() {
            return Ok(());
        }
        let mut seen = HashMap::new();
        loop {
            let number = next_stop(pid)?;
            // By number: how often it waits for an answer differs from run to run.
            let nth = seen.entry(number).or_insert(0);
            *nth += 1;
            let what = format!("remote system call {number}, the {nth}. of this injection:");
            pass(&format!("before {what}"));
            next_stop(pid)?;
            pass(&format!("after {what}"));
            if number == libc::SYS_rt_sigreturn {
                return Ok(());
            }
        }
    }

    /// Runs to the beginning or the end of a system call; gives its number.
    fn next_stop(pid: u32) -> Result<i64, TraceeError> {
        let mut signal = 0;
        loop {
            let mut status = 0;
            // SAFETY: no memory of ours is written but the status.
            unsafe {
                if libc::ptrace(libc::PTRACE_SYSCALL, pid, null_mut::<u8>(), signal as usize) != 0 {
                    return Err(TraceeError::last("ptrace(SYSCALL)"));
                }
                if libc::waitpid(pid as i32, &raw mut status, libc::__WALL) < 0 {
                    return Err(TraceeError::last("waitpid"));
                }
            }
            if !libc::WIFSTOPPED(status) {
                return Err(TraceeError::Gone);
            }
            if libc::WSTOPSIG(status) == libc::SIGTRAP && status >> 16 == 0 {
                const ORIG_RAX: usize = 15 * 8;
                // SAFETY: no memory of ours is written; the C library gives the word itself.
                return Ok(unsafe {
                    libc::ptrace(libc::PTRACE_PEEKUSER, pid, ORIG_RAX, null_mut::<u8>())
                });
            }
            signal = if status >> 16 == 0 {
                libc::WSTOPSIG(status)
            } else {
                0
            };
        }
    }
}

pub use chosen::{around, through_stub};
