//! `sptrace doctor`: what can be recorded on this machine by this user, and what would allow more.
//!
//! Given nothing; prints one line for each question, with the command that helps where the answer
//! is no. Ends with 1 if not even `sptrace run` works.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use sptrace_kernel::check;
use sptrace_tracee::machine;

use super::cache;
use crate::exit_code;

const EXAMPLES: &str = "\
Examples:
  sptrace doctor            as the user who will record
  sudo sptrace doctor       what root may do besides";

/// Arguments of `sptrace doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {}

/// A line: what was looked for, whether it is there, how or why not.
type Line = (&'static str, bool, String);

/// Runs it.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(_: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let of_machine = |answers: Vec<machine::Answer>| -> Vec<Line> {
        let lines = answers.into_iter();
        lines.map(|a| (a.what, a.is_there, a.how)).collect()
    };
    let commands = of_machine(machine::for_commands());
    // A descriptor can be had by another way, too.
    let works = commands
        .iter()
        .all(|line| line.1 || line.0 == "descriptors of a child");
    let running = of_machine(machine::for_running());
    let kernel = check::look().into_iter();
    let kernel = kernel.map(|a| (a.what, a.is_there, a.how)).collect();
    let groups = [
        ("Commands (sptrace run)", commands),
        ("Running programs (sptrace attach)", running),
        ("The kernel's side (sptrace ktrace)", kernel),
        ("Conveniences", conveniences()),
    ];
    let mut out = std::io::stdout().lock();
    for (i, (title, lines)) in groups.iter().enumerate() {
        writeln!(out, "{}{title}", if i > 0 { "\n" } else { "" })?;
        for (what, is_there, how) in lines {
            let sign = if *is_there { "yes" } else { "no" };
            writeln!(out, "  {what:24} {sign:4} {how}")?;
        }
    }
    Ok(match works {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit_code::FAILURE),
    })
}

fn conveniences() -> Vec<Line> {
    let mut lines = Vec::new();
    lines.push(match cache::places().own {
        None => (
            "analyses are kept",
            false,
            "neither XDG_CACHE_HOME nor HOME says where: each recording analyses its programs anew"
                .to_owned(),
        ),
        Some(place) => kept(&place),
    });
    let open = |path: &str| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
    };
    let keys = open("/dev/tty").and_then(|_| open("/dev/ptmx"));
    lines.push(match keys {
        Ok(_) => (
            "keys as events",
            true,
            "there is a terminal, and others can be made".to_owned(),
        ),
        Err(e) => (
            "keys as events",
            false,
            format!("`key:` needs a terminal: /dev/tty and /dev/ptmx ({e})"),
        ),
    });
    lines
}

/// Can analyses be kept there, and how many are?
fn kept(place: &Path) -> Line {
    let what = "analyses are kept";
    let mut existing = place;
    while !existing.exists() {
        let Some(above) = existing.parent() else {
            return (what, false, format!("{}: no such place", place.display()));
        };
        existing = above;
    }
    let directory = std::ffi::CString::new(existing.as_os_str().as_encoded_bytes());
    let may_write = directory.is_ok_and(|path| {
        // SAFETY: a string that ends with a zero.
        unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
    });
    if !may_write {
        let how = format!(
            "{} cannot be written: set XDG_CACHE_HOME to a folder of yours",
            existing.display()
        );
        return (what, false, how);
    }
    let files = std::fs::read_dir(place).into_iter().flatten().flatten();
    let sizes: Vec<u64> = files
        .filter_map(|f| Some(f.metadata().ok()?.len()))
        .collect();
    let bytes = sizes.iter().sum::<u64>() as f64;
    (
        what,
        true,
        format!(
            "{} files, {:.1} MB in {}",
            sizes.len(),
            bytes / 1e6,
            place.display()
        ),
    )
}
