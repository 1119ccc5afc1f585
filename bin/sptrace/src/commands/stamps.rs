//! `--stamps`: for which calls the clock is read.
//!
//! Given what else is asked for; says what of it cannot be had beside that. Must not know what is
//! recorded, and how.

use clap::{Args, ValueEnum};

use crate::commands::record;

/// The option.
#[derive(Args, Debug)]
pub struct StampArgs {
    /// When the clock is read: at the beginning and the end of each call, of calls that are not
    /// short, or for none. Without it exactly which functions are called is recorded, in which
    /// order, and inside of which others, at a part of the price. Times are estimates then, and
    /// marked with ~; those of system calls are measured (--syscalls). Without this option: full,
    /// but none where `run` starts a Go program, of which full would show a part only
    #[arg(help_heading = record::WHAT, long, value_enum, value_name = "WHEN")]
    stamps: Option<Stamps>,
}

impl StampArgs {
    /// What the user has written.
    pub fn asked(&self) -> Option<Stamps> {
        self.stamps
    }
}

/// When the clock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stamps {
    /// At the beginning and the end of each call
    Full,
    /// Of functions whose calls last a microsecond and more on average; others are recorded in
    /// order, and get stamps when they begin to take long
    Auto,
    /// For no call
    None,
}

impl Stamps {
    /// Given what calls cannot be recorded in order beside, and whether it is asked for; `Err`: it
    /// is, in words for the user.
    pub fn check(
        self,
        others: impl IntoIterator<Item = (bool, &'static str)>,
    ) -> Result<(), String> {
        let name = match self {
            Self::Full => return Ok(()),
            Self::Auto => "auto",
            Self::None => "none",
        };
        match others.into_iter().find(|(is_asked, _)| *is_asked) {
            Some((_, other)) => Err(format!(
                "--stamps {name} does not go together with {other}; leave one out"
            )),
            None => Ok(()),
        }
    }

    /// The same for a recording.
    pub fn of_recording(self) -> sptrace_collect::Stamps {
        match self {
            Self::Full => sptrace_collect::Stamps::Full,
            Self::Auto => sptrace_collect::Stamps::Auto,
            Self::None => sptrace_collect::Stamps::None,
        }
    }
}
