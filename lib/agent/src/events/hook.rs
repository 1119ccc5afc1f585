//! Hooks: functions whose entry is intercepted, whoever calls them, because recording begins there
//! (`run -F`, `--between`) and lasts until they return.
//!
//! Given what the slow path found at a hook's entry or return; keeps the shadow stack, the thread's
//! mute state ([`crate::record::chunk::mute`]) and the table of replaced return addresses.
//!
//! A thread is muted unless it is inside of a hooked function whose calls are recorded at that
//! moment ([`crate::events::between`]). The first such function is the *root*. It gets a shadow
//! frame, and its return address is replaced by one in its slot. When its frame has ended, in
//! whatever way, the thread is muted again. A hooked function that is called from a patched site
//! inside of a root has been recorded there, so its hook does nothing (the common routine sees
//! that).
//!
//! What a replaced return address was stands in a table by its place on the stack, not in the
//! shadow frame: a frame may be taken for ended while it is alive on another stack, and the
//! function must find back all the same. An entry of the table is in use as long as its place holds
//! an address of ours.
//!
//! Where recording begins everywhere (`run -l` has a hook at main, whose caller is left out), no
//! thread is muted, and a hooked function is recorded as one that is called.

use crate::events::ordered::Last;
use crate::events::{between, counted, jumped, ordered, roots};
use crate::frames::shadow;
use crate::frames::shadow::FRAME_DONE;
use crate::memory::frame::Frame;
use crate::memory::live::StackWord;
use crate::memory::table::MODULES;
use crate::memory::thread::Hot;
use crate::memory::{counters, lock, state, sys};
use crate::plans::modules::Special;
use crate::plans::ready::Reach;
use crate::plans::{modules, patched, plan, slot};
use crate::reach::{check, module, propagate};
use crate::record::{chunk, deep, originals, question, settle};
use sptrace_wire::control::{ASK_MAPPED, hole};
use sptrace_wire::plan::*;
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;

/// A hooked function is about to run. `last` was recorded before it came here. True: it has a frame
/// that it had not, by the id of its call.
pub fn enter(hot: &Hot, f: &Frame, last: Option<Last>) -> bool {
    let Some(hooked) = modules::special_of(f.id) else {
        return false;
    };
    match hooked.kind {
        SpecialKind::Mapped => look_for_modules(hot),
        SpecialKind::Root | SpecialKind::RootOpen => {
            between::called(hooked.rules);
            if counters::keeps_returns() {
                return roots::enter(hot, f.word_above(0), f.id, (&hooked, last));
            }
            enter_root(hot, f.word_above(0), f.id, (&hooked, last));
        }
        _ => {}
    }
    false
}

/// Its return address is at `word`.
fn enter_root(hot: &Hot, word: StackWord, id: u64, (hooked, last): (&Special, Option<Last>)) {
    let may_replace = hooked.kind == SpecialKind::Root;
    let entry = hooked.entry;
    let rsp = word.address() + 8;
    // What its call keeps of its values lies just below it, and stays.
    settle::settle(hot, rsp - 1, false);
    let has_jumped = |last| jumped::has_jumped(hot, last, rsp, entry);
    let is_called = is_its_call(hot, word) || last.is_some_and(has_jumped);
    if !is_called {
        settle::settle(hot, rsp, true);
    }
    let is_called = is_called || last.is_some_and(|last| ordered::is_it(last, rsp, entry));
    let is_root = state::control().roots_only != 0 && hot.root.get() == 0;
    if is_root && !between::is_open(hooked.rules) {
        return;
    }
    let reach = propagate::reach(hot, entry);
    if counters::is_counting() {
        return counted::add(hot, id, entry, true);
    }
    if counters::is_in_order() {
        return ordered::unseen(hot, word.address(), entry);
    }
    if is_called && !is_root {
        return;
    }
    if !deep::has_room(hot, rsp) {
        chunk::cut_off(hot);
        return;
    }
    let address = word.get();
    let mut replaced = may_replace && reach != Reach::ReturnAddress && is_return_address(address);
    if replaced {
        // In this order: an entry whose place holds no address of ours may be taken.
        word.set(id - HOOK_ENTRY_ID);
        if !originals::remember(word.address(), address) {
            word.set(address);
            replaced = false;
        }
    }
    if is_root {
        chunk::unmute(hot);
    }
    if replaced {
        chunk::put_entry(hot, id as u32, None, rsp);
        shadow::push(hot, rsp, id, 0);
    } else {
        chunk::put_place(hot, rsp);
        chunk::put(hot, record::ENTERED, entry);
        shadow::push(hot, rsp, id | FRAME_OPEN, entry);
    }
    if is_root {
        hot.root.set(hot.ssp.get());
    }
}

/// True if the top frame is the call (or a tail jump in it) that leads to the function whose return
/// address is at `word`: it was seen at its site.
fn is_its_call(hot: &Hot, word: StackWord) -> bool {
    let frame = shadow::call(hot).get();
    if frame.rsp != word.address() + 8 || frame.id & FRAME_DONE != 0 {
        return false;
    }
    let hooked = slot::return_of(frame.id);
    if frame.id & FRAME_OPEN != 0 {
        // A site's own entry-only frame was pushed just now; a hook's has ended.
        return hooked == 0 && frame.id != FRAME_OPEN;
    }
    let exit = match hooked {
        0 => slot::exit_of(frame.id),
        hooked => hooked,
    };
    word.get() == exit
}

/// False if somebody else than a call may need to find this address on the stack: it does not
/// follow a call (a signal handler's leads to the restorer), or lies in a runtime that walks its
/// own frames (marked functions, and code that belongs to no module).
fn is_return_address(address: u64) -> bool {
    if slot::original_return(address) != 0 {
        return true;
    }
    let Some(m) = modules::known(address).filter(|m| m.has_plan()) else {
        return false;
    };
    let caller = plan::function_around(m, address - 1);
    if caller.is_some_and(|(_, f)| f.is_any(FN_RUNTIME)) {
        return false;
    }
    let is_call = |before: [u8; 8]| {
        let byte = |back: usize| before[8 - back];
        byte(5) == 0xe8 || (2..=7).any(|back| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2)
    };
    // Another thread may have patched it since it was made.
    let as_it_was = || patched::original_before(m, address);
    m.text::<8>(address - 8).is_some_and(is_call) || as_it_was().is_some_and(is_call)
}

/// Asks the host for what ld.so has mapped: new modules get their hooks before they run.
pub(crate) fn look_for_modules(hot: &Hot) {
    let since = sys::tsc();
    if !lock::lock(hot.tid.get()) {
        state::count_hole(hole::LOCK_BUSY);
        return;
    }
    state::process().is_mapping.set(true);
    for _ in 0..MODULES {
        let address = match question::question(ASK_MAPPED, 0) {
            Some([address, ..]) if address != 0 => address,
            _ => break,
        };
        if let Some(m) = module::find(address).filter(|m| m.doubtful.get()) {
            // Closed and mapped again at the same place, or another one there.
            check::check_module(m);
            if m.gone.get() {
                module::find(address);
            }
        }
    }
    state::process().is_mapping.set(false);
    lock::unlock();
    propagate::waited(hot, since);
}
