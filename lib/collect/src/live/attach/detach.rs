//! Detaching: a process is let go as it was, with every byte of its code back.
//!
//! All threads are stopped, those inside of the agent run until they are out of it, and one of them
//! is led to the agent, which gives everything back. It is tried again until nobody stands in the
//! way. Gives the reason where that does not succeed.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::{Command, Sent};
use sptrace_tracee::inside::Place;
use sptrace_tracee::maps::{self, LiveMaps};
use sptrace_tracee::threads::{Thread, Threads};
use sptrace_tracee::{TraceeError, eligible, memory, program, seccomp};
use sptrace_wire::attach::*;
use sptrace_wire::control::HOST_DETACHING;

use super::{ATTEMPTS_END, PAUSE, attempts, entry_of};
use crate::session::Session;

/// Attempts in which a thread must be out of all slots to be let go; never more than half of the
/// time.
const PATIENCE: u32 = 40;
/// Threads on their way out of the agent are not followed longer; the others stand meanwhile.
const LET_OUT_END: Duration = Duration::from_secs(2);
/// So often a thread may not be stopped in time (2 seconds).
const UNSTOPPABLE: u32 = 15;
/// Pairs that the agent may leave: areas, tables and thread blocks.
const RANGES: u32 = 16 << 10;
/// Of the place for code of ours, looked at: that is written to its end.
const PLACE_BYTES: usize = 64;
/// Why the agent is not taken out of a process.
const SANDBOXED: &str = "it has entered a seccomp sandbox meanwhile";

impl Session {
    pub(crate) fn detach_all(&mut self) {
        self.shared.numbers.letting_go(true);
        self.points.end();
        // What they start meanwhile is found the next time.
        for _ in 0..16 {
            let holders = eligible::holders(&self.shared.arena);
            let remaining: Vec<u32> = holders
                .into_iter()
                .filter(|pid| !self.is_kept(*pid) && !eligible::is_vfork_child(*pid))
                .collect();
            if remaining.is_empty() {
                return;
            }
            for pid in remaining {
                self.detach(pid);
            }
        }
    }

    /// Lets a process go, as it was.
    pub(crate) fn detach(&mut self, pid: u32) {
        let result = self.with_one_program(&mut |session| session.try_detach(pid));
        let why = match result {
            Ok(None) => return,
            Ok(Some(why)) => why.to_owned(),
            Err(_) if !eligible::holds(pid, &self.shared.arena) => return,
            Err(e) => e.to_string(),
        };
        self.kept.push((pid, why));
    }

    fn is_kept(&self, pid: u32) -> bool {
        self.kept.iter().any(|(kept, _)| *kept == pid)
    }

    fn try_detach(&mut self, pid: u32) -> Result<Option<&'static str>, TraceeError> {
        // It may stand at an exec stop.
        self.serve();
        let memory = memory::open(pid)?;
        let result = self.try_detach_program(pid, &memory);
        result.map_err(|e| program::cause(pid, &memory, e))
    }

    fn try_detach_program(
        &mut self,
        pid: u32,
        memory: &File,
    ) -> Result<Option<&'static str>, TraceeError> {
        let maps = maps::read(pid)?;
        if !maps::is_traced(&maps) {
            // It has executed another program, which runs as it is, or is about to map the arena.
            return match Place::find(memory, &maps, PLACE_BYTES)?.is_unused {
                true => Ok(None),
                false => Err(TraceeError::Replaced),
            };
        }
        let mut unstoppable = 0;
        if seccomp::mode(pid) == seccomp::Mode::Strict {
            return Ok(Some(SANDBOXED));
        }
        let begun = Instant::now();
        for attempt in attempts(ATTEMPTS_END) {
            self.serve();
            let carrier = Carrier::new(pid, &self.shared.arena, &self.image, &maps)?;
            let mut threads = match Threads::stop_all(pid, &|| self.obey_beside(pid)) {
                Ok(threads) => threads,
                // One that was late is ours still, and let go when it stops.
                Err(e) if unstoppable == UNSTOPPABLE || eligible::has_ended(pid) => return Err(e),
                Err(_) => {
                    unstoppable += 1;
                    std::thread::sleep(PAUSE * 100);
                    continue;
                }
            };
            if threads.all().any(|t| seccomp::check(t.tid).is_err()) {
                threads.release();
                return Ok(Some(SANDBOXED));
            }
            let is_patient = attempt < PATIENCE && begun.elapsed() < ATTEMPTS_END / 2;
            let command = match is_patient {
                true => COMMAND_DETACH,
                false => COMMAND_DETACH_ANYWAY,
            };
            let result = self.detach_stopped(command, &carrier, memory, &mut threads);
            threads.release();
            match result? {
                RESULT_AGAIN => std::thread::sleep(PAUSE),
                RESULT_DONE => return Ok(None),
                RESULT_NOT_WRITABLE => return Ok(Some("its text could not be written")),
                _ => return Ok(Some("no memory for patch areas of its own")),
            }
        }
        Ok(Some("a thread or a signal handler stays inside it"))
    }

    fn detach_stopped(
        &self,
        command: u32,
        carrier: &Carrier<'_>,
        memory: &File,
        threads: &mut Threads,
    ) -> Result<u32, TraceeError> {
        let arena = &self.shared.arena;
        program::check(threads.pid, memory)?;
        self.lead_back(threads, false)?;
        if !self.is_out(carrier, threads)? {
            return Ok(RESULT_AGAIN);
        }
        let stopped: Vec<Thread> = threads.all().copied().collect();
        let live = LiveMaps::open(threads.pid)?;
        let command = Command {
            command,
            threads: stopped
                .iter()
                .map(|t| entry_of(threads.pid, t, &live))
                .collect(),
            pcs: stopped.iter().map(|t| t.regs.rip).collect(),
            gone: self.modules_of(threads.pid, memory, &[]).1,
            ranges: RANGES,
            ..Command::default()
        };
        let sent = command.send(arena)?;
        let errand = Errand::Call { block: sent.block };
        carrier.lead(threads, stopped[0], errand, &|| sent.is_done(arena))?;
        self.put_moved(&sent, &stopped, threads)?;
        let result = sent.result(arena);
        if result == RESULT_DONE {
            let leading = threads.stop_again(stopped[0].tid)?;
            let errand = Errand::Unmap {
                ranges: sent.ranges_at,
            };
            carrier.lead(threads, leading, errand, &|| true)?;
        }
        Ok(result)
    }

    /// No thread is inside of the agent, or none is any more. False: one stays there.
    fn is_out(&self, carrier: &Carrier<'_>, threads: &mut Threads) -> Result<bool, TraceeError> {
        let arena = &self.shared.arena;
        let stopped: Vec<Thread> = threads.all().copied().collect();
        let is_inside = |t: &&Thread| carrier.is_inside(t.regs.rip);
        if !stopped.iter().any(|t| is_inside(&t)) {
            return Ok(true);
        }
        if let Some(leading) = stopped.iter().find(|t| !is_inside(t)) {
            let command = Command {
                command: COMMAND_SILENCE,
                ..Command::default()
            };
            let sent = command.send(arena)?;
            let errand = Errand::Call { block: sent.block };
            carrier.lead(threads, *leading, errand, &|| sent.is_done(arena))?;
        }
        let state = &arena.control().host_state;
        state.store(HOST_DETACHING, Ordering::Release);
        let pid = threads.pid;
        let_out(carrier, threads, &|| self.obey_beside(pid))
    }

    /// Threads go to where the agent has moved them; where it is done, they lose their gs.
    fn put_moved(
        &self,
        sent: &Sent,
        stopped: &[Thread],
        threads: &mut Threads,
    ) -> Result<(), TraceeError> {
        let arena = &self.shared.arena;
        for (i, t) in stopped.iter().enumerate() {
            let Some(registers) = sent.moved(arena, i) else {
                continue;
            };
            let now = threads.stop_again(t.tid)?;
            if now.regs.rip == t.regs.rip {
                threads.put(t.tid, &with_registers(now.regs, registers), t.mask)?;
            }
        }
        if sent.result(arena) != RESULT_DONE {
            return Ok(());
        }
        for t in stopped {
            // A program that uses gs by now keeps what it has set.
            let gs_base = threads.stop_again(t.tid)?.regs.gs_base;
            if gs_base != 0 && sent.is_listed(arena, gs_base) {
                threads.set_gs_base(t.tid, 0)?;
            }
        }
        Ok(())
    }
}

/// Lets those threads run that are inside the agent, until each is out of it; the others stay where
/// they are. False: one does not come out.
pub(super) fn let_out(
    carrier: &Carrier<'_>,
    threads: &mut Threads,
    idle: &dyn Fn(),
) -> Result<bool, TraceeError> {
    for _ in attempts(LET_OUT_END) {
        let inside = threads.all().filter(|t| carrier.is_inside(t.regs.rip));
        let inside: Vec<u32> = inside.map(|t| t.tid).collect();
        if inside.is_empty() {
            return Ok(true);
        }
        for tid in &inside {
            threads.run(*tid)?;
        }
        std::thread::sleep(Duration::from_micros(30));
        // It may wait for us: before an exec it asks to be held.
        idle();
        // One that is out again may have made another.
        threads.stop(idle)?;
    }
    Ok(false)
}

fn with_registers(mut r: libc::user_regs_struct, to: [u64; 18]) -> libc::user_regs_struct {
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.eflags,
    ] = to;
    r
}
