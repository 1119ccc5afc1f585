//! Return points that the agent has left alone, since another thread might have stood there, are
//! patched a moment later, with all threads stopped.
//!
//! A process that is attached to has run before anybody saw it, so where it has several threads the
//! agent cannot know who stands where. Most functions are reached in the first moments: the pauses
//! between two looks become longer. Given processes as they were prepared; must not know what
//! return points are for.

use std::sync::atomic::Ordering;
use std::time::Instant;

use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::Command;
use sptrace_tracee::maps::LiveMaps;
use sptrace_tracee::threads::{Thread, Threads};
use sptrace_tracee::{TraceeError, program, seccomp};
use sptrace_wire::attach::{COMMAND_POINTS, RESULT_DONE};

use super::detach::let_out;
use crate::live::prepare::Prepared;
use crate::session::Session;

impl Session {
    /// What is left of this process from here on is patched in time.
    pub(crate) fn begin_points(&mut self, mut prepared: Prepared) {
        // One that has gone, or another program by now, has none.
        self.points.begin(Box::new(move |session| {
            let result = session.patch_points_of(&mut prepared);
            if let Err(e) = &result {
                log::info!("process {}: return points stay left: {e}", prepared.pid);
            }
            result.is_ok()
        }));
    }

    /// Patches the return points that were left alone, if it is time for that.
    pub(crate) fn patch_points_left(&mut self) {
        let left = &self.shared.arena.control().points_left;
        if let Some(mut all) = self.points.due(left.load(Ordering::Relaxed)) {
            all.retain_mut(|patch| patch(self));
            self.points.go_on(all);
        }
    }

    fn patch_points_of(&self, prepared: &mut Prepared) -> Result<(), TraceeError> {
        let pid = prepared.pid;
        let carrier = Carrier::new(pid, &self.shared.arena, &self.image, &prepared.maps)?;
        let live = LiveMaps::open(pid)?;
        let begun = Instant::now();
        let mut threads = Threads::stop_all(pid, &|| self.obey_beside(pid))?;
        let result = self.patch_points_stopped(prepared, &carrier, &live, &mut threads);
        threads.release();
        let elapsed_us = begun.elapsed().as_micros();
        log::info!("process {pid}: stopped for return points for {elapsed_us} us");
        result
    }

    fn patch_points_stopped(
        &self,
        prepared: &mut Prepared,
        carrier: &Carrier<'_>,
        live: &LiveMaps,
        threads: &mut Threads,
    ) -> Result<(), TraceeError> {
        let arena = &self.shared.arena;
        program::check(prepared.pid, &prepared.memory)?;
        for t in threads.all() {
            seccomp::check(t.tid)?;
        }
        // If one stays inside of the agent it is tried again when more are left.
        if !let_out(carrier, threads, &|| self.obey_beside(prepared.pid))? {
            return Ok(());
        }
        let stopped: Vec<Thread> = threads.all().copied().collect();
        let command = Command {
            command: COMMAND_POINTS,
            ..self.adopting(prepared, live, &stopped)
        };
        let sent = command.send(arena)?;
        let errand = Errand::Call { block: sent.block };
        carrier.lead(threads, stopped[0], errand, &|| sent.is_done(arena))?;
        match sent.result(arena) {
            RESULT_DONE => Ok(()),
            _ => Err(TraceeError::NoRoom("the agent could not patch them")),
        }
    }
}
