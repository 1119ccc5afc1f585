//! Recording of processes that run already: from attaching to the last of them being as it was.
//!
//! Given their pids; the rest is a recording like any other ([`crate::session`]). What takes long
//! happens while nothing stands still: modules are analysed, their plans made, unwind tables
//! opened, patch areas mapped. One thread is stopped for that once, and then all of them until the
//! functions on their stacks are patched. Detaching is `attach/detach.rs`.

mod detach;
mod points;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sptrace_addr::Avma;
use sptrace_trace::ExitStatus;
use sptrace_tracee::arena::{Role, tell_of_death};
use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::Command;
use sptrace_tracee::maps::{LiveMaps, Mapping};
use sptrace_tracee::threads::{Thread, Threads};
use sptrace_tracee::{TraceeError, eligible, program, seccomp};
use sptrace_wire::attach::*;

use crate::live::prepare::{Looked, NO_TEXT, Prepared};
use crate::live::stacks::Stacks;
use crate::loops;
use crate::numbers;
use crate::open_files;
use crate::react::EventsThread;
use crate::session::{Finished, Session};

/// Attempts to stop all threads at a moment that suits, at most.
const ATTEMPTS: u32 = 400;
/// Where a stop takes long, no attempt is begun later than this.
const ATTEMPTS_END: Duration = Duration::from_secs(20);
/// Between two attempts.
const PAUSE: Duration = Duration::from_micros(500);
/// A process that executes another program meanwhile is looked at anew so often at least,
const PROGRAMS: u32 = 20;
/// and for so long: the first of its programs may have had to be analysed.
const PROGRAMS_END: Duration = Duration::from_secs(2);
/// Of a stack whose end is not known, looked at.
const STACK_BYTES: u64 = 1 << 20;

/// Beside the agent's results: other modules are mapped.
const NOT_UP_TO_DATE: u32 = u32::MAX;

/// When recording ends, if the processes do not end before.
pub struct Until {
    /// After so long.
    pub duration: Option<Duration>,
}

/// What became of one process.
pub struct Refused {
    /// The process.
    pub pid: u32,
    /// Why it is not traced.
    pub why: String,
}

impl Refused {
    fn new(pid: u32, error: &dyn std::error::Error) -> Self {
        let why = error.to_string();
        Self { pid, why }
    }
}

/// A recording that has ended.
pub struct Attached {
    /// As of a command, but that there is no command.
    pub finished: Finished,
    /// Processes that could not be attached to.
    pub refused: Vec<Refused>,
}

impl Session {
    /// Attaches, records, detaches. `tell` is given each process that is attached to.
    ///
    /// # Errors
    /// None could be attached to, each with the reason.
    pub fn attach(
        mut self,
        pids: &[u32],
        until: &Until,
        tell: &dyn Fn(u32),
    ) -> Result<Attached, Vec<Refused>> {
        // SAFETY: a disposition of our own process: a file size limit shall end the recording, not
        // us.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        tell_of_death(&self.shared.arena, Role::Tracer);
        let (drainer, answerer) = loops::spawn(&self.shared).map_err(|e| {
            let refuse = |pid: &u32| Refused::new(*pid, &e);
            pids.iter().map(refuse).collect::<Vec<_>>()
        })?;
        let alive = &self.shared.arena.control().host_alive;
        while alive.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let (attached, refused) = self.attach_to_all(pids, tell);
        let sources = std::mem::take(&mut self.sources);
        // Time counts from here.
        let events = (!attached.is_empty()).then(|| EventsThread::spawn(&self.shared, sources, 0));
        self.shared.reactor.begin();
        if !attached.is_empty() {
            self.kernel.begin(&self.shared, &attached);
            let end = until.duration.map(|d| Instant::now() + d);
            let is_over = || end.is_some_and(|end| Instant::now() >= end);
            self.record_until(&attached, end);
            while self.shared.reactor.windows().is_ending() {
                if !self.pause_attached(&attached, &is_over) {
                    break;
                }
                self.record_until(&attached, end);
            }
            self.kernel.end();
            self.detach_all();
        }
        self.shared.end();
        let _ = drainer.join();
        let _ = answerer.join();
        self.collect_rest();
        if let Some(events) = events {
            events.end(&self.shared);
        }
        if attached.is_empty() {
            return Err(refused);
        }
        match self.finish(ExitStatus::Exited(0)) {
            Ok(finished) => Ok(Attached { finished, refused }),
            Err(e) => Err(vec![Refused::new(0, &e)]),
        }
    }

    /// Which of them could be attached to, and which not.
    fn attach_to_all(&mut self, pids: &[u32], tell: &dyn Fn(u32)) -> (Vec<u32>, Vec<Refused>) {
        let (mut attached, mut refused) = (Vec::new(), Vec::new());
        for &pid in pids {
            match self.attach_to(pid) {
                Ok(()) => {
                    tell(pid);
                    attached.push(pid);
                }
                Err(e) => refused.push(Refused::new(pid, &explained(pid, e))),
            }
        }
        (attached, refused)
    }

    pub(crate) fn attach_to(&mut self, pid: u32) -> Result<(), TraceeError> {
        let begun = Instant::now();
        let result = self.with_one_program(&mut |session| session.try_attach(pid));
        let elapsed_ms = begun.elapsed().as_millis();
        match &result {
            Ok(()) => log::info!("process {pid}: attached to after {elapsed_ms} ms"),
            Err(e) => log::warn!("process {pid}: not attached to after {elapsed_ms} ms: {e}"),
        }
        result
    }

    /// Does what is begun anew if the process executes another program meanwhile.
    fn with_one_program<T>(
        &mut self,
        act: &mut dyn FnMut(&mut Self) -> Result<T, TraceeError>,
    ) -> Result<T, TraceeError> {
        let begun = Instant::now();
        let mut programs = 1;
        loop {
            let result = act(self);
            let is_over = programs >= PROGRAMS && begun.elapsed() >= PROGRAMS_END;
            if is_over || !matches!(result, Err(TraceeError::Replaced)) {
                return result;
            }
            programs += 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn try_attach(&mut self, pid: u32) -> Result<(), TraceeError> {
        let looked = Looked::at(&self.shared, pid)?;
        let mut prepared = self.prepare_process(looked)?;
        let activated = self.activate(&mut prepared, false);
        // Of a program that has gone nothing is left.
        if activated.is_err() && eligible::holds(pid, &self.shared.arena) {
            self.detach(pid);
        }
        activated?;
        if self.shared.options.keeps_returns {
            self.begin_points(prepared);
        }
        Ok(())
    }

    /// Stops all threads and patches what is on their stacks. Of a process that was prepared some
    /// time ago (`is_ahead`) only if it has the same code still: false if not.
    pub(crate) fn activate(
        &self,
        prepared: &mut Prepared,
        is_ahead: bool,
    ) -> Result<bool, TraceeError> {
        let result = self.try_activate(prepared, is_ahead);
        result.map_err(|e| program::cause(prepared.pid, &prepared.memory, e))
    }

    fn try_activate(&self, prepared: &mut Prepared, is_ahead: bool) -> Result<bool, TraceeError> {
        let arena = &self.shared.arena;
        let carrier = Carrier::new(prepared.pid, arena, &self.image, &prepared.maps)?;
        let live = LiveMaps::open(prepared.pid)?;
        for _ in attempts(ATTEMPTS_END) {
            let mut threads = Threads::stop_all(prepared.pid, &|| self.obey_beside(prepared.pid))?;
            let result = self.activate_stopped(prepared, is_ahead, &carrier, &live, &mut threads);
            threads.release();
            match result? {
                RESULT_AGAIN => std::thread::sleep(PAUSE),
                RESULT_DONE => return Ok(true),
                NOT_UP_TO_DATE => return Ok(false),
                RESULT_NOT_WRITABLE => return Err(TraceeError::NotPermitted(NO_TEXT.to_owned())),
                _ => return Err(TraceeError::NoRoom("the agent could not patch it")),
            }
        }
        Err(TraceeError::NoRoom(
            "its threads stand where patches must be",
        ))
    }

    fn activate_stopped(
        &self,
        prepared: &mut Prepared,
        is_ahead: bool,
        carrier: &Carrier<'_>,
        live: &LiveMaps,
        threads: &mut Threads,
    ) -> Result<u32, TraceeError> {
        program::check(prepared.pid, &prepared.memory)?;
        self.lead_back(threads, self.shared.reactor.windows().was_followed())?;
        for t in threads.all() {
            seccomp::check(t.tid)?;
        }
        if threads.all().any(|t| t.regs.gs_base != 0) {
            return Err(TraceeError::NoRoom("it uses the gs register for itself"));
        }
        if self.shared.options.system_calls.is_some() {
            let note = open_files::note(prepared.pid);
            self.shared.lock().note(&note);
        }
        let stopped: Vec<Thread> = threads.all().copied().collect();
        if !is_ahead && !live.has_still(&prepared.mapped) {
            prepared.mapped = live.code_map()?;
        }
        let command = self.adopting(prepared, live, &stopped);
        if is_ahead && !live.has_still_at(&prepared.mapped, &command.pcs) {
            return Ok(NOT_UP_TO_DATE);
        }
        self.lead_to_adopt(command, carrier, &stopped, threads)
    }

    /// What the agent must know of the stopped threads: their stacks, and where they are.
    fn adopting(&self, prepared: &mut Prepared, live: &LiveMaps, stopped: &[Thread]) -> Command {
        let mapped = &prepared.mapped.mappings;
        let (code, gone) = self.modules_of(prepared.pid, &prepared.memory, mapped);
        let mut command = Command {
            command: COMMAND_ADOPT,
            gone,
            loader: prepared.loader,
            ..Command::default()
        };
        let starts = |at: Avma| self.shared.function_start(prepared.pid, at.0).map(Avma);
        let mut stacks = Stacks::new(
            prepared.walker.unwinder(),
            &mut prepared.cache,
            &prepared.memory,
            &code,
            &starts,
        );
        for t in stopped {
            let mut entry = entry_of(prepared.pid, t, live);
            let stack = stacks.of(&t.regs, entry.stack_end);
            entry.first_frame = command.frames.len() as u32;
            entry.frames = stack.frames.len() as u32;
            command.frames.extend(stack.frames);
            command.pcs.extend(stack.pcs);
            command.threads.push(entry);
        }
        command.pcs.extend(self.behind_ways(&command.pcs));
        command
    }

    /// The agent takes the threads over, and then patches the functions around where they are.
    fn lead_to_adopt(
        &self,
        command: Command,
        carrier: &Carrier<'_>,
        stopped: &[Thread],
        threads: &mut Threads,
    ) -> Result<u32, TraceeError> {
        let arena = &self.shared.arena;
        let sent = command.send(arena)?;
        let leading = stopped[0];
        let errand = Errand::Call { block: sent.block };
        carrier.lead(threads, leading, errand, &|| sent.is_done(arena))?;
        let result = sent.result(arena);
        if result != RESULT_DONE {
            return Ok(result);
        }
        // The carrier has set its own.
        for (i, t) in stopped.iter().enumerate().skip(1) {
            let gs_base = sent.gs_base(arena, i);
            if gs_base != 0 {
                threads.set_gs_base(t.tid, gs_base)?;
            }
        }
        sent.next(arena, COMMAND_ACTIVATE);
        let leading = threads.stop_again(leading.tid)?;
        carrier.lead(threads, leading, errand, &|| sent.is_done(arena))?;
        Ok(sent.result(arena))
    }

    /// Code of the modules that the process has mapped still, sorted; and an address in each of the
    /// others. `mapped`: code that is known to be there.
    fn modules_of(
        &self,
        pid: u32,
        memory: &File,
        mapped: &[Mapping],
    ) -> (Vec<(u64, u64)>, Vec<u64>) {
        let is_there = |at: u64| {
            let before = mapped.partition_point(|m| m.start <= at).checked_sub(1);
            before.is_some_and(|i| at < mapped[i].end)
                || memory.read_exact_at(&mut [0u8; 1], at).is_ok()
        };
        let mut c = self.shared.lock();
        let loaded = c.process(pid).loaded.iter().map(|l| (l.start, l.end));
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for (start, end) in loaded {
            match is_there(start) && is_there(end - 1) {
                true => there.push((start, end)),
                false => gone.push(start),
            }
        }
        there.sort_unstable();
        (there, gone)
    }

    /// Waits for the end: of the time, of the processes, or by a signal to us; or for a pause.
    fn record_until(&mut self, attached: &[u32], end: Option<Instant>) {
        let mut last_look = Instant::now();
        loop {
            self.serve();
            self.patch_points_left();
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            let wait = left
                .unwrap_or(Duration::MAX)
                .min(Duration::from_millis(100))
                .min(self.points.wait().unwrap_or(Duration::MAX));
            let is_pausing = self.shared.reactor.windows().is_ending();
            if is_pausing || wait.is_zero() || self.wait_for_end(wait) {
                return;
            }
            if last_look.elapsed() >= Duration::from_millis(100) {
                last_look = Instant::now();
                let runs = |pid: &u32| eligible::holds(*pid, &self.shared.arena);
                if !attached.iter().any(runs) && eligible::holders(&self.shared.arena).is_empty() {
                    return;
                }
            }
        }
    }
}

/// Numbers of attempts: [`ATTEMPTS`], but none after `end`.
fn attempts(end: Duration) -> impl Iterator<Item = u32> {
    let begun = Instant::now();
    (0..ATTEMPTS).take_while(move |_| begun.elapsed() < end)
}

fn entry_of(pid: u32, t: &Thread, live: &LiveMaps) -> AttachThread {
    let above = live.around(t.regs.rsp);
    let stack = above.filter(|m| m.start <= t.regs.rsp || m.path == "[stack]");
    let is_first = stack.as_ref().is_some_and(|m| m.path == "[stack]");
    // A thread's control block lies at the end of its stack.
    let end = stack.map_or(t.regs.rsp, |m| match t.regs.fs_base {
        fs if fs > t.regs.rsp && fs < m.end => fs,
        _ => m.end,
    });
    AttachThread {
        tid: numbers::own_task(pid, t.tid),
        fs_base: t.regs.fs_base,
        rsp: t.regs.rsp,
        stack_end: if is_first {
            end
        } else {
            end.min(t.regs.rsp + STACK_BYTES)
        },
        mask: t.mask,
        rip: t.regs.rip,
        registers: registers_of(&t.regs),
        ..AttachThread::default()
    }
}

/// In the order of [`AttachThread::registers`].
fn registers_of(r: &libc::user_regs_struct) -> [u64; 18] {
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ]
}

/// What the system's answer means, if it is that the process is gone, or that we may not: then with
/// what would permit it.
pub(crate) fn explained(pid: u32, e: TraceeError) -> TraceeError {
    let TraceeError::System { what, source } = &e else {
        return e;
    };
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => TraceeError::Gone,
        _ if eligible::has_ended(pid) => TraceeError::Gone,
        Some(libc::EPERM | libc::EACCES) => {
            let why = eligible::why_not_permitted(pid, true);
            TraceeError::NotPermitted(format!("{why} ({what}: {source})"))
        }
        _ => e,
    }
}
