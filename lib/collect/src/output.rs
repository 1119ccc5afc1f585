//! Where a recording is written while it goes on: a file, a ring in a file, or a ring in memory.
//!
//! Given what the user asked for; gives the stream for the trace's writer and what must be watched
//! of it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Error, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sptrace_trace::RingFile;
use sptrace_tracee::TraceeError;

use crate::disk::DiskWatch;

/// What the trace's writer writes to.
pub type Output = Box<dyn Write + Send>;

/// An output, and what is known of it.
pub struct Opened {
    /// For the writer.
    pub output: Output,
    /// Of the file.
    pub descriptor: RawFd,
    /// Watches its volume.
    pub disk: DiskWatch,
    /// Events that its ring has overwritten.
    pub overwritten: Arc<AtomicU64>,
}

/// The trace file at `path`, a ring if `ring_bytes` is not 0; or a ring in `memory`.
///
/// # Errors
/// The file cannot be created.
pub fn open(path: &Path, ring_bytes: u64, memory: Option<File>) -> Result<Opened, TraceeError> {
    let (file, disk) = match memory {
        Some(memory) => (memory, DiskWatch::none()),
        None => {
            let file = create(path).map_err(|source| TraceeError::System {
                what: "creating the trace file",
                source,
            })?;
            let disk = DiskWatch::new(&file);
            (file, disk)
        }
    };
    let descriptor = file.as_raw_fd();
    if ring_bytes == 0 {
        return Ok(Opened {
            descriptor,
            output: Box::new(BufWriter::with_capacity(1 << 18, file)),
            disk,
            overwritten: Arc::default(),
        });
    }
    let ring = RingFile::new(file, ring_bytes);
    Ok(Opened {
        descriptor,
        overwritten: ring.dropped_events(),
        output: Box::new(ring),
        disk,
    })
}

/// A file for a trace, empty, and readable by its owner alone whatever it was before and whatever
/// umask says: traces hold what programs did and with which values. A ring is read, too, where that
/// is permitted.
///
/// # Errors
/// The file cannot be created, or is another user's and cannot be made private.
pub fn create(path: &Path) -> std::io::Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).mode(0o600);
    let open = |how: &OpenOptions| {
        how.clone()
            .read(true)
            .open(path)
            .or_else(|_| how.open(path))
    };
    let file = open(&how)?;
    // What lies there keeps its mode when it is opened. Who has it open meanwhile finds nothing in
    // it: a device or a pipe that the user named has the mode that it has.
    let there = file.metadata()?;
    if there.is_file() {
        // SAFETY: no arguments.
        let is_ours = there.uid() == unsafe { libc::geteuid() };
        match file.set_permissions(Permissions::from_mode(0o600)) {
            // Of a file system that knows no modes.
            Err(_) if is_ours => {}
            result => result?,
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// An empty file in memory.
///
/// # Errors
/// memfd_create(2) failed.
pub fn memory() -> std::io::Result<File> {
    // SAFETY: a constant name.
    let fd = unsafe { libc::memfd_create(c"sptrace-ring".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}
