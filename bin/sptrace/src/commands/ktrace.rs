//! `sptrace ktrace`: records the kernel's side of programs, into a trace like any other.
//!
//! Given a command, processes, or nothing but the machine; writes a trace in which system calls,
//! interrupts and waits are frames. Ends as the command ended. What sptrace says goes to stderr
//! with a prefix.

use std::ffi::OsString;
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use sptrace_collect::react::keep_old;
use sptrace_collect::{clock, output};
use sptrace_kernel::recorder::{self, Options, Outcome, Target};
use sptrace_kernel::tracefs::{self, Tracefs};
use sptrace_kernel::{KernelError, check, instance};
use sptrace_trace::{ExitStatus, Summary, TraceWriter};

use crate::commands::attach::parse_duration;
use crate::commands::executable::{self, Refused};
use crate::commands::record;
use crate::commands::run::end_as;
use crate::exit_code;
use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace ktrace -- tar cf /dev/null /etc       then: sptrace report tree, sptrace report functions
  sptrace ktrace -p $(pidof -s nginx) --for 5s  five seconds of a running program
  sptrace ktrace -a --for 1s                    everything that runs
  sptrace ktrace --check                        what this machine lets be recorded

System calls, interrupts, softirqs, page faults, signals, and the times in which a thread waits or
another one runs in its place are frames of the thread's tree. They have no arguments yet, and
functions inside of the kernel are not recorded yet. It takes root. Nothing that others trace is
touched: the kernel's tracing has an instance for each user.
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
pub fn run(args: &KtraceArgs, prepare: fn(&mut Command)) -> ExitCode {
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

fn clean_up(quiet: bool) -> Result<(), KernelError> {
    let mounts = tracefs::unmount_left_over();
    let (removed, kept) = instance::remove_left_over(&Tracefs::find()?);
    for path in kept {
        say(&format!("{} is in use still", path.display()));
    }
    if !quiet {
        say(&format!(
            "removed {removed} instances of tracing and {mounts} mounts of tracefs"
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
            Refused::NotFound(why) => (exit_code::NOT_FOUND, why),
            Refused::CannotExecute(why) => (exit_code::CANNOT_EXECUTE, why),
        };
        say(&format!("cannot run {}: {why}", program.to_string_lossy()));
        return ExitCode::from(code);
    }
    heed_signals(has_command);
    match try_record(args, prepare) {
        Ok(outcome) => {
            report_end(&outcome, args.quiet);
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
    let tracefs = Tracefs::find().map_err(|e| e.to_string())?;
    record::check_output(&args.output)?;
    keep_old(&args.output);
    let file = output::create(&args.output)
        .map_err(|e| record::no_output(&args.output, &e.to_string()))?;
    let header = record::header(shown.collect());
    let cannot_write = |e| record::no_output(&args.output, &format!("{e}"));
    let writer = TraceWriter::create(BufWriter::new(file), &header).map_err(cannot_write)?;
    let options = Options {
        target,
        prepare,
        duration: args.duration,
        buffer_kib: args.buffer,
        now_tsc: clock::tsc,
    };
    let is_over = || IS_OVER.load(Ordering::Relaxed);
    let recorded = recorder::record(&tracefs, &options, writer, &is_over);
    let (writer, outcome) = recorded.map_err(|e| {
        record::remove_begun(Some(&args.output));
        e.to_string()
    })?;
    let mut summary = Summary {
        end_tsc: clock::tsc(),
        ..Summary::default()
    };
    summary.row(
        "loss",
        "records for which the kernel had no room",
        outcome.lost,
    );
    summary.row("loss", "gaps of unknown length", outcome.lost_unknown);
    for event in &outcome.missing {
        summary.row(
            "hole",
            &format!("events of the kernel not recorded: {event}"),
            1,
        );
    }
    writer.finish(&summary).map_err(cannot_write)?;
    Ok(outcome)
}

fn report_end(outcome: &Outcome, quiet: bool) {
    let unknown = match outcome.lost_unknown {
        0 => String::new(),
        gaps => format!(", {gaps} gaps of unknown length (a larger --buffer helps)"),
    };
    if !quiet {
        for event in &outcome.missing {
            say(&format!("this kernel does not let {event} be recorded"));
        }
        say(&format!(
            "kernel: {} events recorded, {} lost{unknown}",
            outcome.events, outcome.lost
        ));
    }
}
