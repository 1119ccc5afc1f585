//! Chunks of records become events of the trace.
//!
//! Knows the streams of a recording: which thread of which process wrote a chunk, what that process
//! began with, and when a stream begins and ends. What the bytes in a chunk say is
//! [`crate::decode`]'s work, and what becomes of the events that of `collector/feed.rs`.
//!
//! | file | what for |
//! |---|---|
//! | `bidden.rs` | what payloads of a script bid |
//! | `counts.rs` | what threads have counted |
//! | `early.rs` | what threads have not handed over yet, for who is told of it at once |
//! | `feed.rs` | from events to the trace, past who watches them |
//! | [`first_call`] | the execve(2) that starts the command |
//! | `learned.rs` | what serves the next recording |
//! | `levels.rs` | functions that are counted while they are called too often |
//! | `shown.rs` | functions whose values are left out at times |
//! | `lineage.rs` | which process a stream belongs to |
//! | `peek.rs` | what threads have not handed over yet |
//! | `window.rs` | the end of one recording of several |

mod bidden;
mod counts;
mod early;
mod feed;
pub mod first_call;
mod learned;
mod lengths;
mod levels;
mod lineage;
mod looks;
mod memories;
mod peek;
mod shown;
mod tables;
mod window;

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sptrace_addr::{Avma, Svma};
use sptrace_code::{Cached, Plan};
use sptrace_trace::{Classifier, ExitStatus, Module as TraceModule, Note, TraceError, TraceWriter};
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::*;
use sptrace_wire::plan::PlanView;

use crate::decode::book::AddressBook;
use crate::decode::module::{Module, switches};
use crate::decode::process::{Area, Areas, Loaded};
use crate::decode::{Cursor, Decoder};
use crate::event::calls::Calls;
use crate::event::{Armed, Occurrence};
use crate::numbers::Numbers;
use crate::perf_map;
use crate::tap::Told;
use crate::unfollowed::{UNSEEN, Unfollowed};
use feed::{Feed, Lane, Recorder};
use lineage::Ancestors;

pub use crate::decode::Torn;

/// Threads that wait for a chunk are woken when one in so many is free: one that is woken for each
/// would sleep again at once.
const WAKE_SHARE: u32 = 8;

/// One stream of the recording.
#[derive(Clone)]
struct StreamState {
    epoch: u32,
    /// [`crate::decode::process::Process::image`] of its process.
    image: u64,
    /// Number of the chunk that comes next.
    sequence: u32,
    /// Halves of its words that were taken before it was handed over.
    taken: usize,
    /// Halves of these in which nothing was.
    left: Vec<usize>,
    cursor: Cursor,
    lane: Lane,
}

/// Everything that the drain needs. One lock holds it.
pub struct Collector<W: Write> {
    recorder: Recorder<W>,
    watch: Option<levels::Watch>,
    off_times: levels::OffTimes,
    shown: shown::Shown,
    lengths: Option<lengths::Lengths>,
    /// Among calls in order there are frames whose ends are told.
    has_ends: bool,
    /// What is counted from here on is not in the trace.
    has_counted_all: bool,
    /// Calls that are counted are recorded in order for that.
    counts_records: bool,
    /// What payloads bid.
    heeded: bidden::Heeded,
    /// What payloads have added up.
    added: tables::Added,
    /// What is known of addresses.
    pub(crate) book: AddressBook,
    by_file: HashMap<(String, u64), usize>,
    /// The same of modules whose plans do not count any more.
    former: HashMap<(String, u64), usize>,
    ancestors: Ancestors,
    /// Boxes: there is room for many, and most recordings have few.
    streams: Vec<Option<Box<StreamState>>>,
    /// Chunks that were handed over, oldest first, and not read yet.
    full: VecDeque<u32>,
    /// The same that came while those are read.
    newer: VecDeque<u32>,
    /// By process: when it has ended or replaced its program.
    ends: HashMap<u32, Vec<u64>>,
    /// Who is who.
    pub(crate) numbers: Arc<Numbers>,
    /// Programs that are not followed.
    pub(crate) unfollowed: Arc<Unfollowed>,
    /// What the command's first thread has done before there was an agent: see [`first_call`].
    pub(crate) first_call: Option<Vec<u8>>,
    /// Calls of the kernel may be left out when they have ended.
    leaves_out_calls: bool,
    /// Bytes of records, holes included.
    pub record_bytes: u64,
    /// Words that could not be read.
    pub torn: Torn,
}

impl<W: Write> Collector<W> {
    /// Empty, writing to `writer`.
    pub fn new(writer: TraceWriter<W>) -> Self {
        Self {
            recorder: Recorder::new(writer),
            watch: None,
            off_times: levels::OffTimes::new(),
            shown: shown::Shown::default(),
            lengths: None,
            has_ends: false,
            has_counted_all: false,
            counts_records: false,
            heeded: bidden::Heeded::default(),
            added: tables::Added::default(),
            book: AddressBook::default(),
            by_file: HashMap::new(),
            former: HashMap::new(),
            ancestors: Ancestors::default(),
            streams: (0..STREAMS).map(|_| None).collect(),
            full: VecDeque::new(),
            newer: VecDeque::new(),
            ends: HashMap::new(),
            numbers: Arc::default(),
            unfollowed: Arc::default(),
            first_call: None,
            leaves_out_calls: false,
            record_bytes: 0,
            torn: Torn::default(),
        }
    }

    /// Events concern calls: see [`Self::seen`]. To be said before anything is recorded.
    pub fn watch(&mut self, calls: Calls, classifier: Classifier) {
        self.recorder.writer.classify(classifier);
        self.recorder.calls = Some(calls);
    }

    /// Among calls in order there are frames whose ends are told. To be said before anything is
    /// recorded.
    pub fn have_ends(&mut self) {
        self.has_ends = true;
    }

    /// Calls with so many others around them are left out here, not by the agents. To be said
    /// before anything is recorded.
    pub fn limit_depth(&mut self, calls: u32) {
        self.recorder.depth_limit = calls;
    }

    /// What has happened of these events since this was asked last.
    pub fn seen(&mut self) -> Vec<Occurrence> {
        self.recorder
            .calls
            .as_mut()
            .map(Calls::take)
            .unwrap_or_default()
    }

    /// Leaves out what happened later, whenever it comes.
    pub fn record_until(&mut self, tsc: u64) {
        self.recorder.until_tsc = self.recorder.until_tsc.min(tsc);
    }

    /// Events written: those that a reader of the trace counts.
    pub fn events(&self) -> u64 {
        self.recorder.writer.events()
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.recorder.writer.written_bytes()
    }

    /// The module of a file, if it is known.
    pub fn module_of(&self, file: &(String, u64)) -> Option<usize> {
        self.by_file.get(file).copied()
    }

    /// No process has the plans that were made: they are made anew when they are asked for.
    pub fn forget_plans(&mut self) {
        self.former.extend(self.by_file.drain());
    }

    /// Adds a module; one whose plan was made anew keeps what the trace calls it and its functions.
    pub fn add_module(
        &mut self,
        arena: &Arena,
        file: (String, u64),
        path: &str,
        cached: Arc<Cached>,
        plan: Plan,
        plan_offset: u64,
    ) -> Option<usize> {
        let view = PlanView::new(&plan)?;
        let (header, switches) = (*view.header(), switches(view));
        let plan = (plan, &header);
        let former = self.former.remove(&file);
        let former = former.and_then(|index| self.book.modules.get_mut(index));
        let module = match former {
            Some(former) => {
                let id = former.id;
                Module::new(path.to_owned(), cached, plan, plan_offset, id).in_place_of(former)
            }
            None => {
                let module = TraceModule {
                    path: path.to_owned(),
                    build_id: match cached.build_id() {
                        [] => cached.module_hash().to_be_bytes().to_vec(),
                        build_id => build_id.to_vec(),
                    },
                    svma: Svma(0)..Svma(0),
                };
                let id = self.recorder.writer.module(&module).ok()?;
                Module::new(path.to_owned(), cached, plan, plan_offset, id)
            }
        };
        self.book.modules.push(module);
        let index = self.book.modules.len() - 1;
        self.by_file.insert(file, index);
        self.add_switches(arena, index, switches);
        Some(index)
    }

    /// A module was found in a process and got an area. True: callees in it need full addresses.
    pub fn loaded(
        &mut self,
        pid: u32,
        module: usize,
        text: (u64, u64),
        bias: u64,
        area: (u64, u64),
    ) -> bool {
        self.book.forget_recent();
        let places = self.book.modules.get(module).map(|m| m.places.clone());
        let p = self.process(pid);
        let wide = p.is_ambiguous(text.0, text.1);
        p.loaded.push(Loaded {
            module,
            start: text.0,
            end: text.1,
            bias,
            wide,
        });
        if let Some(places) = places {
            Arc::make_mut(&mut p.areas).push(Area {
                start: area.0,
                bytes: area.1,
                module,
                places,
            });
        }
        if let Some(m) = self.book.modules.get(module) {
            let note = Note::ModuleMap {
                pid,
                tsc: crate::clock::tsc(),
                module: m.id,
                avma: Avma(m.base_svma.wrapping_add(bias)),
            };
            self.note(&note);
        }
        wide
    }

    /// What writes the trace, for who writes streams of its own into it.
    pub(crate) fn writer(&mut self) -> &mut TraceWriter<W> {
        &mut self.recorder.writer
    }

    pub(crate) fn check(&mut self, result: Result<(), TraceError>) {
        self.recorder.check(result);
    }

    /// The output has failed: recording ends.
    pub fn has_failed(&self) -> bool {
        self.recorder.failed.is_some()
    }

    /// What happened later is left out.
    pub(crate) fn until_tsc(&self) -> u64 {
        self.recorder.until_tsc
    }

    /// Nothing of what is followed is recorded before one of the events that are armed for it, or
    /// [`Self::record_from`]. All is from now on (`is_followed`), or from [`Self::begin_following`]
    /// on. To be said before anything is recorded.
    pub fn shadow(&mut self, armed: Arc<Armed>, is_followed: bool) {
        self.recorder.follow_until(armed, is_followed);
    }

    /// What comes from now on is followed only, until the recording begins. No thread records
    /// anything now.
    pub fn begin_following(&mut self) {
        self.recorder.begin_following();
    }

    /// The recording begins.
    pub fn record_from(&mut self, tsc: u64) {
        self.recorder.record_from(tsc);
    }

    /// The call that has begun the recording, once.
    pub fn begun(&mut self) -> Option<Occurrence> {
        self.recorder.begun()
    }

    /// Events of before the recording's start that were left out; `None`: nothing was followed.
    pub fn left_out(&self) -> Option<u64> {
        self.recorder.left_out()
    }

    /// Of each module that is seen in part only: which, why, and how many of its calls have no
    /// recorded end.
    pub fn seen_in_part(&self) -> Vec<(String, u64)> {
        self.book.seen_in_part()
    }

    /// Why calls have no recorded end, and how many.
    pub fn without_end(&self) -> [(&'static str, u64); 3] {
        self.book.without_end()
    }

    /// Adds a note, after what was drained before it.
    pub fn note(&mut self, note: &Note) {
        self.flush();
        let written = self.recorder.writer.event_note(note);
        self.check(written);
        if let Some(tapped) = &mut self.recorder.tapped {
            tapped.push(Told::Note(note.clone()));
        }
    }

    /// Drains all full chunks; gives how many there were.
    pub fn drain(&mut self, arena: &Arena) -> usize {
        self.drain_until(arena, &|| false)
    }

    /// The same until somebody else wants something of the collector (`is_awaited`), but one chunk
    /// at least. The rest comes at the next call, before anything newer.
    pub fn drain_until(&mut self, arena: &Arena, is_awaited: &dyn Fn() -> bool) -> usize {
        self.full.append(&mut self.newer);
        self.full.extend(arena.take_full());
        let at_once = (arena.chunks() / WAKE_SHARE).max(1) as usize;
        self.adopt_streams(arena);
        let mut drained = 0;
        while let Some(index) = self.full.pop_front() {
            self.chunk(arena, index);
            arena.give_back(index);
            // Who fills chunks faster than they are drained takes new ones meanwhile.
            arena.make_ready();
            // All that waits may take seconds, in which nobody shall take us for stopped.
            arena.control().heartbeat.fetch_add(1, Ordering::Relaxed);
            self.may_look_at_levels(arena);
            self.may_look_at_lengths(arena);
            let _ = self.bid_looks(arena);
            drained += 1;
            let shall_stop = is_awaited();
            if drained % at_once == 0 || self.full.is_empty() || shall_stop {
                arena.wake_waiting();
            }
            if shall_stop {
                break;
            }
        }
        self.may_look_at_levels(arena);
        self.may_look_at_lengths(arena);
        drained
    }

    /// Writes the blocks that are not full, too.
    fn flush(&mut self) {
        for state in self.streams.iter_mut().flatten() {
            if state.lane.line.encoder.len_events() > 0 {
                self.recorder.write_block(&mut state.lane);
            }
        }
    }

    /// Ends the streams of threads that are gone (`is_alive` false): drains what they had begun. Of
    /// the others what was drained is written, so that a trace is never far behind.
    pub fn end_dead_streams(&mut self, arena: &Arena, is_alive: &dyn Fn(&Stream) -> bool) -> usize {
        self.adopt_streams(arena);
        let used = (arena.control().streams_used.load(Ordering::Acquire) as usize).min(STREAMS);
        let mut alive = 0;
        for i in 0..used {
            let s = arena.stream(i);
            if s.state.load(Ordering::Acquire) != STREAM_LIVE {
                continue;
            }
            if is_alive(s) {
                alive += 1;
            } else {
                self.end_stream(arena, i, None);
            }
        }
        self.flush();
        alive
    }

    /// Ends the streams of threads that have ended; gives how many have not.
    pub fn end_ended(&mut self, arena: &Arena) -> usize {
        let numbers = Arc::clone(&self.numbers);
        let alive = self.end_dead_streams(arena, &|s| numbers.is_alive(arena, s));
        for program in numbers.executed_unseen(arena) {
            self.unfollowed.note(arena.control(), &program, UNSEEN);
        }
        alive
    }

    /// Ends the streams of a process.
    pub fn end_process(&mut self, arena: &Arena, pid: u32) {
        let numbers = Arc::clone(&self.numbers);
        self.end_dead_streams(arena, &|s| numbers.shown(arena, s) != pid);
    }

    /// `open_until`: then the recording of what the thread was in ended.
    fn end_stream(&mut self, arena: &Arena, i: usize, open_until: Option<u64>) {
        // What the thread handed over before comes first.
        self.drain(arena);
        let s = arena.stream(i);
        let index = s.chunk.swap(NONE, Ordering::AcqRel);
        if arena.is_chunk(index) {
            self.chunk(arena, index);
            let cut_off = self.streams[i]
                .as_ref()
                .is_some_and(|s| s.cursor.is_cut_off);
            self.torn.unfinished += u64::from(cut_off);
            arena.recycle(index);
        }
        self.tell_switches();
        self.take_tables(arena, i);
        if let Some(mut state) = self.streams[i].take() {
            self.ancestors.ended(i, &state);
            self.settle_lazy(&mut state);
            self.take_counts(arena, i, &mut state);
            self.learn_from(arena, &mut state);
            let lane = &mut state.lane;
            self.recorder.begin_line(lane);
            if let (Some(tsc), Some(encoder)) = (open_until, lane.line.recording()) {
                encoder.close_all(tsc);
            }
            self.recorder.write_block(lane);
        }
        let pid = self.numbers.shown(arena, s);
        s.state.store(STREAM_DEAD, Ordering::Release);
        counts::give_back(arena, s.process);
        if !self
            .streams
            .iter()
            .flatten()
            .any(|other| other.lane.pid == pid)
        {
            // The number may be given to another process.
            self.forget_levels(pid, s.process);
            self.forget_lengths(pid, s.process);
            self.retire(pid);
        }
    }

    /// Names the code that processes (`None`: all) have generated, as they have told perf.
    fn name_generated(&mut self, of: Option<u32>) {
        let mut nameless = self.book.nameless();
        nameless.retain(|(pid, at)| *at != 0 && of.is_none_or(|of| of == *pid));
        for of_one in nameless.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((pid, _)) = of_one.first() else {
                continue;
            };
            let addresses: Vec<u64> = of_one.iter().map(|(_, at)| *at).collect();
            let found = perf_map::names(*pid, &addresses);
            for (at, named) in addresses.iter().zip(found) {
                let Some(named) = named else { continue };
                let name = match at - named.address {
                    0 => named.name,
                    inside => format!("{}+{inside:#x}", named.name),
                };
                if let Some(function) = self.book.is_named(*at) {
                    let written = self.recorder.writer.name(function, &name);
                    self.recorder.check(written);
                }
            }
        }
    }

    /// A process has ended, which is told unless the recording has ended before.
    pub fn exited(&mut self, pid: u32, status: ExitStatus) {
        let tsc = crate::clock::tsc();
        self.ends.entry(pid).or_default().push(tsc);
        self.name_generated(Some(pid));
        if tsc <= self.recorder.until_tsc {
            self.note(&Note::ProcessExit { pid, tsc, status });
        }
    }

    /// Writes the summary and gives back the output.
    ///
    /// # Errors
    /// The output failed, now or before.
    pub fn finish(
        mut self,
        arena: &Arena,
        summary: &sptrace_trace::Summary,
    ) -> Result<W, std::io::Error> {
        self.keep_learned(arena);
        self.name_generated(None);
        if let Some(e) = self.recorder.failed.take() {
            return Err(e);
        }
        self.recorder
            .writer
            .finish(summary)
            .map_err(std::io::Error::other)
    }

    fn chunk(&mut self, arena: &Arena, index: u32) {
        let meta = arena.chunk(index);
        let (stream, epoch) = (meta.stream as usize, meta.epoch);
        if stream >= STREAMS {
            self.torn.nonsense += 1;
            return;
        }
        self.begin_stream(arena, stream, epoch);
        let Some(mut state) = self.streams[stream].take() else {
            return;
        };
        if meta.sequence != state.sequence {
            state.taken = 0;
            state.left.clear();
        }
        state.sequence = meta.sequence.wrapping_add(1);
        self.decode(arena, index, None, &mut state);
        self.look_at_left(arena.halves(index), &mut state);
        if self.watch.is_some() {
            let of = (arena.stream(stream).process, state.lane.pid);
            let areas = self.areas_of(&state);
            self.sample_sites(of.0, arena.halves(index), (&areas, of.1));
        }
        if self.lengths.is_some() {
            let of = (arena.stream(stream).process, state.lane.pid);
            let areas = self.areas_of(&state);
            let is_measured = state.cursor.is_measured();
            self.sample_short(of.0, arena.halves(index), (&areas, of.1), is_measured);
        }
        state.taken = 0;
        self.recorder.write_if_full(&mut state.lane);
        self.streams[stream] = Some(state);
    }

    /// Hands the events in a chunk that were not taken yet to its stream's encoder, which has room
    /// for all of them.
    ///
    /// `written`: so many halves of its words were written at this time, if it is looked at before
    /// it is handed over.
    fn decode(
        &mut self,
        arena: &Arena,
        index: u32,
        written: Option<(usize, u64)>,
        state: &mut StreamState,
    ) {
        self.heed_bids(arena);
        let (halves, meta) = (arena.halves(index), arena.chunk(index));
        let (start_tsc, end_tsc) = (meta.start_tsc, meta.end_tsc);
        let (up_to, end_tsc) = written.unwrap_or((usize::MAX, end_tsc));
        let halves = halves.get(..up_to).unwrap_or(halves);
        if state.taken == 0 {
            state.cursor.begin_chunk(start_tsc);
        }
        let ends = self.ends.get(&state.lane.pid).into_iter().flatten();
        let end = ends.copied().filter(|end| *end >= start_tsc).min();
        state.cursor.until_tsc = written_until(end_tsc, end).unwrap_or_else(crate::clock::tsc);
        let halves = halves.get(state.taken..).unwrap_or(&[]);
        self.record_bytes += self.decode_with(state, |decoder| decoder.decode(halves));
    }

    /// No record tells any more what a call of a PLT stub led to.
    fn settle_lazy(&mut self, state: &mut StreamState) {
        self.decode_with(state, |mut decoder| decoder.settle_lazy(None));
    }

    /// The patch areas of a stream's process.
    fn areas_of(&self, state: &StreamState) -> Arc<Areas> {
        match self.book.processes.get(&state.lane.pid) {
            Some(p) if p.image == state.image => Arc::clone(&p.areas),
            _ => self.ancestors.areas_of(state.image),
        }
    }

    /// Does something with the records of a stream.
    fn decode_with<T>(
        &mut self,
        state: &mut StreamState,
        act: impl FnOnce(Decoder<'_, Feed<'_, W>>) -> T,
    ) -> T {
        let areas = self.areas_of(state);
        if let Some(tally) = &mut self.recorder.tally {
            tally.turn_to(state.lane.pid);
        }
        let mut feed = Feed {
            recorder: &mut self.recorder,
            lane: &mut state.lane,
        };
        act(Decoder {
            book: &mut self.book,
            areas: &areas,
            cursor: &mut state.cursor,
            torn: &mut self.torn,
            sink: &mut feed,
        })
    }
}

/// Until when a chunk was written that was handed over then (0: not yet), by a process that has
/// ended at `end`: a process may end long after that, and before the chunk is read. `None`: it is
/// being written.
fn written_until(handed_over_tsc: u64, end: Option<u64>) -> Option<u64> {
    let handed_over = Some(handed_over_tsc).filter(|tsc| *tsc != 0);
    handed_over.into_iter().chain(end).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_over_before_its_process_ended_is_not_spread_up_to_that() {
        assert_eq!(written_until(100, Some(9000)), Some(100));
        assert_eq!(written_until(100, Some(90)), Some(90));
        assert_eq!(written_until(0, Some(9000)), Some(9000));
        assert_eq!(written_until(100, None), Some(100));
        assert_eq!(written_until(0, None), None);
    }
}
