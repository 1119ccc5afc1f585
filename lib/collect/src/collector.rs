//! Chunks of records become events of the trace.
//!
//! The hot loop of the host: a word is looked up by its id in the patch area's table and handed to
//! the stream's encoder. What makes no sense is counted as torn and skipped: a chunk may have been
//! written by two tasks at once (vfork), or be damaged.

mod callees;
mod entries;
mod lineage;
mod peek;
mod run;
mod shadow;
mod window;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sptrace_addr::{Avma, Svma};
use sptrace_trace::{
    Classifier, ExitStatus, FunctionId, Module as TraceModule, ModuleId, Note, TraceWriter,
};
use sptrace_tracee::arena::Arena;
use sptrace_wire::control::*;
use sptrace_wire::record;

use crate::event::Occurrence;
use crate::event::calls::{Calls, Watched};
use crate::hole;
use crate::module::*;
use crate::numbers::Numbers;
use crate::process::{Area, Areas, Loaded, Process};
use crate::unfollowed::{UNSEEN, Unfollowed};
use entries::{CalledFrom, WithoutEnd};
use lineage::Ancestors;
use shadow::{Line, Shadow};

/// One stream of the recording.
#[derive(Clone)]
struct StreamState {
    epoch: u32,
    pid: u32,
    /// [`Process::image`] of its process.
    image: u64,
    line: Line,
    high: u64,
    last_tsc: u64,
    /// A call of a PLT stub, or through a slot that is not bound yet: the next jump tells the
    /// callee.
    lazy: Option<ToStub>,
    /// First half of an inherited frame.
    inherited: Option<u64>,
    /// Number of the chunk that comes next.
    sequence: u32,
    /// The chunk that came last ends in a record that was begun and not completed.
    is_cut_off: bool,
    watched: Watched,
}

/// An event that led to a PLT stub: not the stub is called but what it, or the lazy resolver, jumps
/// to.
#[derive(Clone, Copy)]
struct ToStub {
    tsc: u64,
    is_tail: bool,
    module: usize,
    svma: u64,
    from: Option<CalledFrom>,
}

/// A target of a call through a pointer, as recorded, and what it was.
#[derive(Clone, Copy, Default)]
struct Recent {
    target: u64,
    pid: u32,
    callee: Target,
}

#[derive(Clone, Copy)]
enum Target {
    Function(FunctionId),
    /// A PLT stub: module and svma.
    Stub(usize, u64),
}

impl Recent {
    #[inline]
    fn slot(target: u64) -> usize {
        (target ^ target >> 12) as usize % RECENT
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Function(FunctionId(0))
    }
}

const RECENT: usize = 4096;
/// In a [`Recent`]: only the low half of the target was recorded.
const LOW_HALF: u64 = 1 << 63;

/// Words of chunks that could not be read, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Torn {
    /// They made no sense.
    pub nonsense: u64,
    /// Nothing is known of the process: which image it was forked from was told too late.
    pub unknown_process: u64,
    /// The last record of a thread, which was killed while it wrote it.
    pub unfinished: u64,
}

/// Everything that the drain needs. One lock holds it.
pub struct Collector<W: Write> {
    writer: TraceWriter<W>,
    /// Modules of the recording.
    pub modules: Vec<Module>,
    by_file: HashMap<(String, u64), usize>,
    processes: HashMap<u32, Process>,
    ancestors: Ancestors,
    streams: Vec<Option<StreamState>>,
    /// Last targets of calls through pointers, by a hash of the address.
    recent: Box<[Recent; RECENT]>,
    unknown_module: Option<ModuleId>,
    unknown: HashMap<u64, FunctionId>,
    calls: Option<Calls>,
    shadow: Option<Shadow>,
    /// Who is who.
    pub(crate) numbers: Arc<Numbers>,
    /// Programs that are not followed.
    pub(crate) unfollowed: Arc<Unfollowed>,
    /// What happened later is left out.
    pub(crate) until_tsc: u64,
    /// Calls whose ends are not recorded.
    without_end: WithoutEnd,
    /// What is decoded will be so once more, and is counted then.
    is_peeking: bool,
    /// Bytes of records, holes included.
    pub record_bytes: u64,
    /// Words that could not be read.
    pub torn: Torn,
    /// The first error of the output, if any: recording ends then.
    pub failed: Option<std::io::Error>,
}

impl<W: Write> Collector<W> {
    /// Empty, writing to `writer`.
    pub fn new(writer: TraceWriter<W>) -> Self {
        Self {
            writer,
            modules: Vec::new(),
            by_file: HashMap::new(),
            processes: HashMap::new(),
            ancestors: Ancestors::default(),
            streams: (0..STREAMS).map(|_| None).collect(),
            recent: Box::new([Recent::default(); RECENT]),
            unknown_module: None,
            unknown: HashMap::new(),
            calls: None,
            shadow: None,
            numbers: Arc::default(),
            unfollowed: Arc::default(),
            until_tsc: u64::MAX,
            without_end: WithoutEnd::default(),
            is_peeking: false,
            record_bytes: 0,
            torn: Torn::default(),
            failed: None,
        }
    }

    /// Events concern calls: see [`Self::seen`]. To be said before anything is recorded.
    pub fn watch(&mut self, calls: Calls, classifier: Classifier) {
        self.writer.classify(classifier);
        self.calls = Some(calls);
    }

    /// What has happened of these events since this was asked last.
    pub fn seen(&mut self) -> Vec<Occurrence> {
        self.calls.as_mut().map(Calls::take).unwrap_or_default()
    }

    /// Leaves out what happened later, whenever it comes.
    pub fn record_until(&mut self, tsc: u64) {
        self.until_tsc = self.until_tsc.min(tsc);
    }

    /// Events written: those that a reader of the trace counts.
    pub fn events(&self) -> u64 {
        self.writer.events()
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.writer.written_bytes()
    }

    /// The module of a file, if it is known.
    pub fn module_of(&self, file: &(String, u64)) -> Option<usize> {
        self.by_file.get(file).copied()
    }

    /// Adds a module.
    pub fn add_module(
        &mut self,
        file: (String, u64),
        path: &str,
        cached: Arc<sptrace_code::Cached>,
        plan: &[u8],
        plan_offset: u64,
    ) -> Option<usize> {
        let id = self
            .writer
            .module(&TraceModule {
                path: path.to_owned(),
                build_id: cached.module_hash().to_be_bytes().to_vec(),
                svma: Svma(0)..Svma(0),
            })
            .ok()?;
        let module = Module::new(path.to_owned(), cached, plan, plan_offset, id)?;
        self.modules.push(module);
        self.by_file.insert(file, self.modules.len() - 1);
        Some(self.modules.len() - 1)
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
        self.recent.fill(Recent::default());
        let places = self.modules.get(module).map(|m| m.places.clone());
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
        if let Some(m) = self.modules.get(module) {
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

    fn check(&mut self, r: Result<(), std::io::Error>) {
        if let Err(e) = r
            && self.failed.is_none()
        {
            self.failed = Some(e);
        }
    }

    /// Adds a note, after what was drained before it.
    pub fn note(&mut self, note: &Note) {
        self.flush();
        let r = self.writer.event_note(note);
        self.check(r.map_err(std::io::Error::other));
    }

    /// Drains all full chunks; gives how many there were.
    pub fn drain(&mut self, arena: &Arena) -> usize {
        let full = arena.take_full();
        self.adopt_streams(arena);
        for index in &full {
            self.chunk(arena, *index);
            arena.recycle(*index);
        }
        full.len()
    }

    /// Writes the blocks that are not full, too.
    fn flush(&mut self) {
        for state in self.streams.iter_mut().flatten() {
            let encoder = &mut state.line.encoder;
            if encoder.len_events() > 0 {
                let r = self.writer.write_block(encoder);
                if let (Err(e), None) = (r, &self.failed) {
                    self.failed = Some(std::io::Error::other(e));
                }
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
            let cut_off = self.streams[i].as_ref().is_some_and(|s| s.is_cut_off);
            self.torn.unfinished += u64::from(cut_off);
            arena.recycle(index);
        }
        if let Some(mut state) = self.streams[i].take() {
            self.ancestors.ended(i, &state);
            self.settle_lazy(&mut state, None);
            self.begin_line(&mut state);
            if let (Some(tsc), Some(encoder)) = (open_until, state.line.recording()) {
                encoder.close_all(tsc);
            }
            let r = self.writer.write_block(&mut state.line.encoder);
            self.check(r.map_err(std::io::Error::other));
        }
        let pid = self.numbers.shown(arena, s);
        s.state.store(STREAM_DEAD, Ordering::Release);
        if !self.streams.iter().flatten().any(|other| other.pid == pid) {
            // The number may be given to another process.
            self.retire(pid);
        }
    }

    /// A process has ended, which is told unless the recording has ended before.
    pub fn exited(&mut self, pid: u32, status: ExitStatus) {
        let tsc = crate::clock::tsc();
        if tsc <= self.until_tsc {
            self.note(&Note::ProcessExit { pid, tsc, status });
        }
    }

    /// Writes the summary and gives back the output.
    ///
    /// # Errors
    /// The output failed, now or before.
    pub fn finish(mut self, summary: &sptrace_trace::Summary) -> Result<W, std::io::Error> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        self.writer.finish(summary).map_err(std::io::Error::other)
    }

    fn chunk(&mut self, arena: &Arena, index: u32) {
        let meta = arena.chunk(index);
        let (stream, epoch, start_tsc) = (meta.stream as usize, meta.epoch, meta.start_tsc);
        if stream >= STREAMS {
            self.torn.nonsense += 1;
            return;
        }
        self.begin_stream(arena, stream, epoch);
        let Some(mut state) = self.streams[stream].take() else {
            return;
        };
        state.sequence = meta.sequence.wrapping_add(1);
        self.decode(arena, index, start_tsc, &mut state);
        if state.line.encoder.is_full() {
            let r = self.writer.write_full(&mut state.line.encoder);
            self.check(r.map_err(std::io::Error::other));
        }
        self.streams[stream] = Some(state);
    }

    /// Hands the events in a chunk to its stream's encoder, which has room for all of them.
    fn decode(&mut self, arena: &Arena, index: u32, start_tsc: u64, state: &mut StreamState) {
        state.high = start_tsc >> 32;
        let areas = match self.processes.get(&state.pid) {
            Some(p) if p.image == state.image => Arc::clone(&p.areas),
            _ => self.ancestors.areas_of(state),
        };
        let halves = arena.halves(index);
        let half = |at: usize| halves.get(at).map_or(0, |h| h.load(Ordering::Relaxed));
        let used = halves.iter().rposition(|h| h.load(Ordering::Relaxed) != 0);
        let used = used.map_or(0, |last| last + 1);
        self.record_bytes += used as u64 * 4;
        let mut at = 0;
        let mut wide_callee = None;
        state.is_cut_off = false;
        let torn_before = self.torn;
        while at < used {
            if wide_callee.is_none() {
                at = self.run(&areas, halves, at, state);
                if at >= used {
                    break;
                }
            }
            let (stamp, id) = (half(at), half(at + 1));
            if stamp == 0 {
                let next = hole::after(halves, at, &|id| length_of(&areas, id));
                if next != at {
                    at = next;
                    state.is_cut_off = at >= used && self.torn == torn_before;
                    continue;
                }
            }
            // What makes no sense is no measure of length: one half further may be a record.
            let torn_at = at + 1;
            at += 2;
            if id < record::CONTROL_IDS {
                if matches!(id, 0 | record::NOTHING | record::NOTHING_NARROW) {
                    at += usize::from(id == record::NOTHING_NARROW);
                    state.is_cut_off = id == 0 && at >= used && self.torn == torn_before;
                    continue;
                }
                let payload = u64::from(half(at)) | u64::from(half(at + 1)) << 32;
                at += 2;
                if id == record::WIDE_CALLEE {
                    wide_callee = Some(payload);
                } else if id > record::WIDE_CALLEE {
                    self.torn.count(&areas);
                    at = torn_at;
                } else {
                    let tsc = state.time(stamp);
                    if tsc > self.until_tsc {
                        break;
                    }
                    self.come_to(state, tsc, 0);
                    self.control(state, id, tsc, payload);
                }
                continue;
            }
            let Some((place, area, offset)) = areas.place(id) else {
                self.torn.count(&areas);
                at = torn_at;
                continue;
            };
            let tsc = state.time(stamp);
            if tsc > self.until_tsc {
                break;
            }
            self.come_to(state, tsc, 1);
            let kind = place.kind();
            let from = Some(CalledFrom {
                module: area.module,
                offset,
            });
            if kind == PLACE_EXIT {
                if state.lazy.is_some() {
                    self.settle_lazy(state, None);
                }
                self.exit(state, tsc);
            } else {
                let callee = if kind & PLACE_INDIRECT != 0 {
                    let low = half(at);
                    at += 1;
                    let wide = wide_callee.take().filter(|callee| *callee as u32 == low);
                    let target = wide.unwrap_or(LOW_HALF | u64::from(low));
                    match self.resolve(state.pid, target) {
                        Target::Function(callee) => callee,
                        Target::Stub(module, svma) => {
                            let is_tail = kind & PLACE_TAIL != 0;
                            // From the stub to its second half, if its slot is not bound yet.
                            if !(is_tail && state.lazy.is_some()) {
                                self.settle_lazy(state, None);
                                state.lazy = Some(ToStub {
                                    tsc,
                                    is_tail,
                                    module,
                                    svma,
                                    from,
                                });
                            }
                            continue;
                        }
                    }
                } else if let Some(callee) = place.callee() {
                    callee
                } else {
                    self.modules[area.module].direct_callee(offset, place, &mut self.writer)
                };
                if state.lazy.is_some() {
                    let jumped = (kind & PLACE_TAIL != 0).then_some(callee);
                    self.settle_lazy(state, jumped);
                    if jumped.is_some() {
                        continue;
                    }
                }
                self.enter(state, kind, tsc, callee, from);
            }
        }
    }

    fn exit(&mut self, state: &mut StreamState, tsc: u64) {
        if let Some(calls) = &mut self.calls {
            calls.exit(&mut state.watched, state.line.depth(), tsc, state.pid);
            self.may_begin(state);
        }
        state.line.exit(tsc);
    }

    /// Writes the held-back call of a stub: as the function that the stub or the resolver jumped
    /// to, or, if something else came first, under the stub's name.
    fn settle_lazy(&mut self, state: &mut StreamState, callee: Option<FunctionId>) {
        let Some(stub) = state.lazy.take() else {
            return;
        };
        let callee = match (callee, self.modules.get_mut(stub.module)) {
            (Some(c), _) => c,
            (None, Some(m)) => m.stub(stub.svma, &mut self.writer),
            (None, None) => return,
        };
        let kind = match stub.is_tail {
            true => PLACE_TAIL,
            false => PLACE_ENTRY,
        };
        self.enter(state, kind, stub.tsc, callee, stub.from);
    }

    fn control(&mut self, state: &mut StreamState, id: u32, tsc: u64, payload: u64) {
        if !matches!(id, record::ANCHOR | record::BLOCKED | record::LOST) {
            self.settle_lazy(state, None);
        }
        let count = u32::try_from(payload).unwrap_or(u32::MAX);
        match id {
            record::ANCHOR => state.high = payload >> 32,
            record::UNWOUND => {
                state.line.unwound(tsc, count);
                state.watched.unwound(state.line.depth());
            }
            record::CLOSED => {
                let found = state.line.found_open();
                state.line.close_open(tsc, count);
                self.found_returned(state, tsc, &found);
            }
            record::RESUMED => {
                let callee = self.site_callee(state.pid, payload as u32);
                let encoder = state.line.recording();
                encoder.into_iter().for_each(|e| e.resumed(tsc, callee));
            }
            record::LOST => {
                let encoder = state.line.recording();
                encoder.into_iter().for_each(|e| e.lost(tsc, payload));
            }
            record::BLOCKED => {
                state.watched.blocked(payload);
                let encoder = state.line.recording();
                encoder.into_iter().for_each(|e| e.blocked(tsc, payload));
            }
            record::ENTERED => {
                let callee = self.callee_at(state.pid, payload);
                self.enter(state, PLACE_OPEN, tsc, callee, None);
            }
            record::INHERITED => match state.inherited.take() {
                None => state.inherited = Some(payload),
                Some(frame) => {
                    let callee = self.frame_callee(state.pid, frame as u32, payload);
                    if frame == record::FRAME_OPEN {
                        state.line.enter_earlier(tsc, callee);
                    } else if frame & record::FRAME_OPEN != 0 {
                        state.line.inherit(tsc, PLACE_OPEN, callee);
                    } else {
                        state.line.inherit(tsc, PLACE_ENTRY, callee);
                    }
                }
            },
            record::OTHER_STACK => {}
            _ => self.torn.nonsense += 1,
        }
    }
}

impl Torn {
    fn count(&mut self, areas: &Areas) {
        match areas.is_empty() {
            true => self.unknown_process += 1,
            false => self.nonsense += 1,
        }
    }
}

impl StreamState {
    /// Full time of a record. A handler that interrupted between reservation and stamp may leave a
    /// stamp of the new period before its anchor: never far back.
    #[inline]
    fn time(&mut self, low: u32) -> u64 {
        let mut t = self.high << 32 | u64::from(low);
        if t < self.last_tsc {
            if self.last_tsc - t > 1 << 31 {
                t += 1 << 32;
            } else {
                t = self.last_tsc;
            }
        }
        self.last_tsc = t;
        t
    }
}

/// Halves of the records with this id; None: there is no such id.
fn length_of(areas: &Areas, id: u32) -> Option<usize> {
    let (place, ..) = areas.place(id)?;
    Some(2 + usize::from(place.kind() & PLACE_INDIRECT != 0))
}

fn comm(pid: u32, tid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))
        .map(|s| s.trim_end().to_owned())
        .unwrap_or_default()
}
