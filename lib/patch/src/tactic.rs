//! Tactics, tried in a fixed order, and the reasons for leaving a site alone.

use sptrace_code::{FunctionFlags, Site, SiteFlags, SiteKind};

/// One way of taking control at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tactic {
    /// The call instruction itself has room for a jump.
    CallInstruction = 0,
    /// The jump covers instructions before the call, which are relocated with it.
    CallBlock = 1,
    /// A tail jump with room for a jump.
    TailInstruction = 2,
    /// A short tail jump together with instructions before it.
    TailBlock = 3,
    /// The target of a conditional tail jump is changed.
    ConditionalTail = 4,
    /// The call leads to the slot and keeps its return address: entry only.
    EntryOnly = 5,
    /// A two-byte jump to padding nearby, where the long jump stands.
    Springboard = 6,
    /// The only way to the site, a conditional jump, is led to the slot.
    WayIn = 7,
}

/// Why a site is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Fewer than five bytes, and no instructions before it that could be moved.
    NoRoom = 0,
    /// The function has jumps that could not be resolved; bytes before the site may be targets.
    UnresolvedJumps = 1,
    /// The callee takes its return address off the stack.
    TakesReturnAddress = 2,
    /// The function keeps data below the stack pointer at a jump.
    RedZone = 3,
    /// An instruction form that cannot be moved.
    Unmovable = 4,
    /// A conditional jump of two bytes to another function.
    ShortConditional = 5,
    /// Excluded by a filter.
    Filtered = 6,
    /// A call through a pointer in a function without unwind information: somebody who walks the
    /// stack by other means would find a foreign return address.
    NoUnwindInformation = 7,
}

impl Tactic {
    /// All, by number.
    pub const ALL: [Self; 8] = [
        Self::CallInstruction,
        Self::CallBlock,
        Self::TailInstruction,
        Self::TailBlock,
        Self::ConditionalTail,
        Self::EntryOnly,
        Self::Springboard,
        Self::WayIn,
    ];
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CallInstruction => "call instruction",
            Self::CallBlock => "call block",
            Self::TailInstruction => "tail jump",
            Self::TailBlock => "tail jump block",
            Self::ConditionalTail => "conditional tail jump",
            Self::EntryOnly => "entry only",
            Self::Springboard => "springboard",
            Self::WayIn => "way in",
        }
    }
}

impl Refusal {
    /// All, by number.
    pub const ALL: [Self; 8] = [
        Self::NoRoom,
        Self::UnresolvedJumps,
        Self::TakesReturnAddress,
        Self::RedZone,
        Self::Unmovable,
        Self::ShortConditional,
        Self::Filtered,
        Self::NoUnwindInformation,
    ];
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoom => "no room for a jump",
            Self::UnresolvedJumps => "function with unresolved jumps",
            Self::TakesReturnAddress => "callee takes its return address",
            Self::RedZone => "data below the stack pointer",
            Self::Unmovable => "instruction cannot be moved",
            Self::ShortConditional => "two-byte conditional tail jump",
            Self::Filtered => "excluded by a filter",
            Self::NoUnwindInformation => "function without unwind information",
        }
    }
}

/// What was decided for a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Patched so.
    Taken(Tactic),
    /// Left alone.
    Refused(Refusal),
}

/// Bytes of the jump that is written.
pub const JUMP_BYTES: u64 = 5;

/// Decides for one site. `callee_reads_return` is set if the direct callee is known to look at its
/// return address.
pub fn choose(site: &Site, function: FunctionFlags, callee_reads_return: bool) -> Verdict {
    let suspect = site.flags.contains(SiteFlags::LEADER_SUSPECT);
    let red_zone = function.contains(FunctionFlags::RED_ZONE);
    let long = u64::from(site.length) >= JUMP_BYTES;
    let block = site.window_bytes() >= JUMP_BYTES;
    let short = |tactic| match (block, suspect) {
        (true, false) => Verdict::Taken(tactic),
        (true, true) => Verdict::Refused(Refusal::UnresolvedJumps),
        (false, _) if site.way_in.0 != 0 => Verdict::Taken(Tactic::WayIn),
        (false, _) => Verdict::Refused(Refusal::NoRoom),
    };
    match site.kind {
        SiteKind::CallDirect | SiteKind::CallIndirect
            if site.flags.contains(SiteFlags::CALL_NEXT_POP) =>
        {
            Verdict::Refused(Refusal::TakesReturnAddress)
        }
        SiteKind::CallDirect if callee_reads_return => Verdict::Taken(Tactic::EntryOnly),
        SiteKind::CallDirect
            if !function.contains(FunctionFlags::HAS_UNWIND) && site.got_slot.0 == 0 =>
        {
            Verdict::Taken(Tactic::EntryOnly)
        }
        SiteKind::CallDirect | SiteKind::CallIndirect
            if !function.contains(FunctionFlags::HAS_UNWIND) =>
        {
            Verdict::Refused(Refusal::NoUnwindInformation)
        }
        SiteKind::CallDirect | SiteKind::CallIndirect if long => {
            Verdict::Taken(Tactic::CallInstruction)
        }
        SiteKind::CallDirect | SiteKind::CallIndirect => short(Tactic::CallBlock),
        SiteKind::TailDirect | SiteKind::TailConditional | SiteKind::TailIndirect if red_zone => {
            Verdict::Refused(Refusal::RedZone)
        }
        SiteKind::TailConditional if site.length == 6 && site.got_slot.0 == 0 => {
            Verdict::Taken(Tactic::ConditionalTail)
        }
        SiteKind::TailConditional => Verdict::Refused(Refusal::ShortConditional),
        SiteKind::TailDirect | SiteKind::TailIndirect if long => {
            Verdict::Taken(Tactic::TailInstruction)
        }
        SiteKind::TailDirect | SiteKind::TailIndirect => short(Tactic::TailBlock),
    }
}
