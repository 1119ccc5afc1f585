//! A line a system call, as strace(1) prints them.
//!
//! Given calls and the ends of processes, in the order of time; writes lines. A call during which
//! another thread says something is written in two parts, and one that lasts while somebody looks
//! on. Must not know where calls come from.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, Write};
use std::rc::Rc;

use sptrace_trace::{Clock, ExitStatus, Header, Names, Tid, call_words};
use sptrace_types::calls::descriptors::DescriptorSet;
use sptrace_types::calls::{self, Selection};
use sptrace_types::decode::call::{Line, Made, Options};
use sptrace_types::decode::events::{end_line, signal_line};
use sptrace_types::decode::objects::{Object, objects};
use sptrace_types::decode::print::line;

use crate::acted::mark;
use crate::descriptors::{Descriptors, FOLDER, Resolve};
use crate::listener::{Call, Listener, Signal};
use crate::system_calls::name_of;

/// How lines look.
#[derive(Clone)]
pub struct LinesOptions<'a> {
    /// How arguments are shown.
    pub calls: Options<'a>,
    /// A column with the thread's id.
    pub thread: ThreadColumn,
    /// What stands before a line.
    pub time: Time,
    /// The time since the line before, in front.
    pub is_relative: bool,
    /// How long each call took, behind it.
    pub with_duration: bool,
    /// Where results begin.
    pub column: usize,
    /// Only these calls.
    pub wanted: Option<Selection>,
    /// Only calls on one of these descriptors.
    pub on_descriptors: Option<DescriptorSet>,
    /// Only calls that did not fail (true), or that did (false).
    pub succeeded: Option<bool>,
    /// Only calls that took so long at least.
    pub min_ticks: u64,
    /// Numbers of calls in front of their names.
    pub with_number: bool,
    /// At most so many lines.
    pub limit: Option<usize>,
    /// What descriptors lead to.
    pub descriptors: DescriptorNames,
    /// Only calls on these paths; empty: all.
    pub paths: Vec<String>,
    /// Follows symbolic links.
    pub resolve: Resolve,
    /// The functions that calls are made in, below their lines.
    pub functions: Option<&'a Names<'a>>,
}

/// When threads are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadColumn {
    /// In every line.
    Always,
    /// From the second thread's first line on.
    WhenSeveral,
}

/// What is shown of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorNames {
    /// Their numbers.
    None,
    /// Paths, too.
    Paths,
    /// And of sockets their addresses.
    Addresses,
}

/// What stands before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Nothing.
    None,
    /// The time of the day.
    Seconds,
    /// The same with microseconds.
    Microseconds,
    /// Seconds since 1970, with microseconds.
    Unix,
}

/// Writes lines.
pub struct Lines<'a, W> {
    options: LinesOptions<'a>,
    clock: Clock,
    start_unix_ns: u64,
    out: W,
    /// The call whose line is not ended yet, if nothing came after it.
    begun: Option<Begun>,
    /// Calls that were written in part, by thread and time.
    unfinished: HashSet<(u32, u64)>,
    last_tsc: Option<u64>,
    /// The thread that has shown itself first, until another does.
    only_thread: Option<u32>,
    descriptors: Option<Rc<RefCell<Descriptors>>>,
    lines: usize,
    /// The first error of the output.
    pub result: io::Result<()>,
}

/// A call that has begun.
struct Begun {
    tid: u32,
    start_tsc: u64,
    /// What is known of its line.
    known: String,
    /// That has been written, without the line's end.
    is_shown: bool,
}

impl<'a, W: Write> Lines<'a, W> {
    /// Of a trace with this header.
    pub fn new(out: W, header: &Header, clock: Clock, options: LinesOptions<'a>) -> Self {
        let names = options.descriptors;
        let needs_descriptors = names != DescriptorNames::None || !options.paths.is_empty();
        let with_addresses = names == DescriptorNames::Addresses;
        let descriptors = || {
            let all = Descriptors::new(options.resolve, with_addresses);
            Rc::new(RefCell::new(all))
        };
        Self {
            descriptors: needs_descriptors.then(descriptors),
            options,
            clock,
            start_unix_ns: header.start_unix_ns,
            out,
            begun: None,
            unfinished: HashSet::new(),
            last_tsc: None,
            only_thread: None,
            lines: 0,
            result: Ok(()),
        }
    }

    /// What is known of descriptors is known to both: each has the lines of other processes.
    pub fn share_descriptors(&mut self, other: &Self) {
        self.descriptors.clone_from(&other.descriptors);
    }

    /// What it has been written to.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Nothing more is known by now: what is known of the call that runs is written, so that who
    /// looks on sees it.
    pub fn show_begun(&mut self) {
        if let Some(begun) = self.begun.take() {
            if !begun.is_shown {
                let prefix = self.prefix(begun.start_tsc, begun.tid);
                self.put(&(prefix + &begun.known));
            }
            self.begun = Some(Begun {
                is_shown: true,
                ..begun
            });
        }
        self.flush();
    }

    /// What was written reaches whom it is for.
    pub fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.flush();
        }
    }

    /// Writes a line of its own.
    pub fn say(&mut self, text: &str) {
        self.interrupt();
        self.write(text);
    }

    fn is_wanted(&self, call: &Call) -> bool {
        let wanted = self.options.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(call.number))
            && self.is_on_descriptor(call)
            && self.is_on_path(call)
    }

    /// The call is on one of the descriptors that are asked for, if any are.
    fn is_on_descriptor(&self, call: &Call) -> bool {
        let Some(set) = &self.options.on_descriptors else {
            return true;
        };
        calls::by_number(call.number).is_some_and(|known| set.is_in(known, &call.args))
    }

    /// The call is about one of the paths that are asked for, if any are.
    fn is_on_path(&self, call: &Call) -> bool {
        let paths = &self.options.paths;
        let Some(descriptors) = self.descriptors.as_ref().filter(|_| !paths.is_empty()) else {
            return true;
        };
        let descriptors = descriptors.borrow();
        objects(&made_of(call))
            .into_iter()
            .any(|object| match object {
                Object::Path(folder, path) => {
                    let whole = descriptors.path(call.pid, folder.unwrap_or(FOLDER), &path);
                    paths.contains(&path) || paths.contains(&whole)
                }
                Object::Descriptor(fd) if fd == FOLDER => false,
                Object::Descriptor(fd) => {
                    let name = descriptors.name(call.pid, fd);
                    name.is_some_and(|name| paths.contains(&name))
                }
            })
    }

    /// Lines are chosen by how a call ends: none is written before.
    fn is_chosen_late(&self) -> bool {
        self.options.succeeded.is_some() || self.options.min_ticks > 0
    }

    fn line(&self, call: &Call) -> Line {
        let descriptors = self.descriptors.as_ref();
        let path_of = |fd| descriptors.and_then(|all| all.borrow().name(call.pid, fd));
        let mut options = self.options.calls;
        if self.options.descriptors != DescriptorNames::None {
            options.path_of = Some(&path_of);
        }
        line(&made_of(call), &options)
    }

    /// The line of a call that has ended: its arguments as they were before it, what it has made as
    /// it is after it.
    fn ended_line(&mut self, call: &Call) -> Line {
        let before = self.line(call);
        let Some(descriptors) = &self.descriptors else {
            return before;
        };
        descriptors.borrow_mut().made(call);
        let after = self.line(call);
        let split = |line: &Line| line.known_before.min(line.call.len());
        let known = before.call.get(..split(&before)).unwrap_or("");
        let made = after.call.get(split(&after)..).unwrap_or("");
        Line {
            call: format!("{known}{made}"),
            result: after.result,
            known_before: known.len(),
        }
    }

    fn prefix(&mut self, tsc: u64, tid: u32) -> String {
        let mut prefix = String::new();
        if self.options.thread == ThreadColumn::Always {
            prefix = format!("{:<5} ", Tid(tid));
        }
        if self.options.is_relative {
            let since = self.last_tsc.map_or(0, |last| tsc.saturating_sub(last));
            let us = self.clock.ns(since) / 1000;
            prefix += &format!("{:6}.{:06} ", us / 1_000_000, us % 1_000_000);
        }
        self.last_tsc = Some(tsc);
        let us = (self.start_unix_ns + self.clock.since_start_ns(tsc)) / 1000;
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        prefix
            + &match self.options.time {
                Time::None => String::new(),
                Time::Seconds => format!("{} ", of_the_day(seconds)),
                Time::Microseconds => format!("{}.{us:06} ", of_the_day(seconds)),
                Time::Unix => format!("{seconds}.{us:06} "),
            }
    }

    fn put(&mut self, text: &str) {
        if !self.is_finished() {
            self.result = self.out.write_all(text.as_bytes());
        }
    }

    fn write(&mut self, text: &str) {
        self.put(text);
        self.put("\n");
        self.lines += 1;
    }

    /// Something else is about to be said: the call that is on the line will go on later.
    fn interrupt(&mut self) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        if !begun.is_shown {
            let prefix = self.prefix(begun.start_tsc, begun.tid);
            self.put(&(prefix + &begun.known));
        }
        self.write(" <unfinished ...>");
        self.unfinished.insert((begun.tid, begun.start_tsc));
    }

    fn number(&self, call: &Call) -> String {
        match self.options.with_number {
            true => format!("[{:4}] ", call.number),
            false => String::new(),
        }
    }

    /// A thread is about to be told of.
    fn meet(&mut self, tid: u32) {
        match self.only_thread {
            None => self.only_thread = Some(tid),
            Some(other) if other != tid => self.options.thread = ThreadColumn::Always,
            Some(_) => {}
        }
    }

    /// The functions that a call was made in.
    fn write_stack(&mut self, call: &Call) {
        let Some(names) = self.options.functions else {
            return;
        };
        let mut inner = None;
        for &function in &call.stack {
            let mut text = format!(" > {}({})", names.module(function), names.name(function));
            let places = inner.map_or(&[][..], |inner| names.call_places(function, inner));
            if !places.is_empty() {
                let places = call_words(places, ToString::to_string);
                text += &format!(" {}", crate::units::clean(&places));
            }
            self.write(&text);
            inner = Some(function);
        }
    }

    fn is_chosen(&self, call: &Call) -> bool {
        let ticks = call.end_tsc.map(|end| end.saturating_sub(call.start_tsc));
        // What has no result has neither succeeded nor failed, as of strace.
        let is_as_asked = |asked: bool| {
            call.result
                .is_some_and(|r| asked != (-4095..0).contains(&r))
        };
        let least = self.options.min_ticks;
        self.options.succeeded.is_none_or(is_as_asked)
            && (least == 0 || ticks.is_some_and(|ticks| ticks >= least))
    }

    /// What is left to be written of a call that has ended.
    fn rest_of(&mut self, call: &Call, mut line: Line) -> String {
        let number = self.number(call);
        let column = self.options.column;
        if self.unfinished.remove(&(call.tid, call.start_tsc)) {
            self.interrupt();
            let rest = line.call.split_off(line.known_before.min(line.call.len()));
            line.call = format!("{number}<... {} resumed>{rest}", name_of(call.number));
            let tsc = call.end_tsc.unwrap_or(call.start_tsc);
            return self.prefix(tsc, call.tid) + &line.aligned(column);
        }
        let known = line.known_before;
        line.call = number.clone() + &line.call;
        // Its own, or nobody's.
        let is_own = |b: &Begun| (b.tid, b.start_tsc) == (call.tid, call.start_tsc);
        match self.begun.take_if(|begun| is_own(begun)) {
            Some(begun) if begun.is_shown => {
                let whole = line.aligned(column);
                whole.get(number.len() + known..).unwrap_or("").to_owned()
            }
            _ => {
                self.interrupt();
                self.prefix(call.start_tsc, call.tid) + &line.aligned(column)
            }
        }
    }

    fn write_ended(&mut self, call: &Call, line: Line) {
        let mut text = self.rest_of(call, line);
        text += call.acted.as_ref().map_or("", mark);
        let ticks = call.end_tsc.map(|end| end.saturating_sub(call.start_tsc));
        if let (true, Some(ticks)) = (self.options.with_duration, ticks) {
            let us = self.clock.ns(ticks) / 1000;
            text += &format!(" <{}.{:06}>", us / 1_000_000, us % 1_000_000);
        }
        self.write(&text);
        self.write_stack(call);
    }
}

impl<W: Write> Listener for Lines<'_, W> {
    fn begins(&mut self, call: &Call) {
        if let Some(descriptors) = &self.descriptors {
            descriptors.borrow_mut().meet(call.pid, call.ppid);
        }
        if !self.is_wanted(call) || self.is_chosen_late() {
            return;
        }
        self.interrupt();
        self.meet(call.tid);
        let line = self.line(call);
        let known = line.call.get(..line.known_before).unwrap_or(&line.call);
        self.begun = Some(Begun {
            tid: call.tid,
            start_tsc: call.start_tsc,
            known: self.number(call) + known,
            is_shown: false,
        });
    }

    fn ended(&mut self, call: &Call) {
        let is_shown = self.is_wanted(call) && self.is_chosen(call);
        let line = match is_shown || self.descriptors.is_some() {
            true => Some(self.ended_line(call)),
            false => None,
        };
        if let (true, Some(line)) = (is_shown, line) {
            self.meet(call.tid);
            self.write_ended(call, line);
        }
        if let Some(descriptors) = &self.descriptors {
            descriptors.borrow_mut().shown(call);
        }
    }

    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus) {
        self.interrupt();
        let status = match status {
            ExitStatus::Exited(code) => (code as u32 & 0xff) << 8,
            ExitStatus::Signaled(signal) => signal as u32 & 0x7f,
            ExitStatus::Dumped(signal) => signal as u32 & 0x7f | 0x80,
        };
        let text = self.prefix(tsc, tid) + &end_line(status);
        self.write(&text);
        if let Some(descriptors) = &self.descriptors {
            descriptors.borrow_mut().gone(tid);
        }
    }

    fn signal(&mut self, signal: &Signal) {
        self.interrupt();
        self.meet(signal.tid);
        let style = self.options.calls.style;
        let text = signal_line(signal.number, &signal.info, style);
        let text = self.prefix(signal.tsc, signal.tid) + &text;
        self.write(&text);
    }

    fn listed(&mut self, pid: u32, folder: &str, open: &[(u32, String)]) {
        if let Some(descriptors) = &self.descriptors {
            descriptors.borrow_mut().listed(pid, folder, open);
        }
    }

    fn is_finished(&self) -> bool {
        let has_all = self.options.limit.is_some_and(|limit| self.lines >= limit);
        self.result.is_err() || has_all
    }
}

fn made_of(call: &Call) -> Made<'_> {
    Made {
        number: call.number,
        args: &call.args,
        result: call.result,
        memory: &call.captured,
    }
}

/// The time of the day, in UTC.
fn of_the_day(unix_seconds: u64) -> String {
    let seconds = unix_seconds % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}
