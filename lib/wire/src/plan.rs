//! The plan of one module: what the host found out about its code, in the form that the agent
//! applies without decoding an instruction.
//!
//! A plan is position-independent: addresses are offsets from `base_svma`. The agent finds a
//! function by binary search, and for each of its sites writes a *slot* (the generated code,
//! in the patch area) and then the jump to it (in the text).
//!
//! A direct call's slot, which the agent writes from its template (offsets from the slot; the
//! wired rel32 lies in one aligned word so that one store re-wires it):
//!
//! ```text
//!   +0   3 bytes   int3 filling
//!   +3   call first/entry    id of the entry = low half of (slot + 8)
//!   +8   call CALLEE
//!   +13  call exit           id of the exit  = low half of (slot + 18)
//!   +18  jmp  back
//! ```
//!
//! All other slots come as bytes and fixups ([`Template`]).

/// First four bytes of a plan.
pub const PLAN_MAGIC: u32 = 0x4e4c_5053;
/// Version of the plan's bytes; part of the cache key.
pub const PLAN_VERSION: u32 = 39;

/// Start of a plan. Sections follow, each at its offset from the plan's start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanHeader {
    /// [`PLAN_MAGIC`].
    pub magic: u32,
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Bytes of the whole plan.
    pub total_bytes: u32,
    /// Bytes of the patch area that all slots need together, common routines included.
    pub area_bytes: u32,
    /// Svma that all offsets count from (page-aligned).
    pub base_svma: u64,
    /// Executable bytes: first svma offset.
    pub text_start: u32,
    /// Executable bytes: end svma offset.
    pub text_end: u32,
    /// Number of [`PlanFunction`]s, sorted by entry.
    pub functions: u32,
    /// Offset of the functions.
    pub functions_offset: u32,
    /// Number of [`PlanSite`]s.
    pub sites: u32,
    /// Offset of the sites.
    pub sites_offset: u32,
    /// Number of u32 links.
    pub links: u32,
    /// Offset of the links.
    pub links_offset: u32,
    /// Number of [`PlanSpecial`]s, sorted by entry.
    pub specials: u32,
    /// Offset of the specials.
    pub specials_offset: u32,
    /// Bytes of templates.
    pub blob_bytes: u32,
    /// Offset of the templates.
    pub blob_offset: u32,
    /// Offset from `base_svma` of the program's entry point, or 0.
    pub entry: u32,
    /// PLT stubs: first svma offset. A lazily bound slot points in here at first.
    pub plt_start: u32,
    /// PLT stubs: end svma offset.
    pub plt_end: u32,
    /// Host: of all the plan's bytes and the agent that will apply it; see [`PlanHeader::area_key`].
    pub hash: u32,
}

impl PlanHeader {
    /// What tells the areas of two plans apart.
    pub const fn area_key(&self) -> u64 {
        self.hash as u64 | (self.total_bytes as u64) << 32
    }
}

/// First bytes of a patch area. One that an agent has left behind is known by it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AreaHeader {
    /// Agent: where the slow path begins.
    pub door: u64,
    /// Agent: wirings done in this area.
    pub wirings: u64,
    /// Agent: [`AREA_MAGIC`].
    pub magic: u64,
    /// Agent: [`PlanHeader::area_key`] of the plan whose slots it holds.
    pub key: u64,
    /// Agent: where the module lies: avma of the plan's `base_svma`.
    pub base: u64,
    /// Agent, when it goes: bytes that have been written; 0 before.
    pub used: u64,
    /// Agent, when it goes: the table of return addresses that hooks have replaced, or 0.
    pub originals: u64,
    /// Agent: where the slow path begins, also when `door` is another.
    pub agent_door: u64,
    /// Agent, when it goes: the table of instrumented entries, which thread blocks point at.
    pub table: u64,
}

/// [`AreaHeader::magic`].
pub const AREA_MAGIC: u64 = 0x6165_7261_7274_7073;

/// One function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanFunction {
    /// Entry, as offset.
    pub entry: u32,
    /// Index of its first site.
    pub first_site: u32,
    /// Index of its first link: functions to instrument together with it.
    pub first_link: u32,
    /// Number of sites.
    pub site_count: u16,
    /// Number of links.
    pub link_count: u8,
    /// `FN_*`.
    pub flags: u8,
}

/// [`PlanFunction::flags`]: reads its own return address: never give it a foreign one.
pub const FN_RETURN_ADDRESS: u8 = 1;
/// [`PlanFunction::flags`]: excluded by a filter: its sites are not patched.
pub const FN_MUTED: u8 = 2;
/// [`PlanFunction::flags`]: it may end in a jump to a function that reads its return address, or to
/// one that is not known.
pub const FN_TAILS: u8 = 4;
/// [`PlanFunction::flags`]: ld.so's lazy resolver: its tail jump to the resolved function is patched
/// from the start; its other sites only when the loader's work is wanted.
pub const FN_RESOLVER: u8 = 8;

/// [`PlanFunction::flags`]: it jumps to places that the analysis could not find out: calls in them
/// are not seen.
pub const FN_UNRESOLVED: u8 = 16;
/// [`PlanFunction::flags`]: sets the gs base or uses memory relative to it: nothing may be recorded once
/// it runs.
pub const FN_USES_GS: u8 = 32;
/// [`PlanFunction::flags`]: a runtime may look up return addresses that lie in it: they must stay.
pub const FN_RUNTIME: u8 = 64;

/// One call site or tail jump, patched or refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanSite {
    /// Offset of the first byte overwritten (may lie before the call).
    pub start: u32,
    /// Offset of its slot in the patch area.
    pub slot: u32,
    /// [`FORM_DIRECT`]: offset of the callee. [`FORM_TEMPLATE`]: offset into the templates.
    pub argument: u32,
    /// Bytes of text covered, at least 5.
    pub span: u8,
    /// `FORM_*`.
    pub form: u8,
    /// Tactic number; for [`FORM_REFUSED`] the refusal number. Counted, not interpreted.
    pub tactic: u8,
    /// `SITE_*`.
    pub flags: u8,
}

/// [`PlanSite::form`]: left alone.
pub const FORM_REFUSED: u8 = 0;
/// [`PlanSite::form`]: a 5-byte direct call with the slot shown above.
pub const FORM_DIRECT: u8 = 1;
/// [`PlanSite::form`]: slot made from a [`Template`].
pub const FORM_TEMPLATE: u8 = 2;

/// A tail jump: recorded as [`SITE_TAIL`].
pub const SITE_TAIL: u8 = 1;
/// Its callee is recorded in a word of its own.
pub const SITE_INDIRECT: u8 = 2;
/// Entry-only: the return address on the stack is the original one.
pub const SITE_ENTRY_ONLY: u8 = 4;
/// The text keeps a `call` opcode (to the slot), so that the return address is pushed natively.
pub const SITE_KEEP_CALL: u8 = 8;
/// The text keeps its opcode byte at `start` (the second byte of `jcc rel32`).
pub const SITE_KEEP_OPCODE: u8 = 16;
/// A two-byte jump at the site (with [`SITE_KEEP_OPCODE`] a conditional one) leads to a springboard
/// in padding, or where moved instructions stood, from which the long jump leaves.
pub const SITE_SPRINGBOARD: u8 = 32;
/// The moved instructions at the start of the slot may be begun again after any part of them.
pub const SITE_REPEATABLE: u8 = 64;

/// Its bytes lie under a hook, whose slot leads to the site's slot: the slot is written with the hook,
/// the text is left alone.
pub const SITE_IN_HOOK: u8 = 128;

/// Bytes of a direct call's slot.
pub const DIRECT_SLOT_BYTES: u32 = 24;
/// Where the text jumps to in a direct call's slot.
pub const DIRECT_ENTRY: u32 = 3;
/// Where the agent puts the first slot: after the common routines of the area.
pub const SLOTS_START: u32 = 0x1000;

/// A function whose entry is intercepted because the agent must act before it runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanSpecial {
    /// Entry, as offset.
    pub entry: u32,
    /// `SPECIAL_*`.
    pub kind: u32,
    /// Slot in the patch area.
    pub slot: u32,
    /// Template of the slot: common call, relocated prologue, jump back.
    pub argument: u32,
    /// Offset where the jump is written: the entry, or after its endbr64.
    pub start: u32,
    /// Bytes of text covered.
    pub span: u32,
}

/// [`PlanSpecial::kind`]: walks the stack: give it the original return addresses.
pub const SPECIAL_UNWIND: u32 = 1;
/// As SPECIAL_UNWIND, by a function that only looks: the frames around it return.
pub const SPECIAL_WALK: u32 = 2;
/// [`PlanSpecial::kind`]: execve and fexecve.
pub const SPECIAL_EXEC: u32 = 3;
/// [`PlanSpecial::kind`]: modules may go away (dlclose) or come to where others were (dlopen).
pub const SPECIAL_UNLOAD: u32 = 4;
/// [`PlanSpecial::kind`]: sigaction: the handler in its argument is a function to follow.
pub const SPECIAL_SIGACTION: u32 = 5;
/// [`PlanSpecial::kind`]: prctl(2).
pub const SPECIAL_PRCTL: u32 = 6;
/// [`PlanSpecial::kind`]: syscall(2), the libc function.
pub const SPECIAL_SYSCALL: u32 = 7;
/// [`PlanSpecial::kind`]: seccomp_load(3) of libseccomp and the like: a filter is about to be set.
pub const SPECIAL_SANDBOX: u32 = 8;
/// [`PlanSpecial::kind`]: reads its return address (dlsym): give it the original one, also when
/// nothing is recorded any more.
pub const SPECIAL_RETURN: u32 = 9;

/// [`PlanSpecial::kind`]: clone(2), the libc function.
pub const SPECIAL_CLONE: u32 = 10;
/// [`PlanSpecial::kind`]: arch_prctl(2): may set the gs base.
pub const SPECIAL_ARCH_PRCTL: u32 = 11;
/// [`PlanSpecial::kind`]: madvise(2): may drop patched text.
pub const SPECIAL_MADVISE: u32 = 12;
/// [`PlanSpecial::kind`]: mprotect(2): may make patched text writable.
pub const SPECIAL_PROTECT: u32 = 13;
/// [`PlanSpecial::kind`]: pthread_cancel(3): the C library registers a handler.
pub const SPECIAL_CANCEL: u32 = 14;

/// In [`PlanSpecial::kind`]: the kind. The rest is zero but for hooks at which recording begins.
pub const SPECIAL_KIND: u32 = 0xff;
/// In [`PlanSpecial::kind`], from this bit on: recording begins here while one of these rules
/// ([`crate::control::Rule`]) is open.
pub const SPECIAL_RULES: u32 = 8;
/// The same: a call of it opens these rules.
pub const SPECIAL_OPENS: u32 = 16;
/// The same: a call of it closes these rules.
pub const SPECIAL_CLOSES: u32 = 24;
/// The rule that is always open.
pub const RULE_ALWAYS: u32 = crate::control::RULES as u32;

/// [`PlanSpecial::kind`]: recording begins here (`run -F`); its return address may be replaced.
pub const SPECIAL_ROOT: u32 = 20;
/// [`PlanSpecial::kind`]: the same, but its return address stays.
pub const SPECIAL_ROOT_OPEN: u32 = 21;
/// [`PlanSpecial::kind`]: modules have been mapped (ld.so's `_dl_debug_state`).
pub const SPECIAL_MAPPED: u32 = 22;

/// In the slot of a hook (the kinds from [`SPECIAL_ROOT`] on): where the entry's id points.
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

/// Start of a template; `original` bytes, the room (if there is one), `code` bytes and fixups follow
/// without padding.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Template {
    /// Bytes of code.
    pub code_bytes: u8,
    /// Number of [`Fixup`]s.
    pub fixups: u8,
    /// Original bytes of the text at `start` that must be found there (= span).
    pub original_bytes: u8,
    /// Bytes of moved instructions at the start of the slot, where the text jumps to (but see [`HOOK_ENTRY`]).
    pub moved: u8,
    /// Offset in the slot of the entry id's place (0: none).
    pub entry_id: u8,
    /// Offset in the slot of the exit id's place (0: none).
    pub exit_id: u8,
    /// With [`SITE_SPRINGBOARD`]: where the springboard lies, as a signed distance from the end of
    /// the two-byte jump at the site.
    pub springboard: i8,
    /// Offset in the slot of instructions that were moved there to make room for the springboard, or
    /// 0. If it is not 0, these follow the original bytes: how many bytes before the springboard the
    /// instructions began (u8), their length (u8), and their bytes, which must be found there too.
    pub room_to: u8,
}

/// A rel32 in a template that depends on where things lie.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixup {
    /// Offset of the rel32 in the slot.
    pub position: u8,
    /// Bytes from the rel32's start to the end of its instruction (4 or more).
    pub to_end: u8,
    /// `TO_*`.
    pub kind: u8,
    /// Unused.
    pub reserved: u8,
    /// For [`TO_TEXT`]: target as (signed) offset from `base_svma`. For [`TO_COMMON`]: the
    /// routine's number. For [`TO_AREA`]: offset in the area.
    pub value: i32,
}

/// [`Fixup::kind`]: an address of the module.
pub const TO_TEXT: u8 = 1;
/// [`Fixup::kind`]: a common routine.
pub const TO_COMMON: u8 = 2;
/// [`Fixup::kind`]: a place in the patch area, as offset.
pub const TO_AREA: u8 = 3;

/// Common routine numbers.
pub mod common {
    /// Entry of a direct call whose callee is instrumented.
    pub const ENTRY: i32 = 0;
    /// Exit.
    pub const EXIT: i32 = 1;
    /// Entry of a call through a pointer; target above the return address; returns with `ret 8`.
    pub const INDIRECT: i32 = 2;
    /// Tail jump, direct.
    pub const TAIL: i32 = 3;
    /// Tail jump through a pointer; as INDIRECT.
    pub const TAIL_INDIRECT: i32 = 4;
    /// Entry of a direct call whose callee may not be instrumented yet.
    pub const FIRST: i32 = 5;
    /// The same for a direct tail jump.
    pub const TAIL_FIRST: i32 = 6;
    /// Entry of a special function.
    pub const SPECIAL: i32 = 7;
    /// Entry-only direct call: like TAIL, but the frame is the call's own.
    pub const ENTRY_ONLY: i32 = 8;
    /// The same when the callee may not be instrumented yet.
    pub const ENTRY_ONLY_FIRST: i32 = 9;
    /// Entry of a hooked function.
    pub const HOOK: i32 = 10;
    /// A hooked function returns: the original return address is filled in.
    pub const HOOK_EXIT: i32 = 11;
    /// Number of routines.
    pub const COUNT: usize = 12;
}

const _: () = assert!(size_of::<PlanFunction>() == 16);
const _: () = assert!(size_of::<PlanSite>() == 16);
const _: () = assert!(size_of::<PlanSpecial>() == 24);
const _: () = assert!(size_of::<Template>() == 8);
const _: () = assert!(size_of::<Fixup>() == 8);
