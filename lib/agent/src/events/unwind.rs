//! A stack walker is about to run: it must meet the program's own return addresses.
//!
//! Given the walker's thread and where its own frame lies; puts back the return addresses of all
//! its open calls, and moves contexts that signals have interrupted in our code. After the walker
//! is gone, at the first event above its frame, the frames that survived are armed again
//! ([`crate::record::settle`]); frames that an exception removed are recorded as unwound.

use crate::frames::{shadow, stacks};
use crate::memory::counters;
use crate::memory::thread::Hot;
use crate::record::{restore, settle};
use crate::signals::context;

/// Dropped frames further apart than this are not on one stack.
const SCAN_BYTES: u64 = 16 << 20;

/// Before a walker runs whose own return address lies at `above`: every foreign return address
/// becomes the original one.
pub fn give_back(hot: &Hot, above: u64, mask: u64) {
    if hot.top().rsp() < above {
        stacks::switched(hot, above);
    }
    context::move_contexts(Some(hot), above, mask);
    if counters::keeps_returns() {
        if hot.root.get() != 0 {
            // It may be left, which shows at the next event.
            hot.rearm_above.raise(above);
            hot.end.set(0);
        }
        return;
    }
    let (mut frame, bottom) = (hot.top(), hot.bottom());
    let mut interrupted = false;
    while frame > bottom {
        if shadow::is_barrier(frame) {
            // What follows lies on the stack that a handler interrupted.
            interrupted |= shadow::holds(frame, above);
            frame = frame.below();
            continue;
        }
        if shadow::return_word(frame).address() >= above || interrupted {
            settle::give_back_frame(frame);
        }
        frame = frame.below();
    }
    let innermost = hot.top().rsp();
    if hot.overflow.get() > 0 && innermost != u64::MAX && above < innermost {
        // Calls for which there was no room lie below all frames.
        restore::scan(above & !7, innermost);
    }
    let [low, high] = hot.dropped.get();
    if high > above {
        if high - low < SCAN_BYTES {
            restore::scan(low.max(above) & !7, high);
        }
        hot.dropped.set([0; 2]);
    }
    // A handler may walk while a walker is at work: arm again above the outer one.
    hot.rearm_above.raise(above);
    hot.end.set(0);
}
