//! What the collector sees of events: `call:GLOB`, `return:GLOB`, `slow:GLOB>DURATION`.
//!
//! Given each entry and exit with the class that the trace's writer keeps for the function (a bit
//! for each of these events); gives occurrences. They are as late as the collector: a thread's
//! records come when its chunk of 64 KiB is full, when the thread ends, or before a dump. Time that
//! a call waited for sptrace is no part of its duration. Frames that were left by longjmp or throw
//! do not return.

use super::{Event, EventError, Occurrence, What};
use sptrace_trace::{Classifier, Clock, Function, demangle, glob_matches, without_parameters};

#[derive(Clone, Copy)]
enum Wanted {
    Call,
    Return,
    /// Longer than so many ticks.
    Slow(u64),
}

/// The events that concern calls.
pub struct Calls {
    events: Vec<(usize, Wanted)>,
    /// Some of them wait for the ends of calls.
    need_ends: bool,
    clock: Clock,
    found: Vec<Occurrence>,
}

/// A frame whose end matters.
#[derive(Clone, Copy)]
struct Frame {
    class: u64,
    depth: u32,
    tsc: u64,
    blocked_ticks: u64,
}

/// What is kept for one thread.
#[derive(Clone, Default)]
pub struct Watched {
    frames: Vec<Frame>,
    /// Waited for sptrace so far.
    blocked_ticks: u64,
}

impl Calls {
    /// Those among `armed` (each with its index), and what tells the class of a function. `None`:
    /// there are none.
    ///
    /// # Errors
    /// More than a class has bits.
    pub fn new<'a>(
        armed: impl Iterator<Item = (usize, &'a Event)>,
        clock: Clock,
    ) -> Result<Option<(Self, Classifier)>, EventError> {
        let (mut events, mut globs) = (Vec::new(), Vec::new());
        for (index, event) in armed {
            let (glob, wanted) = match &event.what {
                What::Call(glob) => (glob, Wanted::Call),
                What::Return(glob) => (glob, Wanted::Return),
                What::Slow(glob, bound) => {
                    let ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
                    (glob, Wanted::Slow(clock.ticks(ns)))
                }
                _ => continue,
            };
            events.push((index, wanted));
            globs.push(glob.clone());
        }
        if events.len() > u64::BITS as usize {
            return Err(EventError::TooMany);
        }
        let classifier: Classifier = Box::new(move |function| class(&globs, function));
        let calls = Self {
            need_ends: events.iter().any(|(_, one)| !matches!(one, Wanted::Call)),
            events,
            clock,
            found: Vec::new(),
        };
        Ok((!calls.events.is_empty()).then_some((calls, classifier)))
    }

    /// A function of this class was entered, at this depth (itself included).
    #[inline]
    pub fn enter(&mut self, thread: &mut Watched, class: u64, depth: u32, tsc: u64, pid: u32) {
        if class != 0 {
            self.entered(thread, class, depth, tsc, pid);
        }
    }

    #[cold]
    fn entered(&mut self, thread: &mut Watched, class: u64, depth: u32, tsc: u64, pid: u32) {
        if self.need_ends {
            thread.frames.push(Frame {
                class,
                depth,
                tsc,
                blocked_ticks: thread.blocked_ticks,
            });
        }
        self.tell(class, tsc, pid, |wanted| match wanted {
            Wanted::Call => Some(String::new()),
            _ => None,
        });
    }

    /// The frame at this depth has ended, with the tail calls in it.
    #[inline]
    pub fn exit(&mut self, thread: &mut Watched, depth: u32, tsc: u64, pid: u32) {
        while thread.frames.last().is_some_and(|f| f.depth >= depth) {
            self.returned(thread, tsc, pid);
        }
    }

    #[cold]
    fn returned(&mut self, thread: &mut Watched, tsc: u64, pid: u32) {
        let Some(frame) = thread.frames.pop() else {
            return;
        };
        let blocked = thread.blocked_ticks - frame.blocked_ticks;
        let ticks = tsc.saturating_sub(frame.tsc).saturating_sub(blocked);
        let ms = self.clock.ns(ticks) as f64 / 1e6;
        self.tell(frame.class, tsc, pid, |wanted| match wanted {
            Wanted::Return => Some(String::new()),
            Wanted::Slow(bound) if ticks > bound => Some(format!("it took {ms:.3} ms")),
            _ => None,
        });
    }

    /// A frame has ended that began before anything was seen of the thread: how long it took is not
    /// known.
    pub fn found_returned(&mut self, class: u64, tsc: u64, pid: u32) {
        self.tell(class, tsc, pid, |wanted| match wanted {
            Wanted::Return => Some(String::new()),
            _ => None,
        });
    }

    fn tell(&mut self, class: u64, tsc: u64, pid: u32, detail: impl Fn(Wanted) -> Option<String>) {
        for (bit, (event, wanted)) in self.events.iter().enumerate() {
            if class >> bit & 1 != 0
                && let Some(detail) = detail(*wanted)
            {
                self.found.push(Occurrence {
                    event: *event,
                    tsc,
                    pid,
                    detail,
                });
            }
        }
    }

    /// What has happened since this was asked last.
    pub fn take(&mut self) -> Vec<Occurrence> {
        std::mem::take(&mut self.found)
    }
}

impl Watched {
    /// The end of no open call matters.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames were left without an exit; so many are open yet.
    pub fn unwound(&mut self, depth: u32) {
        self.frames.retain(|frame| frame.depth <= depth);
    }

    /// The thread waited for sptrace.
    pub fn blocked(&mut self, ticks: u64) {
        self.blocked_ticks = self.blocked_ticks.saturating_add(ticks);
    }
}

/// A bit for each glob that fits the function's name, raw or demangled, with its parameters or
/// without.
fn class(globs: &[String], function: &Function) -> u64 {
    let name = match function.symbol.as_str() {
        "" => sptrace_code::unnamed(function.svma),
        symbol => demangle(symbol),
    };
    let names = [&name, function.symbol.as_str(), without_parameters(&name)];
    let fits = |glob: &String| names.iter().any(|name| glob_matches(glob, name));
    globs
        .iter()
        .enumerate()
        .fold(0, |bits, (bit, glob)| bits | u64::from(fits(glob)) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Armed;
    use sptrace_addr::Svma;
    use sptrace_trace::{Header, ModuleId};

    const CALL: u64 = 1;
    const RETURN: u64 = 2;
    const SLOW: u64 = 4;

    fn calls() -> (Calls, Classifier) {
        // Without a frequency a tick is a nanosecond.
        let clock = Clock::of(&Header::default());
        let events = ["call:ns::f", "return:g*", "slow:sub_*>100ns"];
        let events = events.map(|text| text.parse().expect("an event"));
        let armed = Armed::new(&[], &events, &[], 1);
        Calls::new(armed.iter(), clock)
            .expect("not too many")
            .expect("some")
    }

    #[test]
    fn names_are_matched_raw_and_demangled() {
        let (_, classify) = calls();
        let class = |symbol: &str| {
            classify(&Function {
                module: ModuleId(0),
                svma: Svma(0x10),
                size_bytes: 0,
                symbol: symbol.to_owned(),
            })
        };
        assert_eq!(class("_ZN2ns1fEi"), CALL);
        assert_eq!(class("good"), RETURN);
        assert_eq!(class(""), SLOW);
        assert_eq!(class("other"), 0);
    }

    #[test]
    fn calls_returns_and_latencies_are_told() {
        let (mut calls, _) = calls();
        let mut thread = Watched::default();
        let take = |calls: &mut Calls| -> Vec<_> {
            let found = calls.take();
            found.into_iter().map(|o| (o.event, o.tsc)).collect()
        };
        calls.enter(&mut thread, CALL, 1, 10, 7);
        calls.enter(&mut thread, 0, 2, 11, 7);
        calls.enter(&mut thread, RETURN | SLOW, 3, 12, 7);
        assert_eq!(take(&mut calls), [(0, 10)]);
        calls.exit(&mut thread, 3, 112, 7);
        assert_eq!(take(&mut calls), [(1, 112)], "100 ns are not above 100 ns");
        calls.enter(&mut thread, SLOW, 3, 200, 7);
        thread.blocked(50);
        calls.exit(&mut thread, 3, 350, 7);
        assert_eq!(take(&mut calls), [], "waiting does not count");
        // A tail call ends with the frame that it replaced.
        calls.enter(&mut thread, RETURN, 3, 400, 7);
        calls.enter(&mut thread, SLOW, 3, 500, 7);
        calls.exit(&mut thread, 3, 601, 7);
        assert_eq!(take(&mut calls), [(2, 601), (1, 601)]);
        // What a longjmp leaves does not return.
        calls.enter(&mut thread, RETURN, 3, 700, 7);
        thread.unwound(2);
        calls.exit(&mut thread, 2, 800, 7);
        calls.exit(&mut thread, 1, 900, 7);
        assert_eq!(take(&mut calls), []);
    }
}
