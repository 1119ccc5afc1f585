//! The hot path: the routines that every slot calls, copied into each patch area.
//!
//! Position-independent, reached by rel32; what they cannot do they leave to the agent through the
//! pointer at the start of the copy. Each keeps every register and flag: lahf/seto and add/sahf
//! carry the six arithmetic flags (Intel SDM vol. 2, LAHF) and hide under rdtsc, where
//! pushfq/popfq would cost 8 ns.
//!
//! Stack after SAVE (lower addresses first), and what stands above the id by routine:
//!
//! ```text
//!  rsp+0  rdx   +8 rcx   +16 flags   +24 rax   +32 id = return address into the slot
//!  ENTRY, EXIT, FIRST   +40 = stack pointer at the call site
//!  HOOK                 +40 return addr +48 = stack pointer at the call site
//!  INDIRECT             +40 target      +48 = stack pointer at the call site
//!  TAIL, ENTRY_ONLY     +40 return addr +48 = stack pointer at the call site of the frame
//!  TAIL_INDIRECT        +40 target      +48 return addr   +56 = the same
//! ```
//!
//! Order within an event: reserve the record (xadd: one instruction, so a signal handler's records
//! come before or after, never on top), then read the clock, then store. Time in a thread's buffer
//! then never runs backwards by more than a handler's length. Of a record of 12 bytes the stamp comes
//! last, so that one that is never finished shows its length; of one of 8 bytes the id.
//!
//! A frame is pushed by writing it above the top, moving the top in one instruction, and writing it
//! again: a handler that ran in between has used the same place.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text.sptrace_common,"ax",@progbits
    .p2align 6
    .globl sptrace_common_start, sptrace_common_end
    .hidden sptrace_common_start, sptrace_common_end

    .set KEY, 0
    .set CUR, 0x1000
    .set END, 0x1008
    .set HI, 0x1010
    .set TOPFRAME, 0x1018
    .set FRAMELIMIT, 0x1020
    .set TABLE, 0x1028
    .set AGENTSTACK, 0x1030
    .set MUTED, 0x1038
    .set REARM, 0x1080
    .set UNBLOCKED, 0x10c8
    .set XMM_BYTES, 256
    .set KEPT_BYTES, 320

    /* Where a signal may interrupt, for `sigframe`: from here on the phase is PHASE, and the id
       stands DEPTH bytes above rsp. Costs no instruction. */
    .pushsection .rodata.sptrace_marks,"a",@progbits
    .globl sptrace_marks, sptrace_marks_end
    .hidden sptrace_marks, sptrace_marks_end
    .p2align 2
sptrace_marks:
    .popsection
    .macro MARK phase, depth, from=sptrace_common_start
.Lmark\@:
    .pushsection .rodata.sptrace_marks,"a",@progbits
    .long .Lmark\@ - \from, \phase, \depth
    .popsection
    .endm
    .set SAVING, 0
    .set CHECKING, 1
    .set RESERVED, 2
    .set COMMITTED, 3
    .set PUSHED, 4
    .set DONE, 5
    .set SILENT, 6
    .set SILENT_DONE, 7
    .set DOOR_SAVING, 8
    .set DOOR_BEFORE, 9
    .set DOOR_INSIDE, 10
    .set DOOR_AFTER, 11
    .set DOOR_KEPT, 12

    .macro SAVE
    MARK SAVING, 0
    push rax
    MARK SAVING, 8
    lahf
    seto al
    push rax
    MARK SAVING, 16
    push rcx
    MARK SAVING, 24
    push rdx
    MARK CHECKING, 32
    .endm
    .macro RESTORE phase=DONE, from=sptrace_common_start
    MARK \phase, 32, \from
    pop rdx
    MARK \phase, 24, \from
    pop rcx
    MARK \phase, 16, \from
    pop rax
    MARK \phase, 8, \from
    add al, 0x7f
    sahf
    pop rax
    MARK \phase, 0, \from
    .endm
    /* Below the id: a word for where to go, then three registers. */
    .macro SAVE_SILENT
    MARK SAVING, 0
    push rax
    MARK SAVING, 8
    push rax
    MARK SAVING, 16
    push rcx
    MARK SILENT, 24
    push rdx
    MARK SILENT, 32
    .endm
    /* 32 bits at rdx + at, sign-extended, by bytes: the program may have set AC. Changes no flag. */
    .macro LOAD_ODD to, at
    mov al, [rdx+\at+3]
    mov ah, [rdx+\at+2]
    bswap eax
    mov al, [rdx+\at]
    mov ah, [rdx+\at+1]
    movsxd \to, eax
    .endm
    .macro RESTORE_SILENT
    MARK SILENT_DONE, 32
    pop rdx
    MARK SILENT_DONE, 24
    pop rcx
    MARK SILENT_DONE, 16
    pop rax
    MARK SILENT_DONE, 8
    .endm
    .macro SLOW number
    MARK CHECKING, 32
    push \number
    MARK CHECKING, 40
    jmp [rip+sptrace_common_start]
    .endm
    /* The agent is compiled for SSE2: it changes no other register than the general ones and these. */
    .macro SAVE_XMM bytes=XMM_BYTES
    sub rsp, \bytes
    and rsp, -64
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps [rsp + 16 * \n], xmm\n
    .endr
    .endm
    .macro RESTORE_XMM
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps xmm\n, [rsp + 16 * \n]
    .endr
    .endm
    .macro CHECK_THREAD slow
    rdfsbase rcx
    cmp rcx, gs:[KEY]
    jne \slow
    .endm
    /* A new frame must lie below the top one, and have room. */
    .macro CHECK_PUSH at, slow
    mov rdx, gs:[TOPFRAME]
    lea rax, [rsp+\at]
    cmp rax, [rdx]
    jae \slow
    cmp rdx, gs:[FRAMELIMIT]
    jae \slow
    .endm
    .macro RESERVE bytes, slow
    mov ecx, \bytes
    xadd gs:[CUR], rcx
    cmp rcx, gs:[END]
    jae \slow
    MARK RESERVED, 32
    .endm
    .macro STAMP slow
    rdtsc
    cmp edx, gs:[HI]
    jne \slow
    mov [rcx], eax
    .endm
    /* rax = target, and stays: is it instrumented? two probes */
    .macro LOOK_UP slow
    mov rcx, rax
    shr rcx, 4
    imul ecx, ecx, 0x9E3779B1
    shr ecx, 15
    mov rdx, gs:[TABLE]
    cmp [rdx+rcx*8], rax
    je 70f
    cmp [rdx+rcx*8+8], rax
    jne \slow
70:
    .endm

sptrace_common_start:
    .quad 0                     /* where the slow path is: filled in by the agent */
    .quad 0                     /* wirings done in this area: see fork */
    .quad 0, 0, 0, 0            /* what a later attach finds it by: see AreaHeader */
sptrace_originals:
    .quad 0                     /* addresses that hooks have replaced, when the agent is gone */

    /* What the routines of calls become when nothing is recorded any more: the callee gets the
       program's own return address (the way back in the slot: see `unwind::original_return`) and is
       jumped to. Reached by a jump over the routine's first instruction. At the entry, whose first
       one has one byte, its displacement must be the byte that stands behind it, lahf: -97. */
    .p2align 6
    .skip 33
sptrace_silent_entry:
    SAVE_SILENT
    mov rdx, [rsp+32]
    LOAD_ODD rcx, 11
    lea rcx, [rdx+rcx+15]
    LOAD_ODD rax, 1
    lea rax, [rdx+rax+5]
    mov [rsp+24], rax
    mov [rsp+32], rcx
    RESTORE_SILENT
    ret
    .skip 95 - (. - sptrace_silent_entry)
sptrace_entry:
    SAVE
    CHECK_THREAD sptrace_slow_0
    CHECK_PUSH 40, sptrace_slow_0
    RESERVE 8, sptrace_slow_0
    STAMP sptrace_void_0
    mov rax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+40]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    MARK PUSHED, 32
    mov [rdx+24], rcx
    mov [rdx+32], rax
    RESTORE
    ret
sptrace_void_0:
    MARK RESERVED, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
sptrace_slow_0:
    SLOW 0

    .p2align 6
sptrace_exit:
    SAVE
    CHECK_THREAD sptrace_slow_1
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+40]
    cmp rcx, [rdx]
    jne sptrace_slow_1
    RESERVE 8, sptrace_slow_1
    STAMP sptrace_void_1
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
sptrace_void_1:
    MARK RESERVED, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
sptrace_slow_1:
    SLOW 1

sptrace_silent_indirect:
    SAVE_SILENT
    mov rdx, [rsp+32]
    LOAD_ODD rcx, 10
    lea rcx, [rdx+rcx+14]
    mov rax, [rsp+40]
    mov [rsp+24], rax
    mov [rsp+40], rcx
    RESTORE_SILENT
    ret 8

    .p2align 6
sptrace_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_2
    CHECK_PUSH 48, sptrace_slow_2
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_2
    RESERVE 12, sptrace_slow_2
    mov [rcx+8], eax
    mov eax, [rsp+32]
    mov [rcx+4], eax
    STAMP sptrace_void_2
    MARK COMMITTED, 32
    mov rdx, gs:[TOPFRAME]
    mov rax, [rsp+40]
    mov [rdx+40], rax
    mov rax, [rsp+32]
    lea rcx, [rsp+48]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    MARK PUSHED, 32
    mov [rdx+24], rcx
    mov [rdx+32], rax
    mov rcx, [rsp+40]
    mov [rdx+40], rcx
    RESTORE
    ret 8
sptrace_void_2:
    MARK RESERVED, 32
    mov dword ptr [rcx+4], {nothing_narrow}
    mov dword ptr [rcx], 1
sptrace_slow_2:
    SLOW 2

    .p2align 6
sptrace_tail:
    SAVE
    CHECK_THREAD sptrace_slow_3
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+48]
    cmp rcx, [rdx]
    jne sptrace_slow_3
    RESERVE 8, sptrace_slow_3
    STAMP sptrace_void_3
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    RESTORE
    ret
sptrace_void_3:
    MARK RESERVED, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
sptrace_slow_3:
    SLOW 3

    .p2align 6
sptrace_tail_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_4
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+56]
    cmp rcx, [rdx]
    jne sptrace_slow_4
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_4
    RESERVE 12, sptrace_slow_4
    mov [rcx+8], eax
    mov eax, [rsp+32]
    mov [rcx+4], eax
    STAMP sptrace_void_4
    MARK COMMITTED, 32
    RESTORE
    ret 8
sptrace_void_4:
    MARK RESERVED, 32
    mov dword ptr [rcx+4], {nothing_narrow}
    mov dword ptr [rcx], 1
sptrace_slow_4:
    SLOW 4

sptrace_silent_first:
    MARK SAVING, 0
    jmp sptrace_silent_entry
    .p2align 4
sptrace_first:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    SLOW 5
    .p2align 4
sptrace_tail_first:
    SAVE
    SLOW 6
    .p2align 4
sptrace_special:
    SAVE
    SLOW 7
    .p2align 4
sptrace_entry_only_first:
    SAVE
    SLOW 9

    .p2align 6
sptrace_entry_only:
    SAVE
    CHECK_THREAD sptrace_slow_8
    CHECK_PUSH 48, sptrace_slow_8
    RESERVE 8, sptrace_slow_8
    STAMP sptrace_void_8
    mov rax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    bts rax, 63
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+48]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    MARK PUSHED, 32
    mov [rdx+24], rcx
    mov [rdx+32], rax
    RESTORE
    ret
sptrace_void_8:
    MARK RESERVED, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
sptrace_slow_8:
    SLOW 8

    /* A hooked function: nothing to do if its call was recorded, which is the top frame then. */
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
sptrace_hook_exit:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    SLOW 11

    /* The return of a hooked function when the agent is gone: fills the word above the id from the table
       of replaced addresses, by its place (see `hook`). */
sptrace_silent_hook_exit:
    MARK SILENT, 0
    push rax
    push rcx
    push rdx
    push rsi
    pushfq
    lea rax, [rsp+48]
    mov ecx, eax
    shr rax, 3
    imul eax, eax, 0x9E3779B1
    shr eax, {originals_shift}
    mov rdx, [rip+sptrace_originals]
    test rdx, rdx
    jz 78f
    mov ecx, {probes}
77: and eax, {originals} - 1
    mov rsi, rax
    shl rsi, 4
    add rsi, rdx
    push rdi
    lea rdi, [rsp+56]
    xor rdi, [rsi]
    and rdi, {not_asked}
    pop rdi
    je 79f
    inc eax
    dec ecx
    jnz 77b
78: ud2
79: mov rsi, [rsi+8]
    mov [rsp+48], rsi
    popfq
    pop rsi
    pop rdx
    pop rcx
    pop rax
    ret
sptrace_common_end:

    /* The slow path's door. Above what SAVE pushed stands the routine's number. Saves the rest,
       xmm included (SSE2 instructions leave x87 and the upper halves of ymm and zmm alone), clears DF,
       AC and TF, and returns by `ret` or `ret 8` as the agent says. */
    .text
    .globl sptrace_slow_door, sptrace_slow_door_end
    .hidden sptrace_slow_door, sptrace_slow_door_end
    .p2align 4
sptrace_slow_door:
    MARK DOOR_SAVING, 40, sptrace_slow_door
    push rsi
    MARK DOOR_SAVING, 48, sptrace_slow_door
    push rdi
    MARK DOOR_SAVING, 56, sptrace_slow_door
    push r8
    MARK DOOR_SAVING, 64, sptrace_slow_door
    push r9
    MARK DOOR_SAVING, 72, sptrace_slow_door
    push r10
    MARK DOOR_SAVING, 80, sptrace_slow_door
    push r11
    MARK DOOR_SAVING, 88, sptrace_slow_door
    pushfq
    MARK DOOR_SAVING, 96, sptrace_slow_door
    push 2
    MARK DOOR_SAVING, 104, sptrace_slow_door
    popfq
    MARK DOOR_SAVING, 96, sptrace_slow_door
    push rbp
    MARK DOOR_SAVING, 104, sptrace_slow_door
    push rbx
    MARK DOOR_SAVING, 112, sptrace_slow_door
    lea rbp, [rsp+8]
    MARK DOOR_BEFORE, 112, sptrace_slow_door
    /* Signals are blocked before the stack is changed and let in after it is changed back: a handler
       runs where it would run without us. A dormant process makes no system call but for a walker's
       entry outside of a sandbox. */
    push 0
    MARK DOOR_BEFORE, 120, sptrace_slow_door
    push -1
    MARK DOOR_BEFORE, 128, sptrace_slow_door
    cmp dword ptr [rip+{process}+{dormant}], 0
    jne 83f
    /* Around a walk of the stack that may be unnecessary: see `unblocked`. */
    rdgsbase rax
    test rax, rax
    jz 86f
    rdfsbase rcx
    cmp rcx, gs:[KEY]
    jne 86f
    cmp dword ptr [rbp+64], 7
    je 87f
    cmp qword ptr gs:[REARM], 0
    je 86f
    /* Rust code keeps r12 to r15, but a context in the middle of it needs them, too. */
87: SAVE_XMM KEPT_BYTES
    mov [rsp+XMM_BYTES], r12
    mov [rsp+XMM_BYTES+8], r13
    mov [rsp+XMM_BYTES+16], r14
    mov [rsp+XMM_BYTES+24], r15
    MARK DOOR_KEPT, 128, sptrace_slow_door
    /* A handler that interrupts may come here, too. */
    mov rax, gs:[UNBLOCKED]
    mov [rbp-24], rax
    mov gs:[UNBLOCKED], rbp
    mov rdi, rbp
    call {unblocked}
    mov rcx, [rbp-24]
    mov gs:[UNBLOCKED], rcx
    mov qword ptr [rbp-24], -1
    RESTORE_XMM
    MARK DOOR_BEFORE, 128, sptrace_slow_door
    lea rsp, [rbp-24]
    sub eax, 1
    jb 86f
    /* Done, or the routine is called again: its call has 5 bytes. */
    mov qword ptr [rbp+64], 0
    lea rax, [rax+rax*4]
    sub [rbp+104], rax
    MARK DOOR_AFTER, 128, sptrace_slow_door
    jmp 85f
    MARK DOOR_BEFORE, 128, sptrace_slow_door
86: mov eax, 14
    mov edi, 2
    lea rsi, [rbp-24]
    lea rdx, [rbp-16]
    mov r10d, 8
    syscall
    jmp 84f
83: cmp dword ptr [rbp+64], 7
    jne 88f
    cmp dword ptr [rip+{process}+{sandboxed}], 0
    jne 88f
    cmp dword ptr [rip+{process}+{sees_sandbox}], 0
    jne 86b
88: mov qword ptr [rbp-24], 0
    /* The program's stack may be a small one: use the thread block's, unless this is no thread of
       ours yet or a signal handler that interrupted a dormant agent. */
84: MARK DOOR_INSIDE, 0, sptrace_slow_door
    xor ebx, ebx
    test dword ptr [rip+{process}+{dormant}], {gs_taken}
    jnz 81f
    rdgsbase rax
    test rax, rax
    jz 81f
    rdfsbase rcx
    cmp rcx, gs:[KEY]
    jne 81f
    xchg gs:[AGENTSTACK], rbx
    test rbx, rbx
    jz 81f
    mov rsp, rbx
81: SAVE_XMM
    mov rdi, rbp
    mov rsi, [rbp-16]
    mov rdx, [rbp-24]
    call {slow}
    RESTORE_XMM
    test rbx, rbx
    jz 82f
    mov gs:[AGENTSTACK], rbx
82: lea rsp, [rbp-24]
    mov [rbp+64], rax
    MARK DOOR_AFTER, 128, sptrace_slow_door
    cmp qword ptr [rbp-24], 0
    je 85f
    mov eax, 14
    mov edi, 2
    lea rsi, [rbp-16]
    xor edx, edx
    mov r10d, 8
    syscall
85: mov rbx, [rbp-8]
    mov rsp, rbp
    MARK DOOR_AFTER, 104, sptrace_slow_door
    pop rbp
    MARK DOOR_AFTER, 96, sptrace_slow_door
    popfq
    MARK DOOR_AFTER, 88, sptrace_slow_door
    pop r11
    MARK DOOR_AFTER, 80, sptrace_slow_door
    pop r10
    MARK DOOR_AFTER, 72, sptrace_slow_door
    pop r9
    MARK DOOR_AFTER, 64, sptrace_slow_door
    pop r8
    MARK DOOR_AFTER, 56, sptrace_slow_door
    pop rdi
    MARK DOOR_AFTER, 48, sptrace_slow_door
    pop rsi
    MARK DOOR_AFTER, 40, sptrace_slow_door
    cmp qword ptr [rsp], 0
    lea rsp, [rsp+8]
    MARK DOOR_AFTER, 32, sptrace_slow_door
    jne 80f
    RESTORE DOOR_AFTER, sptrace_slow_door
    ret
80: RESTORE DOOR_AFTER, sptrace_slow_door
    ret 8
sptrace_slow_door_end:

    .pushsection .rodata.sptrace_marks,"a",@progbits
sptrace_marks_end:
    .popsection

    .section .rodata.sptrace_common,"a",@progbits
    .globl sptrace_common_offsets
    .hidden sptrace_common_offsets
    .p2align 2
sptrace_common_offsets:
    .long sptrace_entry - sptrace_common_start
    .long sptrace_exit - sptrace_common_start
    .long sptrace_indirect - sptrace_common_start
    .long sptrace_tail - sptrace_common_start
    .long sptrace_tail_indirect - sptrace_common_start
    .long sptrace_first - sptrace_common_start
    .long sptrace_tail_first - sptrace_common_start
    .long sptrace_special - sptrace_common_start
    .long sptrace_entry_only - sptrace_common_start
    .long sptrace_entry_only_first - sptrace_common_start
    .long sptrace_hook - sptrace_common_start
    .long sptrace_hook_exit - sptrace_common_start
    .globl sptrace_silent_offsets
    .hidden sptrace_silent_offsets
sptrace_silent_offsets:
    .long sptrace_silent_first - sptrace_common_start
    .long sptrace_silent_indirect - sptrace_common_start
    .long sptrace_silent_hook_exit - sptrace_common_start
    .text
    "#,
    slow = sym crate::slow::slow,
    unblocked = sym crate::unblocked::unblocked,
    process = sym crate::state::PROCESS,
    gs_taken = const crate::state::GS_TAKEN,
    dormant = const core::mem::offset_of!(crate::state::Process, dormant),
    sandboxed = const core::mem::offset_of!(crate::state::Process, sandboxed),
    sees_sandbox = const core::mem::offset_of!(crate::state::Process, sees_sandbox),
    originals = const crate::hook::ORIGINALS,
    originals_shift = const crate::hook::SHIFT,
    probes = const crate::hook::PROBES,
    not_asked = const !(crate::hook::ASKED as i64),
    nothing = const sptrace_wire::record::NOTHING,
    nothing_narrow = const sptrace_wire::record::NOTHING_NARROW,
);

/// Where a signal interrupted a routine or the door.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Registers are being pushed; the program's are unchanged but for rax.
    Saving = 0,
    /// Nothing has happened yet.
    Checking = 1,
    /// A record is reserved, at rcx, and not complete.
    Reserved = 2,
    /// The record is written, the shadow stack is not.
    Committed = 3,
    /// The shadow frame is pushed; rdx is the frame below.
    Pushed = 4,
    /// All is done.
    Done = 5,
    /// Nothing has happened yet and nothing will be recorded; rax, rcx and rdx are being pushed.
    Silent = 6,
    /// The same, when the return address is in its place, and below the id stands where to go.
    SilentDone = 7,
    /// As `Saving`, in the slow path's door.
    DoorSaving = 8,
    /// Nothing has happened yet; all registers are saved.
    DoorBefore = 9,
    /// On the way to the agent's stack or back: nothing is certain.
    DoorInside = 10,
    /// The slow path is over; all registers are still saved.
    DoorAfter = 11,
    /// As `DoorBefore`, and the vector registers, which may be the agent's, are saved, too.
    DoorKept = 12,
}

#[repr(C)]
struct Mark {
    offset: u32,
    phase: Phase,
    depth: u32,
}

unsafe extern "C" {
    static sptrace_marks: Mark;
    static sptrace_marks_end: Mark;
    static sptrace_slow_door_end: u8;
    static sptrace_common_start: u8;
    static sptrace_common_end: u8;
    static sptrace_common_offsets: [u32; sptrace_wire::plan::common::COUNT];
    static sptrace_silent_offsets: [u32; 3];
    fn sptrace_slow_door();
}

/// Copies the routines to the start of an area's write view and wires the slow path.
///
/// # Safety
/// `area_rw` is a fresh area of at least `SLOTS_START` bytes.
pub unsafe fn install(area_rw: *mut u8) {
    let start = &raw const sptrace_common_start;
    let bytes = &raw const sptrace_common_end as usize - start as usize;
    // SAFETY: the routines are smaller than SLOTS_START (checked by a test).
    unsafe {
        core::ptr::copy_nonoverlapping(start, area_rw, bytes);
        (area_rw as *mut u64).write(sptrace_slow_door as *const () as u64);
    }
}

/// Offset of routine `number` in an area.
pub fn offset(number: i32) -> u32 {
    // SAFETY: an immutable table of the image.
    let table = unsafe { &sptrace_common_offsets };
    table.get(number as usize).copied().unwrap_or(0)
}

/// Bytes of the routines.
pub fn bytes() -> usize {
    &raw const sptrace_common_end as usize - &raw const sptrace_common_start as usize
}

/// What `rip` is in the middle of, as (phase, bytes from rsp up to the id); `area` is that of its
/// patch area, or 0 outside of all.
pub fn interrupted(rip: u64, area: u64) -> Option<(Phase, u64)> {
    let door = sptrace_slow_door as *const () as u64;
    let (start, bytes) = if area != 0 {
        (area, bytes() as u64)
    } else {
        (door, &raw const sptrace_slow_door_end as u64 - door)
    };
    let offset = rip.wrapping_sub(start);
    if offset >= bytes {
        return None;
    }
    let (first, end) = (&raw const sptrace_marks, &raw const sptrace_marks_end);
    let mut found = None;
    let mut best = 0;
    let mut mark = first;
    while mark < end {
        // SAFETY: an immutable table of the image.
        let m = unsafe { &*mark };
        let of_door = m.phase as u32 >= Phase::DoorSaving as u32;
        if of_door == (area == 0) && m.offset as u64 <= offset && m.offset >= best {
            best = m.offset;
            found = Some((m.phase, m.depth as u64));
        }
        mark = mark.wrapping_add(1);
    }
    found
}

/// Turns the routines of one area into what they are when nothing is recorded any more: those of calls
/// leave the program's own return address, the others only return. The special routine stays: an
/// unwinder must still be served. So does the return of hooked functions, whose return address is not
/// on the stack. May be done again.
///
/// # Safety
/// `area_rw` is the write view of an installed area.
pub unsafe fn silence(area_rw: *mut u8) {
    use sptrace_wire::plan::common::*;
    // SAFETY: an immutable table of the image.
    let [first, indirect, _] = unsafe { sptrace_silent_offsets };
    let routines = [
        (ENTRY, (0xff, 0xeb)),
        (EXIT, RET),
        (TAIL, RET),
        (FIRST, jump(FIRST, first)),
        (ENTRY_ONLY, RET),
        (ENTRY_ONLY_FIRST, RET),
        (HOOK, RET),
        (INDIRECT, jump(INDIRECT, indirect)),
        (TAIL_INDIRECT, RET_8),
    ];
    // SAFETY: the caller's.
    unsafe { replace_first(area_rw, &routines) };
}

/// Silences an area for good: nothing in it needs the agent any more, which may be unmapped. What may still
/// come back to a slot finds the way to the program.
///
/// # Safety
/// As for `silence`. No thread is inside a routine that was not silent.
pub unsafe fn retire(area_rw: *mut u8) {
    use sptrace_wire::plan::common::*;
    // SAFETY: an immutable table of the image.
    let [_, _, hook_exit] = unsafe { sptrace_silent_offsets };
    // SAFETY: the caller's.
    unsafe {
        silence(area_rw);
        let rest = [
            (SPECIAL, RET),
            (TAIL_FIRST, RET),
            (HOOK_EXIT, jump(HOOK_EXIT, hook_exit)),
        ];
        replace_first(area_rw, &rest);
    }
}

/// Makes a silent area record again.
///
/// # Safety
/// As for `silence`. All other threads are stopped.
pub unsafe fn wake(area_rw: *mut u8) {
    // SAFETY: the same routines were copied there by `install`: only first instructions differ.
    unsafe {
        for routine in 0..sptrace_wire::plan::common::COUNT {
            let at = offset(routine as i32) as usize;
            let image = (&raw const sptrace_common_start).add(at) as *const u64;
            (area_rw.add(at) as *mut u64).write_volatile(image.read());
        }
        (area_rw as *mut u64).write(sptrace_slow_door as *const () as u64);
    }
}

const RET: (u64, u64) = (0xff, 0xc3);
const RET_8: (u64, u64) = (0xff_ffff, 0x0008c2);

unsafe fn replace_first(area_rw: *mut u8, routines: &[(i32, (u64, u64))]) {
    for (routine, (covered, bytes)) in routines {
        // SAFETY: routines are aligned to 16: one store inside an aligned 8-byte word is seen whole
        // by threads that execute it. Exactly the first instruction is replaced, of one byte or three.
        unsafe {
            let at = area_rw.add(offset(*routine) as usize) as *mut u64;
            at.write_volatile(at.read_volatile() & !covered | bytes);
        }
    }
}

/// The bytes that replace the 3-byte first instruction of `routine` by a short jump to `to`.
fn jump(routine: i32, to: u32) -> (u64, u64) {
    let displacement = to.wrapping_sub(offset(routine) + 2) as u8;
    (0xff_ffff, 0xeb | u64::from(displacement) << 8)
}

/// True once `silence` was done on the area.
///
/// # Safety
/// As for `silence`.
pub unsafe fn is_silent(area_rw: *mut u8) -> bool {
    // SAFETY: the last routine that is replaced, so that all are.
    unsafe {
        let routine = offset(sptrace_wire::plan::common::TAIL_INDIRECT);
        *area_rw.add(routine as usize) == 0xc2
    }
}
