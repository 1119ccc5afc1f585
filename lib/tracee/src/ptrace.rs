//! The few ptrace requests that are needed. All by one thread.

use crate::error::TraceeError;
use crate::kill_point;
use std::ptr::null_mut;

fn request(what: &'static str, call: impl FnOnce() -> libc::c_long) -> Result<(), TraceeError> {
    if kill_point::around(what, call) == 0 {
        Ok(())
    } else {
        Err(TraceeError::last(what))
    }
}

/// If we die while a thread stands at a system call, the kernel sends it the signal of that stop
/// (kernel: include/linux/ptrace.h, `ptrace_report_syscall`). With this option the stop has a
/// number that is no signal's, so nothing is sent.
const IS_TOLD_APART: i32 = libc::PTRACE_O_TRACESYSGOOD;
/// What [`to_system_call`] stops with.
pub const AT_SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// Takes hold of a process without stopping it; it will stop at its next exec.
///
/// # Errors
/// Not permitted, traced by another, or gone.
pub fn seize(pid: u32) -> Result<(), TraceeError> {
    let options = libc::PTRACE_O_TRACEEXEC | IS_TOLD_APART;
    // SAFETY: no memory of ours is written.
    request("ptrace(SEIZE)", || unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, pid, null_mut::<u8>(), options as usize)
    })
}

/// Asks a seized process to stop.
///
/// # Errors
/// Gone.
pub fn interrupt(pid: u32) -> Result<(), TraceeError> {
    // SAFETY: no memory of ours is written.
    request("ptrace(INTERRUPT)", || unsafe {
        libc::ptrace(
            libc::PTRACE_INTERRUPT,
            pid,
            null_mut::<u8>(),
            null_mut::<u8>(),
        )
    })
}

/// Lets a stopped process run on, delivering `signal` (0: none).
///
/// # Errors
/// Gone.
pub fn resume(pid: u32, signal: i32) -> Result<(), TraceeError> {
    // SAFETY: no memory of ours is written.
    request("ptrace(CONT)", || unsafe {
        libc::ptrace(libc::PTRACE_CONT, pid, null_mut::<u8>(), signal as usize)
    })
}

/// Lets a stopped process run to the beginning or the end of a system call, delivering `signal` (0:
/// none).
///
/// # Errors
/// Gone.
pub fn to_system_call(pid: u32, signal: i32) -> Result<(), TraceeError> {
    // SAFETY: no memory of ours is written.
    request("ptrace(SYSCALL)", || unsafe {
        libc::ptrace(libc::PTRACE_SYSCALL, pid, null_mut::<u8>(), signal as usize)
    })
}

/// Lets go of a stopped process, delivering `signal`.
///
/// # Errors
/// Gone.
pub fn detach(pid: u32, signal: i32) -> Result<(), TraceeError> {
    // SAFETY: no memory of ours is written.
    request("ptrace(DETACH)", || unsafe {
        libc::ptrace(libc::PTRACE_DETACH, pid, null_mut::<u8>(), signal as usize)
    })
}

/// General registers of a stopped process.
///
/// # Errors
/// Gone.
pub fn registers(pid: u32) -> Result<libc::user_regs_struct, TraceeError> {
    let mut regs = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the kernel fills the structure.
    request("ptrace(GETREGS)", || unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGS,
            pid,
            null_mut::<u8>(),
            regs.as_mut_ptr(),
        )
    })?;
    // SAFETY: zeroed, and filled.
    Ok(unsafe { regs.assume_init() })
}

/// Sets them.
///
/// # Errors
/// Gone.
pub fn set_registers(pid: u32, regs: &libc::user_regs_struct) -> Result<(), TraceeError> {
    // SAFETY: the kernel reads the structure.
    request("ptrace(SETREGS)", || unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGS,
            pid,
            null_mut::<u8>(),
            std::ptr::from_ref(regs),
        )
    })
}

/// Signal mask of a stopped process.
///
/// # Errors
/// Gone.
pub fn signal_mask(pid: u32) -> Result<u64, TraceeError> {
    const GETSIGMASK: libc::c_uint = 0x420a;
    let mut mask = 0u64;
    // SAFETY: eight bytes.
    request("ptrace(GETSIGMASK)", || unsafe {
        libc::ptrace(GETSIGMASK, pid, 8usize, &raw mut mask)
    })?;
    Ok(mask)
}

/// Takes hold of a thread without stopping it, and without being told of anything.
///
/// # Errors
/// Not permitted, traced by another, or gone.
pub fn seize_thread(tid: u32) -> Result<(), TraceeError> {
    // SAFETY: no memory of ours is written.
    request("ptrace(SEIZE)", || unsafe {
        libc::ptrace(
            libc::PTRACE_SEIZE,
            tid,
            null_mut::<u8>(),
            IS_TOLD_APART as usize,
        )
    })
}

/// Sets the signal mask of a stopped thread.
///
/// # Errors
/// Gone.
pub fn set_signal_mask(tid: u32, mask: u64) -> Result<(), TraceeError> {
    const SETSIGMASK: libc::c_uint = 0x420b;
    // SAFETY: eight bytes are read.
    request("ptrace(SETSIGMASK)", || unsafe {
        libc::ptrace(SETSIGMASK, tid, 8usize, &raw const mask)
    })
}

/// Sets the gs base of a stopped thread.
///
/// # Errors
/// Gone.
pub fn set_gs_base(tid: u32, to: u64) -> Result<(), TraceeError> {
    const GS_BASE: usize = std::mem::offset_of!(libc::user_regs_struct, gs_base);
    // SAFETY: no memory of ours is written.
    request("ptrace(POKEUSER)", || unsafe {
        libc::ptrace(libc::PTRACE_POKEUSER, tid, GS_BASE, to as usize)
    })
}
