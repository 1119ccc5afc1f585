//! One call site, as the analysis finds it.
//!
//! A site is an instruction that hands control to another function. Whether it can be patched is
//! for others to decide.

use sptrace_addr::Svma;

/// How a site hands over control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SiteKind {
    /// `call rel32`.
    CallDirect = 0,
    /// `call r/m64`.
    CallIndirect = 1,
    /// `jmp rel32` or `jmp rel8` to another function's entry or a PLT stub.
    TailDirect = 2,
    /// `jcc` to another function's entry or a PLT stub.
    TailConditional = 3,
    /// `jmp r/m64` that leaves the function.
    TailIndirect = 4,
    /// `syscall`: hands control to the kernel, which gives it back behind the instruction.
    SystemCall = 5,
}

impl SiteKind {
    /// The kind whose number this is.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        [
            Self::CallDirect,
            Self::CallIndirect,
            Self::TailDirect,
            Self::TailConditional,
            Self::TailIndirect,
            Self::SystemCall,
        ]
        .get(usize::from(number))
        .copied()
    }
}

/// An instruction that hands control to another function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The instruction.
    pub address: Svma,
    /// Its length in bytes, prefixes included, at most 15.
    pub length: u8,
    /// How it hands over control.
    pub kind: SiteKind,
    /// Direct target, or 0.
    pub target: Svma,
    /// GOT slot that a direct site's PLT stub jumps through; for `call/jmp [rip+x]` the slot x;
    /// else 0.
    pub got_slot: Svma,
    /// Lowest address, at most 15 bytes before `address`, from which whole plain instructions,
    /// and conditional jumps within the function that are not taken, lead to the site; `address`
    /// itself when there is none.
    pub window_start: Svma,
    /// The one six-byte conditional jump by which control comes to `window_start`, of a site
    /// without room for a jump; else 0. It may lie in another function that this one is a part of.
    pub way_in: Svma,
    /// Of a site without room for a jump: the start of a run of plain instructions of the same
    /// function, in one block and in no other site's window, that can be moved away so that a
    /// long jump finds room within a two-byte jump's reach, five bytes after the start; else 0.
    pub room: Svma,
    /// Bytes of that run, whole instructions, 10 to 24.
    pub room_bytes: u8,
    /// Of a call: bit n is set if the analysis knows of something else than the instruction before
    /// it that leads to the byte n bytes behind the call.
    pub leaders_behind: u16,
    /// What is known of it.
    pub flags: SiteFlags,
}

impl Site {
    /// A site of which no more is known.
    pub fn new(address: Svma, length: u8, kind: SiteKind) -> Self {
        Self {
            address,
            length,
            kind,
            target: Svma(0),
            got_slot: Svma(0),
            window_start: address,
            way_in: Svma(0),
            room: Svma(0),
            room_bytes: 0,
            leaders_behind: 0,
            flags: SiteFlags::default(),
        }
    }

    /// Bytes from the window's start to the end of the instruction.
    pub fn window_bytes(&self) -> u64 {
        self.address.0 - self.window_start.0 + u64::from(self.length)
    }
}

/// Bit set over a [`Site`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteFlags(pub u8);

impl SiteFlags {
    /// The callee does not return: the code after the site is not reached from it.
    pub const NO_RETURN_CALLEE: Self = Self(1);
    /// The target of a tail is certainly a function's entry.
    pub const SURE_ENTRY: Self = Self(1 << 1);
    /// A call whose target takes the return address off the stack or rewrites it at once.
    pub const CALL_NEXT_POP: Self = Self(1 << 2);
    /// The memory operand is based on rsp.
    pub const RSP_OPERAND: Self = Self(1 << 3);
    /// The function has unresolved jumps: bytes before the site may be jump targets.
    pub const LEADER_SUSPECT: Self = Self(1 << 4);

    /// All bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Sets the bits of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
