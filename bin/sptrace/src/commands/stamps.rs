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
    /// but none of a Go program that `run` starts with options that leave it without return points
    #[arg(help_heading = record::WHAT, long, value_enum, value_name = "WHEN")]
    stamps: Option<Stamps>,
    /// Leave every return address on the stack as it is, and see the end of a call at the place
    /// that it returns to. Whoever walks the program's stack then, from inside or outside, sees
    /// what is there without sptrace, and calls of a Go program have stamps and ends. Of a few
    /// calls the end is not seen, nor what they return. A process of several threads that is
    /// attached to is stopped for some milliseconds a few times more for it. Options that count
    /// calls, or record them without stamps, do not go together with `always`, which is what the
    /// option alone means. Without it: auto
    #[arg(help_heading = record::WHAT, long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    return_points: Option<ReturnPoints>,
}

impl StampArgs {
    /// What the user has written.
    pub fn asked(&self) -> Option<Stamps> {
        self.stamps
    }

    /// Given what calls cannot be recorded by their return points beside, and whether it is asked
    /// for; and whether it suits them, if nothing is said. Gives whether they are. `Err`: they are
    /// asked for beside what they cannot be, in words for the user.
    pub fn return_points(
        &self,
        stamps: Stamps,
        others: impl IntoIterator<Item = (bool, &'static str)>,
        suits: bool,
    ) -> Result<bool, String> {
        let own = [(stamps != Stamps::Full, "--stamps auto and none")];
        let other = own
            .into_iter()
            .chain(others)
            .find(|(is_asked, _)| *is_asked);
        match (self.return_points.unwrap_or(ReturnPoints::Auto), other) {
            (ReturnPoints::Never, _) => Ok(false),
            (ReturnPoints::Auto, other) => Ok(other.is_none() && suits),
            (ReturnPoints::Always, None) => Ok(true),
            (ReturnPoints::Always, Some((_, other))) => Err(format!(
                "--return-points does not go together with {other}; leave one out"
            )),
        }
    }
}

/// When the ends of calls are seen at the places that they return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReturnPoints {
    /// Unless options choose functions or system calls, or ask for values. Of programs made by Go
    /// 1.18 to 1.24 also beside these, and of other releases of Go never
    Auto,
    /// In any case
    Always,
    /// Return addresses are replaced by some of sptrace's own while a call lasts
    Never,
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
