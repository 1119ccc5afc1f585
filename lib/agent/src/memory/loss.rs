//! Events that go unrecorded are counted.
//!
//! Given the thread whose event it is. Its count is told before its next record; that of the
//! recording is complete at any time. Must not know why an event is lost.

use crate::memory::thread::Hot;
use crate::memory::{host, state};
use core::sync::atomic::Ordering;

/// One more. A muted thread loses nothing, and what comes when the recording is over is none of it:
/// a process that has not been let go yet may return from many calls until it is.
pub fn count(hot: &Hot) {
    if hot.muted.get() == 0 && !host::stopped() && !host::host_is_detaching() {
        hot.lost.add(1);
        state::control().lost.fetch_add(1, Ordering::Relaxed);
    }
}
