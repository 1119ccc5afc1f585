//! What a terminal is set to (termios(3)), how large it is, and whether it is ours to set and to
//! read.
//!
//! Given descriptors of terminals; failures mean that there is none any more, and are `None` or
//! nothing.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Its settings.
pub fn of(terminal: RawFd) -> Option<libc::termios> {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the structure is read only if the call has filled it.
    unsafe {
        (libc::tcgetattr(terminal, settings.as_mut_ptr()) == 0).then(|| settings.assume_init())
    }
}

/// Changes its settings; what was typed stays.
pub fn set(terminal: RawFd, settings: &libc::termios) {
    // SAFETY: a whole structure.
    unsafe { libc::tcsetattr(terminal, libc::TCSANOW, settings) };
}

/// Those with which every byte passes in both directions as it is, at once.
pub fn raw(mut settings: libc::termios) -> libc::termios {
    // SAFETY: a whole structure of ours.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    settings.c_cc[libc::VMIN] = 1;
    settings.c_cc[libc::VTIME] = 0;
    settings
}

/// Do they say the same of input, output and lines?
pub fn is_same(one: &libc::termios, other: &libc::termios) -> bool {
    let flags = |s: &libc::termios| (s.c_iflag, s.c_oflag, s.c_cflag, s.c_lflag);
    let least = |s: &libc::termios| (s.c_cc[libc::VMIN], s.c_cc[libc::VTIME]);
    flags(one) == flags(other) && least(one) == least(other)
}

/// Is it our controlling terminal, whatever name it was opened by?
pub fn is_controlling(descriptor: RawFd) -> bool {
    // SAFETY: fails for everything else.
    unsafe { libc::tcgetpgrp(descriptor) >= 0 }
}

/// Are we in its foreground?
pub fn is_foreground(terminal: RawFd) -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::tcgetpgrp(terminal) == libc::getpgrp() }
}

/// Makes `to` as large as `from`; the kernel tells the foreground of `to` if that is another size.
pub fn copy_size(from: RawFd, to: RawFd) {
    let mut size = MaybeUninit::<libc::winsize>::uninit();
    // SAFETY: the structure is read only if the call has filled it.
    unsafe {
        if libc::ioctl(from, libc::TIOCGWINSZ, size.as_mut_ptr()) == 0 {
            libc::ioctl(to, libc::TIOCSWINSZ, size.as_ptr());
        }
    }
}
