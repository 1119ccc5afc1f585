//! What is learned of calls in one recording serves the next (`--stamps auto`).
//!
//! Part of the [`Collector`]. A function whose calls were short is likely to have short ones in the
//! next run of the program, or of another with the same library; so its call sites begin in order
//! there ([`Learned`]), which spares the time until its lengths are known. The trace has a note of
//! each such function of a process as of any other in order. Must not know where it is kept.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;

use sptrace_trace::{FunctionId, Level, Note};
use sptrace_tracee::arena::Arena;
use sptrace_wire::plan::{MET_BEFORE, PlanFunction};

use super::{Collector, StreamState};
use crate::decode::mixed::Length;
use crate::decode::module::Module;
use crate::lengths::ByLength;
use crate::levels::Function;
use crate::modules::learned::Learned;

/// So many calls in a sample say what is called at a site.
const LEAST_CALLS: u32 = 4;

/// What was known before, and what has come since.
#[derive(Default)]
pub(super) struct Lessons {
    /// Of some module it was known before which calls are short.
    has_short: bool,
    /// Functions that are in order in some process, or have begun so, as far as they are named.
    begun: HashSet<FunctionId>,
    /// How long the calls of functions have lasted, in all processes.
    totals: HashMap<FunctionId, Length>,
    /// Of modules, by their index: sites through pointers that were met.
    through: HashMap<usize, Through>,
}

/// Sites of a module through pointers, by their numbers.
#[derive(Default)]
struct Through {
    /// Those that were met.
    in_order: BTreeSet<u32>,
    stamped: BTreeSet<u32>,
    /// What was called there in a sample of the calls, and how often.
    called: HashMap<u32, HashMap<FunctionId, u32>>,
}

impl Lessons {
    /// Some calls are in order from the beginning.
    pub(super) fn has_any(&self) -> bool {
        self.has_short
    }

    /// So long calls of a function have lasted.
    pub(super) fn add(&mut self, function: FunctionId, length: Length) {
        self.totals.entry(function).or_default().add(length);
    }

    /// A function was called at a site through a pointer, in a sample of the calls.
    pub(super) fn called(&mut self, module: usize, site: u32, callee: FunctionId) {
        let called = &mut self.through.entry(module).or_default().called;
        *called.entry(site).or_default().entry(callee).or_default() += 1;
    }

    /// Its calls are in order from here on.
    pub(super) fn begin(&mut self, function: FunctionId) {
        self.begun.insert(function);
    }

    /// Are calls of a function short? `None`: not enough of them were seen.
    fn is_short(&self, by_length: &ByLength, function: FunctionId) -> Option<bool> {
        by_length.is_short(self.totals.get(&function)?)
    }
}

impl<W: Write> Collector<W> {
    /// What was known of short calls is of use.
    pub fn learns(&self) -> bool {
        self.lengths.is_some()
    }

    /// What was known of a module before its first call.
    pub fn knows(&mut self, module: usize, learned: Learned) {
        let Some(of) = self.book.modules.get_mut(module) else {
            return;
        };
        if let Some(lengths) = &mut self.lengths {
            let entries = learned.functions.iter();
            of.begins = entries
                .map(|entry| of.base_svma + u64::from(*entry))
                .collect();
            lengths.lessons.has_short |= learned.has_short();
        }
        of.learned = Some(learned);
    }

    /// Functions of which some calls came in order, without a wish of ours: as was learned before,
    /// or because their process has inherited it.
    pub(super) fn adopt_learned(
        &mut self,
        lessons: &mut Lessons,
        (by_length, taken): (&mut ByLength, &HashMap<Function, Length>),
    ) -> Vec<Function> {
        for module in &mut self.book.modules {
            lessons.begun.extend(module.begun.drain(..));
        }
        let is_new = |(function, length): &(&Function, &Length)| {
            length.in_order > 0 && lessons.begun.contains(&function.1)
        };
        let new = taken.iter().filter(is_new);
        let mut new: Vec<_> = new
            .map(|(function, _)| *function)
            .filter(|function| by_length.adopt(*function))
            .collect();
        new.sort_unstable();
        new
    }

    /// Each of these is in order since its process began.
    pub(super) fn note_learned(&mut self, arena: &Arena, functions: &[Function]) {
        for of_one in functions.chunk_by(|one, other| one.0 == other.0) {
            let Some((pid, _)) = of_one.first().copied() else {
                continue;
            };
            let streams = (0..).zip(&self.streams);
            let its = streams.filter(|(_, s)| s.as_ref().is_some_and(|s| s.lane.pid == pid));
            let began = its.map(|(i, _)| arena.stream(i).start_tsc).min();
            for (_, function) in of_one {
                self.note(&Note::Level {
                    pid,
                    tsc: began.unwrap_or_else(crate::clock::tsc),
                    function: *function,
                    level: Level::InOrder,
                });
            }
        }
    }

    /// A stream ends: what it knows of lengths, and of sites through pointers.
    pub(super) fn learn_from(&mut self, arena: &Arena, state: &mut StreamState) {
        let areas = self.areas_of(state);
        let Some(mut lengths) = self.lengths.take() else {
            return;
        };
        let mut taken = HashMap::new();
        for (function, length) in state.cursor.take_lengths() {
            lengths.lessons.add(function, length);
            taken.insert((state.lane.pid, function), length);
        }
        for id in state.cursor.sites() {
            let Some((area, offset)) = areas.find(id) else {
                continue;
            };
            if let Some((site, is_in_order)) = area.places.through_pointer(offset) {
                let met = lengths.lessons.through.entry(area.module).or_default();
                match is_in_order {
                    true => met.in_order.insert(site),
                    false => met.stamped.insert(site),
                };
            }
        }
        let new = self.adopt_learned(&mut lengths.lessons, (&mut lengths.by_length, &taken));
        self.lengths = Some(lengths);
        self.note_learned(arena, &new);
    }

    /// Keeps what was learned for the next recording.
    pub(super) fn keep_learned(&self, arena: &Arena) {
        let short =
            (self.lengths.as_ref()).map(|known| self.short(&known.lessons, &known.by_length));
        let nothing = Through::default();
        for (index, module) in self.book.modules.iter().enumerate() {
            let (Some(before), Some(beside)) = (&module.learned, module.cached.beside()) else {
                continue;
            };
            let mut learned = match (&short, &self.lengths) {
                (Some(short), Some(lengths)) => {
                    let through = lengths.lessons.through.get(&index).unwrap_or(&nothing);
                    short.learned_of(module, before, through)
                }
                _ => before.clone(),
            };
            if arena.control().ahead != 0 {
                learned.met = met_of(module, arena);
            }
            if learned != *before {
                beside.write(&learned.to_bytes());
            }
        }
    }

    fn short(&self, lessons: &Lessons, by_length: &ByLength) -> Short<'_> {
        let functions = self.book.modules.iter().flat_map(Module::functions);
        let known = functions.filter_map(|(function, _, symbol)| {
            let is_short = lessons.is_short(by_length, function)?;
            Some((function, symbol, is_short))
        });
        let mut short = Short::default();
        for (function, symbol, is_short) in known {
            short.functions.insert(function, is_short);
            short.symbols.insert(symbol, is_short);
        }
        short
    }
}

/// The functions of a module that were called in this recording, as offsets of their entries: those
/// that processes had to ask for, and of those that were met before the ones that are named in the
/// trace.
fn met_of(module: &Module, arena: &Arena) -> BTreeSet<u32> {
    let Some(plan) = module.plan() else {
        return BTreeSet::new();
    };
    let header = plan.header();
    let met = arena.bytes_at(
        module.plan_offset + header.met_at(),
        header.functions.into(),
    );
    let is_named = |entry: u32| module.named(module.base_svma + u64::from(entry)).is_some();
    let functions = plan.functions().zip(met);
    let is_met = |(f, met): &(PlanFunction, u8)| match *met {
        0 => false,
        MET_BEFORE => is_named(f.entry),
        _ => true,
    };
    functions.filter(is_met).map(|(f, _)| f.entry).collect()
}

/// Whether the calls of functions are short, of those of which enough were seen.
#[derive(Default)]
struct Short<'a> {
    functions: HashMap<FunctionId, bool>,
    symbols: HashMap<&'a str, bool>,
}

impl Short<'_> {
    /// Are nearly all of these calls short? `None`: too little is known of them.
    fn are_short(&self, called: &HashMap<FunctionId, u32>) -> Option<bool> {
        let (mut short, mut all) = (0, 0);
        for (callee, calls) in called {
            if let Some(is_short) = self.functions.get(callee) {
                all += calls;
                short += if *is_short { *calls } else { 0 };
            }
        }
        (all >= LEAST_CALLS).then_some(u64::from(short) * 10 >= u64::from(all) * 9)
    }

    /// What is known of a module after this recording: of what was not called, as before.
    fn learned_of(&self, module: &Module, before: &Learned, through: &Through) -> Learned {
        let mut learned = before.clone();
        for (function, svma, _) in module.functions() {
            let entry = entry_of(module, svma);
            match self.functions.get(&function) {
                Some(true) => learned.functions.insert(entry),
                Some(false) => learned.functions.remove(&entry),
                None => false,
            };
        }
        learned.sites.extend(&through.in_order);
        learned.sites.extend(&through.stamped);
        // What is called through a pointer of the linker's may be known by its name.
        learned.sites.retain(|site| match module.pointer_of(*site) {
            Some(symbol) => symbol
                .and_then(|symbol| self.symbols.get(symbol).copied())
                .or_else(|| self.are_short(through.called.get(site)?))
                .unwrap_or_else(|| match through.in_order.contains(site) {
                    true => true,
                    false => before.sites.contains(site) && !through.stamped.contains(site),
                }),
            // Also of sites that were not met.
            None => {
                let callee = module.callee_of(*site);
                callee.is_none_or(|callee| self.functions.get(&callee) != Some(&false))
            }
        });
        for (site, callee) in module.met() {
            match self.functions.get(&callee) {
                Some(true) => learned.sites.insert(site),
                Some(false) => learned.sites.remove(&site),
                None => false,
            };
        }
        learned
    }
}

fn entry_of(module: &Module, svma: u64) -> u32 {
    svma.wrapping_sub(module.base_svma) as u32
}
