//! The end of a process that need not be our child.
//!
//! Given its number; gives a pidfd, and what wait(2) tells its parent. That may reap it at once:
//! then Linux tells from 6.15 on (PIDFD_GET_INFO), before that only a process that is still a
//! zombie can be asked.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::proc::Stat;

/// `None`: it has ended and was reaped, or there is no descriptor left.
pub fn open(pid: u32) -> Option<OwnedFd> {
    // SAFETY: gives a descriptor of our own or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: a fresh descriptor.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Zombies have ended.
pub fn has_ended(fd: &OwnedFd) -> bool {
    let mut one = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry of ours.
    unsafe { libc::poll(&raw mut one, 1, 0) > 0 }
}

/// Its wait status; `None`: nobody can tell.
pub fn status(pid: u32, process: &OwnedFd) -> Option<i32> {
    // The pidfd knows after it was reaped, /proc before: one of them does, in this order.
    status_of_zombie(pid).or_else(|| status_of_reaped(process))
}

fn status_of_zombie(pid: u32) -> Option<i32> {
    Stat::of(pid).ok()?.wait_status()
}

/// `struct pidfd_info` of linux/pidfd.h in its first size.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

fn status_of_reaped(process: &OwnedFd) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    const GET_INFO: u64 = 0xc000_ff0b | (size_of::<PidfdInfo>() as u64) << 16;
    let mut info = PidfdInfo {
        mask: EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the request's size is that of the structure.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO, &raw mut info) };
    (done == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}
