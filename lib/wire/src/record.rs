//! The records in a chunk.
//!
//! A record begins with a little-endian 8-byte word, at a multiple of 4 bytes: the low 32 bits of
//! the TSC, then a 32-bit id.
//!
//! ```text
//!   63            32 31             0
//!  +----------------+----------------+
//!  |       id       | TSC, low half  |    then 0, 4 or 8 bytes more
//!  +----------------+----------------+
//! ```
//!
//! * id >= [`CONTROL_IDS`]: the low half of the return address that a slot's `call` to a common
//!   routine pushed. The plan tells which call site, and whether that place is its entry or its
//!   exit. The entry of a call through a pointer has 4 bytes more: the low half of the callee's
//!   address. Where that is not enough, or not known to be, [`WIDE_CALLEE`] stands before it.
//! * id in [`VALUED_IDS`]: such an entry or exit together with its values, as the common routines
//!   write it: see there.
//! * id < [`CONTROL_IDS`]: a control record; each has 8 bytes of payload more, but for [`NOTHING`],
//!   [`NOTHING_NARROW`], [`LEFT_OUT`], [`PLACED`] and [`ENDED`], and those from [`SYSTEM_CALL`] to
//!   [`ACTED`], whose payload says how many bytes follow it ([`crate::values`]).
//!
//! * A call that is recorded *in order* ([`crate::plan::SITE_IN_ORDER`]) has in place of the stamp
//!   where the stack pointer stood, its low half: 16 bytes below that at the call, so that of two
//!   calls the one with the lower number is made inside of the other, as long as both are open, and
//!   all numbers that are not above that of a new call are of calls that have ended. A tail jump
//!   has the number of the call that it goes on with. There is no record of the end.
//! * Where some calls are recorded in order and others with stamps, [`PLACED`] stands before the
//!   entry of these, so that one stack of open calls serves both.
//!
//! A chunk is zero where nothing was written, so that what a killed process wrote can be read: no
//! complete record has a TSC half or an id that is zero. Holes between records are what an
//! interrupted thread has reserved and never completed: 8 bytes, all zero or a stamp without id; or
//! 12 bytes, all zero, id alone, or id and callee, without stamp; or as many as a call with values
//! has, all zero or a stamp alone.
//!
//! Time: the high half of the TSC is that of the chunk's start, or of the last [`ANCHOR`].

/// Ids below this are control records.
pub const CONTROL_IDS: u32 = 0x1_0000;
/// Ids of records of a call or of its return that have the values, too. Bits 0 to 5 are the halves
/// of words behind the id: the low half of the slot's return address, which says whether a call
/// begins or ends; of a call through a pointer, the low half of the callee's address; then the
/// words, of the return rax, and if more is wanted rdx and the lower half of xmm0. Bits 6 to 23 are
/// the number of their description, or [`NO_VALUED_NUMBER`]: what stands there is to be passed
/// over, since it is not complete yet, or never will be. The writer puts the stamp in its place
/// first, then the id that says so, then all else, and then the id proper. So what has such an id
/// has a stamp as well.
pub const VALUED_IDS: core::ops::Range<u32> = 0x100_0000..0x200_0000;
/// Where the number stands in one of [`VALUED_IDS`].
pub const VALUED_NUMBER_SHIFT: u32 = 6;
/// The bits of one of [`VALUED_IDS`] that say how many halves follow it.
pub const VALUED_HALVES: u32 = (1 << VALUED_NUMBER_SHIFT) - 1;
/// See [`VALUED_IDS`]; all other numbers are below it.
pub const NO_VALUED_NUMBER: u32 = (1 << 18) - 1;
/// No patch area lies where the low half of an address is below this.
pub const SLOT_IDS: u32 = VALUED_IDS.end;

/// One of [`VALUED_IDS`]: so many halves follow.
pub const fn valued_id(number: u32, halves: u32) -> u32 {
    VALUED_IDS.start | number << VALUED_NUMBER_SHIFT | halves
}

/// Payload: the full TSC. The high half changed, or calls in order need a time. Where it is earlier
/// than the record's own stamp, nothing was recorded between the two.
pub const ANCHOR: u32 = 1;
/// Payload: number of frames left by longjmp or throw; they have no exit record.
pub const UNWOUND: u32 = 2;
/// Payload: number of frames without an exit record that are known to have ended.
pub const CLOSED: u32 = 3;
/// Payload: address of the site's exit. A call returned that is not open: a second return of
/// setjmp or vfork, or a frame opened before the trace.
pub const RESUMED: u32 = 4;
/// Payload: events lost before this one.
pub const LOST: u32 = 5;
/// Payload: TSC ticks during which the thread waited for the host: for a free chunk or for a plan.
pub const BLOCKED: u32 = 6;
/// Two records of a frame that was open when the stream began. Payload of the first: what the
/// shadow stack has for its id, with [`FRAME_FOUND`] if it was found on the stack of a running
/// thread and its end is seen, or [`FRAME_OPEN`] alone if it was found and is not; of the second:
/// what was called.
pub const INHERITED: u32 = 7;
/// Payload: address of the callee: an entry-only frame without a patched call site (a signal
/// handler, a callee of code that is not patched).
pub const ENTERED: u32 = 8;
/// Written over a reserved record of 8 bytes that an interrupted thread will never complete.
pub const NOTHING: u32 = 9;
/// Payload: low half: what a call that is recorded in order would have in place of the stamp; it is
/// that of the [`ENTERED`] that follows.
pub const AT_STACK: u32 = 10;
/// As [`NOTHING`], of 12 bytes.
pub const NOTHING_NARROW: u32 = 11;
/// Payload: full address of the callee of the entry that follows.
pub const WIDE_CALLEE: u32 = 12;

/// A call of the kernel begins. Low half of the payload: its number, with [`CALL_ALONE`]; high
/// half: bytes that follow, a multiple of 4.
pub const SYSTEM_CALL: u32 = 13;
/// A call of the kernel has returned, or will not: low half of the payload: [`RETURNED`] and so on;
/// high half: bytes that follow.
pub const SYSTEM_RETURN: u32 = 14;

/// A call whose entry has just been recorded has brought values: low half of the payload: the
/// number of its description; high half: bytes that follow ([`crate::values`]).
pub const CALL_VALUES: u32 = 15;
/// The same of a call whose exit is recorded next: rax, rdx, the lower half of xmm0 and errno, then
/// pieces; or rax alone.
pub const RETURN_VALUES: u32 = 16;

/// A signal is delivered to a handler. Low half of the payload: its number; high half: bytes that
/// follow ([`crate::values`]).
pub const SIGNAL: u32 = 17;

/// A payload has changed what the program does at the call whose entry has just been recorded. Low
/// half of the payload: bits ([`ACTED_RESULT`] and so on); high half: bytes that follow: a word for
/// each of the first four bits.
pub const ACTED: u32 = 18;
/// In [`ACTED`]: the call is not made, and its result is this.
pub const ACTED_RESULT: u32 = 1;
/// In [`ACTED`]: the call is not made, and errno is this.
pub const ACTED_ERRNO: u32 = 2;
/// In [`ACTED`]: the thread has waited before the call, so many nanoseconds.
pub const ACTED_DELAY: u32 = 4;
/// In [`ACTED`]: this signal was raised in the thread before the call.
pub const ACTED_SIGNAL: u32 = 8;
/// In [`ACTED`]: it could not be done, but for what the other bits say.
pub const ACTED_NOT: u32 = 16;
/// In [`ACTED`]: the call is the kernel's.
pub const ACTED_SYSTEM: u32 = 32;

/// The [`SYSTEM_CALL`] right before it is not wanted, as its result or its length says, and there
/// will be no [`SYSTEM_RETURN`] of it. It has no payload, and the stamp is no time.
pub const LEFT_OUT: u32 = 19;

/// In the place of the stamp: where the stack pointer stood at the call whose entry follows, as in
/// the record of one in order. It has no payload.
pub const PLACED: u32 = 20;

/// The innermost frame is known to have ended, as [`CLOSED`] says it of one. It has no payload.
pub const ENDED: u32 = 22;
/// Payload: the number of a lane, which begins here; the one that the stream was before has ended.
pub const LANE: u32 = 21;

/// So far below the stack pointer at a call is what [`PLACED`], [`AT_STACK`] and [`SYSTEM_CALL`]
/// say of it: where it stands in the slot of a call in order when that writes its record.
pub const PLACE_BELOW_BYTES: u64 = 16;

/// In the number of a [`SYSTEM_CALL`]: nothing is nested in it, and its return may be seen later or
/// never.
pub const CALL_ALONE: u32 = 1 << 31;
/// Of a [`SYSTEM_RETURN`]: it has returned.
pub const RETURNED: u32 = 0;
/// Of a [`SYSTEM_RETURN`]: it was left, as by a longjmp out of a handler.
pub const LEFT: u32 = 1;
/// Of a [`SYSTEM_RETURN`]: one that was told by [`CALL_ALONE`], or before the recording, has
/// returned.
pub const RETURNED_LATE: u32 = 2;

/// Flag in a shadow frame and in [`INHERITED`]: the frame's exit will not be seen.
pub const FRAME_OPEN: u64 = 1 << 63;
/// Flag in [`INHERITED`]: the process was not forked in this call, but attached to.
pub const FRAME_FOUND: u64 = 1 << 62;
/// Flag in a shadow frame, with [`FRAME_OPEN`]: a call of the kernel; what was called is its
/// number.
pub const FRAME_SYSTEM: u64 = 1 << 61;

/// Flag in a shadow frame, with [`FRAME_OPEN`]: no call, but what the call below it has to keep
/// until its values are recorded.
pub const FRAME_VALUES: u64 = 1 << 60;

/// A word from its halves. A stamp of zero becomes one. The fast path has none: it stamps only
/// while the high half is that of the last reading in the slow path, so that reading is not later,
/// nor is a zero. Should a handler come in that very tick or the clock step back by just so much,
/// `hole.rs` of the host still finds the next record.
pub const fn word(id: u32, tsc_low: u32) -> u64 {
    let stamp = if tsc_low == 0 { 1 } else { tsc_low };
    (id as u64) << 32 | stamp as u64
}
