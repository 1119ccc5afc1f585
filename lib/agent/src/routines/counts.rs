//! Calls that are counted: what their slots ask for once, or each time a call goes through a
//! pointer.
//!
//! A direct call's slot adds to its cell by itself once the callee is instrumented; until then it
//! calls COUNT_FIRST, which always takes the slow path. COUNT_INDIRECT finds the cell of the call
//! and its callee in the table of [`crate::memory::pointers`], and adds to it. Neither reads the
//! clock, and no frame is kept: the return address on the stack is the program's own.
//!
//! ACTS_FIRST is the same for calls with acts in their slots ([`crate::events::in_slot`]).

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! counts {
    () => {
        r#"
    .macro COUNT_ROUTINES
    .p2align 4
sptrace_count_first:
    SAVE
    SLOW 14
    .p2align 4
sptrace_acts_first:
    SAVE
    SLOW 19
    .p2align 6
sptrace_count_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_15
    mov rdx, gs:[{pointers}]
    test rdx, rdx
    jz sptrace_slow_15
    mov rax, [rsp+40]
    mov rcx, rax
    shr rcx, 4
    xor ecx, [rsp+32]
    imul ecx, ecx, 0x9E3779B1
    shr ecx, 32 - {pointer_bits}
    shl ecx, {pointer_shift}
    add rcx, rdx
    mov edx, [rsp+32]
81: cmp [rcx], rax
    jne 82f
    cmp [rcx+8], edx
    je 83f
82: cmp qword ptr [rcx], 0
    je sptrace_slow_15
    add rcx, 1 << {pointer_shift}
    jmp 81b
83: mov ecx, [rcx+12]
    test ecx, ecx
    js sptrace_slow_15
    inc qword ptr gs:[rcx*8 + {cells_at}]
    RESTORE
    ret 8
sptrace_slow_15:
    SLOW 15
    .endm
    "#
    };
}

pub(crate) use counts;
