//! The source of keys: `key:KEY` on the controlling terminal.
//!
//! A key reaches one reader only. If the command that we start has our terminal as its standard
//! input, a relay stands between it and the terminal; else keys are read here. Given the armed
//! events; gives occurrences. How keys are read, and what a terminal is set to meanwhile, is known
//! to [`sptrace_keys`].

use std::os::fd::RawFd;
use std::time::Instant;

use sptrace_keys::{Pressed, Reading, Relay};

use super::error::EventError;
use super::{Armed, Event, Occurrence, Source, What};
use crate::clock;

/// How keys are waited for.
pub enum Keys {
    /// No event asks for one.
    None,
    /// We read the terminal.
    Read(Reading),
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
        let key = |(event, what): (usize, &Event)| match &what.what {
            What::Key(key) => Some((event, key.clone())),
            _ => None,
        };
        let keys: Vec<_> = armed.iter().filter_map(key).collect();
        if keys.is_empty() {
            return Ok(Self::None);
        }
        if is_launched && sptrace_keys::is_controlling(0) {
            let relay = Relay::open(keys, clock::tsc).map_err(EventError::NoRelay)?;
            return Ok(Self::Relayed(relay));
        }
        let reading = Reading::open(keys, clock::tsc).map_err(EventError::NoTerminal)?;
        Ok(Self::Read(reading))
    }
}

impl Source for Relay {
    fn descriptors(&self) -> Vec<RawFd> {
        self.descriptor().into_iter().collect()
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        found.extend(self.pressed().into_iter().map(occurrence));
    }
}

impl Source for Reading {
    fn descriptors(&self) -> Vec<RawFd> {
        self.descriptor().into_iter().collect()
    }

    fn due(&self) -> Option<Instant> {
        Some(Self::due(self))
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        found.extend(self.pressed().into_iter().map(occurrence));
    }
}

fn occurrence(key: Pressed) -> Occurrence {
    Occurrence {
        event: key.number,
        tsc: key.time,
        pid: 0,
        detail: String::new(),
    }
}
