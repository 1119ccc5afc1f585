//! The source of keys: `key:KEY` on the controlling terminal.
//!
//! A key reaches one reader only, and the terminal belongs to the traced program. So keys are read only
//! when the command's standard input is another (then a program that opens /dev/tty itself still competes
//! with us: a password prompt, a pager). While we are in the terminal's foreground it is in non-canonical mode
//! without echo, so that keys come as they are pressed; signals by key (ctrl-c) go on working. In the
//! background nothing is read and no setting touched. The settings come back when this value goes; only
//! after SIGKILL they do not (`stty sane`).

use super::error::EventError;
use super::key::{Key, tokens};
use super::{Armed, Occurrence, Source, What};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// How often we look whether we have come into the foreground.
const LOOK: Duration = Duration::from_millis(200);

/// The controlling terminal.
pub struct Terminal {
    file: File,
    keys: Vec<(usize, Key)>,
    former: Option<libc::termios>,
    is_ours: bool,
    due: Instant,
}

impl Terminal {
    /// Opens it if there are keys to wait for.
    ///
    /// # Errors
    /// There is none, or the command reads it.
    pub fn open(armed: &Armed) -> Result<Option<Self>, EventError> {
        let key = |(event, what): (usize, &super::Event)| match &what.what {
            What::Key(key) => Some((event, key.clone())),
            _ => None,
        };
        let keys: Vec<_> = armed.iter().filter_map(key).collect();
        if keys.is_empty() {
            return Ok(None);
        }
        if std::io::stdin().is_terminal() {
            return Err(EventError::TerminalInUse);
        }
        let mut how = OpenOptions::new();
        how.read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = how.open("/dev/tty").map_err(EventError::NoTerminal)?;
        // Its settings are changed at the first look, when a signal does not end us any more.
        Ok(Some(Self {
            file,
            keys,
            former: None,
            is_ours: false,
            due: Instant::now(),
        }))
    }

    fn is_foreground(&self) -> bool {
        // SAFETY: our own descriptor.
        unsafe { libc::tcgetpgrp(self.file.as_raw_fd()) == libc::getpgrp() }
    }

    /// Puts the terminal into our mode if it is ours to set and not in it. Whoever brought us to the
    /// foreground may have set it anew.
    fn take(&mut self) {
        self.due = Instant::now() + LOOK;
        self.is_ours = self.is_foreground();
        if !self.is_ours {
            return;
        }
        let mut settings = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: our own descriptor; the structure is read only if the call has filled it.
        let present = unsafe {
            if libc::tcgetattr(self.file.as_raw_fd(), settings.as_mut_ptr()) != 0 {
                return;
            }
            settings.assume_init()
        };
        if present.c_lflag & libc::ICANON == 0 {
            return;
        }
        let mut wanted = present;
        wanted.c_lflag &= !(libc::ICANON | libc::ECHO);
        wanted.c_cc[libc::VMIN] = 1;
        wanted.c_cc[libc::VTIME] = 0;
        self.former.get_or_insert(present);
        self.set(&wanted);
    }

    fn set(&self, settings: &libc::termios) {
        // SAFETY: our own descriptor and a whole structure.
        unsafe { libc::tcsetattr(self.file.as_raw_fd(), libc::TCSANOW, settings) };
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // In the background it has the settings of whoever is in the foreground.
        if let Some(former) = self.former.filter(|_| self.is_foreground()) {
            self.set(&former);
        }
    }
}

impl Source for Terminal {
    fn descriptors(&self) -> Vec<RawFd> {
        // Reading in the background would stop us.
        match self.is_ours {
            true => vec![self.file.as_raw_fd()],
            false => Vec::new(),
        }
    }

    fn due(&self) -> Option<Instant> {
        Some(self.due)
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        self.take();
        if !self.is_ours {
            return;
        }
        let mut bytes = [0; 256];
        let read = self.file.read(&mut bytes);
        if matches!(read, Ok(0)) {
            // The terminal has gone: its descriptor would be readable for ever.
            self.keys.clear();
        }
        let tsc = crate::clock::tsc();
        for token in tokens(&bytes[..read.unwrap_or(0)]) {
            let meant = self.keys.iter().filter(|(_, key)| key.is(token));
            found.extend(meant.map(|(event, _)| Occurrence {
                event: *event,
                tsc,
                pid: 0,
                detail: String::new(),
            }));
        }
    }
}
