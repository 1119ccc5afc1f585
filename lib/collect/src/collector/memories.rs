//! Descriptors of the memory of processes that the arena is mapped into.
//!
//! Given a process by its number in the recording and its pid; gives its memory to write to, as
//! long as it is the image that was meant. Must not know what is written.

use std::collections::HashMap;
use std::fs::File;

use sptrace_tracee::{maps, memory};

/// The memory of processes, by their numbers in the recording; `None`: it cannot be written.
#[derive(Default)]
pub(super) struct Memories(HashMap<u32, Option<File>>);

impl Memories {
    /// Of the process that has this number and `pid`, if the arena is mapped into it: whatever an
    /// agent claims, nobody else's.
    pub(super) fn of(&mut self, process: u32, pid: u32) -> Option<&File> {
        let opened = self.0.entry(process).or_insert_with(|| {
            // First: it stays that of this image, whatever the process becomes.
            let memory = memory::open_to_write(pid).ok()?;
            maps::is_traced(&maps::read(pid).ok()?).then_some(memory)
        });
        opened.as_ref()
    }

    /// It has ended.
    pub(super) fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }
}
