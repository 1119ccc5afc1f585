//! What payloads bid the host do is told it.
//!
//! Given the bits that the code of a payload has left in the thread's block, when the event of its
//! call has been recorded; writes them into the arena's slots ([`sptrace_wire::bids`]) and rings,
//! so that the host hears of it before the thread's chunk is full. With signals blocked, so a
//! thread tells of one event at a time. Must not know what is bidden.

use crate::memory::thread::Hot;
use crate::memory::{host, state, sys, thread};
use core::sync::atomic::Ordering;
use sptrace_wire::bids::{BID_FREE, BID_SAID, BID_TAKEN, BIDS, Bid, bid_offset};

/// The time before an event that may bid something; 0: none does.
#[inline]
pub fn before() -> u64 {
    match state::control().bids {
        0 => 0,
        _ => sys::tsc(),
    }
}

/// Tells what this thread's event has bidden, which began at `before_tsc`.
#[inline]
pub fn tell(before_tsc: u64) {
    if before_tsc == 0 {
        return;
    }
    // SAFETY: gs is ours, or nobody's: programs that use it are not entered.
    if let Some(hot) = unsafe { thread::of_gs() }
        && hot.bids.get() != 0
    {
        tell_all(hot, before_tsc);
    }
}

#[inline(never)]
fn tell_all(hot: &Hot, before_tsc: u64) {
    let bits = hot.bids.get();
    hot.bids.set(0);
    for number in (0..BIDS).filter(|number| bits >> number & 1 != 0) {
        // SAFETY: inside the arena, which is mapped for life; a slot consists of atomics.
        let bid = unsafe { &*((state::process().arena() + bid_offset(number)) as *const Bid) };
        say(bid, before_tsc);
    }
    host::ring();
}

/// The time comes before the state: a host that frees the slot looks at it afterwards.
fn say(bid: &Bid, before_tsc: u64) {
    let now = sys::tsc();
    bid.times.fetch_add(1, Ordering::AcqRel);
    bid.last_tsc.fetch_max(now, Ordering::AcqRel);
    let taken =
        bid.state
            .compare_exchange(BID_FREE, BID_TAKEN, Ordering::AcqRel, Ordering::Relaxed);
    if taken.is_ok() {
        let number = state::process().number.get();
        bid.process.store(number, Ordering::Relaxed);
        bid.before_tsc.store(before_tsc, Ordering::Relaxed);
        bid.after_tsc.store(now, Ordering::Relaxed);
        bid.state.store(BID_SAID, Ordering::Release);
    }
}
