//! A recording from launch to end: owns ptrace, follows execs, waits for every traced process.
//!
//! ptrace is held from an exec that the agent announced to the exec stop, and never otherwise.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::hash::Hasher;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use sptrace_kernel::beside::Beside;
use sptrace_keys::Relay;
use sptrace_trace::{EarlyEnd, ExitStatus, Header, Note, TraceWriter};
use sptrace_tracee::arena::{Arena, Role, tell_of_death};
use sptrace_tracee::entry::entries;
use sptrace_tracee::image::{self, AgentImage};
use sptrace_tracee::keep::Kept;
use sptrace_tracee::proc::{self, files};
use sptrace_tracee::{TraceeError, inject, launch, limits, ptrace};

use crate::bids::Bids;
use crate::captures::SystemCalls;
use crate::collector::{Collector, first_call};
use crate::event::Source;
use crate::kept::KeptCommand;
use crate::kernel_side::KernelSide;
use crate::latecomers::Latecomers;
use crate::live::gate::jump::GateJump;
use crate::live::points_left::{Acted, PointsLeft};
use crate::loops;
use crate::modules::expected::Expected;
use crate::modules::filters::Filters;
use crate::modules::snapshots::Snapshots;
use crate::open_files;
use crate::outcome::Outcome;
use crate::output::{self, Opened, Output};
use crate::progress::Progress;
use crate::react::reactor::Reactor;
use crate::react::{self, EventsThread, Prepared};
use crate::request::{Options, Stamps};
use crate::shared::{Command, Shared};
use crate::signals::{HANDLED, block_signals, take_signals, wait_any, wait_for_something};
use crate::unfollowed;
use crate::values::Values;
use crate::ways::{arena_of, has_ends, has_roots};

/// Whose code calls the main function of most programs; glibc's name for it.
const C_LIBRARY: &str = "libc.so.6";

/// How the command ended, and what was seen.
pub struct Finished {
    /// The command's wait status.
    pub status: ExitStatus,
    /// Coverage and loss.
    pub outcome: Outcome,
    /// Things to tell the user.
    pub remarks: Vec<String>,
    /// Why recording ended early, if it did.
    pub output_error: Option<std::io::Error>,
    /// Why recording ended before the command did, if it was stopped.
    pub stopped: Option<EarlyEnd>,
    /// How many dumps were written, if there were to be any: then there is no other trace.
    pub dumps: Option<u64>,
}

/// Patches the return points of a process that were left alone.
pub(crate) type Patching = Box<dyn FnMut(&Session) -> Acted>;

/// A recording of one command and what it starts.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) image: AgentImage,
    pub(crate) sources: Vec<Box<dyn Source>>,
    /// Between the command's terminal and ours.
    relay: Option<Relay>,
    /// A child of ours that leads the command's session, if that has one of its own.
    leader: Option<u32>,
    /// The descriptor that tells of them, and the mask for the command.
    signals: (i32, libc::sigset_t),
    commands: Receiver<Command>,
    releasing: RefCell<Vec<(u32, Sender<bool>)>>,
    late: RefCell<Vec<Command>>,
    pub(crate) remarks: Vec<String>,
    /// The process that becomes the command, if it was there before.
    there: KeptCommand,
    /// The command's process, if there is a command, and how that has ended.
    command: Option<u32>,
    pub(crate) ended: Option<ExitStatus>,
    /// Processes that were attached to and could not be let go as they were, and why.
    pub(crate) kept: Vec<(u32, String)>,
    /// Functions that lead over a gate.
    pub(crate) led: RefCell<Vec<GateJump>>,
    /// The command while it stands still, held, before it runs by itself.
    pub(crate) standing: Cell<Option<u32>>,
    latecomers: Latecomers,
    pub(crate) points: PointsLeft<Patching>,
    pub(crate) kernel: KernelSide,
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> TraceeError {
    move |source| TraceeError::System { what, source }
}

/// What will write the trace into an output, whose header it has written.
fn writer_of(opened: &mut Opened, header: &Header) -> Result<TraceWriter<Output>, TraceeError> {
    let output = std::mem::replace(&mut opened.output, Box::new(std::io::sink()));
    let writer = TraceWriter::create(output, header).map_err(std::io::Error::other);
    writer.map_err(system("writing the trace file"))
}

fn collector_of(
    opened: &mut Opened,
    header: &Header,
    (options, reactor): (&Options, &Reactor),
) -> Result<Collector<Output>, TraceeError> {
    let mut collector = Collector::new(writer_of(opened, header)?);
    collector.tap(options.tap.clone());
    let calls = options.system_calls.as_ref();
    collector.leaves_out_calls(calls.is_some_and(SystemCalls::leave_out));
    let needs_calls = options.payloads.is_some() || options.values.is_some();
    if options.counts_records {
        collector.count_records(options.counts);
    }
    let ruled = reactor.between().choices().into_iter();
    let roots = options.within.iter().cloned();
    let roots = roots.chain(ruled.map(|choice| choice.glob)).collect();
    collector.limit((options.limit, needs_calls), roots, header.tsc_hz);
    collector.begin_with(&options.levels);
    if let Some(payloads) = &options.payloads {
        collector.add_up(payloads);
        collector.heed(&options.bids);
    }
    let is_in_part = options.stamps == Stamps::Auto;
    if options.stamps != Stamps::Full {
        let tsc = crate::clock::tsc();
        collector.note(&Note::InOrder { tsc, is_in_part });
    }
    if options.stamps_of_slots() != Stamps::Full {
        collector.limit_depth(options.depth_limit);
    }
    match options.stamps_of_slots() {
        Stamps::Auto => collector.mix(header.tsc_hz),
        Stamps::None if has_ends(options, reactor) => collector.have_ends(),
        _ => {}
    }
    Ok(collector)
}

/// What the threads of a recording share.
fn shared_of(
    options: Options,
    opened: Opened,
    (arena, collector, reactor): (Arena, Collector<Output>, Reactor),
    agent_hash: u64,
    send: Sender<Command>,
) -> Result<Shared, TraceeError> {
    Ok(Shared {
        arena,
        agent_hash,
        filters: filters_of(&options, &reactor),
        values: values_of(&options, &reactor),
        progress: Progress::new(options.show_progress),
        bids: Bids::new(options.bids.clone()),
        options,
        numbers: Arc::clone(&collector.numbers),
        unfollowed: Arc::clone(&collector.unfollowed),
        collector: Mutex::new(collector),
        turn: Mutex::default(),
        commands: Mutex::new(send),
        wake: wake_descriptor()?,
        ended: AtomicBool::new(false),
        output: opened.descriptor,
        disk: Mutex::new(opened.disk),
        overwritten: opened.overwritten,
        stopped: OnceLock::new(),
        end_tsc: AtomicU64::new(u64::MAX),
        reactor,
        snapshots: Snapshots::default(),
        expected: Expected::default(),
        left_out: Mutex::default(),
        injected: AtomicU64::default(),
        is_launched: AtomicBool::default(),
    })
}

/// By which the other threads wake the one that waits for processes.
fn wake_descriptor() -> Result<i32, TraceeError> {
    // SAFETY: a fresh eventfd.
    let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    match wake {
        0.. => Ok(wake),
        _ => Err(TraceeError::last("eventfd")),
    }
}

fn hash_of(agent: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(agent);
    hasher.finish()
}

fn values_of(options: &Options, reactor: &Reactor) -> Values {
    Values::new(options.values.clone(), options.payloads.clone())
        .with_frames(options.depth_limit > 0 || has_roots(options, reactor))
        .switched(options.switched_values())
}

/// Where the trace goes.
fn output_of(options: &Options, reactor: &Reactor) -> Result<output::Opened, TraceeError> {
    let ring = reactor.ring().map_err(system("keeping a ring"))?;
    output::open(&options.output, options.ring_bytes, ring)
}

/// Which functions are recorded, and which modules must be known for that.
fn filters_of(options: &Options, reactor: &Reactor) -> Filters {
    Filters::new(
        &options.within,
        reactor.between().choices(),
        &options.without,
        options.depth_limit > 0 || !options.modules.is_empty(),
        options.leaves_out(C_LIBRARY),
        options.system_calls.as_ref().map(|calls| calls.only),
        options.decide.clone(),
    )
    .counting(options.counts || options.stamps != Stamps::Full || options.limit.is_some())
    .in_order(options.stamps_of_slots() == Stamps::None)
    .keeping_returns(options.keeps_returns)
    .switched(reactor.switch().cloned())
}

impl Session {
    /// Prepares everything that can fail before the command starts: the arena, the agent's image,
    /// the trace file with its header.
    ///
    /// # Errors
    /// No arena, or the output cannot be written.
    pub fn prepare(
        options: Options,
        header: &Header,
        agent: &[u8],
        mut events: Prepared,
    ) -> Result<Self, TraceeError> {
        // Before there is a file: what is sent to us from here on reaches the command.
        let signals = block_signals(&events.reactor.signals());
        let arena = arena_of(&options, &events.reactor, header.tsc_hz)?;
        let image = image::load(&arena, agent)?;
        let mut opened = output_of(&options, &events.reactor)?;
        let mut collector = collector_of(&mut opened, header, (&options, &events.reactor))?;
        let (relay, (reactor, sources)) = (events.relay.take(), events.split(&mut collector));
        let (send, commands) = channel();
        let made = (arena, collector, reactor);
        let shared = Arc::new(shared_of(options, opened, made, hash_of(agent), send)?);
        Ok(Self {
            shared,
            image,
            sources,
            relay,
            leader: None,
            there: KeptCommand::default(),
            signals,
            commands,
            releasing: RefCell::default(),
            late: RefCell::default(),
            remarks: Vec::new(),
            command: None,
            ended: None,
            kept: Vec::new(),
            led: RefCell::default(),
            standing: Cell::default(),
            latecomers: Latecomers::new(),
            points: PointsLeft::new(),
            kernel: KernelSide::default(),
        })
    }

    /// The command is to be in this process, which is not our child.
    pub fn keep(&mut self, kept: Kept) {
        self.there = KeptCommand::new(kept);
    }

    /// What the kernel does meanwhile is to be recorded, too.
    pub fn with_kernel(&mut self, prepared: Beside) {
        self.kernel = KernelSide::new(prepared);
    }

    /// Runs the command to its end and records it.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run(mut self, argv: &[CString]) -> Result<Finished, TraceeError> {
        self.shared.is_launched.store(true, Ordering::Relaxed);
        let child = self.launch(argv)?;
        if self.shared.options.records_execve() {
            self.shared.lock().first_call = Some(first_call::execve(argv));
        }
        let result = self.record(child, |session| {
            if !session.shared.reactor.is_followed() {
                session.shared.reactor.begin();
            }
            session.kernel.begin(&session.shared, &[child]);
            session.exec_stop(child);
            Ok(match session.shared.reactor.switch() {
                Some(_) => session.live_on(child),
                None => session.wait_for_all(),
            })
        });
        result.inspect_err(|_| launch::take_back(child))
    }

    /// Records while `live` runs, which gives how the command ended.
    pub(crate) fn record(
        mut self,
        child: u32,
        live: impl FnOnce(&mut Self) -> Result<ExitStatus, TraceeError>,
    ) -> Result<Finished, TraceeError> {
        self.command = Some(child);
        tell_of_death(&self.shared.arena, Role::Tracer);
        let (drainer, answerer) = loops::spawn(&self.shared)?;
        let sources = std::mem::take(&mut self.sources);
        let events = EventsThread::spawn(&self.shared, sources, child);
        let alive = &self.shared.arena.control().host_alive;
        while alive.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let status = live(&mut self);
        self.kernel.end();
        let status = status?;
        self.shared.end();
        let _ = drainer.join();
        let _ = answerer.join();
        self.collect_rest();
        let windows = self.shared.reactor.windows();
        match (windows.number(), windows.several()) {
            (0, _) => {
                let nothing = "nothing was recorded: no event of --start-on happened";
                self.remarks.push(nothing.to_owned());
                self.remarks.extend(self.shared.reactor.gates().remark());
            }
            (made, Some(times)) if made < times && times != u64::MAX => {
                let remark = format!("recorded {made} of {times} times: the command ended before");
                self.remarks.push(remark);
            }
            _ => {}
        }
        events.end(&self.shared);
        self.finish(status)
    }

    /// Starts the command, which stands at its exec stop then.
    pub(crate) fn launch(&mut self, argv: &[CString]) -> Result<u32, TraceeError> {
        let inherited = launch::Inherited {
            at_start: self.shared.options.at_start,
            mask: self.signals.1,
            terminal: self.relay.as_ref().and_then(Relay::terminal),
            kept: self.there.process(),
        };
        let started = launch::start(argv, &inherited)?;
        // What the terminal sends from here on reaches the command as well; what it has sent before
        // there was one, only us. The command stands still: one that has reached it, too, is the
        // same to it.
        let pass = |signal| {
            if signal != libc::SIGCHLD && HANDLED.contains(&signal) {
                // SAFETY: our own child.
                unsafe { libc::kill(started.command as i32, signal) };
            }
        };
        take_signals(self.signals.0, &self.shared, &mut |signal, _| pass(signal));
        self.leader = started.leader;
        if let Some(mut relay) = self.relay.take() {
            relay.launched();
            self.sources.push(Box::new(relay));
        }
        // A file size limit shall end the recording, not us; the command keeps its own disposition.
        // SAFETY: a disposition of our own process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(started.command)
    }

    /// What no thread of the program will hand over any more.
    pub(crate) fn collect_rest(&self) {
        let mut c = self.shared.lock();
        c.end_dead_streams(&self.shared.arena, &|_| false);
        c.drain(&self.shared.arena);
        react::collected(&self.shared, &mut c);
    }

    pub(crate) fn finish(self, status: ExitStatus) -> Result<Finished, TraceeError> {
        let shared = &self.shared;
        shared.lock().tell_rest();
        shared.lock().note_tables(&shared.arena);
        let control = shared.arena.control();
        let injected = shared.injected.load(Ordering::Relaxed);
        match injected.saturating_sub(control.begun.load(Ordering::Relaxed)) {
            0 => {}
            n => shared
                .unfollowed
                .note_all(control, "?", unfollowed::NO_ROOM, n),
        }
        let outcome = shared.outcome(&shared.lock());
        let mut summary = shared.summary(&outcome);
        self.kernel.rows(&mut summary);
        let mut remarks = self.remarks;
        remarks.extend(self.kernel.remark());
        remarks.extend(self.kept.into_iter().map(|(pid, why)| {
            format!("pid {pid} keeps memory of sptrace, unused: {why} (it runs on undisturbed)")
        }));
        remarks.extend(shared.filters.remarks());
        remarks.extend(shared.values.remarks());
        remarks.extend(shared.reactor.between().remarks());
        let Some(shared) = Arc::into_inner(self.shared) else {
            return Err(TraceeError::NoRoom("a thread still holds the recording"));
        };
        // SAFETY: our own eventfd, used by nobody any more.
        unsafe { libc::close(shared.wake) };
        let collector = shared
            .collector
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let output_error = match collector.finish(&shared.arena, &summary) {
            Ok(mut out) => out.flush().err(),
            Err(e) => Some(e),
        };
        Ok(Finished {
            status,
            outcome,
            remarks,
            output_error,
            stopped: shared.stopped.get().cloned(),
            dumps: shared.reactor.dumps(),
        })
    }

    /// A process stands at its exec stop: inject, or let it go and say so.
    fn exec_stop(&mut self, pid: u32) {
        let reactor = &self.shared.reactor;
        if reactor.windows().is_pause() && !reactor.is_followed() {
            // It was in a recording that has ended meanwhile.
            let _ = ptrace::detach(pid, 0);
            return;
        }
        let exe = files::program_name(pid).unwrap_or_default();
        let mut c = self.shared.lock();
        c.exec(&self.shared.arena, pid, &exe);
        if self.shared.options.system_calls.is_some() {
            c.note(&open_files::note(pid));
        }
        drop(c);
        let arena_bytes = self.shared.arena.bytes();
        let result = unfollowed::may_enter(pid)
            .and_then(|()| limits::leave_room(pid, arena_bytes))
            .and_then(|()| entries(pid))
            .and_then(|e| inject::inject(pid, &self.shared.arena, &self.image, e));
        match &result {
            Ok(()) => log::info!("process {pid} executes {exe}: the agent is in it"),
            Err(e) => log::warn!("process {pid} executes {exe}: not followed: {e}"),
        }
        if let Err(e) = result {
            let control = self.shared.arena.control();
            self.shared.unfollowed.note(control, &exe, &e.to_string());
            let _ = ptrace::detach(pid, 0);
        } else {
            self.latecomers.enters(&self.shared, pid);
            if self.shared.options.keeps_returns {
                self.points.begin_soon();
            }
        }
    }

    /// Handles stops, ends and commands that are there.
    pub(crate) fn serve(&mut self) {
        while let Some((pid, s)) = wait_any() {
            if libc::WIFSTOPPED(s) {
                self.stopped(pid, s);
                continue;
            }
            if self.leader == Some(pid) || self.shared.options.helper == Some(pid) {
                // Of the leader: its terminal has gone.
                continue;
            }
            let how = exit_status(s);
            self.shared.lock().exited(pid, how);
            if self.command == Some(pid) {
                react::ended(&self.shared, pid, how);
                self.ended = Some(how);
            }
        }
        if let (None, Some(how)) = (self.ended, self.there.ended()) {
            // Before Linux 6.15 nobody may be able to tell how: it has ended all the same.
            let status = how.map_or(ExitStatus::Exited(0), exit_status);
            if let (Some(pid), true) = (self.command, how.is_some()) {
                self.shared.lock().exited(pid, status);
                react::ended(&self.shared, pid, status);
            }
            self.ended = Some(status);
        }
        self.obey_all();
    }

    /// Does what the other threads of ours have asked for.
    pub(crate) fn obey_all(&self) {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
    }

    /// The same while all threads of a process are being stopped. They are let go in the end, so
    /// one that must be is promised that at once: its stop would be taken for theirs.
    pub(crate) fn obey_beside(&self, pid: u32) {
        self.obey_beside_but(pid, &|tid, reply| self.obey(Command::Seize(tid, reply)));
    }

    /// The same where they go on as before: who is about to execute a program is held for it later.
    pub(crate) fn obey_beside_for_now(&self, pid: u32) {
        self.obey_beside_but(pid, &|tid, reply| {
            self.late.borrow_mut().push(Command::Seize(tid, reply));
        });
    }

    /// Does what has waited for that.
    pub(crate) fn obey_late(&self) {
        for command in self.late.take() {
            self.obey(command);
        }
    }

    fn obey_beside_but(&self, pid: u32, seize: &dyn Fn(u32, Sender<bool>)) {
        let is_its = |tid: u32| proc::has_thread(pid, tid);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Release(tid, reply) if is_its(tid) => drop(reply.send(true)),
                Command::Seize(tid, reply) if is_its(tid) => seize(tid, reply),
                other => self.obey(other),
            }
        }
        let mut releasing = self.releasing.borrow_mut();
        for (_, reply) in releasing.extract_if(.., |(tid, _)| is_its(*tid)) {
            let _ = reply.send(true);
        }
    }

    /// Waits for something to serve, at most so long; true if somebody asks us by a signal to end.
    pub(crate) fn wait_for_end(&mut self, at_most: Duration) -> bool {
        let mut is_asked = false;
        wait_for_something(
            (self.signals.0, self.there.watched()),
            &self.shared,
            at_most,
            |signal, _| {
                is_asked |= signal != libc::SIGCHLD && HANDLED.contains(&signal);
            },
        );
        is_asked || self.shared.stopped.get().is_some()
    }

    fn wait_for_all(&mut self) -> ExitStatus {
        loop {
            self.serve();
            self.patch_points_left();
            if let Some(status) = self.all_ended() {
                return status;
            }
            self.wait_and_forward();
        }
    }

    /// How the command ended, if it has, and all that it has left behind.
    pub(crate) fn all_ended(&mut self) -> Option<ExitStatus> {
        let status = self.ended?;
        let mut c = self.shared.lock();
        let alive = c.end_ended(&self.shared.arena);
        drop(c);
        if alive > 0 {
            self.latecomers.are_there();
            return None;
        }
        let is_over = self.is_stopped() || !self.latecomers.may_come(&self.shared);
        is_over.then_some(status)
    }

    /// Waits for something to serve, for 100 ms at most; hands signals that are meant for the
    /// command on.
    pub(crate) fn wait_and_forward(&self) {
        let running = self.command.filter(|_| self.ended.is_none());
        let slice = Duration::from_millis(100).min(self.points.wait().unwrap_or(Duration::MAX));
        wait_for_something(
            (self.signals.0, self.there.watched()),
            &self.shared,
            slice,
            |signal, code| {
                // One from the terminal has reached the command already, and one that is only an
                // event is not meant for it.
                if let Some(child) = running
                    && signal != libc::SIGCHLD
                    && HANDLED.contains(&signal)
                    && code == libc::SI_USER
                {
                    // SAFETY: our own child.
                    unsafe { libc::kill(child as i32, signal) };
                }
            },
        );
    }

    /// Has the recording been ended, by an event or for want of room?
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stopped.get().is_some()
    }

    fn stopped(&mut self, pid: u32, status: i32) {
        let event = status >> 16;
        let signal = libc::WSTOPSIG(status);
        if event == libc::PTRACE_EVENT_EXEC {
            self.exec_stop(pid);
            return;
        }
        let pass = if event == 0 { signal } else { 0 };
        let mut releasing = self.releasing.borrow_mut();
        if let Some(i) = releasing.iter().position(|r| r.0 == pid) {
            let (_, reply) = releasing.swap_remove(i);
            let _ = reply.send(ptrace::detach(pid, pass).is_ok());
            return;
        }
        if event == libc::PTRACE_EVENT_STOP && signal == libc::SIGTRAP {
            // It could not be stopped in time when it was attached to, or let go.
            let _ = ptrace::detach(pid, 0);
        } else {
            let _ = ptrace::resume(pid, pass);
        }
    }

    fn obey(&self, command: Command) {
        match command {
            Command::Seize(tid, reply) => {
                let _ = reply.send(ptrace::seize(tid).is_ok());
            }
            Command::Release(tid, reply) => {
                if ptrace::interrupt(tid).is_ok() {
                    self.releasing.borrow_mut().push((tid, reply));
                } else {
                    let _ = reply.send(false);
                }
            }
        }
    }
}

fn exit_status(status: i32) -> ExitStatus {
    if libc::WIFSIGNALED(status) && libc::WCOREDUMP(status) {
        ExitStatus::Dumped(libc::WTERMSIG(status))
    } else if libc::WIFSIGNALED(status) {
        ExitStatus::Signaled(libc::WTERMSIG(status))
    } else {
        ExitStatus::Exited(libc::WEXITSTATUS(status))
    }
}
