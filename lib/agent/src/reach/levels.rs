//! What the host wishes of the levels of functions is carried out.
//!
//! Given the list in the arena ([`sptrace_wire::levels`]); takes what was written since the last
//! time. Any thread that is in the slow path does so, for its process. Must not know how a site is
//! led elsewhere.

use crate::memory::thread::Hot;
use crate::memory::{lock, state, sys};
use crate::patch::levels::{Wishes, carry_out};
use crate::reach::propagate;
use core::sync::atomic::Ordering;
use sptrace_wire::levels::{ALL, Entry, LEVELS, LEVELS_OFFSET, UNTOLD};

/// Takes what there is, if anything.
#[inline]
pub fn take(hot: &Hot) {
    let written = state::control().levels_written.load(Ordering::Acquire);
    if written != state::process().levels_taken.get() {
        take_up_to(hot, written);
    }
}

#[inline(never)]
fn take_up_to(hot: &Hot, written: u64) {
    let p = state::process();
    if state::control().has_levels == 0 || !p.may_propagate.get() || !lock::lock(hot.tid.get()) {
        return;
    }
    let since = sys::tsc();
    let oldest = written.saturating_sub(LEVELS - UNTOLD);
    let mut next = p.levels_taken.get().max(oldest);
    while next < written {
        let mut wishes = Wishes::none();
        while next < written && add(&mut wishes, next) {
            next += 1;
        }
        for m in p.known_modules() {
            carry_out(m, &wishes);
        }
    }
    p.levels_taken.set(written.max(p.levels_taken.get()));
    lock::unlock();
    propagate::waited(hot, since);
}

/// False: there is no room for one more.
fn add(wishes: &mut Wishes, index: u64) -> bool {
    let offset = LEVELS_OFFSET + index % LEVELS * size_of::<Entry>() as u64;
    // SAFETY: inside the arena, which is mapped for life; an entry consists of atomics.
    let entry = unsafe { &*((state::process().arena() + offset) as *const Entry) };
    let process = entry.process.load(Ordering::Relaxed);
    let is_ours = process == state::process().number.get() || process == ALL;
    let avma = entry.avma.load(Ordering::Relaxed);
    !is_ours || wishes.add(avma, entry.level.load(Ordering::Relaxed))
}
