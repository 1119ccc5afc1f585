//! Payloads of a script in the kernel: probes with histograms and filters, and what they have added
//! up.
//!
//! Given payloads and which functions are recorded; makes a probe for each thing that is added at a
//! function, with a histogram as its trigger, and one that records those calls that a payload
//! wants. A command's are counted from when it executes its program. Gives the tables at the end.
//!
//! Must not know: scripts, and how a trace is written.

use crate::acts::{self, Compiled, Counter, Refusal, Truth};
use crate::btf::Types;
use crate::calls::{Called, Calls};
use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::probes;
use crate::source::{Frame, Happening};
use crate::symbols::{Symbol, Symbols};
use crate::tracefs::Tracefs;
use sptrace_payload::acts::Acts;
use sptrace_payload::program::{Expression, Source, Width};
use sptrace_payload::tables::Kind;
use sptrace_trace::{Note, TableRow, TableSums, glob_matches, is_pattern};
use sptrace_types::decode::types::Type;
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::{Prototype, Source as Place};
use std::collections::{BTreeMap, HashMap, HashSet};

const FILE: &str = "kprobe_events";
/// Of the groups that one process may have; blocks have the first ones.
const GROUP_NUMBER: usize = 999_997;
/// Calls of one function that may be open at once; more are missed.
const OPEN_AT_ONCE: u32 = 256;
/// More probes are not made.
const MOST: usize = 200;
/// Entries of a histogram.
const ENTRIES: u32 = 16384;
/// At which a command's are counted from.
const EXEC: &str = "events/sched/sched_process_exec/trigger";

/// A table, and keys of it.
type Key = (usize, Vec<u64>);
/// A value, and how often it came.
type Times = (u64, u64);

/// What a script runs at the calls of functions.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Glob of modules: `kernel`, or one that is loaded. None: of all.
    pub module: Option<String>,
    /// Glob of functions.
    pub glob: String,
    /// What it does.
    pub acts: Acts,
    /// Names of arguments that it uses, by their numbers.
    pub names: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Payloads.
    pub payloads: Vec<Payload>,
    /// What they add to: a title, a kind, and how many keys.
    pub tables: Vec<(String, Kind, u8)>,
}

impl Asked {
    fn kinds(&self) -> Vec<Kind> {
        self.tables.iter().map(|(_, kind, _)| *kind).collect()
    }

    /// The first payload that the kernel cannot run, and why.
    pub fn refused(&self) -> Option<(usize, Refusal)> {
        let kinds = self.kinds();
        let each = self.payloads.iter().enumerate();
        let mut refused = each.filter_map(|(i, payload)| {
            let mut acts = payload.acts.clone();
            // Where an argument is makes no difference here.
            let _ = acts.resolve(&|_| Some(Expression::argument(0)));
            Some((i, acts::compile(&acts, &kinds).err()?))
        });
        refused.next()
    }
}

/// Calls of a function that are recorded if a payload says so.
#[derive(Debug)]
struct Recorded {
    key: u64,
    is_entry: bool,
    format: Format,
}

/// See the module.
#[derive(Debug)]
pub struct Counts {
    top: Folder,
    own: Folder,
    group: String,
    tables: Vec<(String, Kind, u8)>,
    /// Names of events, with what they add.
    counters: Vec<(String, Counter)>,
    /// By number of the event.
    recorded: HashMap<u16, Recorded>,
    /// Functions with payloads.
    functions: HashMap<u64, (Called, bool)>,
    /// What could not be done, and why.
    pub refused: Vec<String>,
}

impl Counts {
    /// Makes the probes in a folder that records nothing yet. `from_exec`: it counts from when a
    /// task executes a program.
    ///
    /// # Errors
    /// The kernel has no probes or histograms, no function matches, or too many do.
    pub fn switch_on(
        tracefs: &Tracefs,
        own: &Folder,
        asked: &Asked,
        chosen: &HashSet<u64>,
        from_exec: bool,
    ) -> Result<Self, KernelError> {
        let top = Folder::new(tracefs.root().to_owned());
        if !top.path(FILE).exists() {
            return Err(KernelError::NotOffered {
                what: "what scripts do at its functions",
                why: "it has no kprobe_events".to_owned(),
            });
        }
        let symbols = Symbols::read()?;
        let types = Types::read();
        let mut counts = Self {
            top,
            own: own.clone(),
            group: probes::group(Some(GROUP_NUMBER)),
            tables: asked.tables.clone(),
            counters: Vec::new(),
            recorded: HashMap::new(),
            functions: HashMap::new(),
            refused: Vec::new(),
        };
        let calls = Calls::of_symbols(symbols.clone());
        for payload in &asked.payloads {
            let fits = |symbol: &&Symbol| fits(payload, symbol, chosen);
            let meant: Vec<&Symbol> = symbols.iter().filter(fits).collect();
            if meant.is_empty() {
                return Err(KernelError::NoFunction(payload.glob.clone()));
            }
            for symbol in meant {
                let mut acts = payload.acts.clone();
                let base = || described(symbol, types.as_ref());
                let named = resolve(&mut acts, &payload.names, base);
                let compiled = named.and_then(|()| {
                    let compiled = acts::compile(&acts, &asked.kinds());
                    compiled.map_err(|refusal| refusal.reason.to_owned())
                });
                let made = compiled.and_then(|compiled| {
                    let made = counts.make(symbol, compiled, from_exec);
                    made.map_err(|e| e.to_string())
                });
                match made {
                    Ok(()) => {
                        let key = symbol.address & !(1 << 63);
                        let called = calls.at(symbol.address);
                        counts.functions.insert(key, (called, false));
                    }
                    Err(why) => counts.refused.push(format!("{} ({why})", symbol.name)),
                }
            }
        }
        match counts.functions.is_empty() {
            true => Err(KernelError::Refused(counts.refused.join(", "))),
            false => Ok(counts),
        }
    }

    /// The probes of a payload at a function.
    fn make(
        &mut self,
        symbol: &Symbol,
        compiled: Compiled,
        from_exec: bool,
    ) -> Result<(), KernelError> {
        for counter in compiled.counters {
            let number = self.counters.len();
            if number >= MOST {
                return Err(KernelError::TooMany(number + 1));
            }
            let (group, event) = (&self.group, format!("count{number}"));
            let fetched = counter.fetched.text();
            let at = symbol.address;
            self.top
                .add(FILE, &format!("p:{group}/{event} {at:#x}{fetched}\n"))?;
            let set = self.count(&event, &counter, from_exec);
            self.counters.push((event, counter));
            set?;
        }
        match compiled.recorded {
            (Truth::Never, _) => Ok(()),
            (condition, fetched) => self.record(symbol, &condition, &fetched.text()),
        }
    }

    /// The histogram of a counter.
    fn count(&self, event: &str, counter: &Counter, from_exec: bool) -> Result<(), KernelError> {
        let mut keys = counter.keys.clone();
        let value = counter.value.iter().filter(|v| !counter.keys.contains(v));
        keys.extend(value.cloned());
        if keys.is_empty() {
            // A histogram has a key; that of all records of an event is the same.
            keys.push("common_type".to_owned());
        }
        let condition = match &counter.condition {
            Truth::If(condition) => format!(" if {condition}"),
            Truth::Always | Truth::Never => String::new(),
        };
        let pause = if from_exec { ":pause" } else { "" };
        let keys = keys.join(",");
        let trigger = format!("hist:keys={keys}:size={ENTRIES}{pause}{condition}\n");
        let own = format!("events/{}/{event}", self.group);
        self.own.add(&format!("{own}/trigger"), &trigger)?;
        if from_exec {
            // With a condition a trigger heeds which tasks are followed.
            let on = format!("enable_hist:{}:{event} if common_pid > 0\n", self.group);
            self.own.add(EXEC, &on)?;
        }
        Ok(())
    }

    /// Records calls if that holds.
    fn record(
        &mut self,
        symbol: &Symbol,
        condition: &Truth,
        fetched: &str,
    ) -> Result<(), KernelError> {
        let (group, at) = (self.group.clone(), symbol.address);
        let number = self.recorded.len() / 2;
        let (entry, exit) = (format!("entry{number}"), format!("exit{number}"));
        self.top
            .add(FILE, &format!("p:{group}/{entry} {at:#x}{fetched}\n"))?;
        self.top
            .add(FILE, &format!("r{OPEN_AT_ONCE}:{group}/{exit} {at:#x}\n"))?;
        if let Truth::If(condition) = condition {
            let filter = format!("events/{group}/{entry}/filter");
            self.own.set(&filter, condition)?;
        }
        for (name, is_entry) in [(exit, false), (entry, true)] {
            let event = format!("events/{group}/{name}");
            let format = Format::parse(&self.own.read(&format!("{event}/format"))?);
            self.own.set(&format!("{event}/enable"), "1")?;
            if let Some(format) = format {
                let key = at & !(1 << 63);
                let recorded = Recorded {
                    key,
                    is_entry,
                    format,
                };
                self.recorded.insert(recorded.format.id, recorded);
            }
        }
        Ok(())
    }

    /// The functions, by what their frames are known by.
    pub fn named(&self) -> HashMap<u64, (Called, bool)> {
        self.functions.clone()
    }

    /// What is done, in a line.
    pub fn told(&self) -> String {
        let (functions, counters) = (self.functions.len(), self.counters.len());
        let recorded = self.recorded.len() / 2;
        format!(
            "script: in the kernel, at {functions} functions: {counters} histograms, and filters for the records of {recorded}"
        )
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let recorded = self.recorded.get(&id)?;
        let task = u32::try_from(recorded.format.number(record, "common_pid")?).ok()?;
        let frame = Frame::Function {
            address: recorded.key,
            depth: 0,
        };
        Some((
            task,
            match recorded.is_entry {
                true => Happening::Begin(frame),
                false => Happening::End(frame),
            },
        ))
    }

    /// What was added up. `None`: there are no tables, or a histogram cannot be read.
    pub fn note(&self, tsc: u64) -> Option<Note> {
        if self.tables.is_empty() {
            return None;
        }
        // By table and keys: which values came, and how often.
        let mut sums: BTreeMap<Key, Vec<Times>> = BTreeMap::new();
        let mut left_out = vec![0; self.tables.len()];
        for (event, counter) in &self.counters {
            let file = format!("events/{}/{event}/hist", self.group);
            let (rows, dropped) = acts::rows(&self.own.read(&file).ok()?);
            if let Some(left_out) = left_out.get_mut(counter.table) {
                *left_out += dropped;
            }
            for (fields, times) in rows {
                let of = |name: &String| fields.get(name).copied();
                let keys: Option<Vec<u64>> = counter.keys.iter().map(of).collect();
                let value = counter.value.as_ref().map_or(Some(counter.constant), of);
                if let (Some(keys), Some(value)) = (keys, value) {
                    let all = sums.entry((counter.table, keys)).or_default();
                    all.push((value, times));
                }
            }
        }
        let table = |(i, (title, kind, _)): (usize, &(String, Kind, u8))| {
            let rows = sums.iter().filter(|((table, _), _)| *table == i);
            let rows = rows.map(|((_, keys), values)| {
                let (count, values) = acts::kept(*kind, values);
                let keys = keys.clone();
                TableRow {
                    keys,
                    count,
                    values,
                }
            });
            TableSums {
                title: title.clone(),
                left_out: left_out.get(i).copied().unwrap_or(0),
                columns: Vec::new(),
                told: Vec::new(),
                rows: rows.collect(),
            }
        };
        Some(Note::Tables {
            pid: 0,
            tsc,
            tables: self.tables.iter().enumerate().map(table).collect(),
        })
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        for (event, _) in &self.counters {
            // What refers to an event goes before it.
            let on = format!("!enable_hist:{}:{event}\n", self.group);
            let _ = self.own.add(EXEC, &on);
            let own = format!("events/{}/{event}/trigger", self.group);
            if let Ok(triggers) = self.own.read(&own) {
                let lines = triggers.lines().filter(|line| line.starts_with("hist:"));
                for line in lines {
                    let line = line.split(" [").next().unwrap_or(line);
                    let _ = self.own.add(&own, &format!("!{line}\n"));
                }
            }
        }
        let _ = self.own.set(&format!("events/{}/enable", self.group), "0");
        probes::remove(&self.top, |group| group == self.group);
    }
}

fn fits(payload: &Payload, symbol: &Symbol, chosen: &HashSet<u64>) -> bool {
    let module = symbol.module.as_deref().unwrap_or("kernel");
    payload
        .module
        .as_ref()
        .is_none_or(|glob| glob_matches(glob, module))
        && symbol
            .names
            .iter()
            .any(|name| glob_matches(&payload.glob, name))
        && (!is_pattern(&payload.glob) || chosen.contains(&symbol.address))
}

fn described(symbol: &Symbol, types: Option<&Types>) -> Option<Prototype> {
    let mut texts = symbol.names.iter().filter_map(|n| types?.prototype(n));
    texts.find_map(|text| prototype(&text, &Defined::new()).ok())
}

/// Puts the places of arguments into acts; else says which name is not known.
fn resolve(
    acts: &mut Acts,
    names: &[String],
    base: impl Fn() -> Option<Prototype>,
) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let base = base();
    let name = |number: u8| names.get(usize::from(number)).map_or("", String::as_str);
    let of = |number: u8| argument(base.as_ref()?, name(number));
    let resolved = acts.resolve(&of);
    resolved.map_err(|number| format!("it has no argument '{}' that is known", name(number)))
}

/// An argument by its name, as wide as it is.
fn argument(prototype: &Prototype, name: &str) -> Option<Expression> {
    let at = prototype.names.iter().position(|known| known == name)?;
    let word: Expression = match prototype.sources.get(at)? {
        Place::Register(n) => Source::Argument(*n).into(),
        Place::Stack(n) => Source::Stack(*n).into(),
        Place::Vector(_) => return None,
    };
    let ty = prototype.call.parameters.get(at)?;
    let width = match (ty, ty.size().unwrap_or(8)) {
        (Type::Signed(_), 1) => Width::I8,
        (Type::Signed(_), 2) => Width::I16,
        (Type::Signed(_), 4) => Width::I32,
        (_, 1) => Width::U8,
        (_, 2) => Width::U16,
        (_, 4) => Width::U32,
        _ => return Some(word),
    };
    Some(word.narrow(width))
}
