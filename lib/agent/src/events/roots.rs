//! Hooked functions where calls keep their return addresses (`run --return-points`).
//!
//! Given what the slow path found at a hook's entry; keeps the shadow stack and the thread's mute
//! state, as [`crate::events::hook`] does otherwise. The end of a root is seen where its call
//! returns to: the frame of that call has a mark below it, by which the return comes to the slow
//! path ([`crate::frames::shadow::mark_root`]), and the thread is muted when the frame has gone.
//!
//! Calls of roots from the same module, and by name from others, are patched before anybody can
//! make them. If another call has led here, its return point is patched now, if nobody can be in
//! the middle of what is overwritten. Else the frame is entry-only: that its call is over shows
//! when another return address stands in the place of its own, or the stack pointer above it. So
//! that this is not found out late, calls that such a root makes itself take the slow path.

use crate::events::ordered::Last;
use crate::events::{between, jumped};
use crate::frames::shadow;
use crate::memory::live::StackWord;
use crate::memory::state;
use crate::memory::thread::Hot;
use crate::plans::modules::Special;
use crate::reach::{propagate, return_points};
use crate::record::{chunk, deep, settle};
use sptrace_wire::record;
use sptrace_wire::record::FRAME_OPEN;

/// A hooked function is about to run; its return address is at `word`. `last` was recorded before
/// it came here. True: it is recorded as one that begins here.
pub fn enter(
    hot: &Hot,
    word: StackWord,
    id: u64,
    (hooked, last): (&Special, Option<Last>),
) -> bool {
    let (entry, rsp, back) = (hooked.entry, word.address() + 8, word.get());
    settle::settle(hot, rsp - 1, false);
    let frame = shadow::call(hot);
    let is_its = frame.rsp() == rsp && return_points::call_before(back) == Some(frame.id());
    let is_called = is_its || last.is_some_and(|last| jumped::has_jumped(hot, last, rsp, entry));
    if !is_called {
        settle::settle(hot, rsp, true);
    }
    let is_root = state::control().roots_only != 0 && hot.root.get() == 0;
    if is_root && !between::is_open(hooked.rules) {
        return false;
    }
    propagate::reach(hot, entry);
    if is_called && !is_root {
        return false;
    }
    if !deep::has_room(hot, rsp) {
        chunk::cut_off(hot);
        return false;
    }
    let call = return_points::see_return(hot, back);
    if is_root {
        chunk::unmute(hot);
    }
    if call.is_some() {
        chunk::put_entry(hot, id as u32, None, rsp);
    } else {
        chunk::put_place(hot, rsp);
        chunk::put(hot, record::ENTERED, entry);
    }
    match call {
        Some(call) if !is_called => shadow::push(hot, rsp, call, entry),
        None if !is_called => shadow::push(hot, rsp, id | FRAME_OPEN, entry),
        None => hot.top().mark(FRAME_OPEN),
        Some(_) => {}
    }
    if is_root {
        shadow::mark_root(hot, back);
    }
    true
}
