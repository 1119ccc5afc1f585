//! How much of a function's calls is recorded, changed while the program runs.
//!
//! The host says so by [`Entry`]s of a list in the arena, of which it writes some one after the
//! other and then counts up [`crate::control::Control::levels_written`] for all at once: an agent
//! that comes to its slow path takes what it has not taken yet, and looks at all its call sites for
//! that. It leads those of the functions elsewhere: each has two slots
//! ([`crate::plan::PlanHeader::twins`]). The list is a ring: who has not come for as many entries
//! as it has, less [`UNTOLD`], may have missed some, which are written again while they are wanted.
//!
//! Whether calls that are recorded bring their values says a byte in the arena for each function of
//! which that may change, a *switch*: the function's code looks at it at each call, so one store of
//! the host's is enough, for all processes.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Arena offset of the list.
pub const LEVELS_OFFSET: u64 = 0x5_0000;
/// Entries of the list.
pub const LEVELS: u64 = 2048;
/// So many of them at most are written and not counted up yet; as many of the oldest an agent
/// leaves alone.
pub const UNTOLD: u64 = LEVELS / 4;

/// One wish of the host.
#[repr(C)]
pub struct Entry {
    /// Host: address of the function in the process, or an id, in full, of a site of calls through
    /// a pointer: one by which they are recorded or counted.
    pub avma: AtomicU64,
    /// Host: number of the process in the recording ([`crate::control::Stream::process`]), or
    /// [`ALL`].
    pub process: AtomicU32,
    /// Host: [`RECORDED`], [`COUNTED`], [`SITE`] or [`OFF`].
    pub level: AtomicU32,
}

/// [`Entry::process`]: each process. The host may not know a forked child yet.
pub const ALL: u32 = u32::MAX;
/// [`Entry::level`]: calls are recorded.
pub const RECORDED: u32 = 0;
/// [`Entry::level`]: calls are counted, where that can be: a call through a pointer that is not one
/// of the linker's stays recorded.
pub const COUNTED: u32 = 1;
/// [`Entry::level`]: all calls of one site are counted.
pub const SITE: u32 = 2;

/// [`Entry::level`]: calls are as without sptrace where one instruction of the program's leads to
/// the function by its address, and counted at all other sites.
pub const OFF: u32 = 3;

/// Arena offset of the switches of values: a byte each.
pub const SWITCHES_OFFSET: u64 = 0x6000;
/// How many there are; the first is nobody's.
pub const SWITCHES: u64 = 0x8000;
/// A switch: calls bring their values.
pub const VALUES_SHOWN: u8 = 0;
/// A switch: they do not.
pub const VALUES_LEFT_OUT: u8 = 1;

const _: () = assert!(SWITCHES_OFFSET >= crate::bids::bid_offset(crate::bids::BIDS));
const _: () = assert!(SWITCHES_OFFSET + SWITCHES <= crate::control::STREAMS_OFFSET);
const _: () =
    assert!(LEVELS_OFFSET + LEVELS * size_of::<Entry>() as u64 <= crate::control::CHUNKS_OFFSET);
