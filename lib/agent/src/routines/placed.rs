//! Entries of calls where others are recorded in order: each says where the stack pointer stood.
//!
//! The routines ENTRY_PLACED and INDIRECT_PLACED do what ENTRY and INDIRECT do, with the record
//! PLACED in front of the call's own, in one reservation, so that nothing comes between. The stack
//! pointer is said as a slot in order says it ([`sptrace_wire::record`]). Must not know which calls
//! are recorded how.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! placed {
    () => {
        r#"
    .set RESERVED_PLACED, 19
    /* `bytes` of an event, with PLACED before it, which is written. */
    .macro RESERVE_PLACED bytes, at, slow
    mov ecx, \bytes + 8
    xadd gs:[CUR], rcx
    cmp rcx, gs:[END]
    jae \slow
    MARK RESERVED_PLACED, 32
    lea eax, [rsp+\at-16]
    mov [rcx], eax
    mov dword ptr [rcx+4], {placed}
    add rcx, 8
    MARK RESERVED, 32
    .endm
    .macro PLACED_ROUTINES
    .p2align 5
sptrace_silent_placed:
    MARK SAVING, 0
    jmp sptrace_silent_entry
    .p2align 4
sptrace_entry_placed:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_20
    CHECK_PUSH 40, sptrace_slow_20
    RESERVE_PLACED 8, 40, sptrace_slow_20
    STAMP sptrace_void_20, sptrace_slow_20
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 40
sptrace_void_20:
    VOID_RECORD
sptrace_slow_20:
    SLOW 20

    .p2align 5
sptrace_silent_placed_indirect:
    MARK SAVING, 0
    jmp sptrace_silent_indirect
    .p2align 4
sptrace_indirect_placed:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_21
    CHECK_PUSH 48, sptrace_slow_21
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_21
    RESERVE_PLACED 12, 48, sptrace_slow_21
    mov eax, [rsp+40]
    mov edx, [rsp+32]
    mov [rcx+4], edx
    mov [rcx+8], eax
    STAMP sptrace_void_21, sptrace_slow_21, 12
    PUSH_INDIRECT
sptrace_void_21:
    VOID_INDIRECT
    MARK CHECKING, 32
sptrace_slow_21:
    SLOW 21
    .endm

    .pushsection .rodata.sptrace_silent_placed,"a",@progbits
    .p2align 2
    .globl sptrace_silent_placed_offsets
    .hidden sptrace_silent_placed_offsets
sptrace_silent_placed_offsets:
    .long sptrace_silent_placed - sptrace_common_start
    .long sptrace_silent_placed_indirect - sptrace_common_start
    .popsection
    "#
    };
}

pub(crate) use placed;
