//! Whether the thread of a stream is alive.
//!
//! Given a stream, whose numbers are those by which the process knows itself; looks into /proc. In another
//! pid namespace they name somebody else here, or nobody: then the process is looked for by what the kernel
//! says of its numbers. Knows nothing of records.

use sptrace_tracee::maps::{self, LiveMaps};
use sptrace_wire::control::{PIDS_SAME, PIDS_UNSURE, Stream};

/// The thread exists and is no zombie.
pub fn is_alive(s: &Stream) -> bool {
    match s.other_pids {
        PIDS_SAME => return runs(s.pid, s.tid),
        PIDS_UNSURE if runs(s.pid, s.tid) && is_ours(s.pid) => return true,
        _ => {}
    }
    let numbers = |dir: &str| -> Vec<u32> {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .collect()
    };
    numbers("/proc")
        .into_iter()
        .filter(|pid| own_number(&format!("/proc/{pid}/status")) == Some(s.pid))
        // One that may not be looked at may be ours.
        .filter(|pid| maps::read(*pid).map_or(true, |m| maps::is_traced(&m)))
        .any(|pid| {
            numbers(&format!("/proc/{pid}/task"))
                .into_iter()
                .any(|tid| {
                    own_number(&format!("/proc/{pid}/task/{tid}/status")) == Some(s.tid)
                        && runs(pid, tid)
                })
        })
}

/// True if the process of this number here is traced.
pub fn is_ours(pid: u32) -> bool {
    LiveMaps::open(pid).is_ok_and(|m| m.is_traced())
}

fn runs(pid: u32, tid: u32) -> bool {
    let stat = match std::fs::read(format!("/proc/{pid}/task/{tid}/stat")) {
        Ok(stat) => stat,
        // Too many are open just now: nobody knows, and it is asked again.
        Err(e) => return matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
    };
    let state = stat
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|i| stat.get(i + 2).copied());
    !matches!(state, Some(b'Z' | b'X') | None)
}

/// The number that a task in an inner pid namespace has there.
fn own_number(status: &str) -> Option<u32> {
    let text = std::fs::read_to_string(status).ok()?;
    let numbers = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    let mut numbers = numbers.split_whitespace();
    numbers.next()?;
    numbers.next_back()?.parse().ok()
}
