//! A call site or tail jump of a plan: what is overwritten, and how.
//!
//! A direct call's slot, which the agent writes by itself (offsets from the slot; the wired rel32
//! lies in one aligned word so that one store re-wires it):
//!
//! ```text
//!   +0   3 bytes   int3 filling
//!   +3   call first/entry    id of the entry = low half of (slot + 8)
//!   +8   call CALLEE
//!   +13  call exit           id of the exit  = low half of (slot + 18)
//!   +18  jmp  back
//! ```
//!
//! The slot of a direct call or jump that is counted ([`crate::counts`]). The text keeps its opcode
//! and leads here instead of to the callee, so the return address is the program's own:
//!
//! ```text
//!   +0   call COUNT_FIRST    a nop of five bytes once the callee is instrumented; id = slot + 5
//!   +5   inc  qword gs:[cell]
//!   +14  jmp  CALLEE
//! ```
//!
//! The slot of a direct call or jump that is recorded in order ([`crate::record`]); the text is as
//! with a counted one:
//!
//! ```text
//!   +0   call ORDER_FIRST    a nop of five bytes once the callee is instrumented; id = slot + 5
//!   +5   push rcx
//!   +6   mov  ecx, 8
//!   +11  xadd gs:[CURSOR], rcx
//!   +21  cmp  rcx, gs:[LIMIT]
//!   +30  jae  FULL
//!   +32  mov  [rcx], esp
//!   +34  mov  dword [rcx+4], id
//!   +41  pop  rcx
//!   +42  jmp  CALLEE
//!   FULL:
//!   +47  pop  rcx
//!   +48  call ORDER_FULL
//!   +53  jmp  CALLEE
//! ```
//!
//! The slot of a direct call whose callee has acts that need no frame ([`crate::plan::SlotActs`]);
//! the text is as with a counted one:
//!
//! ```text
//!   +0   call ACTS_FIRST     a nop of five bytes once the callee is instrumented; id = slot + 5
//!   +5   call CODE           the callee's; the id where it cannot run is slot + 10
//!   +10  jmp  CALLEE
//! ```
//!
//! The slot of a direct call that keeps its return address and is recorded; the text is as with a
//! counted one:
//!
//! ```text
//!   +0   call KEPT_FIRST/KEPT     id of the entry = low half of (slot + 5)
//!   +5   jmp  CALLEE
//!   +10  1 byte                   END_UNSEEN if the end of its calls is not seen
//! ```
//!
//! The slot of the place that it returns to, where a jump covers instructions that keep their
//! length in the slot:
//!
//! ```text
//!   +0   4 bytes    from the id here to the call's entry id
//!   +4   call RETURN              id of the exit = low half of (slot + 9)
//!   +9   what the jump covers, its rel32s ([`RETURN_REL32S`]) as they must be here
//!        jmp  back
//! ```
//!
//! All other slots come as bytes and fixups ([`crate::plan::Template`]).

use crate::layout::{byte_enum, layout};

byte_enum! {
    /// How a site is patched.
    pub enum SiteForm {
        /// Left alone.
        Refused = 0,
        /// A 5-byte direct call with the slot shown above.
        Direct = 1,
        /// Its slot is made from a [`crate::plan::Template`].
        Template = 2,
        /// A direct call or jump of an opcode and a rel32, counted by the slot shown above.
        Counted = 3,
        /// The same, recorded in order by the slot shown above.
        Ordered = 4,
        /// A direct call at which the callee's acts run, by the slot shown above.
        Acts = 5,
        /// A direct call that keeps its return address, recorded by the slot shown above.
        Kept = 6,
        /// No site, but a place that such calls return to ([`SITE_RETURN`]), with the slot shown
        /// above.
        Return = 7,
    }
}

layout! {
    /// One call site or tail jump, patched or refused.
    pub struct PlanSite {
        /// Offset of the first byte overwritten (may lie before the call).
        pub start: u32,
        /// Offset of its slot in the patch area.
        pub slot: u32,
        /// [`SiteForm::Direct`], [`SiteForm::Counted`], [`SiteForm::Ordered`],
        /// [`SiteForm::Acts`] and [`SiteForm::Kept`]: offset of the callee.
        /// [`SiteForm::Template`]: offset into the templates. [`SiteForm::Return`]: where among
        /// them the first four bytes of its slot stand, what the jump covers, and of each rel32 in
        /// that where it lies, a byte.
        pub argument: u32,
        /// `SITE_*`.
        pub flags: u16,
        /// Bytes of text covered, at least 5.
        pub span: u8,
        /// How it is patched.
        pub form: SiteForm,
        /// Number of the tactic, of a site that is refused that of the refusal. Counted, not
        /// interpreted. Of a twin: [`TWIN_BEGINS`] may be set, which the host may change at any
        /// time.
        pub verdict: u8,
    }
}

impl PlanSite {
    /// Where [`PlanSite::form`] lies in a record, in front of the verdict.
    pub const FORM_OFFSET: usize = Self::BYTES - 2;

    /// Where [`PlanSite::verdict`] lies in a record.
    pub const VERDICT_OFFSET: usize = Self::BYTES - 1;

    /// True if it is a twin by which its site is patched at first.
    pub const fn begins(&self) -> bool {
        self.verdict & TWIN_BEGINS != 0
    }

    /// True if its slot is that of [`SITE_KEEPS_ACTS`], whose bit means something else elsewhere.
    pub const fn keeps_acts(&self) -> bool {
        matches!(self.form, SiteForm::Template) && self.is_any(SITE_KEEPS_ACTS)
    }

    /// True if its slot is that of [`crate::plan::kept_order`].
    pub const fn keeps_in_order(&self) -> bool {
        matches!(self.form, SiteForm::Template)
            && self.is_any(SITE_KEEPS_CALLEE)
            && self.is_any(SITE_IN_ORDER)
    }

    /// True if it is a return point whose long jump lies in the patch of another.
    pub const fn borrows(&self) -> bool {
        self.is_return()
            && self.flags & (SITE_LENDS | SITE_SPRINGBOARD) == SITE_LENDS | SITE_SPRINGBOARD
    }

    /// True if its slot begins with the return of the call before it.
    pub const fn returns_first(&self) -> bool {
        matches!(self.form, SiteForm::Template) && self.is_any(SITE_RETURNS_FIRST)
    }

    /// True if it is a return point, not a site.
    pub const fn is_return(&self) -> bool {
        matches!(self.form, SiteForm::Template | SiteForm::Return) && self.is_any(SITE_RETURN)
    }

    /// True of a return point of which more than the first instruction is overwritten.
    pub const fn is_of_several(&self) -> bool {
        self.verdict & RETURN_OF_SEVERAL != 0
    }

    /// Bytes of the slot of [`SiteForm::Return`].
    pub const fn return_slot_bytes(&self) -> u32 {
        RETURN_ID as u32 + self.span as u32 + JUMP_BYTES as u32
    }

    /// True if one of these flags is set.
    pub const fn is_any(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }
}

/// In [`PlanSite::verdict`] of a twin ([`PlanHeader::twins`]): its site is patched that way at
/// first, until the host wishes otherwise ([`crate::levels`]).
///
/// [`PlanHeader::twins`]: crate::plan::PlanHeader::twins
pub const TWIN_BEGINS: u8 = 0x80;
/// A tail jump.
pub const SITE_TAIL: u16 = 1;
/// Its callee is recorded in a word of its own.
pub const SITE_INDIRECT: u16 = 2;
/// Entry-only: the return address on the stack is the original one.
pub const SITE_ENTRY_ONLY: u16 = 4;
/// The text keeps a `call` opcode (to the slot), so that the return address is pushed natively.
pub const SITE_KEEP_CALL: u16 = 8;
/// The text keeps its opcode byte at `start` (the second byte of `jcc rel32`).
pub const SITE_KEEP_OPCODE: u16 = 16;
/// A two-byte jump at the site (with [`SITE_KEEP_OPCODE`] a conditional one) leads to a springboard
/// in padding, or where moved instructions stood, from which the long jump leaves.
pub const SITE_SPRINGBOARD: u16 = 32;
/// The moved instructions at the start of the slot may be begun again after any part of them.
pub const SITE_REPEATABLE: u16 = 64;
/// Its bytes lie under a hook, whose slot leads to the site's slot: the slot is written with the
/// hook, the text is left alone.
pub const SITE_IN_HOOK: u16 = 128;

/// Its slot pushes the return address, since the text jumps there: a call that is counted and has
/// no room for a call of five bytes.
pub const SITE_PUSHES_BACK: u16 = 256;
/// Bytes of the instructions that push it.
pub const PUSHED_BACK_BYTES: u64 = 19;

/// The jump to its slot stands at the end of its bytes, with nops before it, as the call of its
/// twin does ([`SITE_KEEP_CALL`]): a thread may stand between nops when one becomes the other.
pub const SITE_JUMP_LAST: u16 = 1024;

/// Its slot keeps the callee that it has seen, and counts calls to that by itself:
///
/// ```text
///   [moved instructions] ; [the return address is pushed]
///   mov  r11, OPERAND             the ABI leaves r11 and the flags to nobody at a call through a
///   cmp  r11, [CALLEE] ; jne MISS    pointer (psABI 3.2.1)
///   inc  qword gs:[cell]
///   jmp  r11
///   MISS: push r11 ; call COUNT_INDIRECT      the id points behind it
///   jmp  [rsp-8]
///   CALLEE: 8 bytes, aligned; 0: none was seen
/// ```
pub const SITE_KEEPS_CALLEE: u16 = 512;
/// In such a slot: from the displacement of the cell to the id.
pub const KEPT_CELL_TO_ID: u64 = 14;
/// In such a slot: from the jump behind the counting to the id.
pub const KEPT_JUMP_TO_ID: u64 = 10;
/// In such a slot: from the id to the callee that is kept, at most: it lies at the next multiple of
/// 8 from [`KEPT_CALLEE_FROM_ID`] on.
pub const KEPT_CALLEE_FROM_ID: u64 = 4;

/// Of a [`SiteForm::Template`]: a call through a pointer that is recorded, whose slot keeps a
/// callee with acts which need no frame ([`crate::plan::SlotActs`]), and has them run by itself.
/// The text keeps a call, so its return address is pushed. Offsets from the entry id; no register
/// and no flag is changed:
///
/// ```text
///        [moved instructions] ; [filling]
///   -48  push rcx ; push rdx
///   -46  mov  rcx, OPERAND             nine bytes, with filling behind it
///   -37  mov  rdx, [MINUS]
///   -30  lea  rcx, [rcx+rdx]
///   -26  pop  rdx
///   -25  jrcxz HIT
///   -23  pop  rcx
///   -22  push OPERAND                  nine bytes, with filling before it
///   -13  call ACTS_FIRST               asks whether to keep this callee; a nop of five bytes, all
///                                      in one aligned word, when nothing is asked any more
///    -8  pop  [rsp]                    in the place of the return address: from here on it is as
///    -5  call INDIRECT                 any call through a pointer
///     0  call [rsp-8]
///    +4  call EXIT
///    +9  push [BACK] ; ret             the return of the text's call, as processors expect it
///   +16  HIT: pop rcx
///   +17  call [CODE]                   in whichever area it lies; its id is +23
///   +23  jmp  [CALLEE]
///        MINUS:  8 bytes, aligned: the callee that is kept, with the other sign, or NOBODY
///        CALLEE: 8 bytes, which never change once there is one: a thread may be about to jump
///        CODE, BACK: 8 bytes each; without a callee CODE leads to the `ret`
///        TRIES:  8 bytes: how often it was asked, and 1; 0: the slot is not written
/// ```
pub const SITE_KEEPS_ACTS: u16 = 4096;
/// Where the parts of such a slot are, from its entry id on.
pub mod kept_acts {
    /// Behind the moved instructions and the filling: the first register is about to be pushed.
    pub const BEGIN: i64 = -48;
    /// One register has been pushed.
    pub const ONE: i64 = -47;
    /// Two have.
    pub const TWO: i64 = -46;
    /// The second has been popped.
    pub const POPPED_TWO: i64 = -25;
    /// So has the first.
    pub const POPPED_ONE: i64 = -22;
    /// The operand is about to be pushed.
    pub const OPERAND: i64 = -22;
    /// It has been: the question.
    pub const ASK: i64 = -13;
    /// Behind it.
    pub const ASKED: i64 = -8;
    /// The operand stands where it does at any call through a pointer.
    pub const PUT: i64 = -5;
    /// The way back.
    pub const BACK: i64 = 9;
    /// Its return.
    pub const RETURN: i64 = 15;
    /// It is the callee that is kept.
    pub const HIT: i64 = 16;
    /// The first register has been popped.
    pub const CODE: i64 = 17;
    /// Behind the call of the code.
    pub const DONE: i64 = 23;
    /// Behind all instructions: the words lie at the next multiple of 8.
    pub const END: i64 = 29;
    /// Bytes of the operand's instructions, with their filling.
    pub const OPERAND_BYTES: usize = 9;
    /// Bytes of the words.
    pub const WORDS_BYTES: usize = 40;
    /// What no callee has in MINUS.
    pub const NOBODY: u64 = 1 << 63;
    /// `pop [rsp]` (Intel SDM, POP).
    pub const POP_TO_TOP: [u8; 3] = [0x8f, 0x04, 0x24];
    /// `push [rip+BACK]` but for its displacement (Intel SDM, PUSH).
    pub const PUSH_WORD: [u8; 2] = [0xff, 0x35];
}

/// Of a [`SiteForm::Template`] or [`SiteForm::Return`]: no site, but the place that a call returns
/// to, whose return address stays on the stack. It stands where the twin of the call would
/// ([`PlanHeader::twins`]), and its bytes are several whole instructions. Its slot:
///
/// ```text
///   +0   4 bytes             from the id to that of the call's entry, signed: whose return it is
///   +4   call RETURN         the text jumps here; id = slot + 9
///   +9   the instructions ; jmp back
/// ```
///
/// [`PlanHeader::twins`]: crate::plan::PlanHeader::twins
pub const SITE_RETURN: u16 = 8192;
/// Of a site that is refused: its callee is instrumented together with its function all the same.
pub const SITE_CALLEE_LINKED: u16 = SITE_RETURN;
/// In [`PlanSite::verdict`] of a return point: more than its first instruction is overwritten.
pub const RETURN_OF_SEVERAL: u8 = 1;
/// There, of [`SiteForm::Return`]: from this bit on, how many rel32s are in what the jump covers
/// that count from where they are to a place in the module.
pub const RETURN_REL32S: u32 = 1;
/// Where the text jumps to in such a slot.
pub const RETURN_ENTRY: u32 = 4;
/// In such a slot: where the id points.
pub const RETURN_ID: u16 = 9;

/// Of a [`SiteForm::Template`]: its slot begins as that of a return point, for the call before it,
/// which returns to this site or just in front of it. Behind that come the moved instructions.
pub const SITE_RETURNS_FIRST: u16 = 16384;

/// Of a return point: its patch holds the long jump of another one in the same function, or, with
/// [`SITE_SPRINGBOARD`], its long jump lies in the patch of another.
pub const SITE_LENDS: u16 = 1 << 15;
/// Behind the jump of a slot that keeps the return address: the end of such calls is not seen.
pub const END_UNSEEN: u8 = 0xcc;

/// Its calls are recorded in order, without stamps and ends ([`crate::record`]).
pub const SITE_IN_ORDER: u16 = 2048;

/// Of a site of [`SiteForm::Counted`] or [`SiteForm::Ordered`] that is a conditional jump, the
/// condition stands in the bits from here on (Intel SDM vol. 2, appendix B.1.4).
pub const SITE_CONDITION_SHIFT: u32 = 12;
/// The second byte of `jcc rel32` but for its condition (Intel SDM, Jcc).
pub const CONDITIONAL_JUMP: u8 = 0x80;

/// Bytes of a direct call's slot.
pub const DIRECT_SLOT_BYTES: u32 = 24;
/// Where the text jumps to in a direct call's slot.
pub const DIRECT_ENTRY: u32 = 3;
/// In a direct call's slot: where the entry's id points.
pub const DIRECT_ENTRY_ID: u16 = 8;
/// In a direct call's slot: where the exit's id points.
pub const DIRECT_EXIT_ID: u16 = 18;

/// Bytes of a counted site's slot.
pub const COUNTED_SLOT_BYTES: u32 = 24;
/// In a counted site's slot: where the id points, and the call is counted.
pub const COUNTED_ID: u16 = 5;
/// In a counted site's slot: the jump to the callee.
pub const COUNTED_JUMP: u16 = 14;
/// In the slot of a call with acts: where the id points, and their code is called.
pub const ACTS_ID: u16 = 5;
/// In such a slot: behind that, the jump to the callee.
pub const ACTS_JUMP: u16 = 10;
/// In such a slot: behind all.
pub const ACTS_END: u16 = 15;
// The agent makes it ask no more as it does a counted one, and it takes the place of a recorded
// one.
const _: () = assert!(ACTS_ID == COUNTED_ID && ACTS_END as u32 <= DIRECT_SLOT_BYTES);
/// Bytes of the slot of [`SiteForm::Kept`].
pub const KEPT_SLOT_BYTES: u32 = 16;
/// In such a slot: where the id points, and the jump to the callee.
pub const KEPT_ID: u16 = 5;
/// In such a slot: whether the end of its calls is seen.
pub const KEPT_MARK: u16 = KEPT_ID + JUMP_BYTES as u16;

/// `inc qword ptr gs:[disp32]` but for its displacement (Intel SDM, INC; vol. 2, 2.1.1).
pub const INC_GS: [u8; 5] = [0x65, 0x48, 0xff, 0x04, 0x25];

/// Bytes of the slot of a site that is recorded in order.
pub const ORDERED_SLOT_BYTES: u32 = 64;
/// In such a slot: where the id points, and recording begins.
pub const ORDERED_ID: u16 = 5;
/// In such a slot: the record is reserved in front of this, at rcx.
pub const ORDERED_RESERVED: u16 = 21;
/// In such a slot: the record is complete.
pub const ORDERED_WRITTEN: u16 = 41;
/// In such a slot: the jump to the callee.
pub const ORDERED_JUMP: u16 = 42;
/// In such a slot: where there was no room for a record.
pub const ORDERED_FULL: u16 = 47;
/// In such a slot: behind the call of the routine for that.
pub const ORDERED_FULL_ID: u16 = 53;
/// `push rcx ; mov ecx, 8 ; xadd gs:[CURSOR], rcx` but for the displacement (Intel SDM, XADD).
pub const ORDERED_RESERVE: [u8; 12] = [0x51, 0xb9, 8, 0, 0, 0, 0x65, 0x48, 0x0f, 0xc1, 0x0c, 0x25];
/// `cmp rcx, gs:[LIMIT]` but for its displacement (Intel SDM, CMP).
pub const ORDERED_COMPARE: [u8; 5] = [0x65, 0x48, 0x3b, 0x0c, 0x25];
/// `jae FULL ; mov [rcx], esp ; mov dword [rcx+4], id` but for the id (Intel SDM, Jcc, MOV).
pub const ORDERED_WRITE: [u8; 7] = [0x73, 15, 0x89, 0x21, 0xc7, 0x41, 4];
/// `pop rcx` (Intel SDM, POP).
pub const POP_RCX: u8 = 0x59;

/// The nop of five bytes (Intel SDM, NOP).
pub const NOP_5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Bytes of a `jmp rel32`, and of a `call rel32`.
pub const JUMP_BYTES: usize = 5;
/// Opcode of `call rel32` (Intel SDM, CALL).
pub const CALL: u8 = 0xe8;
/// Opcode of `jmp rel32` (Intel SDM, JMP).
pub const JUMP: u8 = 0xe9;
/// Opcode of `jmp rel8`.
pub const SHORT_JUMP: u8 = 0xeb;
/// Opcode of a nop of one byte.
pub const NOP: u8 = 0x90;

/// `opcode rel32` at `at`, leading to `to`.
pub const fn branch(opcode: u8, at: u64, to: u64) -> [u8; JUMP_BYTES] {
    let rel = to.wrapping_sub(at.wrapping_add(JUMP_BYTES as u64)) as u32;
    let [a, b, c, d] = rel.to_le_bytes();
    [opcode, a, b, c, d]
}
