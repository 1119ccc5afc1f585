//! The parts of a tree's line: columns in front, indentation, what is said of a call.
//!
//! Given what is known of a line; gives text. Must not know when a line is written.

use crate::style::Style;
use crate::units::{clean, push_duration, push_number, push_spaces};
use sptrace_trace::{Clock, Entry, Frame, FrameFlags, Header, Names, Note, StreamId, Tid, lane_of};
use std::fmt::Write as _;

/// Levels beyond this are not indented further.
const MAX_INDENT: u32 = 100;
/// A day, on the clock.
const DAY_NS: u64 = 86_400_000_000_000;

/// What stands in front of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// How long the call took.
    Duration,
    /// The part of it outside of what it called.
    SelfTime,
    /// When it was, since the start of the trace.
    Time,
    /// When it was, by the clock (UTC).
    Wall,
    /// The thread.
    Tid,
    /// The process.
    Pid,
    /// The thread's name at its start.
    Thread,
}

impl Column {
    /// All of them by name.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Duration, "duration"),
        (Self::SelfTime, "self"),
        (Self::Time, "time"),
        (Self::Wall, "wall"),
        (Self::Tid, "tid"),
        (Self::Pid, "pid"),
        (Self::Thread, "thread"),
    ];
    /// Those shown if nothing else is asked for.
    pub const USUAL: [Self; 2] = [Self::Duration, Self::Tid];

    /// The column of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| *known == name).map(|found| found.0)
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Duration => "   DURATION",
            Self::SelfTime => "       SELF",
            Self::Time => "            TIME",
            Self::Wall => "        WALL (UTC)",
            Self::Tid => "    TID  ",
            Self::Pid => "    PID  ",
            Self::Thread => "THREAD         ",
        }
    }
}

/// Whose line it is.
#[derive(Clone, Default)]
pub struct Who {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

impl Who {
    /// The thread of a stream.
    pub fn of(names: &Names<'_>, stream: StreamId) -> Self {
        let info = names.dictionary().stream(stream);
        info.map_or_else(Self::default, |info| Self {
            tid: info.tid,
            pid: info.pid,
            comm: clean(&info.comm),
        })
    }
}

impl Who {
    /// The process of a note.
    pub fn of_note(note: &Note) -> Self {
        Self {
            tid: note.pid(),
            pid: note.pid(),
            comm: String::new(),
        }
    }
}

/// What is known of a line.
#[derive(Clone, Copy, Default)]
pub struct Cells {
    /// How long, if the line has a duration at all; the inner one is none if that is not known.
    pub total_ns: Option<Option<u64>>,
    /// The same of its own time.
    pub own_ns: Option<Option<u64>>,
    /// The durations are estimates.
    pub is_estimate: bool,
    /// When.
    pub tsc: Option<u64>,
}

impl Cells {
    /// Nothing but when it was.
    pub fn at(tsc: u64) -> Self {
        Self {
            tsc: Some(tsc),
            ..Self::default()
        }
    }
}

/// The columns of a tree.
#[derive(Clone)]
pub struct Columns {
    list: Vec<Column>,
    clock: Clock,
    start_unix_ns: u64,
    style: Style,
    has_estimates: bool,
}

impl Columns {
    /// Of a trace.
    pub fn new(list: &[Column], header: &Header, style: Style) -> Self {
        Self {
            list: list.to_vec(),
            clock: Clock::of(header),
            start_unix_ns: header.start_unix_ns,
            style,
            has_estimates: false,
        }
    }

    /// Times of calls are estimates.
    #[must_use]
    pub fn estimated(self, has_estimates: bool) -> Self {
        Self {
            has_estimates,
            ..self
        }
    }

    /// The line above all.
    pub fn heading(&self) -> String {
        if self.list == Column::USUAL {
            return "# DURATION     TID     FUNCTION".to_owned();
        }
        let cells: Vec<_> = self.list.iter().map(|column| column.heading()).collect();
        let line = cells.join(" ");
        // A comment for those who read the lines by a program.
        let line = match line.strip_prefix("  ") {
            Some(rest) => format!("# {rest}"),
            None => format!("# {line}"),
        };
        format!("{line}   FUNCTION")
    }

    /// Begins a line.
    pub fn begin(&self, line: &mut String, who: &Who, cells: &Cells, depth: u32) {
        for column in &self.list {
            let _ = match column {
                Column::Duration => self.duration(line, cells.total_ns, cells.is_estimate),
                Column::SelfTime => self.duration(line, cells.own_ns, cells.is_estimate),
                Column::Tid if lane_of(who.tid).is_some() => write!(line, "[{:>7}]", Tid(who.tid)),
                Column::Tid => push_id(line, who.tid),
                Column::Pid => push_id(line, who.pid),
                Column::Thread => write!(line, "{:<15}", who.comm),
                Column::Time => match cells.tsc.map(|tsc| self.clock.since_start_ns(tsc)) {
                    Some(ns) => {
                        let (s, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
                        match self.has_estimates {
                            true => write!(line, "{:>6}.{ns:09}", format!("~{s}")),
                            false => write!(line, "{s:>6}.{ns:09}"),
                        }
                    }
                    None => write!(line, "{:16}", ""),
                },
                Column::Wall => match cells.tsc.map(|tsc| self.clock.since_start_ns(tsc)) {
                    Some(ns) => self.wall(line, self.start_unix_ns.saturating_add(ns)),
                    None => write!(line, "{:18}", ""),
                },
            };
            line.push(' ');
        }
        line.push_str("| ");
        push_spaces(line, 2 * depth.min(MAX_INDENT) as usize);
    }

    /// An estimate has a sign before it, and a digit less.
    fn wall(&self, line: &mut String, unix_ns: u64) -> std::fmt::Result {
        let mut text = String::new();
        wall(&mut text, unix_ns)?;
        if self.has_estimates {
            text.pop();
            text.insert(0, '~');
        }
        line.push_str(&text);
        Ok(())
    }

    fn duration(
        &self,
        line: &mut String,
        ns: Option<Option<u64>>,
        is_estimate: bool,
    ) -> std::fmt::Result {
        match ns {
            Some(Some(ns)) if is_estimate => {
                write!(line, "{:>11}", crate::functions::about(ns))?;
            }
            None => line.push_str("           "),
            Some(None) => line.push_str("         ? "),
            // Most often there are no colours: then nothing is made in between.
            Some(Some(ns)) if !self.style.is_coloured => push_duration(line, ns, 11),
            Some(Some(ns)) => {
                let mut text = String::new();
                push_duration(&mut text, ns, 11);
                line.push_str(&self.style.duration(ns, &text));
            }
        }
        Ok(())
    }
}

/// A thread or process.
fn push_id(line: &mut String, id: u32) -> std::fmt::Result {
    line.push('[');
    push_number(line, id.into(), 7);
    line.push(']');
    Ok(())
}

fn wall(line: &mut String, unix_ns: u64) -> std::fmt::Result {
    let (s, ns) = (unix_ns % DAY_NS / 1_000_000_000, unix_ns % 1_000_000_000);
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    write!(line, "{h:02}:{m:02}:{s:02}.{ns:09}")
}

/// C++ names come with their parameters, others get empty parentheses.
pub fn push_call(line: &mut String, name: &str) {
    line.push_str(name);
    if !name.contains('(') {
        line.push_str("()");
    }
}

/// True if there is nothing to remark on a frame, as of most.
pub fn is_usual(frame: &Frame) -> bool {
    let disturbed = frame.flags.disturbed;
    let usual = FrameFlags {
        disturbed,
        ..FrameFlags::default()
    };
    frame.entry != Entry::Tail && frame.flags == usual
}

/// What is unusual about a frame's beginning.
pub fn begin_remarks(entry: Entry, flags: FrameFlags) -> Vec<&'static str> {
    let mut remarks = Vec::new();
    if entry == Entry::Tail {
        remarks.push("tail");
    }
    if flags.begin_unseen {
        remarks.push("began earlier");
    }
    remarks
}

/// What is unusual about its end.
pub fn end_remarks(frame: &Frame) -> Vec<&'static str> {
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

/// Ends a line with what is to be said.
pub fn push_remarks(line: &mut String, remarks: &[&str], style: Style) {
    if !remarks.is_empty() {
        line.push(' ');
        line.push_str(&style.aside(&format!("/* {} */", remarks.join(", "))));
    }
}
