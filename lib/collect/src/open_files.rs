//! What a process has open, for the trace: who reads it can say what descriptors lead to.
//!
//! Given a process; gives a note. Must not know who reads it.

use std::fs;
use std::path::Path;

use sptrace_trace::Note;

use crate::clock;

/// The descriptors of a process as they are now, and the folder that it is in.
pub fn note(pid: u32) -> Note {
    let own = format!("/proc/{pid}");
    let entries = fs::read_dir(format!("{own}/fd"));
    let mut open: Vec<(u32, String)> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, link(&entry.path())?))
        })
        .collect();
    open.sort_unstable();
    Note::Descriptors {
        pid,
        tsc: clock::tsc(),
        folder: link(Path::new(&format!("{own}/cwd"))).unwrap_or_default(),
        open,
    }
}

fn link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_open_is_named_by_its_path() {
        let file = fs::File::open("/dev/null").unwrap();
        let Note::Descriptors { open, folder, .. } = note(std::process::id()) else {
            panic!("another note");
        };
        let number = file.as_raw_fd() as u32;
        assert!(open.contains(&(number, "/dev/null".to_owned())));
        assert_eq!(Path::new(&folder), std::env::current_dir().unwrap());
    }
}
