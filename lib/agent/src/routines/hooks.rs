//! Hooked functions: what a hook at a function's entry asks for.
//!
//! Most calls of a hooked function were recorded where they were made, and nothing is left to do:
//! HOOK sees that by the top frame. HOOK_RULED is of functions whose calls turn rules, which the
//! agent counts, so it always takes the slow path; so does the return of a hooked function.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! hooks {
    () => {
        r#"
    .macro HOOK_ROUTINES
    .p2align 6
sptrace_hook:
    SAVE
    CHECK_THREAD sptrace_slow_10
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+48]
    cmp rcx, [rdx]
    jne sptrace_slow_10
    bt qword ptr [rdx+8], 63
    jc sptrace_slow_10
    cmp qword ptr gs:[MUTED], 0
    jne sptrace_slow_10
    RESTORE
    ret
sptrace_slow_10:
    SLOW 10
    .p2align 4
sptrace_hook_ruled:
    SAVE
    SLOW 22
    .p2align 4
sptrace_hook_exit:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    SLOW 11
    .endm
    "#
    };
}

pub(crate) use hooks;
