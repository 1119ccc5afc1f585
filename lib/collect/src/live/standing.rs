//! A command that stands still before it runs by itself, until its calls lead over gates.
//!
//! Given a command at its exec stop, and functions of which a call begins the recording; has the
//! libraries that it begins with mapped, prepares it where it stands ([`crate::live::ahead`]), and
//! lets it go. So the first call of such a function is met however short the program is. What it
//! maps later, and what it executes or forks, is looked at while it runs, and so are programs that
//! may sample themselves. Whatever fails here is tried again then.

use sptrace_tracee::threads::Threads;
use sptrace_tracee::{TraceeError, limits, loaded, program, ptrace};

use crate::live::ahead::Ahead;
use crate::live::prepare::Looked;
use crate::session::Session;
use crate::unfollowed::may_enter;

impl Session {
    /// Lets a command go that stands at its exec stop: with gates, if there are to be any.
    pub(crate) fn let_go_prepared(&mut self, child: u32, ahead: &mut Ahead) {
        let has_gates = !self.shared.reactor.gates().is_empty();
        let is_fit = || !limits::has_memory_limit(child) && !program::may_sample_itself(child);
        if has_gates && is_fit() && may_enter(child).is_ok() {
            self.standing.set(Some(child));
            // Its end, or what stands in the way, is seen below.
            let _ = self.prepare_standing(child, ahead);
            self.standing.set(None);
        }
        // Fails only if it has been killed at this very stop: its end is seen below.
        let _ = ptrace::detach(child, 0);
    }

    fn prepare_standing(&mut self, child: u32, ahead: &mut Ahead) -> Result<(), TraceeError> {
        loaded::wait_until_loaded(child)?;
        let looked = Looked::at(&self.shared, child)?;
        self.prepare_ahead(looked, ahead);
        Ok(())
    }

    /// As [`Threads::stop_one`], of a process that may be standing.
    pub(crate) fn stop_one(&self, pid: u32) -> Result<Threads, TraceeError> {
        match self.standing.get() == Some(pid) {
            true => Threads::standing(pid),
            false => Threads::stop_one(pid, &|| self.obey_all()),
        }
    }

    /// As [`Threads::stop_all`], of a process that may be standing.
    pub(crate) fn stop_all(&self, pid: u32) -> Result<Threads, TraceeError> {
        match self.standing.get() == Some(pid) {
            true => Threads::standing(pid),
            false => Threads::stop_all(pid, &|| self.obey_beside(pid)),
        }
    }
}
