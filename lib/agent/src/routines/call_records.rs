//! Records around calls of the kernel, as the common routines write them.
//!
//! Gives the assembler macros that reserve such a record and begin it, or say that it is to be
//! passed over; those who use them write the values behind its head, and its end. Must not know
//! what is recorded of which call.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! call_records {
    () => {
        r#"
    /* Around an instruction that calls the kernel: its slot has left the red zone, so that the stack
       pointer at the instruction lies 128 bytes above the routine's. What is done here is what the
       table of the thread's block allows for the call's number: see `quick`. */
    .macro CHECK_RECORDS slow
    cmp qword ptr gs:[MUTED], 0
    jne \slow
    cmp dword ptr gs:[{lends}], 0
    jne \slow
    .endm
    /* A record of `bytes` after its head of 16. */
    .macro RESERVE_VALUES bytes, slow
    mov ecx, \bytes + 16
    xadd gs:[CUR], rcx
    lea rax, [rcx + \bytes + 16 - {end_bytes}]
    cmp rax, gs:[END]
    ja \slow
    MARK RESERVED_VALUES, 32
    .endm
    /* First its length, then its stamp and id at once: what is not finished can be passed over. */
    .macro STAMP_VALUES id, bytes, slow
    rdtsc
    cmp edx, gs:[HI]
    jne \slow
    mov dword ptr [rcx+12], \bytes
    mov edx, \id
    shl rdx, 32
    or rax, rdx
    mov [rcx], rax
    .endm
    .macro VOID_VALUES id, bytes
    MARK RESERVED_VALUES, 32
    mov dword ptr [rcx+12], \bytes
    mov eax, \id
    shl rax, 32
    inc rax
    mov [rcx], rax
    .endm
    "#
    };
}

pub(crate) use call_records;
