//! What a script asks for, as data.
//!
//! Made by evaluating a script, read by who makes a recording of it. Must not know how it is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::FnPtr;
use sptrace_payload::acts::{Acts, Moment, Step};
use sptrace_payload::tables::{Kind, MOST_KEYS};
use sptrace_trace::{KeyColumn, glob_matches, without_parameters};
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
    /// Globs of functions that are recorded, and not what they call.
    pub leaves: Vec<String>,
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
    /// Nanoseconds: those of functions alone whose calls last less on average.
    pub short_limit_ns: Option<u64>,
    /// Levels of functions from the beginning, by their names: the last that fits counts.
    pub levels: Vec<(String, Level)>,
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
            || self.has_limit()
            || !self.levels.is_empty()
            || self.decides_functions()
            || !self.payloads.is_empty()
    }

    /// Are calls of some functions counted at times?
    pub fn has_limit(&self) -> bool {
        self.hot_limit.is_some() || self.short_limit_ns.is_some()
    }

    /// Does a payload run at calls of functions?
    pub fn acts_on_functions(&self) -> bool {
        self.payloads.iter().any(|payload| payload.calls.is_none())
    }

    /// Does it decide about each function?
    pub fn decides_functions(&self) -> bool {
        self.propagate.is_some() || !self.leaves.is_empty()
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
    /// Each, with its values.
    Values,
    /// Each, without values.
    Record,
    /// How many there are.
    Count,
    /// None.
    Off,
}

impl Level {
    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Values, Self::Record, Self::Count, Self::Off];
        all.into_iter().find(|level| level.name() == name)
    }

    /// What scripts call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Record => "record",
            Self::Count => "count",
            Self::Off => "off",
        }
    }
}

/// Names that functions, and their modules, have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Pattern of modules; None: of all.
    pub module: Option<String>,
    /// Pattern of functions.
    pub glob: String,
}

impl Names {
    /// `MODULE!GLOB`, or the name of a function alone.
    pub fn read(text: &str) -> Self {
        let parts = text.split_once('!').filter(|_| !text.starts_with('/'));
        let (module, glob) = match parts {
            Some((module, glob)) => (Some(module.to_owned()), glob),
            None => (None, text),
        };
        Self {
            module,
            glob: glob.to_owned(),
        }
    }

    /// Does a function have such a name, given its forms, and its module's?
    pub(crate) fn fit<'a>(&self, names: impl IntoIterator<Item = &'a str>, module: &str) -> bool {
        let is_there = |of: &String| glob_matches(of, module);
        self.module.as_ref().is_none_or(is_there)
            && names.into_iter().any(|name| glob_matches(&self.glob, name))
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(module) = &self.module {
            write!(f, "{module}!")?;
        }
        f.write_str(&self.glob)
    }
}

/// Calls of functions: whose, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// What they are called.
    pub names: Names,
    /// Pattern of the file of the source in which they begin.
    pub file: Option<String>,
    /// Who calls them.
    pub caller: Option<Names>,
}

impl std::fmt::Display for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.names)?;
        if let Some(file) = &self.file {
            write!(f, " in {file}")?;
        }
        match &self.caller {
            Some(caller) => write!(f, ", called by {caller}"),
            None => Ok(()),
        }
    }
}

/// Does the path of a file of the source fit: all of it, or its last part?
pub(crate) fn file_fits(pattern: &str, path: &str) -> bool {
    let short = path.rsplit('/').next().unwrap_or(path);
    glob_matches(pattern, path) || glob_matches(pattern, short)
}

/// What runs at the calls of some functions, inside of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// At which calls; nothing at those of the kernel.
    pub functions: Functions,
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
            || self.functions.file.is_some()
            || self.reads_fields()
    }

    /// Does it read memory behind arguments?
    pub(crate) fn reads_fields(&self) -> bool {
        self.names.iter().any(|name| name.contains('.'))
    }

    /// Does it count its calls by a counter of the process?
    pub(crate) fn counts(&self) -> bool {
        matches!(self.acts.steps.first(), Some(Step::Next(..)))
    }
}

/// Who shows what payloads add to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The sheet of this number.
    Sheet(usize),
    /// It is printed: what stands before the first value, and behind each.
    Lines(Vec<String>),
}

/// What payloads add to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadTable {
    /// Who shows it.
    pub(crate) shows: Shows,
    /// What it is called.
    pub title: String,
    /// What it keeps.
    pub kind: Kind,
    /// Only what these functions call counts: a key more says who called.
    pub caller: Option<Names>,
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

/// What takes longer to find out of a function, and is found out where a script asks for it.
pub trait Details: Send + Sync {
    /// Where it begins in the source: the file as the compiler was given it, and the line.
    fn line(&self) -> Option<(String, u32)>;
    /// What it takes and gives, as C writes it.
    fn prototype(&self) -> Option<String>;
    /// Does it jump back inside of itself?
    fn has_loops(&self) -> bool;
}

/// [`Details`], if there are any.
#[derive(Clone, Default)]
pub struct More(pub Option<Arc<dyn Details>>);

impl std::fmt::Debug for More {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("More")
    }
}

/// What is known of a function before it has run.
#[derive(Clone, Debug, Default)]
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
    /// What takes longer to find out.
    pub more: More,
}

impl FunctionFacts {
    /// Does a pattern fit its names?
    pub(crate) fn is_leaf_by(&self, patterns: &[String]) -> bool {
        let names = [&self.name, without_parameters(&self.name), &self.symbol];
        patterns
            .iter()
            .any(|pattern| names.iter().any(|name| glob_matches(pattern, name)))
    }
}
