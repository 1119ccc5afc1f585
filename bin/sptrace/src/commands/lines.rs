//! How lines of system calls look: strace's options, of `report lines` and of `--live`.
//!
//! Given the options; gives what `sptrace-render` is to be told of them. Must not know where calls
//! come from.

use std::path::Path;

use anyhow::bail;
use clap::{ArgAction, Args, ValueEnum};
use sptrace_render::{DescriptorNames, LinesOptions, ThreadColumn, Time};
use sptrace_types::calls::Selection;
use sptrace_types::calls::descriptors::DescriptorSet;
use sptrace_types::calls::followed;
use sptrace_types::decode::call::{Hex, Options};
use sptrace_types::names::Style;

use crate::commands::selection;

/// Where the results of lines stand.
pub const RESULT_COLUMN: usize = 40;

/// How constants are shown.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantStyle {
    /// O_RDONLY
    Abbrev,
    /// 0
    Raw,
    /// 0 /* O_RDONLY */
    Verbose,
}

/// Options of lines, with strace's letters.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Lines of system calls (report lines, --live)")]
pub struct LineArgs {
    /// Show only these system calls: SET or trace=SET, as of strace (names, %file, %process,
    /// %network, %memory, %desc, %signal, %ipc, !, /regex/); status=successful or status=failed as
    /// -z and -Z; fd=SET: only calls with one of these descriptors as an argument (numbers with
    /// commas; !: all others). --live records no others, unless -y or -P needs them (repeatable)
    #[arg(short = 'e', long = "trace", value_name = "EXPR")]
    chosen: Vec<String>,
    /// Show only calls on PATH, or on a descriptor that leads to it; without -y, --live records no
    /// others that surely lead elsewhere (repeatable)
    #[arg(short = 'P', long = "trace-path", value_name = "PATH")]
    paths: Vec<String>,
    /// Show the time of the day (UTC) in front of lines; -tt: with microseconds; -ttt: seconds
    /// since 1970
    #[arg(short = 't', action = ArgAction::Count)]
    time: u8,
    /// Show the time since the line before
    #[arg(short = 'r')]
    relative: bool,
    /// Show how long each call took
    #[arg(short = 'T')]
    spent: bool,
    /// Show the thread's id, also where there is one thread
    #[arg(short = 'f')]
    with_tid: bool,
    /// Show what descriptors lead to; -yy: of sockets their addresses
    #[arg(short = 'y', action = ArgAction::Count)]
    descriptors: u8,
    /// Show structures whole
    #[arg(short = 'v')]
    verbose: bool,
    /// Show strings with bytes that are not printable ASCII in hexadecimal; -xx: all strings
    #[arg(short = 'x', action = ArgAction::Count)]
    hex: u8,
    /// Show flags and other constants by name, as numbers, or as numbers with names beside them
    #[arg(
        short = 'X',
        long = "const-print-style",
        value_name = "STYLE",
        default_value = "abbrev"
    )]
    style: ConstantStyle,
    /// Show only calls that succeeded
    #[arg(short = 'z', conflicts_with = "failed")]
    succeeded: bool,
    /// Show only calls that failed
    #[arg(short = 'Z')]
    failed: bool,
    /// Show the numbers of calls
    #[arg(short = 'n')]
    number: bool,
}

impl LineArgs {
    /// True if none of these options was given.
    pub fn is_default(&self) -> bool {
        let none = Self {
            chosen: Vec::new(),
            paths: Vec::new(),
            time: 0,
            relative: false,
            spent: false,
            with_tid: false,
            descriptors: 0,
            verbose: false,
            hex: 0,
            style: ConstantStyle::Abbrev,
            succeeded: false,
            failed: false,
            number: false,
        };
        *self == none
    }

    /// The calls that are to be shown; `None`: all.
    ///
    /// # Errors
    /// It is no set of calls.
    pub fn wanted(&self) -> anyhow::Result<Option<Selection>> {
        let Some(text) = self.set() else {
            return Ok(None);
        };
        match selection::parse(&text) {
            Ok(selection) => Ok(Some(selection)),
            Err(why) => bail!("-e {text}: {why}"),
        }
    }

    /// The descriptors that calls must be on to be shown; `None`: any.
    ///
    /// # Errors
    /// It is no set of them.
    pub fn on_descriptors(&self) -> anyhow::Result<Option<DescriptorSet>> {
        let Some(text) = self.last_of("fd") else {
            return Ok(None);
        };
        match DescriptorSet::parse(text) {
            Ok(set) => Ok(Some(set)),
            Err(why) => bail!("-e fd={text}: {why}"),
        }
    }

    /// What descriptors lead to is shown or asked for, which is learnt from other calls.
    fn follows(&self) -> bool {
        self.descriptors > 0 || !self.paths.is_empty()
    }

    /// The set of calls that must be recorded for what is to be shown.
    ///
    /// # Errors
    /// What is to be shown is no set of calls.
    pub fn recorded(&self) -> anyhow::Result<String> {
        let on_paths = !self.paths.is_empty();
        if !self.follows() || self.set().is_none() && !on_paths {
            return Ok(self.set().unwrap_or_else(|| "all".to_owned()));
        }
        let wanted = self.wanted()?;
        let is_shown = |number| wanted.as_ref().is_none_or(|set| set.contains(number));
        Ok(followed::needed(is_shown, on_paths))
    }

    /// The descriptors that calls must be on to be recorded; `None`: any.
    ///
    /// # Errors
    /// It is no set of them.
    pub fn recorded_descriptors(&self) -> anyhow::Result<Option<DescriptorSet>> {
        let asked = self.on_descriptors()?;
        Ok(asked.filter(|_| !self.follows()))
    }

    /// The paths that calls on descriptors must be on to be recorded; empty: any. Without -y, which
    /// may show what others lead to.
    pub fn recorded_paths(&self) -> Vec<String> {
        // What is no file's name may be that of a socket, or of memory.
        let is_special = |path: &String| path.contains(':') || path.contains("(deleted)");
        let is_asked_otherwise = self.descriptors > 0 || self.last_of("fd").is_some();
        if is_asked_otherwise || self.paths.iter().any(is_special) {
            return Vec::new();
        }
        let mut all = self.all_paths();
        all.retain(|path| path.starts_with('/'));
        all
    }

    /// The paths that are asked for, and where their links lead.
    fn all_paths(&self) -> Vec<String> {
        let given = self.paths.iter().cloned();
        let resolved = self.paths.iter().filter_map(|path| resolve(path));
        given.chain(resolved).collect()
    }

    /// Whether calls must have succeeded to be recorded, or must have failed.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn recorded_results(&self) -> anyhow::Result<Option<bool>> {
        let asked = self.succeeded()?;
        Ok(asked.filter(|_| !self.follows()))
    }

    /// How long calls must take to be recorded, if those are shown that take `least_ns`.
    pub fn recorded_length(&self, least_ns: u64) -> u64 {
        if self.follows() { 0 } else { least_ns }
    }

    /// Whether calls must have succeeded to be shown, or must have failed.
    fn succeeded(&self) -> anyhow::Result<Option<bool>> {
        let by_letter = match (self.succeeded, self.failed) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let by_name = match self.last_of("status") {
            None | Some("all") => None,
            Some("successful") => Some(true),
            Some("failed") => Some(false),
            Some(other) => bail!("-e status={other}: only successful, failed and all are known"),
        };
        if let (Some(letter), Some(name)) = (by_letter, by_name)
            && letter != name
        {
            bail!("-e status= says other than -z or -Z does");
        }
        Ok(by_letter.or(by_name))
    }

    /// The last expression of a kind.
    fn last_of(&self, kind: &str) -> Option<&str> {
        let mut last = self.chosen.iter().rev();
        last.find_map(|text| text.strip_prefix(kind)?.strip_prefix('='))
    }

    /// The set of calls of all expressions that name one.
    fn set(&self) -> Option<String> {
        let is_other =
            |text: &&String| ["fd=", "status="].iter().any(|kind| text.starts_with(kind));
        let sets = self.chosen.iter().filter(|text| !is_other(text));
        let sets: Vec<_> = sets.map(|text| set_of(text)).collect();
        (!sets.is_empty()).then(|| sets.join(","))
    }

    /// How lines shall look, of all calls, and without an end.
    ///
    /// # Errors
    /// It is no set of calls.
    pub fn options<'a>(
        &self,
        string_limit: usize,
        column: usize,
    ) -> anyhow::Result<LinesOptions<'a>> {
        Ok(LinesOptions {
            calls: Options {
                string_limit,
                verbose: self.verbose,
                hex: match self.hex {
                    0 => Hex::Never,
                    1 => Hex::NonAscii,
                    _ => Hex::All,
                },
                style: match self.style {
                    ConstantStyle::Abbrev => Style::Abbrev,
                    ConstantStyle::Raw => Style::Raw,
                    ConstantStyle::Verbose => Style::Verbose,
                },
                path_of: None,
            },
            thread: match self.with_tid {
                true => ThreadColumn::Always,
                false => ThreadColumn::WhenSeveral,
            },
            time: match self.time {
                0 => Time::None,
                1 => Time::Seconds,
                2 => Time::Microseconds,
                _ => Time::Unix,
            },
            is_relative: self.relative,
            with_duration: self.spent,
            column,
            wanted: self.wanted()?,
            on_descriptors: self.on_descriptors()?,
            succeeded: self.succeeded()?,
            min_ticks: 0,
            with_number: self.number,
            limit: None,
            descriptors: match self.descriptors {
                0 => DescriptorNames::None,
                1 => DescriptorNames::Paths,
                _ => DescriptorNames::Addresses,
            },
            paths: self.all_paths(),
            resolve,
            functions: None,
        })
    }
}

fn set_of(text: &str) -> &str {
    text.strip_prefix("trace=").unwrap_or(text)
}

/// Follows the symbolic links of a path as they are now. Links of devices and of processes lead
/// elsewhere for each process.
fn resolve(path: &str) -> Option<String> {
    if path.starts_with("/dev/") || path.starts_with("/proc/") {
        return None;
    }
    let found = Path::new(path).canonicalize().ok()?;
    Some(found.to_string_lossy().into_owned())
}
