//! The ends of calls that keep their return addresses, at the places that they return to.
//!
//! Given what the door saved, where a common routine could not go on by itself
//! ([`crate::routines::returns`]); records the end of the call, if it is one. The calls themselves
//! are begun as others are. Must not know what values are.

use crate::events::exits;
use crate::memory::frame::{Frame, Vectors};
use crate::memory::thread::Hot;
use crate::plans::slot;
use crate::record::settle;

/// Control has come to a return point: by the return of its call if that is the innermost one, and
/// lies at this stack pointer, else by a jump.
pub fn returned(hot: &Hot, f: &Frame, vectors: &Vectors, rsp: u64) {
    let (id, call) = (f.id, slot::call_of_return(f.id));
    if hot.overflow.get() > 0 && hot.top().rsp() > rsp {
        // One of the calls that had no room, whose return was counted with it; a jump to here ends
        // none, which cannot be told.
        hot.overflow.sub(1);
        return;
    }
    if exits::leave(hot, f, vectors, rsp) {
        return;
    }
    settle::settle(hot, rsp, false);
    let is_its = |frame: u64| frame as u32 == call as u32;
    if !settle::leave_below(hot, rsp, id as u32, is_its) && hot.top().rsp() == rsp {
        // Control is in its caller.
        settle::settle(hot, rsp, true);
    }
}
