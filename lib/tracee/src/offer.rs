//! The arena's way into a process: through a socket of the process's own, of which the host takes
//! one end.
//!
//! Given a thread that was pointed at code which maps the arena ([`crate::inside`]): that makes a
//! pair of sockets, and the host, at the end of this system call, takes one of them by
//! pidfd_getfd(2) and sends the arena's descriptor. The process needs no path, no mount of /proc
//! and no permission for it: whatever user, namespaces and root directory it has. It never waits:
//! what was sent lies in its socket, whether we live or not. Must not know what the arena is for.

use crate::arena::Arena;
use crate::error::TraceeError;
use crate::kill_point;
use crate::ptrace;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Leads a stopped thread on to the end of its next socketpair(2), where it is stopped again, and
/// sends the arena. What goes wrong with the sending the process finds out by itself.
///
/// # Errors
/// It has ended; which is left to be waited for.
pub fn give(pid: u32, tid: u32, memory: &File, arena: &Arena) -> Result<(), TraceeError> {
    let mut signal = 0;
    let mut is_within = false;
    loop {
        ptrace::to_system_call(tid, signal)?;
        let status = next_stop(tid)?;
        let is_call = status == ptrace::AT_SYSTEM_CALL;
        let is_signal = !is_call && status >> 8 == 0;
        signal = if is_signal { status } else { 0 };
        if !is_call {
            continue;
        }
        let regs = ptrace::registers(tid)?;
        if regs.orig_rax != libc::SYS_socketpair as u64 {
            continue;
        }
        // A filter may answer in the kernel's place, so that the result does not tell the end from
        // the beginning.
        if std::mem::replace(&mut is_within, true) {
            if regs.rax == 0 {
                let _ = send(pid, memory, regs.r10, arena);
            }
            return Ok(());
        }
    }
}

/// The next stop of a thread: its signal, and above that what event it is.
fn next_stop(tid: u32) -> Result<i32, TraceeError> {
    let wait = |options: i32| {
        // SAFETY: plain numbers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the information is ours.
        let result = unsafe { libc::waitid(libc::P_PID, tid, &raw mut info, options) };
        if result != 0 {
            return Err(TraceeError::Gone);
        }
        // SAFETY: of SIGCHLD, or zeros.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        Ok((pid != 0).then_some((info.si_code, status)))
    };
    loop {
        // Its end is for others to take note of.
        let seen = wait(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL)?;
        if let Some((libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED, _)) = seen {
            return Err(TraceeError::Gone);
        }
        let taken = wait(libc::WSTOPPED | libc::WNOHANG | libc::__WALL)?;
        if let Some((_, status)) = taken {
            return Ok(status);
        }
    }
}

/// Sends the arena through the second of the sockets whose numbers are at `pair`.
fn send(pid: u32, memory: &File, pair: u64, arena: &Arena) -> Result<(), TraceeError> {
    let mut ends = [0u8; 8];
    memory
        .read_exact_at(&mut ends, pair)
        .map_err(|source| TraceeError::System {
            what: "reading the sockets' numbers",
            source,
        })?;
    let [.., a, b, c, d] = ends;
    let socket = take(pid, i32::from_le_bytes([a, b, c, d]))?;
    let mut byte = 0u8;
    let mut data = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // As CMSG_FIRSTHDR and CMSG_DATA would lay it out: length, level and type, the descriptor.
    let rights = u64::from(libc::SOL_SOCKET as u32) | u64::from(libc::SCM_RIGHTS as u32) << 32;
    let mut control = [20u64, rights, arena.file().as_raw_fd() as u64];
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: all that the message points at lives.
    let sent = kill_point::around("sending the arena", || unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    });
    match sent {
        1 => Ok(()),
        _ => Err(TraceeError::last("sendmsg")),
    }
}

/// Our own of a process's descriptor.
fn take(pid: u32, descriptor: i32) -> Result<OwnedFd, TraceeError> {
    // SAFETY: numbers; the result is ours.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if process < 0 {
        return Err(TraceeError::last("pidfd_open"));
    }
    // SAFETY: a fresh descriptor.
    let process = unsafe { OwnedFd::from_raw_fd(process as i32) };
    let number = process.as_raw_fd();
    let taken = kill_point::around("taking the socket", || {
        // SAFETY: numbers; the result is ours.
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, number, descriptor, 0) }
    });
    if taken < 0 {
        return Err(TraceeError::last("pidfd_getfd"));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(taken as i32) })
}
