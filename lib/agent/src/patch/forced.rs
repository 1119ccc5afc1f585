//! Text that is written past its protection, by the file of the process's own memory.
//!
//! Given bytes and where they go in the text, one after the other; writes them into it by as few
//! calls as there are stretches, and leaves the mappings as they are. It never becomes writable,
//! and executable it stays: only the single user of the memory may write so. Where this is refused,
//! the caller has another way, and is not asked to try again. Must not know what is written, and
//! why.

use crate::memory::{live, sys};
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are written at once, what lies between two places included.
const STRETCH: usize = 4096;

/// It was refused once: no /proc, no room among the descriptors, or a kernel that does not do it
/// (proc_mem.force_override).
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// What is to be written next.
pub struct Forced {
    memory: usize,
    start: u64,
    bytes: [u8; STRETCH],
    count: usize,
    is_done: bool,
}

impl Forced {
    /// Nothing yet. `None`: it is refused.
    pub fn begin() -> Option<Self> {
        if IS_REFUSED.load(Ordering::Relaxed) {
            return None;
        }
        let memory = sys::open_own_memory();
        IS_REFUSED.store(memory.is_none(), Ordering::Relaxed);
        Some(Self {
            memory: memory?,
            start: 0,
            bytes: [0; STRETCH],
            count: 0,
            is_done: true,
        })
    }

    /// Adds bytes, few of them: text of a module, which is mapped.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let fits = |from: u64| from.saturating_add(bytes.len() as u64) <= STRETCH as u64;
        if !at.checked_sub(self.start).is_some_and(fits) {
            self.flush();
            self.start = at;
        }
        let from = at.wrapping_sub(self.start) as usize;
        if let Some(between) = self.bytes.get_mut(self.count..from) {
            // SAFETY: less than a page of text, between bytes of it that are mapped.
            unsafe { live::copy_from(self.start + self.count as u64, between) };
        }
        if let Some(place) = self.bytes.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
            self.count = self.count.max(from + bytes.len());
        }
    }

    /// What was written may not have come where it should: it is read again.
    fn flush(&mut self) {
        let bytes = self.bytes.get(..self.count).unwrap_or(&[]);
        if !bytes.is_empty() && self.is_done {
            // SAFETY: text of a module, where nobody else executes.
            let written = unsafe { sys::write_own(self.memory, self.start, bytes) };
            // SAFETY: it is mapped, as the caller of `write` says.
            let stands = || unsafe { live::stands(self.start, bytes) };
            self.is_done = written == bytes.len() && stands();
        }
        self.count = 0;
    }

    /// Writes the rest. False: some of all that is not written, and will not be by this way.
    pub fn end(mut self) -> bool {
        self.flush();
        sys::close(self.memory);
        if !self.is_done {
            IS_REFUSED.store(true, Ordering::Relaxed);
        }
        self.is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mapped::Fresh;

    #[test]
    fn what_cannot_be_written_is_written_stretch_by_stretch() {
        let mut pages = Fresh::private(8192).unwrap();
        pages.contents().fill(7);
        let at = pages.keep();
        // SAFETY: the test's own mapping.
        assert!(unsafe { sys::protect(at as usize, 8192, sys::PROT_RX) });
        let mut text = Forced::begin().unwrap();
        let places = [10, 8, 9, 30, 1033, 4094, 100, 8187];
        for place in places {
            text.write(at + place, &[1, 2, 3, 4, 5]);
        }
        assert!(text.end());
        let mut expected = [7; 8192];
        for place in places {
            expected[place as usize..][..5].copy_from_slice(&[1, 2, 3, 4, 5]);
        }
        // SAFETY: as above.
        assert!(unsafe { live::stands(at, &expected) });
    }
}
