//! What compiled code is given, and what it gives: agreed with the agent, which calls it.
//!
//! At its first instruction rbx points at the *saved words* of the call, r12 at where what is kept
//! goes, and there are as many bytes of room as [`crate::check::most_bytes`] says. It may change
//! rax, rcx, rdx, rsi, rdi, r8 to r11 and the flags, and it may push; it keeps rbx, r13 to r15 and
//! rbp, and no vector register. At its end r12 points behind what was kept, and rax has
//! [`WANTED`] and [`FAULTED`]; if the call is not wanted, it is 0 and nothing was kept.
//!
//! Since rbx does not change, the registers of the call can be found from every instruction of it:
//! a program that is interrupted by a signal can be left at any point, and only what it was keeping
//! is lost.

/// Offset of the integer arguments among the saved words: rdi, rsi, rdx, rcx, r8, r9.
pub const ARGUMENTS: i32 = 0;
/// Offset of rax.
pub const RESULT: i32 = 48;
/// Offset of the stack pointer before the call.
pub const STACK_POINTER: i32 = 56;
/// Offset of the lower halves of xmm0 to xmm7.
pub const VECTORS: i32 = 64;
/// Offset of what the entry has kept for the return.
pub const KEPT: i32 = 128;
/// Offset of the locals, which are zero at the start.
pub const LOCALS_AT: i32 = 176;
/// Offset of the word that says what could not be read: 0 at the start, then 1.
pub const FAULTS: i32 = 240;
/// Offset of a word for the reader to write to.
pub const LOADED: i32 = 248;
/// Offset of the reader's address: a function `(from, bytes, to) -> bytes read` of the C calling
/// convention (rdi, rsi, rdx; rax) that reads memory, which need not be there, from its start on.
pub const READER: i32 = 256;
/// Offset of the address of a function `(from, limit, to) -> bytes` of the same convention that
/// copies text up to the first zero, or the limit ([`TEXT_GOES_ON`], [`TEXT_FAULTS`]).
pub const TEXT_READER: i32 = 264;
/// All saved words.
pub const SAVED_BYTES: usize = 272;

/// Integer arguments in registers.
pub const ARGUMENT_COUNT: u8 = 6;
/// Vector registers that are saved.
pub const VECTOR_COUNT: u8 = 8;
/// Words that an entry may keep for the return.
pub const KEPT_COUNT: u8 = 6;
/// Locals of a program.
pub const LOCALS: u8 = 8;
/// Arguments on the stack that a program may name.
pub const STACK_ARGUMENTS: u8 = 16;
/// In the result of the text reader: there is more text behind the limit.
pub const TEXT_GOES_ON: u64 = 1 << 62;
/// In the result of the text reader: what follows cannot be read.
pub const TEXT_FAULTS: u64 = 1 << 63;

/// In what a program gives: the call is wanted.
pub const WANTED: u64 = 1;
/// In what a program gives: a word is 0 because memory could not be read.
pub const FAULTED: u64 = 2;

/// The second form: code in the middle of a common routine ([`crate::in_place()`]).
///
/// It is called with the program's rdi, rsi, r8 to r15, rbx, rbp and vector registers as they were
/// at the call; rdx and rcx have been saved on the stack, and rdx is the stack pointer before the
/// call. The first part of it decides: it may change rax, rcx and the flags, and gives
/// [`UNWANTED`], [`WANTED`], [`UNDECIDED`], [`PASSED`] or [`BIDDEN`] in eax. It may have added to
/// tables then ([`crate::acts`]), which is not done again. The second part writes: the words
/// go where rcx points, and it may change rax and the flags.
///
/// A third part may run at the return. Its registers are those of the return, with rax saved as
/// rdx is; the call's frames are the innermost ones of the thread's shadow stack, with the words
/// that it needs of the call. It may change rdx too, and gives [`PASSED`], [`UNDECIDED`] or
/// [`BIDDEN`].
///
/// None of them pushes anything or calls anybody: at each of its instructions the word at the stack
/// pointer is the way back into the routine, by which a handler that interrupts it knows how far
/// the call's event is. None can fault: the call's arguments on the stack are read in the page
/// of the return address alone.
///
/// [`UNWANTED`]: in_place::UNWANTED
/// [`WANTED`]: in_place::WANTED
/// [`UNDECIDED`]: in_place::UNDECIDED
/// [`PASSED`]: in_place::PASSED
/// [`BIDDEN`]: in_place::BIDDEN
pub mod in_place {
    /// Where rdx is, from the stack pointer at the first instruction; above the way back and the
    /// routine's own word.
    pub const SAVED_RDX: i32 = 16;
    /// Where rcx is.
    pub const SAVED_RCX: i32 = 24;
    /// Where the number of the place is that makes the call, in the lower half of a word.
    pub const SAVED_CALLER: i32 = 48;
    /// In the highest byte of a frame's id: it stands for no call that is open and recorded.
    pub const NO_CALL: i32 = 0x70;
    /// The call is not wanted.
    pub const UNWANTED: u32 = 0;
    /// It is.
    pub const WANTED: u32 = 1;
    /// The slow path has to find out.
    pub const UNDECIDED: u32 = 2;
    /// The call goes on without a record.
    pub const PASSED: u32 = 3;
    /// The same, and its return is waited for: what it needs of the call stands at [`KEPT_AT`].
    pub const HELD: u32 = 4;
    /// The call is recorded, and its return is waited for; the slow path does both.
    pub const HELD_RECORDED: u32 = 5;
    /// The host is bidden something: the slow path tells it, and records the call if it begins.
    pub const BIDDEN: u32 = 6;
    /// Where words are that the return needs, from the stack pointer at the code's instructions
    /// on, each below the other: signals leave them alone while the routine puts them into frames.
    pub const KEPT_AT: i32 = -80;
    /// How many of them the routine keeps.
    pub const KEPT_IN_PLACE: usize = 2;
    /// How many there may be: where there are more, the slow path keeps all of them, at every call.
    pub const MOST_KEPT: usize = 6;
    /// Bytes of a frame of the shadow stack.
    pub const FRAME_BYTES: i32 = 24;
    /// Where the word of a frame is. The innermost one of a held call has its row; below it are
    /// that of its time stamp, and those of its second and its first word.
    pub const FRAME_WORD: i32 = 16;
    /// How many frames above that of a word, by its number, the innermost frame of a held call is:
    /// those of the words that the slow path alone keeps are behind the others.
    pub const fn frames_above(kept: u8) -> i32 {
        match kept as usize {
            ..KEPT_IN_PLACE => 3 - kept as i32,
            _ => 2 + kept as i32,
        }
    }
    /// Where rax is at a return, as [`SAVED_RDX`] has it.
    pub const SAVED_RAX: i32 = 40;
}

/// The third form: code that the slot of a call calls, where the call goes on without a record and
/// without a frame ([`crate::slot_code()`]).
///
/// The word at the stack pointer is the way back into the slot, and all registers and flags are
/// those of the call. It changes none of them, and calls nobody. It keeps some of them in
/// [`SAVED_BYTES`] below the way back, and its own words where the second form has them. Where it
/// cannot run, it ends in a jump of five bytes, the last of all, which whoever puts it somewhere
/// leads to what can.
///
/// [`SAVED_BYTES`]: slot::SAVED_BYTES
pub mod slot {
    /// What is kept of the registers, from the stack pointer up to the way back.
    pub const SAVED_BYTES: i32 = 32;
    /// Where the flags are, as lahf and seto give them.
    pub const FLAGS_AT: i32 = 0;
    /// Where rax is.
    pub const RAX_AT: i32 = 8;
    /// Where rdx is: where the second form has it.
    pub const RDX_AT: i32 = 16;
    /// Where rcx is: where the second form has it.
    pub const RCX_AT: i32 = 24;
    /// Bytes of the code up to where the stack pointer is moved.
    pub const BELOW_FROM: usize = 5;
    /// Bytes of the code up to where the registers are kept, and change from here on.
    pub const KEPT_FROM: usize = 20;
    /// The same of the flags.
    pub const FLAGS_KEPT_FROM: usize = 28;
    /// Bytes of the last jump.
    pub const JUMP_BYTES: usize = 5;
}
