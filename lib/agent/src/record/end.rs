//! The last record before something after which there can be none: a sandbox, or a program that
//! uses gs itself.
//!
//! Given the thread whose call will bring it about; hands its records over, and ends recording.

use crate::memory::state::GS_TAKEN;
use crate::memory::thread::Hot;
use crate::memory::{sandbox, state};
use crate::record::{chunk, silence};
use core::sync::atomic::Ordering;
use sptrace_wire::control::*;

/// Nothing is recorded from here on: after this call neither rdtsc nor a system call is safe.
pub(crate) fn enter_sandbox(hot: &Hot) {
    state::count_hole(hole::SANDBOX);
    sandbox::set_sandboxed();
    chunk::hand_over(hot);
    silence::fall_silent();
}

/// The program uses gs itself from here on: nothing is recorded any more.
pub fn gs_is_taken(hot: &Hot) {
    state::count_hole(hole::GS);
    chunk::hand_over(hot);
    state::process()
        .dormant
        .fetch_or(GS_TAKEN, Ordering::AcqRel);
    silence::fall_silent();
}
