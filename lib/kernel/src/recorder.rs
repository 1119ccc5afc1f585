//! A recording of the kernel's side of some tasks, from its start to its end.
//!
//! Given what shall be recorded, and a trace that has been begun; makes an instance of the kernel's
//! tracing, switches on what is recorded in it, starts the command if there is one, reads until the
//! end, and writes the trace. Whatever fails, the instance goes away.
//!
//! Must not know: the command line, and what is shown.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::inside::Inside;
use crate::instance::Instance;
use crate::options::{Options, Target};
use crate::pipes::Pipes;
use crate::source::Source;
use crate::tasks::Tasks;
use crate::trace::Trace;
use crate::tracefs::Tracefs;
use sptrace_trace::TraceWriter;
use sptrace_tracee::proc::{self, Stat};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Between two looks into the buffers.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The command, if there was one; it may run still.
    pub command: Option<Child>,
    /// Events in the trace.
    pub events: u64,
    /// Records for which the kernel's buffers had no room.
    pub lost: u64,
    /// Times that some were lost, and nobody knows how many.
    pub lost_unknown: u64,
    /// Calls in the kernel were followed, as far as its text says what is called.
    pub follows_calls: bool,
    /// The kernel's events and functions that could not be recorded.
    pub missing: Vec<String>,
    /// No event of those that begin the recording has happened.
    pub is_empty: bool,
    /// An event has ended the recording.
    pub is_stopped: bool,
}

/// What who records is asked meanwhile.
#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// Shall it end?
    pub is_over: &'a dyn Fn() -> bool,
    /// The trace is to be copied, at an event.
    pub dump: &'a dyn Fn(&str),
}

/// Records until the end of the target, the duration's end, until an event, or until
/// the hooks say so.
///
/// # Errors
/// The kernel refuses, the command cannot be started, or the trace cannot be written.
pub fn record<W: Write>(
    tracefs: &Tracefs,
    options: &Options,
    writer: TraceWriter<W>,
    hooks: Hooks<'_>,
) -> Result<(TraceWriter<W>, Outcome), KernelError> {
    if !matches!(options.target, Target::Machine) {
        check_namespace()?;
    }
    let instance = Instance::create(tracefs)?;
    let switches = switches(tracefs, options);
    let (source, inside) = switch_on(tracefs, (&instance, switches.as_ref()), options)?;
    let mut without = own_tasks();
    without.extend(tasks_of(&options.helpers).map(|(tid, _)| tid));
    let recorded = Recorded::new((&instance, switches.as_ref()), &inside);
    match &options.target {
        Target::Command(_) => {}
        Target::Processes(pids) => {
            let tids: Vec<u32> = tasks_of(pids).map(|(tid, _)| tid).collect();
            recorded.only(&tids)?;
        }
        Target::Machine => recorded.all_but(&without)?,
    }
    let mut pipes = Pipes::open(&recorded.folders)?;
    let mut tasks = Tasks::new(writer, matches!(options.target, Target::Machine), without)?;
    tasks.tell(options.listener.clone());
    tasks.turn_at(options.turns.clone());
    tasks.start();
    tasks.describe(&inside.descriptions())?;
    tasks.show(inside.calls())?;
    let mut command = begin(&recorded, options, &mut tasks)?;
    read_all(
        &recorded,
        options,
        (&source, &inside),
        (&mut pipes, &mut tasks),
        (&mut command, hooks),
    )?;
    if let Some(note) = inside.sums((options.now_tsc)()) {
        tasks.note(&note)?;
    }
    let outcome = Outcome {
        command,
        events: tasks.events,
        lost: pipes.lost + inside.missed(),
        lost_unknown: pipes.lost_unknown,
        follows_calls: inside.follows_calls(),
        missing: [source.missing.clone(), inside.refused()].concat(),
        is_empty: tasks.is_silent(),
        is_stopped: tasks.is_stopped(),
    };
    inside
        .told_at_end()
        .iter()
        .for_each(|line| (options.say)(line));
    // The instance can be removed once nobody reads it.
    drop(pipes);
    drop(inside);
    Ok((tasks.finish()?, outcome))
}

/// Can tasks be told to the kernel's tracing by the numbers that we know them by?
pub(crate) fn check_namespace() -> Result<(), KernelError> {
    /// The machine's own (include/linux/proc_ns.h, PROC_PID_INIT_INO).
    const OWN: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link.as_os_str() != OWN => Err(KernelError::PidNamespace),
        _ => Ok(()),
    }
}

/// Switches on what the options ask for, in an instance that records nothing yet.
pub(crate) fn switch_on(
    tracefs: &Tracefs,
    (instance, switches): Instances<'_>,
    options: &Options,
) -> Result<(Source, Inside), KernelError> {
    let own = instance.folder();
    own.set("buffer_size_kb", &options.buffer_kib.to_string())?;
    own.set("options/event-fork", "1")?;
    let source = Source::switch_on(own, switches.map(Instance::folder))?;
    source.only(own, &options.system_calls)?;
    let inside = Inside::switch_on(tracefs, instance, options)?;
    Ok((source, inside))
}

/// The instance in which tasks are chosen, and the one for switches between all tasks.
pub(crate) type Instances<'a> = (&'a Instance, Option<&'a Instance>);

/// The instance for switches, where some tasks alone are recorded. Without it less is known of who
/// had the processor.
pub(crate) fn switches(tracefs: &Tracefs, options: &Options) -> Option<Instance> {
    /// Those of a busy processor in the time between two looks.
    const KIB: u64 = 1024;
    if matches!(options.target, Target::Machine) {
        return None;
    }
    let instance = Instance::create_for_switches(tracefs).ok()?;
    let size = KIB.min(options.buffer_kib).to_string();
    let is_set = instance.folder().set("buffer_size_kb", &size).is_ok();
    is_set.then_some(instance)
}

/// The folders that have records, the one in which tasks are chosen first.
pub(crate) fn folders<'a>(
    (instance, switches): Instances<'a>,
    inside: &'a Inside,
) -> Vec<&'a Folder> {
    let own = [instance.folder()].into_iter();
    let own = own.chain(inside.folder());
    own.chain(switches.map(Instance::folder)).collect()
}

/// Takes the records that were made before `until`, and writes what is worth it.
pub(crate) fn take<T: Trace>(
    pipes: &mut Pipes,
    (source, inside): (&Source, &Inside),
    tasks: &mut Tasks<T>,
    until: u64,
) -> Result<(), KernelError> {
    inside.tick()?;
    pipes.fill_until(until)?;
    while let Some(record) = pipes.next_before(until) {
        tasks.on_processor(record.processor);
        if let Some((tid, happenings)) = inside.read_hook(&record.data) {
            for happening in happenings {
                tasks.happened(tid, record.time, happening)?;
            }
            continue;
        }
        let read = source.read(&record.data);
        if let Some((tid, happening)) = read.or_else(|| inside.read(&record.data)) {
            if let Some(change) = inside.change(tid, &happening) {
                tasks.happened(tid, record.time, change)?;
            }
            tasks.happened(tid, record.time, happening)?;
        }
    }
    tasks.write_full()
}

/// Reads until the end, and switches the recording off then.
fn read_all<T: Trace>(
    recorded: &Recorded<'_>,
    options: &Options,
    sources: (&Source, &Inside),
    (pipes, tasks): (&mut Pipes, &mut Tasks<T>),
    (command, hooks): (&mut Option<Child>, Hooks<'_>),
) -> Result<(), KernelError> {
    let mut begun = Instant::now();
    loop {
        if tasks.is_silent() {
            begun = Instant::now();
        }
        let is_late = options.duration.is_some_and(|d| begun.elapsed() >= d);
        let is_asked = (hooks.is_over)() || tasks.is_stopped();
        let is_end = is_late || is_asked || is_gone(&options.target, command)?;
        if is_end {
            recorded.switch("0")?;
        }
        let now = (options.now_tsc)();
        let until = match is_end {
            true => u64::MAX,
            false => now,
        };
        take(pipes, sources, tasks, until)?;
        tasks.look(now, &options.signals)?;
        if is_end && let Some(status) = ended(command)? {
            tasks.command_ended(now, status.signal().is_some())?;
        }
        copied(tasks, hooks)?;
        if is_end {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// What is to be copied is written first.
fn copied<T: Trace>(tasks: &mut Tasks<T>, hooks: Hooks<'_>) -> Result<(), KernelError> {
    let dumps = std::mem::take(&mut tasks.dumps);
    if !dumps.is_empty() {
        tasks.write_rest()?;
    }
    dumps.iter().for_each(|event| (hooks.dump)(event));
    Ok(())
}

/// How the command has ended, if it has.
fn ended(command: &mut Option<Child>) -> Result<Option<ExitStatus>, KernelError> {
    match command {
        Some(child) => child.try_wait().map_err(KernelError::Command),
        None => Ok(None),
    }
}

/// The folders of tracefs that take part.
pub(crate) struct Recorded<'a> {
    folders: Vec<&'a Folder>,
    /// The one in which functions are traced.
    tracer: Option<&'a Folder>,
}

impl<'a> Recorded<'a> {
    /// Those of our instances, and of what sees inside.
    pub(crate) fn new(instances: Instances<'a>, inside: &'a Inside) -> Self {
        Self {
            folders: folders(instances, inside),
            tracer: inside.tracer(),
        }
    }

    /// Records these tasks, and what they start.
    pub(crate) fn only(&self, tids: &[u32]) -> Result<(), KernelError> {
        self.tasks("set_event_pid", "set_ftrace_pid", tids)
    }

    /// Records all tasks but these.
    fn all_but(&self, tids: &[u32]) -> Result<(), KernelError> {
        self.tasks("set_event_notrace_pid", "set_ftrace_notrace_pid", tids)
    }

    fn tasks(&self, events: &str, functions: &str, tids: &[u32]) -> Result<(), KernelError> {
        let lines = || tids.iter().map(u32::to_string);
        if let Some(own) = self.folders.first() {
            own.set_list(events, lines())?;
        }
        match self.tracer {
            Some(folder) => folder.set_list(functions, lines()),
            None => Ok(()),
        }
    }

    pub(crate) fn switch(&self, on: &str) -> Result<(), KernelError> {
        self.folders
            .iter()
            .try_for_each(|f| f.set("tracing_on", on))
    }
}

/// Switches the recording on, and starts the command if there is one.
fn begin<T: Trace>(
    recorded: &Recorded<'_>,
    options: &Options,
    tasks: &mut Tasks<T>,
) -> Result<Option<Child>, KernelError> {
    match &options.target {
        Target::Command(argv) => {
            let (child, starter) = start(recorded, argv, options.prepare)?;
            tasks.leave_out(starter);
            tasks.leave_out_until_exec(child.id(), (options.now_tsc)());
            return Ok(Some(child));
        }
        Target::Processes(pids) => tasks_of(pids).for_each(|(tid, pid)| tasks.expect(tid, pid)),
        Target::Machine => {}
    }
    recorded.switch("1")?;
    Ok(None)
}

/// True if nothing of the target is left to be recorded.
fn is_gone(target: &Target, command: &mut Option<Child>) -> Result<bool, KernelError> {
    match (command, target) {
        (Some(child), _) => Ok(child.try_wait().map_err(KernelError::Command)?.is_some()),
        (None, Target::Processes(pids)) => Ok(pids.iter().all(|pid| !is_alive(*pid))),
        _ => Ok(false),
    }
}

/// Starts the command, whose first system call is recorded already. A thread that does nothing else
/// is recorded until then: what it makes is followed from its birth. Gives that thread's number,
/// too.
fn start(
    recorded: &Recorded<'_>,
    argv: &[OsString],
    prepare: fn(&mut Command),
) -> Result<(Child, u32), KernelError> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            let tid = nix::unistd::gettid().as_raw() as u32;
            recorded.only(&[tid])?;
            recorded.switch("1")?;
            let (program, arguments) = argv.split_first().ok_or_else(|| {
                KernelError::Command(std::io::Error::from_raw_os_error(nix::libc::ENOENT))
            })?;
            let mut command = Command::new(program);
            command.args(arguments);
            prepare(&mut command);
            Ok((command.spawn().map_err(KernelError::Command)?, tid))
        });
        let panicked = || KernelError::Command(std::io::Error::other("the starter panicked"));
        starter.join().unwrap_or_else(|_| Err(panicked()))
    })
}

/// Our own threads.
pub(crate) fn own_tasks() -> Vec<u32> {
    proc::threads(std::process::id())
}

/// All threads, each with its process.
pub(crate) fn tasks_of(pids: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    pids.iter()
        .flat_map(|pid| proc::threads(*pid).into_iter().map(|tid| (tid, *pid)))
}

fn is_alive(pid: u32) -> bool {
    Stat::of(pid).is_ok_and(|stat| !stat.has_ended())
}
