//! Writing live code: the jumps in the program's text, and the wiring of slots.
//!
//! A batch holds the sites of one function. Where this thread is the only user of the memory, the
//! pages become writable (and not executable) for a moment with signals blocked, and any write is
//! safe. With other threads a copy of the pages is written and put in their place by one mremap(2):
//! every thread sees the old page or the new one, whole, wherever in it the site lies (cache lines
//! do not matter), and no page is ever writable and executable at once. The price is a mapping of
//! its own without the file's name.

use crate::memory::state::Module;
use crate::memory::{state, stopped, sys};
use crate::patch::mappings;
use crate::plans::modules;
use crate::plans::patched::Patch;
use crate::routines::image;
use sptrace_wire::control::hole;
use sptrace_wire::plan::{JUMP_BYTES, NOP};

const BATCH: usize = 128;
const PAGE: u64 = 4096;

#[derive(Clone, Copy)]
struct Write {
    at: u64,
    bytes: [u8; JUMP_BYTES],
    length: u8,
    nops: u8,
}

const EMPTY: Write = Write {
    at: 0,
    bytes: [0; JUMP_BYTES],
    length: 0,
    nops: 0,
};

static mut WRITES: [Write; BATCH] = [EMPTY; BATCH];

/// Writes waiting; one batch at a time, under the propagation lock.
pub struct Batch {
    count: usize,
    module: *mut Module,
}

impl Batch {
    /// The batch. The lock must be held.
    pub unsafe fn take() -> Self {
        let module = core::ptr::null_mut();
        Self { count: 0, module }
    }

    /// The same for the patches of one module.
    pub unsafe fn of(module: *mut Module) -> Self {
        Self { count: 0, module }
    }

    /// Adds a patch.
    pub unsafe fn add(&mut self, patch: &Patch) {
        // SAFETY: as in add_bytes.
        unsafe { self.add_bytes(patch.at, patch.ours.bytes()) };
    }

    /// Adds bytes at `at`: five at most, but for nops that come before them.
    pub unsafe fn add_bytes(&mut self, at: u64, bytes: &[u8]) {
        let nops = bytes.len().saturating_sub(JUMP_BYTES);
        let mut last = [0; JUMP_BYTES];
        let rest = bytes.get(nops..).unwrap_or(&[]);
        for (to, byte) in last.iter_mut().zip(rest) {
            *to = *byte;
        }
        // SAFETY: the lock is held, the index checked.
        unsafe {
            if self.count == BATCH {
                self.flush();
            }
            let w = (&raw mut WRITES).cast::<Write>().add(self.count);
            *w = Write {
                at: at + nops as u64,
                bytes: last,
                length: rest.len() as u8,
                nops: nops as u8,
            };
            self.count += 1;
        }
    }

    /// Makes room for `writes` that must not be torn apart by a flush.
    pub unsafe fn keep_together(&mut self, writes: usize) {
        // SAFETY: the lock is held.
        unsafe {
            if self.count + writes > BATCH {
                self.flush();
            }
        }
    }

    /// Writes all.
    pub unsafe fn flush(&mut self) {
        // SAFETY: the lock is held.
        unsafe {
            let writes = (&raw mut WRITES).cast::<Write>();
            let mut i = 0;
            let alone = self.count > 0 && sys::alone();
            if self.count > 0 && !self.module.is_null() {
                modules::share(self.module);
                mappings::prepare(self.module);
            }
            while i < self.count {
                let start = ((*writes.add(i)).at - (*writes.add(i)).nops as u64) & !(PAGE - 1);
                let mut n = 1;
                let mut end = (*writes.add(i)).at + 5;
                while i + n < self.count {
                    let at = (*writes.add(i + n)).at;
                    // Only pages that change: others may not be there, between two segments.
                    let limit = ((end - 1) | (PAGE - 1)) + PAGE;
                    if at < start || at + 5 > limit {
                        break;
                    }
                    end = end.max(at + 5);
                    n += 1;
                }
                let end = (end + PAGE - 1) & !(PAGE - 1);
                if !window(writes.add(i), n, start, end, alone) {
                    // Later writes may rely on these.
                    for _ in i..self.count {
                        state::count_hole(hole::NOT_WRITABLE);
                    }
                    break;
                }
                i += n;
            }
            self.count = 0;
        }
    }
}

unsafe fn window(writes: *const Write, n: usize, start: u64, end: u64, alone: bool) -> bool {
    let bytes = (end - start) as usize;
    // SAFETY: pages of a module's text, executable before and after.
    unsafe {
        if alone {
            in_place(writes, n, start as usize, bytes)
        } else {
            swap(writes, n, start, end)
        }
    }
}

/// Writes through the pages themselves, not executable meanwhile: this thread is the only one.
unsafe fn in_place(writes: *const Write, n: usize, start: usize, bytes: usize) -> bool {
    // SAFETY: nobody executes there, signals are blocked.
    unsafe {
        if !sys::protect(start, bytes, sys::PROT_RW) {
            // What comes before the page that refused has changed.
            sys::protect(start, bytes, sys::PROT_RX);
            return false;
        }
        for k in 0..n {
            let w = &*writes.add(k);
            for b in 1..=w.nops as u64 {
                ((w.at - b) as *mut u8).write_volatile(NOP);
            }
            for (b, byte) in w.bytes.iter().take(w.length as usize).enumerate() {
                ((w.at as usize + b) as *mut u8).write_volatile(*byte);
            }
        }
        // Joining the mapping again needs no memory; should it fail all the same, once more.
        sys::protect(start, bytes, sys::PROT_RX) || sys::protect(start, bytes, sys::PROT_RX)
    }
}

/// Writes into a copy of the pages and puts the copy in their place.
unsafe fn swap(writes: *const Write, n: usize, start: u64, end: u64) -> bool {
    let bytes = (end - start) as usize;
    // SAFETY: mremap(2) replaces the pages under the kernel's lock: another thread that executes
    // there faults and waits, and then finds the whole new page.
    unsafe {
        let copy = sys::map_private(bytes);
        if copy.is_null() {
            return false;
        }
        core::ptr::copy_nonoverlapping(start as *const u8, copy, bytes);
        for k in 0..n {
            let w = &*writes.add(k);
            let at = copy.add((w.at - start) as usize);
            for b in 1..=w.nops as usize {
                at.sub(b).write(NOP);
            }
            for (b, byte) in w.bytes.iter().take(w.length as usize).enumerate() {
                at.add(b).write(*byte);
            }
        }
        let is_done = put_over(copy, bytes, start);
        if !is_done {
            sys::unmap(copy as usize, bytes);
        }
        is_done
    }
}

/// Puts a changed copy in the place of the text at `start`. False: nothing has changed.
pub unsafe fn put_over(copy: *mut u8, bytes: usize, start: u64) -> bool {
    // SAFETY: as in swap. Where the threads were when they were stopped says nothing once they run
    // again.
    unsafe {
        sys::protect(copy as usize, bytes, sys::PROT_RX)
            && !stopped::is_deserted()
            && sys::move_over(copy as usize, bytes, start as usize)
    }
}

/// Re-wires the `call` whose return address is `id` to another common routine. Its rel32 lies in
/// one aligned word (the plan's duty): one store.
pub unsafe fn wire(id: u64, routine: i32) {
    // SAFETY: `id` lies in an area; its write view is mapped.
    unsafe {
        let m = modules::of_area(id);
        if m.is_null() || (id - 4) & 7 > 4 {
            return;
        }
        let target = (*m).area + image::offset(routine) as u64;
        let rel = target.wrapping_sub(id) as u32;
        let count = ((*m).area_rw as *mut u64).add(1);
        (*m).wirings += 1;
        count.write_volatile(count.read_volatile() + 1);
        let at = (*m).area_rw + (id - 4 - (*m).area);
        (at as *mut u32).write_volatile(rel);
    }
}
