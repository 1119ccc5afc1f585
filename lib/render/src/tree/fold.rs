//! The call tree with repeated parts told once: `x 1000` in place of a thousand equal lines.
//!
//! What follows upon each other and is the same in functions, order, nesting and remarks becomes
//! one: a call with all below it, or a sequence of up to [`MAX_PERIOD`] such. Durations of what was
//! folded are sums of all. Nothing that differs is folded, whatever it differs in but time.
//!
//! Of each thread at most [`MAX_HELD`] lines are held or so; then the outermost frame is written
//! as far as it is known, and what comes inside of it is folded further. A thread's lines come when
//! nothing can repeat them any more, so those of different threads are not in the order of time.

use super::line::{Cells, Columns, Who, begin_remarks, end_remarks, push_call, push_remarks};
use crate::notes::note_text;
use crate::style::Style;
use crate::units::{Count, Duration};
use rustc_hash::FxHashMap as HashMap;
use sptrace_trace::{Clock, Frame, FunctionId, Mark, Names, Note, StreamId, StreamTotals, Visitor};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

/// Longest sequence that is looked for.
const MAX_PERIOD: usize = 8;
/// Items kept of a frame whose beginning is written, since they may repeat yet.
const WINDOW: usize = 2 * MAX_PERIOD;
/// Lines held of a thread.
const MAX_HELD: usize = 10_000;
/// Deeper frames are held by nothing: their beginning is written.
const MAX_NESTED: usize = 400;
/// Shorter waits get no line, as in the tree that is not folded.
const SHORT_WAIT_NS: u64 = 100_000;

/// A time of all that were folded.
#[derive(Clone, Copy, Default)]
struct Sum {
    ticks: u64,
    known: u64,
    unknown: u64,
}

impl Sum {
    fn of(ticks: Option<u64>) -> Self {
        Self {
            ticks: ticks.unwrap_or(0),
            known: u64::from(ticks.is_some()),
            unknown: u64::from(ticks.is_none()),
        }
    }

    fn add(&mut self, other: Self) {
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.known += other.known;
        self.unknown += other.unknown;
    }

    fn ns(self, clock: Clock) -> Option<u64> {
        (self.known > 0).then(|| clock.ns(self.ticks))
    }
}

/// A call that ended, or all that were folded into it.
struct Call {
    function: FunctionId,
    begin: Vec<&'static str>,
    end: Vec<&'static str>,
    total: Sum,
    own: Sum,
    start_tsc: u64,
    end_tsc: u64,
    inner: Vec<Item>,
}

enum Kind {
    Call(Call),
    /// A sequence that repeats.
    Sequence(Vec<Item>),
    /// Something else, which is never folded.
    Text(String, u64),
    /// What happened to a process.
    Note(Note),
}

struct Item {
    kind: Kind,
    count: u64,
    /// Of all but times and `count`.
    shape: u64,
    lines: usize,
}

impl Item {
    fn is_same(&self, other: &Self) -> bool {
        self.count == other.count && self.is_same_shape(other)
    }

    fn is_same_shape(&self, other: &Self) -> bool {
        if self.shape != other.shape {
            return false;
        }
        match (&self.kind, &other.kind) {
            (Kind::Call(a), Kind::Call(b)) => {
                (a.function, &a.begin, &a.end) == (b.function, &b.begin, &b.end)
                    && are_same(&a.inner, &b.inner)
            }
            (Kind::Sequence(a), Kind::Sequence(b)) => are_same(a, b),
            _ => false,
        }
    }

    /// Adds the times of one that is the same.
    fn take_in(&mut self, other: Self) {
        match (&mut self.kind, other.kind) {
            (Kind::Call(a), Kind::Call(b)) => {
                a.total.add(b.total);
                a.own.add(b.own);
                a.end_tsc = b.end_tsc;
                take_all_in(&mut a.inner, b.inner);
            }
            (Kind::Sequence(a), Kind::Sequence(b)) => take_all_in(a, b),
            _ => {}
        }
    }
}

fn are_same(a: &[Item], b: &[Item]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
}

fn take_all_in(items: &mut [Item], others: Vec<Item>) {
    items.iter_mut().zip(others).for_each(|(a, b)| a.take_in(b));
}

fn shape_of(items: &[Item], head: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    head.hash(&mut hasher);
    items
        .iter()
        .for_each(|item| (item.shape, item.count).hash(&mut hasher));
    hasher.finish()
}

/// Appends an item and folds what repeats at the end; gives the lines that this has saved.
fn append(list: &mut Vec<Item>, item: Item) -> usize {
    list.push(item);
    let mut saved = 0;
    while let Some(lines) = fold_end(list) {
        saved += lines;
    }
    saved
}

fn fold_end(list: &mut Vec<Item>) -> Option<usize> {
    let length = list.len();
    for period in 1..=MAX_PERIOD.min(length.saturating_sub(1)) {
        let (before, last) = list.split_at(length - period);
        let is_again = match before.last() {
            Some(Item {
                kind: Kind::Sequence(body),
                ..
            }) => are_same(body, last),
            Some(one) if period == 1 => last[0].count == 1 && one.is_same_shape(&last[0]),
            _ => false,
        };
        if is_again {
            let lines = last.iter().map(|item| item.lines).sum();
            let last = list.split_off(length - period);
            let into = list.last_mut()?;
            into.count += 1;
            match &mut into.kind {
                Kind::Sequence(body) => take_all_in(body, last),
                _ => last.into_iter().for_each(|one| into.take_in(one)),
            }
            return Some(lines);
        }
        let is_new = period > 1
            && before.len() >= period
            && are_same(&before[before.len() - period..], last);
        if is_new {
            let last = list.split_off(length - period);
            let mut body = list.split_off(length - 2 * period);
            let lines = last.iter().map(|item| item.lines).sum::<usize>();
            take_all_in(&mut body, last);
            list.push(Item {
                count: 2,
                shape: shape_of(&body, "sequence"),
                lines: lines + 2,
                kind: Kind::Sequence(body),
            });
            return Some(lines.saturating_sub(2));
        }
    }
    None
}

/// What is no call.
fn other(kind: Kind) -> Item {
    Item {
        kind,
        count: 1,
        shape: 0,
        lines: 1,
    }
}

/// An open frame.
struct Open {
    frame: Frame,
    items: Vec<Item>,
    /// Its opening line is written.
    is_written: bool,
}

/// One thread.
#[derive(Default)]
struct Thread {
    who: Who,
    /// What ended outside of all frames.
    outer: Vec<Item>,
    open: Vec<Open>,
    /// How many open frames are written: the outermost ones.
    written: usize,
    held: usize,
}

/// Writes a folded tree while a trace is replayed.
pub struct FoldedTree<'a, W> {
    out: W,
    names: &'a Names<'a>,
    clock: Clock,
    columns: Columns,
    style: Style,
    threads: HashMap<StreamId, Thread>,
    /// In order of time.
    notes: VecDeque<Note>,
    lines: u64,
    max_lines: Option<u64>,
    result: io::Result<()>,
}

impl<'a, W: Write> FoldedTree<'a, W> {
    /// Writes the heading.
    pub fn new(
        mut out: W,
        (names, clock): (&'a Names<'a>, Clock),
        columns: Columns,
        max_lines: Option<u64>,
        style: Style,
    ) -> Self {
        let heading = format!("{} (x N: durations of all N together)", columns.heading());
        let result = writeln!(out, "{}", style.heading(&heading));
        Self {
            out,
            names,
            clock,
            columns,
            style,
            threads: HashMap::default(),
            notes: VecDeque::new(),
            lines: 0,
            max_lines,
            result,
        }
    }

    /// Ends the output.
    ///
    /// # Errors
    /// The first error of the output.
    pub fn finish(mut self) -> io::Result<()> {
        let mut streams: Vec<_> = self.threads.keys().copied().collect();
        streams.sort();
        streams
            .into_iter()
            .for_each(|stream| self.write_rest(stream));
        for note in std::mem::take(&mut self.notes) {
            if let Some(text) = note_text(&note) {
                self.write_text(&Who::of_note(&note), &text, Some(note.tsc()), 0);
            }
        }
        self.result?;
        self.out.flush()
    }

    fn thread(&mut self, stream: StreamId) -> &mut Thread {
        let names = self.names;
        self.threads.entry(stream).or_insert_with(|| Thread {
            who: Who::of(names, stream),
            ..Thread::default()
        })
    }

    /// An item has ended inside of the innermost open frame.
    fn append(&mut self, stream: StreamId, item: Item) {
        let thread = self.thread(stream);
        thread.held += item.lines;
        let depth = thread.open.len();
        let list = match thread.open.last_mut() {
            Some(open) => &mut open.items,
            None => &mut thread.outer,
        };
        let saved = append(list, item);
        let is_written = depth == thread.written;
        let surplus = match is_written {
            true => list.len().saturating_sub(WINDOW),
            false => 0,
        };
        let due: Vec<Item> = list.drain(..surplus).collect();
        thread.held = thread.held.saturating_sub(saved);
        self.write_items(stream, due, depth as u32);
        while self.thread(stream).held > MAX_HELD && self.open_outermost(stream) {}
    }

    /// Writes the beginning of the outermost frame of which it is not written, and what comes
    /// before it; false: there is none.
    fn open_outermost(&mut self, stream: StreamId) -> bool {
        let thread = self.thread(stream);
        let at = thread.written;
        if at >= thread.open.len() {
            return false;
        }
        let before = match at.checked_sub(1) {
            Some(below) => std::mem::take(&mut thread.open[below].items),
            None => std::mem::take(&mut thread.outer),
        };
        self.write_items(stream, before, at as u32);
        let thread = self.thread(stream);
        let open = &mut thread.open[at];
        open.is_written = true;
        let (frame, who) = (open.frame, thread.who.clone());
        let surplus = open.items.len().saturating_sub(WINDOW);
        let due: Vec<Item> = open.items.drain(..surplus).collect();
        thread.written += 1;
        let mut line = self.opening(&who, frame.function, frame.start_tsc, at as u32);
        push_remarks(
            &mut line,
            &begin_remarks(frame.entry, frame.flags),
            self.style,
        );
        self.write_line(&line);
        self.write_items(stream, due, at as u32 + 1);
        true
    }

    /// What happened before this comes first.
    fn append_notes(&mut self, stream: StreamId, tsc: u64) {
        while self.notes.front().is_some_and(|note| note.tsc() <= tsc) {
            let note = self.notes.pop_front();
            let note = note.filter(|note| note_text(note).is_some());
            if let Some(note) = note {
                self.append(stream, other(Kind::Note(note)));
            }
        }
    }

    fn opening(&self, who: &Who, function: FunctionId, tsc: u64, depth: u32) -> String {
        let mut line = String::new();
        self.columns.begin(&mut line, who, &Cells::at(tsc), depth);
        push_call(&mut line, self.names.name(function));
        line.push_str(" {");
        line
    }

    fn write_items(&mut self, stream: StreamId, items: Vec<Item>, depth: u32) {
        let lines: usize = items.iter().map(|item| item.lines).sum();
        let who = self.thread(stream).who.clone();
        items
            .iter()
            .for_each(|item| self.write_item(&who, item, depth));
        let thread = self.thread(stream);
        thread.held = thread.held.saturating_sub(lines);
    }

    fn write_item(&mut self, who: &Who, item: &Item, depth: u32) {
        if self.is_finished() {
            return;
        }
        let times = format!("x {}", Count(item.count));
        match &item.kind {
            Kind::Call(call) => self.write_call(who, call, (item.count, &times), depth),
            Kind::Text(text, tsc) => self.write_text(who, text, Some(*tsc), depth),
            Kind::Note(note) => {
                let text = note_text(note).unwrap_or_default();
                self.write_text(&Who::of_note(note), &text, Some(note.tsc()), 0);
            }
            Kind::Sequence(body) => {
                self.write_text(who, &format!("{times}: {{"), None, depth);
                body.iter()
                    .for_each(|item| self.write_item(who, item, depth));
                self.write_text(who, &format!("}} {times}"), None, depth);
            }
        }
    }

    fn write_text(&mut self, who: &Who, text: &str, tsc: Option<u64>, depth: u32) {
        let mut line = String::new();
        let cells = Cells {
            tsc,
            ..Cells::default()
        };
        self.columns.begin(&mut line, who, &cells, depth);
        line.push_str(&self.style.aside(&format!("/* {text} */")));
        self.write_line(&line);
    }

    fn write_call(&mut self, who: &Who, call: &Call, (count, times): (u64, &str), depth: u32) {
        let times: &[&str] = if count > 1 { &[times] } else { &[] };
        let without_end = format!("{} without an end", Count(call.total.unknown));
        let is_mixed = call.total.known > 0 && call.total.unknown > 0;
        let mixed: &[&str] = if is_mixed { &[&without_end] } else { &[] };
        let name = self.names.name(call.function);
        let mut cells = Cells {
            total_ns: Some(call.total.ns(self.clock)),
            own_ns: Some(call.own.ns(self.clock)),
            is_estimate: false,
            tsc: Some(call.start_tsc),
        };
        if call.inner.is_empty() {
            let mut line = String::new();
            self.columns.begin(&mut line, who, &cells, depth);
            push_call(&mut line, name);
            line.push(';');
            let remarks = [&call.begin[..], &call.end[..], times, mixed].concat();
            push_remarks(&mut line, &remarks, self.style);
            return self.write_line(&line);
        }
        let mut line = self.opening(who, call.function, call.start_tsc, depth);
        push_remarks(&mut line, &[&call.begin[..], times].concat(), self.style);
        self.write_line(&line);
        call.inner
            .iter()
            .for_each(|item| self.write_item(who, item, depth + 1));
        cells.tsc = Some(call.end_tsc);
        let remarks = [&[name], &call.end[..], times, mixed].concat();
        self.write_closing(who, &cells, &remarks, depth);
    }

    fn write_closing(&mut self, who: &Who, cells: &Cells, remarks: &[&str], depth: u32) {
        let mut line = String::new();
        self.columns.begin(&mut line, who, cells, depth);
        line.push('}');
        push_remarks(&mut line, remarks, self.style);
        self.write_line(&line);
    }

    fn write_line(&mut self, line: &str) {
        if !self.is_finished() {
            self.result = writeln!(self.out, "{line}");
            self.lines += 1;
        }
    }

    fn write_rest(&mut self, stream: StreamId) {
        while self.open_outermost(stream) {}
        let thread = self.thread(stream);
        let outer = std::mem::take(&mut thread.outer);
        self.write_items(stream, outer, 0);
        self.threads.remove(&stream);
    }

    /// The innermost frame has ended; one that is hidden is shown around what is not.
    fn close(&mut self, stream: StreamId, frame: &Frame, is_hidden: bool) {
        let thread = self.thread(stream);
        let Some(open) = thread.open.pop() else {
            return;
        };
        let (total, own) = match is_hidden {
            true => (None, None),
            false => (frame.total_ticks, frame.self_ticks),
        };
        if open.is_written {
            thread.written = thread.written.min(thread.open.len());
            let (depth, who) = (thread.open.len() as u32, thread.who.clone());
            self.write_items(stream, open.items, depth + 1);
            let cells = Cells {
                total_ns: Some(total.map(|ticks| self.clock.ns(ticks))),
                own_ns: Some(own.map(|ticks| self.clock.ns(ticks))),
                is_estimate: false,
                tsc: (!frame.flags.end_unseen).then_some(frame.end_tsc),
            };
            let name = self.names.name(frame.function);
            let remarks = [&[name], &end_remarks(frame)[..]].concat();
            return self.write_closing(&who, &cells, &remarks, depth);
        }
        let inner_lines: usize = open.items.iter().map(|item| item.lines).sum();
        thread.held = thread.held.saturating_sub(inner_lines);
        if is_hidden && open.items.is_empty() {
            return;
        }
        let (begin, end) = (begin_remarks(frame.entry, frame.flags), end_remarks(frame));
        let shape = shape_of(&open.items, (frame.function, &begin, &end));
        let call = Call {
            function: frame.function,
            begin,
            end,
            total: Sum::of(total),
            own: Sum::of(own),
            start_tsc: frame.start_tsc,
            end_tsc: frame.end_tsc,
            inner: open.items,
        };
        let lines = if inner_lines == 0 { 1 } else { inner_lines + 2 };
        let item = Item {
            kind: Kind::Call(call),
            count: 1,
            shape,
            lines,
        };
        self.append(stream, item);
    }
}

impl<W: Write> Visitor for FoldedTree<'_, W> {
    fn note(&mut self, note: &Note) {
        let at = self.notes.partition_point(|n| n.tsc() <= note.tsc());
        self.notes.insert(at, note.clone());
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if self.is_finished() {
            return;
        }
        self.append_notes(stream, frame.start_tsc);
        let thread = self.thread(stream);
        thread.open.push(Open {
            frame: *frame,
            items: Vec::new(),
            is_written: false,
        });
        if thread.open.len() - thread.written > MAX_NESTED {
            self.open_outermost(stream);
        }
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        if !frame.flags.end_unseen && !frame.flags.until_process_end {
            self.append_notes(stream, frame.end_tsc);
        }
        self.close(stream, frame, false);
    }

    fn leave_hidden(&mut self, stream: StreamId, frame: &Frame) {
        self.close(stream, frame, true);
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, _: u32, mark: Mark) {
        let text = match mark {
            Mark::Resumed(function) => format!("{} returned again", self.names.name(function)),
            Mark::Lost(events) => format!("{} events lost", Count(events)),
            Mark::Blocked(ticks) if self.clock.ns(ticks) < SHORT_WAIT_NS => return,
            Mark::Blocked(ticks) => {
                let waited = Duration(self.clock.ns(ticks)).to_string();
                format!("waited {} for sptrace", waited.trim())
            }
            Mark::UnseenFrameEnded => "a frame from before ended".to_owned(),
        };
        self.append(stream, other(Kind::Text(text, tsc)));
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.write_rest(stream);
    }

    fn is_finished(&self) -> bool {
        self.result.is_err() || self.max_lines.is_some_and(|max| self.lines >= max)
    }
}
