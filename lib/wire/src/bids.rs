//! What payloads bid the host do: begin the recording, end it, write its ring out, change levels.
//!
//! A script has a number for each. The agent counts how often one was bidden, and says when, in a
//! slot of the arena that holds one saying at a time: who finds it full leaves it at the count and
//! at the time, since a host that has not looked yet will do the same for both. So nothing waits,
//! and a process that is killed leaves what it has said.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Arena offset of the slots.
pub const BIDS_OFFSET: u64 = 0x4000;
/// How many a script may have: bits of a word.
pub const BIDS: usize = 32;

/// One of them.
#[repr(C)]
pub struct Bid {
    /// Agents: how often it was bidden.
    pub times: AtomicU64,
    /// Agents: TSC of the last time, after the event of the call.
    pub last_tsc: AtomicU64,
    /// Agents: [`BID_TAKEN`], then [`BID_SAID`]; host: [`BID_FREE`].
    pub state: AtomicU32,
    /// Agent: number of the process in the recording.
    pub process: AtomicU32,
    /// Agent: TSC of what is said before the event of its call, and after it.
    pub before_tsc: AtomicU64,
    /// See there.
    pub after_tsc: AtomicU64,
}

/// [`Bid::state`]: nothing is said.
pub const BID_FREE: u32 = 0;
/// [`Bid::state`]: an agent is writing.
pub const BID_TAKEN: u32 = 1;
/// [`Bid::state`]: it has written, for the host.
pub const BID_SAID: u32 = 2;

/// Arena offset of a slot.
pub const fn bid_offset(number: usize) -> u64 {
    BIDS_OFFSET + (number * size_of::<Bid>()) as u64
}

const _: () = assert!(
    BIDS_OFFSET
        >= crate::control::QUESTIONS_OFFSET
            + (crate::control::QUESTIONS * size_of::<crate::control::Question>()) as u64
);
const _: () = assert!(bid_offset(BIDS) <= crate::control::STREAMS_OFFSET);
