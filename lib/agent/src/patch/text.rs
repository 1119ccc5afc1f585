//! Writing live code: the jumps in the program's text, and the wiring of slots.
//!
//! A batch holds the sites of one function. Where this thread is the only user of the memory, any
//! write is safe, with signals blocked: it goes through the file of the process's own memory, which
//! changes no mapping. Where that is refused, the pages become writable (and not executable) for a
//! moment. With other threads a copy of the pages is written and put in their place by one
//! mremap(2): every thread sees the old page or the new one, whole, wherever in it the site lies
//! (cache lines do not matter), and no page is ever writable and executable at once. The price is a
//! mapping of its own without the file's name.

use crate::memory::table::Module;
use crate::memory::word::Words;
use crate::memory::{certain, state, sys};
use crate::patch::forced::Forced;
use crate::patch::pages::{Copied, PAGE};
use crate::patch::{mappings, pages};
use crate::plans::modules;
use crate::plans::patched::Patch;
use crate::routines::image;
use sptrace_wire::control::hole;
use sptrace_wire::plan::{COUNTED_ID, JUMP_BYTES, NOP, NOP_5};

const BATCH: usize = 1024;

/// Bytes to be written, nops before them.
#[derive(Clone, Copy)]
struct Write {
    at: u64,
    bytes: [u8; JUMP_BYTES],
    length: u8,
    nops: u8,
}

/// Of each write where it goes, and the rest of it.
static WRITES: [Words<2>; BATCH] = [const { Words::zero() }; BATCH];

impl Write {
    fn packed(self) -> [u64; 2] {
        let [a, b, c, d, e] = self.bytes;
        let rest = [a, b, c, d, e, self.length, self.nops, 0];
        [self.at, u64::from_le_bytes(rest)]
    }

    fn unpacked([at, rest]: [u64; 2]) -> Self {
        let [a, b, c, d, e, length, nops, _] = rest.to_le_bytes();
        Self {
            at,
            bytes: [a, b, c, d, e],
            length,
            nops,
        }
    }

    /// Where the first of all its bytes goes.
    fn start(&self) -> u64 {
        self.at - u64::from(self.nops)
    }

    /// Has all its bytes written by `put`.
    fn by(&self, mut put: impl FnMut(u64, &[u8])) {
        for back in 1..=u64::from(self.nops) {
            put(self.at - back, &[NOP]);
        }
        put(
            self.at,
            self.bytes.get(..self.length as usize).unwrap_or(&[]),
        );
    }
}

/// Writes waiting; one batch at a time, under the propagation lock.
pub struct Batch<'a> {
    count: usize,
    module: Option<&'a Module>,
}

impl<'a> Batch<'a> {
    /// The batch. The lock must be held.
    pub fn take() -> Self {
        Self {
            count: 0,
            module: None,
        }
    }

    /// The same for the patches of one module.
    pub fn of(module: &'a Module) -> Self {
        Self {
            count: 0,
            module: Some(module),
        }
    }

    /// Adds a patch.
    pub fn add(&mut self, patch: &Patch) {
        self.add_bytes(patch.at, patch.ours.bytes());
    }

    /// Adds bytes at `at`: five at most, but for nops that come before them.
    pub fn add_bytes(&mut self, at: u64, bytes: &[u8]) {
        let nops = bytes.len().saturating_sub(JUMP_BYTES);
        let mut last = [0; JUMP_BYTES];
        let rest = bytes.get(nops..).unwrap_or(&[]);
        for (to, byte) in last.iter_mut().zip(rest) {
            *to = *byte;
        }
        if self.count == BATCH {
            self.flush();
        }
        let write = Write {
            at: at + nops as u64,
            bytes: last,
            length: rest.len() as u8,
            nops: nops as u8,
        };
        if let Some(place) = WRITES.get(self.count) {
            place.set(write.packed());
            self.count += 1;
        }
    }

    /// Makes room for `writes` that must not be torn apart by a flush.
    pub fn keep_together(&mut self, writes: usize) {
        if self.count + writes > BATCH {
            self.flush();
        }
    }

    /// Nothing of it is written.
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Writes all.
    pub fn flush(&mut self) {
        let mut left = WRITES.get(..self.count).unwrap_or(&[]);
        self.count = 0;
        if left.is_empty() {
            return;
        }
        let alone = sys::alone();
        if let Some(module) = self.module {
            modules::share(module);
        }
        if alone && force(left) {
            return;
        }
        if let Some(module) = self.module {
            mappings::prepare(module);
        }
        while let Some((n, start, end)) = together(left) {
            let (now, later) = left.split_at_checked(n).unwrap_or((left, &[]));
            let is_done = match alone {
                true => in_place(now, start as usize, (end - start) as usize),
                false => swap(now, start, end),
            };
            if !is_done {
                // Instructions that call the kernel may be among them.
                certain::leave_alone(None);
                // Later writes may rely on these.
                left.iter()
                    .for_each(|_| state::count_hole(hole::NOT_WRITABLE));
                return;
            }
            left = later;
        }
    }
}

/// How many of the writes go to pages that follow each other, and these pages, from the first
/// one's to the end. `None`: there are no writes.
fn together(writes: &[Words<2>]) -> Option<(usize, u64, u64)> {
    let mut writes = unpacked(writes);
    let first = writes.next()?;
    let start = first.start() & !(PAGE - 1);
    let (mut n, mut end) = (1, first.at + JUMP_BYTES as u64);
    for write in writes {
        // Only pages that change: others may not be there, between two segments.
        let limit = ((end - 1) | (PAGE - 1)) + PAGE;
        let its_end = write.at + JUMP_BYTES as u64;
        if write.at < start || its_end > limit {
            break;
        }
        end = end.max(its_end);
        n += 1;
    }
    Some((n, start, (end + PAGE - 1) & !(PAGE - 1)))
}

fn unpacked(writes: &[Words<2>]) -> impl Iterator<Item = Write> {
    writes.iter().map(|write| Write::unpacked(write.get()))
}

/// Writes past the protection of the pages: this thread is the only one. False: some of it may be
/// written.
fn force(writes: &[Words<2>]) -> bool {
    Forced::begin().is_some_and(|mut text| {
        unpacked(writes).for_each(|write| write.by(|at, bytes| text.write(at, bytes)));
        text.end()
    })
}

/// Writes through the pages themselves, not executable meanwhile: this thread is the only one.
fn in_place(writes: &[Words<2>], start: usize, bytes: usize) -> bool {
    let can_be = pages::make_writable(start, bytes);
    if can_be {
        unpacked(writes).for_each(|write| write.by(pages::write));
    }
    pages::make_executable(start, bytes) && can_be
}

/// Writes into a copy of the pages and puts the copy in their place.
fn swap(writes: &[Words<2>], start: u64, end: u64) -> bool {
    let Some(mut copied) = Copied::begin(start, end - start) else {
        return false;
    };
    copied.take_up_to(end);
    unpacked(writes).for_each(|write| write.by(|at, bytes| copied.write(at, bytes)));
    copied.put_over()
}

/// Re-wires the `call` whose return address is `id` to another common routine. Its rel32 lies in
/// one aligned word (the plan's duty): one store.
pub fn wire(id: u64, routine: i32) {
    let Some(m) = modules::of_area(id).filter(|_| (id - 4) & 7 <= 4) else {
        return;
    };
    let target = m.area_start() + image::offset(routine) as u64;
    modules::note_wiring(m);
    m.area().set_rel32(id, target.wrapping_sub(id) as u32);
}

/// Has the slot of a counted call ask no more: the call before `id` becomes a nop, by one store.
pub fn wire_counted(id: u64) {
    let Some(m) = modules::of_area(id) else {
        return;
    };
    let slot = id.wrapping_sub(COUNTED_ID.into());
    let offset = slot.wrapping_sub(m.area_start());
    let Some(word) = m.area().word(offset) else {
        return;
    };
    modules::note_wiring(m);
    let mut bytes = word.get().to_le_bytes();
    let asking = bytes.iter_mut().zip(NOP_5);
    asking.for_each(|(to, byte)| *to = byte);
    word.set(u64::from_le_bytes(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn write(at: u64, nops: u8) -> Write {
        Write {
            at,
            bytes: [1, 2, 3, 4, 5],
            length: 5,
            nops,
        }
    }

    fn packed(writes: &[Write]) -> Vec<Words<2>> {
        let pack = |write: &Write| {
            let words = Words::zero();
            words.set(write.packed());
            words
        };
        writes.iter().map(pack).collect()
    }

    #[test]
    fn a_write_comes_out_as_it_went_in() {
        let mut written = Vec::new();
        let writes = packed(&[write(0x1005, 2)]);
        unpacked(&writes).for_each(|w| w.by(|at, bytes| written.push((at, bytes.to_vec()))));
        let expected: [(u64, &[u8]); 3] = [
            (0x1004, &[NOP]),
            (0x1003, &[NOP]),
            (0x1005, &[1, 2, 3, 4, 5]),
        ];
        assert!(
            written
                .iter()
                .map(|(at, bytes)| (*at, &bytes[..]))
                .eq(expected)
        );
    }

    #[test]
    fn writes_are_done_together_as_far_as_their_pages_follow_each_other() {
        let of = |places: &[u64]| {
            let writes: Vec<Write> = places.iter().map(|at| write(*at, 0)).collect();
            together(&packed(&writes))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0x1010, 0x1020, 0x2ffa]), Some((3, 0x1000, 0x3000)));
        // One page in between changes nothing; a write that reaches into it does.
        assert_eq!(of(&[0x1010, 0x3010]), Some((1, 0x1000, 0x2000)));
        assert_eq!(of(&[0x1ffe, 0x3010]), Some((2, 0x1000, 0x4000)));
        // Back to an earlier page.
        assert_eq!(of(&[0x2010, 0x1010]), Some((1, 0x2000, 0x3000)));
        // Nops before the first.
        assert_eq!(
            together(&packed(&[write(0x2001, 2)])),
            Some((1, 0x1000, 0x3000))
        );
    }
}
