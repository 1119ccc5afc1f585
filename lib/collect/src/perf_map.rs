//! Names of code that a program has generated, from the map that it has written for perf.
//!
//! JIT compilers write `/tmp/perf-PID.map` if they are asked to (`node --perf-basic-prof`, `python3
//! -X perf`, `java -XX:+DumpPerfMapAtExit`). Given a process and addresses; gives names. The file
//! may be anybody's: it is read only if it is a plain file of ours or of root's, or if we are root.
//! Must not know records.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use sptrace_symbols::{Named, read_perf_map};

/// A longer map is read so far.
const MOST_BYTES: u64 = 256 << 20;

/// What lies at addresses of a process, which are sorted, by its map.
pub fn names(pid: u32, addresses: &[u64]) -> Vec<Option<Named>> {
    let mut bytes = Vec::new();
    if let Some(file) = open(pid) {
        // What could be read of it counts.
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    }
    read_perf_map(&bytes, addresses)
}

fn open(pid: u32) -> Option<File> {
    let path = format!("/tmp/perf-{pid}.map");
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    let is_trusted = metadata.uid() == own || metadata.uid() == 0 || own == 0;
    if !(metadata.is_file() && is_trusted) {
        log::warn!("{path} is not used: it is somebody else's, or no file");
        return None;
    }
    Some(file)
}
