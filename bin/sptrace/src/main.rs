//! The sptrace command: parse, dispatch, exit status.

use clap::Parser;
use sptrace::{cli, commands, exit_code, talk};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// SIGPIPE as we were started with, before Rust's runtime ignored it: the command inherits it.
static SIGPIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn remember_sigpipe() {
    // SAFETY: reads a disposition, before any thread exists.
    unsafe {
        let mut old = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            SIGPIPE_AT_START.store(old.sa_sigaction, Ordering::Relaxed);
        }
    }
}

// SAFETY: a constructor that calls one async-signal-safe function.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_SIGPIPE: extern "C" fn() = remember_sigpipe;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    match cli.command {
        cli::Command::Run(args) => {
            commands::run::run(args, SIGPIPE_AT_START.load(Ordering::Relaxed))
        }
        cli::Command::Attach(args) => {
            commands::attach::run(args, SIGPIPE_AT_START.load(Ordering::Relaxed))
        }
        cli::Command::Ktrace(args) => commands::ktrace::run(&args),
        cli::Command::Analyze(args) => ended(commands::analyze::run(&args)),
        cli::Command::Ctl(args) => ended(commands::ctl::run(&args)),
        cli::Command::Report(args) => ended(commands::report::run(&args)),
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
fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            talk::say(&format!("{e:#}"));
            ExitCode::from(exit_code::FAILURE)
        }
    }
}
