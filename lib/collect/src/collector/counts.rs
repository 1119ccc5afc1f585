//! What a thread has counted, or was counted of its records, becomes a note of the trace when it
//! ends.
//!
//! Given the regions of the arena ([`sptrace_wire::counts`]), which the program may have written
//! anything into: what is no place in a patch area, and no stream's, is passed over. Also what the
//! decoder has counted of calls that were recorded for that. Must not know when a thread ends.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use sptrace_trace::{Counted, Note};
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::{STREAM_DEAD, STREAMS};
use sptrace_wire::counts::*;

use super::feed::{Feed, Pair};
use super::levels::Where;
use super::{Collector, StreamState};
use crate::decode::book::{AddressBook, CalledFrom};
use crate::decode::names::Naming;
use crate::decode::process::Areas;

/// Calls that were counted.
struct Calls {
    pair: Pair,
    /// Id of the site, if it calls through a pointer.
    site: Option<u64>,
    calls: u64,
}

/// How often edges were counted, and in which region of the arena, if in one.
struct CountedEdges {
    own: Option<u32>,
    edges: Vec<(u64, u64)>,
}

impl<W: Write> Collector<W> {
    /// Calls that are counted are recorded in order for that, all (`all`) or those of some
    /// functions at times. To be said before anything else is.
    pub fn count_records(&mut self, all: bool) {
        self.counts_records = true;
        self.recorder.counts = all;
    }

    /// Of calls in order nothing matters but how many there are at each site. False: also what they
    /// lie in, or that they are made.
    pub(super) fn counts_by_edge(&self) -> bool {
        let needs_nesting = self.recorder.depth_limit > 0 || self.recorder.calls.is_some();
        self.counts_records && !(self.recorder.counts && needs_nesting)
    }

    /// Counts what threads have written by now, and not handed over.
    pub(super) fn count_early(&mut self, arena: &Arena) {
        if self.counts_records {
            self.take_early(arena);
        }
    }

    /// Notes what the thread of a stream that ends has counted, and makes its counts zero.
    pub(super) fn take_counts(&mut self, arena: &Arena, i: usize, state: &mut StreamState) {
        let counted = counted_of(arena, i, state);
        if let Some(own) = counted.own {
            arena.clear_cells(own);
        }
        if self.has_counted_all {
            return;
        }
        let (all, nonsense) = self.calls_of(state, counted.edges);
        if all.is_empty() && nonsense == 0 {
            return;
        }
        self.torn.nonsense += nonsense;
        self.has_counted(arena, state.lane.pid, all.iter().map(|c| c.pair.1));
        self.note(&note_of(state, all));
    }

    /// The recording ends, and its threads go on: what they have counted so far is noted, and
    /// nothing of what comes.
    pub(crate) fn end_counts(&mut self, arena: &Arena) {
        if !self.has_counted_all {
            self.count_early(arena);
            let notes = self.notes_of_counts(arena);
            notes.iter().for_each(|note| self.note(note));
            self.has_counted_all = true;
        }
    }

    /// What threads that run have counted so far, for a copy of the trace: nothing is taken away.
    pub(crate) fn notes_of_counts(&mut self, arena: &Arena) -> Vec<Note> {
        let mut notes = Vec::new();
        for i in 0..self.streams.len() {
            let Some(mut state) = self.streams[i].take() else {
                continue;
            };
            let counted = counted_of(arena, i, &state);
            let all = self.calls_of(&mut state, counted.edges).0;
            if !all.is_empty() {
                notes.push(note_of(&state, all));
            }
            self.streams[i] = Some(state);
        }
        let written = self.recorder.writer.write_names();
        self.check(written);
        notes
    }

    /// What is known of addresses of a process is about to change: what its threads have counted by
    /// now has the names that it has now.
    pub(super) fn name_counts(&mut self, arena: &Arena, pid: u32) {
        for i in 0..self.streams.len() {
            let Some(mut state) = self.streams[i].take() else {
                continue;
            };
            if state.lane.pid == pid {
                let edges = counted_of(arena, i, &state).edges;
                let mut named: HashMap<u64, u64> = HashMap::new();
                for (edge, calls) in &edges {
                    *named.entry(*edge).or_default() += calls;
                }
                let all = self.calls_of(&mut state, edges).0;
                state.lane.counted = sums_of(all).into_iter().collect();
                state.lane.named = named;
            }
            self.streams[i] = Some(state);
        }
    }

    /// Who has called whom how often and where, and how many edges are nonsense.
    fn calls_of(&mut self, state: &mut StreamState, counted: Vec<(u64, u64)>) -> (Vec<Calls>, u64) {
        let areas = self.areas_of(state);
        let pid = state.lane.pid;
        let mut feed = Feed {
            recorder: &mut self.recorder,
            lane: &mut state.lane,
        };
        let told = feed.lane.counted.iter();
        let mut all: Vec<Calls> = told
            .map(|(&pair, &calls)| Calls {
                pair,
                site: None,
                calls,
            })
            .collect();
        let (mut nonsense, mut named) = (0, feed.lane.named.clone());
        for (edge, mut calls) in counted {
            if let Some(known) = named.get_mut(&edge) {
                let told = calls.min(*known);
                (calls, *known) = (calls - told, *known - told);
            }
            if calls == 0 {
                continue;
            }
            match pair(&mut self.book, (pid, &areas), edge, &mut feed) {
                Some(Some((pair, site))) => all.push(Calls { pair, site, calls }),
                Some(None) => {}
                None => nonsense += 1,
            }
        }
        (all, nonsense)
    }

    /// How often functions of processes whose threads run were called and counted so far, and at
    /// which sites those that were called through a pointer.
    pub(super) fn counted_so_far(&mut self, arena: &Arena) -> HashMap<Where, u64> {
        let mut all = HashMap::new();
        for i in 0..self.streams.len() {
            let Some(mut state) = self.streams[i].take() else {
                continue;
            };
            let (counted, process) = (counted_of(arena, i, &state), arena.stream(i).process);
            for Calls { pair, site, calls } in self.calls_of(&mut state, counted.edges).0 {
                let at = ((state.lane.pid, pair.1), site.map(|id| (process, id)));
                *all.entry(at).or_default() += calls;
            }
            self.streams[i] = Some(state);
        }
        all
    }
}

/// How often the thread of a stream has made which calls.
fn note_of(state: &StreamState, all: Vec<Calls>) -> Note {
    let edges = sums_of(all).into_iter();
    Note::Counts {
        pid: state.lane.pid,
        tsc: crate::clock::tsc(),
        tid: state.lane.tid,
        edges: edges
            .map(|((caller, callee), calls)| Counted {
                caller,
                callee,
                calls,
            })
            .collect(),
    }
}

/// How often who has called whom.
fn sums_of(all: Vec<Calls>) -> BTreeMap<Pair, u64> {
    let mut sums: BTreeMap<Pair, u64> = BTreeMap::new();
    for Calls { pair, calls, .. } in all {
        let sum = sums.entry(pair).or_default();
        *sum = sum.saturating_add(calls);
    }
    sums
}

/// What was counted of a stream.
fn counted_of(arena: &Arena, i: usize, state: &StreamState) -> CountedEdges {
    let process = arena.stream(i).process;
    let is_its = |head: &RegionHead| {
        let is_stream = head.stream.load(Ordering::Relaxed) as usize == i;
        is_stream && head.epoch.load(Ordering::Relaxed) == state.epoch
    };
    let own = find(arena, REGION_COUNTS, process, &is_its);
    let mut edges = state.cursor.counted();
    if let (Some(own), Some(all)) = (own, find(arena, REGION_EDGES, process, &|_| true)) {
        edges.extend(seen(arena, all, own));
    }
    CountedEdges { own, edges }
}

/// The region of a process that is in this state and of which `is_it` is true.
fn find(
    arena: &Arena,
    state: u32,
    process: u32,
    is_it: &dyn Fn(&RegionHead) -> bool,
) -> Option<u32> {
    let mut regions = arena.regions();
    let found = regions.find(|(_, head)| {
        head.state.load(Ordering::Acquire) == state
            && head.process.load(Ordering::Relaxed) == process
            && is_it(head)
    });
    found.map(|(i, _)| i)
}

/// The edges that were counted, and how often.
fn seen(arena: &Arena, edges: u32, counts: u32) -> Vec<(u64, u64)> {
    let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
    let cells = arena.used_cells(edges).iter().zip(arena.cells(counts));
    let cells = cells.skip(FIRST_CELL as usize);
    let cells = cells.map(|(edge, count)| (load(edge), load(count)));
    cells
        .filter(|(edge, count)| *edge != 0 && *count != 0)
        .collect()
}

/// Who calls whom by an edge, and the site's id if it calls through a pointer; `Some(None)`: the
/// linker's stub of a call that is not bound yet, whose callee is counted where the linker jumps
/// to it; `None`: the edge is nonsense.
#[allow(
    clippy::option_option,
    reason = "nonsense is told from what counts for nothing"
)]
fn pair(
    book: &mut AddressBook,
    (pid, areas): (u32, &Areas),
    edge: u64,
    names: &mut impl Naming,
) -> Option<Option<(Pair, Option<u64>)>> {
    let (id, callee) = id_and_callee(edge);
    let (place, area, offset) = areas.place(id)?;
    let module = area.module;
    let site = (callee != 0).then_some(area.start + u64::from(offset));
    let from = CalledFrom { module, offset };
    let caller = book.site_caller(from, names);
    let callee = book.counted_callee((pid, callee), (from, place), names);
    Some(callee.map(|callee| ((caller, callee), site)))
}

/// Gives the regions of a process back if none of its streams lives: they are zero then.
pub(super) fn give_back(arena: &Arena, process: u32) {
    if arena.regions().next().is_none() {
        return;
    }
    let used = arena.control().streams_used.load(Ordering::Acquire) as usize;
    let lives = |i: usize| {
        let s = arena.stream(i);
        let state = s.state.load(Ordering::Acquire);
        state != 0 && state != STREAM_DEAD && s.process == process
    };
    if (0..used.min(STREAMS)).any(lives) {
        return;
    }
    for (i, head) in arena.regions() {
        let is_taken = head.state.load(Ordering::Acquire) >= REGION_EDGES;
        if is_taken && head.process.load(Ordering::Relaxed) == process {
            arena.clear_cells(i);
            head.process.store(0, Ordering::Relaxed);
            head.next.store(0, Ordering::Relaxed);
            head.state.store(0, Ordering::Release);
        }
    }
}
