//! What a shell may complete: values that the command line's types do not list.
//!
//! Given the types; gives the same with candidates, chosen by what a value is called in the help.
//! The words of the line are looked at where a value depends on them (functions of the program that
//! is named behind). Never fails: what cannot be found out is not offered.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use sptrace_image::Object;
use sptrace_tracee::proc;

/// The variable by which a shell's script asks; its value is the shell's name.
pub const VARIABLE: &str = "SPTRACE_COMPLETE";
/// More functions than a person reads are no help.
const MOST_FUNCTIONS: usize = 500;

/// The forms of events, as far as they can be completed.
const EVENTS: [(&str, &str); 9] = [
    ("time:", "so long after the start"),
    ("signal:", "sptrace receives a signal"),
    ("key:", "a key on the terminal"),
    ("ctl:", "a word by sptrace ctl"),
    ("call:", "a function is called"),
    ("return:", "a function returns"),
    ("slow:", "a call has taken longer"),
    ("crash", "a process is killed by a signal"),
    ("exit", "the command ends"),
];

/// The types with candidates.
pub fn with_candidates(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, of_command)
    })
}

fn of_command(command: Command) -> Command {
    let nested: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let command = nested.iter().fold(command, |command, name| {
        command.mut_subcommand(name, of_command)
    });
    command.mut_args(|arg| {
        let called = arg.get_value_names().and_then(|names| names.first());
        let called = called.map(ToString::to_string);
        let is_short = |letters: &str| arg.get_short().is_some_and(|s| letters.contains(s));
        match called.as_deref() {
            Some("PID") => arg.add(ArgValueCandidates::new(processes)),
            Some("EVENT") => arg.add(ArgValueCandidates::new(events)),
            Some("FILE|NAME" | "SCRIPT") => arg.add(ArgValueCompleter::new(scripts)),
            Some("GLOB") if is_short("FN") => arg.add(ArgValueCompleter::new(functions)),
            Some("COMMAND") => arg.add(ArgValueCompleter::new(Program)),
            Some("DIR") => arg.add(ArgValueCompleter::new(PathCompleter::dir())),
            Some("FILE" | "OUT" | "FILE|PID") => {
                arg.add(ArgValueCompleter::new(PathCompleter::any()))
            }
            _ => arg,
        }
    })
}

fn candidate(value: impl Into<OsString>, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.to_owned().into()))
}

fn events() -> Vec<CompletionCandidate> {
    EVENTS
        .iter()
        .map(|(form, help)| candidate(*form, help))
        .collect()
}

/// Processes that are not the kernel's, with what they execute.
fn processes() -> Vec<CompletionCandidate> {
    let others = proc::processes().into_iter();
    let others = others.filter(|pid| *pid != std::process::id());
    let process = |pid: u32| {
        let line = proc::arguments(pid).join(" ");
        (!line.is_empty()).then(|| candidate(pid.to_string(), &line))
    };
    others.filter_map(process).collect()
}

fn scripts(current: &OsStr) -> Vec<CompletionCandidate> {
    let variable = |name: &str| std::env::var(name).ok();
    let begins = |name: &str| current.to_str().is_some_and(|c| name.starts_with(c));
    let found = sptrace_script::find::all(&variable).into_iter();
    let named = found.filter(|found| begins(&found.name)).map(|found| {
        let line = found.source.lines().next().unwrap_or_default();
        candidate(found.name.as_str(), line.trim_start_matches(['/', ' ']))
    });
    let mut all: Vec<_> = named.collect();
    all.extend(PathCompleter::any().complete(current));
    all
}

/// Functions of the program that the line names: behind `--`, or as a process.
fn functions(current: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(image), Some(begin)) = (image_of_line(), current.to_str()) else {
        return Vec::new();
    };
    let Ok(bytes) = sptrace_code::Bytes::open(&image) else {
        return Vec::new();
    };
    let Ok(object) = Object::parse(bytes.bytes()) else {
        return Vec::new();
    };
    let names = sptrace_code::names(&object, &image).into_iter();
    let names: BTreeSet<String> = names
        .map(|name| name.name)
        .filter(|name| name.starts_with(begin) && !name.ends_with("@plt"))
        .collect();
    names
        .into_iter()
        .take(MOST_FUNCTIONS)
        .map(CompletionCandidate::new)
        .collect()
}

fn image_of_line() -> Option<PathBuf> {
    // What the shell has passed: ours, `--`, and the words of the line.
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let behind = |word: &str| {
        let at = words.iter().position(|w| w == word)?;
        words.get(at + 1)
    };
    if let Some(pid) = behind("-p").and_then(|pid| pid.to_str()) {
        return Some(proc::files::program(pid.parse().ok()?));
    }
    let program = behind("--")?;
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|folder| Some(folder.join(program)).filter(|p| is_executable(p)))
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A command: programs of the search path; what follows are its arguments, most often files.
struct Program;

impl ValueCompleter for Program {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, current)
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        let begin = current.to_string_lossy();
        if index > 0 || begin.contains('/') || begin.is_empty() {
            return PathCompleter::any().complete(current);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut names = BTreeSet::new();
        for folder in std::env::split_paths(&path) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with(begin.as_ref()) && is_executable(&entry.path()) {
                    names.insert(name);
                }
            }
        }
        names.into_iter().map(CompletionCandidate::new).collect()
    }
}
