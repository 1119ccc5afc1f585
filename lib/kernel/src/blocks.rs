//! Basic blocks of the kernel's functions, by probes at their first and last instructions.
//!
//! Given what is wanted; reads the functions' text, finds their blocks, makes the probes as events
//! of groups of our own, and switches each function's on and off in our instance when it is time
//! ([`Blocks::tick`]). Given a record; gives what happened. What the kernel refuses is named with
//! its reason, and how it reaches the others is said. The groups bear our process's number and
//! start, by which those of a killed one are found ([`crate::probes::remove_left_over`]).
//!
//! Must not know: tasks, and how a trace is written.

mod hooks;
mod paths;
pub mod wanted;

use crate::calls::Called;
use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::graph::LiveGraph;
use crate::optimized::{self, Way};
use crate::probes;
use crate::source::Happening;
use crate::symbols::Symbols;
use crate::text::Text;
use crate::tracefs::Tracefs;
use hooks::Hook;
use paths::{Hit, Paths};
use sptrace_code::graph::Exit;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use wanted::{Strategy, Wanted};

const FILE: &str = "kprobe_events";
/// More are not made: each takes the kernel some milliseconds to make and to remove.
const MOST: usize = 2000;
/// The kernel replaces breakpoints by jumps some time after they were set.
const OPTIMIZED_AFTER: Duration = Duration::from_secs(3);
/// If the number of jumps has not changed for so long, it will not.
const SETTLED_AFTER: Duration = Duration::from_millis(600);
/// Addresses of the kernel have this bit. Frames of hooked functions and blocks are known by
/// theirs without it, so that they are not taken for functions that another tracer shows.
const KERNEL_BIT: u64 = 1 << 63;
/// `endbr64`: a probe at a function's entry stands behind it.
const ENDBR_BYTES: u64 = 4;

/// One function with its hooks.
#[derive(Debug)]
struct Instrument {
    wanted: Wanted,
    live: LiveGraph,
    /// The group of its events.
    group: String,
    /// Where the kernel has accepted a probe.
    hooks: HashMap<u64, Hook>,
    /// How many were tried.
    tried: usize,
    /// Names of the places that were refused, each with the reason.
    refused: Vec<String>,
    is_on: Cell<bool>,
}

impl Instrument {
    /// What the kernel refuses to hook, in words.
    fn what_stands_at(&self, address: u64) -> String {
        let graph = &self.live.graph;
        let index = graph.block_at(address);
        let block = index.and_then(|index| graph.blocks.get(index));
        match block {
            _ if self.live.switched.contains(&address) => {
                "a branch or call that the kernel switches itself".to_owned()
            }
            Some(block) if block.instructions == 1 && block.exit == Some(Exit::Trap) => {
                format!("{}, by which the kernel warns", block.first)
            }
            Some(block) => block.first.clone(),
            None => "within a block".to_owned(),
        }
    }

    /// Control may pass from one block to the other, perhaps through blocks that are not hooked.
    fn leads_to(&self, from: usize, to: usize) -> bool {
        let graph = &self.live.graph;
        if graph.has_edge(from, to) {
            return true;
        }
        let is_hooked = |index: usize| {
            let block = graph.blocks.get(index);
            block.is_some_and(|b| self.hooks.contains_key(&b.start))
        };
        let mut seen = HashSet::from([from]);
        let mut waiting = vec![from];
        while let Some(block) = waiting.pop() {
            for next in graph.edges_from(block).iter().map(|edge| edge.to) {
                if next == to {
                    return true;
                }
                if !is_hooked(next) && seen.insert(next) {
                    waiting.push(next);
                }
            }
        }
        false
    }
}

/// See the module.
#[derive(Debug)]
pub struct Blocks {
    top: Folder,
    own: Folder,
    instruments: Vec<Instrument>,
    /// By number of the event: the instrument, and the address.
    events: HashMap<u16, (usize, u64, Format)>,
    /// Which calls tasks are in. Records are read one after the other, by one thread.
    paths: RefCell<Paths>,
    begun: Cell<Option<Instant>>,
    base: HashMap<Option<String>, u64>,
}

impl Blocks {
    /// Makes the probes, and switches on those that begin at once, in a folder that records nothing
    /// yet.
    ///
    /// # Errors
    /// There is no such function or block, its text cannot be read, or all probes are refused.
    pub fn switch_on(
        tracefs: &Tracefs,
        own: &Folder,
        wanted: &[Wanted],
    ) -> Result<Self, KernelError> {
        let top = Folder::new(tracefs.root().to_owned());
        if !top.path(FILE).exists() {
            let (what, why) = ("blocks", "it has no kprobe_events".to_owned());
            return Err(KernelError::NotOffered { what, why });
        }
        let symbols = Symbols::read()?;
        let text = Text::open()?;
        let mut blocks = Self {
            top,
            own: own.clone(),
            instruments: Vec::new(),
            events: HashMap::new(),
            paths: RefCell::default(),
            begun: Cell::new(None),
            base: HashMap::new(),
        };
        let mut count = 0;
        for wanted in wanted {
            let live = LiveGraph::of(&wanted.function, &symbols, &text)?;
            let base = symbols.base(live.module.as_deref());
            blocks.base.insert(live.module.clone(), base);
            let hooks = hooks::hooks(&live.graph, &wanted.strategy).map_err(|offset| {
                KernelError::NoBlock(format!("{}+{offset:#x}", wanted.function))
            })?;
            count += hooks.len();
            if count > MOST {
                return Err(KernelError::TooManyBlocks(count));
            }
            blocks.add(wanted.clone(), live, &hooks)?;
        }
        let at_once = || blocks.instruments.iter().filter(|i| i.wanted.is_at_once());
        for instrument in at_once() {
            blocks.turn(instrument, true)?;
        }
        if at_once().next().is_some() {
            blocks.wait_for_jumps();
        }
        Ok(blocks)
    }

    fn add(
        &mut self,
        wanted: Wanted,
        live: LiveGraph,
        hooks: &std::collections::BTreeMap<u64, Hook>,
    ) -> Result<(), KernelError> {
        let number = self.instruments.len();
        self.instruments.push(Instrument {
            wanted,
            live,
            group: probes::group(Some(number)),
            hooks: HashMap::new(),
            tried: hooks.len(),
            refused: Vec::new(),
            is_on: Cell::new(false),
        });
        for (i, (address, hook)) in hooks.iter().enumerate() {
            let made = self.make(number, i, *address);
            let Some(instrument) = self.instruments.last_mut() else {
                continue;
            };
            match made {
                Ok(()) => drop(instrument.hooks.insert(*address, *hook)),
                Err(why) => {
                    let place = instrument.live.place(*address);
                    let what = instrument.what_stands_at(*address);
                    instrument.refused.push(format!("{place}, {what} ({why})"));
                }
            }
        }
        match self.instruments.last() {
            Some(last) if last.hooks.is_empty() => Err(KernelError::NotOffered {
                what: "blocks",
                why: format!("no probe was accepted: {}", last.refused.join(", ")),
            }),
            _ => Ok(()),
        }
    }

    /// A probe at an address. What the kernel says against it is returned.
    fn make(&mut self, number: usize, i: usize, address: u64) -> Result<(), String> {
        let Some(group) = self.instruments.get(number).map(|i| i.group.clone()) else {
            return Ok(());
        };
        let name = format!("b{number}_{i}");
        let line = format!("p:{group}/{name} {address:#x}\n");
        if let Err(e) = self.top.add(FILE, &line) {
            let answer = match e {
                KernelError::File { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            return Err(match self.reason(&format!("{group}/{name}")) {
                Some(reason) => format!("{reason}: {answer}"),
                None => answer,
            });
        }
        let read = self.own.read(&format!("events/{group}/{name}/format"));
        let format = read.map_err(|e| e.to_string())?;
        if let Some(format) = Format::parse(&format) {
            self.events.insert(format.id, (number, address, format));
        }
        Ok(())
    }

    /// What the kernel's log of errors says of the command that would have made this event.
    fn reason(&self, event: &str) -> Option<String> {
        let log = self.top.read("error_log").ok()?;
        let mut error = None;
        let mut reason = None;
        for line in log.lines() {
            if let Some((_, said)) = line.split_once("error: ") {
                error = Some(said.trim().to_owned());
            } else if line.contains("Command:") && line.contains(event) {
                reason = error.clone();
            }
        }
        reason
    }

    fn turn(&self, instrument: &Instrument, on: bool) -> Result<(), KernelError> {
        let file = format!("events/{}/enable", instrument.group);
        self.own.set(&file, if on { "1" } else { "0" })?;
        instrument.is_on.set(on);
        Ok(())
    }

    /// Waits until the kernel has replaced the breakpoints that it replaces, or time is over: what
    /// is recorded then is disturbed as little as it can be.
    fn wait_for_jumps(&self) {
        let begun = Instant::now();
        let (mut known, mut since) = (0, begun);
        while begun.elapsed() < OPTIMIZED_AFTER {
            std::thread::sleep(Duration::from_millis(50));
            let Some(ways) = optimized::ways() else {
                return;
            };
            let jumps = self.count(&ways, Way::Jump, |_| true);
            if jumps != known {
                (known, since) = (jumps, Instant::now());
            }
            if known > 0 && since.elapsed() > SETTLED_AFTER {
                return;
            }
        }
    }

    fn count(&self, ways: &HashMap<u64, Way>, way: Way, of: impl Fn(&Instrument) -> bool) -> usize {
        let hooks = self.instruments.iter().filter(|i| of(i));
        let hooks = hooks.flat_map(|i| i.hooks.keys());
        let is_so = |address: &&u64| {
            let behind = ways.get(&(**address + ENDBR_BYTES));
            let found = ways.get(*address).or(behind.filter(|w| **w == Way::Tracer));
            found == Some(&way)
        };
        hooks.filter(is_so).count()
    }

    /// Switches on and off what it is time for.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tick(&self) -> Result<(), KernelError> {
        let begun = self.begun.get().unwrap_or_else(Instant::now);
        self.begun.set(Some(begun));
        let now = begun.elapsed();
        for instrument in &self.instruments {
            let wanted = &instrument.wanted;
            let is_time = now >= wanted.start && wanted.end.is_none_or(|end| now < end);
            if is_time != instrument.is_on.get() {
                self.turn(instrument, is_time)?;
            }
        }
        Ok(())
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Vec<Happening>)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let (number, address, format) = self.events.get(&id)?;
        let task = u32::try_from(format.number(record, "common_pid")?).ok()?;
        let instrument = self.instruments.get(*number)?;
        let graph = &instrument.live.graph;
        let hit = Hit {
            function: *number,
            hook: *instrument.hooks.get(address)?,
            entry: graph.entry() & !KERNEL_BIT,
            key: &|block| key(instrument, block),
            has_edge: &|from, to| instrument.leads_to(from, to),
            is_function: !matches!(instrument.wanted.strategy, Strategy::Only(_)),
        };
        Some((task, self.paths.borrow_mut().hit(task, &hit)))
    }

    /// How the frames of functions and blocks are shown, by what they are known by.
    pub fn named(&self) -> HashMap<u64, (Called, bool)> {
        let mut named = HashMap::new();
        for instrument in &self.instruments {
            let live = &instrument.live;
            let module = live.module.as_deref().unwrap_or("kernel");
            let base = self.base.get(&live.module).copied().unwrap_or(0);
            let called = |name: String, at: u64, bytes: u64| Called {
                module: format!("[{module}]"),
                name,
                offset: at.saturating_sub(base),
                bytes,
            };
            for hook in instrument.hooks.values() {
                for index in hook.begins.into_iter().chain(hook.ends) {
                    if let Some(block) = live.graph.blocks.get(index) {
                        let bytes = block.end - block.start;
                        let shown = called(live.place(block.start), block.start, bytes);
                        named.insert(key(instrument, index), (shown, true));
                    }
                }
            }
            let entry = live.graph.entry();
            let bytes = live.graph.ranges.first().map_or(0, |r| r.end - r.start);
            let shown = called(live.name.clone(), entry, bytes);
            named.insert(entry & !KERNEL_BIT, (shown, false));
        }
        named
    }

    /// What is hooked, in a line for each function.
    pub fn told(&self) -> Vec<String> {
        let ways = optimized::ways();
        let told = |i: &Instrument| {
            let what = match &i.wanted.strategy {
                Strategy::Path => "every block",
                Strategy::Exits => "the entry and what leaves it",
                Strategy::Only(_) => "blocks, before and after",
            };
            let mut line = format!(
                "blocks of {}: {what}: {} of {} hooks accepted",
                i.live.name,
                i.hooks.len(),
                i.tried
            );
            if let Some(ways) = ways.as_ref().filter(|_| i.is_on.get()) {
                let of = |way| self.count(ways, way, |other| std::ptr::eq(other, i));
                line.push_str(&format!(
                    "; {} by a jump, {} by the function tracer, {} by a breakpoint",
                    of(Way::Jump),
                    of(Way::Tracer),
                    of(Way::Breakpoint)
                ));
            }
            if !i.is_on.get() {
                line.push_str(&format!("; it begins after {:?}", i.wanted.start));
            }
            if i.live.graph.unreached_bytes > 0 {
                let bytes = i.live.graph.unreached_bytes;
                line.push_str(&format!("; {bytes} bytes that nothing was seen to lead to"));
            }
            line
        };
        self.instruments.iter().map(told).collect()
    }

    /// What was seen, in a line for each function.
    pub fn told_at_end(&self) -> Vec<String> {
        let told = |(number, i): (usize, &Instrument)| {
            let seen = self.paths.borrow().seen(number);
            let mut line = format!("blocks of {}: {} calls", i.live.name, seen.calls);
            if seen.outside > 0 {
                line.push_str(&format!("; {} hits of calls begun before", seen.outside));
            }
            let missed = self.missed_of(|other| std::ptr::eq(other, i));
            if missed > 0 {
                line.push_str(&format!(
                    "; {missed} hits missed, since another was dealt with"
                ));
            }
            if seen.without_edge > 0 && i.wanted.strategy == Strategy::Path {
                let count = seen.without_edge;
                line.push_str(&format!("; {count} steps along no edge of the graph"));
                let worst = self.paths.borrow().worst_step(number);
                if let Some((from, to)) = worst {
                    let place = |b: usize| i.live.graph.blocks.get(b).map(|b| b.start);
                    let place = |b| place(b).map_or_else(String::new, |at| i.live.place(at));
                    line.push_str(&format!(", most from {} to {}", place(from), place(to)));
                }
            }
            line
        };
        let followed = self.instruments.iter().enumerate();
        let followed = followed.filter(|(_, i)| !matches!(i.wanted.strategy, Strategy::Only(_)));
        followed.map(told).collect()
    }

    /// What the kernel refused.
    pub fn refused(&self) -> Vec<String> {
        let refused = self.instruments.iter().map(|i| i.refused.clone());
        refused.collect::<Vec<_>>().concat()
    }

    /// Hits that the kernel could not record.
    pub fn missed(&self) -> u64 {
        self.missed_of(|_| true)
    }

    fn missed_of(&self, is_meant: impl Fn(&Instrument) -> bool) -> u64 {
        let profile = self.top.read("kprobe_profile").unwrap_or_default();
        let missed = profile.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let of = |i: &Instrument| self.own.path("events").join(&i.group).join(name).exists();
            let is_ours = self.instruments.iter().any(|i| is_meant(i) && of(i));
            words.nth(1)?.parse::<u64>().ok().filter(|_| is_ours)
        });
        missed.sum()
    }
}

/// How the frames of a block are known.
fn key(instrument: &Instrument, block: usize) -> u64 {
    let start = instrument
        .live
        .graph
        .blocks
        .get(block)
        .map_or(0, |b| b.start);
    match start == instrument.live.graph.entry() {
        // The function's own frame is known by its entry.
        true => (start + 1) & !KERNEL_BIT,
        false => start & !KERNEL_BIT,
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for instrument in &self.instruments {
            let _ = self.turn(instrument, false);
        }
        let groups: Vec<&str> = self.instruments.iter().map(|i| i.group.as_str()).collect();
        probes::remove(&self.top, |group| groups.contains(&group));
    }
}
