//! Values: what the agent reads of a system call's arguments, results and memory, and how it
//! writes them.
//!
//! The host puts one table into the arena ([`crate::control::Control::captures_offset`]), which
//! says for each number what to read; it is made of `sptrace-types`, whose words are used here.
//!
//! ```text
//! table    = CaptureTable, CallCaptures * calls, then what these point to, in any order:
//!            Arm * arms (the first is for all other arguments), u64 * values, Load * loads
//! record   = the 16 bytes of SYSTEM_CALL and so on (see [`crate::record`]), then
//!            SYSTEM_CALL:   thread u32 (0: the stream's own), place u32 (where the stack pointer
//!                           stood, as [`crate::record::PLACED`] says it; 0: not known),
//!                           argument u64 * 6
//!            SYSTEM_RETURN: number u32 ([`UNKNOWN_NUMBER`]: not known), reserved u32, result i64
//!            SIGNAL:        thread u32, reserved u32; its pieces are the siginfo_t (Before), if
//!                           the handler has asked for it, and of what the handler goes back to
//!                           (AfterAll) rax, rcx, rsp and rip, and the signal mask, if the end
//!                           of handlers (rt_sigreturn) is wanted; then what SYSTEM_RETURN will
//!                           have of the call that the signal has interrupted at its end
//!            piece *, END u32
//! piece    = Piece, bytes, filling to a multiple of 4
//! ```
//! A SYSTEM_CALL is left out if LEFT_OUT follows it, which is so only if nothing else came between.
//! END is written last: a record without it was being written when its thread was killed.
//! All offsets count from the table's first byte. Both sides check every one of them.

use crate::layout::{byte_enum, layout};

/// The most bytes of a record's pieces.
pub const PIECES_BYTES: usize = 32 << 10;
/// What ends a record.
pub const END: u32 = 0x2e64_6e65;
/// Of a [`crate::record::SYSTEM_RETURN`]: the call was not seen.
pub const UNKNOWN_NUMBER: u32 = u32::MAX;
/// Bytes before the pieces of a [`crate::record::SYSTEM_CALL`].
pub const CALL_BYTES: usize = 56;
/// Bytes before the pieces of a [`crate::record::SYSTEM_RETURN`].
pub const RETURN_BYTES: usize = 16;
/// Descriptors that have a bit in [`CaptureTable::asked_at`].
pub const DESCRIPTORS: u32 = 1024;
/// In [`CaptureTable::unwanted`]: calls that have failed.
pub const UNWANTED_FAILED: u8 = 1;
/// In [`CaptureTable::unwanted`]: calls that have not failed.
pub const UNWANTED_SUCCESSFUL: u8 = 2;
/// In [`CaptureTable::unwanted`]: calls that took less than [`CaptureTable::least_ticks`].
pub const UNWANTED_SHORT: u8 = 4;
/// Bytes before the pieces of a [`crate::record::SIGNAL`].
pub const SIGNAL_BYTES: usize = 8;
/// The results that are errors, as the kernel returns them.
pub const ERRORS: core::ops::Range<i64> = -4095..0;

layout! {
    /// Head of the table.
    pub struct CaptureTable {
        /// Numbers from 0 on that it has a [`CallCaptures`] of.
        pub calls: u32,
        /// Where the set of descriptors is to which recorded calls are bound, a bit for each of the
        /// first [`DESCRIPTORS`], from the lowest bit on; 0: they are not.
        pub asked_at: u32,
        /// 1: the descriptors above belong to the set.
        pub asked_above: u8,
        /// Calls that are left out when they have ended: bits, [`UNWANTED_FAILED`] and so on.
        pub unwanted: u8,
        /// Calls that have descriptors ([`CallCaptures::descriptors`]) must be on one that may lead
        /// to one of so many paths; 0: they need not.
        pub paths: u32,
        /// Where these are, each as its length (u32) and its bytes.
        pub paths_at: u32,
        /// Ticks of the time stamp counter that a call must take to be wanted, if that is asked.
        pub least_ticks: u64,
    }
}

layout! {
    /// What is to be done for one number.
    pub struct CallCaptures {
        /// Where its [`Arm`]s are.
        pub arms_at: u32,
        /// How many.
        pub arms: u16,
        /// 1: the call is recorded.
        pub is_wanted: u8,
        /// The argument that selects the arm.
        pub selector: u8,
        /// A second one, which selects together with the first; 255: none.
        pub second: u8,
        /// 1: a payload runs at the call.
        pub has_payload: u8,
        /// The bits of the first that select.
        pub mask: u64,
        /// Which arguments are descriptors: bits by their number. Where paths are asked for: of
        /// calls that are about descriptors alone, and tell nothing of what others lead to.
        pub descriptors: u8,
    }
}

layout! {
    /// What is read for some arguments.
    pub struct Arm {
        /// Where the values of the key are.
        pub values_at: u32,
        /// How many.
        pub values: u32,
        /// Where its [`Load`]s are.
        pub loads_at: u32,
        /// How many.
        pub loads: u32,
    }
}

byte_enum! {
    /// When memory is read.
    pub enum When {
        /// Before the call.
        Before = 0,
        /// After it, unless it failed.
        After = 1,
        /// After it.
        AfterAll = 2,
    }
}

byte_enum! {
    /// Where a load begins.
    pub enum Begin {
        /// At the address that is argument `from`.
        Argument = 0,
        /// At each pointer that is `offset` into each element, of `stride` bytes, of what load
        /// `from` has brought.
        Pointers = 1,
    }
}

byte_enum! {
    /// Where a load ends, at the latest after `most` bytes.
    pub enum Until {
        /// After a byte 0.
        String = 0,
        /// After eight bytes 0 at a multiple of eight.
        Null = 1,
        /// After `each` bytes times the count.
        Count = 2,
    }
}

byte_enum! {
    /// Where a count comes from.
    pub enum Count {
        /// It is `count`.
        Constant = 0,
        /// Argument `count_from`, its low half.
        Argument = 1,
        /// The product of the arguments `count_from` and `count`.
        Product = 2,
        /// The result.
        Result = 3,
        /// The lesser of the result and argument `count_from`.
        Lesser = 4,
        /// A number of `count_from` bytes, `count` bytes into the element that holds the pointer.
        Field = 5,
        /// The number of 4 bytes that argument `count_from` points to.
        Behind = 6,
    }
}

layout! {
    /// Memory to be read.
    pub struct Load {
        /// When.
        pub when: When,
        /// Where.
        pub begin: Begin,
        /// Which argument or load.
        pub from: u8,
        /// Bytes of the pointers' elements.
        pub stride: u16,
        /// Bytes before the pointer in each.
        pub offset: u16,
        /// How far.
        pub until: Until,
        /// How many, if that is counted.
        pub count_kind: Count,
        /// See [`Count`].
        pub count_from: u8,
        /// See [`Count`].
        pub count: u32,
        /// Bytes of each.
        pub each: u32,
        /// The most bytes.
        pub most: u32,
        /// 1: only if the condition's argument has one of `bits`; 2: only if it has none; 0:
        /// always.
        pub condition: u8,
        /// The condition's argument.
        pub condition_of: u8,
        /// See `condition`.
        pub bits: u64,
    }
}

layout! {
    /// Head of a piece of memory.
    pub struct Piece {
        /// Where it lay.
        pub address: u64,
        /// How many bytes follow; fewer than asked for if memory ended.
        pub bytes: u32,
        /// Which load of the arm has brought it.
        pub load: u16,
        /// When.
        pub when: When,
        /// 1: there was no room for all of it.
        pub is_cut: u8,
    }
}

/// The table, from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct CaptureView<'a> {
    bytes: &'a [u8],
}

impl<'a> CaptureView<'a> {
    /// Of a table's bytes, and maybe some more.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What is to be done for a call. `None`: it is not known.
    #[inline]
    pub fn call(&self, number: u32) -> Option<CallCaptures> {
        let head = CaptureTable::read(self.bytes)?;
        let at = CaptureTable::BYTES + number as usize * CallCaptures::BYTES;
        let is_there = number < head.calls;
        is_there.then(|| CallCaptures::read(self.bytes.get(at..)?))?
    }

    /// The table's head.
    #[inline]
    pub fn head(&self) -> Option<CaptureTable> {
        CaptureTable::read(self.bytes)
    }

    /// True if a call with these arguments is on a descriptor that is asked for, or all are.
    pub fn is_asked(&self, call: &CallCaptures, args: &[u64]) -> bool {
        let Some(head) = self.head().filter(|head| head.asked_at != 0) else {
            return true;
        };
        let is_in_set = |fd: u32| {
            let byte = self.bytes.get((head.asked_at + fd / 8) as usize);
            byte.is_some_and(|byte| byte & 1 << (fd % 8) != 0)
        };
        let is_asked = |(i, fd): (usize, u32)| {
            let is_descriptor = i < 8 && call.descriptors & 1 << i != 0;
            is_descriptor
                && match fd {
                    DESCRIPTORS.. => head.asked_above != 0 && fd <= i32::MAX as u32,
                    fd => is_in_set(fd),
                }
        };
        args.iter().map(|arg| *arg as u32).enumerate().any(is_asked)
    }

    /// The paths that calls must be on, as the head says.
    pub fn paths(self, head: &CaptureTable) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.bytes.get(head.paths_at as usize..).unwrap_or(&[]);
        (0..head.paths).map_while(move |_| {
            let (length, bytes) = rest.split_first_chunk()?;
            let (path, behind) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(path)
        })
    }

    /// The arm that these arguments select.
    #[inline]
    pub fn arm(&self, call: &CallCaptures, args: &[u64]) -> Option<Arm> {
        let argument = |i: u8| args.get(i as usize).copied().unwrap_or(0);
        let mut key = argument(call.selector) & call.mask;
        if call.second != u8::MAX {
            key = key << 32 | argument(call.second) & 0xffff_ffff;
        }
        let arm = |i: u16| {
            let at = call.arms_at as usize + i as usize * Arm::BYTES;
            Arm::read(self.bytes.get(at..)?)
        };
        let is_selected = |arm: &Arm| self.values(*arm).any(|value| value == key);
        let mut others = (1..call.arms).filter_map(arm);
        others.find(is_selected).or_else(|| arm(0))
    }

    /// The keys of an arm.
    #[inline]
    pub fn values(self, arm: Arm) -> impl Iterator<Item = u64> + use<'a> {
        (0..arm.values).filter_map(move |i| {
            let at = arm.values_at as usize + i as usize * size_of::<u64>();
            Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
        })
    }

    /// All of a call's arms.
    pub fn arms(self, call: &CallCaptures) -> impl Iterator<Item = Arm> + use<'a> {
        let first = call.arms_at as usize;
        let arm = move |i| Arm::read(self.bytes.get(first + usize::from(i) * Arm::BYTES..)?);
        (0..call.arms).filter_map(arm)
    }

    /// A load of an arm.
    #[inline]
    pub fn load(&self, arm: &Arm, i: u32) -> Option<Load> {
        let at = arm.loads_at as usize + i as usize * Load::BYTES;
        let is_there = i < arm.loads;
        is_there.then(|| Load::read(self.bytes.get(at..)?))?
    }
}

/// The pieces in the bytes that follow a record's head, without END; each with its bytes.
pub fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = (Piece, &[u8])> {
    core::iter::from_fn(move || {
        let piece = Piece::read(bytes)?;
        let rest = bytes.get(Piece::BYTES..)?;
        let found = rest.get(..piece.bytes as usize)?;
        let filled = (piece.bytes as usize).next_multiple_of(4);
        bytes = rest.get(filled..).unwrap_or(&[]);
        Some((piece, found))
    })
}
