//! Return points that the agent has left alone, since another thread might have stood there, are
//! patched a moment later, with all threads stopped.
//!
//! In a process of several threads the agent cannot know who stands where, once code has run whose
//! calls are not seen: before it was attached to, or since the program generates code. Most
//! functions are reached in the first moments: the pauses between two looks become longer. Finds
//! the processes that the agent is in by itself. Must not know what return points are for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::Command;
use sptrace_tracee::maps::LiveMaps;
use sptrace_tracee::proc::{self, Status};
use sptrace_tracee::threads::{self, Thread, Threads};
use sptrace_tracee::{TraceeError, eligible, program, seccomp};
use sptrace_wire::attach::{COMMAND_POINTS, RESULT_DONE};

use super::detach::let_out;
use crate::live::points_left::Acted;
use crate::live::prepare::Prepared;
use crate::numbers;
use crate::session::{Patching, Session};

impl Session {
    /// What is left of this process from here on is patched in time.
    pub(crate) fn begin_points(&mut self, prepared: Prepared) {
        self.points.begin(prepared.pid, patching(prepared));
    }

    /// Patches the return points that were left alone, where it is time for that.
    pub(crate) fn patch_points_left(&mut self) {
        let shared = Arc::clone(&self.shared);
        let left = shared.arena.control().points_left.load(Ordering::Relaxed) as u32;
        if !self.points.is_time(left) {
            return;
        }
        if self.points.shall_search(left) {
            let begun = Instant::now();
            let is_done = self.find_points_left();
            self.points.searched(left, is_done, begun.elapsed());
        }
        let mut acted = Vec::new();
        while let Some(mut one) = self
            .points
            .due(|pid| numbers::points_left(&shared.arena, pid))
        {
            let result = (one.act)(self);
            acted.push((one, result));
        }
        for (one, result) in acted {
            self.points.go_on(one, result);
        }
    }

    /// Looks for a process that the agent is in by itself. False: there may be more. To know how
    /// stacks of a large program are walked takes half a second, in which none is patched.
    fn find_points_left(&mut self) -> bool {
        let own = std::process::id();
        let others = proc::processes().into_iter().filter(|pid| *pid != own);
        let others = others.filter(|pid| !self.points.knows(*pid) && may_have_left(*pid));
        // To read what a large process has mapped takes long, too.
        let mut others = others.filter(|pid| eligible::holds(*pid, &self.shared.arena));
        let found = others.find_map(|pid| match Prepared::of_followed(pid) {
            Ok(prepared) => Some(prepared),
            Err(e) => {
                log::info!("process {pid}: its stacks cannot be walked: {e}");
                None
            }
        });
        let is_done = found.is_none();
        if let Some(prepared) = found {
            self.points.found(prepared.pid, patching(prepared));
        }
        is_done
    }

    /// An error: this is not known of the process any more.
    fn patch_points_of(&self, prepared: &mut Prepared) -> Result<Acted, TraceeError> {
        let pid = prepared.pid;
        program::check(pid, &prepared.memory)?;
        if prepared.has_other_modules() {
            *prepared = Prepared::of_followed(pid)?;
        }
        if prepared.walker.knows_lanes() {
            // Stacks that no thread is on are not walked, and who waits there may stand anywhere.
            return Ok(Acted::In(Duration::ZERO));
        }
        let is_busy = |tid: &u32| {
            // All others would stand until it comes, or it is held for an exec.
            let status = Status::of_thread(pid, *tid);
            threads::state(pid, *tid) == Some('D') || status.is_ok_and(|s| s.tracer().is_some())
        };
        if eligible::check(pid).is_err() || proc::threads(pid).iter().any(is_busy) {
            return Ok(Acted::NotNow);
        }
        let carrier = Carrier::new(pid, &self.shared.arena, &self.image, &prepared.maps)?;
        let live = LiveMaps::open(pid)?;
        let begun = Instant::now();
        let stopped = Threads::stop_all(pid, &|| self.obey_beside_for_now(pid));
        let result = stopped.and_then(|mut threads| {
            let result = self.patch_points_stopped(prepared, &carrier, &live, &mut threads);
            threads.release();
            result
        });
        let elapsed = begun.elapsed();
        self.obey_late();
        let elapsed_us = elapsed.as_micros();
        log::info!("process {pid}: stopped for return points for {elapsed_us} us");
        result.map(|is_done| match is_done {
            true => Acted::In(elapsed),
            false => Acted::NotNow,
        })
    }

    /// False: it is to be tried again.
    fn patch_points_stopped(
        &self,
        prepared: &mut Prepared,
        carrier: &Carrier<'_>,
        live: &LiveMaps,
        threads: &mut Threads,
    ) -> Result<bool, TraceeError> {
        let arena = &self.shared.arena;
        program::check(prepared.pid, &prepared.memory)?;
        for t in threads.all() {
            seccomp::check(t.tid)?;
        }
        if !let_out(carrier, threads, &|| self.obey_beside_for_now(prepared.pid))? {
            return Ok(false);
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
            RESULT_DONE => Ok(true),
            _ => Err(TraceeError::NoRoom("the agent could not patch them")),
        }
    }
}

fn patching(mut prepared: Prepared) -> Patching {
    Box::new(move |session| {
        let result = session.patch_points_of(&mut prepared);
        if let Err(e) = &result {
            log::info!("process {}: return points stay left: {e}", prepared.pid);
        }
        result.unwrap_or(Acted::Gone)
    })
}

/// Somebody could have stood where return points are: it has several threads, or a handler may have
/// interrupted the only one. A vfork child stands in what is its parent's.
fn may_have_left(pid: u32) -> bool {
    let has_handlers = || {
        let status = Status::of(pid);
        status.is_ok_and(|status| (1..=64).any(|signal| status.catches(signal)))
    };
    (proc::threads(pid).len() > 1 || has_handlers()) && !eligible::is_vfork_child(pid)
}
