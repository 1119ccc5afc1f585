//! What a recording is asked for: one value, whoever asks.
//!
//! The command line makes it of options, and a script may make it of its own. A new option of a
//! recording is a field here and its use. Must not know how it was asked for, nor how it is done.

use crate::modules::load::Plans;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sptrace_code::Places;
use sptrace_trace::{Level, glob_matches};
use sptrace_tracee::at_start::AtStart;

use crate::acts::Payloads;
use crate::bids::{Bid, Deed};
use crate::captures::SystemCalls;
use crate::event::rule::Rule;
use crate::event::switch::Switch;
use crate::event::{Event, What};
use crate::modules::decide::Decide;
use crate::tap::Tap;
use crate::values::Asked;

/// What a recording is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The arguments of the command, launched or running: for the trace's header.
    pub command: Vec<String>,
    /// What is recorded, where to, and how much of it.
    pub options: Options,
    /// When it is recorded, and what happens meanwhile.
    pub events: OnEvents,
}

/// What is recorded, where to, and how much of it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace file.
    pub output: PathBuf,
    /// Chunks of 64 KiB to record into.
    pub chunks: u32,
    /// Lose events rather than wait when all are full.
    pub drop_when_full: bool,
    /// Record ld.so's start-up work.
    pub loader: bool,
    /// Depth below which nothing is instrumented; 0: none.
    pub depth_limit: u32,
    /// End recording when the file has this many bytes; 0: never.
    pub max_bytes: u64,
    /// Keep about so many bytes of the end of the recording; 0: all of it.
    pub ring_bytes: u64,
    /// Where analyses are kept.
    pub cache: Places,
    /// Name patterns (base names, `*` at the ends) of modules to record; empty: all.
    pub modules: Vec<String>,
    /// Globs of functions at which recording begins; empty: at the program's start.
    pub within: Vec<String>,
    /// Globs of functions that are not recorded, nor anything that only they call.
    pub without: Vec<String>,
    /// What becomes of each function; None: nothing else than the globs say.
    pub decide: Option<Decide>,
    /// Count calls, and record none.
    pub counts: bool,
    /// Functions that are called too often are counted, until they are not.
    pub limit: Option<Limit>,
    /// Calls that are counted are recorded in order for that, and counted by us: which of them are
    /// wanted depends on what is around them, which a slot that counts does not know.
    pub counts_records: bool,
    /// Which calls are recorded with stamps.
    pub stamps: Stamps,
    /// Calls keep their return addresses; their ends are seen where they return to.
    pub keeps_returns: bool,
    /// Values of functions to be recorded; None: none.
    pub values: Option<Asked>,
    /// What runs inside of the program, at the calls of functions; None: nothing.
    pub payloads: Option<Payloads>,
    /// Levels of functions from the beginning, by globs: the last that fits counts.
    pub levels: Vec<(String, Level)>,
    /// What payloads may bid the host do.
    pub bids: Vec<Bid>,
    /// System calls to be recorded; None: none.
    pub system_calls: Option<SystemCalls>,
    /// Who is told of system calls while they are recorded.
    pub tap: Option<Tap>,
    /// A child of ours that has nothing to do with the recording.
    pub helper: Option<u32>,
    /// Shows a line of progress; does nothing where there is no terminal.
    pub show_progress: fn(&str),
    /// What sptrace was started with, for the command.
    pub at_start: AtStart,
}

/// Which calls are recorded with stamps and ends; the others are recorded in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// All.
    Full,
    /// Those of functions whose calls are not short.
    Auto,
    /// None.
    None,
}

/// What is too often for calls to be recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// So many calls of one function a second.
    Rate(u64),
    /// The same, of functions alone whose calls last less than this on average.
    Short {
        /// Calls of one function a second.
        calls_per_s: u64,
        /// How long calls last.
        shorter_than: Duration,
    },
    /// What a payload says.
    Bidden,
    /// What all of them cost is more than such a share of the program's CPU time.
    Budget(f64),
}

impl Options {
    /// True if system calls alone are recorded.
    pub fn records_no_functions(&self) -> bool {
        self.system_calls.as_ref().is_some_and(|calls| calls.only)
    }

    /// Calls keep their return addresses, or not; where system calls alone are recorded there are
    /// none.
    pub fn keep_returns(&mut self, shall: bool) {
        self.keeps_returns = shall && !self.records_no_functions();
    }

    /// What the calls of modules are planned for.
    pub(crate) fn plans(&self) -> Plans {
        let system_calls = self.system_calls.is_some();
        match (self.counts, self.limit) {
            _ if self.stamps_of_slots() == Stamps::None => Plans::InOrder { system_calls },
            _ if self.stamps == Stamps::Auto => Plans::Mixed { system_calls },
            (true, _) => Plans::Count,
            (false, Some(_)) if self.counts_records => Plans::LevelsInOrder { system_calls },
            (false, Some(_)) => Plans::Levels { system_calls },
            (false, None) if self.keeps_returns => Plans::Returns,
            (false, None) => Plans::Record,
        }
    }

    /// Which calls slots record with stamps, whatever becomes of the others.
    pub(crate) fn stamps_of_slots(&self) -> Stamps {
        match self.counts && self.counts_records {
            true => Stamps::None,
            false => self.stamps,
        }
    }

    /// Globs of functions whose values are switched off and on.
    pub(crate) fn switched_values(&self) -> Vec<String> {
        let bidden = self.bids.iter().filter_map(|bid| match &bid.deed {
            Deed::Level(glob, level) => Some((glob, level)),
            _ => None,
        });
        let first = self.levels.iter().map(|(glob, level)| (glob, level));
        let all = first.chain(bidden);
        let all = all.filter(|(_, level)| matches!(level, Level::Recorded | Level::Plain));
        all.map(|(glob, _)| glob.clone()).collect()
    }

    /// True if calls of execve(2) are recorded.
    pub fn records_execve(&self) -> bool {
        const EXECVE: u32 = 59;
        let asked = self.system_calls.as_ref();
        asked.is_some_and(|calls| calls.wanted.contains(EXECVE))
    }

    /// True if the user's choice leaves the functions of this file out.
    pub fn leaves_out(&self, path: &str) -> bool {
        if self.records_no_functions() {
            return true;
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        !self.modules.is_empty() && !self.modules.iter().any(|m| glob_matches(m, name))
    }
}

/// When it is recorded, and what happens meanwhile.
#[derive(Clone, Debug)]
pub struct OnEvents {
    /// A command will be started, which has our terminal; else there is one already, which has not.
    pub is_launched: bool,
    /// Begin the recording at the first of these; none: at the command's start.
    pub start_on: Vec<Event>,
    /// Until then the command is followed, and nothing recorded: calls can begin the recording.
    pub shadow: bool,
    /// Record the calls of some functions between two events each.
    pub between: Vec<Rule>,
    /// Write the ring out at these.
    pub dump_on: Vec<Event>,
    /// End the recording at these.
    pub stop_on: Vec<Event>,
    /// How often each of `dump_on` does so, each of `between` opens, and the recording begins and
    /// ends.
    pub times: u64,
    /// Who looks at the recording may pause it, and leave functions out, by this; where no other
    /// event begins or ends it.
    pub switch: Option<Switch>,
    /// Tells the user of a dump.
    pub say: fn(&str),
    /// Tells the user of a dump that failed.
    pub warn: fn(&str),
}

impl OnEvents {
    /// No event says when it is recorded, so that somebody may who looks at it.
    pub fn can_be_switched(&self) -> bool {
        let all = [&self.start_on, &self.dump_on, &self.stop_on];
        all.iter().all(|events| events.is_empty()) && self.between.is_empty() && !self.shadow
    }
}

impl Request {
    /// Where the trace will be, if one is begun before an event. Where there are only dumps, no
    /// file is begun, and what has the name stays until the first.
    pub fn begun(&self) -> Option<&Path> {
        let has_file = self.events.dump_on.is_empty();
        has_file.then_some(&self.options.output)
    }

    /// The command runs by itself before the recording begins.
    pub fn is_later(&self) -> bool {
        !self.events.start_on.is_empty() && !self.events.shadow
    }

    /// A key is an event.
    pub fn reads_keys(&self) -> bool {
        let events = &self.events;
        let rules = events.between.iter();
        let of_rules = rules.flat_map(|rule| rule.start.iter().chain([&rule.stop]));
        let mut all = events.dump_on.iter().chain(&events.stop_on).chain(of_rules);
        let is_key = |event: &Event| matches!(event.what, What::Key(_));
        all.any(|event| event.parts().iter().any(is_key))
    }

    /// Nothing ends a recording, or is done in it, so it cannot be done several times.
    pub fn is_endless(&self) -> bool {
        let events = &self.events;
        let nothing =
            events.stop_on.is_empty() && events.dump_on.is_empty() && events.between.is_empty();
        events.times > 1 && nothing
    }
}
