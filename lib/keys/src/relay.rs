//! Keys when the command reads the terminal, too: with a relay in between.
//!
//! The command gets a terminal of its own (a pseudo-terminal, pty(7);
//! [`sptrace_tracee::terminal`]). A process of its own, the *relay* ([`process`]), hands on what is
//! typed on ours, but for the keys that are waited for ([`sieve`]), and what the command writes;
//! it tells us of the keys. It needs nothing of us: when we are stopped or killed the command goes
//! on at its terminal. What we say while it works goes the same way as what the command says.
//!
//! Given the keys; gives the command's terminal, and which were pressed. When this value goes,
//! everything that the command has written is on our terminal, and that has its settings again.

mod process;
mod sieve;

use crate::key::Key;
use crate::pressed::{Clock, Pressed};
use crate::settings;
use sptrace_tracee::terminal::Terminal;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// What the relay tells of a key: its number and the time.
const MESSAGE_BYTES: usize = 16;
/// What we tell the relay: the command has ended.
const END: u8 = b'e';

/// The controlling terminal, opened anew: what is set for this descriptor is set for nobody else's.
pub(crate) fn controlling() -> Result<File> {
    let mut how = OpenOptions::new();
    how.read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC);
    how.open("/dev/tty")
}

/// Our side of the relay.
pub struct Relay {
    host: OwnedFd,
    terminal: File,
    former: libc::termios,
    /// Until the command has it.
    slave: OwnedFd,
    begun: Option<OwnedFd>,
    streams: [bool; 3],
    is_job: bool,
    /// What was our standard error.
    stderr: Option<OwnedFd>,
    is_gone: bool,
}

impl Relay {
    /// Opens the command's terminal and starts the relay, which waits for the command. Forks: no
    /// other thread of ours must be in the middle of something.
    ///
    /// # Errors
    /// No such terminal, or no process.
    pub fn open(keys: Vec<(usize, Key)>, clock: Clock) -> Result<Self> {
        let terminal = controlling()?;
        let former = settings::of(terminal.as_raw_fd()).ok_or_else(Error::last_os_error)?;
        let (master, slave) = pair()?;
        settings::set(slave.as_raw_fd(), &former);
        settings::copy_size(terminal.as_raw_fd(), slave.as_raw_fd());
        let [host, theirs] = sockets()?;
        let [told, begun] = pipe()?;
        let is_job = has_shell();
        let streams = [0, 1, 2].map(settings::is_controlling);
        process::spawn(process::Ends {
            terminal: terminal.as_raw_fd(),
            former,
            master: master.as_raw_fd(),
            slave: slave.as_raw_fd(),
            host: theirs.as_raw_fd(),
            begun: told.as_raw_fd(),
            keys,
            clock,
            is_job,
            is_shared: !streams[1],
        })?;
        Ok(Self {
            host,
            terminal,
            former,
            slave,
            begun: Some(begun),
            streams,
            is_job,
            stderr: None,
            is_gone: false,
        })
    }

    /// For the command's launch.
    pub fn terminal(&self) -> Option<Terminal<'_>> {
        Some(Terminal {
            slave: self.slave.as_fd(),
            streams: self.streams,
            begun: self.begun.as_ref()?.as_fd(),
            is_job: self.is_job,
        })
    }

    /// The command has its terminal.
    pub fn launched(&mut self) {
        self.begun = None;
        if !self.streams[2] {
            return;
        }
        // SAFETY: descriptors of ours; standard error is nobody's property.
        unsafe {
            let former = libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3);
            if former >= 0 {
                self.stderr = Some(OwnedFd::from_raw_fd(former));
                libc::dup2(self.slave.as_raw_fd(), 2);
            }
        }
    }

    /// The next message; `None`: there is none yet, or the relay has gone.
    fn receive(&mut self, flags: i32) -> Option<[u8; MESSAGE_BYTES]> {
        let mut message = [0; MESSAGE_BYTES];
        let fd = self.host.as_raw_fd();
        // SAFETY: the buffer has the size that is said.
        let got = unsafe { libc::recv(fd, message.as_mut_ptr().cast(), MESSAGE_BYTES, flags) };
        let is_none = got < 0
            && matches!(
                Error::last_os_error().raw_os_error(),
                Some(libc::EAGAIN | libc::EINTR)
            );
        self.is_gone |= got == 0 || got < 0 && !is_none;
        (got == MESSAGE_BYTES as isize).then_some(message)
    }

    fn gone(&mut self) {
        if let Some(former) = self.stderr.take() {
            // SAFETY: as in `launched`.
            unsafe { libc::dup2(former.as_raw_fd(), 2) };
        }
        // It has done so itself, unless it was killed.
        let terminal = self.terminal.as_raw_fd();
        if settings::is_foreground(terminal) {
            settings::set(terminal, &self.former);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.begun = None;
        // SAFETY: one byte.
        unsafe {
            libc::send(
                self.host.as_raw_fd(),
                [END].as_ptr().cast(),
                1,
                libc::MSG_NOSIGNAL,
            )
        };
        while !self.is_gone {
            self.receive(0);
        }
        self.gone();
    }
}

impl Relay {
    /// Readable when a key was pressed; `None`: the relay has gone.
    pub fn descriptor(&self) -> Option<RawFd> {
        (!self.is_gone).then(|| self.host.as_raw_fd())
    }

    /// Takes what the relay has told of.
    pub fn pressed(&mut self) -> Vec<Pressed> {
        let mut found = Vec::new();
        if self.is_gone {
            return found;
        }
        while let Some(message) = self.receive(libc::MSG_DONTWAIT) {
            let (key, time) = message.split_at(8);
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            found.push(Pressed {
                number: number(key) as usize,
                time: number(time),
            });
        }
        if self.is_gone {
            self.gone();
        }
        found
    }
}

/// Both sides of a new pseudo-terminal. The slave is not looked up by name: another mount of devpts
/// may be there.
fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let how = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: each gives a fresh descriptor or an error.
    unsafe {
        let master = libc::posix_openpt(how | libc::O_NONBLOCK);
        if master < 0 {
            return Err(Error::last_os_error());
        }
        let master = OwnedFd::from_raw_fd(master);
        let fd = master.as_raw_fd();
        if libc::grantpt(fd) != 0 || libc::unlockpt(fd) != 0 {
            return Err(Error::last_os_error());
        }
        let slave = libc::ioctl(fd, libc::TIOCGPTPEER, how);
        if slave < 0 {
            return Err(Error::last_os_error());
        }
        Ok((master, OwnedFd::from_raw_fd(slave)))
    }
}

fn sockets() -> Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, fresh ones if it succeeds.
    unsafe {
        match libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) {
            0 => Ok(ends.map(|fd| OwnedFd::from_raw_fd(fd))),
            _ => Err(Error::last_os_error()),
        }
    }
}

fn pipe() -> Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: as above.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok(ends.map(|fd| OwnedFd::from_raw_fd(fd))),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// Was our group started by a shell with job control? Else nobody would go on with a stopped one:
/// it is orphaned.
fn has_shell() -> bool {
    // SAFETY: no memory is touched.
    unsafe {
        let parent = libc::getppid();
        libc::getsid(parent) == libc::getsid(0) && libc::getpgid(parent) != libc::getpgrp()
    }
}
