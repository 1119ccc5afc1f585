//! The events of a recording, and the copies of the ring that wait for being written.
//!
//! Given what the user asked for; gives what the other threads look up of it. Must not know how an
//! event comes about, or what the recording does then.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sptrace_trace::{Snapshot, Summary, index};

use crate::between::Between;
use crate::event::switch::Switch;
use crate::event::{Armed, Event, What};
use crate::live::gate::Gates;
use crate::output;
use crate::request::OnEvents;
use crate::windows::Windows;

/// Copies that wait for being written; more would take the memory of as many rings.
pub(super) const WAITING: usize = 2;

/// The events of a recording and what has come of them.
pub struct Reactor {
    pub(super) armed: Arc<Armed>,
    pub(super) asked: OnEvents,
    pub(super) output: PathBuf,
    /// The ring, if it is kept in memory.
    pub(super) ring: Option<File>,
    pub(super) waiting: Mutex<VecDeque<Dump>>,
    /// Copies made, and files written.
    pub(super) made: AtomicU64,
    pub(super) written: AtomicU64,
    /// Wakes the events thread, if there is one.
    pub(super) wake: Option<OwnedFd>,
    pub(super) ended: AtomicBool,
    /// For the calls that begin it, unless the command is followed.
    pub(super) gates: Arc<Gates>,
    /// It will be, for some of the events.
    pub(super) follows: bool,
    pub(super) windows: Arc<Windows>,
    pub(super) between: Arc<Between>,
    pub(super) causes: Mutex<Causes>,
}

/// The events, in words, by which windows begin and end.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// What has begun the present window, or will begin the next.
    pub(super) begun: String,
    /// What has ended the last.
    pub(super) ended: String,
}

/// A copy of the ring, to be written.
pub(super) struct Dump {
    pub(super) number: u64,
    pub(super) snapshot: Snapshot,
    pub(super) summary: Summary,
    pub(super) event: String,
    pub(super) events: u64,
}

impl Reactor {
    /// The ring in memory, if dumps were asked for.
    pub fn ring(&self) -> std::io::Result<Option<File>> {
        self.ring.as_ref().map(File::try_clone).transpose()
    }

    /// Signals that events wait for.
    pub fn signals(&self) -> Vec<i32> {
        let signal = |(_, event): (usize, &Event)| match event.what {
            What::Signal(signal) => Some(signal),
            _ => None,
        };
        self.armed.iter().filter_map(signal).collect()
    }

    /// How many dumps were written; `None`: none were asked for.
    pub fn dumps(&self) -> Option<u64> {
        self.ring.as_ref()?;
        Some(self.written.load(Ordering::Acquire))
    }

    /// Is what comes before the recording followed?
    pub fn is_followed(&self) -> bool {
        self.asked.shadow || self.windows.is_following()
    }

    /// How often the recording begins and ends.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Who looks at the recording and may switch it.
    pub fn switch(&self) -> Option<&Switch> {
        self.asked.switch.as_ref()
    }

    /// Processes that run already may be attached to, with what is open in them.
    pub fn attaches(&self) -> bool {
        let asked = &self.asked;
        !asked.is_launched || !asked.start_on.is_empty() || asked.switch.is_some()
    }

    /// The functions that are recorded between two events each.
    pub fn between(&self) -> &Between {
        &self.between
    }

    /// The recording begins now: time counts from here.
    pub fn begin(&self) {
        self.windows.begin();
        self.wake();
    }

    /// Tells the user where a recording of several stands.
    pub fn tell_window(&self, has_ended: bool) {
        let several = self.windows.several();
        // Who switches it sees that.
        let Some(times) = several.filter(|_| self.asked.switch.is_none()) else {
            return;
        };
        let (what, number) = (
            if has_ended { "has ended" } else { "begins" },
            self.windows.number(),
        );
        let causes = self.causes();
        let cause = if has_ended {
            &causes.ended
        } else {
            &causes.begun
        };
        (self.asked.say)(&format!("recording {number} of {times} {what} ({cause})"));
    }

    pub(super) fn causes(&self) -> MutexGuard<'_, Causes> {
        let causes = self.causes.lock();
        causes.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, VecDeque<Dump>> {
        let waiting = self.waiting.lock();
        waiting.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Of the calls that begin the recording.
    pub(crate) fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// True if nothing is waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.armed.is_empty()
    }

    pub(crate) fn wake(&self) {
        let one = 1u64;
        if let Some(wake) = &self.wake {
            // SAFETY: an eventfd takes eight bytes.
            unsafe { libc::write(wake.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Writes the copies that wait.
    pub(super) fn write_waiting(&self) -> Option<String> {
        let mut last = None;
        loop {
            let Some(dump) = self.waiting().pop_front() else {
                return last;
            };
            let path = numbered(&self.output, dump.number);
            let (place, event) = (path.display(), &dump.event);
            last = Some(match write(&dump, &path) {
                Ok(()) => {
                    self.written.fetch_add(1, Ordering::AcqRel);
                    let text = format!(
                        "dump {} written to {place} at {event}: the last {} events",
                        dump.number, dump.events
                    );
                    (self.asked.say)(&text);
                    text
                }
                Err(e) => {
                    let text = format!(
                        "cannot write dump {} to {place} at {event}: {e}",
                        dump.number
                    );
                    (self.asked.warn)(&text);
                    text
                }
            });
        }
    }
}

/// The first dump has the name that was given, the others a number after it.
pub fn numbered(output: &Path, number: u64) -> PathBuf {
    match number {
        0 | 1 => output.to_owned(),
        n => with_suffix(output, &format!(".{n}")),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes a dump under another name first: what has the name of a trace is whole.
pub(super) fn write(dump: &Dump, path: &Path) -> std::io::Result<()> {
    let partial = with_suffix(path, ".partial");
    let result = output::create(&partial)
        .and_then(|file| {
            let written = dump.snapshot.write(BufWriter::new(file), &dump.summary);
            written.map_err(std::io::Error::other)
        })
        .and_then(|()| {
            keep_old(path);
            std::fs::rename(&partial, path)
        });
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

/// Keeps a former trace as FILE.old, as perf and uftrace do, and what a report has left beside it.
pub fn keep_old(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        let old = with_suffix(path, ".old");
        let _ = std::fs::rename(path, &old);
        let (index, old_index) = (index::path_of(path), index::path_of(&old));
        let _ = std::fs::remove_file(&old_index);
        let _ = std::fs::rename(index, old_index);
    }
}
