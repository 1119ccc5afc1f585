//! The sptrace command: parse, dispatch, exit status.

use clap::{CommandFactory, FromArgMatches};
use clap_complete::CompleteEnv;
use sptrace::settings::{self, Settings, SettingsError};
use sptrace::{cli, commands, complete, crash, exit_code, logging, talk};
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
    sptrace_collect::clock::begin();
    crash::install();
    let factory = || complete::with_candidates(cli::Cli::command());
    CompleteEnv::with_factory(factory)
        .var(complete::VARIABLE)
        .complete();
    if let Err(why) = logging::install(std::env::var(logging::VARIABLE).ok().as_deref()) {
        talk::say(&why);
        return ExitCode::from(exit_code::WRONG_USAGE);
    }
    let settings = read_settings();
    let empty = Settings::default();
    let cli = match parse(settings.as_ref().unwrap_or(&empty)) {
        Ok(cli) => cli,
        Err(error) => return misused(&error, settings.as_ref().unwrap_or(&empty)),
    };
    let needs_none = matches!(
        cli.command,
        cli::Command::Config(_) | cli::Command::Doctor(_)
    );
    if let (Err(error), false) = (&settings, needs_none) {
        talk::say(&format!("{error} (see `sptrace config --help`)"));
        return ExitCode::from(exit_code::WRONG_USAGE);
    }
    match cli.command {
        cli::Command::Run(args) => commands::run::run(args, at_start()),
        cli::Command::Attach(args) => commands::attach::run(args, at_start()),
        cli::Command::Ktrace(mut args) => commands::ktrace::run(&mut args, close_streams),
        cli::Command::Analyze(args) => ended(commands::analyze::run(&args)),
        cli::Command::Doctor(args) => doctor(&args),
        cli::Command::Script(args) => ended(commands::script::run(&args)),
        cli::Command::Config(args) => {
            let settings = settings.as_ref().map_err(SettingsError::clone);
            ended(commands::config::run(&args, settings))
        }
        cli::Command::Cache(args) => match commands::cache::run(&args) {
            Ok(false) => ExitCode::from(exit_code::FAILURE),
            result => ended(result.map(drop)),
        },
        cli::Command::Ctl(args) => ended(commands::ctl::run(&args)),
        cli::Command::Report(args) => match commands::report::run(&args) {
            Ok(status) => ExitCode::from(status),
            Err(error) => failed(&error, commands::report::failure(&args)),
        },
    }
}

fn read_settings() -> Result<Settings, SettingsError> {
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let variable = |name: &str| std::env::var(name).ok();
    settings::read(&cli::Cli::command(), &variable, &names)
}

/// The command line, with what the settings say where it says nothing.
fn parse(settings: &Settings) -> Result<cli::Cli, clap::Error> {
    let mut command = cli::Cli::command();
    if !settings.all.is_empty() {
        let explicit = command.clone().try_get_matches().ok();
        command = settings.apply(command, explicit.as_ref());
    }
    cli::Cli::from_arg_matches(&command.try_get_matches()?)
}

/// Help and version as clap prints them; any other error in one line.
fn misused(error: &clap::Error, settings: &Settings) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        _ => {
            let line = talk::usage_line(error);
            let words: Vec<_> = std::env::args().skip(1).collect();
            let said = |option: &&str| words.iter().any(|w| w.starts_with(&format!("--{option}")));
            let option = talk::option_of(error);
            let origin = option.as_deref().filter(|o| !said(o)).and_then(|option| {
                let command = words.first()?;
                settings.origin_of(command, option)
            });
            match origin {
                Some(origin) => talk::say(&format!("{line} (set by {origin})")),
                None => talk::say(&line),
            }
        }
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
