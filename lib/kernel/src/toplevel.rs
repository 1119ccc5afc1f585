//! The top level of the kernel's tracing, which all share, borrowed and given back.
//!
//! Kernels before 6.12 trace functions there only. Given the folder; refuses if anybody uses it;
//! else keeps what its files hold in a file of our own, and writes it back in the end. If sptrace
//! is killed meanwhile, [`give_back_left_over`] does so when sptrace is next started.
//!
//! Must not know: what is traced there.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::owner::Owner;
use crate::tracefs::Tracefs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where what was found is kept: only root can write there, and a machine's start empties it.
const KEPT: &str = "/run/sptrace";
/// How files in it begin; the process's number and start follow.
const NAME: &str = "ktrace-";
/// Lists, in the order in which they are written back.
const LISTS: [&str; 6] = [
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_ftrace_pid",
    "set_ftrace_notrace_pid",
    "set_graph_function",
    "set_graph_notrace",
];
/// Single values. The clock is the first to be changed and the last to be given back: by it is seen
/// whether all others have been.
const VALUES: [&str; 5] = [
    "max_graph_depth",
    "options/function-fork",
    SIZE,
    "tracing_on",
    "trace_clock",
];

/// The clock and the tracer that it has while it is borrowed.
const CLOCK: &str = "x86-tsc";
const TRACER: &str = "function_graph";
/// The size of all buffers, and of one processor's.
const SIZE: &str = "buffer_size_kb";

/// A file and the lines to write into it.
type Kept = Vec<(String, Vec<String>)>;

/// See the module.
#[derive(Debug)]
pub struct TopLevel {
    folder: Folder,
    kept: Kept,
    file: PathBuf,
}

impl TopLevel {
    /// Borrows it, and empties its lists.
    ///
    /// # Errors
    /// Somebody uses it, or what it holds cannot be kept.
    pub fn borrow(tracefs: &Tracefs) -> Result<Self, KernelError> {
        let folder = Folder::new(tracefs.root().to_owned());
        is_free(&folder)?;
        let kept = look(&folder)?;
        let file = Path::new(KEPT).join(format!("{NAME}{}", Owner::me().name('-')));
        let text = written(&kept);
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(KEPT);
        made.and_then(|()| std::fs::write(&file, text))
            .map_err(KernelError::of(&file))?;
        let borrowed = Self { folder, kept, file };
        // First of all: by the clock it is seen later that it is borrowed still.
        if borrowed.folder.set("trace_clock", CLOCK).is_err() {
            return Err(KernelError::NoClock);
        }
        borrowed.folder.set("tracing_on", "0")?;
        for list in LISTS {
            borrowed
                .folder
                .set_list(list, std::iter::empty::<&str>())
                .or_else(|e| match borrowed.has(list) {
                    true => Err(e),
                    false => Ok(()),
                })?;
        }
        borrowed.folder.set("max_graph_depth", "0")?;
        Ok(borrowed)
    }

    fn has(&self, file: &str) -> bool {
        self.folder.path(file).exists()
    }

    /// Its files.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
}

impl Drop for TopLevel {
    fn drop(&mut self) {
        if give_back(&self.folder, &self.kept) {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// Gives back what processes that are gone have borrowed. Gives how many had, and files that tell
/// of some that could not be given back.
pub fn give_back_left_over(tracefs: &Tracefs) -> (usize, Vec<PathBuf>) {
    let folder = Folder::new(tracefs.root().to_owned());
    let (mut given, mut failed) = (0, Vec::new());
    let entries = std::fs::read_dir(KEPT).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let owner = owner.and_then(|name| Owner::of(name, '-'));
        if owner.is_none_or(Owner::is_alive) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let is_given = match is_borrowed(&folder) {
            Some(true) => give_back(&folder, &read_back(&text)),
            // Somebody has put it in order meanwhile.
            Some(false) => true,
            None => false,
        };
        match is_given && std::fs::remove_file(entry.path()).is_ok() {
            true => given += 1,
            false => failed.push(entry.path()),
        }
    }
    (given, failed)
}

/// True if it is as one leaves it who has borrowed it. `None`: somebody else uses it now.
fn is_borrowed(folder: &Folder) -> Option<bool> {
    let clock = as_written(&folder.read("trace_clock").ok()?);
    let tracer = folder.read("current_tracer").ok()?;
    match tracer.as_str() {
        TRACER | "nop" => Some(clock == [CLOCK]),
        _ => None,
    }
}

/// Refuses if anybody uses the top level: a tracer, events, or records that nobody has read yet.
fn is_free(folder: &Folder) -> Result<(), KernelError> {
    let used = |what: String, remedy| Err(KernelError::InUse { what, remedy });
    let tracer = folder.read("current_tracer")?;
    if tracer != "nop" {
        return used(
            format!("the tracer {tracer} is on (current_tracer)"),
            "end it with `echo nop > current_tracer` in tracefs, or record by --level events",
        );
    }
    if let Some(event) = folder.read("set_event")?.lines().next() {
        return used(
            format!("the event {event} is on (set_event)"),
            "end it with `echo > set_event` in tracefs, or record by --level events",
        );
    }
    let filter = folder.read("set_ftrace_filter")?;
    let mut lines = filter.lines().filter(|line| !line.starts_with('#'));
    if let Some(command) = lines.find(|line| line.contains(':')) {
        return used(
            format!("set_ftrace_filter has the command {command}"),
            "remove it, or record by --level events",
        );
    }
    let has_entries = |processor: &u32| {
        let stats = folder.read(&format!("per_cpu/cpu{processor}/stats"));
        let stats = stats.unwrap_or_default();
        let entries = stats.lines().find_map(|l| l.strip_prefix("entries:"));
        entries.is_some_and(|count| count.trim() != "0")
    };
    if folder.processors().iter().any(has_entries) {
        return used(
            "the buffer has records (trace)".to_owned(),
            "empty it with `echo > trace` in tracefs, or record by --level events",
        );
    }
    Ok(())
}

/// What the files hold, as it must be written to them.
fn look(folder: &Folder) -> Result<Kept, KernelError> {
    let mut kept = Vec::new();
    for file in LISTS.into_iter().chain(VALUES) {
        match folder.read(file) {
            // They are not all the same.
            Ok(text) if file == SIZE && text.starts_with('X') => {
                for processor in folder.processors() {
                    let of_one = format!("per_cpu/cpu{processor}/{SIZE}");
                    let text = folder.read(&of_one)?;
                    kept.push((of_one, as_written(&text)));
                }
            }
            Ok(text) => kept.push((file.to_owned(), as_written(&text))),
            // Older kernels have fewer.
            Err(_) if !folder.path(file).exists() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(kept)
}

/// What must be written to a file that it reads so again.
fn as_written(text: &str) -> Vec<String> {
    let line = |line: &str| {
        // One choice of several.
        if let Some((_, rest)) = line.split_once('[')
            && let Some((choice, _)) = rest.split_once(']')
            && line.split_whitespace().count() > 2
        {
            return choice.to_owned();
        }
        // A buffer that nobody has used yet, and which has its size now that somebody does.
        if let Some((_, expanded)) = line.split_once("(expanded: ") {
            return expanded.trim_end_matches(')').to_owned();
        }
        // A function, and the module that it belongs to.
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let is_value = |line: &&str| !line.starts_with('#') && *line != "no pid" && !line.is_empty();
    text.lines().filter(is_value).map(line).collect()
}

/// Writes what was kept; true if all could be.
fn give_back(folder: &Folder, kept: &Kept) -> bool {
    let mut is_whole = folder.set("tracing_on", "0").is_ok();
    is_whole &= folder.set("current_tracer", "nop").is_ok();
    for (file, lines) in kept {
        let written = match LISTS.contains(&file.as_str()) {
            true => folder.set_list(file, lines),
            false => folder.set(file, lines.first().map_or("", String::as_str)),
        };
        is_whole &= written.is_ok();
    }
    is_whole
}

/// As a text: a file's name, and below it its lines behind a tab.
fn written(kept: &Kept) -> String {
    let of = |(file, lines): &(String, Vec<String>)| {
        let lines: String = lines.iter().map(|line| format!("\t{line}\n")).collect();
        format!("{file}\n{lines}")
    };
    kept.iter().map(of).collect()
}

/// The opposite of [`written`]. Files that are none of ours to write are left out.
fn read_back(text: &str) -> Kept {
    let mut kept: Kept = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix('\t'), kept.last_mut()) {
            (Some(value), Some((_, lines))) => lines.push(value.to_owned()),
            (Some(_), None) => {}
            (None, _) => kept.push((line.to_owned(), Vec::new())),
        }
    }
    kept.retain(|(file, _)| is_ours_to_write(file));
    kept
}

fn is_ours_to_write(file: &str) -> bool {
    let of_one = file.strip_prefix("per_cpu/cpu");
    let of_one = of_one.and_then(|rest| rest.split_once('/'));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    of_one.is_some_and(|(number, rest)| is_number(number) && rest == SIZE)
        || LISTS.iter().chain(&VALUES).any(|known| *known == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_hold_is_written_as_the_kernel_takes_it() {
        assert_eq!(as_written("[local] global counter x86-tsc"), ["local"]);
        assert_eq!(as_written("local global [x86-tsc]"), ["x86-tsc"]);
        assert_eq!(as_written("7 (expanded: 1408)"), ["1408"]);
        assert_eq!(as_written("2048"), ["2048"]);
        assert!(as_written("#### all functions enabled ####").is_empty());
        assert!(as_written("no pid").is_empty());
        assert_eq!(as_written("12\n77"), ["12", "77"]);
        assert_eq!(
            as_written("vfs_read\next4_iget [ext4]"),
            ["vfs_read", "ext4_iget"]
        );
    }

    #[test]
    fn what_was_kept_is_read_back() {
        let kept: Kept = vec![
            ("set_ftrace_filter".to_owned(), vec![]),
            (
                "set_ftrace_pid".to_owned(),
                vec!["1".to_owned(), "2".to_owned()],
            ),
            (
                "per_cpu/cpu12/buffer_size_kb".to_owned(),
                vec!["64".to_owned()],
            ),
            ("tracing_on".to_owned(), vec!["1".to_owned()]),
        ];
        assert_eq!(read_back(&written(&kept)), kept);
        let foreign =
            "../../etc/passwd\n\troot\nper_cpu/cpu../buffer_size_kb\n\t1\ntracing_on\n\t0\n";
        assert_eq!(
            read_back(foreign),
            [("tracing_on".to_owned(), vec!["0".to_owned()])]
        );
    }
}
