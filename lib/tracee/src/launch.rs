//! Starting a command so that it stands still at its first instruction.

use crate::error::TraceeError;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Forks and executes `argv` (looked up in PATH) under ptrace; returns its pid once it stands at
/// the exec stop. `sigpipe`: the disposition of SIGPIPE that the command shall inherit.
///
/// # Errors
/// [`TraceeError::Exec`] with the reason when it cannot be executed.
pub fn start(argv: &[CString], sigpipe: libc::sighandler_t) -> Result<u32, TraceeError> {
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut fds = [0; 2];
    // SAFETY: two ints.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(TraceeError::last("pipe"));
    }
    // SAFETY: pipe2 gave us both.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: the child calls async-signal-safe functions only.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(TraceeError::last("fork"));
    }
    if pid == 0 {
        // SAFETY: in the child; argv lives; on failure errno goes through the pipe.
        unsafe {
            libc::signal(libc::SIGPIPE, sigpipe);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::execvp(pointers[0], pointers.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(write.as_raw_fd(), (&raw const errno).cast(), 4);
            libc::_exit(127);
        }
    }
    drop(write);
    let mut errno = 0i32;
    // The exec closes the pipe: end of file means success.
    // SAFETY: four bytes.
    let got = unsafe { libc::read(read.as_raw_fd(), (&raw mut errno).cast(), 4) };
    let mut status = 0;
    // SAFETY: our own child.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(TraceeError::last("waitpid"));
        }
    }
    if got == 4 {
        return Err(TraceeError::Exec(std::io::Error::from_raw_os_error(errno)));
    }
    if !libc::WIFSTOPPED(status) {
        return Err(TraceeError::Gone);
    }
    Ok(pid as u32)
}
