//! What the threads of a recording share: what the user asked for, the arena, the collector, and
//! how it ends.
//!
//! Made by the session ([`crate::session`]). Gives modules by their mappings, and takes what the
//! other threads want of the session, which alone uses ptrace. Locks are never poisoned for good.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::Duration;

use sptrace_code::{Cached, Plan};
use sptrace_patch::values::with_values;
use sptrace_trace::{EarlyEnd, Note, Section, Summary, Turn};
use sptrace_tracee::arena::Arena;
use sptrace_tracee::futex::futex_wake;
use sptrace_tracee::maps::Mapping;
use sptrace_wire::control::{HOST_RECORDING, HOST_STOPPED};
use sptrace_wire::plan::PlanHeader;

use crate::bids::Bids;
use crate::clock;
use crate::collector::Collector;
use crate::disk::DiskWatch;
use crate::modules::expected::{Expected, Opened, Ready};
use crate::modules::filters::Filters;
use crate::modules::learned::Learned;
use crate::modules::load;
use crate::modules::snapshots::Snapshots;
use crate::numbers::Numbers;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::react::reactor::Reactor;
use crate::request::Options;
use crate::unfollowed::{NOT_PERMITTED, PRIVILEGED, Unfollowed};
use crate::values::Values;
use sptrace_tracee::privilege::Program;

/// What the threads of a session share.
pub struct Shared {
    /// The arena.
    pub arena: Arena,
    /// What the user asked for.
    pub options: Options,
    pub(crate) collector: Mutex<Collector<Output>>,
    /// Held by who waits for the collector, so that who gives it back does not get it again before.
    pub(crate) turn: Mutex<()>,
    /// Who is who.
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) commands: Mutex<Sender<Command>>,
    pub(crate) wake: i32,
    pub(crate) ended: AtomicBool,
    pub(crate) filters: Filters,
    pub(crate) values: Values,
    /// Of the agent's image.
    pub(crate) agent_hash: u64,
    /// Of the trace.
    pub(crate) output: RawFd,
    pub(crate) disk: Mutex<DiskWatch>,
    /// Events that the ring has overwritten.
    pub(crate) overwritten: Arc<AtomicU64>,
    pub(crate) stopped: OnceLock<EarlyEnd>,
    /// Nothing that is later is in the trace (TSC); `u64::MAX`: it goes on to the command's end.
    pub(crate) end_tsc: AtomicU64,
    /// What payloads may bid.
    pub(crate) bids: Bids,
    /// What events lead to.
    pub reactor: Reactor,
    /// What processes that ask had mapped.
    pub(crate) snapshots: Snapshots,
    /// What processes may ask for soon.
    pub(crate) expected: Expected,
    /// Analyses that take long.
    pub(crate) progress: Progress,
    /// Modules that are not traced, and why.
    pub(crate) left_out: Mutex<BTreeSet<(String, &'static str)>>,
    /// Programs that are not followed.
    pub(crate) unfollowed: Arc<Unfollowed>,
    /// Programs that the agent was put into after an exec.
    pub(crate) injected: AtomicU64,
    /// The command is followed from its start: nobody asks where functions begin that have open
    /// calls already.
    pub(crate) is_launched: AtomicBool,
}

/// What other threads want of the session.
pub(crate) enum Command {
    Seize(u32, Sender<bool>),
    Release(u32, Sender<bool>),
}

impl Shared {
    /// The collector; its lock is never poisoned for good: what a panicking thread left is still a
    /// trace.
    pub fn lock(&self) -> MutexGuard<'_, Collector<Output>> {
        let turn = self.turn.lock();
        let collector = self.collector.lock();
        drop(turn);
        collector.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Does anybody wait for the collector?
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// The module of a mapping, analysed and given to the agents if it is new.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn module(&self, pid: u32, m: &Mapping) -> Result<usize, &'static str> {
        if let Some(known) = self.lock().module_of(&m.file) {
            return Ok(known);
        }
        let ready = match self.expected.take(&m.file) {
            Some(ready) => ready,
            None => self.plan_of(pid, m)?,
        };
        let Ready {
            cached,
            plan,
            plan_offset,
            learned,
        } = ready;
        log::debug!(
            "process {pid} asks for {}: a plan of {} bytes",
            m.path,
            plan.len()
        );
        let mut c = self.lock();
        let file = m.file.clone();
        let index = c
            .add_module(&self.arena, file, &m.path, cached, plan, plan_offset)
            .ok_or("no plan could be made")?;
        if let Some(learned) = learned {
            c.knows(index, learned);
        }
        Ok(index)
    }

    /// The plan of a module, in the arena.
    fn plan_of(&self, pid: u32, m: &Mapping) -> Result<Ready, &'static str> {
        let opened = self.expected.take_opened(&m.file).or_else(|| {
            let _busy = self.progress.begin(Path::new(&m.path));
            load::load(&self.options.cache, pid, m, self.plans())
        });
        self.plan_of_opened(m, opened.ok_or("its file cannot be read or analysed")?)
    }

    fn plan_of_opened(&self, m: &Mapping, (cached, file): Opened) -> Result<Ready, &'static str> {
        let plan = cached.plan();
        let is_left_out = self.options.leaves_out(&m.path);
        let mut plan = self
            .filters
            .plan(&cached, plan, (&file, &m.path), is_left_out);
        let values = self.values.of_module(&cached, &plan, &file, is_left_out);
        if let Some(values) = values {
            let first = self.lock().book.describe(values.descriptions());
            plan = with_values(&plan, &values.section(first)).map_or(plan, Plan::from);
        }
        self.sign(&mut plan);
        let learned = self.learned(&cached);
        if let Some(learned) = learned.as_ref().filter(|learned| learned.has_short()) {
            learned.mark(plan.all_mut());
        }
        let plan_offset = self.give(&plan, learned.as_ref());
        Ok(Ready {
            plan_offset: plan_offset.ok_or("no room for its plan")?,
            cached,
            plan,
            learned,
        })
    }

    /// While nobody asks: one that is mapped is made ready, if functions of it were called in an
    /// earlier recording, and will probably be in this one. False: there is none.
    pub(crate) fn make_one_ready(&self) -> bool {
        let Some((m, opened)) = self.expected.next() else {
            return false;
        };
        let was_met = || self.learned(&opened.0).is_some_and(|l| !l.met.is_empty());
        if self.arena.control().ahead != 0 && was_met() {
            let file = m.file.clone();
            if let Ok(ready) = self.plan_of_opened(&m, opened) {
                self.expected.put(file, ready);
            }
        }
        true
    }

    /// Puts a plan into the arena, and behind it which functions were met before.
    fn give(&self, plan: &Plan, learned: Option<&Learned>) -> Option<u64> {
        let header = PlanHeader::read(plan)?;
        let offset = self.arena.add_plan(plan, u64::from(header.functions) + 8)?;
        if let Some(learned) = learned.filter(|learned| !learned.met.is_empty()) {
            self.arena
                .write(offset + header.met_at(), &learned.met_in(plan));
        }
        Some(offset)
    }

    /// What former recordings have learned of a module's calls, if it is of use: functions with
    /// values keep their stamps, and hooks lead to the slots of calls with such.
    fn learned(&self, cached: &Cached) -> Option<Learned> {
        if self.values.are_wanted() || self.filters.has_hooks() {
            return None;
        }
        if self.arena.control().ahead == 0 && !self.lock().learns() {
            return None;
        }
        let kept = cached.beside()?.read();
        let learned = kept.as_deref().and_then(Learned::read);
        Some(learned.unwrap_or_default())
    }

    /// What the calls of modules are planned for.
    fn plans(&self) -> load::Plans {
        let needs_functions = !self.options.records_no_functions()
            || !self.is_launched.load(Ordering::Relaxed)
            || self.filters.has_hooks()
            || !self.reactor.gates().is_empty()
            || self.values.are_wanted();
        match self.options.plans() {
            _ if !needs_functions => load::Plans::SystemCalls,
            // A hook cannot lead to the slot of a call in order, but to one of another kind.
            load::Plans::InOrder { system_calls } if self.filters.has_hooks() => {
                load::Plans::Mixed { system_calls }
            }
            load::Plans::Record if self.values.act_in_slots() && !self.filters.has_hooks() => {
                load::Plans::Acts
            }
            plans => plans,
        }
    }

    /// Where the function of a process begins that `avma` lies in.
    pub(crate) fn function_start(&self, pid: u32, avma: u64) -> Option<u64> {
        let mut c = self.lock();
        let loaded = *c.process(pid).module_at(avma)?;
        let svma = avma.wrapping_sub(loaded.bias);
        let start = c.book.modules.get(loaded.module)?.function_start(svma)?;
        Some(start.wrapping_add(loaded.bias))
    }

    /// Finds the functions of a module whose calls begin the recording.
    pub(crate) fn look_for_gates(&self, index: usize, pid: u32, m: &Mapping) {
        let gates = self.reactor.gates();
        if gates.is_empty() {
            return;
        }
        let cached = self
            .lock()
            .book
            .modules
            .get(index)
            .map(|m| Arc::clone(&m.cached));
        if let (Some(cached), Some(file)) = (cached, load::openable(pid, m)) {
            gates.look(index, &cached, &file);
        }
    }

    /// Says in a plan what tells its patch area from those of other plans and other agents.
    fn sign(&self, plan: &mut Plan) {
        let hash = plan.hash(self.agent_hash, PlanHeader::BYTES);
        let hash = ((hash ^ hash >> 32) as u32).to_le_bytes();
        let at = PlanHeader::HASH_OFFSET;
        let head = plan.head_mut(PlanHeader::BYTES);
        if let Some(field) = head.get_mut(at..at + hash.len()) {
            field.copy_from_slice(&hash);
        }
    }

    /// `run -F`: must the agent know this file before control comes there?
    pub fn must_be_known(&self, m: &Mapping, file: &Path) -> bool {
        let has_specials = || {
            let opened = load::kept(&self.options.cache, file, self.plans())?;
            let has_specials = load::has_specials(&opened);
            self.expected.add(m, (opened, file.to_owned()));
            has_specials
        };
        self.filters.must_be_known(&m.file, file, &has_specials)
    }

    /// Must the agent know the module at `m`: is it among those asked for, or does something happen
    /// in it that must be seen whatever is left out?
    pub fn is_needed(&self, pid: u32, m: &Mapping) -> bool {
        !self.options.leaves_out(&m.path)
            || self.values.are_wanted()
            || load::openable(pid, m).is_some_and(|file| self.must_be_known(m, &file))
    }

    /// Notes that a module is left out, and why.
    pub fn leave_out(&self, path: &str, why: &'static str) {
        self.left_out
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert((path.to_owned(), why));
    }

    /// Takes hold of a process that is about to exec the program that is named at `at` in it,
    /// unless that would take privileges from the program.
    pub fn may_seize(&self, pid: u32, tid: u32, at: u64) -> bool {
        let program = Program::of(pid, at);
        let why = match &program {
            Some(program) if !program.is_privileged() => {
                if self.ask_main(|reply| Command::Seize(tid, reply)) {
                    return true;
                }
                NOT_PERMITTED
            }
            _ => PRIVILEGED,
        };
        if program.is_none() && Program::is_nowhere(pid, at) {
            return false;
        }
        // What is not there is looked for, as by execvp(3).
        if program.as_ref().is_none_or(Program::exists) {
            let name = program.map_or("?".to_owned(), |p| p.name);
            self.unfollowed.note(self.arena.control(), &name, why);
        }
        false
    }

    /// Lets go of a process whose exec failed.
    pub fn release(&self, tid: u32) {
        self.ask_main(|reply| Command::Release(tid, reply));
    }

    /// Must recording end, now that the trace has so many bytes?
    pub(crate) fn shall_stop(&self, written_bytes: u64) -> Option<EarlyEnd> {
        if self.options.max_bytes > 0 && written_bytes >= self.options.max_bytes {
            return Some(EarlyEnd::AtSize);
        }
        let mut disk = self.disk.lock().ok()?;
        disk.is_low(written_bytes).then_some(EarlyEnd::DiskLow)
    }

    /// Ends recording, not the program. Only the first time counts.
    pub fn stop(&self, c: &mut Collector<Output>, why: EarlyEnd) {
        if matches!(why, EarlyEnd::AtEvent(_)) {
            self.end_tsc.fetch_min(c.until_tsc(), Ordering::AcqRel);
        }
        if self.stopped.set(why.clone()).is_ok() {
            c.end_counts(&self.arena);
            c.note(&Note::Recording {
                pid: 0,
                tsc: clock::tsc(),
                turn: Turn::EndsEarly(why),
            });
        }
        let state = &self.arena.control().host_state;
        state.store(HOST_STOPPED, Ordering::Release);
    }

    /// Ends recording until [`Self::go_on`].
    pub(crate) fn pause(&self) {
        let state = &self.arena.control().host_state;
        state.store(HOST_STOPPED, Ordering::Release);
        self.wake_main();
    }

    /// No process has the arena any more: what comes to have it records.
    pub(crate) fn go_on(&self) {
        self.arena.free_commands();
        self.numbers.letting_go(false);
        let state = &self.arena.control().host_state;
        state.store(HOST_RECORDING, Ordering::Release);
    }

    /// Coverage and loss as of now.
    pub fn outcome(&self, c: &Collector<Output>) -> Outcome {
        let mut outcome = Outcome::read(self.arena.control());
        outcome.events = c.events();
        // These keep all return addresses.
        if !matches!(
            self.options.plans(),
            load::Plans::Count | load::Plans::InOrder { .. } | load::Plans::Returns
        ) {
            outcome.seen_in_part = c.seen_in_part();
        }
        outcome.without_end = c.without_end().to_vec();
        outcome.record_bytes = c.record_bytes;
        outcome.torn = c.torn;
        outcome.followed = c.left_out();
        outcome.unfollowed = self.unfollowed.list();
        outcome.spent = c.spent();
        outcome.bidden = self.bids.bidden(&self.arena);
        outcome.overwritten = self.overwritten.load(Ordering::Relaxed);
        let left_out = self.left_out.lock();
        outcome.left_out = left_out
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .iter()
            .cloned()
            .collect();
        outcome
    }

    /// The same for the trace.
    pub fn summary(&self, outcome: &Outcome) -> Summary {
        let end_tsc = clock::tsc().min(self.end_tsc.load(Ordering::Acquire));
        let mut summary = outcome.summary(end_tsc);
        summary.ended_early = self.stopped.get().cloned();
        let windows = self.reactor.windows();
        let is_one = windows.is_switched() && windows.number() == 1;
        if windows.several().is_some() && !is_one {
            summary.row(Section::Recorded, "times", windows.number());
            summary.row(Section::RecordedFor, "ticks", windows.ticks(end_tsc));
        }
        summary
    }

    /// The recording has ended: the threads that drain and answer end, too.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let control = self.arena.control();
        for bell in [&control.doorbell, &control.question_bell] {
            bell.fetch_add(1, Ordering::Release);
            futex_wake(bell, i32::MAX);
        }
    }

    /// There is something for the session to look at.
    pub fn wake_main(&self) {
        let one = 1u64;
        // SAFETY: an eventfd takes eight bytes.
        unsafe { libc::write(self.wake, (&raw const one).cast(), 8) };
    }

    fn ask_main(&self, command: impl FnOnce(Sender<bool>) -> Command) -> bool {
        let (reply, answer) = channel();
        let sent = self
            .commands
            .lock()
            .is_ok_and(|c| c.send(command(reply)).is_ok());
        self.wake_main();
        sent && answer.recv_timeout(Duration::from_secs(2)).unwrap_or(false)
    }
}
