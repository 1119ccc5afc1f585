//! `--start-on call:GLOB` of a command that runs by itself: its calls of certain functions lead
//! over a gate ([`sptrace_patch::gate`]), at which a thread waits until the recording has begun. Of
//! `call:GLOB#N` each process counts for itself, and who makes the Nth call waits.
//!
//! [`Gates`] knows which functions of a module those are, and watches the gates of all processes, a
//! source of events like others ([`Watch`]). [`process`] puts the ways there and takes them away.

pub(crate) mod jump;
pub(crate) mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sptrace_addr::{Avma, Svma};
use sptrace_code::{Cached, unnamed};
use sptrace_image::Object;
use sptrace_patch::gate::{Gate, Way};
use sptrace_tracee::TraceeError;
use sptrace_tracee::gate::{GATE_BYTES, Guard, waiting_at};
use sptrace_wire::plan::PlanView;

use crate::clock;
use crate::event::{Event, Occurrence, Source, What};
use crate::modules::filters;

/// Globs that fit more functions of a module are none that a recording should begin at; their ways
/// fill a page.
const MAX_WAYS: usize = 32;
/// Their counts fill an eighth of a page.
const MAX_GATES: usize = 64;
/// Of a gate's count, in the page behind the gates.
const COUNT_BYTES: u64 = 8;

/// A function of a module, and the event that a call of it is.
#[derive(Debug)]
pub(crate) struct Gated {
    /// Number of the gate, among those of its process.
    gate: usize,
    way: Way,
    /// For the user.
    name: String,
}

/// A call that begins a recording.
struct Awaited {
    /// Index of the event.
    event: usize,
    glob: String,
    /// As the user wrote it, maybe of an event that only follows from such a call.
    text: String,
    /// It is each so many of them.
    every: u64,
}

/// A process's gates.
struct Watched {
    pid: u32,
    descriptor: OwnedFd,
    /// Where the first lies.
    start: u64,
    /// Opens them if we cannot; there is none for a moment after the start.
    guard: Option<Guard>,
}

/// The gates of a recording.
#[derive(Default)]
pub(crate) struct Gates {
    /// By number.
    calls: Vec<Awaited>,
    /// By module of the recording.
    modules: Mutex<BTreeMap<usize, Arc<Vec<Gated>>>>,
    watched: Mutex<Vec<Watched>>,
    /// Functions without one, and why.
    impossible: Mutex<BTreeSet<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gates {
    /// For the calls among these events.
    pub(crate) fn new<'a>(events: impl Iterator<Item = (usize, &'a Event)>) -> Self {
        let awaited = |(index, event): (usize, &Event)| match &event.what {
            What::Call(glob) => Some(Awaited {
                event: index,
                glob: glob.clone(),
                text: event.text.clone(),
                every: event.every,
            }),
            _ => None,
        };
        Self {
            calls: events.filter_map(awaited).collect(),
            ..Self::default()
        }
    }

    /// No event needs one.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// More than there is room for.
    pub(crate) fn are_too_many(&self) -> bool {
        self.calls.len() > MAX_GATES
    }

    /// The source of the events.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        Watch(Arc::clone(self))
    }

    /// Finds the functions of a module, once. May take as long as an analysis.
    pub(crate) fn look(&self, index: usize, cached: &Cached, file: &std::path::Path) {
        if self.is_empty() || locked(&self.modules).contains_key(&index) {
            return;
        }
        let found = self.find(cached, file).unwrap_or_default();
        locked(&self.modules).insert(index, Arc::new(found));
    }

    fn find(&self, cached: &Cached, file: &std::path::Path) -> Option<Vec<Gated>> {
        let plan = PlanView::new(cached.plan_bytes())?;
        let mut found = Vec::new();
        let mut object_of = None;
        for (gate, Awaited { glob, .. }) in self.calls.iter().enumerate() {
            let functions = filters::entries(cached, plan, std::slice::from_ref(glob));
            if functions.is_empty() {
                continue;
            }
            if found.len() + functions.len() > MAX_WAYS {
                let text = format!(
                    "{glob} fits {} functions of {}",
                    functions.len(),
                    file.display()
                );
                locked(&self.impossible).insert(text);
                continue;
            }
            let bytes = match &object_of {
                Some(bytes) => bytes,
                None => object_of.insert(std::fs::read(file).ok()?),
            };
            let object = Object::parse(bytes).ok()?;
            for function in filters::hooks(cached, &object, &functions) {
                let name = name_of(cached, function.entry);
                match Way::of(&object, &function) {
                    Some(way) => found.push(Gated { gate, way, name }),
                    None => self.give_up(&name),
                }
            }
        }
        Some(found)
    }

    /// No jump is put at this function's entry.
    fn give_up(&self, name: &str) {
        locked(&self.impossible).insert(name.to_owned());
    }

    /// Where the calls of a gate are led in a process whose gates begin at `start`.
    fn gate(&self, number: usize, start: u64) -> Gate {
        let counts = start + self.calls.len() as u64 * GATE_BYTES;
        let counted = self.calls.get(number).is_some_and(|c| c.every > 1);
        Gate {
            at: Avma(start + number as u64 * GATE_BYTES),
            count: counted.then(|| Avma(counts + number as u64 * COUNT_BYTES)),
        }
    }

    /// What was found in a module.
    fn of(&self, index: usize) -> Option<Arc<Vec<Gated>>> {
        let found = locked(&self.modules).get(&index).map(Arc::clone);
        found.filter(|found| !found.is_empty())
    }

    /// What the user should know if no call has begun the recording.
    pub(crate) fn remark(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let impossible = locked(&self.impossible);
        if !impossible.is_empty() {
            let all: Vec<_> = impossible.iter().take(3).map(String::as_str).collect();
            return Some(format!(
                "calls could not be waited for: {} (no jump can be put at the entry, it is not the file's, or too many \
                 functions; name a caller, or use --shadow)",
                all.join(", ")
            ));
        }
        let has_any = locked(&self.modules)
            .values()
            .any(|found| !found.is_empty());
        (!has_any).then(|| {
            let globs: Vec<_> = self.calls.iter().map(|c| c.text.as_str()).collect();
            format!(
                "no function of what was loaded for a while matches --start-on {} (names: sptrace analyze --functions)",
                globs.join(", ")
            )
        })
    }

    /// Sees to it that nobody waits for long.
    fn guard(&self, pid: u32) -> Result<(), TraceeError> {
        let mut watched = locked(&self.watched);
        for w in watched
            .iter_mut()
            .filter(|w| w.pid == pid && w.guard.is_none())
        {
            w.guard = Some(Guard::spawn(
                &w.descriptor,
                w.start,
                self.calls.len() as u64,
            )?);
        }
        Ok(())
    }

    /// Nobody waits at a process's gates any more, and nobody will.
    fn forget(&self, pid: u32) {
        locked(&self.watched).retain(|w| w.pid != pid);
    }
}

fn name_of(cached: &Cached, svma: Svma) -> String {
    cached
        .named_at(svma)
        .map_or_else(|| unnamed(svma), |(_, name)| sptrace_trace::demangle(name))
}

/// The gates as a source of events: a thread has come to one.
pub(crate) struct Watch(Arc<Gates>);

impl Source for Watch {
    fn descriptors(&self) -> Vec<RawFd> {
        locked(&self.0.watched)
            .iter()
            .map(|w| w.descriptor.as_raw_fd())
            .collect()
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        for w in locked(&self.0.watched).iter() {
            for gate in waiting_at(&w.descriptor, w.start) {
                let Some(awaited) = self.0.calls.get(gate) else {
                    continue;
                };
                found.push(Occurrence {
                    event: awaited.event,
                    tsc: clock::tsc(),
                    pid: w.pid,
                    detail: String::new(),
                });
            }
        }
    }
}
