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
//!
//! Where threads run lanes ([`crate::reach::lanes`]) there is one of each more, whose name ends in
//! `_IN_LANE`. It takes the slow path of the other when the stack is not that of the block's lane.
//! A return needs to look only where the frame is not its own.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! returns {
    () => {
        r#"
    /* Where threads run lanes: the stack is that of the block's lane. */
    .macro CHECK_LANE at, slow
    lea rax, [rsp+\at]
    sub rax, gs:[{lane_low}]
    cmp rax, gs:[{lane_bytes}]
    ja \slow
    .endm
    /* `at`: from the id to the stack pointer that the call had. */
    .macro RETURN_ROUTINE name, at, number, as, in_lane=0
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
    .if \in_lane
    CHECK_LANE \at, sptrace_slow_\number
    .endif
92: RESTORE CHECKING
    ret
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
    CHECK_PUSH 48, sptrace_slow_\number
    RESERVE 8, sptrace_slow_\number
    STAMP sptrace_void_\number
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 48
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
    CHECK_PUSH 56, sptrace_slow_\number
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_\number
    RECORD_INDIRECT sptrace_void_\number, sptrace_slow_\number, at=56
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
    .endm
    "#
    };
}

pub(crate) use returns;
