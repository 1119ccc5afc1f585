//! Ends the recording before the disk is full.
//!
//! Given the open trace file and how much was written, says whether its volume runs low: less than
//! one percent is free, taken as at least 64 MiB and at most 1 GiB, but never more than an eighth
//! of the volume. Looked at every MiB written (one statvfs(3)); what the threads have in their
//! buffers then still finds room. A device or a pipe has no volume and is never low.
//!
//! Must not know: what is written, what happens then.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

const LOOK_BYTES: u64 = 1 << 20;
const LEAST_MARGIN_BYTES: u64 = 64 << 20;
const MOST_MARGIN_BYTES: u64 = 1 << 30;

/// Watches the volume of the trace file.
pub struct DiskWatch {
    /// The file by the number of its descriptor, which stays another's: a second one may be one too
    /// many.
    file: Option<CString>,
    look_at: u64,
}

impl DiskWatch {
    /// For a trace that is written to `file`.
    pub fn new(file: &File) -> Self {
        let is_file = file.metadata().is_ok_and(|m| m.is_file());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Self {
            file: is_file.then_some(path).and_then(|p| CString::new(p).ok()),
            look_at: LOOK_BYTES,
        }
    }

    /// Watches nothing.
    pub fn none() -> Self {
        Self {
            file: None,
            look_at: 0,
        }
    }

    /// True if the volume runs low now that `written_bytes` were written.
    pub fn is_low(&mut self, written_bytes: u64) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| written_bytes >= self.look_at) else {
            return false;
        };
        self.look_at = written_bytes + LOOK_BYTES;
        volume(file).is_some_and(|(free, all)| free < margin(all))
    }
}

fn margin(volume_bytes: u64) -> u64 {
    (volume_bytes / 100)
        .clamp(LEAST_MARGIN_BYTES, MOST_MARGIN_BYTES)
        .min(volume_bytes / 8)
}

/// Bytes free for us on the volume of `file`, and its size.
fn volume(file: &CStr) -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: NUL-terminated; the structure is read only if the call has filled it.
    let found = unsafe {
        if libc::statvfs(file.as_ptr(), found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    (found.f_blocks > 0).then(|| (bytes(found.f_bavail), bytes(found.f_blocks)))
}

#[cfg(test)]
mod tests {
    use super::margin;

    #[test]
    fn the_margin_follows_the_volume() {
        const MIB: u64 = 1 << 20;
        assert_eq!(margin(24 * MIB), 3 * MIB);
        assert_eq!(margin(1024 * MIB), 64 * MIB);
        assert_eq!(margin(20_000 * MIB), 200 * MIB);
        assert_eq!(margin(4_000_000 * MIB), 1024 * MIB);
    }
}
