//! The call tree as nested text, after uftrace's `replay`: a leaf on one line with its duration,
//! others with an opening and a closing line, the duration on the closing one.
//!
//! Streams through: of each thread only the opening lines are held that are not known to be shown
//! (a frame below `--min-time` takes its line back), at most one an open frame.

mod fold;
mod held;
mod line;

pub use fold::FoldedTree;
pub use line::{Column, Columns};

use crate::acted::remark;
use crate::call_values::{Descriptions, Told};
use crate::notes::note_text;
use crate::style::Style;
use crate::units::{Count, Duration, clean};
use held::{Held, Lines, OpenLine};
use line::{Cells, Who, begin_remarks, end_remarks, is_usual, push_call, push_remarks};
use sptrace_trace::values::{Values, What};
use sptrace_trace::{
    Clock, Frame, FunctionId, Mark, Names, Note, SourceLine, StreamId, StreamTotals, Visitor,
    call_words,
};
use sptrace_types::decode::call::Line;
use std::collections::VecDeque;
use std::io::{self, Write};

/// Shorter waits (a function being patched, at its first call) get no line; the summary has their
/// sum.
const SHORT_WAIT_NS: u64 = 100_000;

/// How to show the tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeOptions {
    /// Hide frames shorter than this.
    pub min_ns: u64,
    /// Stop after so many lines.
    pub max_lines: Option<u64>,
    /// Colours.
    pub style: Style,
}

/// Writes a tree while a trace is replayed.
pub struct Tree<'a, W> {
    out: W,
    names: &'a Names<'a>,
    clock: Clock,
    options: TreeOptions,
    columns: Columns,
    streams: Held,
    descriptions: Descriptions,
    /// In order of time: a thread's events may come after a note that is later.
    notes: VecDeque<Note>,
    lines: u64,
    result: io::Result<()>,
}

/// A tree between two parts of a trace, without the names of either.
pub struct PausedTree<W> {
    out: W,
    clock: Clock,
    options: TreeOptions,
    columns: Columns,
    streams: Held,
    notes: VecDeque<Note>,
    lines: u64,
    result: io::Result<()>,
}

impl<W: Write> PausedTree<W> {
    /// Goes on with the names of a trace of which more is known.
    pub fn resume<'a>(self, names: &'a Names<'a>) -> Tree<'a, W> {
        Tree {
            out: self.out,
            names,
            clock: self.clock,
            options: self.options,
            columns: self.columns,
            streams: self.streams,
            descriptions: Descriptions::of(names.dictionary()),
            notes: self.notes,
            lines: self.lines,
            result: self.result,
        }
    }
}

impl<'a, W: Write> Tree<'a, W> {
    /// Writes the heading.
    pub fn new(
        out: W,
        (names, clock): (&'a Names<'a>, Clock),
        columns: Columns,
        options: TreeOptions,
    ) -> Self {
        let heading = options.style.heading(&columns.heading());
        let mut tree = Self {
            out,
            names,
            clock,
            options,
            columns,
            streams: Held::default(),
            descriptions: Descriptions::of(names.dictionary()),
            notes: VecDeque::new(),
            lines: 0,
            result: Ok(()),
        };
        tree.result = writeln!(tree.out, "{heading}");
        tree
    }

    /// An event of this time comes: shows the notes before it.
    fn show_notes(&mut self, stream: StreamId, tsc: u64) {
        if self.notes.front().is_none_or(|note| note.tsc() > tsc) {
            return;
        }
        self.open_innermost(stream);
        if self.options.min_ns == 0 {
            self.release(stream);
        }
        let now = self.notes.partition_point(|note| note.tsc() <= tsc);
        for note in self.notes.drain(..now).collect::<Vec<_>>() {
            self.show(&note);
        }
    }

    fn show(&mut self, note: &Note) {
        let Some(text) = note_text(note) else {
            return;
        };
        let comment = self.options.style.aside(&format!("/* {text} */"));
        let (who, cells) = (Who::of_note(note), Cells::at(note.tsc()));
        let mut line = String::new();
        self.columns.begin(&mut line, &who, &cells, 0);
        line.push_str(&comment);
        line.push('\n');
        self.write(&line);
    }

    /// Writes out what is known to be shown, to go on later.
    pub fn pause(mut self) -> PausedTree<W> {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
        PausedTree {
            out: self.out,
            clock: self.clock,
            options: self.options,
            columns: self.columns,
            streams: self.streams,
            notes: self.notes,
            lines: self.lines,
            result: self.result,
        }
    }

    /// Ends the output.
    ///
    /// # Errors
    /// The first error of the output.
    pub fn finish(mut self) -> io::Result<()> {
        for note in std::mem::take(&mut self.notes) {
            self.show(&note);
        }
        std::mem::replace(&mut self.result, Ok(()))?;
        self.out.flush()
    }

    fn write(&mut self, text: &str) {
        if self.options.max_lines.is_none() {
            if self.result.is_ok() {
                self.result = self.out.write_all(text.as_bytes());
            }
            return;
        }
        for line in text.split_inclusive('\n') {
            if self.is_finished() {
                return;
            }
            self.result = self.out.write_all(line.as_bytes());
            self.lines += 1;
        }
    }

    /// Writes out what is held of a stream: it is known to be shown.
    fn release(&mut self, stream: StreamId) {
        let Some(lines) = self.streams.get_mut(stream) else {
            return;
        };
        let held = std::mem::take(&mut lines.held);
        for open in lines.open.iter_mut().rev() {
            if open.is_opened && open.held_at.take().is_none() {
                break;
            }
        }
        self.write(&held);
        // Its memory serves again.
        if let Some(lines) = self.streams.get_mut(stream) {
            lines.held = held;
            lines.held.clear();
        }
    }

    fn lines_of(&mut self, stream: StreamId) -> &mut Lines {
        let names = self.names;
        self.streams.get_or_make(stream, || Who::of(names, stream))
    }

    /// Makes the opening line of the innermost frame, now that something happens inside it.
    fn open_innermost(&mut self, stream: StreamId) {
        let (names, style) = (self.names, self.options.style);
        self.lines_of(stream);
        let (columns, descriptions) = (&self.columns, &self.descriptions);
        let Some(lines) = self.streams.get_mut(stream) else {
            return;
        };
        let Some(open) = lines.open.last_mut().filter(|open| !open.is_opened) else {
            return;
        };
        open.is_opened = true;
        open.held_at = Some(lines.held.len());
        let cells = Cells::at(open.start_tsc);
        columns.begin(&mut lines.held, &lines.who, &cells, open.depth);
        let name = names.name(open.function);
        match descriptions.line_of(open.values.as_ref(), name) {
            Some(line) => lines.held.push_str(&line.call),
            None => push_call(&mut lines.held, name),
        }
        lines.held.push_str(" {");
        push_remarks(
            &mut lines.held,
            &begin_remarks(open.entry, open.flags),
            style,
        );
        push_place(&mut lines.held, names, (open.caller, open.function), style);
        lines.held.push('\n');
        // Nothing will take it back, and what other threads do comes after it.
        if self.options.min_ns == 0 {
            self.release(stream);
        }
    }
}

/// Duration and own time of a frame, and whether they are estimates.
fn times(frame: &Frame) -> (Option<u64>, Option<u64>, bool) {
    match frame.estimate {
        Some(estimate) => (Some(estimate.total_ticks), estimate.self_ticks, true),
        None => (frame.total_ticks, frame.self_ticks, false),
    }
}

/// Where a function is called, or else where it begins, as far as that is asked for and known.
fn push_place(
    held: &mut String,
    names: &Names<'_>,
    (caller, function): (Option<FunctionId>, FunctionId),
    style: Style,
) {
    if !names.has_sources() {
        return;
    }
    let places = caller.map_or(&[][..], |caller| names.call_places(caller, function));
    let text = match (places, names.source(function)) {
        ([], None) => return,
        ([], Some(begin)) => format!("begins at {}", begin.short()),
        (places, _) => format!("at {}", call_words(places, SourceLine::short)),
    };
    let comment = format!("/* {} */", clean(&text));
    held.push(' ');
    held.push_str(&style.aside(&comment));
}

/// What a line says of a frame that has ended; `line`: with its values, if it has brought any.
fn push_end(
    held: &mut String,
    open: &OpenLine,
    frame: &Frame,
    (name, line): (&str, Option<Line>),
    style: Style,
) {
    if open.is_opened {
        let call = line.as_ref().map_or(name, |line| line.call.as_str());
        held.push_str("} ");
        if line.is_none() && !style.is_coloured {
            // As below, with nothing made in between.
            held.push_str("/* ");
            held.push_str(call);
            if is_usual(frame) && open.acted.is_none() {
                held.push_str(" */");
                return;
            }
            for said in end_remarks(frame).into_iter().chain(open.acted.as_deref()) {
                held.push_str(", ");
                held.push_str(said);
            }
            held.push_str(" */");
            return;
        }
        let acted = open.acted.as_deref().into_iter();
        let remarks = end_remarks(frame).into_iter().chain(acted);
        let comment: Vec<&str> = std::iter::once(call).chain(remarks).collect();
        let comment = comment.join(", ");
        if let Some(line) = line.filter(|line| !line.result.is_empty()) {
            held.push_str(&line.result);
            held.push(' ');
        }
        held.push_str(&style.aside(&format!("/* {comment} */")));
        return;
    }
    match line {
        Some(line) => {
            held.push_str(&line.call);
            if !line.result.is_empty() {
                held.push(' ');
                held.push_str(&line.result);
            }
        }
        None => push_call(held, name),
    }
    held.push(';');
    if is_usual(frame) && open.acted.is_none() {
        return;
    }
    let mut remarks = begin_remarks(frame.entry, frame.flags);
    remarks.extend(end_remarks(frame));
    remarks.extend(open.acted.as_deref());
    push_remarks(held, &remarks, style);
}

impl<W: Write> Visitor for Tree<'_, W> {
    /// A line for what happened to a process, before what is later.
    fn note(&mut self, note: &Note) {
        let at = self
            .notes
            .partition_point(|other| other.tsc() <= note.tsc());
        self.notes.insert(at, note.clone());
    }

    /// Is there nothing more to do, because the output is closed or the limit reached?
    fn is_finished(&self) -> bool {
        self.result.is_err() || self.options.max_lines.is_some_and(|max| self.lines >= max)
    }

    fn enter(&mut self, stream: StreamId, frame: &Frame) {
        if self.is_finished() {
            return;
        }
        self.show_notes(stream, frame.start_tsc);
        self.open_innermost(stream);
        let open = &mut self.lines_of(stream).open;
        let caller = open.last().map(|open| open.function);
        open.push(OpenLine::of(frame, caller));
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        // When one ended whose end was not seen is when its thread did, or the recording.
        if !frame.flags.end_unseen && !frame.flags.until_process_end {
            self.show_notes(stream, frame.end_tsc);
        }
        let (names, style) = (self.names, self.options.style);
        let (total_ticks, own_ticks, is_estimate) = times(frame);
        let ns = total_ticks.map(|ticks| self.clock.ns(ticks));
        // What is not known to be long enough is shown only around what is.
        let is_shown = ns.unwrap_or(0) >= self.options.min_ns;
        let (columns, descriptions) = (&self.columns, &self.descriptions);
        let Some(lines) = self.streams.get_mut(stream) else {
            return;
        };
        let Some(open) = lines.open.pop() else {
            return;
        };
        if !is_shown {
            // If its opening line is out (a lost mark inside), the closing one must follow.
            match open.held_at {
                Some(at) => return lines.held.truncate(at),
                None if !open.is_opened => return,
                None => {}
            }
        }
        let is_end_known = !frame.flags.end_unseen;
        let cells = Cells {
            total_ns: Some(ns),
            own_ns: Some(own_ticks.map(|ticks| self.clock.ns(ticks))),
            is_estimate,
            tsc: match open.is_opened {
                true => is_end_known.then_some(frame.end_tsc),
                false => Some(frame.start_tsc),
            },
        };
        columns.begin(&mut lines.held, &lines.who, &cells, frame.depth);
        let name = names.name(frame.function);
        let line = descriptions.line_of(open.values.as_ref(), name);
        push_end(&mut lines.held, &open, frame, (name, line), style);
        if !open.is_opened {
            push_place(&mut lines.held, names, (open.caller, frame.function), style);
        }
        lines.held.push('\n');
        self.release(stream);
    }

    fn values(&mut self, stream: StreamId, _: u64, bytes: &[u8]) {
        let Ok(values) = Values::read(bytes) else {
            return;
        };
        let open = &mut self.lines_of(stream).open;
        if let (What::Acted(acted), Some(line)) = (&values.what, open.last_mut()) {
            line.acted = Some(remark(acted));
        }
        let mut kept = open.iter_mut().rev().map(|line| &mut line.values);
        Told::of_any(&values)
            .into_iter()
            .for_each(|told| told.put(&mut kept));
    }

    fn leave_hidden(&mut self, stream: StreamId, _: &Frame) {
        let lines = self.lines_of(stream);
        if let Some(at) = lines.open.pop().and_then(|open| open.held_at) {
            lines.held.truncate(at);
        }
    }

    fn mark(&mut self, stream: StreamId, tsc: u64, depth: u32, mark: Mark) {
        if self.is_finished() {
            return;
        }
        self.show_notes(stream, tsc);
        let text = match mark {
            Mark::Resumed(function) => format!("{} returned again", self.names.name(function)),
            Mark::Lost(events) => format!("{} events lost", Count(events)),
            Mark::Blocked(ticks) if self.clock.ns(ticks) < SHORT_WAIT_NS => return,
            Mark::Blocked(ticks) => {
                format!(
                    "waited {} for sptrace",
                    Duration(self.clock.ns(ticks)).to_string().trim()
                )
            }
            Mark::UnseenFrameEnded => "a frame from before ended".to_owned(),
        };
        self.open_innermost(stream);
        let comment = self.options.style.aside(&format!("/* {text} */"));
        self.lines_of(stream);
        let (columns, Some(lines)) = (&self.columns, self.streams.get_mut(stream)) else {
            return;
        };
        columns.begin(&mut lines.held, &lines.who, &Cells::at(tsc), depth);
        lines.held.push_str(&comment);
        lines.held.push('\n');
        let is_loss = matches!(mark, Mark::Lost(_));
        if is_loss || self.options.min_ns == 0 {
            self.release(stream);
        }
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.release(stream);
        self.streams.remove(stream);
    }
}
