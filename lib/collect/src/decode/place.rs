//! What one place in a patch area means.
//!
//! Given a number of four bytes; says which event it stands for, and of which site or function.
//! Must not know where it lies.

use sptrace_trace::FunctionId;
use sptrace_wire::control::ARENA_BYTES;
use sptrace_wire::plan::PlanSite;

/// What an id stands for. In four bytes, because the table of places is the largest thing that is
/// read for each event, and what of it is in the caches decides what the event costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place(pub(super) u32);

/// A kind takes the bits below; a site or a function the rest.
const KIND_BITS: u32 = 6;
/// Of these: the number is that of a function, not of a site.
const NAMED: u32 = 32;
/// Every site has a number: a plan lies in the arena.
const _: () = assert!(ARENA_BYTES / (PlanSite::BYTES as u64) < 1 << (32 - KIND_BITS));

impl Place {
    #[inline]
    pub(super) fn of_site(kind: u8, site: u32) -> Self {
        Self(site << KIND_BITS | u32::from(kind))
    }

    /// The number of its site, or of its callee.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.0 >> KIND_BITS
    }

    /// With its direct callee; unchanged if that has too large a number.
    pub(super) fn named(self, callee: FunctionId) -> Self {
        if callee.0 >= 1 << (32 - KIND_BITS) {
            return self;
        }
        Self(callee.0 << KIND_BITS | NAMED | u32::from(self.kind()))
    }

    /// The same with the callee of an indirect one; None if that has too large a number.
    #[inline]
    pub fn resolved(self, callee: FunctionId) -> Option<Self> {
        let kind = u32::from(self.kind() & !PLACE_INDIRECT);
        let place = Self(callee.0 << KIND_BITS | NAMED | kind);
        (callee.0 < 1 << (32 - KIND_BITS)).then_some(place)
    }

    /// A call of, or a tail jump to, a known function, or an exit.
    #[inline]
    pub fn is_plain(self) -> bool {
        const fn named(kind: u8) -> u64 {
            1 << (NAMED | kind as u32)
        }
        // One decision: which of these it is nobody could foretell.
        const PLAIN: u64 = named(PLACE_ENTRY) | named(PLACE_ENTRY | PLACE_TAIL) | 1 << PLACE_EXIT;
        PLAIN >> (self.0 % (1 << KIND_BITS)) & 1 != 0
    }

    /// A tail jump.
    #[inline]
    pub fn is_tail(self) -> bool {
        self.0 & u32::from(PLACE_TAIL) != 0
    }

    /// A call or jump that is recorded in order.
    #[inline]
    pub fn is_in_order(self) -> bool {
        self.kind() & PLACE_IN_ORDER == PLACE_IN_ORDER
    }

    /// The end of a call.
    #[inline]
    pub fn exit() -> Self {
        Self(u32::from(PLACE_EXIT))
    }

    /// No event, but the beginning of a span of time that has this number.
    #[inline]
    pub fn span(number: u32) -> Self {
        Self::of_site(SPAN, number)
    }

    /// The number of the span that begins here.
    #[inline]
    pub fn as_span(self) -> Option<usize> {
        (self.kind() == SPAN).then_some(self.number() as usize)
    }

    /// The beginning of a call or of what one goes on with, of a known function.
    #[inline]
    pub fn entry(callee: FunctionId, is_tail: bool) -> Option<Self> {
        let kind = if is_tail {
            PLACE_ENTRY | PLACE_TAIL
        } else {
            PLACE_ENTRY
        };
        Self::of_site(kind, 0).resolved(callee)
    }

    /// `PLACE_*` bits.
    #[inline]
    pub fn kind(self) -> u8 {
        (self.0 & (NAMED - 1)) as u8
    }

    /// The trace's number of the direct callee, once it is resolved.
    #[inline]
    pub fn callee(self) -> Option<FunctionId> {
        (self.0 & NAMED != 0).then_some(FunctionId(self.0 >> KIND_BITS))
    }
}

/// [`Place::kind`] of [`Place::span`]: no plan has it.
const SPAN: u8 = PLACE_EXIT | PLACE_TAIL;
/// [`Place::kind`]: an entry.
pub const PLACE_ENTRY: u8 = 1;
/// [`Place::kind`]: an exit.
pub const PLACE_EXIT: u8 = 2;
/// [`Place::kind`]: a tail jump.
pub const PLACE_TAIL: u8 = 4;
/// [`Place::kind`], with the bits of an entry: it is recorded in order.
pub const PLACE_IN_ORDER: u8 = PLACE_ENTRY | PLACE_EXIT;
/// [`Place::kind`]: the low half of the callee follows.
pub const PLACE_INDIRECT: u8 = 8;
/// [`Place::kind`]: its exit will not be seen.
pub const PLACE_OPEN: u8 = 16;
