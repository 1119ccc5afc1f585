//! The call tree as nested text, after uftrace's `replay`: a leaf on one line with its duration,
//! others with an opening and a closing line, the duration on the closing one.
//!
//! Streams through: of each thread only the opening lines are held that are not known to be shown
//! (a frame below `--min-time` takes its line back), at most one an open frame.

use crate::style::Style;
use crate::units::{Count, Duration, clean};
use sptrace_trace::{
    Clock, Entry, ExitStatus, Frame, Mark, Names, Note, StreamId, StreamTotals, Visitor,
};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Levels beyond this are not indented further.
const MAX_INDENT: u32 = 100;
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
    streams: HashMap<StreamId, Lines>,
    /// In order of time: a thread's events may come after a note that is later.
    notes: VecDeque<Note>,
    lines: u64,
    result: io::Result<()>,
}

/// What is held of one thread.
#[derive(Default)]
struct Lines {
    tid: u32,
    held: String,
    open: Vec<OpenLine>,
}

/// An open frame.
struct OpenLine {
    frame: Frame,
    /// Where its opening line begins in `held`; `None` once it was written out.
    held_at: Option<usize>,
    /// Its opening line was made, because something happened inside it.
    is_opened: bool,
}

impl<'a, W: Write> Tree<'a, W> {
    /// Writes the heading.
    pub fn new(out: W, names: &'a Names<'a>, clock: Clock, options: TreeOptions) -> Self {
        let mut tree = Self {
            out,
            names,
            clock,
            options,
            streams: HashMap::new(),
            notes: VecDeque::new(),
            lines: 0,
            result: Ok(()),
        };
        let heading = options.style.heading("# DURATION     TID     FUNCTION");
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
        let text = match note {
            Note::ProcessExit {
                status: ExitStatus::Exited(code),
                ..
            } => {
                format!("process exited with status {code}")
            }
            Note::ProcessExit {
                status: ExitStatus::Signaled(signal),
                ..
            } => {
                format!("process killed by signal {signal}")
            }
            Note::Exec { path, .. } => format!("exec {}", clean(path)),
            Note::Text { text, .. } => clean(text),
            Note::Loss { events, .. } => format!("{} events lost", Count(*events)),
            Note::ModuleMap { .. } | Note::Descriptors { .. } => return,
        };
        let comment = self.options.style.aside(&format!("/* {text} */"));
        let mut line = String::new();
        prefix(&mut line, "", note.pid(), 0);
        line.push_str(&comment);
        line.push('\n');
        self.write(&line);
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
        let Some(lines) = self.streams.get_mut(&stream) else {
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
        if let Some(lines) = self.streams.get_mut(&stream) {
            lines.held = held;
            lines.held.clear();
        }
    }

    fn lines_of(&mut self, stream: StreamId) -> &mut Lines {
        let names = self.names;
        self.streams.entry(stream).or_insert_with(|| {
            let info = names.dictionary().stream(stream);
            Lines {
                tid: info.map_or(0, |info| info.tid),
                ..Lines::default()
            }
        })
    }

    /// Makes the opening line of the innermost frame, now that something happens inside it.
    fn open_innermost(&mut self, stream: StreamId) {
        let (names, style) = (self.names, self.options.style);
        let lines = self.lines_of(stream);
        let Some(open) = lines.open.last_mut().filter(|open| !open.is_opened) else {
            return;
        };
        open.is_opened = true;
        open.held_at = Some(lines.held.len());
        prefix(&mut lines.held, "", lines.tid, open.frame.depth);
        push_call(&mut lines.held, names.name(open.frame.function));
        lines.held.push_str(" {");
        push_remarks(&mut lines.held, &begin_remarks(&open.frame), style);
        lines.held.push('\n');
        // Nothing will take it back, and what other threads do comes after it.
        if self.options.min_ns == 0 {
            self.release(stream);
        }
    }
}

/// `   1.234 us [ 1234] | ` and the indentation.
fn prefix(line: &mut String, duration: &str, tid: u32, depth: u32) {
    let indent = 2 * depth.min(MAX_INDENT) as usize;
    let _ = write!(line, "{duration:>11} [{tid:>7}] | {:indent$}", "");
}

/// C++ names come with their parameters, others get empty parentheses.
fn push_call(line: &mut String, name: &str) {
    line.push_str(name);
    if !name.contains('(') {
        line.push_str("()");
    }
}

fn begin_remarks(frame: &Frame) -> Vec<&'static str> {
    let mut remarks = Vec::new();
    if frame.entry == Entry::Tail {
        remarks.push("tail");
    }
    if frame.flags.begin_unseen {
        remarks.push("began earlier");
    }
    remarks
}

fn end_remarks(frame: &Frame) -> Vec<&'static str> {
    let mut remarks = Vec::new();
    if frame.flags.unwound {
        remarks.push("unwound");
    }
    if frame.flags.end_unseen {
        remarks.push("end not seen");
    }
    if frame.flags.until_process_end {
        remarks.push("until the process ended");
    }
    remarks
}

fn push_remarks(line: &mut String, remarks: &[&str], style: Style) {
    if !remarks.is_empty() {
        line.push(' ');
        line.push_str(&style.aside(&format!("/* {} */", remarks.join(", "))));
    }
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
        self.lines_of(stream).open.push(OpenLine {
            frame: *frame,
            held_at: None,
            is_opened: false,
        });
    }

    fn leave(&mut self, stream: StreamId, frame: &Frame) {
        // When one ended whose end was not seen is when its thread did, or the recording.
        if !frame.flags.end_unseen && !frame.flags.until_process_end {
            self.show_notes(stream, frame.end_tsc);
        }
        let (names, style) = (self.names, self.options.style);
        let ns = frame.total_ticks.map(|ticks| self.clock.ns(ticks));
        // What is not known to be long enough is shown only around what is.
        let is_shown = ns.unwrap_or(0) >= self.options.min_ns;
        let lines = self.lines_of(stream);
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
        let duration = match ns {
            Some(ns) => style.duration(ns, &format!("{:>11}", Duration(ns))),
            None => format!("{:>11}", "? "),
        };
        prefix(&mut lines.held, &duration, lines.tid, frame.depth);
        let name = names.name(frame.function);
        if open.is_opened {
            let comment = [&[name], &end_remarks(frame)[..]].concat().join(", ");
            lines.held.push_str("} ");
            lines
                .held
                .push_str(&style.aside(&format!("/* {comment} */")));
        } else {
            push_call(&mut lines.held, name);
            lines.held.push(';');
            let remarks = [begin_remarks(frame), end_remarks(frame)].concat();
            push_remarks(&mut lines.held, &remarks, style);
        }
        lines.held.push('\n');
        self.release(stream);
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
        let lines = self.lines_of(stream);
        prefix(&mut lines.held, "", lines.tid, depth);
        lines.held.push_str(&comment);
        lines.held.push('\n');
        let is_loss = matches!(mark, Mark::Lost(_));
        if is_loss || self.options.min_ns == 0 {
            self.release(stream);
        }
    }

    fn end(&mut self, stream: StreamId, _: &StreamTotals) {
        self.release(stream);
        self.streams.remove(&stream);
    }
}
