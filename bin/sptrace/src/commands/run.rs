//! `sptrace run`: starts a command under trace and writes the trace file.
//!
//! Ends as the command ended: with its status, or by its signal. The command owns the three
//! standard streams; what sptrace says goes to stderr with a prefix, and `-q` silences it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use sptrace_collect::Request;
use sptrace_collect::event::Event;
use sptrace_collect::session::Finished;
use sptrace_trace::ExitStatus;
use sptrace_tracee::TraceeError;
use sptrace_tracee::at_start::AtStart;
use sptrace_tracee::keep::{self, Kept, Split};

use crate::commands::end::end_as;
use crate::commands::executable::{self, Refused};
use crate::commands::kernel_side::KernelArgs;
use crate::commands::record::{self, RecordArgs, Subject};
use crate::commands::report;
use crate::commands::script;
use crate::commands::shows::Shows;
use crate::commands::stamps::{StampArgs, Stamps};
use crate::exit_code;
use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace run -- sqlite3 :memory: 'select 1'    then: sptrace report
  sptrace run -q -o ls.data ls -l               nothing on stderr, another file
  sptrace run -l sqlite3 -l 'libsqlite3*' -- sqlite3 :memory: 'select 1'
                                                calls made by these two modules only
  sptrace run --keep-pid -- redis-server & echo $! > pid
                                                $! is the server, not sptrace
  sptrace run --count -- make                   how often which function is called by which
  sptrace run --budget 5% -- ./server           as much as 5 % of its CPU time can pay for
  sptrace run --max-size 1G -- make -j8         children are followed; 1 GiB at most
  sptrace run --ring 64M --dump-on crash --dump-on signal:USR1 -- ./server
                                                nothing on disk until one of these happens
  sptrace run --ring 64M --dump-on 'slow:handle_*>50ms' --times 3 -- ./server
  sptrace run --between 'parse*' start call:draw --between 'draw*' call:draw#2 time:1s -- ./program
                                                some functions, then others
  sptrace run --stop-on time:10s -- ./server    the recording ends, the server goes on
  sptrace run --start-on call:reload_config --stop-on time:1s -- ./server
  sptrace run --start-on time:10s --stop-on time:200ms -- mplayer film.avi
                                                200 ms of it, ten seconds after its start
  sptrace run --start-on 'slow:handle_*>50ms' --stop-on time:1s -- ./server
                                                what comes after a slow call
  sptrace run --start-on signal:USR1 --stop-on time:1s --times 3 -- ./server
                                                a second of it at each of the first three signals
  sptrace run --shadow --start-on call:dlopen --stop-on return:dlopen -- ./program
                                                what its first dlopen does; it pays all the time
";
const STATUS: &str = "\
Exit status: the command's own, or death by the same signal. 125: sptrace itself failed;
126: the command cannot be executed; 127: it is not found; 2: wrong usage.

Environment: XDG_CACHE_HOME (or HOME) says where analyses of programs are kept, in sptrace/.";

/// Start a command under trace and write sptrace.data
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n{}\n{STATUS}", record::EVENTS))]
pub struct RunArgs {
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    /// Record ld.so's start-up work too
    #[arg(help_heading = record::WHAT, long, conflicts_with = "start_on")]
    loader: bool,
    /// Let the command run by itself, and begin the recording when EVENT happens, inside of what
    /// runs then (repeatable, see below). call:GLOB waits for functions of what has been loaded for
    /// 0.1 s or so, and with #N each process counts for itself. For return: and slow: it runs by
    /// itself up to the first call, and is followed from there to EVENT, at the cost of recording.
    /// After --stop-on it runs by itself again, with --times N until the next EVENT
    #[arg(help_heading = record::WHEN, display_order = 0, long, value_name = "EVENT", group = "repeated")]
    start_on: Vec<Event>,
    /// Follow the command from its start, and write nothing before the event of --start-on: that
    /// costs as much as recording. Calls count from the first one on then, and stacks that cannot
    /// be walked are whole
    #[arg(help_heading = record::WHEN, display_order = 1, long, requires = "start_on", conflicts_with_all = ["dump_on", "times"])]
    shadow: bool,
    /// Print the sums of system calls at the end, as `strace -c` does; without --syscalls, record
    /// nothing else
    #[arg(help_heading = record::WHAT, short = 'c', long = "call-counts", conflicts_with_all = ["dump_on", "keep_pid"])]
    call_counts: bool,
    #[command(flatten)]
    stamps: StampArgs,
    /// The command keeps the process id that was started, for those who wait for it, signal it or
    /// look for it by that: sptrace is a process in the background, in a group of its own, which
    /// says its last words a moment after the command's end. Its status and its signals are the
    /// command's own
    #[arg(long, conflicts_with = "start_on")]
    keep_pid: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

/// Runs the command. Does not return if the command was killed by a signal: then we are, too.
pub fn run(mut args: RunArgs, at_start: AtStart) -> ExitCode {
    let script = match script::follow(&mut args.record, Some(&mut args.start_on)) {
        Ok(script) => script,
        Err(status) => return status,
    };
    let (quiet, output) = (args.record.quiet, args.record.output.clone());
    let prints_counts = args.call_counts;
    let mut shows = match args.record.shown() {
        Ok(shows) => shows,
        Err(why) => {
            say(&why);
            return ExitCode::from(exit_code::WRONG_USAGE);
        }
    };
    let mut kept = None;
    let ended = record(args, at_start, &mut kept, &mut shows);
    shows.end();
    match ended {
        Ok(finished) => {
            record::report_end(&finished, &output, quiet, "the command");
            if prints_counts && let Err(e) = report::print_call_counts(&output) {
                say(&format!("{e:#}"));
            }
            let written = (finished.dumps != Some(0)).then_some(&*output);
            report::tell_script(script.as_deref(), written);
            match kept {
                Some(_) => ExitCode::SUCCESS,
                None => end_as(finished.status),
            }
        }
        Err(Failure::Killed(_)) if kept.is_some() => ExitCode::SUCCESS,
        Err(Failure::Killed(signal)) => end_as(ExitStatus::Signaled(signal)),
        Err(Failure::NotExecuted(code)) => ExitCode::from(code),
        Err(Failure::Said { code, message }) => {
            say(&message);
            if let Some(kept) = kept {
                kept.end(code);
            }
            ExitCode::from(code)
        }
    }
}

/// What the user of a Go program should know.
const GO: &str = "a Go program: its calls are recorded in order, and times are estimates \
                  (with --return-points, where it can be had, they have stamps)";

enum Failure {
    /// One line, and the status.
    Said { code: u8, message: String },
    /// The command was killed by a signal before its program began: nothing of ours failed.
    Killed(i32),
    /// We are the process that was to become the command, and end with this status; who traces has
    /// said why.
    NotExecuted(u8),
}

/// For which calls the clock is read, and whether calls are recorded by their return points, as it
/// is asked for, or as suits best. A Go program's runtime walks its own stacks: calls with stamps
/// have no ends there but by their return points; where goroutines cannot be told from each other
/// (a release that is not known) calls in order belong to the right ones still.
fn choose(args: &RunArgs) -> Result<(Stamps, bool), String> {
    let is_go = args
        .command
        .first()
        .is_some_and(|name| executable::is_go(name));
    let suits = match is_go {
        true => executable::has_lanes(&args.command[0]),
        false => args.start_on.is_empty() && !args.record.is_better_without_return_points(),
    };
    let returns_seen = |stamps| {
        let others = args.record.beside_return_points().into_iter();
        let others = others.chain([(args.shadow, "--shadow")]);
        args.stamps.return_points(stamps, others, suits)
    };
    let is_in_order = || check_in_order(args, Stamps::None).is_ok();
    let stamps = match args.stamps.asked() {
        Some(stamps) => stamps,
        None if is_go && !returns_seen(Stamps::Full)? && is_in_order() => Stamps::None,
        None => Stamps::Full,
    };
    check_in_order(args, stamps)?;
    Ok((stamps, returns_seen(stamps)?))
}

/// `Err`: something is asked for that these stamps cannot be had beside.
fn check_in_order(args: &RunArgs, stamps: Stamps) -> Result<(), String> {
    let is_followed = args.shadow || args.start_on.iter().any(Event::needs_ends);
    let own = [
        // What the kernel does has times, by which it would be shown inside of another call.
        (args.kernel.is_wanted(), "-K"),
        (
            is_followed,
            "--shadow, and --start-on of a return or a slow call",
        ),
    ];
    stamps.check(own.into_iter().chain(args.record.beside_stamps(stamps)))
}

fn own_failure(message: String) -> Failure {
    Failure::Said {
        code: exit_code::OWN_FAILURE,
        message,
    }
}

fn wrong_usage(message: String) -> Failure {
    let code = exit_code::WRONG_USAGE;
    Failure::Said { code, message }
}

/// What is asked for, if that can be done.
fn request(mut args: RunArgs, at_start: AtStart) -> Result<Request, Failure> {
    if args.call_counts {
        args.record.default_to_system_calls("all");
    }
    let (stamps, keeps_returns) = choose(&args).map_err(wrong_usage)?;
    let is_kernel_wanted = args.kernel.is_wanted();
    let words = args.command.iter();
    let subject = Subject::Launched {
        command: words.map(|a| a.to_string_lossy().into_owned()).collect(),
        loader: args.loader,
        start_on: args.start_on,
        shadow: args.shadow,
    };
    let request = args.record.request(subject, at_start);
    let mut request = request.map_err(wrong_usage)?;
    request.options.stamps = stamps.of_recording();
    request.options.keep_returns(keeps_returns);
    if request.is_endless() {
        let why = "--times with --start-on needs --stop-on EVENT: what ends each recording";
        return Err(wrong_usage(why.to_owned()));
    }
    if is_kernel_wanted && request.events.shadow {
        let why = "-K begins with the recording, of which --shadow is the other way; leave it out";
        return Err(wrong_usage(why.to_owned()));
    }
    if is_kernel_wanted && request.is_later() && request.events.times > 1 {
        let why = "-K records one stretch; leave --times out, or record with `ktrace` beside";
        return Err(wrong_usage(why.to_owned()));
    }
    if args.keep_pid && request.reads_keys() {
        let why = "--keep-pid leaves the terminal to the command; use another event than key:";
        return Err(wrong_usage(why.to_owned()));
    }
    Ok(request)
}

fn record(
    args: RunArgs,
    at_start: AtStart,
    kept: &mut Option<Kept>,
    shows: &mut Shows,
) -> Result<Finished, Failure> {
    let (command, keeps_pid) = (args.command.clone(), args.keep_pid);
    let (kernel, quiet) = (args.kernel.clone(), args.record.quiet);
    let is_asked = args.stamps.asked().is_some();
    let request = request(args, at_start)?;
    let is_go = request.options.stamps == sptrace_collect::Stamps::None && !is_asked;
    let words = command.iter().map(|a| CString::new(a.as_bytes()));
    let argv: Vec<CString> = words
        .collect::<Result<_, _>>()
        .map_err(|_| own_failure("an argument holds a NUL byte".to_owned()))?;
    let name = command[0].to_string_lossy().into_owned();
    executable::check(&command[0]).map_err(|refused| cannot_run(&name, refused))?;
    let begun = request.begun().map(Path::to_owned);
    let is_later = request.is_later();
    if keeps_pid {
        match keep::split() {
            Ok(Split::Tracer(command)) => *kept = Some(command),
            Ok(Split::Command(waiting)) => {
                let status = waiting.execute(&argv, &request.options.at_start);
                return Err(Failure::NotExecuted(status));
            }
            Err(e) => {
                let why = format!("cannot trace {name}: {e}; try it later");
                return Err(own_failure(why));
            }
        }
    }
    let has_dumps = !request.events.dump_on.is_empty();
    let beside = kernel.prepare(quiet, has_dumps).map_err(own_failure)?;
    shows.is_steady = beside.is_some() || keeps_pid;
    let mut session = record::prepare(request, shows).map_err(own_failure)?;
    if let Some(beside) = beside {
        session.with_kernel(beside);
    }
    if let Some(kept) = *kept {
        session.keep(kept);
    }
    let result = match is_later {
        true => session.run_later(&argv),
        false => session.run(&argv),
    };
    let told = result.map(|mut finished| {
        if is_go {
            finished.remarks.push(GO.to_owned());
        }
        finished
    });
    told.map_err(|e| {
        // Nothing was recorded: leave no file that looks like a trace.
        record::remove_begun(begun.as_deref());
        not_run(&name, e)
    })
}

/// The command could not be started, or ended before its program began.
fn not_run(name: &str, error: TraceeError) -> Failure {
    let why = match error {
        TraceeError::Killed(signal) => return Failure::Killed(signal),
        TraceeError::Exec(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            Refused::NotFound(format!("{e}; check the path"))
        }
        TraceeError::Exec(e) => Refused::CannotExecute(format!("{e}; try it without sptrace")),
        TraceeError::Gone => {
            let why = "the kernel cannot load it; is it damaged? Try it without sptrace";
            Refused::CannotExecute(why.to_owned())
        }
        e => {
            let why = format!("cannot trace {name}: {e}; try it without sptrace");
            return own_failure(why);
        }
    };
    cannot_run(name, why)
}

fn cannot_run(name: &str, refused: Refused) -> Failure {
    let (code, why) = match refused {
        Refused::NotFound(why) => (exit_code::NOT_FOUND, why),
        Refused::CannotExecute(why) => (exit_code::CANNOT_EXECUTE, why),
    };
    Failure::Said {
        code,
        message: format!("cannot run {name}: {why}"),
    }
}
