//! The source of crashes of processes that are not our children: `crash`.
//!
//! Given the numbers of the processes that record; holds a pidfd of each and learns how it ended. Its parent
//! may reap it at once: then Linux tells from 6.15 on (PIDFD_GET_INFO), before that only a process that is
//! still a zombie can be asked. A process that lives for less than [`LOOK`] may be missed. The command itself
//! is our child, and its end is known anyway.

use super::parse::signal_name;
use super::{Occurrence, Source};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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
        // One that has ended is forgotten when it does not record any more: the number may come again.
        self.watched
            .retain(|pid, held| held.is_some() || pids.contains(pid));
        for pid in pids {
            self.watched.entry(pid).or_insert_with(|| open(pid));
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
            let Some(process) = held.as_ref().filter(|fd| is_readable(fd)) else {
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

fn open(pid: u32) -> Option<OwnedFd> {
    // SAFETY: gives a descriptor of our own or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: a fresh descriptor.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut one = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry of ours.
    unsafe { libc::poll(&raw mut one, 1, 0) > 0 }
}

/// The signal that killed a process that has ended; `None`: it exited, or nobody can tell.
fn killed_by(pid: u32, process: &OwnedFd) -> Option<i32> {
    // The pidfd knows after it was reaped, /proc before: one of them does, in this order.
    let status = status_of_zombie(pid).or_else(|| status_of_reaped(process))?;
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

/// The last field of a zombie's `stat` (proc_pid_stat(5)).
fn status_of_zombie(pid: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    const EXIT_CODE: usize = 52 - 3;
    let is_zombie = matches!(fields.first(), Some(&"Z"));
    fields
        .get(EXIT_CODE)
        .filter(|_| is_zombie)
        .and_then(|code| code.parse().ok())
}

/// `struct pidfd_info` of linux/pidfd.h in its first size.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

fn status_of_reaped(process: &OwnedFd) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    const GET_INFO: u64 = 0xc000_ff0b | (size_of::<PidfdInfo>() as u64) << 16;
    let mut info = PidfdInfo {
        mask: EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the request's size is that of the structure.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO, &raw mut info) };
    (done == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
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
