//! Calls that keep their return addresses, and whose ends are seen where they return to.
//!
//! KEPT and KEPT_INDIRECT do what ENTRY and INDIRECT do, of a call that has pushed its return
//! address. RETURN stands at the place that is returned to, to which other code may jump as well:
//! so it looks whether the innermost frame lies at the present stack pointer, and whether that is
//! of the call before this place, which the slot says in the word in front of its call of RETURN
//! ([`sptrace_wire::plan::SITE_RETURN`]). Where it is not, nothing has happened. Where frames lie
//! below, which have ended unseen, the slow path tells of them; and it looks where a barrier may be
//! the innermost one, of a handler that has ended. RETURN_IN_CALL does the same in the slot of the
//! next call, whose return address has been pushed by then.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! returns {
    () => {
        r#"
    /* `at`: from the id to the stack pointer that the call had. */
    .macro RETURN_ROUTINE name, at, number
    .p2align 6
sptrace_\name:
    SAVE
    CHECK_THREAD sptrace_slow_\number
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+\at]
    cmp rcx, [rdx]
    jne 91f
    mov rax, [rsp+32]
    mov ecx, [rax-9]
    add ecx, eax
    cmp ecx, [rdx+8]
    jne 92f
    RESERVE 8, sptrace_slow_\number
    STAMP sptrace_void_\number
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
91: MARK CHECKING, 32
    ja sptrace_slow_\number
    cmp dword ptr gs:[{barriers}], 0
    jne sptrace_slow_\number
92: RESTORE CHECKING
    ret
sptrace_void_\number:
    VOID_RECORD
sptrace_slow_\number:
    SLOW \number
    .endm

    .macro RETURN_ROUTINES
    .p2align 4
sptrace_kept_first:
    SAVE
    SLOW 24

    .p2align 6
sptrace_kept:
    SAVE
    CHECK_THREAD sptrace_slow_23
    CHECK_PUSH 48, sptrace_slow_23
    RESERVE 8, sptrace_slow_23
    STAMP sptrace_void_23
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 48
sptrace_void_23:
    VOID_RECORD
sptrace_slow_23:
    SLOW 23

    .p2align 6
sptrace_kept_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_25
    CHECK_PUSH 56, sptrace_slow_25
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_25
    RECORD_INDIRECT sptrace_void_25, sptrace_slow_25, at=56
sptrace_void_25:
    VOID_INDIRECT
sptrace_slow_25:
    SLOW 25

    RETURN_ROUTINE return, 40, 26
    RETURN_ROUTINE return_in_call, 48, 27
    .endm
    "#
    };
}

pub(crate) use returns;
