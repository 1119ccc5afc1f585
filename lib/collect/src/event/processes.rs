//! The source of crashes of processes that are not our children: `crash`.
//!
//! Given the numbers of the processes that record; holds a pidfd of each and learns how it ended.
//! Its parent may reap it at once: then Linux tells from 6.15 on (PIDFD_GET_INFO), before that only
//! a process that is still a zombie can be asked. A process that lives for less than [`LOOK`] may
//! be missed. The command itself is our child, and its end is known anyway.

use super::parse::signal_name;
use super::{Occurrence, Source};
use sptrace_tracee::pidfd;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How often new processes are looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Gives the numbers of the processes that record.
pub type Pids = Box<dyn Fn() -> Vec<u32> + Send>;

/// The processes that record.
pub struct Processes {
    events: Vec<usize>,
    pids: Pids,
    /// `None`: cannot be watched.
    watched: BTreeMap<u32, Option<OwnedFd>>,
    due: Instant,
}

impl Processes {
    /// Watches for `events`.
    pub fn new(events: Vec<usize>, pids: Pids) -> Self {
        Self {
            events,
            pids,
            watched: BTreeMap::new(),
            due: Instant::now(),
        }
    }

    fn find(&mut self) {
        let pids = (self.pids)();
        // One that has ended is forgotten when it does not record any more: the number may come
        // again.
        self.watched
            .retain(|pid, held| held.is_some() || pids.contains(pid));
        for pid in pids {
            self.watched.entry(pid).or_insert_with(|| pidfd::open(pid));
        }
    }
}

impl Source for Processes {
    fn descriptors(&self) -> Vec<RawFd> {
        let held = self.watched.values().flatten();
        held.map(AsRawFd::as_raw_fd).collect()
    }

    fn due(&self) -> Option<Instant> {
        Some(self.due)
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        self.due = Instant::now() + LOOK;
        for (pid, held) in &mut self.watched {
            let Some(process) = held.as_ref().filter(|fd| pidfd::has_ended(fd)) else {
                continue;
            };
            if let Some(signal) = killed_by(*pid, process) {
                found.extend(self.events.iter().map(|event| Occurrence {
                    event: *event,
                    tsc: crate::clock::tsc(),
                    pid: *pid,
                    detail: format!("process {pid} was killed by {}", signal_name(signal)),
                }));
            }
            *held = None;
        }
        self.find();
    }
}

/// The signal that killed a process that has ended; `None`: it exited, or nobody can tell.
fn killed_by(pid: u32, process: &OwnedFd) -> Option<i32> {
    let status = pidfd::status(pid, process)?;
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_killed_process_is_told_and_one_that_exits_is_not() {
        let wait = |script: &str| {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stderr(Stdio::null());
            let mut child = shell.spawn().expect("a shell");
            let pid = child.id();
            let mut source = Processes::new(vec![5], Box::new(move || vec![pid]));
            let mut found = Vec::new();
            source.look(&mut found);
            assert_eq!(source.descriptors().len(), 1);
            drop(child.stdin.take());
            // A zombie until the end of this: we do not wait for it.
            let until = Instant::now() + Duration::from_secs(20);
            while source.descriptors().len() == 1 && Instant::now() < until {
                source.look(&mut found);
                std::thread::sleep(Duration::from_millis(5));
            }
            child.wait().expect("it has ended");
            (pid, found)
        };
        let (pid, found) = wait("read x; kill -SEGV $$");
        let detail = format!("process {pid} was killed by SIGSEGV");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].event, &found[0].detail), (5, &detail));
        assert_eq!(wait("read x; exit 3").1, []);
    }
}
