//! Modules that a process has mapped and may ask for soon: what was read of them, and plans that
//! are made ready while it runs on.
//!
//! Given by who looks at what is mapped, and by who has time; each is taken once. Must not know how
//! plans are made, and whether it is worth it.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sptrace_code::{Cached, Plan};
use sptrace_tracee::maps::Mapping;

use super::learned::Learned;

/// A file: see [`Mapping::file`].
type File = (String, u64);

/// What is kept of a file, and by which path it was opened.
pub(crate) type Opened = (Arc<Cached>, PathBuf);

/// A module whose plan the agents can have.
pub(crate) struct Ready {
    pub(crate) cached: Arc<Cached>,
    pub(crate) plan: Plan,
    /// Where that is in the arena.
    pub(crate) plan_offset: u64,
    pub(crate) learned: Option<Learned>,
}

/// Those of a recording.
#[derive(Default)]
pub(crate) struct Expected(Mutex<State>);

#[derive(Default)]
struct State {
    opened: HashMap<File, Opened>,
    /// Those that nobody has thought about.
    next: VecDeque<Mapping>,
    ready: HashMap<File, Ready>,
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of a file that is mapped here was read.
    pub(crate) fn add(&self, m: &Mapping, opened: Opened) {
        let mut state = self.lock();
        state.opened.insert(m.file.clone(), opened);
        state.next.push_back(m.clone());
    }

    /// The next that may be asked for, with what was read of it; it is not named again.
    pub(crate) fn next(&self) -> Option<(Mapping, Opened)> {
        let mut state = self.lock();
        loop {
            let m = state.next.pop_front()?;
            // Otherwise it was asked for meanwhile.
            if let Some((cached, path)) = state.opened.get(&m.file) {
                let opened = (Arc::clone(cached), path.clone());
                return Some((m, opened));
            }
        }
    }

    /// What was read of a file.
    pub(crate) fn take_opened(&self, file: &File) -> Option<Opened> {
        self.lock().opened.remove(file)
    }

    /// The plan of a file is ready.
    pub(crate) fn put(&self, file: File, ready: Ready) {
        let mut state = self.lock();
        state.opened.remove(&file);
        state.ready.insert(file, ready);
    }

    /// It is asked for.
    pub(crate) fn take(&self, file: &File) -> Option<Ready> {
        self.lock().ready.remove(file)
    }
}
