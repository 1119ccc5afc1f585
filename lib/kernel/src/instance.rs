//! An instance of the kernel's tracing that is ours alone.
//!
//! Given a [`Tracefs`]; makes an instance, in which events, processes, clock and buffers are chosen
//! without touching what others trace, and removes it in the end. An instance bears our process's
//! number and start: one whose process is gone is removed by [`remove_left_over`].
//!
//! Must not know: which events there are, and what their records mean.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::owner::Owner;
use crate::tracefs::Tracefs;
use std::path::{Path, PathBuf};

/// How our instances begin; the process's number and start follow.
const NAME: &str = "sptrace-";
/// The same of those for switches between tasks.
const SWITCHES: &str = "switches-of-sptrace-";

/// See the module.
#[derive(Debug)]
pub struct Instance {
    folder: Folder,
}

impl Instance {
    /// Makes one, switched off, with the processor's time stamp counter for a clock.
    ///
    /// # Errors
    /// The kernel refuses, or has no such clock.
    pub fn create(tracefs: &Tracefs) -> Result<Self, KernelError> {
        Self::named(tracefs, NAME)
    }

    /// Another one, for switches between all tasks of the machine: who had a processor while a task
    /// could not run is seen there alone.
    ///
    /// # Errors
    /// As for the first one.
    pub fn create_for_switches(tracefs: &Tracefs) -> Result<Self, KernelError> {
        Self::named(tracefs, SWITCHES)
    }

    fn named(tracefs: &Tracefs, prefix: &str) -> Result<Self, KernelError> {
        let name = format!("{prefix}{}", Owner::me().name('-'));
        let path = tracefs.root().join("instances").join(name);
        std::fs::create_dir(&path).map_err(KernelError::of(&path))?;
        let folder = Folder::new(path);
        let instance = Self { folder };
        instance.folder.set("tracing_on", "0")?;
        if instance.folder.set("trace_clock", "x86-tsc").is_err() {
            return Err(KernelError::NoClock);
        }
        Ok(instance)
    }

    /// Its files.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(self.folder.root());
    }
}

/// Switches an instance off and removes it. Busy for as long as somebody reads it.
fn remove(path: &Path) -> bool {
    let _ = std::fs::write(path.join("tracing_on"), "0");
    let _ = std::fs::write(path.join("events/enable"), "0");
    let _ = std::fs::write(path.join("current_tracer"), "nop");
    std::fs::remove_dir(path).is_ok()
}

/// Removes the instances of processes that are gone; gives how many there were, and those that
/// cannot be.
pub fn remove_left_over(tracefs: &Tracefs) -> (usize, Vec<PathBuf>) {
    let entries = std::fs::read_dir(tracefs.root().join("instances"));
    let mut removed = 0;
    let mut kept = Vec::new();
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let for_switches = name.strip_prefix(SWITCHES);
            for_switches.or_else(|| name.strip_prefix(NAME))
        });
        let Some(owner) = owner.and_then(|name| Owner::of(name, '-')) else {
            continue;
        };
        if owner.is_alive() {
            continue;
        }
        match remove(&entry.path()) {
            true => removed += 1,
            false => kept.push(entry.path()),
        }
    }
    (removed, kept)
}
