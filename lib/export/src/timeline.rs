//! A time line as one HTML file, to look at in a browser without a network: threads as rows, nested
//! calls as rectangles, at each zoom from hours to nanoseconds.
//!
//! An exporter of its own. Each call goes through the levels of detail of its thread
//! (`timeline/levels.rs`), which are packed (`timeline/columns.rs`) as they come, so what is held
//! is the page, not the trace. When it becomes larger than its bound, the finest level is given up
//! for the whole page, which says so. `timeline/page.rs` writes the file; the scripts and the style
//! beside it draw.

mod columns;
mod levels;
mod lines;
mod page;
mod track;

use crate::output::Output;
use crate::{Context, Exporter, Written};
use columns::{
    BEGIN_UNSEEN, COUNT, END_UNSEEN, ENTRY_ONLY, INNER, Item, OWN, OWN_UNKNOWN, TAIL, TOTAL,
    UNTIL_PROCESS_END, UNWOUND,
};
use levels::{LEVELS, Levels, step_ns};
use lines::Lines;
use rustc_hash::FxHashMap as HashMap;
use sptrace_render::call_values::Descriptions;
use sptrace_render::note_text;
use sptrace_trace::{Entry, Frame, FunctionId, Mark, Note, Stats, StreamId, StreamTotals, Visitor};
use std::io::{self, Write};
use track::{Longest, MARKS, Track};

/// Bytes of the page's calls, packed. A browser opens that within seconds, and a trace of ten
/// million calls fits.
const MAX_PACKED_BYTES: usize = 96 << 20;
/// Rows of a thread. Deeper calls are counted, not drawn.
const MAX_ROWS: u32 = 500;
/// Notes drawn.
const MAX_NOTES: usize = 10_000;
/// Numbers that JavaScript keeps exact.
const MAX_NS: u64 = (1 << 53) - 1;
/// A time line on its way.
pub struct Timeline<'a, W> {
    cx: &'a Context<'a>,
    out: W,
    tracks: HashMap<StreamId, Track>,
    /// Open frames of each function.
    active: HashMap<(StreamId, FunctionId), u32>,
    stats: Stats,
    longest: Vec<Longest>,
    notes: Vec<(u64, u32, String)>,
    notes_left_out: u64,
    lines: Lines,
    finest: usize,
    packed_bytes: usize,
    calls: u64,
    deep: u64,
    unknown: u64,
    hidden: u64,
}

impl<'a, W: Write> Timeline<'a, W> {
    /// An empty time line.
    pub fn new(cx: &'a Context<'a>, out: W) -> Self {
        Self {
            cx,
            out,
            tracks: HashMap::default(),
            active: HashMap::default(),
            stats: Stats::new(),
            longest: Vec::new(),
            notes: Vec::new(),
            notes_left_out: 0,
            lines: Lines::new(Descriptions::of(cx.names.dictionary())),
            finest: 0,
            packed_bytes: 0,
            calls: 0,
            deep: 0,
            unknown: 0,
            hidden: 0,
        }
    }

    fn ns(&self, tsc: u64) -> u64 {
        self.cx.clock.since_start_ns(tsc).min(MAX_NS)
    }

    fn track(&mut self, stream: StreamId) -> &mut Track {
        let finest = self.finest;
        self.tracks.entry(stream).or_insert_with(|| Track {
            levels: Levels::new(finest),
            open: Vec::new(),
            start_ns: u64::MAX,
            end_ns: 0,
            rows: 0,
            calls: 0,
            is_over: false,
        })
    }

    fn add(&mut self, stream: StreamId, item: &Item, is_mark: bool) {
        if item.depth >= MAX_ROWS {
            self.deep += u64::from(!is_mark);
            return;
        }
        let track = self.track(stream);
        track.start_ns = track.start_ns.min(item.start_ns);
        track.end_ns = track.end_ns.max(item.end_ns);
        track.rows = track.rows.max(item.depth + 1);
        let bytes = track.levels.add(item, is_mark);
        if bytes > 0 {
            self.packed_bytes += bytes;
            self.keep_small();
        }
    }

    /// Gives the finest level up if the page becomes too large.
    fn keep_small(&mut self) {
        let single = self.cx.limit.unwrap_or(u64::MAX);
        let is_large = |timeline: &Self| {
            timeline.packed_bytes > MAX_PACKED_BYTES
                || (timeline.calls > single && timeline.single() > single)
        };
        while self.finest + 1 < LEVELS && is_large(self) {
            self.finest += 1;
            let finest = self.finest;
            let tracks = self.tracks.values_mut();
            let freed: usize = tracks.map(|track| track.levels.drop_below(finest)).sum();
            self.packed_bytes = self.packed_bytes.saturating_sub(freed);
        }
    }

    /// Calls that can be seen one by one.
    fn single(&self) -> u64 {
        self.tracks
            .values()
            .map(|track| track.levels.single())
            .sum()
    }

    /// What the page does not show call by call.
    fn remarks(&self, single: u64) -> Vec<String> {
        let mut remarks = Vec::new();
        let (all, drawn) = (self.calls, self.calls.saturating_sub(self.deep));
        if self.finest > 0 {
            let step_ns = step_ns(self.finest);
            let sums = drawn.saturating_sub(single);
            remarks.push(format!(
                "{sums} of {all} calls, those shorter than {step_ns} ns, are in the page as sums only"
            ));
        }
        if self.deep > 0 {
            let deep = self.deep;
            remarks.push(format!(
                "{deep} of {all} calls are deeper than {MAX_ROWS} levels and not drawn"
            ));
        }
        remarks
    }

    fn close(&mut self, stream: StreamId, frame: &Frame) -> Option<bool> {
        let is_inner = self.tracks.get_mut(&stream)?.open.pop()?;
        let active = self.active.entry((stream, frame.function)).or_default();
        *active = active.saturating_sub(1);
        Some(is_inner)
    }

    fn item(&self, frame: &Frame, is_inner: bool) -> Item {
        let (start_ns, end_ns) = (self.ns(frame.start_tsc), self.ns(frame.end_tsc));
        let length_ns = end_ns.saturating_sub(start_ns);
        let total_ns = frame
            .total_ticks
            .map(|ticks| self.cx.clock.ns(ticks).min(MAX_NS));
        let own_ns = frame
            .self_ticks
            .map(|ticks| self.cx.clock.ns(ticks).min(MAX_NS));
        let is = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
        let flags = is(INNER, is_inner)
            | is(TOTAL, total_ns.is_some_and(|ns| ns != length_ns))
            | is(OWN, own_ns.is_some_and(|ns| Some(ns) != total_ns))
            | is(OWN_UNKNOWN, own_ns.is_none())
            | is(UNWOUND, frame.flags.unwound)
            | is(END_UNSEEN, frame.flags.end_unseen)
            | is(UNTIL_PROCESS_END, frame.flags.until_process_end)
            | is(BEGIN_UNSEEN, frame.flags.begin_unseen)
            | is(TAIL, frame.entry == Entry::Tail)
            | is(ENTRY_ONLY, frame.entry == Entry::Open);
        Item {
            depth: frame.depth,
            start_ns,
            end_ns: end_ns.max(start_ns),
            function: frame.function.0.saturating_add(MARKS.len() as u32),
            flags,
            total_ns: total_ns.unwrap_or(0),
            own_ns: own_ns.unwrap_or(0),
            count: 1,
        }
    }

    fn keep_longest(&mut self, stream: StreamId, frame: &Frame, item: &Item) {
        let index = frame.function.0 as usize;
        if index >= self.longest.len() {
            let names = self.cx.names.dictionary().functions.len();
            if index >= names {
                return;
            }
            self.longest.resize(names, Longest::default());
        }
        let longest = &mut self.longest[index];
        let total_ns = frame.total_ticks.map_or(0, |ticks| self.cx.clock.ns(ticks));
        let is_first = longest.stream == 0;
        if (is_first || total_ns > longest.total_ns) && frame.depth < MAX_ROWS {
            *longest = Longest {
                stream: stream.0.saturating_add(1),
                start_ns: item.start_ns,
                total_ns,
            };
        }
    }
}

impl<W: Write> Visitor for Timeline<'_, W> {
    fn note(&mut self, note: &Note) {
        let Some(text) = note_text(note) else {
            return;
        };
        if self.notes.len() >= MAX_NOTES {
            self.notes_left_out += 1;
            return;
        }
        self.notes.push((self.ns(note.tsc()), note.pid(), text));
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        self.stats.enter(stream, frame);
        let active = self.active.entry((stream, frame.function)).or_default();
        *active += 1;
        let is_inner = *active > 1;
        self.track(stream).open.push(is_inner);
        self.lines.enter(stream);
    }

    fn values(&mut self, stream: StreamId, _: u64, bytes: &[u8]) {
        self.lines.values(stream, bytes);
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        self.stats.leave(stream, frame);
        let is_drawn = frame.depth < MAX_ROWS;
        let shown = (
            self.cx.names.name(frame.function),
            self.ns(frame.start_tsc),
            frame.depth,
        );
        self.lines.leave(stream, is_drawn.then_some(shown));
        let Some(is_inner) = self.close(stream, frame) else {
            return;
        };
        let item = self.item(frame, is_inner);
        self.calls += 1;
        self.unknown += u64::from(frame.total_ticks.is_none());
        self.track(stream).calls += u64::from(!frame.flags.begin_unseen);
        self.keep_longest(stream, frame, &item);
        self.add(stream, &item, false);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.stats.leave_hidden(stream, frame);
        self.lines.leave(stream, None);
        self.close(stream, frame);
        self.hidden += 1;
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        let end_ns = self.ns(tsc);
        let (function, length_ns, count) = match mark {
            Mark::Blocked(ticks) => (0, self.cx.clock.ns(ticks), 1),
            Mark::Lost(events) => (1, 0, events.min(MAX_NS)),
            Mark::Resumed(_) => (2, 0, 1),
            Mark::UnseenFrameEnded => (3, 0, 1),
        };
        let item = Item {
            depth,
            start_ns: end_ns.saturating_sub(length_ns),
            end_ns,
            function,
            flags: if count == 1 { 0 } else { COUNT },
            count,
            ..Item::default()
        };
        self.add(stream, &item, true);
    }

    fn end(&mut self, stream: StreamId, totals: &StreamTotals) {
        self.stats.end(stream, totals);
        self.active.retain(|(of, _), _| *of != stream);
        self.lines.end(stream);
        if let Some(track) = self.tracks.get_mut(&stream) {
            track.is_over = true;
            self.packed_bytes += track.levels.finish();
            self.keep_small();
        }
    }
}

impl<W: Write> Exporter for Timeline<'_, W> {
    fn finish(mut self) -> io::Result<Written> {
        for track in self.tracks.values_mut().filter(|track| !track.is_over) {
            self.packed_bytes += track.levels.finish();
        }
        self.keep_small();
        let single = self.single();
        let written = Written {
            calls: single,
            is_cut: false,
            bytes: 0,
            remarks: self.remarks(single),
        };
        let lines_left_out = self.lines.left_out;
        let lines: Vec<_> = self.lines.finish().collect();
        let mut out = Output::new(&mut self.out);
        page::write(
            &page::Page {
                cx: self.cx,
                tracks: &self.tracks,
                stats: &self.stats,
                longest: &self.longest,
                notes: &self.notes,
                notes_left_out: self.notes_left_out,
                lines: &lines,
                lines_left_out,
                finest: self.finest,
                counts: [self.calls, single, self.deep, self.unknown, self.hidden],
            },
            &mut out,
        );
        out.finish()?;
        Ok(written)
    }
}
