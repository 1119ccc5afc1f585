//! Whether a process still executes the program that it was looked at for.
//!
//! Given the process's memory, opened before anything else was looked at: the descriptor belongs to
//! the image that was there at that moment, and reads as an empty file once the process has
//! executed another program (kernel: fs/proc/base.c, `mem_rw`). Addresses do not tell: without
//! randomization they may be the same. Must not know what the process is looked at for.

use crate::eligible::has_ended;
use crate::error::TraceeError;
use crate::proc::AuxiliaryVector;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// True if the image that this memory belongs to is gone: another program is executed, or none.
pub fn is_gone(memory: &File) -> bool {
    // Nothing is mapped at 0, or one byte: an error, or that.
    matches!(memory.read_at(&mut [0], 0), Ok(0))
}

/// Checks that the image is there.
///
/// # Errors
/// The process executes another program, or has ended.
pub fn check(pid: u32, memory: &File) -> Result<(), TraceeError> {
    match is_gone(memory) {
        false => Ok(()),
        true if has_ended(pid) => Err(TraceeError::Gone),
        true => Err(TraceeError::Replaced),
    }
}

/// What a failure means: if the image is gone it is no other.
pub fn cause(pid: u32, memory: &File, e: TraceeError) -> TraceeError {
    check(pid, memory).err().unwrap_or(e)
}

/// True if all of a program is mapped that its exec maps: the auxiliary vector is made last, behind
/// the vdso.
pub fn is_loaded(pid: u32) -> bool {
    AuxiliaryVector::of(pid).map_or(true, |auxv| auxv.is_made())
}

/// What a program calls to have a signal sent to it again and again.
const TIMERS: [&[u8]; 2] = [b"setitimer\0", b"timer_create\0"];

/// Whether a program has the name of such a function: it may come to catch SIGPROF, and to walk its
/// stacks then.
pub fn may_sample_itself(pid: u32) -> bool {
    let program = std::fs::read(format!("/proc/{pid}/exe")).unwrap_or_default();
    let has = |name: &[u8]| program.windows(name.len()).any(|there| there == name);
    TIMERS.into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::open_to_write as open_memory;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn another_program_is_told_from_the_same_and_from_none() {
        // Without randomization, where the kernel permits that: the same program at the same place.
        let again = "echo 1; read line; exec setarch -R sh -c 'echo 2; read line; exit 3'";
        let mut command = Command::new("setarch");
        command.args(["-R", "sh", "-c", again]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("setarch and sh are there");
        let pid = child.id();
        let mut input = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut said = || output.next().expect("a line").expect("text");
        assert_eq!(said(), "1");
        let first = open_memory(pid).expect("a child of ours");
        assert!(is_loaded(pid) && check(pid, &first).is_ok());
        input.write_all(b"\n").expect("it reads");
        assert_eq!(said(), "2");
        assert!(matches!(check(pid, &first), Err(TraceeError::Replaced)));
        let second = open_memory(pid).expect("a child of ours");
        assert!(check(pid, &second).is_ok());
        let other = TraceeError::NoRoom("a reason");
        assert!(matches!(cause(pid, &second, other), TraceeError::NoRoom(_)));
        input.write_all(b"\n").expect("it reads");
        assert_eq!(child.wait().expect("a child of ours").code(), Some(3));
        assert!(matches!(check(pid, &second), Err(TraceeError::Gone)));
    }
}
