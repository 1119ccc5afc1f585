//! Functions whose values are left out at times, as levels say that were bidden.
//!
//! Given the switches that the plans of modules have ([`sptrace_wire::levels::SWITCHES`]), and the
//! levels; sets the switches, and tells of each change by a note of the trace as soon as the
//! function has a name there: one that was never called needs none. Must not know who bids.

use std::collections::HashSet;
use std::io::Write;

use sptrace_addr::Svma;
use sptrace_trace::{FunctionId, Level, Note, demangle, glob_matches, without_parameters};
use sptrace_tracee::arena::Arena;

use super::Collector;

/// What is known of them.
#[derive(Default)]
pub(super) struct Shown {
    /// The levels of globs.
    bidden: Vec<(String, Level)>,
    all: Vec<Switched>,
    /// Functions of processes that the trace says to be recorded without values.
    told: HashSet<(u32, FunctionId)>,
}

/// One of them.
struct Switched {
    module: usize,
    svma: u64,
    /// Its name as shown, and its symbol.
    names: [String; 2],
    number: u16,
    is_plain: bool,
    /// When that began.
    since_tsc: u64,
}

impl Switched {
    fn fits(&self, glob: &str) -> bool {
        let [name, symbol] = &self.names;
        let names = [name, symbol, without_parameters(name)];
        names.iter().any(|name| glob_matches(glob, name))
    }

    /// True if the last level that says anything of its values leaves them out. What is to be
    /// counted or off keeps its calls, and with them its values.
    fn shall_be_plain(&self, bidden: &[(String, Level)]) -> bool {
        let of_values = |level| matches!(level, Level::Recorded | Level::Plain);
        let mut last = bidden.iter().rev();
        last.find(|(glob, level)| of_values(*level) && self.fits(glob))
            .is_some_and(|(_, level)| *level == Level::Plain)
    }

    /// True if that has changed.
    fn switch(&mut self, arena: &Arena, bidden: &[(String, Level)]) -> bool {
        let is_plain = self.shall_be_plain(bidden);
        let changes = is_plain != self.is_plain;
        if changes {
            arena.switch_values(self.number, !is_plain);
            (self.is_plain, self.since_tsc) = (is_plain, crate::clock::tsc());
        }
        changes
    }
}

impl Shown {
    /// Functions have these levels from the beginning.
    pub(super) fn begin_with(&mut self, levels: &[(String, Level)]) {
        self.bidden.extend_from_slice(levels);
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.told.retain(|(of, _)| *of != pid);
    }
}

impl<W: Write> Collector<W> {
    /// The functions of a module that nobody runs yet get what was bidden before.
    pub(super) fn add_switches(&mut self, arena: &Arena, index: usize, switches: Vec<(u64, u16)>) {
        let Some(module) = self.book.modules.get(index) else {
            return;
        };
        for (svma, number) in switches {
            let symbol = module
                .cached
                .named_at(Svma(svma))
                .map_or("", |named| named.1);
            let name = match symbol {
                "" => sptrace_code::unnamed(Svma(svma)),
                symbol => demangle(symbol),
            };
            let mut switched = Switched {
                module: index,
                svma,
                names: [name, symbol.to_owned()],
                number,
                is_plain: false,
                since_tsc: 0,
            };
            switched.switch(arena, &self.shown.bidden);
            self.shown.all.push(switched);
        }
    }

    /// A level was bidden of the functions that `glob` matches, the last of `bidden`. True: values
    /// come or go by it.
    pub(super) fn switch_values(
        &mut self,
        arena: &Arena,
        bidden: &[(String, Level)],
        glob: &str,
    ) -> bool {
        self.shown.bidden = bidden.to_vec();
        let shown = &mut self.shown;
        let mut any = false;
        for switched in shown.all.iter_mut().filter(|switched| switched.fits(glob)) {
            any |= switched.switch(arena, &shown.bidden);
        }
        any
    }

    /// Tells of what has changed and was not told yet.
    pub(super) fn tell_switches(&mut self) {
        if self.shown.all.is_empty() {
            return;
        }
        let mut pids: Vec<u32> = self.streams.iter().flatten().map(|s| s.lane.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut notes = Vec::new();
        for switched in &self.shown.all {
            let module = self.book.modules.get(switched.module);
            let Some(function) = module.and_then(|m| m.named(switched.svma)) else {
                continue;
            };
            for pid in &pids {
                let is_told = self.shown.told.contains(&(*pid, function));
                if is_told != switched.is_plain && self.has_loaded(*pid, switched.module) {
                    notes.push((*pid, function, switched.is_plain, switched.since_tsc));
                }
            }
        }
        for (pid, function, is_plain, tsc) in notes {
            let level = match is_plain {
                true => self
                    .shown
                    .told
                    .insert((pid, function))
                    .then_some(Level::Plain),
                false => self
                    .shown
                    .told
                    .remove(&(pid, function))
                    .then_some(Level::Recorded),
            };
            if let Some(level) = level {
                self.note(&Note::Level {
                    pid,
                    tsc,
                    function,
                    level,
                });
            }
        }
    }

    fn has_loaded(&self, pid: u32, module: usize) -> bool {
        let process = self.book.processes.get(&pid);
        process.is_some_and(|process| process.loaded.iter().any(|l| l.module == module))
    }
}
