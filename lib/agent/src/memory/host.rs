//! What is known of the host: whether it lives, whether it works, and how it is woken.
//!
//! Given the control block, whose words the host writes; gives answers about the host. Must not
//! know what anybody wants of the host.

use crate::memory::{state, sys};
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::control::*;

/// A host whose heartbeat stands still this long is stopped: do not wait for it.
pub(crate) const STOPPED_HOST_TICKS: u64 = 2_500_000_000;

/// Wakes the host's thread that drains.
pub fn ring() {
    ring_at(&state::control().doorbell);
}

/// Wakes the one that answers.
pub fn ring_for_answer() {
    ring_at(&state::control().question_bell);
}

fn ring_at(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::Release);
    sys::futex_wake(bell, 8);
}

/// The host's drain thread is dead, or it has stopped recording.
pub(crate) fn host_is_gone() -> bool {
    let c = state::control();
    c.host_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 || stopped()
}

/// The recording is over, and the host about to take us out.
pub(crate) fn host_is_detaching() -> bool {
    state::control().host_state.load(Ordering::Relaxed) == HOST_DETACHING
}

/// The host has not shown life for a second: it is stopped or starved.
pub fn host_is_stopped() -> bool {
    let p = state::process();
    let (seen, when) = (&p.heartbeat, &p.heartbeat_tsc);
    let beat = state::control().heartbeat.load(Ordering::Relaxed);
    let now = sys::tsc();
    if beat != seen.load(Ordering::Relaxed) || when.load(Ordering::Relaxed) == 0 {
        seen.store(beat, Ordering::Relaxed);
        when.store(now, Ordering::Relaxed);
        return false;
    }
    now.wrapping_sub(when.load(Ordering::Relaxed)) > STOPPED_HOST_TICKS
}

/// True if recording has ended for good.
pub fn stopped() -> bool {
    state::control().host_state.load(Ordering::Relaxed) == sptrace_wire::control::HOST_STOPPED
}
