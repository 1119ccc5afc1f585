//! Gates of a process seen from here: the descriptor that reports who waits at one (userfaultfd(2)).
//!
//! Given the descriptor's number in the process; gives our own copy of it, and by it which gates were come to.
//! When the copy is closed, whoever waits goes on, and nobody waits any more.

use crate::error::TraceeError;
use crate::kill_point;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Of a page, and so of a gate.
pub const GATE_BYTES: u64 = 4096;
/// Size of `struct uffd_msg` (linux/userfaultfd.h), its event for a fault, and where the fault's address stands.
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

/// The numbers of the gates that threads have come to since the last look; the first lies at `start`.
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
