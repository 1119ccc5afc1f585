//! Writing live code: the jumps in the program's text, and the wiring of slots.
//!
//! A batch holds the sites of one function. Where this thread is the only user of the memory, the
//! pages become writable (and not executable) for a moment with signals blocked, and any write is
//! safe. With other threads they stay executable during the write, and
//!
//! * five bytes inside one aligned 8-byte word are one store (the only case that both vendors
//!   document as seen whole by instruction fetch);
//! * others go behind a guard: `jmp $` over the first two bytes, membarrier SYNC_CORE, the other
//!   three bytes, membarrier, the first two bytes. A thread that arrives meanwhile spins;
//! * if the first two bytes straddle a cache line, the site is left alone and counted.

use crate::state::*;
use crate::sys;
use sptrace_wire::control::hole;
use sptrace_wire::plan::common;

const BATCH: usize = 128;
const PAGE: u64 = 4096;
/// Sites further apart than this get a window of their own.
const WINDOW_BYTES: u64 = 16 * PAGE;

#[derive(Clone, Copy)]
struct Write {
    at: u64,
    bytes: [u8; 5],
    nops: u8,
}

impl Write {
    /// The write begins where an instruction begins: a guard can stand there.
    fn guardable(&self) -> bool {
        matches!(self.bytes[0], 0xe8 | 0xe9)
    }
}

static mut WRITES: [Write; BATCH] = [Write { at: 0, bytes: [0; 5], nops: 0 }; BATCH];

/// Writes waiting; one batch at a time, under the propagation lock.
pub struct Batch {
    count: usize,
}

impl Batch {
    /// The batch. The lock must be held.
    pub unsafe fn take() -> Self {
        Self { count: 0 }
    }

    /// Adds `opcode rel32` to `target` at `at`, with `nops` bytes of nop before it.
    pub unsafe fn add(&mut self, at: u64, opcode: u8, target: u64, nops: u8) {
        // SAFETY: the lock is held, the index checked.
        unsafe {
            if self.count == BATCH {
                self.flush();
            }
            let rel = (target.wrapping_sub(at + 5) as u32).to_le_bytes();
            let w = (&raw mut WRITES).cast::<Write>().add(self.count);
            *w = Write { at, bytes: [opcode, rel[0], rel[1], rel[2], rel[3]], nops };
            self.count += 1;
        }
    }

    /// Writes all.
    pub unsafe fn flush(&mut self) {
        // SAFETY: the lock is held.
        unsafe {
            let writes = (&raw mut WRITES).cast::<Write>();
            let mut i = 0;
            let alone = self.count > 0 && sys::alone();
            while i < self.count {
                let start = ((*writes.add(i)).at - (*writes.add(i)).nops as u64) & !(PAGE - 1);
                let mut n = 1;
                let mut end = (*writes.add(i)).at + 5;
                while i + n < self.count {
                    let at = (*writes.add(i + n)).at;
                    if at < start || at + 5 > start + WINDOW_BYTES {
                        break;
                    }
                    end = end.max(at + 5);
                    n += 1;
                }
                window(writes.add(i), n, start, (end + PAGE - 1) & !(PAGE - 1), alone);
                i += n;
            }
            self.count = 0;
        }
    }
}

unsafe fn window(writes: *const Write, n: usize, start: u64, end: u64, alone: bool) {
    let bytes = (end - start) as usize;
    // SAFETY: pages of a module's text, executable before and after.
    unsafe {
        let prot = if alone { sys::PROT_RW } else { sys::PROT_RWX };
        if !sys::protect(start as usize, bytes, prot) {
            for _ in 0..n {
                count_hole(hole::NOT_WRITABLE);
            }
            return;
        }
        if alone {
            for k in 0..n {
                let w = &*writes.add(k);
                for b in 0..w.nops {
                    ((w.at - w.nops as u64 + b as u64) as *mut u8).write_volatile(0x90);
                }
                for (b, byte) in w.bytes.iter().enumerate() {
                    ((w.at as usize + b) as *mut u8).write_volatile(*byte);
                }
            }
        } else {
            with_threads(writes, n);
        }
        if !sys::protect(start as usize, bytes, sys::PROT_RX) {
            // Splitting the mapping back cannot fail for lack of memory twice: try once more.
            sys::protect(start as usize, bytes, sys::PROT_RX);
        }
    }
}

unsafe fn with_threads(writes: *const Write, n: usize) {
    const SPIN: [u8; 2] = [0xeb, 0xfe];
    // SAFETY: the window is open; each store keeps the code whole for a thread that executes it.
    unsafe {
        let mut guarded = 0;
        for k in 0..n {
            let w = &*writes.add(k);
            if w.at & 7 <= 3 && w.nops == 0 {
                let word = (w.at & !7) as *mut u64;
                let mut bytes = word.read_volatile().to_le_bytes();
                for (b, byte) in w.bytes.iter().enumerate() {
                    if let Some(to) = bytes.get_mut((w.at & 7) as usize + b) {
                        *to = *byte;
                    }
                }
                word.write_volatile(u64::from_le_bytes(bytes));
            } else if w.nops != 0 || w.at & 63 == 63 || !w.guardable() {
                count_hole(hole::STRADDLES);
            } else {
                guarded += 1;
            }
        }
        let is_guarded = |w: &Write| {
            w.nops == 0 && w.at & 7 > 3 && w.at & 63 != 63 && w.guardable()
        };
        if guarded == 0 {
            return;
        }
        let p = process();
        if (*p).membarrier == 0 {
            (*p).membarrier = if sys::sync_core(true) { 1 } else { 2 };
        }
        if (*p).membarrier != 1 {
            for _ in 0..guarded {
                count_hole(hole::STRADDLES);
            }
            return;
        }
        for k in 0..n {
            let w = &*writes.add(k);
            if is_guarded(w) {
                (w.at as *mut [u8; 2]).cast::<u16>().write_unaligned(u16::from_le_bytes(SPIN));
            }
        }
        sys::sync_core(false);
        for k in 0..n {
            let w = &*writes.add(k);
            if is_guarded(w) {
                for (b, byte) in w.bytes.iter().enumerate().skip(2) {
                    ((w.at as usize + b) as *mut u8).write_volatile(*byte);
                }
            }
        }
        sys::sync_core(false);
        for k in 0..n {
            let w = &*writes.add(k);
            if is_guarded(w) {
                let head = u16::from_le_bytes([w.bytes[0], w.bytes[1]]);
                (w.at as *mut u16).write_unaligned(head);
            }
        }
        sys::sync_core(false);
    }
}

/// Re-wires the `call` whose return address is `id` to another common routine. Its rel32 lies in
/// one aligned word (the plan's duty): one store.
pub unsafe fn wire(id: u64, routine: i32) {
    // SAFETY: `id` lies in an area; its write view is mapped.
    unsafe {
        let m = crate::module::of_area(id);
        if m.is_null() || (id - 4) & 7 > 4 {
            return;
        }
        let _ = common::COUNT;
        let target = (*m).area + crate::common::offset(routine) as u64;
        let rel = target.wrapping_sub(id) as u32;
        let count = ((*m).area_rw as *mut u64).add(1);
        (*m).wirings += 1;
        count.write_volatile(count.read_volatile() + 1);
        let at = (*m).area_rw + (id - 4 - (*m).area);
        (at as *mut u32).write_volatile(rel);
    }
}
