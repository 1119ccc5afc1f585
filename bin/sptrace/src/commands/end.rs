//! How sptrace ends where a command has ended: as that did.

use sptrace_trace::ExitStatus;
use std::process::ExitCode;

/// Ends as the command did.
pub fn end_as(status: ExitStatus) -> ExitCode {
    match status {
        ExitStatus::Exited(code) => ExitCode::from(code as u8),
        ExitStatus::Signaled(signal) | ExitStatus::Dumped(signal) => {
            // SAFETY: default disposition, no core of ours, then our own end.
            unsafe {
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::signal(signal, libc::SIG_DFL);
                let mut set = std::mem::zeroed::<libc::sigset_t>();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, signal);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
                libc::raise(signal);
            }
            ExitCode::from((128 + signal) as u8)
        }
    }
}
