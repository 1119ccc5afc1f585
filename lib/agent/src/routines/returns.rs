//! Calls that keep their return addresses, and whose ends are seen where they return to.
//!
//! KEPT and KEPT_INDIRECT do what ENTRY and INDIRECT do, of a call that has pushed its return
//! address. RETURN stands at the place that is returned to, to which other code may jump as well:
//! so it looks whether the innermost frame lies at the present stack pointer, and whether that is
//! of the call before this place, which the slot says in the word in front of its call of RETURN
//! ([`sptrace_wire::plan::SITE_RETURN`]). Where it is not, nothing has happened. Where frames lie
//! below, which have ended unseen, the slow path tells of them. RETURN_IN_CALL does the same in the
//! slot of the next call, whose return address has been pushed by then.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! returns {
    () => {
        r#"
    .set RESERVED_END, 20
    .set UNTOLD_END, 21
    /* The innermost frame, at rdx, has ended before this event: if it is one whose end is not seen (see
       slot::end_is_unseen) it is told here, and the event begins again. First it is popped, so that a
       handler in between does not tell it once more. Called, with what SAVE has pushed below; CF: it
       cannot be told here. */
    .macro TELL_END
    .p2align 4
sptrace_tell_end:
    MARK CHECKING, 40
    cmp rdx, gs:[FRAMELIMIT]
    jae 98f
    cmp qword ptr gs:[{root}], 0
    jne 98f
    mov rax, [rdx+8]
    mov rcx, rax
    shr rcx, 47
    jnz 98f
    cmp byte ptr [rax], {jump}
    jne 95f
    cmp byte ptr [rax+5], {end_unseen}
    je 96f
95: cmp byte ptr [rax], 0xff
    jne 98f
    cmp byte ptr [rax+4], {end_unseen}
    jne 98f
96: mov ecx, 8
    xadd gs:[CUR], rcx
    cmp rcx, gs:[END]
    jae 98f
    MARK RESERVED_END, 40
    rdtsc
    cmp edx, gs:[HI]
    jne 97f
    mov [rcx], eax
    sub qword ptr gs:[TOPFRAME], 24
    MARK UNTOLD_END, 40
    mov dword ptr [rcx+4], {ended}
    MARK CHECKING, 40
    clc
    ret
97: MARK RESERVED_END, 40
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
98: MARK CHECKING, 40
    stc
    ret
    .endm
    /* rcx = the stack pointer of an event that is of the frame below the innermost one, at rdx. */
    .macro TELL_END_ABOVE again, slow
    MARK CHECKING, 32
    jb \slow
    cmp rcx, [rdx-24]
    jne \slow
    call sptrace_tell_end
    MARK CHECKING, 32
    jnc \again
    jmp \slow
    .endm
    /* The same of one at the innermost frame, from which another call is made. */
    .macro TELL_END_AT again, slow
    MARK CHECKING, 32
    jne \slow
    call sptrace_tell_end
    MARK CHECKING, 32
    jnc \again
    jmp \slow
    .endm

    /* `at`: from the id to the stack pointer that the call had. */
    .macro RETURN_ROUTINE name, at, number
    .p2align 6
sptrace_\name:
    SAVE
    CHECK_THREAD sptrace_slow_\number
sptrace_\name\()_again:
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
    ja 93f
92: RESTORE CHECKING
    ret
93: TELL_END_ABOVE sptrace_\name\()_again, sptrace_slow_\number
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
sptrace_kept_again:
    CHECK_PUSH 48, sptrace_kept_ended
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
sptrace_kept_indirect_again:
    CHECK_PUSH 56, sptrace_kept_indirect_ended
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_25
    RECORD_INDIRECT sptrace_void_25, sptrace_slow_25, at=56
sptrace_void_25:
    VOID_INDIRECT
sptrace_slow_25:
    SLOW 25

    RETURN_ROUTINE return, 40, 26
    RETURN_ROUTINE return_in_call, 48, 27
    TELL_END
sptrace_kept_ended:
    TELL_END_AT sptrace_kept_again, sptrace_slow_23
sptrace_kept_indirect_ended:
    TELL_END_AT sptrace_kept_indirect_again, sptrace_slow_25
sptrace_tail_ended:
    TELL_END_ABOVE sptrace_tail_again, sptrace_slow_3
sptrace_tail_indirect_ended:
    TELL_END_ABOVE sptrace_tail_indirect_again, sptrace_slow_4
    .endm
    "#
    };
}

pub(crate) use returns;
