//! Gates of a process seen from here: the descriptor that reports who waits at one
//! (userfaultfd(2)).
//!
//! Given the descriptor's number in the process; gives our own copy of it, and by it which gates
//! were come to. When the copy is closed, whoever waits goes on, and nobody waits any more. A
//! process of its own, the [`Guard`], lets those go who wait for long: ours may be stopped.

use crate::error::TraceeError;
use crate::kill_point;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Of a page, and so of a gate.
pub const GATE_BYTES: u64 = 4096;
/// Size of `struct uffd_msg` (linux/userfaultfd.h), its event for a fault, and where the fault's
/// address stands.
const MESSAGE_BYTES: usize = 32;
const PAGE_FAULT: u8 = 0x12;
const ADDRESS_AT: usize = 16;

/// A descriptor of the process, as one of ours (pidfd_getfd(2)).
///
/// # Errors
/// Not permitted, or the kernel is older than 5.6.
pub fn take(pid: u32, descriptor: i32) -> Result<OwnedFd, TraceeError> {
    let failed = |what| TraceeError::System {
        what,
        source: std::io::Error::last_os_error(),
    };
    // SAFETY: gives a fresh descriptor or an error.
    let of_process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if of_process < 0 {
        return Err(failed("pidfd_open"));
    }
    // SAFETY: a fresh descriptor.
    let of_process = unsafe { OwnedFd::from_raw_fd(of_process) };
    let take = || {
        // SAFETY: gives a fresh descriptor or an error.
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, of_process.as_raw_fd(), descriptor, 0) }
    };
    let ours = kill_point::around("taking a descriptor", take) as i32;
    if ours < 0 {
        return Err(failed("pidfd_getfd"));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(ours) })
}

/// The numbers of the gates that threads have come to since the last look; the first lies at
/// `start`.
pub fn waiting_at(descriptor: &OwnedFd, start: u64) -> Vec<usize> {
    let mut gates = Vec::new();
    let Ok(copy) = descriptor.try_clone() else {
        return gates;
    };
    let mut from = File::from(copy);
    let mut message = [0u8; MESSAGE_BYTES];
    while matches!(from.read(&mut message), Ok(MESSAGE_BYTES)) {
        let address = message[ADDRESS_AT..ADDRESS_AT + 8].try_into();
        let address = address.map_or(0, u64::from_le_bytes);
        if message[0] == PAGE_FAULT && address >= start {
            gates.push(((address - start) / GATE_BYTES) as usize);
        }
    }
    gates
}

/// Lets go who waits for longer than this: a start takes some milliseconds.
const PATIENCE_MS: i64 = 200;

/// A process that opens the gates if nobody else does; it ends with this value, or with us.
pub struct Guard(#[allow(dead_code, reason = "its end is what the process waits for")] OwnedFd);

impl Guard {
    /// Starts it, for so many gates from `start` on.
    ///
    /// # Errors
    /// No process, or no descriptors.
    pub fn spawn(descriptor: &OwnedFd, start: u64, gates: u64) -> Result<Self, TraceeError> {
        let failed = |what| TraceeError::System {
            what,
            source: std::io::Error::last_os_error(),
        };
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(failed("a pipe"));
        }
        // SAFETY: fresh descriptors.
        let (theirs, ours) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the child makes system calls only, and allocates nothing.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; it does not come back.
            unsafe {
                libc::close(ours.as_raw_fd());
                guard(
                    theirs.as_raw_fd(),
                    descriptor.as_raw_fd(),
                    start,
                    gates * GATE_BYTES,
                )
            };
        }
        if child < 0 {
            return Err(failed("fork"));
        }
        let mut status = 0;
        // SAFETY: a child of ours that ends at once: the guard is its child, and nobody's whom we
        // wait for.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        Ok(Self(ours))
    }
}

/// Body of the guard's process. `life` is at its end when it shall end.
unsafe fn guard(life: i32, faults: i32, start: u64, bytes: u64) -> ! {
    const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
    // SAFETY: system calls on descriptors of this process, which nobody shares memory with.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        // What stops or ends those at our terminal is not for it; what we have opened is ours.
        libc::setsid();
        let (life, faults) = (
            libc::fcntl(life, libc::F_DUPFD, 8),
            libc::fcntl(faults, libc::F_DUPFD, 8),
        );
        libc::dup2(life, 0);
        libc::dup2(faults, 1);
        libc::syscall(libc::SYS_close_range, 2, u32::MAX, 0);
        let poll = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut both = [poll(0, 0), poll(1, libc::POLLIN)];
        libc::poll(both.as_mut_ptr(), 2, -1);
        if both[0].revents == 0 {
            // Somebody waits. Whoever starts the recording closes the pipe.
            libc::poll(both.as_mut_ptr(), 1, PATIENCE_MS as i32);
            let range = [start, bytes];
            libc::ioctl(1, UFFDIO_UNREGISTER, range.as_ptr());
        }
        libc::_exit(0);
    }
}
