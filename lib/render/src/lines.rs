//! A line a system call, as strace(1) prints them.
//!
//! Given calls and the ends of processes, in the order of time; writes lines. A call during which
//! another thread says something is written in two parts. Must not know where calls come from.

use std::collections::HashSet;
use std::io::{self, Write};

use sptrace_trace::{Clock, ExitStatus, Header};
use sptrace_types::calls::Selection;
use sptrace_types::decode::call::{Line, Made, Options};
use sptrace_types::decode::events::end_line;
use sptrace_types::decode::print::line;

use crate::system_calls::{Call, Listener, name_of};

/// How lines look.
#[derive(Clone)]
pub struct LinesOptions<'a> {
    /// How arguments are shown.
    pub calls: Options<'a>,
    /// A column with the thread's id.
    pub with_tid: bool,
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
    /// Only calls that did not fail (true), or that did (false).
    pub succeeded: Option<bool>,
    /// Only calls that took so long at least.
    pub min_ticks: u64,
    /// Numbers of calls in front of their names.
    pub with_number: bool,
    /// At most so many lines.
    pub limit: Option<usize>,
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
    begun: Option<Call>,
    /// Calls that were written in part, by thread and time.
    unfinished: HashSet<(u32, u64)>,
    last_tsc: Option<u64>,
    lines: usize,
    /// The first error of the output.
    pub result: io::Result<()>,
}

impl<'a, W: Write> Lines<'a, W> {
    /// Of a trace with this header.
    pub fn new(out: W, header: &Header, clock: Clock, options: LinesOptions<'a>) -> Self {
        Self {
            options,
            clock,
            start_unix_ns: header.start_unix_ns,
            out,
            begun: None,
            unfinished: HashSet::new(),
            last_tsc: None,
            lines: 0,
            result: Ok(()),
        }
    }

    fn is_wanted(&self, call: &Call) -> bool {
        let wanted = self.options.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(call.number))
    }

    /// Lines are chosen by how a call ends: none is written before.
    fn is_chosen_late(&self) -> bool {
        self.options.succeeded.is_some() || self.options.min_ticks > 0
    }

    fn line(&self, call: &Call) -> Line {
        let made = Made {
            number: call.number,
            args: &call.args,
            result: call.result,
            memory: &call.captured,
        };
        line(&made, &self.options.calls)
    }

    fn prefix(&mut self, tsc: u64, tid: u32) -> String {
        let mut prefix = String::new();
        if self.options.with_tid {
            prefix = format!("{tid:<5} ");
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

    fn write(&mut self, text: &str) {
        if self.is_finished() {
            return;
        }
        self.result = writeln!(self.out, "{text}");
        self.lines += 1;
    }

    /// Something else is about to be said: the call that is on the line will go on later.
    fn interrupt(&mut self) {
        let Some(call) = self.begun.take() else {
            return;
        };
        let line = self.line(&call);
        let known = line.call.get(..line.known_before).unwrap_or(&line.call);
        let number = self.number(&call);
        let text = format!("{number}{known} <unfinished ...>");
        let prefix = self.prefix(call.start_tsc, call.tid);
        self.write(&(prefix + &text));
        self.unfinished.insert((call.tid, call.start_tsc));
    }

    fn number(&self, call: &Call) -> String {
        match self.options.with_number {
            true => format!("[{:4}] ", call.number),
            false => String::new(),
        }
    }
}

impl<W: Write> Listener for Lines<'_, W> {
    fn begins(&mut self, call: &Call) {
        if !self.is_wanted(call) || self.is_chosen_late() {
            return;
        }
        self.interrupt();
        self.begun = Some(call.clone());
    }

    fn ended(&mut self, call: &Call) {
        if !self.is_wanted(call) {
            return;
        }
        let ticks = call.end_tsc.map(|end| end.saturating_sub(call.start_tsc));
        let has_failed = call.result.is_some_and(|r| (-4095..0).contains(&r));
        let is_chosen = self.options.succeeded != Some(has_failed)
            && (self.options.min_ticks == 0 || ticks.is_some_and(|t| t >= self.options.min_ticks));
        if !is_chosen {
            return;
        }
        let mut line = self.line(call);
        let mut start_tsc = call.start_tsc;
        if self.unfinished.remove(&(call.tid, call.start_tsc)) {
            self.interrupt();
            let rest = line.call.split_off(line.known_before.min(line.call.len()));
            line.call = format!("<... {} resumed>{rest}", name_of(call.number));
            start_tsc = call.end_tsc.unwrap_or(start_tsc);
        } else {
            // Its own, or nobody's.
            let is_other = |b: &Call| (b.tid, b.start_tsc) != (call.tid, call.start_tsc);
            if self.begun.as_ref().is_some_and(is_other) {
                self.interrupt();
            }
            self.begun = None;
        }
        line.call = self.number(call) + &line.call;
        let mut text = self.prefix(start_tsc, call.tid) + &line.aligned(self.options.column);
        if let (true, Some(ticks)) = (self.options.with_duration, ticks) {
            let us = self.clock.ns(ticks) / 1000;
            text += &format!(" <{}.{:06}>", us / 1_000_000, us % 1_000_000);
        }
        self.write(&text);
    }

    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus) {
        self.interrupt();
        let status = match status {
            ExitStatus::Exited(code) => (code as u32 & 0xff) << 8,
            ExitStatus::Signaled(signal) => signal as u32 & 0x7f,
        };
        let text = self.prefix(tsc, tid) + &end_line(status);
        self.write(&text);
    }

    fn is_finished(&self) -> bool {
        let has_all = self.options.limit.is_some_and(|limit| self.lines >= limit);
        self.result.is_err() || has_all
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
