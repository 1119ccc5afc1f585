//! Tactics, tried in a fixed order, and the reasons for leaving a site alone.

use crate::kept::Keep;
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
    /// A two-byte jump to where instructions nearby stood that were moved away.
    MadeRoom = 8,
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
    /// A call through a pointer in code that may belong to a runtime that walks its stacks by
    /// return addresses, with maps of its own: it would find a foreign one.
    OwnStackMaps = 7,
    /// The program copies the code and runs the copy.
    CopiedCode = 8,
    /// The end of a signal handler, which unwinders and debuggers know by its bytes.
    SignalReturn = 9,
    /// The thread ends there, and has no stack any more.
    GivesStackBack = 10,
}

impl Tactic {
    /// All, by number.
    pub const ALL: [Self; 9] = [
        Self::CallInstruction,
        Self::CallBlock,
        Self::TailInstruction,
        Self::TailBlock,
        Self::ConditionalTail,
        Self::EntryOnly,
        Self::Springboard,
        Self::WayIn,
        Self::MadeRoom,
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
            Self::MadeRoom => "made room",
        }
    }
}

impl Refusal {
    /// All, by number.
    pub const ALL: [Self; 11] = [
        Self::NoRoom,
        Self::UnresolvedJumps,
        Self::TakesReturnAddress,
        Self::RedZone,
        Self::Unmovable,
        Self::ShortConditional,
        Self::Filtered,
        Self::OwnStackMaps,
        Self::CopiedCode,
        Self::SignalReturn,
        Self::GivesStackBack,
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
            Self::OwnStackMaps => "code of a runtime that may walk its own stacks",
            Self::CopiedCode => "generated code that the program may copy and run elsewhere",
            Self::SignalReturn => "end of a signal handler, which is known by its bytes",
            Self::GivesStackBack => "end of a thread that has given its stack back",
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
/// return address, `keep` is what must stay in its function.
pub fn choose(
    site: &Site,
    function: FunctionFlags,
    callee_reads_return: bool,
    keep: Keep,
) -> Verdict {
    if keep == Keep::Bytes {
        return Verdict::Refused(Refusal::CopiedCode);
    }
    let keeps_returns = keep == Keep::Returns;
    let is_call = matches!(site.kind, SiteKind::CallDirect | SiteKind::CallIndirect);
    if is_call {
        if site.flags.contains(SiteFlags::CALL_NEXT_POP) {
            return Verdict::Refused(Refusal::TakesReturnAddress);
        }
        let is_plain = site.kind == SiteKind::CallDirect && site.got_slot.0 == 0;
        // What lies below rsp may be an argument, and the way through a slot pushes there.
        if function.contains(FunctionFlags::RED_ZONE) {
            return Verdict::Refused(Refusal::RedZone);
        }
        if keeps_returns && !is_plain {
            return Verdict::Refused(Refusal::OwnStackMaps);
        }
        if keeps_returns || site.kind == SiteKind::CallDirect && callee_reads_return {
            return Verdict::Taken(Tactic::EntryOnly);
        }
    } else if function.contains(FunctionFlags::RED_ZONE) {
        return Verdict::Refused(Refusal::RedZone);
    }
    let is_long = u64::from(site.length) >= JUMP_BYTES;
    match site.kind {
        SiteKind::TailConditional if site.length == 6 => Verdict::Taken(Tactic::ConditionalTail),
        SiteKind::TailConditional if site.length == 2 && site.room.0 != 0 => {
            Verdict::Taken(Tactic::MadeRoom)
        }
        SiteKind::TailConditional if site.length == 2 => {
            Verdict::Refused(Refusal::ShortConditional)
        }
        // Prefixes.
        SiteKind::TailConditional => Verdict::Refused(Refusal::Unmovable),
        _ if is_long && is_call => Verdict::Taken(Tactic::CallInstruction),
        _ if is_long => Verdict::Taken(Tactic::TailInstruction),
        _ if is_call => choose_short(site, Tactic::CallBlock),
        _ => choose_short(site, Tactic::TailBlock),
    }
}

fn choose_short(site: &Site, block: Tactic) -> Verdict {
    let is_suspect = site.flags.contains(SiteFlags::LEADER_SUSPECT);
    match site.window_bytes() >= JUMP_BYTES {
        true if is_suspect => Verdict::Refused(Refusal::UnresolvedJumps),
        true => Verdict::Taken(block),
        false if site.way_in.0 != 0 => Verdict::Taken(Tactic::WayIn),
        false if site.room.0 != 0 => Verdict::Taken(Tactic::MadeRoom),
        false => Verdict::Refused(Refusal::NoRoom),
    }
}
