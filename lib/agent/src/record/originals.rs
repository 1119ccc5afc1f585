//! Return addresses that hooks have replaced, by their place on the stack.
//!
//! Given a place and what stood there; finds it again when the hooked function returns. Not kept in
//! the shadow frame: a frame may be taken for ended while it is alive (another stack), but the
//! function must find back. An entry is in use as long as its place holds an address of ours.
//! Without locks: an entry is taken by one word. Must not know what a hook is for.

use crate::memory::live::StackWord;
use crate::memory::state::{ASKED, Original};
use crate::memory::{state, sys};
use crate::plans::slot;
use core::sync::atomic::{Ordering, fence};

/// How long that is waited for.
const ASKED_SPINS: usize = 1 << 16;

/// Gives every return address back that stands in the table, on whatever stack it is.
pub fn give_back_all() {
    for o in state::process().originals.get().into_iter().flatten() {
        let (place, address) = (
            o.place.load(Ordering::Acquire) & !ASKED,
            o.address.load(Ordering::Acquire),
        );
        if place != 0 && address != 0 && is_in_use(place) {
            // SAFETY: a word that was just read. A place that is no stack any more holds something
            // else than a return of ours, or nothing.
            unsafe { StackWord::at(place) }.set(address);
        }
    }
}

/// The function whose return address a walker was given returns to its hook again, at `hooked`.
pub fn arm_again(word: StackWord, hooked: u64) {
    let place = word.address();
    let (address, shown) = (slot::original(place), slot::original_of(hooked, place));
    if address == 0 || word.get() != shown {
        return;
    }
    // Meanwhile the entry was not in use: another thread may be taking it.
    word.set(hooked);
    if !remember(place, address) {
        word.set(shown);
    }
}

/// Remembers the return address at `place`, which is replaced already. False: no room.
pub fn remember(place: u64, address: u64) -> bool {
    // After the replacement: whoever asks about the entry from here on finds it in use.
    fence(Ordering::SeqCst);
    let mut entry = None;
    for o in slot::candidates(place) {
        let mut now = o.place.load(Ordering::Acquire);
        for _ in 0..ASKED_SPINS {
            if now != place | ASKED {
                break;
            }
            core::hint::spin_loop();
            now = o.place.load(Ordering::Acquire);
        }
        if now == place | ASKED {
            // Left so by a fork.
            return false;
        }
        if now == place {
            entry = Some(o);
            break;
        }
    }
    let entry = entry
        .or_else(|| slot::candidates(place).find(|o| swap(o, 0, place)))
        .or_else(|| slot::candidates(place).find(|o| take_over(o, place)));
    if let Some(entry) = entry {
        entry.address.store(address, Ordering::Release);
    }
    entry.is_some()
}

fn swap(o: &Original, from: u64, to: u64) -> bool {
    let swapped = o
        .place
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    swapped.is_ok()
}

/// Takes an entry that is not in use any more. Meanwhile it is marked, so that the thread whose
/// place it was does not use it again.
fn take_over(o: &Original, place: u64) -> bool {
    let old = o.place.load(Ordering::Acquire);
    if old & ASKED != 0 || !swap(o, old, old | ASKED) {
        return false;
    }
    let in_use = is_in_use(old);
    o.place
        .store(if in_use { old } else { place }, Ordering::Release);
    !in_use
}

/// The word is read through the kernel: the stack may be gone.
fn is_in_use(place: u64) -> bool {
    sys::read_word(place).is_some_and(slot::is_return)
}

/// A hooked function returns: its own return address goes to `word`.
pub fn fill_return(word: StackWord) {
    let original = slot::original(word.address());
    if original != 0 {
        word.set(original);
    }
}
