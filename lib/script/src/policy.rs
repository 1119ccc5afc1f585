//! What a script asks for, as data.
//!
//! Made by evaluating a script, read by who makes a recording of it. Must not know how it is done.

use std::collections::BTreeMap;

use rhai::FnPtr;
use sptrace_payload::acts::{Acts, Moment, Step};
use sptrace_payload::tables::{Kind, MOST_KEYS};
use sptrace_trace::KeyColumn;
use sptrace_types::calls::Selection;

/// What a script asks for.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Events at which the recording begins, as the command line writes them.
    pub start: Vec<String>,
    /// Events at which it ends.
    pub stop: Vec<String>,
    /// Events at which its ring is written out.
    pub dump: Vec<String>,
    /// Functions and the events between which they are recorded.
    pub between: Vec<[String; 3]>,
    /// How often all that happens.
    pub times: Option<u64>,
    /// Globs of modules.
    pub modules: Vec<String>,
    /// Globs of functions: these and what they call.
    pub only: Vec<String>,
    /// Globs of functions that are left out.
    pub without: Vec<String>,
    /// Functions whose arguments and results are recorded, as -A has them.
    pub values: Vec<String>,
    /// The same of results alone, as -R has them.
    pub results: Vec<String>,
    /// Nothing is patched that is first reached below this depth.
    pub depth: Option<u32>,
    /// System calls, as strace's `-e trace=` names them.
    pub system_calls: Option<String>,
    /// Nothing but these.
    pub system_calls_only: bool,
    /// Bytes of strings that are kept.
    pub string_bytes: Option<u32>,
    /// Keep only so many bytes of the end.
    pub ring_bytes: Option<u64>,
    /// End the recording at this size of its file.
    pub most_bytes: Option<u64>,
    /// Calls a second from which on a function's calls are counted, not recorded.
    pub hot_limit: Option<u64>,
    /// Called for each function of a module as its plan is made.
    pub(crate) propagate: Option<FnPtr>,
    /// What the options of the script are, in the order of their mention.
    pub options: Vec<ScriptOption>,
    /// What runs inside of the program, at the calls of functions.
    pub payloads: Vec<Payload>,
    /// What they add to, by number.
    pub tables: Vec<PayloadTable>,
    /// What they ask of the recording, by number.
    pub bids: Vec<Bid>,
    /// Values given to them.
    pub(crate) given: BTreeMap<String, String>,
}

/// An option that a script has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOption {
    /// Without dashes.
    pub name: String,
    /// Its value if none is given.
    pub default: String,
    /// One sentence.
    pub help: String,
}

impl Policy {
    /// Does it say anything about how a recording is made?
    pub fn is_about_recording(&self) -> bool {
        let lists = [&self.start, &self.stop, &self.dump];
        let filters = [&self.modules, &self.only, &self.without];
        let values = [&self.values, &self.results];
        let mut all = lists.iter().chain(&filters).chain(&values);
        all.any(|list| !list.is_empty())
            || !self.between.is_empty()
            || self.depth.is_some()
            || self.system_calls.is_some()
            || self.ring_bytes.is_some()
            || self.most_bytes.is_some()
            || self.hot_limit.is_some()
            || self.propagate.is_some()
            || !self.payloads.is_empty()
    }

    /// Does a payload run at calls of functions?
    pub fn acts_on_functions(&self) -> bool {
        self.payloads.iter().any(|payload| payload.calls.is_none())
    }

    /// Does it decide about each function?
    pub fn decides_functions(&self) -> bool {
        self.propagate.is_some()
    }
}

/// What a payload asks of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bid {
    /// What is to be done.
    pub deed: Deed,
    /// How it is written, and where.
    pub text: String,
    /// The line at which it stands.
    pub line: usize,
    /// And the column.
    pub column: usize,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The recording begins.
    Start,
    /// It ends.
    Stop,
    /// Its ring is written out.
    Dump,
    /// Functions that the glob matches have this level.
    Level(String, Level),
}

/// What is recorded of a function's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each.
    Record,
    /// How many there are.
    Count,
}

impl Level {
    /// What scripts call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Count => "count",
        }
    }
}

/// What runs at the calls of some functions, inside of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Glob of modules; None: of all.
    pub module: Option<String>,
    /// Glob of functions.
    pub glob: String,
    /// When it runs.
    pub moment: Moment,
    /// What it does.
    pub acts: Acts,
    /// Names of arguments that it uses, by their numbers.
    pub names: Vec<String>,
    /// It runs at these calls of the kernel, and at no function.
    pub calls: Option<Selection>,
    /// The line at which it stands.
    pub line: usize,
    /// Line and column of the first word that changes what the program does.
    pub changes_at: Option<(usize, usize)>,
}

impl Payload {
    /// Can it run inside of a program alone, and by no probe of the kernel?
    pub fn needs_program(&self) -> bool {
        self.calls.is_some()
            || self.counts()
            || self.acts.is_slow()
            || self.acts.names_places()
            || self.acts.uses_variables()
            || self.acts.bids()
    }

    /// Does it count its calls by a counter of the process?
    pub(crate) fn counts(&self) -> bool {
        matches!(self.acts.steps.first(), Some(Step::Next(..)))
    }
}

/// A sheet that payloads add to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadTable {
    /// Number of the sheet.
    pub(crate) sheet: usize,
    /// What it is called.
    pub title: String,
    /// What it keeps.
    pub kind: Kind,
    /// How many keys it has.
    pub keys: u8,
    /// What they are.
    pub columns: Vec<KeyColumn>,
    /// Words that a row has to tell what each of them stands for.
    pub told: [u8; MOST_KEYS],
}

/// What becomes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its calls are recorded, and what it calls.
    Record,
    /// They are not, nor what only it calls.
    Skip,
    /// They are, but not what it calls.
    Leaf,
}

/// What is known of a function before it has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Demangled.
    pub name: String,
    /// As the file has it.
    pub symbol: String,
    /// The path of its file.
    pub path: String,
    /// Where it begins, as the file states addresses.
    pub address: u64,
    /// Bytes up to the next one.
    pub size_bytes: u64,
    /// Calls and tail jumps in it that can be intercepted.
    pub calls: u64,
}
