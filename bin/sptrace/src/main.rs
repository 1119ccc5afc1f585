//! The sptrace command: parse, dispatch, exit status.

use clap::Parser;
use sptrace::{cli, commands, exit_code, talk};
use sptrace_tracee::at_start::AtStart;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

/// SIGPIPE as we were started with, before Rust's runtime ignored it: the command inherits it.
static SIGPIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// A bit for each standard stream that was closed when we were started, before Rust's runtime
/// opened /dev/null there.
static CLOSED_AT_START: AtomicUsize = AtomicUsize::new(0);

extern "C" fn remember() {
    // SAFETY: reads a disposition, before any thread exists.
    unsafe {
        let mut old = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            SIGPIPE_AT_START.store(old.sa_sigaction, Ordering::Relaxed);
        }
    }
    for stream in 0..3 {
        // SAFETY: asks whether there is such a descriptor.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0 {
            CLOSED_AT_START.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

// SAFETY: a constructor that calls async-signal-safe functions. What comes first in main is too
// late for both.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

fn closed_at_start() -> [bool; 3] {
    let bits = CLOSED_AT_START.load(Ordering::Relaxed);
    std::array::from_fn(|stream| bits & 1 << stream != 0)
}

/// Has a command find the streams closed that we did.
fn close_streams(command: &mut Command) {
    let close = || {
        for (stream, _) in (0..).zip(closed_at_start()).filter(|(_, is)| *is) {
            // SAFETY: in the child, which uses it no more.
            unsafe { libc::close(stream) };
        }
        Ok(())
    };
    // SAFETY: nothing but close(2) is called, which is async-signal-safe.
    unsafe { command.pre_exec(close) };
}

/// What the command of a recording inherits. Limits that are in our way are lifted.
fn at_start() -> AtStart {
    AtStart::lift(SIGPIPE_AT_START.load(Ordering::Relaxed), closed_at_start())
}

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    match cli.command {
        cli::Command::Run(args) => commands::run::run(args, at_start()),
        cli::Command::Attach(args) => commands::attach::run(args, at_start()),
        cli::Command::Ktrace(args) => commands::ktrace::run(&args, close_streams),
        cli::Command::Analyze(args) => ended(commands::analyze::run(&args)),
        cli::Command::Doctor(args) => doctor(&args),
        cli::Command::Script(args) => ended(commands::script::run(&args)),
        cli::Command::Ctl(args) => ended(commands::ctl::run(&args)),
        cli::Command::Report(args) => match commands::report::run(&args) {
            Ok(status) => ExitCode::from(status),
            Err(error) => failed(&error, commands::report::failure(&args)),
        },
    }
}

/// Help and version as clap prints them; any other error in one line.
fn misused(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => talk::say(&talk::usage_line(error)),
    }
    ExitCode::from(error.exit_code() as u8)
}

/// The status of a command that reads files: its error in one line.
fn doctor(args: &commands::doctor::DoctorArgs) -> ExitCode {
    commands::doctor::run(args).unwrap_or_else(|e| ended(Err(e)))
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, exit_code::FAILURE),
    }
}

fn failed(error: &anyhow::Error, status: u8) -> ExitCode {
    talk::say(&format!("{error:#}"));
    ExitCode::from(status)
}
