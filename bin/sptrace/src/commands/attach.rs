//! `sptrace attach`: records processes that run already, and lets them go as they were.
//!
//! What sptrace says goes to stderr with a prefix, and `-q` silences it but for errors.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sptrace_collect::Request;
use sptrace_collect::live::attach::Until;
use sptrace_tracee::at_start::AtStart;
use sptrace_tracee::{eligible, proc};

use crate::commands::duration::parse_duration;
use crate::commands::executable;
use crate::commands::kernel_side::KernelArgs;
use crate::commands::record::{self, RecordArgs, Subject};
use crate::commands::shows::Shows;
use crate::commands::stamps::{StampArgs, Stamps};
use crate::commands::{report, script};
use crate::exit_code;
use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace attach -p 1234 --for 5s               five seconds of process 1234, then: sptrace report
  sptrace attach -p $(pidof -s nginx)           until Ctrl-C, or until it ends
  sptrace attach -q -p 12,34 -F 'handle_*' -o both.data
  sptrace attach -p 1234 --ring 64M --dump-on 'slow:handle_*>50ms' --stop-on ctl:end

The recording begins inside of what runs: the calls that are open at that moment, main and below,
are found by unwind tables. `report tree` says of them `began earlier` and `end not seen`; how
long they took is not known (`?`). Detaching puts every byte of the programs' code back. Processes
that they start meanwhile are followed, and let go, too.
";
const STATUS: &str = "\
Exit status: 0; 1 if nothing could be attached to, or no trace be written; 2: wrong usage.

Environment: XDG_CACHE_HOME (or HOME) says where analyses of programs are kept, in sptrace/.";

/// Record running processes, and let them go as they were
#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n{}\n{STATUS}", record::EVENTS))]
pub struct AttachArgs {
    /// The processes (repeatable, or separated by commas)
    #[arg(
        short,
        long = "pid",
        value_name = "PID",
        required = true,
        value_delimiter = ','
    )]
    pids: Vec<u32>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    stamps: StampArgs,
    /// Detach after this time: 500ms, 5s, 2m, 1h (a number alone: seconds); else at Ctrl-C, SIGTERM
    /// or SIGHUP, or when all have ended
    #[arg(help_heading = record::WHEN, display_order = 0, long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// The process runs no Go program whose goroutines cannot be told from each other.
fn has_known_lanes(pid: &u32) -> bool {
    let file = proc::program(*pid).into_os_string();
    !executable::is_go(&file) || executable::has_lanes(&file)
}

/// Attaches, records, detaches.
pub fn run(mut args: AttachArgs, at_start: AtStart) -> ExitCode {
    heed_interrupts();
    let script = match script::follow(&mut args.record, None) {
        Ok(script) => script,
        Err(status) => return status,
    };
    let output = args.record.output.clone();
    let pids = args.pids;
    let quiet = args.record.quiet;
    let until = Until {
        duration: args.duration,
    };
    let kernel = args.kernel;
    let shows = args.record.shown();
    let stamps = args.stamps.asked().unwrap_or(Stamps::Full);
    // What the kernel does has times, by which it would be shown inside of another call.
    let beside = [(kernel.is_wanted(), "-K")];
    let beside = beside.into_iter().chain(args.record.beside_stamps(stamps));
    let fits = stamps.check(beside);
    let others = args.record.beside_return_points();
    let suits = !args.record.is_better_without_return_points() && pids.iter().all(has_known_lanes);
    let keeps_returns = args.stamps.return_points(stamps, others, suits);
    let asked = shows.and_then(|shows| {
        fits?;
        let keeps_returns = keeps_returns?;
        let mut request = args.record.request(Subject::Running, at_start)?;
        request.options.stamps = stamps.of_recording();
        request.options.keep_returns(keeps_returns);
        Ok((shows, request))
    });
    let (mut shows, request) = match asked {
        Ok(asked) => asked,
        Err(message) => {
            say(&message);
            return ExitCode::from(exit_code::WRONG_USAGE);
        }
    };
    match record(request, pids, (&until, &kernel), quiet, &mut shows) {
        Ok(is_written) => {
            report::tell_script(script.as_deref(), is_written.then_some(&*output));
            ExitCode::SUCCESS
        }
        Err(message) => {
            if let Some(message) = message {
                say(&message);
            }
            ExitCode::from(exit_code::FAILURE)
        }
    }
}

/// Jobs that a script starts with `&` have SIGINT ignored (POSIX, XCU 2.11). `kill -INT` is how
/// such a recording is ended; until the session takes the signal over it would be lost, and the
/// recording not end.
fn heed_interrupts() {
    // SAFETY: a disposition of our own process, as a terminal's jobs have it; nothing has been
    // begun.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

fn cannot(pid: u32, why: &str) {
    say(&format!("cannot attach to {pid}: {why}"));
}

/// Gives whether a trace was written. The error is a line for the user, unless all has been said.
fn record(
    mut request: Request,
    mut pids: Vec<u32>,
    (until, kernel): (&Until, &KernelArgs),
    quiet: bool,
    shows: &mut Shows,
) -> Result<bool, Option<String>> {
    let mut seen = std::collections::BTreeSet::new();
    pids.retain(|pid| seen.insert(*pid));
    pids.retain(|&pid| match eligible::check(pid) {
        Ok(()) => true,
        Err(e) => {
            cannot(pid, &e.to_string());
            false
        }
    });
    let Some(first) = pids.first() else {
        return Err(None);
    };
    request.command = proc::arguments(*first);
    let output = request.options.output.clone();
    let begun = request.begun().map(Path::to_owned);
    let has_dumps = !request.events.dump_on.is_empty();
    let beside = kernel.prepare(quiet, has_dumps)?;
    shows.is_steady = beside.is_some();
    let mut session = record::prepare(request, shows)?;
    if let Some(beside) = beside {
        session.with_kernel(beside);
    }
    let tell = |pid: u32| {
        if !quiet {
            say(&format!("attached to {pid}"));
        }
    };
    let attached = session.attach(&pids, until, &tell);
    std::mem::take(shows).end();
    match attached {
        Ok(attached) => {
            for refused in &attached.refused {
                cannot(refused.pid, &refused.why);
            }
            record::report_end(&attached.finished, &output, quiet, "the program");
            Ok(attached.finished.dumps != Some(0))
        }
        Err(refused) => {
            for refused in &refused {
                cannot(refused.pid, &refused.why);
            }
            record::remove_begun(begun.as_deref());
            Err(None)
        }
    }
}
