//! The return of a call of the kernel that has filled a struct stat, and needs nothing else read.
//!
//! Given such a return ([`crate::routines::quick::FILLS`] says of which calls); writes its record
//! with the structure, which is where the kernel has put it just now. That is there still if nobody
//! else has the memory and no filter answers calls, or if it lies on the thread's own stack, and if
//! no handler has recorded anything since the call began. All other cases are left to the slow
//! path. Must not know what the structure means.

use sptrace_wire::values::{Piece, RETURN_BYTES};

/// The call that has the structure as its third argument; others have it as their second
/// (arch/x86/entry/syscalls/syscall_64.tbl).
pub const NEWFSTATAT: u32 = 262;
/// Bytes of a struct stat (asm/stat.h).
pub const STAT_BYTES: usize = 144;

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! filled {
    () => {
        r#"
    /* rdx = where the call with the number eax has put it. */
    .macro FILLED_AT
    mov rdx, [rsp]
    cmp eax, {newfstatat}
    cmovne rdx, rsi
    .endm
    /* eax = the call's number. */
    .macro RETURN_FILLED slow, void
sptrace_system_return_filled:
    MARK CHECKING, 32
    cmp qword ptr [rsp+24], 0
    jne \slow
    mov rcx, gs:[CUR]
    cmp rcx, gs:[{begun}]
    jne \slow
    mov rcx, gs:[{watched}]
    cmp byte ptr [rcx], 0
    je \slow
    mov rcx, gs:[{watched}+8]
    cmp dword ptr [rcx], {alone}
    je 78f
    /* All of it lies between the stack pointer at the instruction and the end of the stack. */
    FILLED_AT
    lea rcx, [rsp+168]
    sub rdx, rcx
    jb \slow
    mov rax, gs:[{stack_end}]
    sub rax, rcx
    cmp rax, {stack_bytes}
    jae \slow
    add rdx, {stat_bytes}
    cmp rdx, rax
    ja \slow
    jmp 79f
    /* A filter may have said that the call is done. */
78: mov rcx, gs:[{watched}+16]
    cmp dword ptr [rcx], 0
    jne \slow
79: CHECK_RECORDS \slow
    RESERVE_VALUES {filled_bytes}, \slow
    /* What is left before its length is written is a short one, and zeros. */
    STAMP_VALUES {system_return}, {filled_bytes}, \void
    MARK RESERVED_CALL, 32
    mov rdx, gs:[TOPFRAME]
    mov dword ptr [rcx+8], {returned}
    mov eax, [rdx+16]
    mov [rcx+16], rax
    mov qword ptr [rcx+24], 0
    FILLED_AT
    mov [rcx+32], rdx
    shr eax, 8
    mov rax, gs:[rax*8+{structures}]
    mov [rcx+40], rax
    .irp at, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136
    mov rax, [rdx+\at]
    mov [rcx+48+\at], rax
    .endr
    mov dword ptr [rcx+48+{stat_bytes}], {values_end}
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
    .endm
    "#
    };
}

pub(crate) use filled;

/// Of such a record behind its head of 16.
pub const BYTES: usize =
    RETURN_BYTES + Piece::BYTES + STAT_BYTES + size_of_val(&sptrace_wire::values::END);

// The offsets above.
const _: () = assert!(16 + RETURN_BYTES == 32 && Piece::BYTES == 16 && STAT_BYTES == 144);
