//! What `/proc` says of a process and of its threads, at the moment of the question.
//!
//! Given numbers; gives numbers, names and typed records. A process that is gone, or that may not
//! be looked at, has no threads, no children and an empty name: who must know the difference asks
//! for [`Stat`] or [`Status`], which say that nothing could be read.
//!
//! Must not know: what the process is looked at for.

mod auxv;
mod cpu_time;
pub mod files;
mod stat;
mod status;

pub use auxv::AuxiliaryVector;
pub use cpu_time::CpuTime;
pub use stat::Stat;
pub use status::Status;

use std::path::Path;
use std::path::PathBuf;

/// The numbers of all processes that are seen here.
pub fn processes() -> Vec<u32> {
    numbers_in("/proc")
}

/// The numbers of a process's threads.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// True if there is such a process, be it only what its parent has not waited for.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// True if the process has a thread of that number.
pub fn has_thread(pid: u32, tid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// The name that a thread has (proc_pid_comm(5)).
pub fn thread_name(pid: u32, tid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// The arguments with which the process's program was started, its name first; those that are empty
/// are left out.
pub fn arguments(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|b| *b == 0)
        .filter(|a| !a.is_empty())
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect()
}

/// A name of the file that a process executes, whether or not it has another still (proc(5)).
pub fn program(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// The children of all threads of a process. A kernel that does not list them is asked for
/// everybody's parent instead.
pub fn children(pid: u32) -> Vec<u32> {
    if !Path::new("/proc/thread-self/children").exists() {
        let is_child = |other: &u32| Stat::of(*other).is_ok_and(|s| s.parent == pid);
        return processes().into_iter().filter(is_child).collect();
    }
    let lists = threads(pid)
        .into_iter()
        .filter_map(|tid| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok());
    lists
        .flat_map(|list| {
            let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_found_named_and_gone_in_the_end() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().expect("cat is there");
        let (pid, own) = (child.id(), std::process::id());
        // Between the fork and the exec it has our name and arguments.
        while arguments(pid) != ["cat"] {
            std::thread::yield_now();
        }
        assert!(processes().contains(&pid) && children(own).contains(&pid));
        assert_eq!(threads(pid), [pid]);
        assert_eq!(thread_name(pid, pid), "cat");
        assert!(exists(pid) && has_thread(pid, pid) && !has_thread(own, pid));
        drop(child.stdin.take());
        child.wait().expect("a child of ours");
        assert!(!exists(pid) && threads(pid).is_empty() && arguments(pid).is_empty());
    }
}
