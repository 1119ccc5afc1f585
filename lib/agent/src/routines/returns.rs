//! Calls that keep their return addresses, and whose ends are seen where they return to.
//!
//! KEPT and KEPT_INDIRECT do what ENTRY and INDIRECT do, of a call that has pushed its return
//! address. RETURN stands at the place that is returned to, to which other code may jump as well:
//! so it looks whether the innermost frame lies at the present stack pointer, and whether that is
//! of the call before this place, which the slot says in the word in front of its call of RETURN
//! ([`sptrace_wire::plan::SITE_RETURN`]). Where it is not, nothing has happened. Where frames lie
//! below, which have ended unseen, the slow path tells of them; and it looks where a barrier may be
//! the innermost one, of a handler that has ended, or a frame of another stack. RETURN_IN_CALL does
//! the same in the slot of the next call, whose return address has been pushed by then.
//!
//! Where threads run lanes ([`crate::reach::lanes`]) there is one of each more, whose name ends in
//! `_IN_LANE`. It takes the slow path of the other when the stack is not that of the block's lane.
//! A return needs to look only where the frame is not its own.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! returns {
    () => {
        r#"
    .set RESERVED_END, 20
    .set UNTOLD_END, 21
    .set POPPED_END, 22
    /* The innermost frame, at rdx, has ended before this event: if it is one whose end is not seen (see
       slot::end_is_unseen) it is told here, and the event begins again. It is popped before anything
       is reserved: where a handler comes in between, with such a frame of its own, each of the two then
       tells of one, in whatever order. Called, with what SAVE has pushed below; CF: it cannot be told
       here, and if it was popped the slow path tells of it. */
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
96: sub qword ptr gs:[TOPFRAME], 24
    MARK POPPED_END, 40
    mov ecx, 8
    xadd gs:[CUR], rcx
    cmp rcx, gs:[END]
    jae 97f
    MARK RESERVED_END, 40
    rdtsc
    cmp edx, gs:[HI]
    jne 94f
    mov [rcx], eax
    MARK UNTOLD_END, 40
    mov dword ptr [rcx+4], {ended}
    MARK CHECKING, 40
    clc
    ret
94: MARK RESERVED_END, 40
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
97: MARK POPPED_END, 40
    inc qword ptr gs:[{untold}]
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

    /* Where threads run lanes: the stack is that of the block's lane. */
    .macro CHECK_LANE at, slow
    lea rax, [rsp+\at]
    sub rax, gs:[{lane_low}]
    cmp rax, gs:[{lane_bytes}]
    ja \slow
    .endm
    /* Keeps where the top frame is, at rdx, below the stack pointer, where no signal is delivered: what
       a handler leaves above it is over when the routine goes on. */
    .macro KEEP_TOP
    mov [rsp-8], rdx
    .endm
    /* The top frame, as KEEP_TOP has found it, is at rdx. If it is another one, a handler has left a call
       without an end before the record was reserved, which is told first. */
    .macro FIND_TOP void
    mov rdx, [rsp-8]
    cmp rdx, gs:[TOPFRAME]
    jne \void
    .endm
    /* `at`: from the id to the stack pointer that the call had. */
    .macro RETURN_ROUTINE name, at, number, as, in_lane=0
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
    KEEP_TOP
    RESERVE 8, sptrace_slow_\number
    STAMP sptrace_void_\number, sptrace_slow_\number
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    mov rdx, [rsp-8]
    sub rdx, 24
    mov gs:[TOPFRAME], rdx
    RESTORE
    ret
91: MARK CHECKING, 32
    .if \in_lane
    ja sptrace_slow_\number
    .else
    ja 93f
    .endif
    cmp qword ptr gs:[{barriers}], 0
    jne sptrace_slow_\number
    .if \in_lane
    CHECK_LANE \at, sptrace_slow_\number
    .endif
92: RESTORE CHECKING
    ret
    .if \in_lane == 0
93: TELL_END_ABOVE sptrace_\name\()_again, sptrace_slow_\number
    .endif
sptrace_void_\number:
    VOID_RECORD
sptrace_slow_\number:
    SLOW \as
    .endm

    .macro KEPT_ROUTINE name, number, in_lane=0
    .p2align 6
sptrace_\name:
    SAVE
    CHECK_THREAD sptrace_slow_\number
    .if \in_lane
    CHECK_LANE 48, sptrace_slow_\number
    .endif
sptrace_\name\()_again:
    .if \in_lane
    CHECK_PUSH 48, sptrace_slow_\number
    .else
    CHECK_PUSH 48, sptrace_\name\()_ended
    .endif
    KEEP_TOP
    RESERVE 8, sptrace_slow_\number
    STAMP sptrace_void_\number, sptrace_slow_\number, has_top=1
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 48, has_top=1
sptrace_void_\number:
    VOID_RECORD
sptrace_slow_\number:
    SLOW 23
    .endm

    .macro KEPT_INDIRECT_ROUTINE name, number, in_lane=0
    .p2align 6
sptrace_\name:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_\number
    .if \in_lane
    CHECK_LANE 56, sptrace_slow_\number
    .endif
sptrace_\name\()_again:
    .if \in_lane
    CHECK_PUSH 56, sptrace_slow_\number
    .else
    CHECK_PUSH 56, sptrace_\name\()_ended
    .endif
    KEEP_TOP
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_\number
    RECORD_INDIRECT sptrace_void_\number, sptrace_slow_\number, at=56, has_top=1
sptrace_void_\number:
    VOID_INDIRECT
sptrace_slow_\number:
    SLOW 25
    .endm

    .macro RETURN_ROUTINES
    .p2align 4
sptrace_kept_first:
    SAVE
    SLOW 24

    KEPT_ROUTINE kept, 23
    KEPT_INDIRECT_ROUTINE kept_indirect, 25
    RETURN_ROUTINE return, 40, 26, 26
    RETURN_ROUTINE return_in_call, 48, 27, 27
    KEPT_ROUTINE kept_in_lane, 28, 1
    KEPT_INDIRECT_ROUTINE kept_indirect_in_lane, 29, 1
    RETURN_ROUTINE return_in_lane, 40, 30, 26, 1
    RETURN_ROUTINE return_in_call_in_lane, 48, 31, 27, 1
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
