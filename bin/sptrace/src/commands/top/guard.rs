//! Gives the terminal of `--top` back where sptrace could not, since it was killed.
//!
//! Given the terminal and what it was set to; a small process waits for this one's end, and then
//! does what [`super::screen::Screen`] does when it goes, unless that has. It is no child of ours,
//! whom somebody would wait for. Must not know what is shown.

use sptrace_tracee::pidfd;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Somebody waits to give the terminal back.
pub struct Guard {
    /// A byte in it says that this is done.
    done: File,
}

impl Guard {
    /// Starts the process; `end` is written and `former` set then.
    ///
    /// # Errors
    /// There can be no process or descriptor.
    pub fn begin(tty: &File, former: &libc::termios, end: &'static [u8]) -> io::Result<Self> {
        // It becomes readable when we end.
        let ours = pidfd::open(std::process::id()).ok_or_else(io::Error::last_os_error)?;
        let (read, write) = pipe()?;
        // SAFETY: the child makes system calls only, and does not come back.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                let fds = [ours.as_raw_fd(), read.as_raw_fd(), tty.as_raw_fd()];
                // SAFETY: as above; a child of the child is nobody's here, who waits for any.
                unsafe {
                    if libc::fork() == 0 {
                        wait_and_give_back(fds, former, end);
                    }
                    libc::_exit(0)
                }
            }
            // SAFETY: a child of ours that ends at once.
            _ => unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
        };
        Ok(Self {
            done: File::from(write),
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.done.write_all(b".");
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: it writes two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// The body of the process. Other threads of ours may have held locks when it was made: it makes
/// system calls only. It ignores what the terminal's keys send to all of its group.
///
/// # Safety
/// To be called in a process that has been forked for it.
unsafe fn wait_and_give_back(
    [ours, done, tty]: [RawFd; 3],
    former: &libc::termios,
    end: &[u8],
) -> ! {
    let ignored = [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGTSTP,
        libc::SIGTTOU,
        libc::SIGPIPE,
    ];
    // SAFETY: a process of its own, with one thread; all descriptors are open.
    unsafe {
        for signal in ignored {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"top-guard".as_ptr());
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut both = [entry(ours), entry(done)];
        while libc::poll(both.as_mut_ptr(), 2, -1) < 0 {}
        // Both may have come: then all is done.
        libc::poll(both.as_mut_ptr(), 2, 0);
        if both[1].revents & libc::POLLIN == 0 {
            libc::write(tty, end.as_ptr().cast(), end.len());
            libc::tcsetattr(tty, libc::TCSADRAIN, former);
        }
        libc::_exit(0)
    }
}
