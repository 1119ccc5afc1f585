//! Perfetto's own trace format: a track for each process and thread, a slice for each call.
//!
//! Protocol buffers written by hand: few messages are needed (protos/perfetto/trace of the Perfetto
//! project names the fields). Names are written once and then by number, times are nanoseconds
//! since the start of the trace. Slices nest strictly: what has no end of its own ends with what it
//! ran in, and says so. On the time axis a slice has the times in it that the thread waited for
//! sptrace; where there are any, its end has the duration without them.
//!
//! A slice is begun when it is known to be shown: with the first one inside of it that ends, or at
//! its own end. The viewer sorts by time, and slices that begin at the same time are written
//! outermost first.
//!
//! A flow leads from the moment at which a process was forked, on the track of the thread that did
//! it, to the first slice of the new one, where the trace says which thread that was.

use crate::output::Output;
use crate::{Context, Exporter, Written};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use sptrace_trace::{Frame, FunctionId, StreamId, StreamInfo, StreamTotals, Visitor};
use std::io::{self, Write};

/// The one sequence of packets.
const SEQUENCE: u64 = 1;

// Fields, as `message_field`.
const TRACE_PACKET: u32 = 1;
const PACKET_TIMESTAMP: u32 = 8;
const PACKET_SEQUENCE: u32 = 10;
const PACKET_TRACK_EVENT: u32 = 11;
const PACKET_INTERNED: u32 = 12;
const PACKET_FLAGS: u32 = 13;
const PACKET_TRACK: u32 = 60;
const INTERNED_CATEGORY: u32 = 1;
const INTERNED_NAME: u32 = 2;
const INTERNED_ANNOTATION: u32 = 3;
const INTERNED_SOURCE: u32 = 4;
const ENTRY_ID: u32 = 1;
const ENTRY_NAME: u32 = 2;
const SOURCE_FILE: u32 = 2;
const SOURCE_FUNCTION: u32 = 3;
const SOURCE_LINE: u32 = 4;
const TRACK_UUID: u32 = 1;
const TRACK_PROCESS: u32 = 3;
const TRACK_THREAD: u32 = 4;
const TRACK_PARENT: u32 = 5;
const PROCESS_PID: u32 = 1;
const PROCESS_NAME: u32 = 6;
const THREAD_PID: u32 = 1;
const THREAD_TID: u32 = 2;
const THREAD_NAME: u32 = 5;
const EVENT_CATEGORY_ID: u32 = 3;
const EVENT_ANNOTATION: u32 = 4;
const EVENT_TYPE: u32 = 9;
const EVENT_NAME_ID: u32 = 10;
const EVENT_TRACK: u32 = 11;
const EVENT_NAME: u32 = 23;
const EVENT_SOURCE_ID: u32 = 34;
const EVENT_FLOW: u32 = 47;
const EVENT_FLOW_ENDS: u32 = 48;
const ANNOTATION_NAME_ID: u32 = 1;
const ANNOTATION_UINT: u32 = 3;
const ANNOTATION_STRING: u32 = 6;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const INCREMENTAL_STATE_CLEARED: u64 = 1;
const NEEDS_INCREMENTAL_STATE: u64 = 2;
/// Number and name of what a slice may say.
const BEGIN: (u64, &str) = (1, "begin");
const END: (u64, &str) = (2, "end");
const DURATION: (u64, &str) = (3, "duration_ns");

/// A message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// A number of eight bytes.
    fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message inside, made in `inner`, which is emptied.
    fn message(&mut self, field: u32, inner: &mut Self) {
        self.bytes(field, &inner.0);
        inner.0.clear();
    }

    fn entry(&mut self, field: u32, number: u64, name: &str) {
        let mut entry = Self::default();
        entry.number(ENTRY_ID, number);
        entry.bytes(ENTRY_NAME, name.as_bytes());
        self.message(field, &mut entry);
    }
}

/// A frame, and whether its slice was begun.
struct Slice {
    frame: Frame,
    is_begun: bool,
}

#[derive(Default)]
struct Lane {
    slices: Vec<Slice>,
    track: u64,
    last_tsc: u64,
    /// Its first slice was begun.
    has_begun: bool,
}

/// A process that was forked, and that is shown.
struct Fork {
    child: StreamId,
    parent: StreamId,
    tsc: u64,
}

/// Packets on their way.
struct Packets<W> {
    out: Output<W>,
    packet: Message,
    event: Message,
    inner: Message,
    interned: Message,
    names: HashSet<u32>,
    categories: HashSet<u32>,
    tracks: HashMap<(u32, Option<u32>), u64>,
    calls: u64,
}

/// The format.
pub struct Perfetto<'a, W> {
    cx: &'a Context<'a>,
    packets: Packets<W>,
    lanes: HashMap<StreamId, Lane>,
    forks: Vec<Fork>,
    is_cut: bool,
}

impl<'a, W: Write> Perfetto<'a, W> {
    /// Nothing told yet.
    pub fn new(cx: &'a Context<'a>, out: W) -> Self {
        let mut packets = Packets {
            out: Output::new(out),
            packet: Message::default(),
            event: Message::default(),
            inner: Message::default(),
            interned: Message::default(),
            names: HashSet::default(),
            categories: HashSet::default(),
            tracks: HashMap::default(),
            calls: 0,
        };
        packets.begin();
        Self {
            cx,
            packets,
            lanes: HashMap::default(),
            forks: Vec::new(),
            is_cut: false,
        }
    }

    /// Begins the slices of a thread that are not begun yet.
    fn begin_slices(&mut self, stream: StreamId) {
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return;
        };
        // Those that are begun lie below those that are not.
        let waiting = lane.slices.iter().rev().take_while(|slice| !slice.is_begun);
        let from = lane.slices.len() - waiting.count();
        for slice in &mut lane.slices[from..] {
            slice.is_begun = true;
            let fork = match lane.has_begun {
                true => None,
                false => fork_of(self.cx, stream, &slice.frame),
            };
            lane.has_begun = true;
            let flow = fork.as_ref().map(Fork::flow);
            self.forks.extend(fork);
            self.packets
                .begin_slice(self.cx, lane.track, &slice.frame, flow);
        }
    }

    fn end_innermost(&mut self, stream: StreamId, frame: &Frame) {
        self.begin_slices(stream);
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return;
        };
        lane.slices.pop();
        lane.last_tsc = lane.last_tsc.max(frame.end_tsc);
        self.packets.end_slice(self.cx, lane.track, frame);
    }
}

impl Fork {
    /// The number of its flow.
    fn flow(&self) -> u64 {
        u64::from(self.child.0) + 1
    }
}

/// The fork by which a stream began, of which this is the first frame.
fn fork_of(cx: &Context<'_>, child: StreamId, first: &Frame) -> Option<Fork> {
    let info = cx.names.dictionary().stream(child)?;
    Some(Fork {
        child,
        parent: info.parent?,
        tsc: info.start_tsc.min(first.start_tsc),
    })
}

impl<W: Write> Packets<W> {
    fn begin(&mut self) {
        for (number, name) in [BEGIN, END, DURATION] {
            self.interned.entry(INTERNED_ANNOTATION, number, name);
        }
        self.packet.number(PACKET_SEQUENCE, SEQUENCE);
        self.packet.number(PACKET_FLAGS, INCREMENTAL_STATE_CLEARED);
        self.packet.message(PACKET_INTERNED, &mut self.interned);
        self.write();
    }

    /// The packet is whole.
    fn write(&mut self) {
        let mut head = Message::default();
        head.varint(u64::from(TRACE_PACKET) << 3 | 2);
        head.varint(self.packet.0.len() as u64);
        self.out.bytes(&head.0);
        self.out.bytes(&self.packet.0);
        self.out.pass();
        self.packet.0.clear();
    }

    /// The track of a thread; describes it, and that of its process, where they are new.
    fn track(&mut self, info: &StreamInfo) -> u64 {
        let next = self.tracks.len() as u64 + 1;
        let process = *self.tracks.entry((info.pid, None)).or_insert(next);
        if process == next {
            self.inner.number(PROCESS_PID, info.pid.into());
            self.inner.bytes(PROCESS_NAME, info.comm.as_bytes());
            self.event.number(TRACK_UUID, process);
            self.event.message(TRACK_PROCESS, &mut self.inner);
            self.write_track();
        }
        let next = self.tracks.len() as u64 + 1;
        let key = (info.pid, Some(info.tid));
        let thread = *self.tracks.entry(key).or_insert(next);
        if thread == next {
            self.inner.number(THREAD_PID, info.pid.into());
            self.inner.number(THREAD_TID, info.tid.into());
            self.inner.bytes(THREAD_NAME, info.comm.as_bytes());
            self.event.number(TRACK_UUID, thread);
            self.event.number(TRACK_PARENT, process);
            self.event.message(TRACK_THREAD, &mut self.inner);
            self.write_track();
        }
        thread
    }

    fn write_track(&mut self) {
        self.packet.number(PACKET_SEQUENCE, SEQUENCE);
        self.packet.message(PACKET_TRACK, &mut self.event);
        self.write();
    }

    /// The number of a function's name, and of its module's; names those that are new.
    fn intern(&mut self, cx: &Context<'_>, id: FunctionId) -> (u64, u64) {
        let module = cx.names.dictionary().function(id).map(|f| f.module.0);
        let module = module.unwrap_or(u32::MAX);
        let numbers = (u64::from(id.0) + 1, u64::from(module) + 1);
        if self.names.insert(id.0) {
            let name = cx.names.name(id);
            self.interned.entry(INTERNED_NAME, numbers.0, name);
            if let Some(line) = cx.names.source(id) {
                let mut source = Message::default();
                source.number(ENTRY_ID, numbers.0);
                source.bytes(SOURCE_FILE, line.file.as_bytes());
                source.bytes(SOURCE_FUNCTION, name.as_bytes());
                source.number(SOURCE_LINE, line.line.into());
                self.interned.message(INTERNED_SOURCE, &mut source);
            }
        }
        if self.categories.insert(module) {
            let name = cx.names.module(id);
            self.interned.entry(INTERNED_CATEGORY, numbers.1, name);
        }
        numbers
    }

    /// `flow` ends at it.
    fn begin_slice(&mut self, cx: &Context<'_>, track: u64, frame: &Frame, flow: Option<u64>) {
        self.calls += 1;
        let (name, category) = self.intern(cx, frame.function);
        self.event.number(EVENT_TYPE, SLICE_BEGIN);
        self.event.number(EVENT_TRACK, track);
        self.event.number(EVENT_NAME_ID, name);
        self.event.number(EVENT_CATEGORY_ID, category);
        if cx.names.source(frame.function).is_some() {
            self.event.number(EVENT_SOURCE_ID, name);
        }
        let word = crate::words::begin(frame);
        if word != "call" {
            self.annotate(BEGIN, |inner| {
                inner.bytes(ANNOTATION_STRING, word.as_bytes())
            });
        }
        if let Some(flow) = flow {
            self.event.fixed(EVENT_FLOW_ENDS, flow);
        }
        self.write_event(cx.clock.since_start_ns(frame.start_tsc));
    }

    /// A moment at which a flow begins, if the thread has a track. It comes before what lies at
    /// the same time.
    fn fork(&mut self, cx: &Context<'_>, fork: &Fork) {
        let dictionary = cx.names.dictionary();
        let streams = (
            dictionary.stream(fork.parent),
            dictionary.stream(fork.child),
        );
        let (Some(parent), Some(child)) = streams else {
            return;
        };
        let Some(&track) = self.tracks.get(&(parent.pid, Some(parent.tid))) else {
            return;
        };
        let name = format!("forks process {}", child.pid);
        self.event.number(EVENT_TYPE, INSTANT);
        self.event.number(EVENT_TRACK, track);
        self.event.bytes(EVENT_NAME, name.as_bytes());
        self.event.fixed(EVENT_FLOW, fork.flow());
        self.write_event(cx.clock.since_start_ns(fork.tsc).saturating_sub(1));
    }

    fn end_slice(&mut self, cx: &Context<'_>, track: u64, frame: &Frame) {
        let clock = cx.clock;
        self.event.number(EVENT_TYPE, SLICE_END);
        self.event.number(EVENT_TRACK, track);
        let word = crate::words::end(frame);
        if word != "return" {
            self.annotate(END, |inner| inner.bytes(ANNOTATION_STRING, word.as_bytes()));
        }
        let end_ns = clock.since_start_ns(frame.end_tsc);
        let shown_ns = end_ns.saturating_sub(clock.since_start_ns(frame.start_tsc));
        let exact_ns = frame.total_ticks.map(|ticks| clock.ns(ticks));
        if let Some(ns) = exact_ns.filter(|ns| *ns != shown_ns) {
            self.annotate(DURATION, |inner| inner.number(ANNOTATION_UINT, ns));
        }
        self.write_event(end_ns);
    }

    fn annotate(&mut self, (number, _): (u64, &str), value: impl Fn(&mut Message)) {
        self.inner.number(ANNOTATION_NAME_ID, number);
        value(&mut self.inner);
        self.event.message(EVENT_ANNOTATION, &mut self.inner);
    }

    fn write_event(&mut self, ns: u64) {
        self.packet.number(PACKET_TIMESTAMP, ns);
        self.packet.number(PACKET_SEQUENCE, SEQUENCE);
        self.packet.number(PACKET_FLAGS, NEEDS_INCREMENTAL_STATE);
        if !self.interned.0.is_empty() {
            self.packet.message(PACKET_INTERNED, &mut self.interned);
        }
        self.packet.message(PACKET_TRACK_EVENT, &mut self.event);
        self.write();
    }
}

impl<W: Write> Visitor for Perfetto<'_, W> {
    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if self.is_finished() {
            return;
        }
        let lane = self.lanes.entry(stream).or_default();
        if lane.track == 0 {
            let info = self.cx.names.dictionary().stream(stream);
            lane.track = match info {
                Some(info) => self.packets.track(info),
                None => self.packets.track(&StreamInfo::default()),
            };
        }
        lane.last_tsc = lane.last_tsc.max(frame.start_tsc);
        lane.slices.push(Slice {
            frame: *frame,
            is_begun: false,
        });
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        let packets = &self.packets;
        let enough = self.cx.is_enough(packets.calls, packets.out.bytes_so_far());
        self.is_cut |= enough;
        if !self.is_finished() {
            self.end_innermost(stream, frame);
        }
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        if self.is_finished() {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return;
        };
        // What was shown around something must end also if it is not shown for itself.
        match lane.slices.last() {
            Some(slice) if slice.is_begun => self.end_innermost(stream, frame),
            _ => drop(lane.slices.pop()),
        }
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        if !self.is_finished() {
            self.lanes.remove(&stream);
        }
    }

    fn is_finished(&self) -> bool {
        self.is_cut || self.packets.out.is_closed()
    }
}

impl<W: Write> Exporter for Perfetto<'_, W> {
    fn finish(mut self) -> io::Result<Written> {
        let mut streams: Vec<_> = self.lanes.keys().copied().collect();
        streams.sort();
        for stream in streams {
            while let Some(lane) = self.lanes.get(&stream)
                && let Some(slice) = lane.slices.last()
            {
                let (mut frame, end_tsc) = (slice.frame, lane.last_tsc);
                frame.end_tsc = end_tsc;
                frame.flags.end_unseen = true;
                self.end_innermost(stream, &frame);
            }
        }
        for fork in &self.forks {
            self.packets.fork(self.cx, fork);
        }
        let calls = self.packets.calls;
        let bytes = self.packets.out.bytes_so_far();
        self.packets.out.finish()?;
        Ok(Written {
            calls,
            is_cut: self.is_cut,
            bytes,
            ..Written::default()
        })
    }
}
