//! Records become events: what the bytes say that one thread has written into a chunk.
//!
//! Given the halves of a chunk's words, the patch areas of the process that wrote it, and what is
//! known of addresses ([`AddressBook`]); tells a [`Sink`] of calls, returns and everything else, in
//! the order in which they happened. What makes no sense is counted as torn and skipped: a chunk
//! may have been written by two tasks at once (vfork), or be damaged. Must not know processes,
//! arenas, the trace file, and who listens.
//!
//! | file | what for |
//! |---|---|
//! | `record.rs`, [`hole`] | one record, and what stands where a record was never completed |
//! | `run.rs` | calls and returns in a row, which most records are: the hot loop of the host |
//! | `stretch.rs`, `row.rs` | the same where some calls are in order |
//! | [`book`], [`process`], [`module`], `callers.rs` | which function an address or id concerns |
//! | `familiar.rs` | calls in order in a row, of sites that were met before |
//! | `ordered.rs`, `open.rs` | calls that are recorded in order: their times, and their ends |
//! | `open/quick.rs` | the same ends, where nothing special is to be said of them |
//! | `counted.rs` | calls in order that are counted, and nothing else |
//! | [`mixed`] | the ends of calls where some are in order and others have stamps |
//! | `without_end.rs` | why calls have no recorded end |
//! | `ahead.rs` | how long calls last that are not read yet |
//! | [`pointers`] | through which sites functions are called by pointers, in a sample |
//! | [`whole`] | how far a chunk is written that a thread still writes |
//! | `system_call.rs` | what calls of the kernel brought with them |
//! | `call_values.rs` | what calls of functions brought with them |
//! | [`sink`], [`names`] | who is told, and who numbers functions |

mod ahead;
pub mod book;
mod call_values;
mod callers;
mod counted;
mod familiar;
pub mod hole;
pub mod mixed;
pub mod module;
pub mod names;
mod open;
mod ordered;
mod place;
mod places;
pub mod pointers;
pub mod process;
mod record;
mod row;
mod rows;
mod run;
pub mod sink;
mod stretch;
mod system_call;
#[cfg(test)]
mod tests;
pub mod whole;
mod without_end;

use std::sync::atomic::{AtomicU32, Ordering};

use sptrace_trace::FunctionId;
use sptrace_wire::record as wire;

use book::{AddressBook, CalledFrom, LOW_HALF, Target};
use mixed::Ends;
use module::{PLACE_ENTRY, PLACE_EXIT, PLACE_INDIRECT, PLACE_TAIL};
use process::Areas;
use record::{Call, Record, Valued};
use sink::{Inherited, Sink};

/// How far the records of one thread are read.
#[derive(Clone, Default)]
pub struct Cursor {
    /// The process that the addresses are of.
    pub pid: u32,
    /// High half of the clock.
    high: u64,
    /// Time of the last record.
    last_tsc: u64,
    /// A call of a PLT stub, or through a slot that is not bound yet: the next jump tells the
    /// callee.
    lazy: Option<ToStub>,
    /// Calls that were recorded in order, and are open.
    ordered: open::Open,
    /// Sites of such that were met before.
    familiar: familiar::Familiar,
    /// What is read has happened before this.
    pub until_tsc: u64,
    /// What comes next has happened after this, as far as it has no time of its own.
    pub later_than: u64,
    /// The recording ends here, and what may have happened before that is part of it.
    pub ends_at: Option<u64>,
    /// First half of an inherited frame.
    inherited: Option<u64>,
    /// The chunk that came last ends in a record that was begun and not completed.
    pub is_cut_off: bool,
    /// Calls in order are counted, and nothing else.
    edges: Option<counted::Edges>,
    /// Room for the bytes of a record with values, and for what the trace gets of it.
    room: [Vec<u8>; 2],
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
    /// Where the stack pointer stood, if that was said.
    place: Option<u32>,
}

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

/// Reads one chunk.
pub struct Decoder<'a, S> {
    /// Who is at an address.
    pub book: &'a mut AddressBook,
    /// Where ids lie.
    pub areas: &'a Areas,
    /// The thread.
    pub cursor: &'a mut Cursor,
    /// What could not be read.
    pub torn: &'a mut Torn,
    /// Is told of what could.
    pub sink: &'a mut S,
}

impl Cursor {
    /// Of a thread whose records begin at `tsc`.
    pub fn new(pid: u32, tsc: u64) -> Self {
        Self {
            pid,
            high: tsc >> 32,
            last_tsc: tsc,
            ..Self::default()
        }
    }

    /// The same where some calls are recorded in order, and it is asked how long calls last.
    #[must_use]
    pub fn mixed(mut self) -> Self {
        self.ordered.have_ends(Ends::measured());
        self
    }

    /// The same where calls are recorded in order, but there are frames whose ends are told.
    #[must_use]
    pub fn with_ends(mut self) -> Self {
        self.ordered.have_ends(Ends::default());
        self
    }

    /// The same where calls that are recorded in order are counted, and nothing else.
    #[must_use]
    pub fn counting(mut self) -> Self {
        self.edges = Some(counted::Edges::default());
        self
    }

    /// Which edges such calls had so far ([`sptrace_wire::counts::edge`]), and how often.
    pub(crate) fn counted(&self) -> Vec<(u64, u64)> {
        self.edges.as_ref().map_or(Vec::new(), counted::Edges::all)
    }

    /// How long calls have lasted that ended since this was asked last, where some are.
    pub fn take_lengths(&mut self) -> impl Iterator<Item = (FunctionId, mixed::Length)> {
        self.ordered.take_lengths()
    }

    /// It is asked how long calls have lasted that end in the chunk that was read last.
    pub(crate) fn is_measured(&self) -> bool {
        self.ordered.is_measured()
    }

    /// Ids of sites that were met, most of them.
    pub(crate) fn sites(&self) -> impl Iterator<Item = u32> {
        self.ordered.sites()
    }

    /// What comes next and has no time of its own was recorded later than this.
    #[inline]
    fn earliest(&self) -> u64 {
        self.last_tsc.max(self.later_than)
    }

    /// A chunk begins at this time.
    pub fn begin_chunk(&mut self, tsc: u64) {
        self.high = tsc >> 32;
    }

    /// Full time of a record. A handler that interrupted between reservation and stamp may leave a
    /// stamp of the new period before its anchor: never far back.
    #[inline]
    fn time(&mut self, low: u32) -> u64 {
        let mut t = self.high << 32 | u64::from(low);
        if t < self.last_tsc {
            if self.last_tsc - t > 1 << 31 {
                // What the chunk says of its time may be anything.
                t = t.saturating_add(1 << 32);
            } else {
                t = self.last_tsc;
            }
        }
        self.last_tsc = t;
        t
    }
}

impl<S: Sink> Decoder<'_, S> {
    /// Tells of all records in a chunk; gives the bytes that they took, holes included.
    pub fn decode(mut self, halves: &[AtomicU32]) -> u64 {
        let used = halves.iter().rposition(|h| h.load(Ordering::Relaxed) != 0);
        let used = used.map_or(0, |last| last + 1);
        let torn_before = *self.torn;
        self.cursor.is_cut_off = false;
        let (changes, areas) = (self.book.changes(), self.areas.list().len());
        self.cursor.familiar.known_by(changes, areas);
        self.cursor.ordered.begin_chunk(self.cursor.last_tsc);
        let mut wide_callee = None;
        let mut at = 0;
        while at < used {
            // Where one call has values, the next has them, too.
            if !record::is_valued(halves, at) {
                match self.rows(&halves[..used], at, &mut wide_callee) {
                    Some(next) if next < used => at = next,
                    _ => break,
                }
            }
            let (record, halves_long) = Record::read(halves, at, self.areas);
            at += halves_long;
            let is_wanted = match record {
                Record::Unfinished => {
                    self.cursor.is_cut_off = at >= used && *self.torn == torn_before;
                    true
                }
                Record::Nothing => self.placed(None),
                Record::Placed(place) => self.placed(Some(place)),
                Record::Torn => {
                    self.torn.count(self.areas);
                    true
                }
                Record::WideCallee(callee) => {
                    wide_callee = Some(callee);
                    true
                }
                Record::Control { stamp, id, payload } => self.control(stamp, id, payload),
                Record::Call(call) => self.call(&call, &mut wide_callee),
                Record::Valued(valued) => self.valued(&valued, halves, &mut wide_callee),
                Record::Values {
                    id: wire::SYSTEM_CALL,
                    ..
                } if record::is_left_out(halves, at) => true,
                Record::Values {
                    stamp,
                    id,
                    low,
                    bytes,
                } => self.values(stamp, (id, low), halves.get(bytes).unwrap_or(&[])),
            };
            if !is_wanted {
                break;
            }
        }
        used as u64 * 4
    }

    /// The call whose record follows was made there, if it is said where. True: go on.
    fn placed(&mut self, place: Option<u32>) -> bool {
        self.cursor.ordered.next_at(place);
        true
    }

    /// A record with values. False: what comes from here on is not wanted.
    fn values(&mut self, stamp: u32, (id, low): (u32, u32), halves: &[AtomicU32]) -> bool {
        let tsc = self.cursor.time(stamp);
        let mut bytes = std::mem::take(&mut self.cursor.room[0]);
        system_call::copy(halves, &mut bytes);
        let is_wanted = match id {
            wire::SYSTEM_CALL => self.system_call(tsc, low, &bytes),
            wire::CALL_VALUES => self.call_values(tsc, low, &bytes),
            wire::RETURN_VALUES => self.return_values(tsc, low, &bytes),
            wire::SIGNAL => self.signal(tsc, low, &bytes),
            wire::ACTED => self.acted(tsc, low, &bytes),
            _ => self.system_return(tsc, low, &bytes),
        };
        self.cursor.room[0] = bytes;
        is_wanted
    }

    /// A record of a slot with its values. False: what comes from here on is not wanted.
    fn valued(
        &mut self,
        valued: &Valued,
        halves: &[AtomicU32],
        wide_callee: &mut Option<u64>,
    ) -> bool {
        let call = &valued.call;
        let words = halves.get(valued.words.clone()).unwrap_or(&[]);
        let is_return = call.place.kind() == PLACE_EXIT;
        let id = match is_return {
            true => wire::RETURN_VALUES,
            false => wire::CALL_VALUES,
        };
        (is_return || self.call(call, wide_callee))
            && self.values(call.stamp, (id, valued.number), words)
            && (!is_return || self.call(call, wide_callee))
    }

    /// A record of a slot. False: what comes from here on is not wanted.
    fn call(&mut self, call: &Call, wide_callee: &mut Option<u64>) -> bool {
        let tsc = self.cursor.time(call.stamp);
        if !self.sink.come_to(tsc, 1) {
            return false;
        }
        let kind = call.place.kind();
        if kind == PLACE_EXIT {
            if self.cursor.lazy.is_some() {
                self.settle_lazy(None);
            }
            self.returned(tsc);
            return true;
        }
        let is_tail = kind & PLACE_TAIL != 0;
        if let Some(callee) = self.callee(call, tsc, wide_callee) {
            let jumped = (is_tail && self.cursor.lazy.is_some()).then_some(callee);
            if self.cursor.lazy.is_some() {
                self.settle_lazy(jumped);
            }
            if jumped.is_none() {
                if self.cursor.ordered.is_mixed() {
                    let caller = self.book.site_caller(call.from, self.sink);
                    self.cursor.ordered.keep_caller(call.id, caller);
                }
                self.enter(kind, tsc, callee, Some(call.from));
            }
        }
        true
    }

    /// The innermost call whose end has a record has returned.
    fn returned(&mut self, tsc: u64) {
        match self.cursor.ordered.is_mixed() {
            true => self.end_told(tsc),
            false => self.sink.exit(tsc),
        }
    }

    /// What is called, or jumped to. None: a PLT stub, so the next jump tells.
    fn callee(
        &mut self,
        call: &Call,
        tsc: u64,
        wide_callee: &mut Option<u64>,
    ) -> Option<FunctionId> {
        let Call { place, from, .. } = *call;
        if place.kind() & PLACE_INDIRECT == 0 {
            let direct = || self.book.direct_callee(from, place, self.sink);
            return Some(place.callee().unwrap_or_else(direct));
        }
        let wide = wide_callee.take().filter(|wide| *wide as u32 == call.low);
        let target = wide.unwrap_or(LOW_HALF | u64::from(call.low));
        match self.book.resolve(self.cursor.pid, target, self.sink) {
            Target::Function(callee) => Some(callee),
            Target::Stub(module, svma) => {
                let is_tail = place.kind() & PLACE_TAIL != 0;
                // From the stub to its second half, if its slot is not bound yet.
                if !(is_tail && self.cursor.lazy.is_some()) {
                    self.settle_lazy(None);
                    self.cursor.lazy = Some(ToStub {
                        tsc,
                        is_tail,
                        module,
                        svma,
                        from: Some(from),
                        place: self.cursor.ordered.take_place(),
                    });
                }
                None
            }
        }
    }

    /// Tells of the held-back call of a stub: as the function that the stub or the resolver jumped
    /// to, or, if something else came first, under the stub's name.
    pub fn settle_lazy(&mut self, callee: Option<FunctionId>) {
        let Some(stub) = self.cursor.lazy.take() else {
            return;
        };
        let named = callee.or_else(|| self.book.stub(stub.module, stub.svma, self.sink));
        let kind = match stub.is_tail {
            true => PLACE_TAIL,
            false => PLACE_ENTRY,
        };
        if let Some(callee) = named
            && !self.settle_in_order(stub, callee)
        {
            self.cursor.ordered.next_at(stub.place);
            self.enter(kind, stub.tsc, callee, stub.from);
        }
    }

    /// A function begins, called or jumped to from a known place or from code that is not seen.
    fn enter(&mut self, kind: u8, tsc: u64, callee: FunctionId, from: Option<CalledFrom>) {
        if self.cursor.ordered.is_mixed() && kind & PLACE_TAIL == 0 {
            let caller = from.and_then(|from| self.book.site_caller(from, self.sink));
            let place = self.cursor.ordered.take_place();
            self.begin_told(tsc, (callee, caller), place, mixed::How::of_kind(kind));
        }
        if self.sink.counts() {
            let caller = from.and_then(|from| self.book.site_caller(from, self.sink));
            return self.sink.enter(tsc, kind, callee, |_| caller);
        }
        let book = &mut *self.book;
        let caller = |is_open| book.caller(from, is_open);
        self.sink.enter(tsc, kind, callee, caller);
    }

    /// A frame was open when the records began: what the agent says of it, and what was called.
    fn inherited(&mut self, tsc: u64, frame: u64, called: u64) {
        let pid = self.cursor.pid;
        let how = Inherited::of(frame);
        let callee = match how {
            // Which function runs there may be another than was called: a tail.
            Inherited::FoundCall => self.book.callee_at(pid, called, self.sink),
            _ => self.book.frame_callee(pid, frame as u32, called, self.sink),
        };
        if self.cursor.ordered.is_mixed() {
            let place = self.cursor.ordered.take_place();
            self.begin_told(tsc, (callee, None), place, mixed::How::inherited(how));
        }
        self.sink.inherited(tsc, how, callee);
    }

    /// A record that is not of a call. False: what comes from here on is not wanted.
    fn control(&mut self, stamp: u32, id: u32, payload: u64) -> bool {
        let tsc = self.cursor.time(stamp);
        if !self.sink.come_to(tsc, 0) {
            return false;
        }
        if !matches!(id, wire::ANCHOR | wire::BLOCKED | wire::LOST) {
            self.settle_lazy(None);
        }
        let pid = self.cursor.pid;
        let count = u32::try_from(payload).unwrap_or(u32::MAX);
        match id {
            wire::ANCHOR => self.cursor.high = payload >> 32,
            wire::UNWOUND | wire::CLOSED if self.cursor.ordered.is_mixed() => {
                self.leave_told(tsc, count, id == wire::CLOSED);
            }
            wire::UNWOUND => self.sink.unwound(tsc, count),
            wire::CLOSED => self.sink.closed(tsc, count),
            wire::RESUMED => {
                let callee = self.book.site_callee(pid, payload as u32, self.sink);
                self.sink.resumed(tsc, callee);
            }
            wire::LOST => self.sink.lost(tsc, payload),
            wire::BLOCKED => {
                self.cursor.ordered.waited(payload);
                self.sink.blocked(tsc, payload);
            }
            wire::AT_STACK => self.cursor.ordered.stands_at(payload as u32),
            wire::ENTERED if self.cursor.ordered.is_placed() && !self.cursor.ordered.is_mixed() => {
                let callee = self.book.callee_at(pid, payload, self.sink);
                self.enter_placed(tsc, callee);
            }
            wire::ENTERED => {
                let callee = self.book.callee_at(pid, payload, self.sink);
                self.enter(module::PLACE_OPEN, tsc, callee, None);
            }
            wire::INHERITED => match self.cursor.inherited.take() {
                None => self.cursor.inherited = Some(payload),
                Some(frame) => self.inherited(tsc, frame, payload),
            },
            wire::LANE => {
                self.cursor.inherited = None;
                self.sink.lane(tsc, payload);
            }
            _ => self.torn.nonsense += 1,
        }
        true
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
