//! The words in a chunk of records.
//!
//! A record is one little-endian 8-byte word: the low 32 bits of the TSC, then a 32-bit id.
//!
//! ```text
//!   63            32 31             0
//!  +----------------+----------------+
//!  |       id       | TSC, low half  |
//!  +----------------+----------------+
//! ```
//!
//! * id >= [`CONTROL_IDS`]: the low half of the return address that a slot's `call` to a common
//!   routine pushed. The plan tells which call site, and whether that place is its entry or its
//!   exit. A call through a pointer is followed by one word with the callee's address.
//! * id < [`CONTROL_IDS`]: a control record; each is followed by one word of payload.
//!
//! A chunk is zero beyond what was written, so that what a killed process wrote can be read: no
//! record is zero, since no id is.
//!
//! Time: the high half of the TSC is that of the chunk's start, or of the last [`ANCHOR`].

/// Ids below this are control records; no patch area lies where the low half of an address is
/// below it.
pub const CONTROL_IDS: u32 = 0x1_0000;

/// Payload: the full TSC. The high half changed.
pub const ANCHOR: u32 = 1;
/// Payload: number of frames left by longjmp or throw; they have no exit record.
pub const UNWOUND: u32 = 2;
/// Payload: number of entry-only frames that are known to have ended.
pub const CLOSED: u32 = 3;
/// Payload: address of the site's exit. A call returned that is not open: a second return of
/// setjmp or vfork, or a frame opened before the trace.
pub const RESUMED: u32 = 4;
/// Payload: events lost before this one.
pub const LOST: u32 = 5;
/// Payload: TSC ticks during which the thread waited for the host: for a free chunk or for a plan.
pub const BLOCKED: u32 = 6;
/// Payload: [`crate::record::FRAME_OPEN`] and what was called. A frame that was open when the
/// stream began (fork).
pub const INHERITED: u32 = 7;
/// Payload: address of the callee: an entry-only frame without a patched call site (a signal
/// handler, a callee of code that is not patched).
pub const ENTERED: u32 = 8;
/// Written over a reserved word that an interrupted thread will never fill; payload unused.
pub const NOTHING: u32 = 9;
/// Payload: number of frames above which a signal or coroutine switched to another stack.
pub const OTHER_STACK: u32 = 10;

/// Flag in a shadow frame and in [`INHERITED`]: the frame's exit will not be seen.
pub const FRAME_OPEN: u64 = 1 << 63;

/// A word from its halves.
pub const fn word(id: u32, tsc_low: u32) -> u64 {
    (id as u64) << 32 | tsc_low as u64
}
