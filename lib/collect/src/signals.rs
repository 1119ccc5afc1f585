//! What wakes the session: signals to us, children that have something to tell, other threads of
//! ours.
//!
//! Given the signals that events wait for; gives a descriptor, and what has come. Who the signals
//! are meant for is the session's business.

use std::time::Duration;

use crate::react;
use crate::shared::Shared;

/// A child that has stopped or ended, and its status; it need not be waited for any more.
pub fn wait_any() -> Option<(u32, i32)> {
    let mut status = 0;
    // SAFETY: status is ours.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    (pid > 0).then_some((pid as u32, status))
}

/// Signals that we handle by signalfd: our children's ends, and what is meant for the command.
pub const HANDLED: [i32; 5] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
];

/// The descriptor that tells of them and of those that events wait for, and the mask that we had.
pub fn block_signals(of_events: &[i32]) -> (i32, libc::sigset_t) {
    // SAFETY: sets are ours.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        let mut former = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for s in HANDLED.iter().chain(of_events) {
            libc::sigaddset(&raw mut set, *s);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut former);
        let signals = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        (signals, former)
    }
}

/// Waits for a signal, a command, or something of `also` (-1: nothing), at most so long. `met` is
/// given each signal and where it came from.
pub fn wait_for_something(
    (signals, also): (i32, i32),
    shared: &Shared,
    at_most: Duration,
    mut met: impl FnMut(i32, i32),
) {
    let wake = shared.wake;
    let poll = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [poll(signals), poll(wake), poll(also)];
    // SAFETY: three descriptors of ours.
    unsafe {
        libc::poll(
            fds.as_mut_ptr(),
            3,
            at_most.as_millis().clamp(1, 100) as i32,
        )
    };
    let mut count = 0u64;
    // SAFETY: eight bytes.
    unsafe { libc::read(wake, (&raw mut count).cast(), 8) };
    take_signals(signals, shared, &mut met);
}

/// Gives `met` each signal that is there and where it came from.
pub fn take_signals(signals: i32, shared: &Shared, met: &mut dyn FnMut(i32, i32)) {
    let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let bytes = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has the size of one entry.
    while unsafe { libc::read(signals, info.as_mut_ptr().cast(), bytes) } == bytes as isize {
        // SAFETY: filled by the kernel.
        let (signal, code) = unsafe { ((*info.as_ptr()).ssi_signo, (*info.as_ptr()).ssi_code) };
        let signal = signal as i32;
        react::signalled(shared, signal);
        met(signal, code);
    }
}
