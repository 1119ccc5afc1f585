//! What a process has open, for the trace: who reads it can say what descriptors lead to.
//!
//! Given a process; gives a note. Must not know who reads it.

use sptrace_trace::Note;
use sptrace_tracee::proc::files;

use crate::clock;

/// The descriptors of a process as they are now, and the folder that it is in.
pub fn note(pid: u32) -> Note {
    let numbers = files::descriptors(pid).into_iter();
    let named = numbers.filter_map(|fd| Some((fd, files::descriptor_name(pid, fd)?)));
    let mut open: Vec<(u32, String)> = named.collect();
    open.sort_unstable();
    Note::Descriptors {
        pid,
        tsc: clock::tsc(),
        folder: files::folder(pid).unwrap_or_default(),
        open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::path::Path;

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
