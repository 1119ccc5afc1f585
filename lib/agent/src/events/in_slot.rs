//! A call with acts in its slot comes to the slow path: the first one, or one whose acts cannot run
//! there.
//!
//! Given the call; its callee is reached before it runs. The acts of a first call run in its slot
//! afterwards; of another, whose thread had no block of its own until now, they run here. No frame
//! is kept, nothing is recorded. Must not know what is added.

use crate::events::acts;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::lock;
use crate::memory::thread::Hot;
use crate::patch::text;
use crate::plans::{kept_acts, modules, ready, slot};
use crate::reach::propagate;
use sptrace_wire::plan::kept_acts::ASKED;

/// The slot with this id asks.
pub fn first(hot: &Hot, f: &Frame, vectors: &Vectors) {
    let entry = kept_acts::part(f.id, -ASKED);
    if kept_acts::of(entry).is_some() {
        return keep(hot, entry, f.above[0]);
    }
    let callee = slot::acts_target(f.id);
    propagate::reach(hot, callee);
    if slot::asks_of_acts(f.id) {
        let is_ready = |m| ready::may_bring_acts(m, callee);
        if modules::known(callee).is_some_and(is_ready) {
            text::wire_counted(f.id);
        }
        return;
    }
    acts::act(hot, f, vectors, callee, f.above_at());
}

/// A call through a pointer leads to `callee`: its slot keeps that if it has acts for slots. It is
/// recorded after this as any other, or its acts run with it.
fn keep(hot: &Hot, entry: u64, callee: u64) {
    propagate::reach(hot, callee);
    if lock::lock(hot.tid.get()) {
        kept_acts::keep(entry, callee);
        lock::unlock();
    }
}
