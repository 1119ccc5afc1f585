//! What a recording sees inside of the kernel, beside its events: calls of functions, and blocks.
//!
//! Given a level and a policy; finds which functions are meant, switches on what records them, and
//! says aloud what that is. Where nobody has chosen a level and the deepest one fails, it is the
//! events alone, and the reason is said.
//!
//! Must not know: tasks, and how a trace is written.

use crate::blocks::Blocks;
use crate::calls::{Called, Calls};
use crate::counts::Counts;
use crate::error::KernelError;
use crate::folder::Folder;
use crate::functions::Functions;
use crate::instance::Instance;
use crate::level::{self, Level};
use crate::options::{Options, Target};
use crate::policy::{Chosen, DEPTH, Policy, Root, Traceable};
use crate::privileges::Privileges;
use crate::probes::Probes;
use crate::source::Happening;
use crate::symbols::Symbols;
use crate::text::Text;
use crate::tracefs::{self, Tracefs};
use crate::values::Values;
use sptrace_trace::Note;
use std::collections::{HashMap, HashSet};

/// The kernel's own handler of probes at functions' entries.
const PROBE_HANDLER: &str = "kprobe_ftrace_handler";

/// What is switched on.
#[derive(Debug)]
enum How {
    Functions(Functions),
    Probes(Probes),
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub struct Inside {
    how: How,
    blocks: Option<Blocks>,
    privileges: Option<Privileges>,
    values: Option<Values>,
    counts: Option<Counts>,
    calls: Calls,
    /// The functions that were chosen.
    chosen: HashSet<u64>,
    /// Calls are followed from those that a recording begins at.
    is_followed: bool,
}

impl Inside {
    /// Switches on what the options ask for, in folders that record nothing yet.
    ///
    /// # Errors
    /// The kernel refuses, a pattern matches nothing, or somebody else is in the way.
    pub fn switch_on(
        tracefs: &Tracefs,
        instance: &Instance,
        options: &Options,
    ) -> Result<Self, KernelError> {
        let own = instance.folder();
        // Before a tracer of functions changes the text that is read for them.
        let blocks = match options.blocks.is_empty() {
            true => None,
            false => Some(Blocks::switch_on(tracefs, own, &options.blocks)?),
        };
        let policy = &options.policy;
        let is_alone =
            policy.roots.is_empty() && policy.functions.is_empty() && options.level.is_none();
        let mut inside = match is_alone && blocks.is_some() {
            true => Self::nothing(),
            false => Self::functions(tracefs, instance, options)?,
        };
        if let Some(blocks) = blocks {
            blocks.told().iter().for_each(|line| (options.say)(line));
            inside.calls.hook(blocks.named());
            inside.blocks = Some(blocks);
        }
        if let Some(asked) = &options.values {
            let values = Values::switch_on(tracefs, own, asked, &inside.chosen)?;
            inside.take_hooked(values.named(), "values")?;
            (options.say)(&values.told());
            inside.values = Some(values);
        }
        if let Some(asked) = &options.counts {
            let from_exec = matches!(options.target, Target::Command(_));
            let counts = Counts::switch_on(tracefs, own, asked, &inside.chosen, from_exec)?;
            inside.take_hooked(counts.named(), "what a script does")?;
            (options.say)(&counts.told());
            inside.counts = Some(counts);
        }
        if options.has_privileges {
            let privileges = Privileges::switch_on(tracefs, own);
            (options.say)(&privileges.told());
            inside.privileges = Some(privileges);
        }
        Ok(inside)
    }

    fn nothing() -> Self {
        Self {
            how: How::Nothing,
            blocks: None,
            privileges: None,
            values: None,
            counts: None,
            calls: Calls::default(),
            chosen: HashSet::new(),
            is_followed: false,
        }
    }

    /// These functions are shown by probes of their own.
    fn take_hooked(
        &mut self,
        named: HashMap<u64, (Called, bool)>,
        what: &'static str,
    ) -> Result<(), KernelError> {
        let hooked = self.calls.hooked();
        if let Some(key) = hooked.iter().find(|key| named.contains_key(key)) {
            let name = self.calls.at(*key).name;
            let why = format!("{name} is hooked for --blocks or values; record these apart");
            return Err(KernelError::NotOffered { what, why });
        }
        self.calls.hook(named);
        Ok(())
    }

    fn functions(
        tracefs: &Tracefs,
        instance: &Instance,
        options: &Options,
    ) -> Result<Self, KernelError> {
        let are_named = !options.policy.functions.is_empty();
        let chosen = options.level;
        let level = chosen.unwrap_or_else(|| level::deepest(tracefs, are_named));
        let nothing = Self::nothing();
        if level == Level::Events {
            let why = level::offered(tracefs, Level::Functions).err();
            let why = why.filter(|_| chosen.is_none());
            if are_named {
                let why = why.unwrap_or_else(|| "--level events records none".to_owned());
                let what = "functions";
                return Err(KernelError::NotOffered { what, why });
            }
            let why = why.map_or_else(String::new, |why| format!(" (no functions: {why})"));
            (options.say)(&format!("level: events{why}"));
            return Ok(nothing);
        }
        if let Err(why) = level::offered(tracefs, level) {
            return Err(KernelError::NotOffered {
                what: "functions",
                why,
            });
        }
        match Self::look(tracefs, instance, level, options) {
            // What hides the kernel's functions from us hides no events.
            Err(e @ (KernelError::NoAddresses | KernelError::File { .. }))
                if chosen.is_none() && !are_named =>
            {
                (options.say)(&format!("level: events (no functions: {e})"));
                Ok(nothing)
            }
            result => result,
        }
    }

    fn look(
        tracefs: &Tracefs,
        instance: &Instance,
        level: Level,
        options: &Options,
    ) -> Result<Self, KernelError> {
        let policy = policy(level, options);
        let path = tracefs.root().join("available_filter_functions");
        let symbols = Symbols::read()?;
        let traceable = match tracefs::read(&path) {
            Ok(text) => Traceable::parse(&text),
            // Probes can be made without that list; what cannot be probed is refused one by one.
            Err(_) if level == Level::Probes => {
                Traceable::of(symbols.iter().flat_map(|s| &s.names))
            }
            Err(e) => return Err(e),
        };
        let chosen = match policy.depth {
            Some(0 | 1) => policy.choose(&traceable, &symbols, |_, _| None)?,
            _ => {
                let text = Text::open()?;
                policy.choose(&traceable, &symbols, |at, bytes| text.read(at, bytes))?
            }
        };
        let places = match chosen.is_everything {
            true => Vec::new(),
            false => traceable.places(&chosen.functions, &symbols),
        };
        let how = match level {
            Level::Probes => How::Probes(Probes::switch_on(
                tracefs,
                instance.folder(),
                &chosen.functions,
                &symbols,
            )?),
            _ => How::Functions(Functions::switch_on(
                tracefs,
                instance,
                &places,
                options.buffer_kib,
            )?),
        };
        (options.say)(&told(&how, &policy, &chosen));
        let calls = Calls::new(&chosen, symbols);
        Ok(Self {
            how,
            blocks: None,
            privileges: None,
            values: None,
            counts: None,
            calls,
            is_followed: chosen.depth > 1 && !chosen.is_everything,
            chosen: chosen.functions,
        })
    }

    /// A folder beside the instance that has records, too.
    pub fn folder(&self) -> Option<&Folder> {
        match &self.how {
            How::Functions(functions) if functions.is_at_top() => Some(functions.folder()),
            _ => None,
        }
    }

    /// The folder in which tasks are chosen whose functions are traced.
    pub fn tracer(&self) -> Option<&Folder> {
        match &self.how {
            How::Functions(functions) => Some(functions.folder()),
            _ => None,
        }
    }

    /// True if functions are recorded, some of which may be missed since they are called through
    /// pointers.
    pub fn follows_calls(&self) -> bool {
        !matches!(self.how, How::Nothing) && self.is_followed
    }

    /// Which calls are shown.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// The descriptions of what calls bring with them.
    pub fn descriptions(&self) -> Vec<String> {
        let values = self.values.as_ref();
        values.map_or_else(Vec::new, Values::descriptions)
    }

    /// What a script has added up.
    pub fn sums(&self, tsc: u64) -> Option<Note> {
        self.counts.as_ref()?.note(tsc)
    }

    /// Switches on and off what it is time for.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tick(&self) -> Result<(), KernelError> {
        self.blocks.as_ref().map_or(Ok(()), Blocks::tick)
    }

    /// The task that was running, and what happened to it, of a hook of a block or of credentials.
    pub fn read_hook(&self, record: &[u8]) -> Option<(u32, Vec<Happening>)> {
        let block = self.blocks.as_ref().and_then(|blocks| blocks.read(record));
        block.or_else(|| {
            let (task, change) = self.privileges.as_ref()?.read(record)?;
            Some((task, change.into_iter().collect()))
        })
    }

    /// What has changed with something that is about to happen to a task.
    pub fn change(&self, task: u32, happening: &Happening) -> Option<Happening> {
        self.privileges.as_ref()?.saw(task, happening)
    }

    /// What was seen, where that is worth a line.
    pub fn told_at_end(&self) -> Vec<String> {
        self.blocks
            .as_ref()
            .map_or_else(Vec::new, Blocks::told_at_end)
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let valued = self.values.as_ref().and_then(|values| values.read(record));
        let counted = || self.counts.as_ref().and_then(|counts| counts.read(record));
        if let Some(hooked) = valued.or_else(counted) {
            return Some(hooked);
        }
        match &self.how {
            How::Functions(functions) => functions.read(record),
            How::Probes(probes) => probes.read(record),
            How::Nothing => None,
        }
    }

    /// Calls whose exit could not be recorded.
    pub fn missed(&self) -> u64 {
        let blocks = self.blocks.as_ref().map_or(0, Blocks::missed);
        let values = self.values.as_ref().map_or(0, Values::missed);
        blocks
            + values
            + match &self.how {
                How::Probes(probes) => probes.missed(),
                _ => 0,
            }
    }

    /// What could not be recorded.
    pub fn refused(&self) -> Vec<String> {
        let mut refused = match &self.how {
            How::Probes(probes) => probes.refused.clone(),
            _ => Vec::new(),
        };
        refused.extend(self.blocks.iter().flat_map(Blocks::refused));
        let values = self.values.iter().flat_map(|values| &values.refused);
        refused.extend(values.cloned());
        let counts = self.counts.iter().flat_map(|counts| &counts.refused);
        refused.extend(counts.cloned());
        refused
    }
}

/// What is asked for, with what follows from the rest.
fn policy(level: Level, options: &Options) -> Policy {
    let mut policy = options.policy.clone();
    if policy.roots.is_empty() && policy.functions.is_empty() {
        policy.roots.push(Root::SystemCalls);
    }
    if !options.blocks.is_empty() {
        // What hooks a function's entry stands where a call would.
        policy.without.push(PROBE_HANDLER.to_owned());
    }
    if level == Level::Probes {
        policy.depth = Some(policy.depth.unwrap_or(1));
    }
    policy
}

/// What is recorded, in a line.
fn told(how: &How, policy: &Policy, chosen: &Chosen) -> String {
    let levels = policy.depth.unwrap_or(DEPTH);
    let begun = chosen.roots.len();
    match how {
        How::Functions(functions) => {
            let place = match functions.is_at_top() {
                true => "the top level of tracing, which is given back afterwards",
                false => "an instance of our own",
            };
            let count = chosen.functions.len();
            let followed = match levels {
                1 => "",
                _ => "; none that are called through pointers only",
            };
            format!(
                "level: functions: {count} of the kernel's ({begun} to begin at, {levels} levels{followed}), in {place}"
            )
        }
        How::Probes(probes) => format!(
            "level: probes: at entry and exit of {} of the kernel's functions",
            probes.count()
        ),
        How::Nothing => "level: events".to_owned(),
    }
}
