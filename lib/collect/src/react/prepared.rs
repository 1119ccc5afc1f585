//! What the events of a recording need, opened before there is a recording or a command: nothing is left of it if
//! one of them cannot be waited for.
//!
//! Part of the [`Reactor`]. Decides who sees which event: gates the calls that begin a recording of a command that
//! runs by itself, the collector those of one that is followed, the agents those that turn a rule.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use sptrace_trace::{Clock, Header};

use super::{OnEvents, Reactor};
use crate::between::Between;
use crate::collector::Collector;
use crate::event::calls::Calls;
use crate::event::control::Control;
use crate::event::relay::Relay;
use crate::event::terminal::Keys;
use crate::event::{Armed, Event, EventError, Reaction, Source, What};
use crate::gate::Gates;
use crate::output::{self, Output};
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
        let is_end = |e: &&Event| matches!(e.what, What::Crash | What::Exit);
        if let Some(event) = asked.start_on.iter().find(is_end) {
            return Err(EventError::TooLate(event.text.clone(), "begin a recording"));
        }
        let (starts, dumps, stops) = (&asked.start_on, &asked.dump_on, &asked.stop_on);
        let armed = match asked.shadow {
            true => Armed::new(starts, dumps, stops, asked.times),
            // What is counted at a gate is not counted here.
            false => Armed::new(
                &starts.iter().map(at_gate).collect::<Vec<_>>(),
                dumps,
                stops,
                asked.times,
            ),
        };
        let is_followed = |e: &&Event| matches!(e.what, What::Return(_) | What::Slow(..));
        let followed = starts.iter().find(|e| !asked.shadow && is_followed(e));
        if let Some(event) = followed.filter(|_| !dumps.is_empty()) {
            return Err(EventError::NoDumps(event.text.clone()));
        }
        let follows = followed.is_some();
        let armed = match follows {
            true => armed.with_following(starts, asked.times),
            false => armed,
        };
        let armed = Arc::new(armed.with_rules(&asked.between));
        let is_gated = |index: usize, event: &Event| {
            let is_start = index < starts.len() && !asked.shadow;
            let is_call = matches!(event.what, What::Call(_));
            is_call && (is_start || armed.reaction(index) == Some(Reaction::Follow))
        };
        let gated = armed
            .iter()
            .filter(|(index, event)| is_gated(*index, event));
        // Those that begin it count as the user wrote.
        let gated = gated.map(|(index, event)| (index, starts.get(index).unwrap_or(event)));
        let gates = Arc::new(Gates::new(gated));
        if gates.are_too_many() {
            return Err(EventError::TooMany);
        }
        let between = Arc::new(Between::new(asked.between.clone(), asked.times)?);
        let wake = (!armed.is_empty()).then(eventfd).transpose()?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let mut relay = None;
        match Keys::open(&armed, asked.is_launched)? {
            Keys::None => {}
            Keys::Read(terminal) => sources.push(Box::new(terminal)),
            Keys::Relayed(between) => relay = Some(between),
        }
        if let Some(control) = Control::open(&armed, &header.command.join(" "))? {
            sources.push(Box::new(control));
        }
        if !gates.is_empty() {
            sources.push(Box::new(gates.watch()));
        }
        let is_agents = |(index, event): &(usize, &Event)| {
            let reaction = armed.reaction(*index);
            matches!(event.what, What::Call(_))
                && matches!(reaction, Some(Reaction::Open(_) | Reaction::Close(_)))
        };
        let seen = armed
            .iter()
            .filter(|event| !is_gated(event.0, event.1) && !is_agents(event));
        let calls = Calls::new(seen, Clock::of(header))?;
        // One that nothing ends does not begin again.
        let times = if stops.is_empty() { 1 } else { asked.times };
        let windows = Windows::new((!starts.is_empty()).then_some(times));
        let ring = match asked.dump_on.is_empty() {
            true => None,
            false => Some(
                output::memory()
                    .map_err(|e| EventError::Socket("a file in memory".to_owned(), e))?,
            ),
        };
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
            windows: Arc::new(windows),
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

fn eventfd() -> Result<OwnedFd, EventError> {
    // SAFETY: two flags.
    let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if wake < 0 {
        let why = std::io::Error::last_os_error();
        return Err(EventError::Socket("an eventfd".to_owned(), why));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(wake) })
}
