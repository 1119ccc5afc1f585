//! Every byte that the host (the `sptrace` process) and the agent (inside the tracee) share.
//!
//! One arena a recording: a sparse memfd, mapped shared by the host and every process. It holds, in
//! this order, the control block and the question slots ([`control`]), what payloads bid
//! ([`bids`]), the stream table, the chunk table, the chunks of records ([`record`], [`values`])
//! and the plans ([`plan`]; among them the commands of [`attach`], and the table of [`values`]),
//! and where calls are counted the [`counts`]. All integers are little-endian, all structures
//! `repr(C)` without padding that carries meaning.
//!
//! Whoever changes a byte here raises [`VERSION`] in the same commit: the agent refuses an arena
//! of another version and stays dormant.
//!
//! Must not know: how code is analysed, how a process is found or stopped, what a record means to
//! a reader.
#![no_std]
#![forbid(unsafe_code)]

pub mod attach;
pub mod bids;
pub mod control;
pub mod counts;
mod layout;
pub mod levels;
pub mod module_answer;
pub mod plan;
pub mod record;
pub mod values;

/// Version of everything in this crate.
pub const VERSION: u32 = 45;

/// What the agent's own system calls have for a sixth argument where they take none, so that the
/// host can tell them from the program's where it records the kernel's side.
pub const OWN_CALL: u64 = u64::from_le_bytes(*b"sptrace\xff");

/// Where the agent's own mappings begin, behind the arena; they may fill 192 GiB, to where the
/// kernel puts programs.
pub const OWN_AVMA: u64 = 0x5520_0000_0000;

/// First eight bytes of an arena of whatever version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"sptrace\x04");
