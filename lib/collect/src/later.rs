//! A command that runs by itself until an event, is recorded from there on, and runs by itself again after
//! the recording's end.
//!
//! Until the event nothing of ours is in it; the recording begins and ends as that of a process that is
//! attached to ([`crate::attach`]), with the command's processes of that moment.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sptrace_trace::ExitStatus;
use sptrace_tracee::{TraceeError, eligible, maps, ptrace};

use crate::alive::is_alive;
use crate::attach::explained;
use crate::session::{Finished, Session};
use crate::shared::Shared;

/// How often the command's modules are looked at while nothing is recorded.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Session {
    /// Runs the command to its end, and records it from the event on.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run_later(self, argv: &[CString]) -> Result<Finished, TraceeError> {
        let child = self.launch(argv)?;
        self.record(child, |session| {
            ptrace::detach(child, 0)?;
            Ok(session.live(child))
        })
    }

    /// From the command's start to its end.
    fn live(&mut self, child: u32) -> ExitStatus {
        let shared = Arc::clone(&self.shared);
        let analyst = std::thread::spawn(move || analyse_ahead(&shared, child));
        let mut status = None;
        while status.is_none() && !self.shared.reactor.is_started() {
            self.wait_and_forward(child);
            status = self.serve_and_reap(child);
        }
        let _ = analyst.join();
        if let Some(status) = status {
            let nothing = "nothing was recorded: no event of --start-on happened";
            self.remarks.push(nothing.to_owned());
            return status;
        }
        self.attach_all(child);
        self.shared.reactor.begin();
        while !self.is_stopped() {
            status = self.serve_and_reap(child).or(status);
            if let Some(status) = status {
                let mut c = self.shared.lock();
                if c.end_dead_streams(&self.shared.arena, &is_alive) == 0 {
                    return status;
                }
            }
            self.wait_and_forward(child);
        }
        self.detach_all();
        loop {
            if let Some(status) = status {
                return status;
            }
            status = self.serve_and_reap(child);
            self.wait_and_forward(child);
        }
    }

    /// Attaches to the command and what it has started.
    fn attach_all(&mut self, child: u32) {
        let refuse = |session: &mut Self, pid: u32, why: String| {
            session
                .remarks
                .push(format!("pid {pid} runs untraced: {why}"));
        };
        for pid in family(child) {
            if let Err(e) = eligible::check(pid) {
                refuse(self, pid, e.to_string());
            } else if let Err(e) = self.attach_to(pid) {
                let gone = matches!(e, TraceeError::Gone) && pid != child;
                if !gone {
                    refuse(self, pid, explained(pid, e).to_string());
                }
            }
        }
    }
}

/// Analyses the modules of a process until the event, so that nobody waits for that then.
fn analyse_ahead(shared: &Shared, pid: u32) {
    let mut seen = BTreeSet::new();
    while !shared.ended.load(Ordering::Acquire) && !shared.reactor.is_started() {
        let Ok(maps) = maps::read(pid) else { return };
        let code = maps.iter().filter(|m| m.access[2] && m.file.1 != 0);
        for m in code.filter(|m| !shared.options.leaves_out(&m.path)) {
            if seen.insert(m.file.clone()) {
                // Why one is left out is said when it is asked for.
                let _ = shared.module(pid, m);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A process and its descendants, parents first.
fn family(first: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![first];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|p| p.1 == parent).map(|p| p.0);
        found.extend(children);
        next += 1;
    }
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
