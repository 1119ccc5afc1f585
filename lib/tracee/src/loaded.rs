//! Leads a fresh command to the moment at which the libraries that it begins with are there, and
//! none of their code has run yet.
//!
//! Given a process of ours that stands at its exec stop; gives it back standing there, or where its
//! loader has mapped and relocated everything. Nothing of the program is changed for that, so if we
//! die on the way it goes on by itself. Must not know what is done then.
//!
//! The moment is the end of the munmap(2) by which glibc's loader lets go of its cache of library
//! names (elf/rtld.c, `_dl_unload_cache` in `dl_main`), which comes behind all relocations and
//! before the first initializer. A loader without that cache is left at the first system call that
//! anything but it has made: some of the program's code may have run by then. One that is the C
//! library as well, as musl's, cannot be told from the program: there the command stays at its exec
//! stop, where it has itself in memory, and no library.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::TraceeError;
use crate::kill_point;
use crate::maps;
use crate::proc::AuxiliaryVector;
use crate::ptrace::{self, AT_SYSTEM_CALL};

/// What is mapped while names are looked up.
const CACHE: &str = "/etc/ld.so.cache";
/// How the name of musl's loader begins by which programs ask for it; the file may have another.
const MUSL: &[u8] = b"/ld-musl";
/// Of a program, in which that name stands.
const HEAD_BYTES: usize = 4096;
/// A loader makes some five system calls for a library; who makes more is none that we know.
const MOST_STOPS: u32 = 20_000;

/// Leads it there.
///
/// # Errors
/// It has ended, a signal has stopped it, it comes to no such moment, or it is not traced by the
/// calling thread. But for the first it stands still all the same.
pub fn wait_until_loaded(pid: u32) -> Result<(), TraceeError> {
    let loader = AuxiliaryVector::of(pid)
        .ok()
        .and_then(|auxv| auxv.value(libc::AT_BASE))
        .filter(|base| *base != 0);
    let Some(loader) = loader else {
        // All of a static program is there.
        return Ok(());
    };
    if asks_for_musl(pid) {
        return Ok(());
    }
    let mut signal = 0;
    let mut is_last = false;
    let mut is_inside = false;
    for _ in 0..MOST_STOPS {
        ptrace::to_system_call(pid, signal)?;
        signal = 0;
        match next_stop(pid)? {
            AT_SYSTEM_CALL if is_inside && is_last => return Ok(()),
            AT_SYSTEM_CALL => {
                is_inside = !is_inside;
                is_last = is_inside && ends_loading(pid, loader)?;
            }
            other => signal = other,
        }
    }
    Err(TraceeError::NoRoom("its loader does not come to an end"))
}

/// Whether a program is to be loaded by musl, by the name behind its head.
fn asks_for_musl(pid: u32) -> bool {
    let mut head = [0; HEAD_BYTES];
    let program = File::open(format!("/proc/{pid}/exe"));
    let read = program.and_then(|file| file.read_at(&mut head, 0));
    let head = head.get(..read.unwrap_or(0)).unwrap_or_default();
    head.windows(MUSL.len()).any(|there| there == MUSL)
}

/// Whether the system call that a process is about to make is the one.
fn ends_loading(pid: u32, loader: u64) -> Result<bool, TraceeError> {
    let regs = ptrace::registers(pid)?;
    let all = maps::read(pid)?;
    let at = |address: u64| all.iter().find(|m| (m.start..m.end).contains(&address));
    if regs.orig_rax as i64 == libc::SYS_munmap && at(regs.rdi).is_some_and(|m| m.path == CACHE) {
        return Ok(true);
    }
    let (Some(caller), Some(loader)) = (at(regs.rip), at(loader)) else {
        return Ok(true);
    };
    Ok(caller.file != loader.file)
}

/// Waits for the next stop: [`AT_SYSTEM_CALL`], or a signal that is to be delivered; 0: none. An
/// end stays to be waited for.
fn next_stop(pid: u32) -> Result<i32, TraceeError> {
    let mut status = 0;
    // SAFETY: plain numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    let mut wait = || {
        // SAFETY: the information is ours.
        unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, options) }
    };
    while kill_point::around("waiting for a system call", &mut wait) != 0 {
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(TraceeError::Gone);
        }
    }
    if matches!(
        info.si_code,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
    ) {
        return Err(TraceeError::Gone);
    }
    // SAFETY: the status is ours.
    let got = unsafe { libc::waitpid(pid as i32, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match got {
        _ if got < 0 || got > 0 && !libc::WIFSTOPPED(status) => Err(TraceeError::Gone),
        0 => Ok(0),
        // A signal has stopped it, and it is to stand still.
        _ if status >> 16 == libc::PTRACE_EVENT_STOP && libc::WSTOPSIG(status) != libc::SIGTRAP => {
            Err(TraceeError::Unstoppable(pid))
        }
        _ if status >> 16 != 0 => Ok(0),
        _ => Ok(libc::WSTOPSIG(status)),
    }
}
