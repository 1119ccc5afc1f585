//! Calls with values in the common routines: what FIRST, INDIRECT and EXIT do before they give an
//! event to the slow path.
//!
//! Given a call of a function that has a row ([`crate::memory::rows`]); asks the function's code
//! whether the call is wanted. If not, the call goes on as one without values. Else one record
//! tells of the call and its values ([`sptrace_wire::record::VALUED_IDS`]), which the function's
//! code fills. Frames are pushed as the slow path does it: the call's own, and one a byte below it
//! that brings its exit here ([`sptrace_wire::record::FRAME_VALUES`]). So each event of a call may
//! be recorded here or by [`crate::events::call_values`], whichever way the other was.
//!
//! The row stands on the stack below what SAVE has pushed. A record's first id says how long it is,
//! and nothing else; its own comes last, so a reader passes over what is not complete. Words are
//! written by halves, since the program may have set AC, but for frames and rows, which are
//! aligned.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! values {
    () => {
        r#"
    .set RESERVED_CALL, 14
    .set WRITTEN_CALL, 16
    .set PUSHED_CALL, 17
    .set PAIRED_CALL, 18
    /* Of the record of a result, behind its id: the exit's, rax, rdx and xmm0. */
    .set RESULT_HALVES, 7
    /* The same of rax alone. */
    .set INTEGER_HALVES, 3
    /* Of a held call: bytes of its frames, and where below the stack pointer its words and its stamp are. */
    .set HELD_BYTES, 120
    .set HELD_FIRST, 88
    .set HELD_SECOND, 96
    .set HELD_STAMP, 104

    /* rax = a function: rcx = its row. Two probes. */
    .macro FIND_ROW slow
    mov rdx, gs:[{rows}]
    test rdx, rdx
    jz \slow
    mov rcx, rax
    shr rcx, 4
    imul ecx, ecx, 0x9E3779B1
    shr ecx, 32 - {row_bits}
    shl ecx, {row_shift}
    add rcx, rdx
    cmp [rcx], rax
    je 75f
    add rcx, 1 << {row_shift}
    cmp [rcx], rax
    jne \slow
75:
    .endm
    /* A row leads here: the way back to SLOW, without it. */
    .macro SLOW_WITHOUT_ROW slow
78: MARK CHECKING, 40
    lea rsp, [rsp+8]
    MARK CHECKING, 32
    jmp \slow
    .endm
    /* The frame of a call without a record, of rcx and rax, at rdx + 24; it stands above that place
       as well, as all do that have no exit of their own (shadow::push). */
    .macro WRITE_QUIET_FRAME
    mov [rdx+24], rcx
    mov [rdx+32], rax
    mov [rdx+48], rcx
    mov [rdx+56], rax
    .endm
    /* The call goes on without a record: nothing but the frame, by which its exit is passed over. */
    .macro PASS site
    MARK CHECKING, 32
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+\site-1]
    movabs rax, {frame_quiet}
    WRITE_QUIET_FRAME
    add qword ptr gs:[TOPFRAME], 24
    MARK DONE, 32
    WRITE_QUIET_FRAME
    RESTORE
    .if \site == 48
    ret 8
    .else
    ret
    .endif
    .endm
    /* The frame of the call at rdx + 24. Again: what a handler has written there goes; the registers have
       what was written first, but for the target. */
    .macro WRITE_CALL_FRAME site
    lea rcx, [rsp+\site+8]
    mov [rdx+24], rcx
    .if \site == 48
    mov rax, [rsp+48]
    mov [rdx+40], rax
    .endif
    mov rax, [rsp+40]
    mov [rdx+32], rax
    .endm
    .macro WRITE_CALL_FRAME_AGAIN site
    mov [rdx+24], rcx
    mov [rdx+32], rax
    .if \site == 48
    mov rax, [rsp+48]
    mov [rdx+40], rax
    .endif
    .endm
    /* The frame of its values above that; rcx has the stack pointer at the call site. */
    .macro WRITE_VALUES_FRAME
    dec rcx
    mov [rdx+48], rcx
    mov rax, [rsp]
    mov rax, [rax]
    mov [rdx+64], rax
    movabs rax, {frame_values}
    mov [rdx+56], rax
    .endm
    .macro WRITE_VALUES_FRAME_AGAIN
    mov [rdx+48], rcx
    mov [rdx+56], rax
    mov rax, [rsp]
    mov rax, [rax]
    mov [rdx+64], rax
    .endm

    /* The frames of a call without a record whose return has a payload, above the one at rdx: its site, two
       words of it, its time stamp, and its function; above them room for a handler's, as above. The code
       that has decided has left the words below the stack pointer, and the routine the stamp. */
    .macro WRITE_HELD_FRAMES site
    lea rcx, [rsp+\site+7]
    movabs rax, {frame_quiet_held}
    mov [rdx+24], rcx
    mov [rdx+32], rax
    mov rax, [rsp+40]
    mov [rdx+40], rax
    movabs rax, {frame_kept}
    mov [rdx+48], rcx
    mov [rdx+56], rax
    mov [rdx+72], rcx
    mov [rdx+80], rax
    mov [rdx+96], rcx
    mov [rdx+104], rax
    mov [rdx+144], rcx
    mov [rdx+152], rax
    mov rax, [rsp-HELD_FIRST]
    mov [rdx+64], rax
    mov rax, [rsp-HELD_SECOND]
    mov [rdx+88], rax
    mov rax, [rsp-HELD_STAMP]
    mov [rdx+112], rax
    movabs rax, {frame_held}
    mov [rdx+120], rcx
    mov [rdx+128], rax
    mov rax, [rsp]
    mov rax, [rax]
    mov [rdx+136], rax
    .endm

    /* edx = the id of the record of a call with values, of which the row is at the stack pointer. */
    .macro ID_OF_CALL site
    mov rdx, [rsp]
    mov edx, [rdx+24]
    .if \site == 48
    inc edx
    .endif
    .endm

    /* rcx = the row of what is called; `site`: where the stack pointer at the call site is, 48 of a call
       through a pointer; `plain`: how a call goes on without values, with room for its frame: it must
       not lead back here where a chunk ends. `head`: bytes of the record before the words. */
    .macro CALL_WITH_VALUES site, head, plain, slow
    push rcx
    MARK CHECKING, 40
    mov rcx, [rcx+8]
    test rcx, rcx
    jz 76f
    lea rdx, [rsp+\site+8]
    call rcx
    cmp eax, 1
    je 76f
    ja 74f
    lea rsp, [rsp+8]
    MARK CHECKING, 32
    jmp \plain
76: MARK CHECKING, 40
    mov rax, [rsp]
    cmp qword ptr [rax+16], 0
    je 72f
    cmp qword ptr gs:[MUTED], 0
    jne 72f
    mov rdx, gs:[TOPFRAME]
    add rdx, 24
    cmp rdx, gs:[FRAMELIMIT]
    jae 72f
    movzx eax, word ptr [rax+28]
    add eax, \head
    mov ecx, eax
    xadd gs:[CUR], rcx
    lea rax, [rcx+rax-{end_bytes}]
    lea rcx, [rcx+\head]
    cmp rax, gs:[END]
    ja 72f
    MARK RESERVED_CALL, 40
    rdtsc
    cmp edx, gs:[HI]
    jne 77f
    mov [rcx-\head], eax
    ID_OF_CALL \site
    or edx, {valued_nothing}
    mov [rcx-\head+4], edx
    mov edx, [rsp+40]
    mov [rcx-\head+8], edx
    .if \site == 48
    mov edx, [rsp+48]
    mov [rcx-4], edx
    .endif
    mov rax, [rsp]
    lea rdx, [rsp+\site+8]
    call qword ptr [rax+16]
    ID_OF_CALL \site
    mov [rcx-\head+4], edx
    MARK WRITTEN_CALL, 40
    mov rdx, gs:[TOPFRAME]
    WRITE_CALL_FRAME \site
    add qword ptr gs:[TOPFRAME], 24
    MARK PUSHED_CALL, 40
    WRITE_CALL_FRAME_AGAIN \site
    mov rax, [rsp]
    test dword ptr [rax+28], {returns}
    jz 79f
    /* A handler may have ended without an event and left its frame on top. */
    lea rax, [rdx+24]
    cmp rax, gs:[TOPFRAME]
    jne 73f
    WRITE_VALUES_FRAME
    add qword ptr gs:[TOPFRAME], 24
    MARK PAIRED_CALL, 40
    WRITE_VALUES_FRAME_AGAIN
79: MARK DONE, 40
    lea rsp, [rsp+8]
    RESTORE
    .if \site == 48
    ret 8
    .else
    ret
    .endif
    /* The result will not be recorded: the next event of the slow path tells. */
73: MARK PUSHED_CALL, 40
    inc qword ptr gs:[{lost}]
    jmp 79b
74: MARK CHECKING, 40
    cmp eax, {passed}
    jb 78f
    ja 71f
    lea rsp, [rsp+8]
    PASS \site
    /* Its return is waited for. */
71: MARK CHECKING, 40
    cmp eax, {held}
    jne 72f
    mov rdx, gs:[TOPFRAME]
    lea rax, [rdx+HELD_BYTES]
    cmp rax, gs:[FRAMELIMIT]
    jae 70f
    mov rax, [rsp]
    test dword ptr [rax+28], {exit_timed}
    jz 69f
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [rsp-HELD_STAMP], rax
    mov rdx, gs:[TOPFRAME]
    /* Without a stamp the frame gets what stands in its place. */
69: MARK CHECKING, 40
    WRITE_HELD_FRAMES \site
    add qword ptr gs:[TOPFRAME], HELD_BYTES
    MARK DONE, 40
    WRITE_HELD_FRAMES \site
    lea rsp, [rsp+8]
    RESTORE
    .if \site == 48
    ret 8
    .else
    ret
    .endif
    /* Acts are not done twice: the slow path is told what they have given. */
70: MARK CHECKING, 40
    mov qword ptr gs:[{acted}], 2
    jmp 78f
77: MARK RESERVED_CALL, 40
    mov dword ptr [rcx-\head], 1
    ID_OF_CALL \site
    or edx, {valued_nothing}
    mov [rcx-\head+4], edx
72: MARK CHECKING, 40
    mov qword ptr gs:[{acted}], 1
    SLOW_WITHOUT_ROW \slow
    .endm

    /* rcx = the row: the return with so many halves behind its id. The row is kept below the stack
       pointer. */
    .macro RECORD_RESULT halves, void
    mov [rsp-8], rcx
    mov ecx, 4*\halves+8
    xadd gs:[CUR], rcx
    lea rax, [rcx+4*\halves+8-{end_bytes}]
    cmp rax, gs:[END]
    ja sptrace_slower_1
    MARK RESERVED_CALL, 32
    rdtsc
    cmp edx, gs:[HI]
    jne \void
    mov [rcx], eax
    mov dword ptr [rcx+4], {valued_nothing}+\halves
    mov eax, [rsp+32]
    mov [rcx+8], eax
    mov rax, [rsp+24]
    mov [rcx+12], eax
    shr rax, 32
    mov [rcx+16], eax
    .if \halves == RESULT_HALVES
    mov rax, [rsp]
    mov [rcx+20], eax
    shr rax, 32
    mov [rcx+24], eax
    movq rax, xmm0
    mov [rcx+28], eax
    shr rax, 32
    mov [rcx+32], eax
    .endif
    mov rax, [rsp-8]
    mov eax, [rax+24]
    and eax, ~{valued_halves}
    or eax, \halves
    mov [rcx+4], eax
    MARK WRITTEN_CALL, 32
    sub qword ptr gs:[TOPFRAME], 48
    RESTORE
    ret
    .endm
    .macro VOID_RESULT halves
    MARK RESERVED_CALL, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {valued_nothing}+\halves
    MARK CHECKING, 32
    jmp sptrace_slower_1
    .endm

    /* A direct call, from the slot of which the id leads to the callee. */
    .macro FIRST_VALUES
    MARK CHECKING, 32
    CHECK_THREAD sptrace_slow_5
    CHECK_PUSH 40, sptrace_slow_5
    mov rax, [rsp+32]
    test al, 7
    jnz sptrace_slow_5
    mov rcx, [rax]
    cmp cl, 0xe8
    jne sptrace_slow_5
    shr rcx, 8
    movsxd rcx, ecx
    lea rax, [rax+rcx+5]
    FIND_ROW sptrace_slow_5
    CALL_WITH_VALUES 40, 12, sptrace_entry_plain, sptrace_slow_5
sptrace_slow_5:
    SLOW 5
    .endm

    /* INDIRECT has looked at the thread and at the frames; rax = the target. */
    .macro INDIRECT_VALUES
sptrace_indirect_values:
    MARK CHECKING, 32
    FIND_ROW sptrace_slower_2
    CALL_WITH_VALUES 48, 16, sptrace_indirect_plain, sptrace_slower_2
sptrace_indirect_plain:
    MARK CHECKING, 32
    mov rax, [rsp+40]
    RECORD_INDIRECT sptrace_indirect_void, sptrace_indirect_full
sptrace_indirect_void:
    VOID_INDIRECT
    /* The slow path is told that the callee's code has run. */
sptrace_indirect_full:
    MARK CHECKING, 32
    mov qword ptr gs:[{acted}], 1
sptrace_slower_2:
    MARK CHECKING, 32
    SLOW 2
    .endm

    /* EXIT has looked at the thread; rdx = the top frame, and rcx = the stack pointer at the call
       site. The call's frame lies below that of its values, and nothing is kept for its return. */
    .macro EXIT_VALUES
sptrace_exit_values:
    MARK CHECKING, 32
    dec rcx
    cmp rcx, [rdx]
    jne sptrace_slower_1
    movabs rax, {frame_values}
    cmp rax, [rdx+8]
    jne 74f
    inc rcx
    cmp rcx, [rdx-24]
    jne sptrace_slower_1
    bt qword ptr [rdx-16], 63
    jc sptrace_slower_1
    /* Of the same site: setjmp(3) may return once more, at the stack pointer of a call that was jumped
       out of. EXIT is called 9 bytes behind the id of a call through a pointer, 10 behind another's. */
    mov eax, [rsp+32]
    sub eax, [rdx-16]
    sub eax, 9
    shr eax, 1
    jnz sptrace_slower_1
    mov rax, [rdx+16]
    FIND_ROW sptrace_slower_1
    mov edx, [rcx+28]
    test edx, {returns_by_routine}
    jz sptrace_slower_1
    cmp qword ptr gs:[MUTED], 0
    jne sptrace_slower_1
    mov eax, [rsp+24]
    test edx, {fails_by_minus_one}
    jz 75f
    cmp eax, -1
    je sptrace_slower_1
75: test edx, {fails_by_null}
    jz 76f
    test eax, eax
    jz sptrace_slower_1
76: test edx, {result_is_integer}
    jz 78f
    RECORD_RESULT INTEGER_HALVES, 77f
78: MARK CHECKING, 32
    RECORD_RESULT RESULT_HALVES, 79f
    /* Or it has no record. */
74: MARK CHECKING, 32
    movabs rax, {frame_quiet}
    cmp rax, [rdx+8]
    jne 73f
    sub qword ptr gs:[TOPFRAME], 24
    MARK DONE, 32
    RESTORE
    ret
    /* Or that, and a payload of its return. */
73: MARK CHECKING, 32
    movabs rax, {frame_held}
    cmp rax, [rdx+8]
    jne sptrace_slower_1
    mov eax, [rsp+32]
    sub eax, [rdx-HELD_BYTES+40]
    sub eax, 9
    shr eax, 1
    jnz sptrace_slower_1
    mov rax, [rdx+16]
    FIND_ROW sptrace_slower_1
    test dword ptr [rcx+28], {exits_by_routine}
    jz sptrace_slower_1
    push rcx
    MARK CHECKING, 40
    call qword ptr [rcx+16]
    cmp eax, {passed}
    jne 70f
    sub qword ptr gs:[TOPFRAME], HELD_BYTES
    MARK DONE, 40
    lea rsp, [rsp+8]
    RESTORE
    ret
70: SLOW_WITHOUT_ROW sptrace_slower_1
77: VOID_RESULT INTEGER_HALVES
79: VOID_RESULT RESULT_HALVES
sptrace_slower_1:
    SLOW 1
    .endm
"#
    };
}

pub(crate) use values;
