//! A jump at a function's entry that leads its callers over a gate.
//!
//! Given by [`super::process`], which puts it there and takes it away; kept by the session as long
//! as it stands.

use sptrace_patch::gate::JUMP_BYTES;

/// A jump at a function's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateJump {
    /// The process; 0: it is that no more.
    pub(super) pid: u32,
    /// Where it stands.
    pub(super) at: u64,
    /// Where its callers lead: there, or before.
    pub(super) entry: u64,
    pub(super) original: [u8; JUMP_BYTES],
    pub(super) jump: [u8; JUMP_BYTES],
    /// The code that it leads to.
    pub(super) way: u64,
    /// Where a thread waits in it.
    pub(super) touch: u64,
    /// Where that goes on in the text; 0: it returns.
    pub(super) goes_on: u64,
    /// Who waits may be put back to its call.
    pub(super) is_clear_below: bool,
}
