//! What tasks are called: as the kernel's records have said it, since a task may have ended when
//! its name is wanted; else as /proc has it.
//!
//! Must not know: what tasks do.

use crate::source::task_name;
use sptrace_tracee::proc;
use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub struct TaskNames(HashMap<u32, String>);

impl TaskNames {
    /// A record has said it.
    pub fn saw(&mut self, tid: u32, name: String) {
        match self.0.get_mut(&tid) {
            Some(known) if *known == name => {}
            _ => drop(self.0.insert(tid, name)),
        }
    }

    /// As it is shown.
    pub fn of(&mut self, tid: u32) -> String {
        let name = self.0.entry(tid);
        task_name(name.or_insert_with(|| proc::thread_name(tid, tid)))
    }
}
