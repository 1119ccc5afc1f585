//! A recording from launch to end: owns ptrace, follows execs, waits for every traced process.
//!
//! ptrace is held from an exec that the agent announced to the exec stop, and never otherwise.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use sptrace_patch::columns::from_columns;
use sptrace_trace::{ENDED_EARLY, ExitStatus, Header, Note, Summary, TraceWriter};
use sptrace_tracee::arena::{Arena, ArenaOptions, Liveness, futex_wait};
use sptrace_tracee::image::{self, AgentImage};
use sptrace_tracee::maps::Mapping;
use sptrace_tracee::{TraceeError, inject, launch, ptrace};
use sptrace_wire::control::{HOST_STOPPED, hole};
use sptrace_wire::plan::PlanHeader;

use crate::alive::is_alive;
use crate::answer;
use crate::clock;
use crate::collector::Collector;
use crate::disk::DiskWatch;
use crate::event::Source;
use crate::filters::Filters;
use crate::outcome::Outcome;
use crate::output::{self, Output};
use crate::react::{self, EventsThread, Prepared, Reactor};

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace file.
    pub output: PathBuf,
    /// Chunks of 64 KiB to record into.
    pub chunks: u32,
    /// Lose events rather than wait when all are full.
    pub drop_when_full: bool,
    /// Record ld.so's start-up work.
    pub loader: bool,
    /// Depth below which nothing is instrumented; 0: none.
    pub depth_limit: u32,
    /// End recording when the file has this many bytes; 0: never.
    pub max_bytes: u64,
    /// Keep about so many bytes of the end of the recording; 0: all of it.
    pub ring_bytes: u64,
    /// Where analyses are kept; None: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Name patterns (base names, `*` at the ends) of modules to record; empty: all.
    pub modules: Vec<String>,
    /// Globs of functions at which recording begins; empty: at the program's start.
    pub within: Vec<String>,
    /// Globs of functions that are not recorded, nor anything that only they call.
    pub without: Vec<String>,
    /// SIGPIPE's disposition as sptrace found it.
    pub sigpipe: libc::sighandler_t,
}

impl Options {
    /// True if the user's choice of modules leaves this file out.
    pub fn leaves_out(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        !self.modules.is_empty() && !self.modules.iter().any(|m| matches(m, name))
    }
}

/// A glob with `*` only.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).any(|i| rest.is_char_boundary(i) && matches(tail, &rest[i..]))
        }),
    }
}

/// What the threads of a session share.
pub struct Shared {
    /// The arena.
    pub arena: Arena,
    /// What the user asked for.
    pub options: Options,
    collector: Mutex<Collector<Output>>,
    commands: Mutex<Sender<Command>>,
    wake: i32,
    pub(crate) ended: AtomicBool,
    filters: Filters,
    /// Of the agent's image.
    agent_hash: u64,
    disk: Mutex<DiskWatch>,
    /// Events that the ring has overwritten.
    overwritten: Arc<AtomicU64>,
    stopped: OnceLock<Stopped>,
    /// Nothing that is later is in the trace (TSC); `u64::MAX`: it goes on to the command's end.
    end_tsc: AtomicU64,
    /// What events lead to.
    pub reactor: Reactor,
    /// Modules that are not traced, and why.
    left_out: Mutex<BTreeSet<(String, &'static str)>>,
}

/// Why recording ended before the command did, though the trace could be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The file has [`Options::max_bytes`].
    AtSize,
    /// Its volume runs low ([`crate::disk`]).
    DiskLow,
    /// An event that the user had named.
    AtEvent(String),
}

impl Stopped {
    /// For the trace.
    pub fn why(&self) -> String {
        match self {
            Self::AtSize => "the file had reached --max-size".to_owned(),
            Self::DiskLow => "the disk was running low".to_owned(),
            Self::AtEvent(event) => format!("--stop-on {event}"),
        }
    }
}

enum Command {
    Seize(u32, Sender<bool>),
    Release(u32, Sender<bool>),
}

impl Shared {
    /// The collector; its lock is never poisoned for good: what a panicking thread left is still a
    /// trace.
    pub fn lock(&self) -> MutexGuard<'_, Collector<Output>> {
        self.collector
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The module of a mapping, analysed and given to the agents if it is new.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn module(&self, pid: u32, m: &Mapping) -> Result<usize, &'static str> {
        if let Some(known) = self.lock().module_of(&m.file) {
            return Ok(known);
        }
        let (cached, file) = answer::load(self.options.cache_dir.as_deref(), pid, m)
            .ok_or("its file cannot be read or analysed")?;
        let plan = cached.plan().and_then(from_columns);
        let plan = plan.ok_or("no plan could be made")?;
        let mut plan = self.filters.plan(&cached, plan, &file);
        self.sign(&mut plan);
        let plan_offset = self.arena.add_plan(&plan).ok_or("no room for its plan")?;
        self.lock()
            .add_module(m.file.clone(), &m.path, cached, &plan, plan_offset)
            .ok_or("no plan could be made")
    }

    /// Says in a plan what tells its patch area from those of other plans and other agents.
    fn sign(&self, plan: &mut [u8]) {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write_u64(self.agent_hash);
        hasher.write(plan);
        let hash = (hasher.finish() as u32).to_le_bytes();
        let at = std::mem::offset_of!(PlanHeader, hash);
        if let Some(field) = plan.get_mut(at..at + hash.len()) {
            field.copy_from_slice(&hash);
        }
    }

    /// `run -F`: must the agent know this file before control comes there?
    pub fn must_be_known(&self, m: &Mapping, file: &Path) -> bool {
        self.filters.must_be_known(&m.file, file)
    }

    /// Notes that a module is left out, and why.
    pub fn leave_out(&self, path: &str, why: &'static str) {
        self.left_out
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert((path.to_owned(), why));
    }

    /// Takes hold of a process that is about to exec the program whose path lies at `path` in it,
    /// unless that would take privileges from the program.
    pub fn may_seize(&self, pid: u32, tid: u32, path: u64) -> bool {
        if is_privileged(pid, path) {
            return false;
        }
        self.ask_main(|reply| Command::Seize(tid, reply))
    }

    /// Lets go of a process whose exec failed.
    pub fn release(&self, tid: u32) {
        self.ask_main(|reply| Command::Release(tid, reply));
    }

    /// Must recording end, now that the trace has so many bytes?
    fn shall_stop(&self, written_bytes: u64) -> Option<Stopped> {
        if self.options.max_bytes > 0 && written_bytes >= self.options.max_bytes {
            return Some(Stopped::AtSize);
        }
        let mut disk = self.disk.lock().ok()?;
        disk.is_low(written_bytes).then_some(Stopped::DiskLow)
    }

    /// Ends recording, not the program. Only the first time counts.
    pub fn stop(&self, c: &mut Collector<Output>, why: Stopped) {
        let text = format!("recording ended early: {}", why.why());
        if matches!(why, Stopped::AtEvent(_)) {
            self.end_tsc.fetch_min(c.until_tsc, Ordering::AcqRel);
        }
        if self.stopped.set(why).is_ok() {
            c.note(&Note::Text {
                pid: 0,
                tsc: clock::tsc(),
                text,
            });
        }
        let state = &self.arena.control().host_state;
        state.store(HOST_STOPPED, Ordering::Release);
    }

    /// Coverage and loss as of now.
    pub fn outcome(&self, c: &Collector<Output>) -> Outcome {
        let mut outcome = Outcome::read(self.arena.control());
        outcome.events = c.events;
        outcome.record_bytes = c.record_bytes;
        outcome.torn = c.torn;
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
        if let Some(stopped) = self.stopped.get() {
            summary.row(ENDED_EARLY, &stopped.why(), 1);
        }
        summary
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

/// Set-id bits or file capabilities of the program at `path` in `pid`: under ptrace the kernel would
/// not honour them (execve(2)).
fn is_privileged(pid: u32, path: u64) -> bool {
    use std::os::unix::fs::{FileExt, MetadataExt};
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return false;
    }
    let mut bytes = [0u8; 4096];
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return true;
    };
    let Ok(got) = memory.read_at(&mut bytes, path) else {
        return true;
    };
    let end = bytes[..got].iter().position(|b| *b == 0).unwrap_or(got);
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let file = if name.starts_with('/') {
        format!("/proc/{pid}/root{name}")
    } else {
        format!("/proc/{pid}/cwd/{name}")
    };
    std::fs::metadata(&file).is_ok_and(|m| m.mode() & 0o6000 != 0) || has_capabilities(&file)
}

fn has_capabilities(file: &str) -> bool {
    let Ok(file) = CString::new(file) else {
        return false;
    };
    // SAFETY: NUL-terminated names; a null buffer of size 0 asks for the size.
    unsafe {
        libc::getxattr(
            file.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

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
    pub stopped: Option<Stopped>,
    /// How many dumps were written, if there were to be any: then there is no other trace.
    pub dumps: Option<u64>,
}

/// A recording of one command and what it starts.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) image: AgentImage,
    pub(crate) sources: Vec<Box<dyn Source>>,
    /// The descriptor that tells of them, and the mask for the command.
    signals: (i32, libc::sigset_t),
    commands: Receiver<Command>,
    releasing: RefCell<Vec<(u32, Sender<bool>)>>,
    pub(crate) remarks: Vec<String>,
    /// Processes that were attached to and could not be let go as they were.
    pub(crate) kept: Vec<u32>,
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
        events: Prepared,
    ) -> Result<Self, TraceeError> {
        // Before there is a file: what is sent to us from here on reaches the command.
        let signals = block_signals(&events.reactor.signals());
        let arena = Arena::new(ArenaOptions {
            chunks: options.chunks,
            drop_when_full: options.drop_when_full,
            depth_limit: options.depth_limit,
            loader: options.loader,
            roots_only: !options.within.is_empty(),
        })?;
        let image = image::load(&arena, agent)?;
        let system = |what| move |source| TraceeError::System { what, source };
        let ring = events
            .reactor
            .ring()
            .map_err(system("keeping a ring in memory"))?;
        let opened = output::open(&options.output, options.ring_bytes, ring)?;
        let writer =
            TraceWriter::create(opened.output, header).map_err(|e| TraceeError::System {
                what: "writing the trace file",
                source: std::io::Error::other(e),
            })?;
        // SAFETY: a fresh eventfd.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(TraceeError::last("eventfd"));
        }
        let mut collector = Collector::new(writer);
        let (reactor, sources) = events.split(&mut collector);
        let (send, commands) = channel();
        let shared = Arc::new(Shared {
            arena,
            agent_hash: {
                let mut hasher = std::hash::DefaultHasher::new();
                hasher.write(agent);
                hasher.finish()
            },
            filters: Filters::new(&options.within, &options.without, options.depth_limit > 0),
            options,
            collector: Mutex::new(collector),
            commands: Mutex::new(send),
            wake,
            ended: AtomicBool::new(false),
            disk: Mutex::new(opened.disk),
            overwritten: opened.overwritten,
            stopped: OnceLock::new(),
            end_tsc: AtomicU64::new(u64::MAX),
            reactor,
            left_out: Mutex::default(),
        });
        Ok(Self {
            shared,
            image,
            sources,
            signals,
            commands,
            releasing: RefCell::default(),
            remarks: Vec::new(),
            kept: Vec::new(),
        })
    }

    /// Runs the command to its end and records it.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn run(self, argv: &[CString]) -> Result<Finished, TraceeError> {
        let child = self.launch(argv)?;
        self.record(child, |session| {
            session.shared.reactor.begin();
            session.exec_stop(child);
            Ok(session.wait_for_all(child))
        })
    }

    /// Records while `live` runs, which gives how the command ended.
    pub(crate) fn record(
        mut self,
        child: u32,
        live: impl FnOnce(&mut Self) -> Result<ExitStatus, TraceeError>,
    ) -> Result<Finished, TraceeError> {
        let drainer = spawn("drain", &self.shared, drain_loop);
        let answerer = spawn("answer", &self.shared, answer_loop);
        let sources = std::mem::take(&mut self.sources);
        let events = EventsThread::spawn(&self.shared, sources, child);
        let alive = &self.shared.arena.control().host_alive;
        while alive.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let status = live(&mut self)?;
        self.shared.ended.store(true, Ordering::Release);
        let _ = drainer.join();
        let _ = answerer.join();
        self.collect_rest();
        events.end(&self.shared);
        self.finish(status)
    }

    /// Starts the command, which stands at its exec stop then.
    pub(crate) fn launch(&self, argv: &[CString]) -> Result<u32, TraceeError> {
        let inherited = launch::Inherited {
            sigpipe: self.shared.options.sigpipe,
            mask: self.signals.1,
        };
        let child = launch::start(argv, &inherited)?;
        // A file size limit shall end the recording, not us; the command keeps its own disposition.
        // SAFETY: a disposition of our own process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(child)
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
        let outcome = shared.outcome(&shared.lock());
        let summary = shared.summary(&outcome);
        let mut remarks = self.remarks;
        remarks.extend(shared.filters.remarks());
        let Some(shared) = Arc::into_inner(self.shared) else {
            return Err(TraceeError::NoRoom("a thread still holds the recording"));
        };
        // SAFETY: our own eventfd, used by nobody any more.
        unsafe { libc::close(shared.wake) };
        let collector = shared
            .collector
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let output_error = match collector.finish(&summary) {
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
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let exe = exe.to_string_lossy().into_owned();
        self.shared.lock().exec(&self.shared.arena, pid, &exe);
        let result = entries(pid, self.shared.options.loader)
            .and_then(|e| inject::inject(pid, &self.shared.arena, &self.image, e));
        if let Err(e) = result {
            let holes = &self.shared.arena.control().holes;
            holes[hole::EXEC_UNSEEN].fetch_add(1, Ordering::Relaxed);
            self.remarks
                .push(format!("{exe} (pid {pid}) runs untraced: {e}"));
            let _ = ptrace::detach(pid, 0);
        }
    }

    /// Handles stops and commands that are there; gives how `child` ended, if it has.
    pub(crate) fn serve_and_reap(&mut self, child: u32) -> Option<ExitStatus> {
        let mut status = None;
        while let Some((pid, s)) = wait_any() {
            if libc::WIFSTOPPED(s) {
                self.stopped(pid, s);
                continue;
            }
            let how = exit_status(s);
            self.shared.lock().exited(pid, how);
            if pid == child {
                react::ended(&self.shared, pid, how);
                status = Some(how);
            }
        }
        self.obey_all();
        status
    }

    /// Does what the other threads of ours have asked for.
    pub(crate) fn obey_all(&self) {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
    }

    /// Handles stops and commands that are there.
    pub(crate) fn serve(&mut self) {
        self.serve_and_reap(0);
    }

    /// Waits for something to serve, at most so long; true if somebody asks us by a signal to end.
    pub(crate) fn wait_for_end(&mut self, at_most: Duration) -> bool {
        let mut is_asked = false;
        wait_for_something(self.signals.0, &self.shared, at_most, |signal, _| {
            is_asked |= signal != libc::SIGCHLD && HANDLED.contains(&signal);
        });
        is_asked || self.shared.stopped.get().is_some()
    }

    fn wait_for_all(&mut self, child: u32) -> ExitStatus {
        let mut status = None;
        loop {
            status = self.serve_and_reap(child).or(status);
            if let Some(status) = status {
                let mut c = self.shared.lock();
                let alive = c.end_dead_streams(&self.shared.arena, &is_alive);
                drop(c);
                if alive == 0 {
                    return status;
                }
            }
            self.wait_and_forward(child);
        }
    }

    /// Waits for something to serve, for 100 ms at most; hands signals that are meant for the command on.
    pub(crate) fn wait_and_forward(&self, child: u32) {
        let slice = Duration::from_millis(100);
        wait_for_something(self.signals.0, &self.shared, slice, |signal, code| {
            // One from the terminal has reached the command already, and one that is only an event is
            // not meant for it.
            if signal != libc::SIGCHLD && HANDLED.contains(&signal) && code == libc::SI_USER {
                // SAFETY: our own child.
                unsafe { libc::kill(child as i32, signal) };
            }
        });
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
        let mut releasing = self.releasing.borrow_mut();
        if let Some(i) = releasing.iter().position(|r| r.0 == pid) {
            let (_, reply) = releasing.swap_remove(i);
            let pass = if event == 0 { signal } else { 0 };
            let _ = reply.send(ptrace::detach(pid, pass).is_ok());
            return;
        }
        let pass = if event == 0 { signal } else { 0 };
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

pub(crate) fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    body: fn(&Shared),
) -> std::thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || body(&shared))
        .expect("a thread can be started")
}

/// Drains, beats, and finds threads that are gone.
pub(crate) fn drain_loop(shared: &Shared) {
    let _alive = Liveness::register(&shared.arena);
    let control = shared.arena.control();
    let mut last_look = std::time::Instant::now();
    while !shared.ended.load(Ordering::Acquire) {
        let bell = control.doorbell.load(Ordering::Acquire);
        control.heartbeat.fetch_add(1, Ordering::Relaxed);
        let mut c = shared.lock();
        let drained = c.drain(&shared.arena);
        react::collected(shared, &mut c);
        if let Some(why) = shared.shall_stop(c.written_bytes()) {
            shared.stop(&mut c, why);
        }
        if c.failed.is_some() {
            control.host_state.store(HOST_STOPPED, Ordering::Release);
        }
        if last_look.elapsed() > Duration::from_millis(100) {
            c.end_dead_streams(&shared.arena, &is_alive);
            last_look = std::time::Instant::now();
        }
        drop(c);
        if drained == 0 && !shared.options.drop_when_full {
            // Nothing to drain and nothing free: every chunk is some thread's current one.
            shared.arena.grow();
        }
        if drained == 0 {
            futex_wait(&control.doorbell, bell, 50);
        }
    }
    // Leaving for good: nobody shall wait for us.
    control.host_state.store(HOST_STOPPED, Ordering::Release);
}

pub(crate) fn answer_loop(shared: &Shared) {
    let control = shared.arena.control();
    while !shared.ended.load(Ordering::Acquire) {
        let bell = control.doorbell.load(Ordering::Acquire);
        if !answer::serve(shared) {
            futex_wait(&control.doorbell, bell, 50);
        }
    }
}

fn exit_status(status: i32) -> ExitStatus {
    if libc::WIFSIGNALED(status) {
        ExitStatus::Signaled(libc::WTERMSIG(status))
    } else {
        ExitStatus::Exited(libc::WEXITSTATUS(status))
    }
}

fn wait_any() -> Option<(u32, i32)> {
    let mut status = 0;
    // SAFETY: status is ours.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    (pid > 0).then_some((pid as u32, status))
}

/// Signals that we handle by signalfd: our children's ends, and what is meant for the command.
const HANDLED: [i32; 5] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
];

/// The descriptor that tells of them and of those that events wait for, and the mask that we had.
fn block_signals(of_events: &[i32]) -> (i32, libc::sigset_t) {
    // SAFETY: sets are ours.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        let mut former = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for s in HANDLED.iter().chain(of_events) {
            libc::sigaddset(&raw mut set, *s);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut former);
        let signals = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        (signals, former)
    }
}

/// Waits for a signal or a command, at most so long. `met` is given each signal and where it came from.
fn wait_for_something(
    signals: i32,
    shared: &Shared,
    at_most: Duration,
    mut met: impl FnMut(i32, i32),
) {
    let wake = shared.wake;
    let poll = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [poll(signals), poll(wake)];
    // SAFETY: two descriptors of ours.
    unsafe {
        libc::poll(
            fds.as_mut_ptr(),
            2,
            at_most.as_millis().clamp(1, 100) as i32,
        )
    };
    let mut count = 0u64;
    // SAFETY: eight bytes.
    unsafe { libc::read(wake, (&raw mut count).cast(), 8) };
    let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let bytes = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has the size of one entry.
    while unsafe { libc::read(signals, info.as_mut_ptr().cast(), bytes) } == bytes as isize {
        // SAFETY: filled by the kernel.
        let (signal, code) = unsafe { ((*info.as_ptr()).ssi_signo, (*info.as_ptr()).ssi_code) };
        let signal = signal as i32;
        react::signalled(shared, signal);
        met(signal, code);
    }
}

/// Where the program in `pid` will begin, and where ld.so begins (0: none), from its auxiliary
/// vector (getauxval(3)).
fn entries(pid: u32, _loader: bool) -> Result<[u64; 2], TraceeError> {
    use std::os::unix::fs::FileExt;
    const AT_BASE: u64 = 7;
    const AT_ENTRY: u64 = 9;
    let failed = |what| move |source| TraceeError::System { what, source };
    let exe = File::open(format!("/proc/{pid}/exe")).map_err(failed("opening the program"))?;
    let mut head = [0u8; 20];
    exe.read_exact_at(&mut head, 0)
        .map_err(failed("reading the program"))?;
    if head[4] != 2 || head[18] != 62 {
        return Err(TraceeError::NoRoom("it is not a 64-bit x86 program"));
    }
    let auxv = std::fs::read(format!("/proc/{pid}/auxv")).map_err(failed("reading auxv"))?;
    let find = |key: u64| {
        auxv.chunks_exact(16).find_map(|pair| {
            let (k, v) = pair.split_at(8);
            (u64::from_le_bytes(k.try_into().ok()?) == key)
                .then(|| Some(u64::from_le_bytes(v.try_into().ok()?)))
                .flatten()
        })
    };
    let entry = find(AT_ENTRY).ok_or(TraceeError::NoRoom("no entry point in auxv"))?;
    let base = find(AT_BASE).unwrap_or(0);
    if base == 0 {
        return Ok([entry, 0]);
    }
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed("opening memory"))?;
    let mut e_entry = [0u8; 8];
    memory
        .read_exact_at(&mut e_entry, base + 24)
        .map_err(failed("reading ld.so's header"))?;
    Ok([entry, base.wrapping_add(u64::from_le_bytes(e_entry))])
}
