//! Functions of a plan whose entry is intercepted: special functions, and hooks.

use crate::layout::{byte_enum, layout};

byte_enum! {
    /// Why the entry of a function is intercepted.
    pub enum SpecialKind {
        /// It is not.
        Nothing = 0,
        /// Walks the stack: give it the original return addresses.
        Unwind = 1,
        /// As `Unwind`, by a function that only looks: the frames around it return.
        Walk = 2,
        /// execve(2).
        Exec = 3,
        /// Modules may go away (dlclose) or come to where others were (dlopen).
        Unload = 4,
        /// sigaction: the handler in its argument is a function to follow.
        Sigaction = 5,
        /// prctl(2).
        Prctl = 6,
        /// syscall(2), the libc function.
        Syscall = 7,
        /// seccomp_load(3) of libseccomp and the like: a filter is about to be set.
        Sandbox = 8,
        /// Reads its return address (dlsym): give it the original one, also when nothing is
        /// recorded any more.
        Return = 9,
        /// clone(2), the libc function.
        Clone = 10,
        /// arch_prctl(2): may set the gs base.
        ArchPrctl = 11,
        /// madvise(2): may drop patched text.
        Madvise = 12,
        /// mprotect(2): may make patched text writable.
        Protect = 13,
        /// pthread_cancel(3): the C library registers a handler.
        Cancel = 14,
        /// execveat(2).
        ExecAt = 15,
        /// fexecve(3).
        ExecFd = 16,
        /// pthread_create(3): the new thread begins in a function to follow.
        Thread = 17,
        /// A hook: recording begins here (`run -F`); its return address may be replaced.
        Root = 20,
        /// A hook: the same, but its return address stays.
        RootOpen = 21,
        /// A hook: modules have been mapped (ld.so's `_dl_debug_state`).
        Mapped = 22,
        /// No function but an instruction that calls the kernel, whose call is recorded. Its slot
        /// has the shape of [`SYSTEM_CALL_ALONE`].
        SystemCall = 23,
        /// The same, reached by a two-byte jump to a long one in padding.
        SystemCallFar = 24,
        /// An instruction that calls the kernel and is left alone; `rules` is the number of the
        /// reason.
        SystemCallRefused = 25,
        /// A function that may be a signal handler. Its text is left alone until the kernel is told
        /// of it. `rules` is 1 if the jump overwrites the beginning of one instruction only, so
        /// that no thread can be between two of its bytes.
        Handler = 26,
        /// No function but a call of one at which recording begins, where calls keep their return
        /// addresses: it is patched before its function is instrumented. `entry` is the number of
        /// its site; it has no slot here.
        RootCall = 27,
    }
}

impl SpecialKind {
    /// True of hooks, whose slot has another shape ([`HOOK_ENTRY`]).
    pub const fn is_hook(self) -> bool {
        matches!(self, Self::Root | Self::RootOpen | Self::Mapped)
    }

    /// True of what is there for a recording of system calls only.
    pub const fn is_for_system_calls(self) -> bool {
        self.is_system_call() || matches!(self, Self::Handler)
    }

    /// True of instructions that call the kernel.
    pub const fn is_system_call(self) -> bool {
        matches!(
            self,
            Self::SystemCall | Self::SystemCallFar | Self::SystemCallRefused
        )
    }
}

layout! {
    /// A function whose entry is intercepted because the agent must act before it runs.
    pub struct PlanSpecial {
        /// Entry, as offset.
        pub entry: u32,
        /// Slot in the patch area.
        pub slot: u32,
        /// Template of the slot: common call, relocated prologue, jump back.
        pub argument: u32,
        /// Offset where the jump is written: the entry, or after its endbr64.
        pub start: u32,
        /// Rules ([`crate::control::Rule`], bit by number, and [`RULE_ALWAYS`]): recording begins
        /// at this hook while one of them is open.
        pub rules: u16,
        /// A call of this hook opens these rules. Of an instruction that calls the kernel: see
        /// [`PlanSpecial::call_number`].
        pub opens: u16,
        /// A call of this hook closes these rules.
        pub closes: u16,
        /// Bytes of text covered.
        pub span: u8,
        /// Why.
        pub kind: SpecialKind,
    }
}

impl PlanSpecial {
    /// True if the jump overwrites one instruction: see [`SpecialKind::Handler`].
    pub const fn is_one_instruction(&self) -> bool {
        matches!(self.kind, SpecialKind::Handler) && self.rules != 0
    }

    /// The number of the call that this instruction makes, if that is known.
    pub const fn call_number(&self) -> Option<u32> {
        match self.opens {
            0 => None,
            more => Some(more as u32 - 1),
        }
    }

    /// What stands in `opens` for a call of this number.
    pub fn number_word(number: Option<u32>) -> u16 {
        let more = number.and_then(|number| number.checked_add(1));
        more.and_then(|more| more.try_into().ok()).unwrap_or(0)
    }

    /// What a call of this hook has to do with rules.
    pub const fn hook_rules(&self) -> HookRules {
        let is_call = self.kind.is_system_call();
        HookRules {
            obeys: self.rules,
            opens: if is_call { 0 } else { self.opens },
            closes: self.closes,
        }
    }
}

/// The rules (bit by number) that have to do with a hooked function: those that say whether its
/// calls are recorded, and those that its calls open and close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookRules {
    /// [`PlanSpecial::rules`].
    pub obeys: u16,
    /// [`PlanSpecial::opens`].
    pub opens: u16,
    /// [`PlanSpecial::closes`].
    pub closes: u16,
}

impl HookRules {
    /// Recorded whenever it is called.
    pub const ALWAYS: Self = Self {
        obeys: 1 << RULE_ALWAYS,
        opens: 0,
        closes: 0,
    };

    /// Those of either.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            obeys: self.obeys | other.obeys,
            opens: self.opens | other.opens,
            closes: self.closes | other.closes,
        }
    }

    /// True if nothing of the other is missing.
    pub const fn contains(self, other: Self) -> bool {
        self.obeys & other.obeys == other.obeys
            && self.opens & other.opens == other.opens
            && self.closes & other.closes == other.closes
    }
}

/// The rule that is always open.
pub const RULE_ALWAYS: u32 = crate::control::RULES as u32;

/// In the slot of a hook: where the entry's id points.
///
/// ```text
///   +0   lea  rsp, [rsp-8]     a replaced return address leads here
///   +5   call HOOK_EXIT        fills in the original; id of the exit = low half of (slot + 10)
///   +10  ret
///   +11  call HOOK             the text jumps here; id of the entry = low half of (slot + 16)
///   +16  moved instructions ; jmp after them, or to the slot of the site that follows them, or ret
/// ```
pub const HOOK_ENTRY_ID: u64 = 16;
/// In the slot of a hook: where the text jumps to.
pub const HOOK_ENTRY: u64 = 11;
/// In the slot of a hook: where the exit's id points.
pub const HOOK_EXIT_ID: u64 = 10;

/// In the slot of an instruction that calls the kernel: from the exit's id
/// ([`crate::plan::Template::exit_id`]) to a second way past the first, for calls that may not
/// come back here.
///
/// ```text
///   [moved instructions]
///   lea rsp, [rsp-128] ; call SYSTEM_CALL     the id of the entry points behind it
///   lea rsp, [rsp+128] ; syscall
///   lea rsp, [rsp-128] ; call SYSTEM_RETURN   the id of the exit points behind it
///   lea rsp, [rsp+128] ; jmp back
///   lea rsp, [rsp+128] ; syscall              the second way
///   mov rcx, rax ; jrcxz BACK                 a child; the kernel has changed rcx already
///   lea rsp, [rsp-128] ; call SYSTEM_RETURN   the second id of the exit points behind it
///   lea rsp, [rsp+128]
///   BACK: jmp back
///   lea rsp, [rsp+128] ; syscall ; jmp back   the third: nobody asks what comes of it
/// ```
pub const SYSTEM_CALL_ALONE: u64 = 13;
/// From the exit's id to the second one.
pub const SYSTEM_CALL_ALONE_ID: u64 = SYSTEM_CALL_ALONE + 25;
/// From the exit's id to the third way.
pub const SYSTEM_CALL_UNSEEN: u64 = SYSTEM_CALL_ALONE_ID + 13;
/// From the entry's id to the exit's.
pub const SYSTEM_CALL_EXIT: u64 = 20;
/// From the entry's id to the instruction itself; it has two bytes.
pub const SYSTEM_CALL_AT: u64 = 8;
/// Its length.
pub const SYSTEM_CALL_BYTES: u64 = 2;
