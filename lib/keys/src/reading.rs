//! Keys that are read from the controlling terminal, which no command of ours reads.
//!
//! A key reaches one reader only: a program that opens /dev/tty itself competes with us (a password
//! prompt, a pager). While we are in the terminal's foreground it is in non-canonical mode without
//! echo, so that keys come as they are pressed; signals by key (ctrl-c) go on working. In the
//! background nothing is read and no setting touched. The settings come back when this value goes;
//! only after SIGKILL they do not (`stty sane`).

use crate::key::{Key, tokens};
use crate::pressed::{Clock, Pressed};
use crate::relay::controlling;
use crate::settings;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// How often we look whether we have come into the foreground.
const LOOK: Duration = Duration::from_millis(200);

/// The controlling terminal.
pub struct Reading {
    file: File,
    keys: Vec<(usize, Key)>,
    clock: Clock,
    former: Option<libc::termios>,
    is_ours: bool,
    due: Instant,
}

impl Reading {
    /// Opens the terminal. Its settings are changed at the first look, when a signal does not end
    /// us any more.
    ///
    /// # Errors
    /// There is none.
    pub fn open(keys: Vec<(usize, Key)>, clock: Clock) -> std::io::Result<Self> {
        Ok(Self {
            file: controlling()?,
            keys,
            clock,
            former: None,
            is_ours: false,
            due: Instant::now(),
        })
    }

    /// Readable when a key was pressed; `None`: reading in the background would stop us.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.is_ours.then(|| self.file.as_raw_fd())
    }

    /// When to look again whether we are in the foreground.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Reads what was typed, if it is ours to read.
    pub fn pressed(&mut self) -> Vec<Pressed> {
        let mut found = Vec::new();
        self.take();
        if !self.is_ours {
            return found;
        }
        let mut bytes = [0; 256];
        let read = self.file.read(&mut bytes);
        if matches!(read, Ok(0)) {
            // The terminal has gone: its descriptor would be readable for ever.
            self.keys.clear();
        }
        let time = (self.clock)();
        for token in tokens(&bytes[..read.unwrap_or(0)]) {
            let meant = self.keys.iter().filter(|(_, key)| key.is(token));
            found.extend(meant.map(|(number, _)| Pressed {
                number: *number,
                time,
            }));
        }
        found
    }

    fn is_foreground(&self) -> bool {
        settings::is_foreground(self.file.as_raw_fd())
    }

    /// Puts the terminal into our mode if it is ours to set and not in it. Whoever brought us to
    /// the foreground may have set it anew.
    fn take(&mut self) {
        self.due = Instant::now() + LOOK;
        self.is_ours = self.is_foreground();
        if !self.is_ours {
            return;
        }
        let Some(present) = settings::of(self.file.as_raw_fd()) else {
            return;
        };
        if present.c_lflag & libc::ICANON == 0 {
            return;
        }
        let mut wanted = present;
        wanted.c_lflag &= !(libc::ICANON | libc::ECHO);
        wanted.c_cc[libc::VMIN] = 1;
        wanted.c_cc[libc::VTIME] = 0;
        self.former.get_or_insert(present);
        settings::set(self.file.as_raw_fd(), &wanted);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // In the background it has the settings of whoever is in the foreground.
        if let Some(former) = self.former.filter(|_| self.is_foreground()) {
            settings::set(self.file.as_raw_fd(), &former);
        }
    }
}
