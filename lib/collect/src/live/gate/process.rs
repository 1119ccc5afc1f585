//! Puts gates into a process and takes them away: a jump at the entry of each function that was
//! asked for, over a page at which callers wait.
//!
//! Given a process that is prepared ([`crate::live::prepare`]) and whose threads are all stopped.
//! When it is attached to, or let go, the entries get their bytes back, and a thread that waits at
//! a gate is put back to the function's entry. A page of code for each module and one for each gate
//! stay in the process, since a signal handler may return there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sptrace_addr::Avma;
use sptrace_patch::gate::{JUMP_BYTES, WAY_BYTES};
use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::Command;
use sptrace_tracee::inside;
use sptrace_tracee::memory::open_to_write;
use sptrace_tracee::threads::{Thread, Threads};
use sptrace_tracee::{TraceeError, eligible, gate, seccomp};
use sptrace_walk::{Unreadable, call_that_led_to};
use sptrace_wire::attach::{COMMAND_CLOSE, COMMAND_GATE, RESULT_DONE};

use super::jump::GateJump;
use super::{Gated, Gates, Watched, locked};
use crate::live::prepare::Prepared;
use crate::live::stacks::{Stacks, walked};
use crate::modules::placement;
use crate::session::Session;
use crate::shared::Shared;

/// Attempts to stop the process at a moment at which nobody stands where a jump is to be.
const ATTEMPTS: u32 = 40;

/// Code of a way has no unwind table.
const PROFILED: &str =
    "it catches SIGPROF, and a profiler in it would not see the callers of a thread that waits";
/// Opening a gate takes userfaultfd(2), which a filter may end a process for.
const SANDBOXED: &str =
    "it is in a seccomp sandbox, where calls cannot be held up until a recording begins";

/// The page of code that one module's gated functions are led over: where it will lie, and they.
struct GatePage {
    bias: u64,
    avma: u64,
    found: std::sync::Arc<Vec<Gated>>,
}

impl Session {
    /// Leads the calls of a prepared process over gates, those that are not yet. Without any
    /// nothing is done.
    pub(crate) fn lead_over_gates(&self, prepared: &mut Prepared) -> Result<(), TraceeError> {
        let pid = prepared.pid;
        let gates = self.shared.reactor.gates();
        if gates.is_empty() {
            return Ok(());
        }
        let pages = self.pages(prepared, gates);
        let is_led = self.led.borrow().iter().any(|led| led.pid == pid);
        if (is_led || !pages.is_empty()) && eligible::is_sampled_within(pid) {
            if is_led {
                self.take_ways_away(pid)?;
            }
            return Err(TraceeError::LeftAlone(PROFILED));
        }
        if pages.is_empty() {
            return Ok(());
        }
        if seccomp::mode(pid) != seccomp::Mode::None {
            return Err(TraceeError::LeftAlone(SANDBOXED));
        }
        let memory = open_to_write(pid)?;
        let carrier = Carrier::new(pid, &self.shared.arena, &self.image, &prepared.maps)?;
        for _ in 0..ATTEMPTS {
            let mut threads = self.stop_all(pid)?;
            let led = match is_in_flight(&self.shared, prepared, &pages, &threads) {
                true => Ok(None),
                false => self
                    .lead(&pages, gates, &carrier, &memory, &mut threads)
                    .map(Some),
            };
            threads.release();
            if let Some(led) = led? {
                self.led.borrow_mut().extend(led);
                self.shared.reactor.wake();
                return gates
                    .guard(pid)
                    .or_else(|e| self.take_ways_away(pid).and(Err(e)));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(TraceeError::NoRoom("its threads stand where jumps must be"))
    }

    /// Leads its calls as the program does.
    fn take_ways_away(&self, pid: u32) -> Result<(), TraceeError> {
        let mut threads = self.stop_all(pid)?;
        let back = self.lead_back(&mut threads, false);
        threads.release();
        back
    }

    /// Modules of the process with functions that do not lead over a gate yet, each with a place
    /// for the code.
    fn pages(&self, prepared: &Prepared, gates: &Gates) -> Vec<GatePage> {
        let pid = prepared.pid;
        let led = self.led.borrow();
        let mut c = self.shared.lock();
        let mut taken = c.process(pid).areas.ranges();
        let mut pages = Vec::new();
        for l in c.process(pid).loaded.clone() {
            let Some(found) = gates.of(l.module) else {
                continue;
            };
            let starts = |at: u64| {
                found
                    .iter()
                    .any(|g| g.way.start.0.wrapping_add(l.bias) == at)
            };
            if led.iter().any(|led| led.pid == pid && starts(led.at)) {
                continue;
            }
            let page = placement::place(&prepared.maps, &taken, l.start, l.end, gate::GATE_BYTES);
            let Some(page) = page else {
                found.iter().for_each(|gated| gates.give_up(&gated.name));
                continue;
            };
            taken.push((page, gate::GATE_BYTES));
            let bias = l.bias;
            pages.push(GatePage {
                bias,
                avma: page,
                found,
            });
        }
        pages
    }

    /// With all threads stopped.
    fn lead(
        &self,
        pages: &[GatePage],
        gates: &Gates,
        carrier: &Carrier<'_>,
        memory: &File,
        threads: &mut Threads,
    ) -> Result<Vec<GateJump>, TraceeError> {
        let (pid, arena) = (threads.pid, &self.shared.arena);
        let Some(thread) = threads.all().next().copied() else {
            return Err(TraceeError::Gone);
        };
        let mut ask = |command: Command| {
            let sent = command.send(arena)?;
            let errand = Errand::Call { block: sent.block };
            carrier.lead(threads, thread, errand, &|| sent.is_done(arena))?;
            Ok::<_, TraceeError>(sent)
        };
        let made = ask(Command {
            command: COMMAND_GATE,
            modules: pages.iter().map(|page| page.avma).collect(),
            gate_pages: gates.calls.len() as u64,
            ..Command::default()
        })?;
        if made.result(arena) != RESULT_DONE {
            return Err(TraceeError::NoRoom(
                "userfaultfd(2) is not permitted there, or its memory is locked",
            ));
        }
        let (start, descriptor) = made.gates(arena);
        let ours = gate::take(pid, descriptor);
        ask(Command {
            command: COMMAND_CLOSE,
            descriptor: descriptor as u64,
            ..Command::default()
        })?;
        let watched = Watched {
            pid,
            descriptor: ours?,
            start,
            guard: None,
        };
        for (number, awaited) in gates.calls.iter().enumerate() {
            if let Some(count) = gates.gate(number, start).count {
                inside::write(memory, &awaited.every.to_le_bytes(), count.0)?;
            }
        }
        let mut led = Vec::new();
        for page in pages {
            led.extend(write_ways(pid, page, start, memory, gates)?);
        }
        // Whoever comes waits from here on, and is seen.
        locked(&gates.watched).push(watched);
        for l in &led {
            inside::write(memory, &l.jump, l.at)?;
        }
        Ok(led)
    }

    /// Takes all ways away that lead over gates, with all threads stopped. A process has its
    /// parent's, too. Who waits stands at the function's entry then; or, `calls_again`, at the call
    /// of it, if that can be told.
    pub(crate) fn lead_back(
        &self,
        threads: &mut Threads,
        calls_again: bool,
    ) -> Result<(), TraceeError> {
        let pid = threads.pid;
        let mut led = self.led.borrow_mut();
        if led.is_empty() {
            return Ok(());
        }
        let memory = open_to_write(pid)?;
        for l in led.iter() {
            let mut there = [0u8; JUMP_BYTES];
            if memory.read_exact_at(&mut there, l.at).is_ok() && there == l.jump {
                inside::write(&memory, &l.original, l.at)?;
            }
        }
        let waiting: Vec<(Thread, GateJump)> = threads
            .all()
            .filter_map(|t| Some((*t, *led.iter().find(|l| l.touch == t.regs.rip)?)))
            .collect();
        for (t, l) in waiting {
            let mut regs = t.regs;
            regs.rip = l.at;
            let call = (calls_again && l.is_clear_below).then(|| call_of(&memory, &regs, l.entry));
            if let Some(call) = call.flatten() {
                (regs.rip, regs.rsp) = (call, regs.rsp.wrapping_add(8));
            }
            threads.put(t.tid, &regs, t.mask)?;
        }
        // Its children may have them still, and are looked at later.
        led.iter_mut()
            .filter(|l| l.pid == pid)
            .for_each(|l| l.pid = 0);
        self.shared.reactor.gates().forget(pid);
        Ok(())
    }

    /// Where threads and handlers will go on that stand in the code of a way by now: no patch may
    /// be there.
    pub(crate) fn behind_ways(&self, pcs: &[u64]) -> Vec<u64> {
        let led = self.led.borrow();
        let way = |pc: &u64| {
            let mut ways = led.iter();
            ways.find(|l| (l.way..l.way + WAY_BYTES).contains(pc))
        };
        let behind = pcs.iter().filter_map(|pc| Some(way(pc)?.goes_on));
        behind.filter(|at| *at != 0).collect()
    }
}

/// The call that has led a thread to `entry`, where it stands or behind an endbr64.
fn call_of(memory: &File, regs: &libc::user_regs_struct, entry: u64) -> Option<u64> {
    let mut read = |at, into: &mut [u8]| memory.read_exact_at(into, at).map_err(|_| Unreadable);
    let at_entry = libc::user_regs_struct {
        rip: entry,
        ..*regs
    };
    call_that_led_to(&mut read, &walked(&at_entry))
}

/// Writes the code of a page; gives the jumps that lead there. Where other bytes stand than the
/// file has, none.
fn write_ways(
    pid: u32,
    page: &GatePage,
    first_gate: u64,
    memory: &File,
    gates: &Gates,
) -> Result<Vec<GateJump>, TraceeError> {
    let mut led = Vec::new();
    for (i, gated) in page.found.iter().enumerate() {
        let way = page.avma + i as u64 * WAY_BYTES;
        let at = gated.way.start.0.wrapping_add(page.bias);
        let gate = gates.gate(gated.gate, first_gate);
        let code = gated.way.code(page.bias, Avma(way), gate);
        let jump = gated.way.jump(page.bias, Avma(way));
        let mut there = [0u8; JUMP_BYTES];
        let is_original =
            memory.read_exact_at(&mut there, at).is_ok() && there == gated.way.original;
        let (Some(code), Some(jump), true) = (code, jump, is_original) else {
            gates.give_up(&gated.name);
            continue;
        };
        if way + WAY_BYTES > page.avma + gate::GATE_BYTES {
            break;
        }
        inside::write(memory, &code.bytes, way)?;
        led.push(GateJump {
            pid,
            at,
            entry: gated.way.entry.0.wrapping_add(page.bias),
            original: gated.way.original,
            jump,
            way,
            touch: way + code.touch,
            goes_on: gated.way.goes_on(page.bias),
            is_clear_below: gated.way.is_clear_below,
        });
    }
    Ok(led)
}

/// True if a thread stands, or will return to, within a jump that is to be written.
fn is_in_flight(
    shared: &Shared,
    prepared: &mut Prepared,
    pages: &[GatePage],
    threads: &Threads,
) -> bool {
    let within = |pc: u64| {
        let jumps = pages.iter().flat_map(|page| {
            page.found
                .iter()
                .map(|g| g.way.start.0.wrapping_add(page.bias))
        });
        jumps
            .into_iter()
            .any(|at| pc > at && pc < at + JUMP_BYTES as u64)
    };
    let starts = |at: Avma| shared.function_start(prepared.pid, at.0).map(Avma);
    let mut stacks = Stacks::new(
        prepared.walker.unwinder(),
        &mut prepared.cache,
        &prepared.memory,
        &[],
        &starts,
    );
    threads
        .all()
        .any(|t| stacks.of(&t.regs, t.regs.rsp).pcs.into_iter().any(within))
}
