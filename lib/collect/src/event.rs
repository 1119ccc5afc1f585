//! What can make a recording do something: a moment, a signal, a key, a word from another terminal,
//! a call, the end of the program.
//!
//! [`Event`] is what the user names on the command line ([`parse`]). [`Armed`] holds the events of
//! a recording with what each shall do, and counts. An event happens in one of two ways: a
//! [`Source`] has something to wait for (a descriptor, a moment: [`time`], `sptrace_keys`,
//! [`control`], [`processes`]) and is looked at by the events thread ([`wait`]); or somebody who
//! sees it tells ([`calls`] in the collector, the session for signals and for the command's end).
//! More kinds are a variant of [`What`] and a source.
//!
//! Must not know: what a dump is, or how a recording ends.

pub mod calls;
pub mod control;
pub mod error;
pub mod keys;
pub mod parse;
pub mod processes;
pub mod rule;
pub mod switch;
pub mod time;
pub mod wait;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use error::EventError;
use rule::Rule;
use sptrace_keys::Key;

/// How [`What::Asked`] is called.
const ASKED: &str = "a key of --top";

/// Something that may happen, and at which of its occurrences it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What is waited for.
    pub what: What,
    /// Every so many occurrences count as one.
    pub every: u64,
    /// As the user wrote it.
    pub text: String,
}

impl Event {
    /// Bidden by a payload, which the user has written so.
    pub fn bidden(number: usize, text: &str) -> Self {
        Self {
            what: What::Bid(number),
            every: 1,
            text: text.to_owned(),
        }
    }

    /// Does a payload ask for it?
    pub fn is_bidden(&self) -> bool {
        matches!(self.what, What::Bid(_))
    }

    /// Is it, or a part of it, told by the end of a call?
    pub fn needs_ends(&self) -> bool {
        match &self.what {
            What::Return(_) | What::Slow(..) => true,
            What::Several(parts, _) => parts.iter().any(Self::needs_ends),
            _ => false,
        }
    }

    /// Those that it consists of: itself, if it is one alone.
    pub fn parts(&self) -> &[Event] {
        match &self.what {
            What::Several(parts, _) => parts,
            _ => std::slice::from_ref(self),
        }
    }
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Each time that so much time has passed since the recording's start; of what begins it, since
    /// the command's, or the end of the recording before.
    Time(Duration),
    /// sptrace receives a signal.
    Signal(i32),
    /// A key on the controlling terminal.
    Key(Key),
    /// `sptrace ctl` says this word.
    Control(String),
    /// A function is called whose name fits the glob.
    Call(String),
    /// Such a function returns.
    Return(String),
    /// A call of such a function has taken longer than this.
    Slow(String, Duration),
    /// The command, or a process that it started, is killed by a signal.
    Crash,
    /// The command ends.
    Exit,
    /// A payload of a script bids it, by the number that this has there ([`crate::bids`]).
    Bid(usize),
    /// Who looks at the recording asks that it goes on (true), or pauses ([`switch`]).
    Asked(bool),
    /// All of these have happened.
    Several(Vec<Event>, Order),
}

/// In which order several events count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any.
    Any,
    /// One that comes before those that are written before it does not count.
    AsWritten,
}

/// What an event shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Begin the recording.
    Start,
    /// Follow the processes, as one of those that begin it can be seen then only.
    Follow,
    /// Write out the ring.
    Dump,
    /// End the recording.
    Stop,
    /// Calls of the functions of this rule are recorded from here on ([`crate::between`]).
    Open(usize),
    /// They are not any more.
    Close(usize),
}

/// An event has happened once.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// Index among the [`Armed`] events.
    pub event: usize,
    /// When.
    pub tsc: u64,
    /// In which process; 0: in none.
    pub pid: u32,
    /// More about it, may be empty.
    pub detail: String,
}

/// What follows from an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    React(Reaction),
    /// So many more must come.
    Missing(u64),
    /// It has done what it was to do.
    UsedUp,
}

/// The events of a recording, by index.
#[derive(Debug, Default)]
pub struct Armed {
    events: Vec<ArmedEvent>,
}

#[derive(Debug)]
struct ArmedEvent {
    event: Event,
    reaction: Reaction,
    seen: AtomicU64,
    /// How often it reacts yet.
    left: AtomicU64,
    /// Of several: a bit for each that has happened.
    come: AtomicU64,
    /// It is one of several.
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    /// Index of the event that consists of it and others.
    of: usize,
    /// Its place among them.
    number: usize,
}

impl ArmedEvent {
    fn new(event: Event, reaction: Reaction, times: u64) -> Self {
        Self {
            event,
            reaction,
            seen: AtomicU64::new(0),
            left: AtomicU64::new(times),
            come: AtomicU64::new(0),
            part: None,
        }
    }
}

impl Armed {
    /// Each of `dump_on` dumps `times` times; those of `start_on` begin the recording so often, and
    /// those of `stop_on` end it, which is once if there are none to begin it.
    pub fn new(start_on: &[Event], dump_on: &[Event], stop_on: &[Event], times: u64) -> Self {
        let arm = |event: &Event, reaction, times| ArmedEvent::new(event.clone(), reaction, times);
        let windows = if start_on.is_empty() { 1 } else { times };
        let starts = start_on.iter().map(|e| arm(e, Reaction::Start, windows));
        let dumps = dump_on.iter().map(|e| arm(e, Reaction::Dump, times));
        let stops = stop_on.iter().map(|e| arm(e, Reaction::Stop, windows));
        Self {
            events: starts.chain(dumps).chain(stops).collect(),
        }
    }

    /// Also what leads to following the processes, for those of `start_on` that can be seen then
    /// only; and calls that begin the recording, so often as well, for when they are followed.
    pub fn with_following(mut self, start_on: &[Event], times: u64) -> Self {
        for event in start_on {
            let (what, reaction, every, left) = match &event.what {
                What::Return(glob) | What::Slow(glob, _) => {
                    (What::Call(glob.clone()), Reaction::Follow, 1, u64::MAX)
                }
                What::Call(_) => (event.what.clone(), Reaction::Start, event.every, times),
                _ => continue,
            };
            let text = event.text.clone();
            let event = Event { what, every, text };
            self.events.push(ArmedEvent::new(event, reaction, left));
        }
        self
    }

    /// Also those that open and close rules, at each occurrence that does so.
    pub fn with_rules(mut self, rules: &[Rule]) -> Self {
        for (number, rule) in rules.iter().enumerate() {
            let start = rule.start.as_ref().map(|e| (e, Reaction::Open(number)));
            for (event, reaction) in start
                .into_iter()
                .chain([(&rule.stop, Reaction::Close(number))])
            {
                let event = event.clone();
                self.events.push(ArmedEvent::new(event, reaction, u64::MAX));
            }
        }
        self
    }

    /// Also what somebody asks who looks at the recording.
    pub fn with_switch(mut self) -> Self {
        for (goes_on, reaction) in [(false, Reaction::Stop), (true, Reaction::Start)] {
            let event = Event {
                what: What::Asked(goes_on),
                every: 1,
                text: ASKED.to_owned(),
            };
            self.events.push(ArmedEvent::new(event, reaction, u64::MAX));
        }
        self
    }

    /// Also the parts of those that consist of several.
    pub fn with_parts(mut self) -> Self {
        for of in 0..self.events.len() {
            let (event, reaction) = (&self.events[of].event, self.events[of].reaction);
            let What::Several(parts, _) = event.what.clone() else {
                continue;
            };
            let parts = parts.into_iter().enumerate();
            self.events.extend(parts.map(|(number, event)| ArmedEvent {
                part: Some(Part { of, number }),
                ..ArmedEvent::new(event, reaction, u64::MAX)
            }));
        }
        self
    }

    /// No events?
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Index and event of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Event)> {
        self.events.iter().map(|armed| &armed.event).enumerate()
    }

    /// What an event is for.
    pub fn reaction(&self, event: usize) -> Option<Reaction> {
        self.events.get(event).map(|e| e.reaction)
    }

    /// Is it known by what was recorded, some time after it has happened?
    pub fn is_recorded(&self, event: usize) -> bool {
        let armed = self.events.get(event);
        armed.is_some_and(|armed| {
            let what = &armed.event.what;
            matches!(
                what,
                What::Call(_) | What::Return(_) | What::Slow(..) | What::Bid(_)
            )
        })
    }

    /// The indexes of the events that are `what`.
    pub fn all(&self, what: &What) -> Vec<usize> {
        self.iter()
            .filter(|(_, event)| event.what == *what)
            .map(|(index, _)| index)
            .collect()
    }

    /// How the user wrote an event.
    pub fn text(&self, event: usize) -> &str {
        let armed = self.events.get(event);
        let whole = armed.and_then(|e| e.part).map(|part| part.of);
        let armed = whole.map_or(armed, |of| self.events.get(of));
        armed.map_or("", |e| &e.event.text)
    }

    /// The occurrences of the events for this are counted from here.
    pub fn count_anew(&self, reaction: Reaction) {
        let events = self.events.iter().filter(|e| e.reaction == reaction);
        events.for_each(|e| {
            e.seen.store(0, Ordering::Release);
            e.come.store(0, Ordering::Release);
        });
    }

    /// Would the event react at the `nth` occurrence from now?
    pub fn would_react(&self, event: usize, nth: u64) -> bool {
        self.events.get(event).is_some_and(|armed| {
            let seen = armed.seen.load(Ordering::Acquire) + nth;
            seen.is_multiple_of(armed.event.every) && armed.left.load(Ordering::Acquire) > 0
        })
    }

    /// Counts an occurrence.
    pub fn count(&self, event: usize) -> Verdict {
        let Some(armed) = self.events.get(event) else {
            return Verdict::UsedUp;
        };
        if armed.left.load(Ordering::Acquire) == 0 {
            return Verdict::UsedUp;
        }
        let seen = armed.seen.fetch_add(1, Ordering::AcqRel) + 1;
        let over = seen % armed.event.every;
        if over != 0 {
            return Verdict::Missing(armed.event.every - over);
        }
        if let Some(part) = armed.part {
            return self.part_has_come(part);
        }
        let take = |left: u64| left.checked_sub(1);
        let taken = armed
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        match taken {
            Ok(_) => Verdict::React(armed.reaction),
            Err(_) => Verdict::UsedUp,
        }
    }
}

impl Armed {
    /// One of several has happened.
    fn part_has_come(&self, part: Part) -> Verdict {
        let Some(whole) = self.events.get(part.of) else {
            return Verdict::UsedUp;
        };
        let What::Several(parts, order) = &whole.event.what else {
            return Verdict::UsedUp;
        };
        let before = whole.come.load(Ordering::Acquire);
        let is_next = before.count_ones() as usize == part.number;
        let come = match *order == Order::Any || is_next {
            true => before | 1 << part.number,
            false => before,
        };
        let missing = parts.len() as u64 - u64::from(come.count_ones());
        let come = if missing == 0 { 0 } else { come };
        whole.come.store(come, Ordering::Release);
        match missing {
            0 => self.count(part.of),
            more => Verdict::Missing(more),
        }
    }
}

/// Something to wait for.
pub trait Source: Send {
    /// Descriptors that become readable when there may be something to see.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// When to look though no descriptor is readable; `None`: no need.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Looks, without waiting; adds what has happened.
    fn look(&mut self, found: &mut Vec<Occurrence>);

    /// What came of an occurrence that this source has found.
    fn answered(&mut self, _event: usize, _answer: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        text.parse().expect("an event")
    }

    #[test]
    fn each_event_reacts_so_many_times_at_every_nth_occurrence() {
        let armed = Armed::new(
            &[],
            &[event("ctl:a#3"), event("exit")],
            &[event("crash")],
            2,
        );
        let verdicts: Vec<_> = (0..7).map(|_| armed.count(0)).collect();
        use Verdict::{Missing, React, UsedUp};
        let dump = React(Reaction::Dump);
        let expected = [Missing(2), Missing(1), dump, Missing(2), Missing(1), dump];
        assert_eq!(verdicts[..6], expected);
        assert_eq!(verdicts[6], UsedUp);
        assert_eq!([armed.count(1), armed.count(1)], [dump; 2]);
        let stop = React(Reaction::Stop);
        assert_eq!([armed.count(2), armed.count(2)], [stop, UsedUp]);
        assert_eq!(armed.count(3), UsedUp);
        assert_eq!(armed.all(&What::Crash), [2]);
        assert_eq!(armed.text(0), "ctl:a#3");
    }

    #[test]
    fn several_events_count_when_all_have_happened() {
        use Verdict::{Missing, React, UsedUp};
        let dumps = [event("ctl:a & ctl:b#2"), event("ctl:c then ctl:d")];
        let armed = Armed::new(&[], &dumps, &[], 1).with_parts();
        let parts: Vec<_> = ["a", "b", "c", "d"]
            .map(|word| armed.all(&What::Control(word.to_owned()))[0])
            .to_vec();
        let dump = React(Reaction::Dump);
        assert_eq!(
            [armed.count(parts[1]), armed.count(parts[1])],
            [Missing(1); 2]
        );
        assert_eq!(
            [armed.count(parts[0]), armed.count(parts[0])],
            [dump, Missing(1)]
        );
        assert_eq!(armed.text(parts[0]), "ctl:a & ctl:b#2");
        assert_eq!(
            [armed.count(parts[3]), armed.count(parts[2])],
            [Missing(2), Missing(1)]
        );
        assert_eq!(
            [armed.count(parts[2]), armed.count(parts[3])],
            [Missing(1), dump]
        );
        assert_eq!(
            [armed.count(parts[2]), armed.count(parts[3])],
            [Missing(1), UsedUp]
        );
    }

    #[test]
    fn what_begins_and_ends_a_recording_can_do_so_again_and_counts_anew() {
        let (start, stop) = ([event("ctl:a#2")], [event("ctl:b#3")]);
        let armed = Armed::new(&start, &[event("exit")], &stop, 2);
        use Verdict::{Missing, React, UsedUp};
        assert_eq!(armed.count(0), Missing(1));
        assert_eq!(armed.count(2), Missing(2));
        armed.count_anew(Reaction::Stop);
        assert_eq!(armed.count(0), React(Reaction::Start));
        for _ in 0..2 {
            assert_eq!([armed.count(2), armed.count(2)], [Missing(2), Missing(1)]);
            assert_eq!(armed.count(2), React(Reaction::Stop));
        }
        assert_eq!(armed.count(2), UsedUp);
        let once = Armed::new(&[], &[event("exit")], &stop, 2);
        let verdicts: Vec<_> = (0..4).map(|_| once.count(1)).collect();
        assert_eq!(verdicts[2..], [React(Reaction::Stop), UsedUp]);
    }
}
