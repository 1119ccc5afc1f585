//! Functions whose calls are short are recorded in order (`--stamps auto`).
//!
//! Part of the [`Collector`]: asks the streams how long calls have lasted, and carries out what
//! [`crate::lengths`] makes of that, by the wishes that levels have. Must not know when a call is
//! short.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use sptrace_trace::{FunctionId, Level};
use sptrace_tracee::arena::Arena;
use sptrace_wire::levels::SITE;

use super::Collector;
use super::learned::Lessons;
use super::memories::Memories;
use crate::decode::mixed::Length;
use crate::decode::pointers;
use crate::decode::process::Areas;
use crate::lengths::ByLength;
use crate::levels::Function;
use crate::sites::Sites;

/// So often lengths are taken from the streams, and looked at if that is worth it, but not before
/// as much of the newest process's time has passed as [`LOOKS`] says: of what follows most is known
/// soon, and each look makes a thread of the program look at all its call sites.
const TAKE_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 8;
/// So often in any case.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// More full chunks than this wait: what is read is not what the program does.
const BEHIND: usize = 16;
/// For so many calls each of a chunk stands that was looked at ahead.
const AHEAD_WEIGHT: u32 = 8;
/// One of so many chunks is looked at for sites.
const SAMPLED: u32 = 4;

/// What is known of the lengths of calls.
pub(super) struct Lengths {
    pub(super) by_length: ByLength,
    /// Since the last look.
    taken: HashMap<Function, Length>,
    last_taken: Instant,
    last_look: Instant,
    /// Processes that were seen, and when the newest was for the first time.
    seen: HashSet<u32>,
    newest: Instant,
    sites: Sites,
    chunks: u32,
    pub(super) memories: Memories,
    pub(super) last_bid: Instant,
    /// So many times in a row no thread was bidden to look.
    pub(super) idle: u32,
    /// Functions with values, whose calls keep their stamps, as far as they are named, and how many
    /// functions were when this was looked at.
    valued: HashSet<FunctionId>,
    matched: u32,
    pub(super) lessons: Lessons,
}

impl Lengths {
    /// Some calls are recorded in order.
    pub(super) fn has_any(&self) -> bool {
        self.by_length.has_any() || self.lessons.has_any()
    }
}

impl<W: Write> Collector<W> {
    /// Calls that are short are recorded in order. To be said before anything is recorded.
    /// `tsc_hz`: ticks of the clock a second.
    pub fn mix(&mut self, tsc_hz: u64) {
        self.lengths = Some(Lengths {
            by_length: ByLength::new(tsc_hz),
            taken: HashMap::new(),
            last_taken: Instant::now(),
            last_look: Instant::now(),
            seen: HashSet::new(),
            newest: Instant::now(),
            sites: Sites::default(),
            chunks: 0,
            memories: Memories::default(),
            last_bid: Instant::now(),
            idle: 0,
            valued: HashSet::new(),
            matched: 0,
            lessons: Lessons::default(),
        });
    }

    /// Looks at lengths if it is time.
    pub(super) fn may_look_at_lengths(&mut self, arena: &Arena) {
        let is_time = |lengths: &Lengths| lengths.last_taken.elapsed() >= TAKE_EVERY;
        if !self.lengths.as_ref().is_some_and(is_time) {
            return;
        }
        let Some(mut lengths) = self.lengths.take() else {
            return;
        };
        lengths.last_taken = Instant::now();
        // Before what comes later, but not in this round: it might never end.
        self.newer.extend(arena.take_full());
        let is_behind = self.full.len() + self.newer.len() > BEHIND;
        for state in self.streams.iter_mut().flatten() {
            let pid = state.lane.pid;
            if lengths.seen.insert(pid) {
                lengths.newest = lengths.last_taken;
            }
            let all = state.cursor.take_lengths();
            for (function, mut length) in all {
                lengths.lessons.add(function, length);
                let function = (pid, function);
                if is_behind && lengths.by_length.is_in_order(function) {
                    // It has lost its stamps since.
                    length.in_order = length.in_order.saturating_add(length.stamped);
                    length.stamped = 0;
                }
                lengths.taken.entry(function).or_default().add(length);
            }
        }
        if is_behind {
            self.look_ahead_at_lengths(arena, &mut lengths);
        }
        self.leave_valued_out(&mut lengths);
        let Lengths {
            lessons,
            by_length,
            taken,
            ..
        } = &mut lengths;
        let adopted = self.adopt_learned(lessons, (by_length, taken));
        self.note_learned(arena, &adopted);
        let passed = lengths.last_look.elapsed();
        let is_time = passed >= lengths.newest.elapsed() / LOOKS;
        let is_worth = || is_time && lengths.by_length.is_worth(&lengths.taken);
        if passed >= LOOK_EVERY || is_worth() {
            for wish in &lengths.by_length.look(&lengths.taken) {
                if wish.level == Level::InOrder {
                    lengths.lessons.begin(wish.function.1);
                }
                self.wish(arena, wish);
            }
            for (process, id) in lengths.sites.take() {
                arena.wish(process, id, SITE);
            }
            arena.tell_wishes();
            lengths.taken.clear();
            lengths.last_look = lengths.last_taken;
        }
        self.lengths = Some(lengths);
    }

    /// Looks at what was recorded last, which will be read when it is too late.
    fn look_ahead_at_lengths(&mut self, arena: &Arena, lengths: &mut Lengths) {
        let Some(&index) = self.newer.back().or(self.full.back()) else {
            return;
        };
        let meta = arena.chunk(index);
        let Some(stream) = self.streams.get_mut(meta.stream as usize) else {
            return;
        };
        let Some(mut state) = stream.take_if(|state| state.epoch == meta.epoch) else {
            return;
        };
        let (halves, mut found) = (arena.halves(index), HashMap::new());
        self.decode_with(&mut state, |mut decoder| {
            decoder.lengths_ahead(halves, AHEAD_WEIGHT, &mut found);
        });
        let pid = state.lane.pid;
        for (function, length) in found {
            let known = lengths.taken.entry((pid, function)).or_default();
            known.add(length);
        }
        self.streams[meta.stream as usize] = Some(state);
    }

    /// Functions with values keep their stamps, also those that were named just now.
    fn leave_valued_out(&self, lengths: &mut Lengths) {
        let named = self.named_functions();
        if std::mem::replace(&mut lengths.matched, named) != named {
            let all = self.book.modules.iter().flat_map(|m| m.valued());
            lengths.valued.extend(all);
        }
        let Lengths { taken, valued, .. } = lengths;
        taken.retain(|(_, function), _| !valued.contains(function));
    }

    /// Looks for sites of calls through pointers in some chunks: in those in which lengths are
    /// measured for what is learned, and while there are short functions that are called so.
    pub(super) fn sample_short(
        &mut self,
        process: u32,
        halves: &[AtomicU32],
        (areas, pid): (&Areas, u32),
        is_measured: bool,
    ) {
        let Some(lengths) = &mut self.lengths else {
            return;
        };
        lengths.chunks = (lengths.chunks + 1) % SAMPLED;
        let stubborn = lengths.by_length.stubborn();
        let is_looked_for = lengths.chunks == 0 && !stubborn.is_empty();
        if !is_looked_for && !is_measured {
            return;
        }
        pointers::sample(halves, (areas, pid), &self.book, |id, callee| {
            let Some((area, offset)) = areas.find(id) else {
                return;
            };
            if is_looked_for {
                let site = (process, area.start + u64::from(offset));
                lengths.sites.add(site, stubborn.contains(&(pid, callee)));
            }
            if is_measured && let Some((site, _)) = area.places.through_pointer(offset) {
                lengths.lessons.called(area.module, site, callee);
            }
        });
    }

    /// A process has ended, which had the number `process` in the arena.
    pub(super) fn forget_lengths(&mut self, pid: u32, process: u32) {
        if let Some(lengths) = &mut self.lengths {
            lengths.by_length.forget(pid);
            lengths.taken.retain(|(of, _), _| *of != pid);
            lengths.seen.remove(&pid);
            lengths.sites.forget(process);
            lengths.memories.forget(process);
        }
    }
}
