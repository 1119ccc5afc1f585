//! A command that runs by itself until an event, is recorded from there on, and runs by itself again after
//! the recording's end.
//!
//! Until the event it executes nothing of ours; what the agent needs lies in it, prepared ([`crate::ahead`]). The
//! recording begins and ends as that of a process that is attached to ([`crate::attach`]), with the command's
//! processes of that moment.

use std::ffi::CString;
use std::sync::Arc;

use sptrace_trace::ExitStatus;
use sptrace_tracee::{TraceeError, ptrace};

use crate::ahead::{Ahead, Looker};
use crate::alive::is_alive;
use crate::session::{Finished, Session};

impl Session {
    /// Runs the command to its end, and records it from the event on.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run_later(mut self, argv: &[CString]) -> Result<Finished, TraceeError> {
        let child = self.launch(argv)?;
        self.record(child, |session| {
            ptrace::detach(child, 0)?;
            Ok(session.live(child))
        })
    }

    /// From the command's start to its end.
    fn live(&mut self, child: u32) -> ExitStatus {
        let looker = Looker::spawn(&self.shared, child);
        let mut ahead = Ahead::default();
        let mut status = None;
        while status.is_none() && !self.shared.reactor.is_started() {
            self.wait_and_forward(child);
            status = self.serve_and_reap(child);
            self.prepare_found(&looker, &mut ahead);
        }
        if let Some(status) = status {
            looker.end();
            // Of those that outlive the command.
            self.detach_all();
            return status;
        }
        let shared = Arc::clone(&self.shared);
        self.attach_all(child, looker, &mut ahead, &|| shared.reactor.begin());
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
}
