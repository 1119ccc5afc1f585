//! Pages of memory that two processes share, made before either needs them.
//!
//! Given a shared mapping of zeros; has the kernel make a part of it, by huge pages where it gives
//! such: one takes a tenth of the time of its 512 pages, and another process that maps it pays for
//! one fault, where it paid for 32 that map sixteen pages each. Must not know what lies there.

use crate::error::TraceeError;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// asm-generic/mman-common.h: makes a huge page at once, whatever is set for the whole machine
/// (madvise(2); of shared memory since Linux 6.1).
const MADV_COLLAPSE: libc::c_int = 25;

/// Its pages would take no longer: a kernel whose memory is in pieces moves others for a huge one.
const LONGEST: Duration = Duration::from_millis(2);

/// How a mapping's pages are made.
#[derive(Debug)]
pub struct Pages {
    are_huge: AtomicBool,
}

impl Pages {
    /// By huge pages, until there is none.
    pub const fn new() -> Self {
        Self {
            are_huge: AtomicBool::new(true),
        }
    }

    /// False: there is no huge page to be had.
    pub fn are_huge(&self) -> bool {
        self.are_huge.load(Ordering::Relaxed)
    }

    /// Makes a part of the mapping. An older kernel (before 5.14) makes none: each page comes when
    /// it is used.
    ///
    /// # Safety
    /// So many bytes are the caller's shared mapping. Nothing of what they hold changes.
    pub unsafe fn make(&self, at: *mut u8, bytes: u64) {
        let mut made = 0;
        let is_huge = |made| bytes - made >= HUGE_BYTES && self.are_huge();
        while (at as u64).is_multiple_of(HUGE_BYTES) && is_huge(made) {
            // SAFETY: the caller's.
            if !unsafe { self.make_huge(at.wrapping_add(made as usize)) } {
                break;
            }
            made += HUGE_BYTES;
        }
        let (at, bytes) = (at.wrapping_add(made as usize), bytes - made);
        // SAFETY: the caller's.
        unsafe { libc::madvise(at.cast(), bytes as usize, libc::MADV_POPULATE_WRITE) };
    }

    /// Makes one. False: there is none, and no more are asked for.
    ///
    /// # Safety
    /// As for `make`.
    unsafe fn make_huge(&self, at: *mut u8) -> bool {
        let begun = own_time();
        // Where there is no page at all the kernel makes none huge (collapse_file in its
        // mm/khugepaged.c).
        // SAFETY: the caller's.
        unsafe { at.read_volatile() };
        // SAFETY: the caller's.
        let is_made = unsafe { libc::madvise(at.cast(), HUGE_BYTES as usize, MADV_COLLAPSE) == 0 };
        if !is_made || own_time().saturating_sub(begun) > LONGEST {
            self.are_huge.store(false, Ordering::Relaxed);
        }
        is_made
    }
}

/// CPU time of this thread: others may have the processor meanwhile.
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Maps so many bytes of a file, shared, where huge pages may begin with the file's.
///
/// # Errors
/// There is no such room.
pub fn map_shared(fd: &OwnedFd, bytes: u64) -> Result<*mut u8, TraceeError> {
    let failed = || TraceeError::last("mmap of the arena");
    let room = bytes + HUGE_BYTES;
    let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = flags | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), room as usize, none, flags, -1, 0) };
    if first == libc::MAP_FAILED {
        return Err(failed());
    }
    let before = (first as u64).next_multiple_of(HUGE_BYTES) - first as u64;
    let at = first.wrapping_byte_add(before as usize);
    let shared = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: in the midst of the room just taken, which is nobody else's.
    let mapped = unsafe { libc::mmap(at, bytes as usize, access, shared, fd.as_raw_fd(), 0) };
    let error = failed();
    let is_mapped = mapped == at;
    let behind = at.wrapping_byte_add(bytes as usize);
    let rest = match is_mapped {
        true => [(first, before), (behind, room - bytes - before)],
        false => [(first, room), (first, 0)],
    };
    for (at, bytes) in rest.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // SAFETY: what is left of the room.
        unsafe { libc::munmap(at, bytes as usize) };
    }
    is_mapped.then(|| at.cast()).ok_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn mapped(bytes: u64) -> *mut u8 {
        // SAFETY: a constant name; the fd is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"pages".as_ptr(), 0)) };
        // SAFETY: our own fd.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as i64) }, 0);
        map_shared(&fd, bytes).expect("there is room")
    }

    #[test]
    fn what_is_made_holds_what_it_held_wherever_it_begins() {
        let bytes = 3 * HUGE_BYTES;
        let at = mapped(bytes);
        assert!((at as u64).is_multiple_of(HUGE_BYTES));
        let places = [0, 4096, HUGE_BYTES, 2 * HUGE_BYTES + 5, bytes - 1];
        let place = |offset: u64| at.wrapping_add(offset as usize);
        for (i, offset) in (1..).zip(places) {
            // SAFETY: in the mapping.
            unsafe { place(offset).write_volatile(i) };
        }
        let pages = Pages::new();
        // SAFETY: parts of the mapping.
        unsafe {
            pages.make(at, HUGE_BYTES + 0x1_0000);
            pages.make(place(HUGE_BYTES + 0x1_0000), 2 * HUGE_BYTES - 0x1_0000);
            pages.make(at, bytes);
        }
        for (i, offset) in (1..).zip(places) {
            // SAFETY: in the mapping.
            assert_eq!(unsafe { place(offset).read_volatile() }, i);
            // SAFETY: as above.
            let other = unsafe { place(offset ^ 1).read_volatile() };
            assert_eq!(other, 0);
        }
    }

    #[test]
    fn a_kernel_that_gives_no_huge_page_is_asked_once() {
        let pages = Pages::new();
        let at = mapped(HUGE_BYTES).wrapping_add(4096);
        // SAFETY: in the mapping; no huge page begins there.
        assert!(!unsafe { pages.make_huge(at) });
        assert!(!pages.are_huge());
    }
}
