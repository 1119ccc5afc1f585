//! Calls that are recorded in order: what their slots ask for once, or each time a callee is
//! recorded with the call.
//!
//! A direct call's slot makes its record by itself once the callee is instrumented; until then it
//! calls ORDER_FIRST, and ORDER_FULL where there is no room: both always take the slow path.
//! ORDER_INDIRECT looks whose thread runs and records the callee; now and then it takes the slow
//! path, so that the slot may keep what is called most. None reads the clock, and no frame is kept:
//! the return address on the stack is the program's own. The stamp's place has where the stack
//! pointer stood ([`sptrace_wire::record`]).

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! orders {
    () => {
        r#"
    .macro ORDER_ROUTINES
    .p2align 4
sptrace_order_first:
    SAVE
    SLOW 16
    .p2align 4
sptrace_order_full:
    SAVE
    SLOW 18
    .p2align 6
sptrace_order_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_17
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_17
    mov ecx, gs:[CUR]
    test ecx, {looked_at}
    jz sptrace_slow_17
    RESERVE 12, sptrace_slow_17
    mov edx, [rsp+32]
    mov [rcx+4], edx
    mov [rcx+8], eax
    lea eax, [rsp+40]
    mov [rcx], eax
    RESTORE
    ret 8
sptrace_slow_17:
    SLOW 17
    .endm
    "#
    };
}

pub(crate) use orders;
