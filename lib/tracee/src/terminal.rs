//! Starts a command on a terminal of its own, in a session of its own.
//!
//! Given the terminal's slave side, and which of the standard streams become it; gives a child of
//! ours whose controlling terminal that is, and which leads the terminal's foreground group as a
//! shell's job does. Two more processes are made. The session's leader does nothing: if the command
//! led the session, its end would take the terminal away from what it leaves behind. The other one
//! joins the command's group while we live, if our own group is no orphan. So the command's group
//! is none either, and ctrl-z stops the command as it would without us (setpgid(2); POSIX,
//! "orphaned process group").
//!
//! Must not know what is on the terminal's other side.

use crate::error::TraceeError;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// What the command gets for a terminal.
pub struct Terminal<'a> {
    /// The slave side of a pseudo-terminal that is nobody's yet.
    pub slave: BorrowedFd<'a>,
    /// Do standard input, output and error become it? The others stay what they are.
    pub streams: [bool; 3],
    /// Gets the command's pid, four bytes, before anything else happens in it; closed when it
    /// executes.
    pub begun: BorrowedFd<'a>,
    /// Is there a shell that would go on with a stopped command?
    pub is_job: bool,
}

/// What there is after the fork.
pub enum Forked {
    /// We are the command's process.
    Command,
    /// We are who asked for it.
    Parent {
        /// The command.
        command: i32,
        /// The session's leader, a child of ours, too.
        leader: i32,
    },
}

/// Two ends of a pipe, to read and to write.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), TraceeError> {
    let mut ends = [0; 2];
    // SAFETY: two ints.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(TraceeError::last("pipe"));
    }
    // SAFETY: pipe2 gave us both.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Closes all descriptors of this process but those.
///
/// # Safety
/// Nothing that owns one of the others may be used, or dropped, any more.
pub unsafe fn keep_only(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 0u32;
    for fd in kept.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if fd > first {
            // SAFETY: the caller's promise.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd.wrapping_sub(1), 0) };
        }
        first = fd.wrapping_add(1);
    }
}

/// Forks as fork(2) does, but what is forked has the terminal; it is our child all the same.
///
/// # Errors
/// No process, or the terminal is not to be had.
pub fn fork(terminal: &Terminal) -> Result<Forked, TraceeError> {
    let (pids, tell) = pipe()?;
    let (life, held) = pipe()?;
    // SAFETY: the child, and its own children, call async-signal-safe functions only.
    let leader = unsafe { libc::fork() };
    if leader < 0 {
        return Err(TraceeError::last("fork"));
    }
    if leader == 0 {
        // SAFETY: in the child.
        unsafe { lead(terminal, tell.as_raw_fd(), life.as_raw_fd()) };
        return Ok(Forked::Command);
    }
    drop((tell, life));
    let mut bytes = [0; 4];
    if let Err(source) = File::from(pids).read_exact(&mut bytes) {
        // SAFETY: our own child, which has ended.
        unsafe { libc::waitpid(leader, std::ptr::null_mut(), 0) };
        let what = "giving the command a terminal";
        return Err(TraceeError::System { what, source });
    }
    // Open as long as we live: who keeps the command's group company ends with us.
    let _ = held.into_raw_fd();
    Ok(Forked::Parent {
        command: i32::from_ne_bytes(bytes),
        leader,
    })
}

/// Body of the leader's process. Comes back in the command's process only.
unsafe fn lead(terminal: &Terminal, tell: RawFd, life: RawFd) {
    // SAFETY: system calls on descriptors of this process, which nobody shares memory with.
    unsafe {
        let mut ready = [0; 2];
        libc::setsid();
        if libc::ioctl(terminal.slave.as_raw_fd(), libc::TIOCSCTTY, 0) != 0
            || libc::pipe2(ready.as_mut_ptr(), libc::O_CLOEXEC) != 0
        {
            libc::_exit(1);
        }
        // The child of our own parent: its end is that one's to see.
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        let command = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as i32;
        if command == 0 {
            take_over(terminal);
            libc::write(ready[1], ready.as_ptr().cast(), 1);
            return;
        }
        if command < 0 {
            libc::_exit(1);
        }
        libc::close(ready[1]);
        let mut byte = 0u8;
        libc::read(ready[0], (&raw mut byte).cast(), 1);
        // Ends that are not waited for leave nothing behind.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        if terminal.is_job && libc::fork() == 0 {
            keep_company(command, life);
        }
        libc::write(tell, (&raw const command).cast(), 4);
        keep_only(&mut []);
        // A hang-up comes to us first, and to the foreground group by our end.
        libc::signal(libc::SIGHUP, libc::SIG_DFL);
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"sptrace-leader".as_ptr());
        libc::chdir(c"/".as_ptr());
        loop {
            libc::pause();
        }
    }
}

/// In the command's process: its own group, in the terminal's foreground; its streams.
unsafe fn take_over(terminal: &Terminal) {
    let slave = terminal.slave.as_raw_fd();
    // SAFETY: system calls on descriptors of this process. Its signal mask is set later by the
    // caller.
    unsafe {
        libc::setpgid(0, 0);
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let pid = libc::getpid();
        libc::tcsetpgrp(slave, pid);
        for (stream, _) in (0..).zip(terminal.streams).filter(|(_, is)| *is) {
            libc::dup2(slave, stream);
        }
        libc::write(terminal.begun.as_raw_fd(), (&raw const pid).cast(), 4);
    }
}

/// Body of the process that makes the command's group one that may be stopped. `life` is at its end
/// when it shall end.
unsafe fn keep_company(command: i32, life: RawFd) -> ! {
    // SAFETY: as above; what it ignores it could not do anything about.
    unsafe {
        libc::setpgid(0, command);
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_IGN);
        }
        keep_only(&mut [life]);
        libc::prctl(libc::PR_SET_NAME, c"sptrace-job".as_ptr());
        libc::chdir(c"/".as_ptr());
        let mut byte = 0u8;
        libc::read(life, (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}
