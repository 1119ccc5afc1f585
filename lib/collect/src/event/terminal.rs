//! The source of keys: `key:KEY` on the controlling terminal.
//!
//! A key reaches one reader only. If the command that we start has our terminal as its standard
//! input, a [`Relay`] stands between it and the terminal. Else keys are read here (a program that
//! opens /dev/tty itself competes with us: a password prompt, a pager). While we are in the
//! terminal's foreground it is in non-canonical mode without echo, so that keys come as they are
//! pressed; signals by key (ctrl-c) go on working. In the background nothing is read and no setting
//! touched. The settings come back when this value goes; only after SIGKILL they do not (`stty
//! sane`).

use super::error::EventError;
use super::key::{Key, tokens};
use super::relay::{Relay, controlling};
use super::{Armed, Occurrence, Source, What, settings};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
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

/// How keys are waited for.
pub enum Keys {
    /// No event asks for one.
    None,
    /// We read the terminal.
    Read(Terminal),
    /// The command does.
    Relayed(Relay),
}

impl Keys {
    /// Opens the terminal if there are keys to wait for. `is_launched`: a command will be started
    /// that has our standard input.
    ///
    /// # Errors
    /// There is no terminal, or the command cannot get one.
    pub fn open(armed: &Armed, is_launched: bool) -> Result<Self, EventError> {
        let key = |(event, what): (usize, &super::Event)| match &what.what {
            What::Key(key) => Some((event, key.clone())),
            _ => None,
        };
        let keys: Vec<_> = armed.iter().filter_map(key).collect();
        if keys.is_empty() {
            return Ok(Self::None);
        }
        if is_launched && settings::is_controlling(0) {
            return Relay::open(keys).map(Self::Relayed);
        }
        let file = controlling().map_err(EventError::NoTerminal)?;
        // Its settings are changed at the first look, when a signal does not end us any more.
        Ok(Self::Read(Terminal {
            file,
            keys,
            former: None,
            is_ours: false,
            due: Instant::now(),
        }))
    }
}

impl Terminal {
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

impl Drop for Terminal {
    fn drop(&mut self) {
        // In the background it has the settings of whoever is in the foreground.
        if let Some(former) = self.former.filter(|_| self.is_foreground()) {
            settings::set(self.file.as_raw_fd(), &former);
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
