//! Values of the kernel's functions: arguments and results, fetched by probes.
//!
//! Given what the user asks for (`-A`, `-R`) and which functions are recorded; makes a probe at the
//! entry of each function that is meant, which fetches its words and the strings behind them, and
//! one at its exit, if its result is wanted. Given a record; gives a frame with what it brings.
//! What functions take says the user, or the kernel itself (`lib/kernel/src/btf.rs`).
//!
//! Must not know: what a value means, and how a trace is written.

use crate::brought::Brought;
use crate::btf::{self, Types};
use crate::calls::{Called, Calls};
use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::probes;
use crate::source::{Frame, Happening};
use crate::symbols::{Symbol, Symbols};
use crate::tracefs::Tracefs;
use sptrace_trace::{glob_matches, is_pattern};
use sptrace_types::decode::capture::{Extent, From, Length, all_captures};
use sptrace_types::decode::types::{Phase, Type};
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::{Prototype, Source};
use sptrace_types::functions::spec::{Comparison, Condition, Spec};
use std::collections::{HashMap, HashSet};

const FILE: &str = "kprobe_events";
/// Of the groups that one process may have; blocks have the first ones.
const GROUP_NUMBER: usize = 999_998;
/// Calls of one function that may be open at once; more are missed.
const OPEN_AT_ONCE: u32 = 256;
/// More functions are not probed: each takes the kernel some milliseconds.
const MOST: usize = 500;
/// Registers of the first words, as probes name them.
const REGISTERS: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];
/// What the kernel writes in place of a string that it could not read.
const FAULT: &[u8] = b"(fault)";

/// An address, and what lies there.
type Memory = (u64, Vec<u8>);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the options say, in their order.
    pub specs: Vec<Spec>,
    /// The most bytes of a string.
    pub string_bytes: u32,
    /// Prototypes of the user's files, by name.
    pub prototypes: HashMap<String, Prototype>,
}

/// A function that is probed.
#[derive(Debug)]
struct Probed {
    /// Its address without the bit that all of the kernel's have.
    key: u64,
    called: Called,
    prototype: Prototype,
    condition: Option<(u8, Condition)>,
    /// Words that strings are behind.
    strings: Vec<u8>,
}

/// A record's event.
#[derive(Debug)]
struct Event {
    function: usize,
    is_entry: bool,
    format: Format,
}

/// See the module.
#[derive(Debug)]
pub struct Values {
    top: Folder,
    own: Folder,
    group: String,
    functions: Vec<Probed>,
    events: HashMap<u16, Event>,
    string_bytes: u32,
    /// What could not be done, and why.
    pub refused: Vec<String>,
}

impl Values {
    /// Makes the probes and switches them on in a folder that records nothing yet. `chosen`: the
    /// functions that are recorded anyway; others must be named in full.
    ///
    /// # Errors
    /// The kernel has no probes, or nothing that is asked for can be probed.
    pub fn switch_on(
        tracefs: &Tracefs,
        own: &Folder,
        asked: &Asked,
        chosen: &HashSet<u64>,
    ) -> Result<Self, KernelError> {
        let top = Folder::new(tracefs.root().to_owned());
        let lacking = |why: String| KernelError::NotOffered {
            what: "values of functions",
            why,
        };
        if !top.path(FILE).exists() {
            return Err(lacking("it has no kprobe_events".to_owned()));
        }
        let symbols = Symbols::read()?;
        let types = Types::read();
        let mut values = Self {
            top,
            own: own.clone(),
            group: probes::group(Some(GROUP_NUMBER)),
            functions: Vec::new(),
            events: HashMap::new(),
            string_bytes: asked.string_bytes,
            refused: Vec::new(),
        };
        let meant = values.meant(asked, (&symbols, types.as_ref()), chosen)?;
        if meant.len() > MOST {
            return Err(KernelError::TooMany(meant.len()));
        }
        for (i, (address, probed)) in meant.into_iter().enumerate() {
            let name = probed.called.name.clone();
            values.functions.push(probed);
            if let Err(why) = values.make(i, address) {
                values.refused.push(format!("values of {name} ({why})"));
            }
        }
        match values.events.is_empty() {
            true => Err(KernelError::Refused(values.refused.join(", "))),
            false => Ok(values),
        }
    }

    /// The functions that are meant, with their addresses.
    fn meant(
        &mut self,
        asked: &Asked,
        (symbols, types): (&Symbols, Option<&Types>),
        chosen: &HashSet<u64>,
    ) -> Result<Vec<(u64, Probed)>, KernelError> {
        let fits = |spec: &Spec, symbol: &Symbol| {
            symbol.names.iter().any(|n| glob_matches(&spec.glob, n))
                && (!is_pattern(&spec.glob) || chosen.contains(&symbol.address))
        };
        for spec in &asked.specs {
            if !symbols.iter().any(|symbol| fits(spec, symbol)) {
                return Err(KernelError::NoFunction(spec.glob.clone()));
            }
        }
        let calls = Calls::of_symbols(symbols.clone());
        let mut meant = Vec::new();
        for symbol in symbols.iter() {
            let specs: Vec<&Spec> = asked.specs.iter().filter(|s| fits(s, symbol)).collect();
            if specs.is_empty() {
                continue;
            }
            let named = specs.iter().any(|spec| !is_pattern(&spec.glob));
            match described(symbol, &specs, asked, types) {
                Ok((prototype, condition)) => {
                    let key = symbol.address & !(1 << 63);
                    let called = calls.at(symbol.address);
                    let strings = strings_of(&prototype, asked.string_bytes);
                    meant.push((
                        symbol.address,
                        Probed {
                            key,
                            called,
                            prototype,
                            condition,
                            strings,
                        },
                    ));
                }
                // Of those that a pattern fits, the ones that are described are meant.
                Err(why) if named => self.refused.push(why),
                Err(_) => {}
            }
        }
        Ok(meant)
    }

    /// The probes of a function, and their events.
    fn make(&mut self, i: usize, address: u64) -> Result<(), KernelError> {
        let Some(probed) = self.functions.get(i) else {
            return Ok(());
        };
        let group = self.group.clone();
        let fetched = fetched(probed)?;
        let gives = probed.prototype.result.is_some();
        let entry = format!("p:{group}/entry{i} {address:#x}{fetched}\n");
        // Where a function is named by its address, the kernel has no word for its result.
        let result = if gives { " r=%ax:x64" } else { "" };
        let exit = format!("r{OPEN_AT_ONCE}:{group}/exit{i} {address:#x}{result}\n");
        self.top.add(FILE, &entry)?;
        let made = self.top.add(FILE, &exit);
        let both = made.and_then(|()| {
            for (name, is_entry) in [(format!("exit{i}"), false), (format!("entry{i}"), true)] {
                let event = format!("events/{group}/{name}");
                let format = Format::parse(&self.own.read(&format!("{event}/format"))?);
                self.own.set(&format!("{event}/enable"), "1")?;
                if let Some(format) = format {
                    let known = Event {
                        function: i,
                        is_entry,
                        format,
                    };
                    self.events.insert(known.format.id, known);
                }
            }
            Ok(())
        });
        if both.is_err() {
            for name in ["entry", "exit"] {
                let event = format!("events/{group}/{name}{i}/enable");
                let _ = self.own.set(&event, "0");
                let _ = self.top.add(FILE, &format!("-:{group}/{name}{i}\n"));
            }
            self.events.retain(|_, known| known.function != i);
        }
        both
    }

    /// The functions, by what their frames are known by.
    pub fn named(&self) -> HashMap<u64, (Called, bool)> {
        let probed: HashSet<usize> = self.events.values().map(|event| event.function).collect();
        let named = self.functions.iter().enumerate();
        let named = named.filter(|(i, _)| probed.contains(i));
        named
            .map(|(_, f)| (f.key, (f.called.clone(), false)))
            .collect()
    }

    /// The descriptions by which a reader understands what calls bring.
    pub fn descriptions(&self) -> Vec<String> {
        let limit = self.string_bytes;
        let texts = self.functions.iter();
        texts
            .map(|f| format!("{}\t{limit}", f.prototype.text))
            .collect()
    }

    /// What is recorded, in a line.
    pub fn told(&self) -> String {
        format!("values: of {} functions", self.named().len())
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let event = self.events.get(&id)?;
        let probed = self.functions.get(event.function)?;
        let task = u32::try_from(event.format.number(record, "common_pid")?).ok()?;
        let frame = Frame::Function {
            address: probed.key,
            depth: 0,
        };
        let description = event.function;
        let happening = match (event.is_entry, probed.prototype.result.is_some()) {
            (true, _) => match self.words(probed, &event.format, record) {
                Some((words, memory)) => Happening::BeginWith(
                    frame,
                    Brought::Words {
                        description,
                        words,
                        memory,
                    },
                ),
                None => Happening::Begin(frame),
            },
            (false, true) => {
                let word = event.format.number(record, "r")? as u64;
                Happening::EndWith(frame, Brought::Answer { description, word })
            }
            (false, false) => Happening::End(frame),
        };
        Some((task, happening))
    }

    /// The words of a call and the memory behind them. `None`: its values are not wanted.
    fn words(
        &self,
        probed: &Probed,
        format: &Format,
        record: &[u8],
    ) -> Option<(Vec<u64>, Vec<Memory>)> {
        let count = probed.prototype.sources.len();
        let word = |i: usize| Some(format.number(record, &format!("w{i}"))? as u64);
        let words: Vec<u64> = (0..count).map_while(word).collect();
        let is_wanted = probed.condition.as_ref().is_none_or(|(place, condition)| {
            let ty = probed.prototype.call.parameters.get(usize::from(*place));
            let word = words.get(usize::from(*place)).copied().unwrap_or(0);
            holds(condition, narrowed(word, ty))
        });
        if words.len() < count || !is_wanted {
            return None;
        }
        let memory = probed.strings.iter().filter_map(|i| {
            let mut bytes = format.bytes(record, &format!("s{i}"))?;
            let is_lost = bytes.strip_suffix(&[0]).unwrap_or(&bytes) == FAULT;
            bytes.truncate(self.string_bytes as usize + 1);
            let address = *words.get(usize::from(*i))?;
            (!is_lost).then_some((address, bytes))
        });
        let memory = memory.collect();
        Some((words, memory))
    }

    /// Calls whose exit could not be recorded.
    pub fn missed(&self) -> u64 {
        probes::missed(&self.top, &self.own, &self.group)
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        let _ = self.own.set(&format!("events/{}/enable", self.group), "0");
        probes::remove(&self.top, |group| group == self.group);
    }
}

/// What the options say of a function: its prototype with the parts that are wanted.
fn described(
    symbol: &Symbol,
    specs: &[&Spec],
    asked: &Asked,
    types: Option<&Types>,
) -> Result<(Prototype, Option<(u8, Condition)>), String> {
    let read = |text: &str| prototype(text, &Defined::new()).ok();
    let of_kernel = || {
        let texts = symbol.names.iter();
        let mut found = texts.filter_map(|name| types?.prototype(name));
        found.find_map(|text| read(&text))
    };
    let of_user = symbol.names.iter().find_map(|n| asked.prototypes.get(n));
    let base = of_user.cloned().or_else(of_kernel);
    let name = &symbol.name;
    let (mut text, mut condition) = (None::<String>, None);
    for spec in specs {
        let Some(wanted) = spec.of(name, base.as_ref()) else {
            let source = match types {
                Some(_) => "what it takes is not known",
                None => btf::ABSENT,
            };
            return Err(format!(
                "{name}: {source}; say which values, as in {name}@arg1/x"
            ));
        };
        if let Some(missing) = wanted.missing.first() {
            return Err(format!("{name} has no {missing}"));
        }
        text = Some(match (text, spec.result_only) {
            (Some(before), true) => with_result(&before, &wanted.text),
            _ => wanted.text,
        });
        condition = wanted.condition.or(condition);
    }
    let text = text.unwrap_or_default();
    let prototype = read(&text).ok_or_else(|| format!("{name}: '{text}' is not understood"))?;
    Ok((prototype, condition))
}

/// The arguments of one line, and the result of another.
fn with_result(arguments: &str, result: &str) -> String {
    let read = |text: &str| prototype(text, &Defined::new()).ok();
    let merged = || {
        let (one, other) = (read(arguments)?, read(result)?);
        let head = one.text.get(one.result_text.len()..)?;
        Some(format!("{} {}", other.result_text, head.trim_start()))
    };
    merged().unwrap_or_else(|| arguments.to_owned())
}

/// The words that strings are behind.
fn strings_of(prototype: &Prototype, string_bytes: u32) -> Vec<u8> {
    let extent = Extent {
        string_bytes,
        verbose: true,
    };
    let all = all_captures(&prototype.call, extent);
    let loads = all.iter().flat_map(|(_, loads)| loads);
    let mut strings: Vec<u8> = loads
        .filter(|load| load.phase == Phase::Entry)
        .filter(|load| matches!(load.length, Length::String(_)))
        .filter_map(|load| match load.from {
            From::Argument(i) => Some(i),
            From::Pointers { .. } => None,
        })
        .collect();
    strings.sort_unstable();
    strings.dedup();
    strings
}

/// What a probe at a function's entry fetches.
fn fetched(probed: &Probed) -> Result<String, KernelError> {
    let place = |source: &Source| match source {
        Source::Register(i) => REGISTERS.get(usize::from(*i)).map(|r| format!("%{r}")),
        // The return address is the first word of the stack.
        Source::Stack(i) => Some(format!("$stack{}", u32::from(*i) + 1)),
        Source::Vector(_) => None,
    };
    let mut text = String::new();
    for (i, source) in probed.prototype.sources.iter().enumerate() {
        let place = place(source).ok_or_else(|| KernelError::NotOffered {
            what: "values of vector registers",
            why: "the kernel's functions use none".to_owned(),
        })?;
        text.push_str(&format!(" w{i}={place}:x64"));
        if probed.strings.contains(&(i as u8)) {
            text.push_str(&format!(" s{i}=+0({place}):string"));
        }
    }
    Ok(text)
}

/// A word as its type has it.
fn narrowed(word: u64, ty: Option<&Type>) -> i64 {
    let bytes = ty.and_then(Type::size).map_or(8, |bytes| bytes.clamp(1, 8));
    let unused = 64 - 8 * bytes;
    match ty {
        Some(Type::Unsigned(_)) => (word << unused >> unused) as i64,
        _ => (word << unused) as i64 >> unused,
    }
}

fn holds(condition: &Condition, value: i64) -> bool {
    let with = condition.with;
    match condition.comparison {
        Comparison::Equal => value == with,
        Comparison::NotEqual => value != with,
        Comparison::Less => value < with,
        Comparison::LessOrEqual => value <= with,
        Comparison::Greater => value > with,
        Comparison::GreaterOrEqual => value >= with,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_types::functions::spec;

    fn probed(text: &str, base: &str) -> Probed {
        let specs = spec::parse(text, false).unwrap();
        let asked = Asked {
            specs: specs.clone(),
            string_bytes: 8,
            prototypes: HashMap::from([(
                "vfs_open".to_owned(),
                prototype(base, &Defined::new()).unwrap(),
            )]),
        };
        let symbol = Symbol {
            address: 0xffff_ffff_8100_0000,
            name: "vfs_open".to_owned(),
            names: vec!["vfs_open".to_owned()],
            module: None,
        };
        let specs: Vec<&Spec> = specs.iter().collect();
        let (prototype, condition) = described(&symbol, &specs, &asked, None).unwrap();
        let strings = strings_of(&prototype, 8);
        Probed {
            key: 0,
            called: Calls::default().at(0),
            prototype,
            condition,
            strings,
        }
    }

    #[test]
    fn words_and_strings_are_fetched_where_the_call_has_them() {
        let base = "int vfs_open(addr dir, string name, u32 flags)";
        let all = probed("vfs_open", base);
        let text = fetched(&all).unwrap();
        assert_eq!(text, " w0=%di:x64 w1=%si:x64 s1=+0(%si):string w2=%dx:x64");
        let chosen = probed("vfs_open@arg7/x,flags<=-1", base);
        let text = fetched(&chosen).unwrap();
        assert!(text.ends_with("w6=$stack1:x64"), "{text}");
        let (place, condition) = chosen.condition.unwrap();
        assert_eq!(place, 2);
        assert!(holds(
            &condition,
            narrowed(0xffff_ffff, Some(&Type::Signed(4)))
        ));
        assert!(!holds(&condition, narrowed(5, None)));
    }

    #[test]
    fn what_is_narrow_is_compared_so() {
        assert_eq!(narrowed(0xffff_ffff, Some(&Type::Signed(4))), -1);
        assert_eq!(narrowed(0xffff_ffff, Some(&Type::Unsigned(4))), 0xffff_ffff);
    }
}
