//! Functions whose calls are counted while they are called too often.
//!
//! Given the limit, or a budget that says it anew at each look ([`crate::budget`]), or levels that
//! payloads bid; watches the calls that are recorded, and the cells of those that are counted, and
//! tells the agents whose level is to change ([`sptrace_wire::levels`]), which becomes a note of
//! the trace. Must not know how often that is.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use sptrace_trace::{FunctionId, Level, Note, demangle, glob_matches, without_parameters};
use sptrace_tracee::arena::Arena;
use sptrace_tracee::proc::CpuTime;
use sptrace_wire::levels::{ALL, COUNTED, OFF, RECORDED, SITE};

use super::Collector;
use crate::budget::{Budget, Prices, Spent, Used};
use crate::cpu_times::CpuTimes;
use crate::decode::pointers;
use crate::decode::process::Areas;
use crate::levels::{Called, Function, Governor, Rates, Wish};
use crate::request::Limit;
use crate::sites::{Site, Sites};
use crate::tally::Tally;

/// The rates of functions are looked at so often,
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// and with a budget, which a look is paid from as well, unless there are very many calls.
const LOOK_CALMLY_EVERY: Duration = Duration::from_millis(200);
/// A call is two records of eight bytes.
const CALL_BYTES: u64 = 16;

/// What calls are counted: of a function, at a site of calls through a pointer or at all others.
pub(super) type Where = (Function, Option<Site>);

/// From when to when functions were off; to the end of time if they are.
pub(super) type OffTimes = HashMap<Function, Vec<(u64, u64)>>;

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
    spending: Option<Spending>,
    /// Levels that were bidden of functions, by globs: the last that matches counts.
    bidden: Vec<(String, Level)>,
    /// Functions with lower numbers were matched with them.
    matched: u32,
    /// Some functions have payloads, or values: which, as far as they are named.
    needs_calls: bool,
    /// And those that these globs match: recording begins at them, whatever their level is.
    roots: Vec<String>,
    needed: HashSet<FunctionId>,
}

/// A budget, and what is measured for it.
struct Spending {
    budget: Budget,
    program: CpuTimes,
    /// Our own CPU time at the last look, and the bytes of records.
    own: Duration,
    record_bytes: u64,
}

impl Spending {
    fn new(share: f64, tsc_hz: u64, in_order: bool) -> Self {
        Self {
            budget: Budget::new(share, Prices::measured(tsc_hz, in_order)),
            program: CpuTimes::default(),
            own: CpuTime::ours(),
            record_bytes: 0,
        }
    }

    /// The rates for the time to come, after `elapsed` in which processes have made such calls.
    fn look(
        &mut self,
        elapsed: Duration,
        pids: impl IntoIterator<Item = u32>,
        called: &HashMap<Function, Called>,
    ) -> Rates {
        let own = CpuTime::ours();
        let used = Used {
            elapsed,
            program: self.program.since(elapsed, pids, &CpuTime::of),
            own: own.saturating_sub(std::mem::replace(&mut self.own, own)),
        };
        self.budget.look(used, called)
    }
}

impl<W: Write> Collector<W> {
    /// The calls of a function are counted while it is called too often, if there is a limit. To be
    /// said before anything is recorded. `needs_calls`: those of some functions are never counted,
    /// since something runs at each, nor are those that match `roots`. `tsc_hz`: ticks of the clock
    /// a second.
    pub fn limit(
        &mut self,
        (limit, needs_calls): (Option<Limit>, bool),
        roots: Vec<String>,
        tsc_hz: u64,
    ) {
        let (governor, spending) = match limit {
            None => return,
            Some(Limit::Rate(calls_per_s)) => (Governor::new(calls_per_s), None),
            Some(Limit::Short {
                calls_per_s,
                shorter_than,
            }) => {
                let ticks = shorter_than.as_secs_f64() * tsc_hz as f64;
                (Governor::of_short(calls_per_s, ticks as u64), None)
            }
            Some(Limit::Bidden) => (Governor::bidden(), None),
            Some(Limit::Budget(share)) => (
                Governor::with_changing_rates(),
                Some(Spending::new(share, tsc_hz, self.counts_records)),
            ),
        };
        self.recorder.tally = Some(match limit {
            Some(Limit::Short { .. }) => Tally::measuring(),
            _ => Tally::default(),
        });
        self.watch = Some(Watch {
            governor,
            last: Instant::now(),
            last_tsc: crate::clock::tsc(),
            sites: Sites::default(),
            chunks: 0,
            counted: HashMap::new(),
            spending,
            bidden: Vec::new(),
            matched: 0,
            needs_calls,
            roots,
            needed: HashSet::new(),
        });
    }

    /// Functions that these globs match have these levels from the beginning.
    pub fn begin_with(&mut self, levels: &[(String, Level)]) {
        if let Some(watch) = &mut self.watch {
            watch.bidden.extend_from_slice(levels);
            self.shown.begin_with(levels);
        }
    }

    /// What was spent of the budget so far; `None`: there is none.
    pub(crate) fn spent(&self) -> Option<Spent> {
        let spending = self.watch.as_ref()?.spending.as_ref()?;
        Some(spending.budget.spent())
    }

    /// Looks at levels if it is time. Also between chunks: who drains all that there is may come to
    /// nothing else for long, just where functions are hot.
    pub(super) fn may_look_at_levels(&mut self, arena: &Arena) {
        let Some(watch) = &self.watch else { return };
        let elapsed = watch.last.elapsed();
        let is_time = elapsed >= LOOK_EVERY
            && watch.spending.as_ref().is_none_or(|spending| {
                let bytes = self.record_bytes - spending.record_bytes;
                elapsed >= LOOK_CALMLY_EVERY
                    || spending.budget.is_urgent(bytes / CALL_BYTES, elapsed)
            });
        if is_time {
            self.look_at_levels(arena);
        }
    }

    /// Looks at what was called since the last time.
    fn look_at_levels(&mut self, arena: &Arena) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        let counts = watch.governor.may_count();
        if counts && self.full.is_empty() {
            // What is counted is as new as where slots count.
            self.count_early(arena);
        }
        let tally = self.recorder.tally.as_mut().map(Tally::take);
        let (mut called, ticks) = tally.unwrap_or_default();
        let (time, tsc) = (watch.last.elapsed(), crate::clock::tsc());
        let mut at_sites = Vec::new();
        if counts {
            let counted = self.counted_so_far(arena);
            at_sites = since(&watch.counted, &counted, &mut called);
            watch.counted = counted;
        }
        self.match_new(&mut watch);
        self.tell_switches();
        // A call that is an event must be seen.
        let writer = &self.recorder.writer;
        let needed = &watch.needed;
        let is_free = |function| writer.class(function) == 0 && !needed.contains(&function);
        called.retain(|(_, function), _| is_free(*function));
        if let Some(spending) = &mut watch.spending {
            let pids: HashSet<u32> = self.streams.iter().flatten().map(|s| s.lane.pid).collect();
            watch.governor.set_rates(spending.look(time, pids, &called));
            spending.record_bytes = self.record_bytes;
        }
        let (bound, quiet) = match counts {
            true => {
                let quiet = watch.governor.quiet_in(time);
                watch.sites.look(time, quiet, &at_sites)
            }
            false => Default::default(),
        };
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
        let sites = watch.sites.take();
        // Others may be called there as well.
        for (process, id) in sites.into_iter().filter(|_| !watch.needs_calls) {
            arena.wish(process, id, SITE);
        }
        arena.tell_wishes();
        self.watch = Some(watch);
    }

    /// Calls of these functions have this level from here on, in all processes. True: it is another
    /// than was asked for last.
    pub fn bid_level(&mut self, arena: &Arena, glob: &str, level: Level) -> bool {
        // Functions have names when a call of them was read.
        self.take_early(arena);
        let Some(mut watch) = self.watch.take() else {
            return false;
        };
        self.match_new(&mut watch);
        let known = watch.bidden.iter().find(|(of, _)| of == glob);
        let before = known.map_or(Level::Recorded, |(_, level)| plainly(*level));
        watch.bidden.retain(|(of, _)| of != glob);
        watch.bidden.push((glob.to_owned(), level));
        let has_switched = self.switch_values(arena, &watch.bidden, glob);
        self.tell_switches();
        let level = plainly(level);
        let mut pids: Vec<u32> = self.streams.iter().flatten().map(|s| s.lane.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut wishes = Vec::new();
        let fitting = self.functions_for(&[(glob.to_owned(), level)], 0);
        let free = fitting
            .into_iter()
            .filter(|(f, _)| !watch.needed.contains(f));
        for (function, fits) in free.collect::<Vec<_>>() {
            watch.governor.bid(function, fits);
            for pid in &pids {
                if self.avma_of(*pid, function).is_some() {
                    watch.governor.bid_now((*pid, function), fits, &mut wishes);
                }
            }
        }
        for wish in &wishes {
            self.wish(arena, wish);
        }
        arena.tell_wishes();
        self.watch = Some(watch);
        before != level || has_switched
    }

    /// Functions that are named by now get the levels that were bidden before.
    fn match_new(&self, watch: &mut Watch) {
        let from = std::mem::replace(&mut watch.matched, self.named_functions());
        if from == watch.matched {
            return;
        }
        if watch.needs_calls {
            let all = self.book.modules.iter().flat_map(|m| m.valued());
            watch.needed.extend(all);
        }
        if !watch.roots.is_empty() {
            let recorded = |glob: &String| (glob.clone(), Level::Recorded);
            let roots: Vec<_> = watch.roots.iter().map(recorded).collect();
            let new = self.functions_for(&roots, from);
            watch
                .needed
                .extend(new.iter().map(|(function, _)| *function));
        }
        if watch.bidden.is_empty() {
            return;
        }
        let new = self.functions_for(&watch.bidden, from).into_iter();
        for (function, level) in new.filter(|(f, _)| !watch.needed.contains(f)) {
            watch.governor.bid(function, plainly(level));
        }
    }

    pub(super) fn named_functions(&self) -> u32 {
        let all = self.book.modules.iter().map(|m| m.named_functions());
        all.sum::<usize>() as u32
    }

    /// The functions that one of the globs matches, and the level that the last of these has, but
    /// for those with numbers below `from`.
    fn functions_for(&self, bidden: &[(String, Level)], from: u32) -> Vec<(FunctionId, Level)> {
        let mut found = Vec::new();
        for module in &self.book.modules {
            for (id, svma, symbol) in module.functions().filter(|(id, ..)| id.0 >= from) {
                let name = match symbol {
                    "" => sptrace_code::unnamed(sptrace_addr::Svma(svma)),
                    symbol => demangle(symbol),
                };
                let names = [&name, symbol, without_parameters(&name)];
                let fits = |glob: &str| names.iter().any(|name| glob_matches(glob, name));
                let last = bidden.iter().rev().find(|(glob, _)| fits(glob));
                if let Some((_, level)) = last
                    && self.recorder.writer.class(id) == 0
                {
                    found.push((id, *level));
                }
            }
        }
        found.sort_unstable_by_key(|(id, _)| id.0);
        found
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
        for function in functions.filter(|function| !watch.needed.contains(function)) {
            watch.governor.adopt((pid, function), &mut wishes);
        }
        for wish in &wishes {
            self.wish(arena, wish);
        }
        arena.tell_wishes();
        self.watch = Some(watch);
    }

    /// A process was forked from another at this time: it has what was off there so in its text.
    pub(super) fn inherit_levels(&mut self, (parent, child): (u32, u32), start_tsc: u64) {
        let is_known = self.streams.iter().flatten().any(|s| s.lane.pid == child);
        let Some(watch) = self.watch.as_mut().filter(|_| !is_known) else {
            return;
        };
        let mut notes = Vec::new();
        for ((_, function), times) in self.off_times.iter().filter(|((pid, _), _)| *pid == parent) {
            let is_then = |(from, to): &&(u64, u64)| (*from..*to).contains(&start_tsc);
            let Some((_, to)) = times.iter().find(is_then) else {
                continue;
            };
            notes.push((start_tsc, *function, Level::Off));
            match *to {
                u64::MAX => watch.governor.inherit_off((child, *function)),
                to => notes.push((to, *function, Level::Recorded)),
            }
        }
        for (tsc, function, level) in notes {
            self.note(&Note::Level {
                pid: child,
                tsc,
                function,
                level,
            });
        }
    }

    /// A process has ended, which had the number `process` in the arena: another may come to have
    /// its pid.
    pub(super) fn forget_levels(&mut self, pid: u32, process: u32) {
        self.off_times.retain(|(of, _), _| *of != pid);
        self.shown.forget(pid);
        if let Some(tally) = &mut self.recorder.tally {
            tally.forget(pid);
        }
        if let Some(watch) = &mut self.watch {
            watch.governor.forget(pid);
            watch.sites.forget(process);
            watch.counted.retain(|((of, _), _), _| *of != pid);
        }
    }

    /// Tells the agents of all processes with this number.
    pub(super) fn wish(&mut self, arena: &Arena, wish: &Wish) {
        let (pid, function) = wish.function;
        if wish.level != Level::Recorded && self.recorder.writer.class(function) != 0 {
            return;
        }
        let Some(avma) = self.avma_of(pid, function) else {
            return;
        };
        let level = match wish.level {
            Level::Recorded | Level::Plain => RECORDED,
            Level::Counted | Level::InOrder => COUNTED,
            Level::Off => OFF,
        };
        let streams = (0..).zip(&self.streams);
        let its = streams.filter(|(_, state)| state.as_ref().is_some_and(|s| s.lane.pid == pid));
        let mut processes: Vec<u32> = its.map(|(i, _)| arena.stream(i).process).collect();
        processes.sort_unstable();
        processes.dedup();
        let tsc = crate::clock::tsc();
        if self.keeps_off_time(wish, tsc) {
            arena.wish(ALL, avma, level);
        }
        for process in processes {
            arena.wish(process, avma, level);
        }
        if !wish.is_repeated {
            self.note(&Note::Level {
                pid,
                tsc,
                function,
                level: wish.level,
            });
        }
    }

    /// Keeps when functions are off. True: one was, and is not any more.
    fn keeps_off_time(&mut self, wish: &Wish, tsc: u64) -> bool {
        let times = self.off_times.get_mut(&wish.function);
        match (wish.level, times) {
            (Level::Off, Some(times)) if times.last().is_some_and(|t| t.1 == u64::MAX) => false,
            (Level::Off, _) => {
                self.off_times
                    .entry(wish.function)
                    .or_default()
                    .push((tsc, u64::MAX));
                false
            }
            (_, Some(times)) => times.last_mut().is_some_and(|last| {
                last.1 = last.1.min(tsc);
                true
            }),
            (_, None) => false,
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

/// What a level is where values are not looked at: whether they are shown is no matter of slots.
fn plainly(level: Level) -> Level {
    match level {
        Level::Plain => Level::Recorded,
        level => level,
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
