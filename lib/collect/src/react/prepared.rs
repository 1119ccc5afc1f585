//! Opens what the events of a recording need, before there is a recording or a command. If one of
//! them cannot be waited for, nothing is left of the others.
//!
//! Decides who notices an event: a gate, for a call that begins the recording of a command that
//! runs by itself; the agents, for a call that turns a rule of `--between`; the host for everything
//! else. Must not know what follows from an event.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use sptrace_keys::Relay;
use sptrace_trace::{Clock, Header};

use super::reactor::Reactor;
use crate::between::Between;
use crate::collector::Collector;
use crate::event::calls::Calls;
use crate::event::control::Control;
use crate::event::keys::Keys;
use crate::event::switch::Asked;
use crate::event::{Armed, Event, EventError, Reaction, Source, What};
use crate::live::gate::Gates;
use crate::output::{self, Output};
use crate::request::OnEvents;
use crate::windows::Windows;

/// What is prepared before there is a recording.
pub struct Prepared {
    /// For the session.
    pub reactor: Reactor,
    /// For the command's launch.
    pub relay: Option<Relay>,
    sources: Vec<Box<dyn Source>>,
    calls: Option<(Calls, sptrace_trace::Classifier)>,
}

impl Prepared {
    /// Opens what the events need; nothing is left of it when this value goes.
    ///
    /// # Errors
    /// An event cannot be waited for.
    pub fn new(asked: OnEvents, output: &Path, header: &Header) -> Result<Self, EventError> {
        let (armed, follows) = armed_for(&asked)?;
        let armed = Arc::new(armed);
        let gates = gates_of(&armed, &asked)?;
        let between = Arc::new(Between::new(asked.between.clone(), asked.times)?);
        let wake = (!armed.is_empty()).then(event_descriptor).transpose()?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let relay = match Keys::open(&armed, asked.is_launched)? {
            Keys::None => None,
            Keys::Read(terminal) => {
                sources.push(Box::new(terminal));
                None
            }
            Keys::Relayed(between) => Some(between),
        };
        if let Some(control) = Control::open(&armed, &header.command.join(" "))? {
            sources.push(Box::new(control));
        }
        if !gates.is_empty() {
            sources.push(Box::new(gates.watch()));
        }
        let hosts = watched_by(Watcher::Host, &armed, &asked);
        let calls = Calls::new(hosts, Clock::of(header))?;
        let windows = Arc::new(windows_of(&asked));
        if let Some(switch) = &asked.switch {
            let asked = Asked::new(switch.clone(), &armed, &windows);
            sources.push(Box::new(asked));
        }
        let ring = ring_of(&asked)?;
        let reactor = Reactor {
            armed,
            asked,
            output: output.to_owned(),
            ring,
            waiting: Mutex::default(),
            made: AtomicU64::new(0),
            written: AtomicU64::new(0),
            wake,
            ended: AtomicBool::new(false),
            gates,
            follows,
            windows,
            between,
            causes: Mutex::default(),
        };
        Ok(Self {
            reactor,
            relay,
            sources,
            calls,
        })
    }

    /// Takes it apart; what concerns calls goes to the collector.
    pub fn split(self, collector: &mut Collector<Output>) -> (Reactor, Vec<Box<dyn Source>>) {
        if let Some((calls, classifier)) = self.calls {
            collector.watch(calls, classifier);
        }
        let reactor = &self.reactor;
        if reactor.asked.shadow || reactor.follows {
            collector.shadow(Arc::clone(&reactor.armed), reactor.asked.shadow);
        }
        (self.reactor, self.sources)
    }
}

/// Who notices an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    /// A gate at the function's entry: a call that begins the recording of a command that runs by
    /// itself.
    Gate,
    /// The agents: a call that turns a rule of `--between`.
    Agents,
    /// One of the host's sources, or the collector among the records.
    Host,
}

/// The events that this one notices.
fn watched_by<'a>(
    watcher: Watcher,
    armed: &'a Armed,
    asked: &'a OnEvents,
) -> impl Iterator<Item = (usize, &'a Event)> {
    let sees =
        move |(index, event): &(usize, &Event)| watcher_of(*index, event, armed, asked) == watcher;
    armed.iter().filter(sees)
}

/// For the calls that begin the recording of a command that runs by itself.
fn gates_of(armed: &Armed, asked: &OnEvents) -> Result<Arc<Gates>, EventError> {
    let gated = watched_by(Watcher::Gate, armed, asked);
    // Start events keep the number that the user wrote: the gate does the counting.
    let as_written = |(index, event)| (index, asked.start_on.get(index).unwrap_or(event));
    let gates = Arc::new(Gates::new(gated.map(as_written)));
    match gates.are_too_many() {
        true => Err(EventError::TooMany),
        false => Ok(gates),
    }
}

/// How often the recording begins and ends.
fn windows_of(asked: &OnEvents) -> Windows {
    if asked.switch.is_some() {
        return Windows::switched();
    }
    // A recording that nothing ends does not begin again.
    let times = match asked.stop_on.is_empty() {
        true => 1,
        false => asked.times,
    };
    Windows::new((!asked.start_on.is_empty()).then_some(times))
}

/// A ring in memory, if there are dumps of it.
fn ring_of(asked: &OnEvents) -> Result<Option<File>, EventError> {
    if asked.dump_on.is_empty() {
        return Ok(None);
    }
    let ring = output::memory();
    let error = |e| EventError::Socket("a file in memory".to_owned(), e);
    ring.map(Some).map_err(error)
}

fn watcher_of(index: usize, event: &Event, armed: &Armed, asked: &OnEvents) -> Watcher {
    if !matches!(event.what, What::Call(_)) {
        return Watcher::Host;
    }
    // Start events come first in the list.
    let is_start = index < asked.start_on.len();
    match armed.reaction(index) {
        Some(Reaction::Follow) => Watcher::Gate,
        _ if is_start && !asked.shadow => Watcher::Gate,
        Some(Reaction::Open(_) | Reaction::Close(_)) => Watcher::Agents,
        _ => Watcher::Host,
    }
}

/// The events with what follows from them, and whether the command will be followed for some of
/// those that begin the recording.
fn armed_for(asked: &OnEvents) -> Result<(Armed, bool), EventError> {
    let is_end = |e: &&Event| matches!(e.what, What::Crash | What::Exit);
    let (starts, dumps, stops) = (&asked.start_on, &asked.dump_on, &asked.stop_on);
    if let Some(event) = starts.iter().flat_map(Event::parts).find(is_end) {
        return Err(EventError::TooLate(event.text.clone(), "begin a recording"));
    }
    let is_call = |e: &Event| matches!(e.what, What::Call(_) | What::Return(_) | What::Slow(..));
    let is_several = |e: &&Event| matches!(e.what, What::Several(..));
    let mut several = starts.iter().filter(is_several);
    if let Some(event) = several.find(|e| e.parts().iter().any(is_call)) {
        return Err(EventError::NotYetSeen(event.text.clone()));
    }
    if asked.shadow {
        let armed = Armed::new(starts, dumps, stops, asked.times);
        return Ok((armed.with_rules(&asked.between).with_parts(), false));
    }
    // What is counted at a gate is not counted here.
    let at_gates = starts.iter().map(at_gate).collect::<Vec<_>>();
    let mut armed = Armed::new(&at_gates, dumps, stops, asked.times);
    let is_followed = |e: &&Event| matches!(e.what, What::Return(_) | What::Slow(..));
    let followed = starts.iter().find(is_followed);
    if let Some(event) = followed.filter(|_| !dumps.is_empty()) {
        return Err(EventError::NoDumps(event.text.clone()));
    }
    if followed.is_some() {
        armed = armed.with_following(starts, asked.times);
    }
    armed = armed.with_rules(&asked.between);
    if asked.switch.is_some() {
        armed = armed.with_switch();
    }
    Ok((armed.with_parts(), followed.is_some()))
}

/// By which the other threads wake the one that waits for events.
fn event_descriptor() -> Result<OwnedFd, EventError> {
    // SAFETY: gives a fresh descriptor or an error.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        let why = std::io::Error::last_os_error();
        return Err(EventError::Socket("an eventfd".to_owned(), why));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn at_gate(event: &Event) -> Event {
    let every = match event.what {
        What::Call(_) => 1,
        _ => event.every,
    };
    Event {
        every,
        ..event.clone()
    }
}
