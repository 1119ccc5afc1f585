//! What tasks are called: as the kernel's records have said it, since a task may have ended when
//! its name is wanted; else as /proc has it.
//!
//! Must not know: what tasks do.

use crate::source::task_name;
use sptrace_tracee::proc;
use std::collections::{HashMap, HashSet};

/// See the module.
#[derive(Debug, Default)]
pub struct TaskNames {
    names: HashMap<u32, String>,
    /// Threads of ours, which are named by what they do.
    own: HashSet<u32>,
}

impl TaskNames {
    /// Nothing known yet, but which tasks are ours.
    pub fn new(own: &[u32]) -> Self {
        Self {
            names: HashMap::new(),
            own: own.iter().copied().collect(),
        }
    }

    /// A record has said it.
    pub fn saw(&mut self, tid: u32, name: String) {
        match self.names.get_mut(&tid) {
            Some(known) if *known == name => {}
            _ => drop(self.names.insert(tid, name)),
        }
    }

    /// As it is shown.
    pub fn of(&mut self, tid: u32) -> String {
        let name = self.names.entry(tid);
        let name = task_name(name.or_insert_with(|| proc::thread_name(tid, tid)));
        match self.own.contains(&tid) && !name.starts_with("sptrace") {
            true => format!("sptrace ({name})"),
            false => name,
        }
    }
}
