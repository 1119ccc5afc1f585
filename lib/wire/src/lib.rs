//! Every byte that the host (the `sptrace` process) and the agent (inside the tracee) share.
//!
//! One arena per exec image: a sparse memfd, mapped shared by both. It holds, in this order, the
//! control block ([`control`]), the stream table, the question slots, the chunk table, the plans
//! ([`plan`]; among them the commands of [`attach`]) and the chunks of records ([`record`]). All integers are little-endian, all
//! structures `repr(C)` without padding that carries meaning.
//!
//! Whoever changes a byte here raises [`VERSION`] in the same commit: the agent refuses an arena
//! of another version and stays dormant.
//!
//! Must not know: how code is analysed, how a process is found or stopped, what a record means to
//! a reader.
#![no_std]
#![forbid(unsafe_code)]

pub mod attach;
pub mod control;
mod layout;
pub mod plan;
pub mod record;

/// Version of everything in this crate.
pub const VERSION: u32 = 14;

/// First eight bytes of an arena: `sptrace` and the version's low byte.
pub const MAGIC: u64 = u64::from_le_bytes(*b"sptrace\x04");
