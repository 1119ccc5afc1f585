//! Keeps processes prepared that will be attached to at an event, while they run by themselves.
//!
//! A thread of the host, the *looker*, looks at the command and its descendants again and again and
//! analyses what is new. It passes on each process whose modules have stayed the same for a while
//! ([`Looked`]), and the session's thread prepares that process ([`crate::live::prepare`]). Some
//! processes are left as they are and prepared at the event: those that are too young, that have a
//! limit on their memory (the arena would count against it), that wait in the kernel or are
//! stopped, or that cannot be attached to at the moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sptrace_tracee::maps::{self, LiveMaps};
use sptrace_tracee::threads::state;
use sptrace_tracee::{TraceeError, eligible, limits, proc};

use crate::live::prepare::{Code, Looked, Prepared, code_of};
use crate::session::Session;
use crate::shared::Shared;

/// Processes are looked at as often while something changes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// And at least so often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(800);
/// One that changes its modules again and again is prepared again so many times, and then at the
/// event.
const RENEWALS: u32 = 32;

/// What the looker has found.
pub(crate) enum Found {
    /// A process has these modules, for a while now.
    Settled(Box<Looked>),
    /// A process that may have been prepared has set itself a limit on its memory.
    Limited(u32),
}

/// The looker.
pub(crate) struct Looker {
    found: Receiver<Found>,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Looker {
    /// Starts it, for a process and its descendants.
    pub(crate) fn spawn(shared: &Arc<Shared>, first: u32) -> Self {
        let (send, found) = channel();
        let (end, ended) = channel();
        let shared = Arc::clone(shared);
        let thread = std::thread::spawn(move || look(&shared, first, &send, &ended));
        Self { found, end, thread }
    }

    /// Ends it. It may be in the middle of an analysis, which is waited for.
    pub(crate) fn end(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

/// What the looker knows of a process.
#[derive(Default)]
struct Seen {
    code: Vec<Code>,
    is_passed_on: bool,
    is_limited: bool,
}

fn look(shared: &Shared, first: u32, found: &Sender<Found>, ended: &Receiver<()>) {
    let goes_on = || !shared.ended.load(Ordering::Acquire) && shared.reactor.windows().is_waiting();
    let mut all: BTreeMap<u32, Seen> = BTreeMap::new();
    let mut pause = LOOK_EVERY;
    while goes_on() {
        let pids = family(first);
        all.retain(|pid, _| pids.contains(pid));
        let mut is_new = false;
        for pid in pids {
            let seen = all.entry(pid).or_default();
            if let Some(what) = look_at(shared, pid, seen, &mut is_new) {
                if found.send(what).is_err() {
                    return;
                }
                shared.wake_main();
            }
        }
        pause = match is_new {
            true => LOOK_EVERY,
            false => (pause * 2).min(LOOK_AT_LEAST_EVERY),
        };
        if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn look_at(shared: &Shared, pid: u32, seen: &mut Seen, is_new: &mut bool) -> Option<Found> {
    if limits::has_memory_limit(pid) {
        let is_first = !std::mem::replace(&mut seen.is_limited, true);
        return is_first.then_some(Found::Limited(pid));
    }
    let maps = LiveMaps::open(pid).and_then(|live| live.code()).ok()?;
    let code = code_of(&maps);
    if code != seen.code {
        *is_new = true;
        (seen.code, seen.is_passed_on) = (code, false);
        return None;
    }
    // Neither can be stopped shortly, and a vfork child's memory is its parent's.
    let is_still = matches!(state(pid, pid), None | Some('D' | 'T' | 't' | 'Z' | 'X'));
    if seen.is_passed_on || is_still || eligible::is_vfork_child(pid) {
        return None;
    }
    seen.is_passed_on = true;
    *is_new = true;
    Some(Found::Settled(Box::new(Looked::at(shared, pid).ok()?)))
}

/// What is prepared.
#[derive(Default)]
pub(crate) struct Ahead {
    all: BTreeMap<u32, (Prepared, u32)>,
}

impl Session {
    /// Does what follows from what the looker has found by now.
    pub(crate) fn prepare_found(&mut self, looker: &Looker, ahead: &mut Ahead) {
        while let Ok(found) = looker.found.try_recv() {
            if !self.shared.reactor.windows().is_waiting() {
                return;
            }
            match found {
                Found::Settled(looked) => self.prepare_ahead(*looked, ahead),
                Found::Limited(pid) => {
                    if ahead.all.remove(&pid).is_some() {
                        self.detach(pid);
                    }
                }
            }
        }
    }

    pub(super) fn prepare_ahead(&mut self, looked: Looked, ahead: &mut Ahead) {
        let (pid, arena) = (looked.pid, &self.shared.arena);
        if self.standing.get() != Some(pid) && eligible::check(pid).is_err() {
            return;
        }
        let old = ahead.all.remove(&pid);
        let is_inside = maps::is_traced(&looked.maps) && eligible::holds(pid, arena);
        let prepared = match old {
            Some((old, renewals)) if is_inside && renewals < RENEWALS => {
                self.renew_process(old, looked).map(|p| (p, renewals + 1))
            }
            // A child made while its parent was being prepared, or one that changes too much.
            _ if is_inside => Err(TraceeError::NoRoom("it is prepared at the event")),
            _ => self.prepare_process(looked).map(|p| (p, 0)),
        };
        match prepared {
            Ok((mut prepared, renewals)) => {
                if let Err(e) = self.lead_over_gates(&mut prepared)
                    && !matches!(e, TraceeError::Gone)
                {
                    let remark =
                        format!("pid {pid}: calls cannot begin the recording: {e}; use --shadow");
                    if !self.remarks.contains(&remark) {
                        self.remarks.push(remark);
                    }
                }
                ahead.all.insert(pid, (prepared, renewals));
            }
            // Why not is said at the event, if it is still so.
            Err(_) if eligible::holds(pid, &self.shared.arena) => self.detach(pid),
            Err(_) => {}
        }
    }

    /// Attaches to the processes that are prepared, and then to the others. Gives how many of the
    /// first there were. `begun` is told when those record.
    pub(crate) fn attach_all(
        &mut self,
        first: u32,
        looker: Looker,
        ahead: &mut Ahead,
        begun: &dyn Fn(),
    ) {
        let mut late = Vec::new();
        let mut active = Vec::new();
        for (pid, (mut prepared, _)) in std::mem::take(&mut ahead.all) {
            match self.activate_prepared(&mut prepared) {
                Ok(true) => active.push(pid),
                Ok(false) => late.push((pid, prepared)),
                // There is another program in it, which nothing is prepared for.
                Err(TraceeError::Replaced) => {}
                Err(e) => self.refuse(pid, e, pid == first),
            }
        }
        if !active.is_empty() {
            begun();
        }
        // It may be analysing what must be analysed.
        looker.end();
        for (pid, prepared) in late {
            match self.activate_late(prepared) {
                Ok(()) => active.push(pid),
                Err(TraceeError::Replaced) => {}
                Err(e) => self.refuse(pid, e, pid == first),
            }
        }
        self.attach_family(first, &active);
        begun();
    }

    /// Attaches to those of a process and its descendants that are not attached to: `attached` are,
    /// and may have ended since.
    pub(crate) fn attach_family(&mut self, first: u32, attached: &[u32]) {
        for pid in family(first) {
            if attached.contains(&pid) || eligible::holds(pid, &self.shared.arena) {
                // A child of one that is traced already is, too.
                continue;
            }
            if let Err(e) = eligible::check(pid) {
                self.say_untraced(pid, &e.to_string(), pid == first);
            } else if let Err(e) = self.attach_to(pid) {
                self.refuse(pid, e, pid == first);
            }
        }
    }

    /// False: it must be prepared again.
    fn activate_prepared(&mut self, prepared: &mut Prepared) -> Result<bool, TraceeError> {
        let pid = prepared.pid;
        eligible::check_again(pid).map_err(|e| TraceeError::NotPermitted(e.to_string()))?;
        self.activate(prepared, true)
    }

    /// Attaches to a process that has changed since it was prepared.
    fn activate_late(&mut self, old: Prepared) -> Result<(), TraceeError> {
        let looked = Looked::at(&self.shared, old.pid)?;
        let mut prepared = match maps::has_agent(&looked.maps) {
            true => self.renew_process(old, looked)?,
            false => self.prepare_process(looked)?,
        };
        self.activate(&mut prepared, false).map(|_| ())
    }

    /// It is not traced; what was prepared is taken back.
    fn refuse(&mut self, pid: u32, e: TraceeError, is_first: bool) {
        if eligible::holds(pid, &self.shared.arena) {
            self.detach(pid);
        }
        let why = crate::live::attach::explained(pid, e);
        if !matches!(why, TraceeError::Gone) || is_first {
            self.say_untraced(pid, &why.to_string(), is_first);
        }
    }

    /// For the user, who need not know of the ends of others than the command; once in several
    /// windows.
    fn say_untraced(&mut self, pid: u32, why: &str, is_first: bool) {
        let remark = format!("pid {pid} runs untraced: {why}");
        if (is_first || !eligible::has_ended(pid)) && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}

/// A process and its descendants, parents first.
pub(super) fn family(first: u32) -> Vec<u32> {
    let mut found = vec![first];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(proc::children(parent));
        next += 1;
    }
    found
}
