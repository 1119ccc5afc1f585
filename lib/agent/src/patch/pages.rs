//! Pages of the text: changed in a copy that takes their place, or made writable for a moment.
//!
//! Given where the pages lie and the bytes to write. Who executes there meanwhile finds the old
//! page or the new one, whole. Must not know what is written, and why.

use crate::memory::mapped::Fresh;
use crate::memory::{live, stopped, sys};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// A copy of contiguous pages of the text.
pub struct Copied {
    start: u64,
    end: u64,
    copy: Fresh,
}

impl Copied {
    /// No pages yet, from `start` on, with room for `bytes`. `None`: no memory.
    pub fn begin(start: u64, bytes: u64) -> Option<Self> {
        let (end, copy) = (start, Fresh::private(bytes as usize)?);
        Some(Self { start, end, copy })
    }

    /// Where the first page lies, and the end of the last.
    pub fn range(&self) -> core::ops::Range<u64> {
        self.start..self.end
    }

    fn place(&mut self, at: u64, bytes: u64) -> Option<&mut [u8]> {
        let from = at.checked_sub(self.start)? as usize;
        self.copy.contents().get_mut(from..from + bytes as usize)
    }

    /// Takes the pages up to `end` in, as far as there is room. They hold text of a module, of
    /// which something is to be changed.
    pub fn take_up_to(&mut self, end: u64) {
        let (from, more) = (self.end, end.saturating_sub(self.end));
        if let Some(place) = self.place(from, more) {
            // SAFETY: pages of a module's text, which is mapped.
            unsafe { live::copy_from(from, place) };
            self.end += more;
        }
    }

    /// Writes bytes into the copy; what lies outside of it is not written.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        if let Some(place) = self.place(at, bytes.len() as u64) {
            place.copy_from_slice(bytes);
        }
    }

    /// Puts the copy in the place of the pages. False: nothing has changed.
    pub fn put_over(self) -> bool {
        let (start, bytes) = (self.start, (self.end - self.start) as usize);
        let Some(copy) = self.copy.may_run(bytes) else {
            return false;
        };
        if stopped::is_deserted() {
            // Where the threads were when they were stopped says nothing once they run again.
            copy.give_back();
            return false;
        }
        // SAFETY: mremap(2) replaces the pages under the kernel's lock: another thread that
        // executes there faults and waits, and then finds the whole new page.
        unsafe { copy.move_over(bytes, start) }
    }

    /// Writes the copy's bytes into the pages themselves, where nobody else can execute. False:
    /// impossible.
    pub fn put_in_place(mut self) -> bool {
        let (start, bytes) = (self.start, (self.end - self.start) as usize);
        let can_be = make_writable(start as usize, bytes);
        if can_be && let Some(new) = self.copy.contents().get(..bytes) {
            // SAFETY: the pages are writable, and nobody executes there.
            unsafe { live::write(start, new) };
        }
        self.copy.give_back();
        make_executable(start as usize, bytes) && can_be
    }
}

/// Makes text writable, and not executable: this thread is the only one, and signals are blocked.
/// If it fails, what comes before the page that refused has changed.
pub fn make_writable(start: usize, bytes: usize) -> bool {
    // SAFETY: nobody executes there until it is as before.
    unsafe { sys::protect(start, bytes, sys::PROT_RW) }
}

/// The opposite. Joining the mapping again needs no memory; should it fail all the same, once more.
pub fn make_executable(start: usize, bytes: usize) -> bool {
    // SAFETY: text, as it was.
    let again = || unsafe { sys::protect(start, bytes, sys::PROT_RX) };
    again() || again()
}

/// Writes bytes into text that is writable at this moment.
pub fn write(at: u64, bytes: &[u8]) {
    // SAFETY: see make_writable, which the caller has called.
    unsafe { live::write(at, bytes) };
}
