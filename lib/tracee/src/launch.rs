//! Starting a command so that it stands still at its first instruction.
//!
//! The child waits until it is seized, so that its exec is an event stop and not a SIGTRAP: should
//! we die at that moment, nothing is left behind that would be delivered to it. If we die earlier,
//! it goes on by itself.

use crate::at_start::AtStart;
use crate::before_exec::Between;
use crate::error::TraceeError;
use crate::futex::futex_wake;
use crate::keep::Kept;
use crate::kill_point;
use crate::ptrace;
use crate::terminal::{self, Forked, Terminal};
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// From a signal that kills to the end.
const ENDING_WITHIN: Duration = Duration::from_millis(20);

/// What the command shall inherit, as sptrace found it.
pub struct Inherited<'a> {
    /// Streams, limits, disposition of SIGPIPE.
    pub at_start: AtStart,
    /// Signal mask.
    pub mask: libc::sigset_t,
    /// Another terminal than ours.
    pub terminal: Option<Terminal<'a>>,
    /// The process that becomes the command, if it is there already.
    pub kept: Option<Kept>,
}

/// A command that stands at its exec stop.
pub struct Started {
    /// Its process.
    pub command: u32,
    /// A child of ours that leads its session, if it has one of its own.
    pub leader: Option<u32>,
}

fn fork(inherited: &Inherited) -> Result<Forked, TraceeError> {
    if let Some(terminal) = &inherited.terminal {
        return terminal::fork(terminal);
    }
    // SAFETY: the child calls async-signal-safe functions only.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Command),
        command if command > 0 => Ok(Forked::Parent { command, leader: 0 }),
        _ => Err(TraceeError::last("fork")),
    }
}

/// Forks and executes `argv` (looked up in PATH) under ptrace; returns it once it stands at the
/// exec stop.
///
/// # Errors
/// [`TraceeError::Exec`] with the reason when it cannot be executed, [`TraceeError::Killed`] if a
/// signal ended it before.
pub fn start(argv: &[CString], inherited: &Inherited) -> Result<Started, TraceeError> {
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    if let Some(kept) = inherited.kept {
        return start_kept(kept);
    }
    let between = Between::new()?;
    // SAFETY: no arguments.
    let tracer = unsafe { libc::getpid() };
    let (pid, leader) = match fork(inherited)? {
        Forked::Command => (0, 0),
        Forked::Parent { command, leader } => (command, leader),
    };
    if pid == 0 {
        // SAFETY: in the child; argv lives; what it has of ours it uses no more.
        unsafe {
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const inherited.mask,
                std::ptr::null_mut(),
            );
            inherited.at_start.hand_on();
            between.wait(tracer);
            libc::execvp(pointers[0], pointers.as_ptr());
            between.failed(*libc::__errno_location());
            libc::_exit(127);
        }
    }
    if let Err(e) = ptrace::seize(pid as u32) {
        // Was it killed before: by an interrupt, say?
        let signal = wait_for_death(pid, ENDING_WITHIN);
        // SAFETY: our own child, which still waits for the byte: it has executed nothing.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let signal = signal.or_else(|| {
            let ours = wait_for_death(pid, Duration::MAX);
            ours.filter(|signal| *signal != libc::SIGKILL)
        });
        return Err(signal.map_or(e, TraceeError::Killed));
    }
    kill_point::around("letting the command go", || {
        between.go.store(1, Ordering::Release);
        futex_wake(&between.go, 1);
    });
    executed(pid, between)?;
    Ok(Started {
        command: pid as u32,
        leader: (leader > 0).then_some(leader as u32),
    })
}

/// The same with the process that was started for the command.
fn start_kept(kept: Kept) -> Result<Started, TraceeError> {
    let Kept {
        command, between, ..
    } = kept;
    ptrace::seize(command)?;
    kill_point::around("letting the command go", || kept.go());
    executed(command as i32, between)?;
    Ok(Started {
        command,
        leader: None,
    })
}

/// Waits until the process, which is let go, stands at its exec stop.
fn executed(pid: i32, between: &Between) -> Result<(), TraceeError> {
    // First this: a signal may stop the child before its exec, and then it needs us.
    let end = wait_for_exec(pid)?;
    let errno = between.errno.load(Ordering::Acquire) as i32;
    if errno != 0 {
        return Err(TraceeError::Exec(std::io::Error::from_raw_os_error(errno)));
    }
    match end {
        None => Ok(()),
        // What the kernel cannot load ends by SIGSEGV, before Linux 5.16 by SIGKILL (execve(2)).
        Some(s) if libc::WIFSIGNALED(s) && libc::WTERMSIG(s) != libc::SIGSEGV => {
            Err(TraceeError::Killed(libc::WTERMSIG(s)))
        }
        Some(_) => Err(TraceeError::Gone),
    }
}

/// Ends a command that stands at its exec stop and has executed nothing.
pub fn take_back(command: u32) {
    // SAFETY: our own child.
    unsafe { libc::kill(command as i32, libc::SIGKILL) };
    wait_for_death(command as i32, Duration::MAX);
}

/// Waits so long for the end of a child that may be ending; the signal that has killed it.
fn wait_for_death(pid: i32, longest: Duration) -> Option<i32> {
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: our own child.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) } {
            0 if begun.elapsed() < longest => std::thread::sleep(Duration::from_millis(1)),
            got if got == pid && libc::WIFSIGNALED(status) => return Some(libc::WTERMSIG(status)),
            _ => return None,
        }
    }
}

/// Waits for the exec stop; signals on the way are handed on. The wait status if the process ended.
fn wait_for_exec(pid: i32) -> Result<Option<i32>, TraceeError> {
    loop {
        let mut status = 0;
        // SAFETY: our own child.
        let got = kill_point::around("waiting for a stop", || unsafe {
            libc::waitpid(pid, &raw mut status, libc::__WALL)
        });
        if got < 0 {
            if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            return Err(TraceeError::last("waitpid"));
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(Some(status));
        }
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            return Ok(None);
        }
        ptrace::resume(
            pid as u32,
            if status >> 16 == 0 {
                libc::WSTOPSIG(status)
            } else {
                0
            },
        )?;
    }
}
