//! Puts the text of an attached process back when it is detached from, and says what must wait.
//!
//! Given modules, and where interrupted code will go on; writes the program's own bytes wherever
//! bytes of ours stand and no thread is in the middle of them. Whole pages are copied, changed and
//! put in place ([`Writer`]). Places that could not be put back are counted. Must not know stacks.

use crate::memory::state::{Module, UNTOUCHED};
use crate::memory::{stopped, sys};
use crate::patch::text;
use crate::plans::patched::{Patch, Springboard, Stands};
use crate::plans::{padding, patched, plan};
use sptrace_wire::plan::*;

pub(crate) const PAGE: u64 = 4096;
/// Written at once.
const WINDOW_BYTES: u64 = 64 * PAGE;

/// Text being written: a copy of contiguous pages that all hold something to write.
pub(crate) struct Writer {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) copy: *mut u8,
    pub(crate) failed: bool,
}

impl Writer {
    pub(crate) unsafe fn write(&mut self, at: u64, bytes: &[u8]) {
        let first = at & !(PAGE - 1);
        let end = (at + bytes.len() as u64 + PAGE - 1) & !(PAGE - 1);
        // SAFETY: text pages that hold patches of ours, and a copy as large as a window.
        unsafe {
            if first < self.start || first > self.end || end - self.start > WINDOW_BYTES {
                self.close();
            }
            if self.copy.is_null() {
                (self.start, self.end) = (first, first);
                self.copy = sys::map_private(WINDOW_BYTES as usize);
                if self.copy.is_null() {
                    self.failed = true;
                    return;
                }
            }
            if end > self.end {
                let more = (end - self.end) as usize;
                let to = self.copy.add((self.end - self.start) as usize);
                core::ptr::copy_nonoverlapping(self.end as *const u8, to, more);
                self.end = end;
            }
            let to = self.copy.add((at - self.start) as usize);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Puts the copy in the place of the pages; where nobody else can execute, its bytes alone.
    pub(crate) unsafe fn close(&mut self) {
        // SAFETY: what write has made.
        unsafe {
            if self.copy.is_null() {
                return;
            }
            let bytes = (self.end - self.start) as usize;
            let (start, copy) = (self.start as usize, self.copy as usize);
            if sys::alone() {
                if sys::protect(start, bytes, sys::PROT_RW) {
                    core::ptr::copy_nonoverlapping(self.copy, start as *mut u8, bytes);
                } else {
                    self.failed = true;
                }
                // Joining the mapping again needs no memory; should it fail all the same, once
                // more.
                self.failed |= !sys::protect(start, bytes, sys::PROT_RX)
                    && !sys::protect(start, bytes, sys::PROT_RX);
                sys::unmap(copy, WINDOW_BYTES as usize);
            } else if text::put_over(self.copy, bytes, self.start) {
                sys::unmap(copy + bytes, WINDOW_BYTES as usize - bytes);
            } else {
                self.failed = true;
                sys::unmap(copy, WINDOW_BYTES as usize);
            }
            (self.start, self.end, self.copy) = (0, 0, core::ptr::null_mut());
        }
    }
}

/// Contexts of interrupted code at most; with more of them nothing is certain.
pub(crate) const CONTEXTS: usize = 512;

/// Where interrupted code in the text goes on.
pub(crate) struct Contexts {
    pub(crate) rips: [u64; CONTEXTS],
    pub(crate) count: usize,
}

impl Contexts {
    pub(crate) fn add(&mut self, rip: u64) -> bool {
        if let Some(free) = self.rips.get_mut(self.count) {
            *free = rip;
            self.count += 1;
        }
        self.count < CONTEXTS
    }

    pub(crate) fn any_within(&self, start: u64, end: u64) -> bool {
        let rips = self.rips.get(..self.count).unwrap_or(&[]);
        rips.iter().any(|rip| *rip > start && *rip < end)
    }
}

pub(crate) struct Undo {
    pub(crate) writer: Writer,
    pub(crate) contexts: Contexts,
    pub(crate) foreign: u64,
    pub(crate) busy: u64,
}

impl Undo {
    pub(crate) unsafe fn specials(&mut self, m: *const Module) {
        // SAFETY: reads the plan; the text is mapped.
        unsafe {
            for s in plan::specials(m) {
                let Some(p) = Patch::of_special(m, &s) else {
                    continue;
                };
                match Springboard::of_special(m, &s) {
                    Some(spring) => self.springboard(&p, &spring),
                    None => self.put_back(p.at, p.ours.bytes(), p.overwritten()),
                }
            }
        }
    }

    pub(crate) unsafe fn sites(&mut self, m: *const Module) {
        // SAFETY: reads the plan; the text is mapped.
        unsafe {
            for (i, f) in plan::functions(m) {
                if *(*m).functions.add(i as usize) == UNTOUCHED {
                    continue;
                }
                for s in plan::sites_of(m, f).filter(|s| !s.is_any(SITE_IN_HOOK)) {
                    let Some(p) = Patch::of_site(m, &s) else {
                        continue;
                    };
                    match Springboard::of_site(m, &s) {
                        Some(spring) => self.springboard(&p, &spring),
                        None => self.put_back(p.at, p.ours.bytes(), p.overwritten()),
                    }
                }
            }
        }
    }

    pub(crate) unsafe fn springboard(&mut self, p: &Patch, spring: &Springboard) {
        // SAFETY: the text is mapped.
        unsafe {
            match patched::standing(p.at, p.ours.bytes(), p.overwritten()) {
                Stands::Ours => {}
                // Its short jump went when the recording ended: see [`crate::patch::unpatch`].
                Stands::Original if spring.room.is_none() => {}
                _ => return,
            }
            // Somebody may stand at the long jump, which only we know of.
            if self.is_busy(spring.at.wrapping_sub(1), spring.at + 5) {
                return;
            }
            self.put_back(p.at, p.ours.bytes(), p.overwritten());
            let Some(room) = spring.room else {
                if let Some(padding) = padding::padding(spring.at) {
                    self.put_back(spring.at, &spring.jump, &padding[..5]);
                }
                return;
            };
            let end = room.start + room.original.len() as u64;
            if self.is_busy(room.start, end)
                || patched::standing(spring.at, &spring.jump, &[]) != Stands::Ours
            {
                return;
            }
            if patched::standing(room.start, &room.jump, room.original) == Stands::Ours {
                self.writer.write(room.start, room.original);
            } else {
                self.foreign += 1;
            }
        }
    }

    pub(crate) unsafe fn put_back(&mut self, at: u64, ours: &[u8], original: &[u8]) {
        // SAFETY: text of a module that is mapped.
        unsafe {
            match patched::standing(at, ours, original) {
                Stands::Ours if !self.is_busy(at, at + original.len() as u64) => {
                    self.writer.write(at, original);
                }
                Stands::Foreign => self.foreign += 1,
                _ => {}
            }
        }
    }

    pub(crate) unsafe fn is_busy(&mut self, start: u64, end: u64) -> bool {
        // SAFETY: reads the host's list.
        let busy = stopped::is_in_flight(start, end) || self.contexts.any_within(start, end);
        self.busy += u64::from(busy);
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_context_between_the_first_and_the_last_byte_is_in_the_way() {
        let mut contexts = Contexts {
            rips: [0; CONTEXTS],
            count: 0,
        };
        assert!(contexts.add(0x1004));
        assert!(contexts.any_within(0x1000, 0x1005));
        // It begins there, or stands behind it.
        assert!(!contexts.any_within(0x1004, 0x1009));
        assert!(!contexts.any_within(0x1000, 0x1004));
        // Places that are not filled are no contexts.
        assert!(!contexts.any_within(u64::MAX, 1) && contexts.any_within(0, u64::MAX));
    }

    #[test]
    fn with_too_many_contexts_nothing_is_certain() {
        let mut contexts = Contexts {
            rips: [0; CONTEXTS],
            count: 0,
        };
        assert!((1..CONTEXTS).all(|k| contexts.add(k as u64)));
        assert!(!contexts.add(9) && !contexts.add(9));
        assert_eq!(contexts.count, CONTEXTS);
    }
}
