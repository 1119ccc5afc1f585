//! `sptrace ktrace`: records the kernel's side of programs, into a trace like any other.
//!
//! Given a command, processes, or nothing but the machine; writes a trace in which system calls,
//! interrupts and waits are frames. Ends as the command ended. What sptrace says goes to stderr
//! with a prefix.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use sptrace_code::Places;
use sptrace_collect::clock;
use sptrace_kernel::blocks::wanted::Wanted;
use sptrace_kernel::level::Level;
use sptrace_kernel::options::{Options, Target};
use sptrace_kernel::policy::{Policy, Root};
use sptrace_kernel::recorder::{self, Hooks, Outcome};
use sptrace_kernel::tracefs::{self, Tracefs};
use sptrace_kernel::turns::Turns;
use sptrace_kernel::values::Asked;
use sptrace_kernel::{KernelError, check, instance, probes, toplevel};
use sptrace_trace::{Clock, ExitStatus, Section, Summary, TraceWriter};

use crate::commands::duration::parse_duration;
use crate::commands::end::end_as;
use crate::commands::executable;
use crate::commands::ktrace_live::KernelLive;
use crate::commands::ktrace_script::{self, Asks, Followed};
use crate::commands::ktrace_turns::{self, TurnArgs};
use crate::commands::script::Refused;
use crate::commands::{record, report, values};
use crate::exit_code;
use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace ktrace -- tar cf /dev/null /etc       then: sptrace report tree, sptrace report functions
  sptrace ktrace -p $(pidof -s nginx) --for 5s  five seconds of a running program
  sptrace ktrace -a --for 1s                    everything that runs
  sptrace ktrace -F 'vfs_*' -D 1 -- ls          these functions of the kernel, nothing below them
  sptrace ktrace --root interrupts -D 5 -a --for 1s
  sptrace ktrace --blocks pipe_write -a --for 5s   the path of each call, block by block; then
                                                sptrace analyze --kernel pipe_write -i sptrace.data
  sptrace ktrace --check                        what this machine lets be recorded

System calls, interrupts, softirqs, page faults, signals, and the times in which a thread waits or
another one runs in its place are frames of the thread's tree; system calls have their arguments,
of which pointers are not followed, and what they give. Functions of the kernel are frames within
them where the kernel lets them be traced, which is said at the start. Calls are followed from
what --root and -F name, down to --depth, as the kernel's text has them: what is called through a
pointer only (pipe_write, by vfs_write) is not seen unless -F names it; nor is what happens while
a processor is idle.

Values (-A, -R) are fetched by probes at the functions they are of. A script's
at(GLOB).on_enter(...) is run by the kernel itself: conditions are filters of events, sheets are
histograms, c.record() is a probe; what none of them can do is refused. What functions take the
kernel says itself (BTF).

Events of --start-on, --stop-on and --dump-on are time:DURATION, signal:NAME, call:GLOB,
return:GLOB and slow:GLOB>DURATION (functions of the kernel and system calls; a name without
wildcards is recorded as by -F), exit and crash of the command; each may end in #N: every Nth
time. The kernel records all the while: it is what is written that begins and ends, to the tick
for calls.

--blocks hooks the basic blocks of a function, from and to a time of its own if it says so; a call
is a frame, and each block in it is, until the next one begins. `sptrace analyze --kernel FUNC -i
FILE` shows the counts in the function's graph.

--live writes what has happened within some 20 ms, so what a serial line (--live=serial) has shown
before a crash is known. The last moments of all the kernel prints itself, on the console and into
pstore (/sys/fs/pstore after the next start), if `sysctl kernel.ftrace_dump_on_oops=1` asks it to
dump the buffers of the top level, or, from 6.9 on, =NAME those of an instance: sptrace's is the
one in /sys/kernel/tracing/instances whose name begins with sptrace-.

It takes root. Nothing that others trace is touched: the kernel's tracing has an instance for each
user. Kernels before 6.12 trace functions at its top level only: if somebody uses that, it is
refused; else it is given back as it was, by the next start or --cleanup if sptrace is killed.
";
const STATUS: &str = "\
Exit status: the command's own, or death by the same signal; without a command 0. 125: sptrace
itself failed (1 without a command); 126: the command cannot be executed; 127: it is not found;
2: wrong usage.";

/// Record what the kernel does for a command, for processes, or for the whole machine
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n{STATUS}"))]
pub struct KtraceArgs {
    /// Trace file to write; a former one is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "sptrace.data")]
    output: PathBuf,
    /// Say nothing on stderr unless recording fails
    #[arg(short, long)]
    quiet: bool,
    /// These processes, with all their threads and what they start (repeatable, or separated by
    /// commas)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', conflicts_with_all = ["all", "command"])]
    pids: Vec<u32>,
    /// Everything that runs on this machine, but for sptrace
    #[arg(short, long, conflicts_with = "command")]
    all: bool,
    /// End the recording after this time: 500ms, 5s, 2m, 1h (a number alone: seconds); else at
    /// Ctrl-C, SIGTERM or SIGHUP, or when all have ended
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How deep it looks: functions (by the tracer function_graph), probes (at entry and exit of
    /// functions, slow to make), or events alone; else the deepest that this kernel allows
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelArg>,
    /// Follow calls in the kernel from here: syscalls (if neither this nor -F is given),
    /// interrupts, softirqs (repeatable, or separated by commas)
    #[arg(long = "root", value_name = "ROOT", value_delimiter = ',')]
    roots: Vec<RootArg>,
    /// Follow calls from functions of the kernel that match GLOB (repeatable; `*` alone: every
    /// function there is, which slows the machine down)
    #[arg(short = 'F', long = "filter", value_name = "GLOB")]
    filters: Vec<String>,
    /// Leave out functions of the kernel that match GLOB, and what only they call (repeatable)
    #[arg(short = 'N', long = "notrace", value_name = "GLOB")]
    notrace: Vec<String>,
    /// Follow calls in the kernel so many levels, with the first one [default: 3; 1 for probes]
    #[arg(short = 'D', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Keep values of the functions of the kernel that SPEC names: GLOB@arg1,arg2/s,retval/x32 and
    /// so on, or GLOB alone: as the kernel's own types have it. A name without wildcards is
    /// recorded wherever it is called; of what a glob fits, the functions that are recorded anyway.
    /// What a pointer leads to is kept of strings only (repeatable; see man sptrace-values)
    #[arg(short = 'A', long = "argument", value_name = "SPEC")]
    arguments: Vec<String>,
    /// Keep what the functions that SPEC names give: GLOB@retval/x32, or GLOB alone (repeatable)
    #[arg(short = 'R', long = "retval", value_name = "SPEC")]
    results: Vec<String>,
    /// Take prototypes of the kernel's functions from FILE, in the form of ltrace.conf(5)
    /// (repeatable)
    #[arg(long, value_name = "FILE")]
    prototypes: Vec<PathBuf>,
    /// Keep so many bytes of strings of such values
    #[arg(short = 's', long = "string-limit", value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(..=4096))]
    string_limit: u32,
    /// Hook the basic blocks of a function of the kernel: FUNC[:WHAT][@START..END], where WHAT is
    /// path (every block; the default), exits (the entry and what leaves the function), or offsets
    /// of blocks (0x1a4,0x200), which are hooked before and after; from START to END of the
    /// recording, as in 1s..3s (repeatable)
    #[arg(long, value_name = "FUNC", value_parser = blocks_of)]
    blocks: Vec<Wanted>,
    /// Show where users, groups and capabilities of a task change, and what is an escalation
    #[arg(long)]
    privileges: bool,
    /// Write a line for each frame when it begins and when it ends, and for what has no length, as
    /// soon as it is known: to standard error, a FILE, '|COMMAND', serial (/dev/ttyS0 at 115200
    /// bit/s) or serial:DEVICE. What the output is too slow for is left out and counted
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    live: Option<String>,
    /// Write lines only of frames whose name matches GLOB, or of a module such as [signals]
    /// (repeatable); the trace has all
    #[arg(long, value_name = "GLOB", requires = "live")]
    live_only: Vec<String>,
    #[command(flatten)]
    turns: TurnArgs,
    /// Follow a script, as `run` does; what it does at calls (at(GLOB).on_enter(...)) the kernel
    /// itself runs, by fetch arguments, filters and histograms, or it is refused
    #[arg(help_heading = record::SCRIPT, short = 'S', long, value_name = "FILE|NAME", conflicts_with = "eval")]
    script: Option<String>,
    /// The same with the script itself
    #[arg(help_heading = record::SCRIPT, long, value_name = "TEXT")]
    eval: Option<String>,
    /// What the script asks of the kernel.
    #[arg(skip)]
    followed: Followed,
    /// Memory of each processor's buffer in the kernel, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(4..=1 << 22))]
    buffer: u64,
    /// Show what this machine lets be recorded, and what would allow more
    #[arg(long, conflicts_with_all = ["pids", "all", "command", "cleanup"])]
    check: bool,
    /// Remove what an sptrace that was killed has left in the kernel's tracing
    #[arg(long, conflicts_with_all = ["pids", "all", "command"])]
    cleanup: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present_any = ["pids", "all", "check", "cleanup"])]
    command: Vec<OsString>,
}

pub(crate) fn blocks_of(text: &str) -> Result<Wanted, String> {
    Wanted::parse(text, &parse_duration)
}

/// Values of `--level`.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum LevelArg {
    Functions,
    Probes,
    Events,
}

/// Values of `--root`.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum RootArg {
    Syscalls,
    Interrupts,
    Softirqs,
}

/// A signal has asked us to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_signal: libc::c_int) {
    IS_OVER.store(true, Ordering::Relaxed);
}

extern "C" fn leave_it_to_the_command(_signal: libc::c_int) {}

/// Takes the signals by which users end a recording. A key of the terminal reaches the command,
/// too, which decides.
fn heed_signals(has_command: bool) {
    let interrupt: extern "C" fn(libc::c_int) = match has_command {
        true => leave_it_to_the_command,
        false => end,
    };
    let handlers = [
        (libc::SIGINT, interrupt),
        (libc::SIGQUIT, interrupt),
        (libc::SIGTERM, end),
        (libc::SIGHUP, end),
    ];
    for (signal, handler) in handlers {
        // SAFETY: the handlers store one atomic at most. A program that is executed has the default
        // again.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
}

/// Records, looks, or cleans up.
pub fn run(args: &mut KtraceArgs, prepare: fn(&mut Command)) -> ExitCode {
    let asks = Asks {
        script: args.script.as_deref(),
        eval: args.eval.as_deref(),
        turns: &mut args.turns,
        filters: &mut args.filters,
        notrace: &mut args.notrace,
        depth: &mut args.depth,
        string_limit: &mut args.string_limit,
    };
    match ktrace_script::follow(asks) {
        Ok(Some(followed)) => {
            if followed.is_without_functions && args.roots.is_empty() {
                args.level = args.level.or(Some(LevelArg::Events));
            }
            args.followed = followed;
        }
        Ok(None) => return ExitCode::SUCCESS,
        Err(Refused) => return ExitCode::from(exit_code::WRONG_USAGE),
    }
    let args = &*args;
    let result = match (args.check, args.cleanup) {
        (true, _) => {
            check();
            return ExitCode::SUCCESS;
        }
        (_, true) => clean_up(args.quiet),
        _ => return record(args, prepare),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&e.to_string());
            ExitCode::from(exit_code::FAILURE)
        }
    }
}

fn check() {
    for answer in check::look() {
        let sign = if answer.is_there { "yes" } else { "no" };
        println!("{:24} {sign:4} {}", answer.what, answer.how);
    }
}

/// What a killed sptrace has left, and was mended.
struct Mended {
    instances: usize,
    probes: usize,
    borrowed: usize,
}

impl Mended {
    fn is_any(&self) -> bool {
        self.instances + self.probes + self.borrowed > 0
    }

    fn told(&self) -> String {
        let Self {
            instances,
            probes,
            borrowed,
        } = self;
        let top = match borrowed {
            0 => "",
            _ => ", gave back the top level of tracing",
        };
        format!("removed {instances} instances of tracing, {probes} probes{top}")
    }
}

fn mend(tracefs: &Tracefs) -> Mended {
    let (instances, kept) = instance::remove_left_over(tracefs);
    let probes = probes::remove_left_over(tracefs);
    let (borrowed, failed) = toplevel::give_back_left_over(tracefs);
    for path in kept {
        say(&format!("{} is in use still", path.display()));
    }
    for path in failed {
        say(&format!(
            "not all that {} tells of could be written back: somebody uses it, or it is gone; try \
            --cleanup again later, or write it by hand and remove that file",
            path.display()
        ));
    }
    Mended {
        instances,
        probes,
        borrowed,
    }
}

/// Mends what a killed sptrace has left, and says so.
pub(crate) fn mend_and_tell(tracefs: &Tracefs, quiet: bool) {
    let mended = mend(tracefs);
    if mended.is_any() && !quiet {
        say(&format!("of an sptrace that was killed: {}", mended.told()));
    }
}

fn clean_up(quiet: bool) -> Result<(), KernelError> {
    let mounts = tracefs::unmount_left_over();
    let mended = mend(&Tracefs::find()?);
    if !quiet {
        say(&format!(
            "{}, and {mounts} mounts of tracefs",
            mended.told()
        ));
    }
    Ok(())
}

fn record(args: &KtraceArgs, prepare: fn(&mut Command)) -> ExitCode {
    let has_command = !args.command.is_empty();
    let failure = match has_command {
        true => exit_code::OWN_FAILURE,
        false => exit_code::FAILURE,
    };
    if let Some(program) = args.command.first()
        && let Err(refused) = executable::check(program)
    {
        let (code, why) = match refused {
            executable::Refused::NotFound(why) => (exit_code::NOT_FOUND, why),
            executable::Refused::CannotExecute(why) => (exit_code::CANNOT_EXECUTE, why),
        };
        say(&format!("cannot run {}: {why}", program.to_string_lossy()));
        return ExitCode::from(code);
    }
    let turns = args.turns.turns(1, has_command).map(drop);
    if let Err(why) = turns.and_then(|()| values_of(args).map(drop)) {
        say(&why);
        return ExitCode::from(exit_code::WRONG_USAGE);
    }
    heed_signals(has_command);
    match try_record(args, prepare) {
        Ok(outcome) => {
            report_end(&outcome, args.quiet);
            report::tell_script(args.followed.script.as_deref(), Some(&args.output));
            ended_as(outcome)
        }
        Err(message) => {
            say(&message);
            ExitCode::from(failure)
        }
    }
}

/// Waits for the command, and ends as it does.
fn ended_as(outcome: Outcome) -> ExitCode {
    let Some(mut command) = outcome.command else {
        return ExitCode::SUCCESS;
    };
    let status = loop {
        match command.wait() {
            Ok(status) => break status,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return ExitCode::from(exit_code::OWN_FAILURE),
        }
    };
    end_as(match (status.signal(), status.code()) {
        (Some(signal), _) => ExitStatus::Signaled(signal),
        (None, code) => ExitStatus::Exited(code.unwrap_or(0)),
    })
}

fn try_record(args: &KtraceArgs, prepare: fn(&mut Command)) -> Result<Outcome, String> {
    let target = match args.command.is_empty() {
        false => Target::Command(args.command.clone()),
        true if args.all => Target::Machine,
        true => Target::Processes(args.pids.clone()),
    };
    let shown = args
        .command
        .iter()
        .map(|a| a.to_string_lossy().into_owned());
    let mut options = options(args, target, prepare)?;
    let tracefs = Tracefs::find().map_err(|e| e.to_string())?;
    record::check_output(&args.output)?;
    mend_and_tell(&tracefs, args.quiet);
    let header = record::header(shown.collect(), &Places::default());
    options.turns = args.turns.turns(header.tsc_hz, !args.command.is_empty())?;
    let (output, kept) = args.turns.open(&args.output)?;
    let cannot_write = |e| record::no_output(&args.output, &format!("{e}"));
    let writer = TraceWriter::create(output, &header).map_err(cannot_write)?;
    let clock = Clock::of(&header);
    let opened = args.live.as_ref().map(|text| KernelLive::open(text, clock));
    let live = opened.transpose()?;
    options.listener = live.as_ref().and_then(|l| l.listener(&args.live_only));
    options.helpers = live.iter().filter_map(KernelLive::helper).collect();
    let hooks = Hooks {
        is_over: &|| IS_OVER.load(Ordering::Relaxed),
        dump: &|event| kept.dump(event, clock::tsc(), args.quiet),
    };
    let recorded = recorder::record(&tracefs, &options, writer, hooks);
    drop(options);
    if let Some(live) = live {
        live.end();
    }
    let (writer, outcome) = recorded.map_err(|e| {
        record::remove_begun(kept.has_file().then_some(args.output.as_path()));
        e.to_string()
    })?;
    let mut summary = summary(&outcome);
    kept.end(&mut summary, args.quiet);
    writer.finish(&summary).map_err(cannot_write)?;
    Ok(outcome)
}

/// What the trace says of the recording.
fn summary(outcome: &Outcome) -> Summary {
    let mut summary = Summary {
        end_tsc: clock::tsc(),
        ..Summary::default()
    };
    summary.row(
        Section::Loss,
        "records for which the kernel had no room",
        outcome.lost,
    );
    summary.row(
        Section::Loss,
        "gaps of unknown length",
        outcome.lost_unknown,
    );
    if outcome.follows_calls {
        let what = "functions of the kernel called through pointers only (how many is not known)";
        summary.row(Section::Hole, what, 1);
    }
    for event in &outcome.missing {
        summary.row(
            Section::Hole,
            &format!("not recorded of the kernel: {event}"),
            1,
        );
    }
    summary
}

fn options(
    args: &KtraceArgs,
    target: Target,
    prepare: fn(&mut Command),
) -> Result<Options, String> {
    Ok(Options {
        target,
        prepare,
        duration: args.duration,
        buffer_kib: args.buffer,
        level: args.level.map(LevelArg::level),
        policy: with_events(
            policy_of(&args.roots, &args.filters, &args.notrace, args.depth),
            args.turns.functions(),
        ),
        blocks: args.blocks.clone(),
        has_privileges: args.privileges,
        values: values_of(args)?,
        counts: args.followed.counts.clone(),
        system_calls: args.followed.system_calls.clone(),
        turns: Turns::default(),
        signals: ktrace_turns::heard,
        listener: None,
        helpers: Vec::new(),
        say: if args.quiet { |_| {} } else { say },
        now_tsc: clock::tsc,
    })
}

impl LevelArg {
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Functions => Level::Functions,
            Self::Probes => Level::Probes,
            Self::Events => Level::Events,
        }
    }
}

/// Which functions of the kernel are followed.
pub(crate) fn policy_of(
    roots: &[RootArg],
    filters: &[String],
    notrace: &[String],
    depth: Option<u32>,
) -> Policy {
    let root = |root: &RootArg| match root {
        RootArg::Syscalls => Root::SystemCalls,
        RootArg::Interrupts => Root::Interrupts,
        RootArg::Softirqs => Root::SoftInterrupts,
    };
    Policy {
        roots: roots.iter().map(root).collect(),
        functions: filters.to_vec(),
        depth,
        without: notrace.to_vec(),
    }
}

/// What -A and -R ask for.
fn values_of(args: &KtraceArgs) -> Result<Option<Asked>, String> {
    let texts = [args.arguments.as_slice(), &args.results];
    values::of_kernel(texts, &args.prototypes, args.string_limit)
}

/// Functions whose calls are events are recorded, too.
fn with_events(mut policy: Policy, functions: Vec<String>) -> Policy {
    if !functions.is_empty() && policy.roots.is_empty() && policy.functions.is_empty() {
        policy.roots.push(Root::SystemCalls);
    }
    policy.functions.extend(functions);
    policy
}

fn report_end(outcome: &Outcome, quiet: bool) {
    let unknown = match outcome.lost_unknown {
        0 => String::new(),
        gaps => format!(", {gaps} gaps of unknown length (a larger --buffer helps)"),
    };
    if outcome.is_empty {
        say("nothing was recorded: no event of --start-on happened");
    }
    if !quiet {
        if outcome.is_stopped {
            say("an event of --stop-on has ended the recording");
        }
        for event in &outcome.missing {
            say(&format!("this kernel does not let {event} be recorded"));
        }
        say(&format!(
            "kernel: {} events recorded, {} lost{unknown}",
            outcome.events, outcome.lost
        ));
    }
}
