//! Hooked functions: their entry is intercepted whoever calls them, and recording begins there
//! (`run -F`) until they return.
//!
//! Given what the slow path found at a hook's entry or return; keeps the shadow stack, the thread's
//! mute state ([`crate::chunk::mute`]) and the table of replaced return addresses.
//!
//! A thread is muted unless it is inside a hooked function that is to be recorded when it is called
//! ([`crate::between`]). The first such function, the root, gets a
//! shadow frame and its return address is replaced by one in its slot; when its frame has ended, in
//! whatever way, the thread is muted again. A hooked function that is called from a patched site
//! inside a root was recorded there, so nothing is to be done (the common routine sees that).
//!
//! What a replaced return address was stands in a table by its place on the stack, not in the shadow
//! frame: a frame may be taken for ended while it is alive (another stack), but the function must find
//! back. An entry is in use as long as its place holds an address of ours.

use crate::slow::{FRAME_DONE, push, settle, top};
use crate::special::Special;
use crate::state::*;
use crate::{between, chunk, common, deep, module, plan, propagate, special, sys, unwind};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use propagate::Reach;
use sptrace_wire::control::{ASK_MAPPED, hole};
use sptrace_wire::plan::{common as routine, *};
use sptrace_wire::record::{self, FRAME_OPEN};

/// Entries of the table, a power of two.
pub const ORIGINALS: usize = 1 << 13;
/// Entries looked at before a function is left without an exit.
pub const PROBES: usize = 16;
/// Of the hash, cut off.
pub const SHIFT: u32 = 13;
/// `lea rsp, [rsp-8]; call`.
const RETURN_CODE: [u8; 6] = [0x48, 0x8d, 0x64, 0x24, 0xf8, 0xe8];

/// In an entry's place: somebody finds out whether it is in use. A fork may leave it so.
pub const ASKED: u64 = 1;
/// How long that is waited for.
const ASKED_SPINS: usize = 1 << 16;

/// A replaced return address.
#[repr(C)]
pub struct Original {
    /// Where on the stack it lay; 0: unused.
    place: AtomicU64,
    address: AtomicU64,
}

/// The table, or null.
pub unsafe fn make_table() -> *mut Original {
    // SAFETY: fresh memory.
    unsafe { sys::map_private(ORIGINALS * size_of::<Original>()) as *mut Original }
}

/// Gives every return address back that stands in the table, on whatever stack it is.
pub unsafe fn give_back_all() {
    // SAFETY: as below; a place that is no stack any more holds something else, or nothing.
    unsafe {
        let table = (*process()).originals;
        for i in 0..if table.is_null() { 0 } else { ORIGINALS } {
            let o = &*table.add(i);
            let (place, address) = (
                o.place.load(Ordering::Acquire) & !ASKED,
                o.address.load(Ordering::Acquire),
            );
            if place != 0 && address != 0 && is_in_use(place) {
                (place as *mut u64).write_volatile(address);
            }
        }
    }
}

unsafe fn candidates(place: u64) -> impl Iterator<Item = &'static Original> {
    let first = ((place >> 3) as u32).wrapping_mul(0x9E37_79B1) as usize >> SHIFT;
    // SAFETY: the table lives as long as the process; indexes stay in it.
    (0..PROBES).filter_map(move |k| unsafe {
        let table = (*process()).originals;
        (!table.is_null()).then(|| &*table.add((first + k) % ORIGINALS))
    })
}

/// What the return address at `place` was before a hook replaced it, or 0.
pub unsafe fn original(place: u64) -> u64 {
    // SAFETY: as above.
    unsafe {
        let is_its = |o: &&Original| o.place.load(Ordering::Acquire) & !ASKED == place;
        let Some(entry) = candidates(place).find(is_its) else {
            return 0;
        };
        let address = entry.address.load(Ordering::Acquire);
        // Whoever takes the entry over changes the place first.
        if is_its(&entry) { address } else { 0 }
    }
}

/// The function whose return address at `place` a walker was given returns to its hook again, at `hooked`.
pub unsafe fn arm_again(place: u64, hooked: u64) {
    // SAFETY: a live return address of this thread's stack.
    unsafe {
        let word = place as *mut u64;
        let (address, shown) = (original(place), unwind::original_of(hooked, place));
        if address == 0 || word.read_volatile() != shown {
            return;
        }
        // Meanwhile the entry was not in use: another thread may be taking it.
        word.write_volatile(hooked);
        if !remember(place, address) {
            word.write_volatile(shown);
        }
    }
}

/// Remembers the return address at `place`, which is replaced already. False: no room.
pub unsafe fn remember(place: u64, address: u64) -> bool {
    // After the replacement: whoever asks about the entry from here on finds it in use.
    fence(Ordering::SeqCst);
    // SAFETY: as above; other stacks are read through the kernel.
    unsafe {
        let mut entry = None;
        for o in candidates(place) {
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
            .or_else(|| candidates(place).find(|o| swap(o, 0, place)))
            .or_else(|| candidates(place).find(|o| take_over(o, place)));
        if let Some(entry) = entry {
            entry.address.store(address, Ordering::Release);
        }
        entry.is_some()
    }
}

fn swap(o: &Original, from: u64, to: u64) -> bool {
    let swapped = o
        .place
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    swapped.is_ok()
}

/// Takes an entry that is not in use any more. Meanwhile it is marked, so that the thread whose
/// place it was does not use it again.
unsafe fn take_over(o: &Original, place: u64) -> bool {
    let old = o.place.load(Ordering::Acquire);
    if old & ASKED != 0 || !swap(o, old, old | ASKED) {
        return false;
    }
    // SAFETY: read through the kernel.
    let in_use = unsafe { is_in_use(old) };
    o.place
        .store(if in_use { old } else { place }, Ordering::Release);
    !in_use
}

unsafe fn is_in_use(place: u64) -> bool {
    let mut word = 0u64;
    // SAFETY: read through the kernel: the stack may be gone.
    unsafe {
        let got = sys::read_own(place as usize, (&raw mut word).cast(), 8);
        got == 8 && is_return(word)
    }
}

/// Is this where the return address of a hooked function leads to?
pub unsafe fn is_return(address: u64) -> bool {
    // SAFETY: read only inside an area.
    unsafe {
        if (*process()).originals.is_null() {
            return false;
        }
        let m = module::of_area(address);
        if m.is_null() || address + HOOK_ENTRY_ID > (*m).area + (*m).area_bytes {
            return false;
        }
        let code = address as *const u8;
        RETURN_CODE
            .iter()
            .enumerate()
            .all(|(k, b)| *code.add(k) == *b)
            && target(address + HOOK_EXIT_ID)
                == (*m).area + common::offset(routine::HOOK_EXIT) as u64
    }
}

/// Where the `call rel32` before `after` leads to.
unsafe fn target(after: u64) -> u64 {
    // SAFETY: four bytes of a slot.
    unsafe {
        let rel = ((after - 4) as *const i32).read_unaligned();
        after.wrapping_add(rel as i64 as u64)
    }
}

/// The return of the hook with this entry id; 0: it is no hook's.
pub unsafe fn return_of(id: u64) -> u64 {
    let hooked = (id & !(FRAME_OPEN | FRAME_DONE)).wrapping_sub(HOOK_ENTRY_ID);
    // SAFETY: checked there.
    if unsafe { is_return(hooked) } {
        hooked
    } else {
        0
    }
}

/// A hooked function returns: its own return address goes to `word`.
pub unsafe fn fill_return(word: u64) {
    // SAFETY: the word was made by the hook's return.
    unsafe {
        let original = original(word);
        if original != 0 {
            (word as *mut u64).write_volatile(original);
        }
    }
}

/// A hooked function is about to run; its return address lies at `above`.
pub unsafe fn enter(hot: *mut Hot, above: u64, id: u64) {
    // SAFETY: called by the slow path.
    unsafe {
        let Some(hooked) = special::special_of(id) else {
            return;
        };
        match hooked.kind {
            SpecialKind::Mapped => look_for_modules(hot),
            SpecialKind::Root | SpecialKind::RootOpen => {
                between::called(hooked.rules);
                enter_root(hot, above, id, &hooked);
            }
            _ => {}
        }
    }
}

unsafe fn enter_root(hot: *mut Hot, above: u64, id: u64, hooked: &Special) {
    let may_replace = hooked.kind == SpecialKind::Root;
    let entry = hooked.entry;
    let rsp = above + 8;
    // SAFETY: `above` is the function's return address; the shadow stack is ours.
    unsafe {
        settle(hot, rsp, false);
        let is_called = is_its_call(hot, above);
        if !is_called {
            settle(hot, rsp, true);
        }
        let is_root = (*hot).root == 0;
        if is_root && !between::is_open(hooked.rules) {
            return;
        }
        let reach = propagate::reach(hot, entry);
        if is_called && !is_root {
            return;
        }
        if !deep::has_room(hot, rsp) {
            deep::cut_off(hot);
            return;
        }
        let word = above as *mut u64;
        let address = word.read_volatile();
        let mut replaced =
            may_replace && reach != Reach::ReturnAddress && is_return_address(address);
        if replaced {
            // In this order: an entry whose place holds no address of ours may be taken.
            word.write_volatile(id - HOOK_ENTRY_ID);
            if !remember(above, address) {
                word.write_volatile(address);
                replaced = false;
            }
        }
        if is_root {
            chunk::unmute(hot);
        }
        if replaced {
            chunk::put_event(hot, id as u32, None);
            push(hot, rsp, id, 0);
        } else {
            chunk::put(hot, record::ENTERED, entry);
            push(hot, rsp, id | FRAME_OPEN, entry);
        }
        if is_root {
            (*hot).root = (*hot).ssp;
        }
    }
}

/// True if the top frame is the call (or a tail jump in it) that leads to the function whose return
/// address lies at `above`: it was seen at its site.
unsafe fn is_its_call(hot: *mut Hot, above: u64) -> bool {
    // SAFETY: the top frame is at least the sentinel.
    unsafe {
        let frame = &*top(hot);
        if frame.rsp != above + 8 || frame.id & FRAME_DONE != 0 {
            return false;
        }
        let hooked = return_of(frame.id);
        if frame.id & FRAME_OPEN != 0 {
            // A site's own entry-only frame was pushed just now; a hook's has ended.
            return hooked == 0 && frame.id != FRAME_OPEN;
        }
        let exit = match hooked {
            0 => unwind::exit_of(frame.id),
            hooked => hooked,
        };
        (above as *const u64).read_volatile() == exit
    }
}

/// False if somebody else than a call may need to find this address on the stack: it does not follow
/// a call (a signal handler's leads to the restorer), or lies in a runtime that walks its own frames
/// (marked functions, and code that belongs to no module).
unsafe fn is_return_address(address: u64) -> bool {
    // SAFETY: bytes before an address inside a module's text are readable.
    unsafe {
        if unwind::original_return(address) != 0 {
            return true;
        }
        let m = module::known(address);
        if m.is_null() || (*m).plan.is_none() || address < (*m).start + 8 {
            return false;
        }
        let caller = plan::function_around(m, address - 1);
        if caller.is_some_and(|(_, f)| f.is_any(FN_RUNTIME)) {
            return false;
        }
        let byte = |back: u64| *((address - back) as *const u8);
        byte(5) == 0xe8 || (2..=7).any(|back| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2)
    }
}

/// After frames have left the shadow stack: outside the root nothing is recorded.
pub unsafe fn frames_ended(hot: *mut Hot) {
    // SAFETY: the thread's own block.
    unsafe {
        if (*hot).root != 0 && (*hot).ssp < (*hot).root {
            (*hot).root = 0;
            chunk::mute(hot);
        }
    }
}

/// True if the root's frame is gone without an event that shows it: a longjmp or an exception has
/// left it, and what runs now is called from code that is not patched. Its return address is not
/// where it was. Not known while a walker has the original ones.
pub unsafe fn root_is_gone(hot: *mut Hot) -> bool {
    // SAFETY: the root's frame lies in the shadow stack; another stack is read through the kernel.
    unsafe {
        let root = (*hot).root as *const ShadowFrame;
        if root.is_null() || (*hot).rearm_above != 0 || (*root).id & FRAME_OPEN != 0 {
            return false;
        }
        let mut word = 0u64;
        let got = sys::read_own((*root).rsp as usize - 8, (&raw mut word).cast(), 8);
        got != 8 || word != return_of((*root).id)
    }
}

/// Asks the host for what ld.so has mapped: new modules get their hooks before they run.
unsafe fn look_for_modules(hot: *mut Hot) {
    // SAFETY: the lock is held meanwhile.
    unsafe {
        let since = sys::tsc();
        if !propagate::lock((*hot).tid) {
            count_hole(hole::LOCK_BUSY);
            return;
        }
        for _ in 0..MODULES {
            let address = match module::question(ASK_MAPPED, 0) {
                Some([address, ..]) if address != 0 => address,
                _ => break,
            };
            let m = module::find(address);
            if !m.is_null() && (*m).doubtful != 0 {
                // Closed and mapped again at the same place, or another one there.
                crate::process::check_module(m);
                if (*m).gone != 0 {
                    module::find(address);
                }
            }
        }
        propagate::unlock();
        propagate::waited(hot, since);
    }
}
