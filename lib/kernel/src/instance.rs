//! An instance of the kernel's tracing that is ours alone.
//!
//! Given a [`Tracefs`]; makes an instance, in which events, processes, clock and buffers are chosen
//! without touching what others trace, and removes it in the end. An instance bears our process's
//! number and start: one whose process is gone is removed by [`remove_left_over`].
//!
//! Must not know: which events there are, and what their records mean.

use crate::error::KernelError;
use crate::tracefs::{self, Tracefs};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How our instances begin; the process's number and start follow.
const NAME: &str = "sptrace-";

/// See the module.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Makes one, switched off, with the processor's time stamp counter for a clock.
    ///
    /// # Errors
    /// The kernel refuses, or has no such clock.
    pub fn create(tracefs: &Tracefs) -> Result<Self, KernelError> {
        let pid = std::process::id();
        let started = started(pid).unwrap_or(0);
        let name = format!("{NAME}{pid}-{started}");
        let path = tracefs.root().join("instances").join(name);
        std::fs::create_dir(&path).map_err(KernelError::of(&path))?;
        let instance = Self { path };
        instance.set("tracing_on", "0")?;
        if instance.set("trace_clock", "x86-tsc").is_err() {
            return Err(KernelError::NoClock);
        }
        Ok(instance)
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, file: &str, text: &str) -> Result<(), KernelError> {
        tracefs::write(&self.path.join(file), text)
    }

    /// Adds to one of its files what it has.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, file: &str, text: &str) -> Result<(), KernelError> {
        let path = self.path.join(file);
        let opened = File::options().append(true).open(&path);
        let added = opened.and_then(|mut f| f.write_all(text.as_bytes()));
        added.map_err(KernelError::of(&path))
    }

    /// One of its files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// The processors that have a buffer.
    pub fn processors(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(self.path.join("per_cpu"))
            .into_iter()
            .flatten();
        let mut numbers: Vec<u32> = entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Switches an instance off and removes it. Busy for as long as somebody reads it.
fn remove(path: &Path) -> bool {
    let _ = std::fs::write(path.join("tracing_on"), "0");
    let _ = std::fs::write(path.join("events/enable"), "0");
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
            let (pid, start) = name.strip_prefix(NAME)?.split_once('-')?;
            Some((pid.parse::<u32>().ok()?, start.parse::<u64>().ok()?))
        });
        let Some((pid, start)) = owner else { continue };
        if started(pid) == Some(start) {
            continue;
        }
        match remove(&entry.path()) {
            true => removed += 1,
            false => kept.push(entry.path()),
        }
    }
    (removed, kept)
}

/// When a process was started, in ticks since the machine's (proc_pid_stat(5), starttime).
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}
