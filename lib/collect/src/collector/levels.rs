//! Functions whose calls are counted while they are called too often.
//!
//! Given the limit; watches the calls that are recorded, and the cells of those that are counted,
//! and tells the agents whose level is to change ([`sptrace_wire::levels`]), which becomes a note
//! of the trace. Must not know how often that is.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use sptrace_trace::{FunctionId, Level, Note};
use sptrace_tracee::arena::Arena;
use sptrace_wire::levels::{COUNTED, RECORDED, SITE};

use super::Collector;
use crate::decode::pointers;
use crate::decode::process::Areas;
use crate::levels::{Called, Function, Governor, Site, Sites, Tally, Wish};

/// The rates of functions are looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What calls are counted: of a function, at a site of calls through a pointer or at all others.
pub(super) type Where = (Function, Option<Site>);

/// What is known of levels.
pub(super) struct Watch {
    governor: Governor,
    /// When it was looked last, by both clocks.
    last: Instant,
    last_tsc: u64,
    sites: Sites,
    /// Chunks until one is looked at for sites.
    chunks: u32,
    /// What was counted of each function and at each site at the last look.
    counted: HashMap<Where, u64>,
}

impl<W: Write> Collector<W> {
    /// The calls of a function are counted while there are more of them a second, if there is such
    /// a limit. To be said before anything is recorded.
    pub fn limit(&mut self, calls_per_s: Option<u64>) {
        let Some(calls_per_s) = calls_per_s else {
            return;
        };
        self.recorder.tally = Some(Tally::default());
        self.watch = Some(Watch {
            governor: Governor::new(calls_per_s),
            last: Instant::now(),
            last_tsc: crate::clock::tsc(),
            sites: Sites::default(),
            chunks: 0,
            counted: HashMap::new(),
        });
    }

    /// Looks at levels if it is time. Also between chunks: who drains all that there is may come to
    /// nothing else for long, just where functions are hot.
    pub(super) fn may_look_at_levels(&mut self, arena: &Arena) {
        let last = self.watch.as_ref().map(|watch| watch.last);
        if last.is_some_and(|last| last.elapsed() >= LOOK_EVERY) {
            self.look_at_levels(arena);
        }
    }

    /// Looks at what was called since the last time.
    fn look_at_levels(&mut self, arena: &Arena) {
        let (Some(mut watch), Some(tally)) = (self.watch.take(), &mut self.recorder.tally) else {
            return;
        };
        let (mut called, ticks) = tally.take();
        let (time, tsc) = (watch.last.elapsed(), crate::clock::tsc());
        let (mut bound, mut quiet) = Default::default();
        if watch.governor.may_count() {
            let counted = self.counted_so_far(arena);
            let at_sites = since(&watch.counted, &counted, &mut called);
            watch.counted = counted;
            (bound, quiet) = watch
                .sites
                .look(time, watch.governor.quiet_in(time), &at_sites);
        }
        let passed_ticks = tsc.saturating_sub(watch.last_tsc).max(1) as f64;
        let times = ticks.into_iter();
        let times = times.map(|(pid, ticks)| (pid, time.mul_f64(ticks as f64 / passed_ticks)));
        let wishes = watch.governor.look(time, &times.collect(), &called, &bound);
        (watch.last, watch.last_tsc) = (Instant::now(), tsc);
        for wish in &wishes {
            self.wish(arena, wish);
        }
        for (process, id) in quiet {
            arena.wish(process, id, RECORDED);
        }
        for (process, id) in watch.sites.take() {
            arena.wish(process, id, SITE);
        }
        self.watch = Some(watch);
    }

    /// Looks for sites of calls through pointers in some chunks, while there are functions that are
    /// called through pointers too often.
    pub(super) fn sample_sites(
        &mut self,
        process: u32,
        halves: &[AtomicU32],
        (areas, pid): (&Areas, u32),
    ) {
        const EVERY: u32 = 4;
        let Some(watch) = &mut self.watch else {
            return;
        };
        let stubborn = watch.governor.stubborn();
        if stubborn.is_empty() {
            return;
        }
        watch.chunks = (watch.chunks + 1) % EVERY;
        if watch.chunks != 0 {
            return;
        }
        pointers::sample(halves, (areas, pid), &self.book, |id, callee| {
            if let Some((area, offset)) = areas.find(id) {
                let site = (process, area.start + u64::from(offset));
                watch.sites.add(site, stubborn.contains(&(pid, callee)));
            }
        });
    }

    /// A thread that ends has counted calls of these functions of its process.
    pub(super) fn has_counted(
        &mut self,
        arena: &Arena,
        pid: u32,
        functions: impl Iterator<Item = FunctionId>,
    ) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        let mut wishes = Vec::new();
        for function in functions {
            watch.governor.adopt((pid, function), &mut wishes);
        }
        for wish in &wishes {
            self.wish(arena, wish);
        }
        self.watch = Some(watch);
    }

    /// A process has ended: another may come to have its number.
    pub(super) fn forget_levels(&mut self, pid: u32) {
        if let Some(tally) = &mut self.recorder.tally {
            tally.forget(pid);
        }
        if let Some(watch) = &mut self.watch {
            watch.governor.forget(pid);
            watch.counted.retain(|((of, _), _), _| *of != pid);
        }
    }

    /// Tells the agents of all processes with this number.
    fn wish(&mut self, arena: &Arena, wish: &Wish) {
        let (pid, function) = wish.function;
        let Some(avma) = self.avma_of(pid, function) else {
            return;
        };
        let level = match wish.level {
            Level::Recorded => RECORDED,
            Level::Counted => COUNTED,
        };
        let streams = (0..).zip(&self.streams);
        let its = streams.filter(|(_, state)| state.as_ref().is_some_and(|s| s.lane.pid == pid));
        let mut processes: Vec<u32> = its.map(|(i, _)| arena.stream(i).process).collect();
        processes.sort_unstable();
        processes.dedup();
        for process in processes {
            arena.wish(process, avma, level);
        }
        if !wish.is_repeated {
            self.note(&Note::Level {
                pid,
                tsc: crate::clock::tsc(),
                function,
                level: wish.level,
            });
        }
    }

    /// Where a function of the trace lies in a process.
    fn avma_of(&self, pid: u32, function: FunctionId) -> Option<u64> {
        let modules = self.book.modules.iter().enumerate();
        let mut found = modules.filter_map(|(i, m)| Some((i, m.svma_of(function)?)));
        let (module, svma) = found.next()?;
        let loaded = &self.book.processes.get(&pid)?.loaded;
        let loaded = loaded.iter().rev().find(|l| l.module == module)?;
        Some(svma.wrapping_add(loaded.bias))
    }
}

/// Adds what was counted since `before` to the calls of the functions; what of it at which sites.
fn since(
    before: &HashMap<Where, u64>,
    counted: &HashMap<Where, u64>,
    called: &mut HashMap<Function, Called>,
) -> Vec<(Site, Function, u64)> {
    let mut at_sites = Vec::new();
    for (&(function, site), &calls) in counted {
        let before = before.get(&(function, site)).copied().unwrap_or(0);
        let new = calls.saturating_sub(before);
        called.entry(function).or_default().counted += new;
        at_sites.extend(site.map(|site| (site, function, new)));
    }
    at_sites
}
