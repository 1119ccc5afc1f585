//! The memory of a process, as a file.
//!
//! Given its number; gives a descriptor that belongs to the image that the process has at that
//! moment ([`crate::program`]). What is read is what somebody else wrote: untrusted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::TraceeError;
use crate::kill_point;

/// To read alone. The system's own answer says whether the process is gone or may not be looked at.
///
/// # Errors
/// Not permitted, or it is gone.
pub fn look_at(pid: u32) -> io::Result<File> {
    File::open(path(pid))
}

/// To read.
///
/// # Errors
/// As [`look_at`].
pub fn open(pid: u32) -> Result<File, TraceeError> {
    look_at(pid).map_err(unopened)
}

/// To read and write.
///
/// # Errors
/// Not permitted, or it is gone.
pub fn open_to_write(pid: u32) -> Result<File, TraceeError> {
    let opened = kill_point::around("opening memory", || look_to_write(pid));
    opened.map_err(unopened)
}

/// The same without a name of what was tried.
///
/// # Errors
/// As there.
pub(crate) fn look_to_write(pid: u32) -> io::Result<File> {
    File::options().read(true).write(true).open(path(pid))
}

/// A word of the process.
pub fn word(memory: &File, avma: u64) -> Option<u64> {
    let mut word = [0u8; 8];
    memory.read_exact_at(&mut word, avma).ok()?;
    Some(u64::from_le_bytes(word))
}

fn path(pid: u32) -> String {
    format!("/proc/{pid}/mem")
}

fn unopened(source: io::Error) -> TraceeError {
    TraceeError::System {
        what: "opening /proc/PID/mem",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_that_of_nobody_is_not_opened() {
        let there: u64 = 0x1234_5678_9abc_def0;
        let memory = open(std::process::id()).expect("this process");
        let avma = (&raw const there).addr() as u64;
        assert_eq!(word(&memory, avma), Some(there));
        assert_eq!(word(&memory, 8), None, "nothing is mapped there");
        // PID_MAX_LIMIT is 2 to the 22nd.
        assert!(matches!(open(1 << 30), Err(TraceeError::System { .. })));
    }
}
