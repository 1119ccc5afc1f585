//! A command that runs by itself until an event begins the recording, and by itself again after the
//! recording's end, as often as was asked for ([`crate::windows`]).
//!
//! Until the event the command executes nothing of ours; what the agent needs lies prepared in it
//! ([`crate::live::ahead`]). The recording begins and ends as that of a process that is attached to
//! ([`crate::live::attach`]), with the processes that the command has at that moment.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use sptrace_trace::ExitStatus;
use sptrace_tracee::{TraceeError, eligible};

use crate::event::switch::Switch;
use crate::live::ahead::{Ahead, Looker, family};
use crate::react;
use crate::session::{Finished, Session};

impl Session {
    /// Runs the command to its end, and records it from the event on.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run_later(mut self, argv: &[CString]) -> Result<Finished, TraceeError> {
        let child = self.launch(argv)?;
        let result = self.record(child, |session| {
            let mut ahead = Ahead::default();
            session.let_go_prepared(child, &mut ahead);
            Ok(session.live(child, ahead))
        });
        result.inspect_err(|_| sptrace_tracee::launch::take_back(child))
    }

    /// From the command's start to its end.
    fn live(&mut self, child: u32, mut ahead: Ahead) -> ExitStatus {
        while self.begin_window(child, std::mem::take(&mut ahead)) && self.window_goes_on() {}
        self.wait_for_command()
    }

    /// The same of a command that is recorded from its start, and whose recording pauses and goes
    /// on when somebody asks for that.
    pub(crate) fn live_on(&mut self, child: u32) -> ExitStatus {
        while self.window_goes_on() && self.begin_window(child, Ahead::default()) {}
        self.wait_for_command()
    }

    /// Records until an event ends the window. False: there will be no other.
    fn window_goes_on(&mut self) -> bool {
        if self.until_stopped() {
            return false;
        }
        self.detach_all();
        self.end_window() && self.ended.is_none()
    }

    fn wait_for_command(&mut self) -> ExitStatus {
        // The recording has ended, whatever the command does still.
        self.kernel.end();
        loop {
            self.serve();
            if let Some(status) = self.ended {
                return status;
            }
            self.wait_and_forward();
        }
    }

    /// Waits for an event that begins the recording, or for a call that could become one, and
    /// attaches. `ahead`: what is prepared already. False: there will be none.
    fn begin_window(&mut self, child: u32, mut ahead: Ahead) -> bool {
        let looker = Looker::spawn(&self.shared, child);
        while self.ended.is_none()
            && !self.is_stopped()
            && self.shared.reactor.windows().is_waiting()
        {
            self.wait_and_forward();
            self.serve();
            self.prepare_found(&looker, &mut ahead);
        }
        if self.ended.is_some() || self.is_stopped() {
            looker.end();
            // Of those that outlive the command.
            self.detach_all();
            return false;
        }
        let shared = Arc::clone(&self.shared);
        self.attach_all(child, looker, &mut ahead, &|| shared.reactor.begin());
        self.kernel.begin(&shared, &family(child));
        if !shared.reactor.windows().was_followed() {
            shared.reactor.tell_window(false);
        }
        true
    }

    /// Records. True: all have ended; false: an event has ended the recording.
    fn until_stopped(&mut self) -> bool {
        while !self.is_stopped() && !self.shared.reactor.windows().is_ending() {
            self.serve();
            self.patch_points_left();
            if self.all_ended().is_some() {
                return true;
            }
            self.wait_and_forward();
        }
        false
    }

    /// Brings what was recorded to its end, after all processes were let go. True: there may be a
    /// next time.
    fn end_window(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        if self.is_held() && shared.reactor.windows().is_ending() {
            // What stood in the way may be over.
            self.kept.clear();
            self.detach_all();
        }
        if self.is_held() {
            if shared.reactor.windows().is_ending() {
                let why = "recording does not begin again: not all processes could be let go";
                self.remarks.push(why.to_owned());
            }
            return false;
        }
        let mut c = shared.lock();
        c.end_window(&shared.arena);
        react::collected(&shared, &mut c);
        if shared.reactor.switch().is_some_and(Switch::takes_change) {
            c.forget_plans();
        }
        !c.has_failed() && !self.is_stopped() && react::window_ended(&shared, &mut c)
    }

    /// The recording of processes that were attached to pauses, until it is asked to go on. False:
    /// it does not, since its time is over, or they are.
    pub(crate) fn pause_attached(&mut self, attached: &[u32], is_over: &dyn Fn() -> bool) -> bool {
        self.detach_all();
        if !self.end_window() {
            return false;
        }
        while self.shared.reactor.windows().is_waiting() {
            self.serve();
            let is_there = attached.iter().any(|pid| !eligible::has_ended(*pid));
            if !is_there || is_over() || self.wait_for_end(Duration::from_millis(100)) {
                return false;
            }
        }
        for &first in attached {
            self.attach_family(first, &[]);
        }
        self.shared.reactor.begin();
        true
    }

    /// A process has memory of ours still.
    fn is_held(&self) -> bool {
        let holders = eligible::holders(&self.shared.arena);
        holders
            .into_iter()
            .any(|pid| !eligible::is_vfork_child(pid))
    }
}
