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
//!  ENTRY, EXIT, FIRST, ENTRY_PLACED   +40 = stack pointer at the call site
//!  HOOK, HOOK_RULED     +40 return addr +48 = stack pointer at the call site
//!  SYSTEM_CALL, SYSTEM_RETURN   +40 = stack pointer at the instruction, less the red zone
//!  INDIRECT, INDIRECT_PLACED   +40 target      +48 = stack pointer at the call site
//!  RETURN               +40 = stack pointer at the call site
//!  RETURN_IN_CALL       +40 return addr +48 = the same
//!  TAIL, ENTRY_ONLY, KEPT   +40 return addr +48 = stack pointer at the call site of the frame
//!  TAIL_INDIRECT        +40 target      +48 return addr   +56 = the same
//!  KEPT_INDIRECT        +40 target      +48 return addr   +56 = stack pointer at the call site
//!  COUNT_INDIRECT, ORDER_INDIRECT   +40 target   +48 return addr
//! ```
//!
//! Order within an event: reserve the record (xadd: one instruction, so a signal handler's records
//! come before or after, never on top), then read the clock, then store. Time in a thread's buffer
//! then never runs backwards by more than a handler's length. Of a record of 12 bytes the stamp
//! comes last, so that one that is never finished shows its length; of one of 8 bytes the id.
//!
//! A frame is pushed by writing it above the top, moving the top in one instruction, and writing it
//! again: a handler that ran in between has used the same place.
//!
//! Assembled together with [`crate::routines::silent`] (what they become when nothing is recorded
//! any more), [`crate::routines::values`] (calls whose values are recorded),
//! [`crate::routines::door`] (where SLOW leads) and [`crate::routines::marks`] (MARK).

use crate::memory::state::END_BYTES;
use crate::memory::thread::{FRAME_HELD, FRAME_KEPT, FRAME_QUIET, FRAME_QUIET_HELD, HOT, Hot};
use crate::memory::{certain, counters, pointers, rows, state};
use crate::routines::{
    call_records, counts, door, filled, hooks, marks, orders, placed, quick, returns, silent,
    values,
};
use core::arch::global_asm;
use sptrace_wire::plan::{END_UNSEEN, JUMP, SYSTEM_CALL_EXIT, SYSTEM_CALL_UNSEEN};
use sptrace_wire::record::{self, FRAME_OPEN, FRAME_SYSTEM, FRAME_VALUES};
use sptrace_wire::values::{CALL_BYTES, DESCRIPTORS, ERRORS, RETURN_BYTES};
use sptrace_wire::values::{UNWANTED_FAILED, UNWANTED_SHORT, UNWANTED_SUCCESSFUL};

/// Behind a record's values.
const END_MARK_BYTES: usize = size_of_val(&sptrace_wire::values::END);
/// `sptrace_system_return` compares these bits of a frame's id, and that it is not over.
const _: () = assert!((FRAME_OPEN | FRAME_SYSTEM) >> 61 == 5);

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
    "#,
    marks::marks!(),
    r#"
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
    .macro SLOW number
    MARK CHECKING, 32
    push \number
    MARK CHECKING, 40
    jmp [rip+sptrace_common_start]
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
    /* Where a handler has recorded something since, the chunk may be another's by now: nothing is written. */
    .macro STAMP void, slow, bytes=8, has_top=0
    rdtsc
    cmp edx, gs:[HI]
    jne \void
    lea rdx, [rcx+\bytes]
    cmp rdx, gs:[CUR]
    jne \slow
    .if \has_top
    FIND_TOP \void
    .endif
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
    /* What was reserved at rcx holds no record. */
    .macro VOID_RECORD
    MARK RESERVED, 32
    mov dword ptr [rcx], 1
    mov dword ptr [rcx+4], {nothing}
    .endm
    /* rdx = the top frame, rcx = the call's stack pointer, rax = its id; after it rdx is the new one.
       Written again once it is pushed: a handler in between has used the same place. */
    .macro PUSH_FRAME
    mov [rdx+24], rcx
    mov [rdx+32], rax
    lea rdx, [rdx+24]
    mov gs:[TOPFRAME], rdx
    MARK PUSHED, 32
    mov [rdx], rcx
    mov [rdx+8], rax
    .endm
    /* rax = id: the frame of a call whose record is written, `at` bytes from its stack pointer; and
       back. A frame that is open has no end of its own. `has_top`: the top one is at rdx. */
    .macro PUSH_CALL at, is_open=0, has_top=0
    MARK COMMITTED, 32
    .if \is_open
    bts rax, 63
    .endif
    .if \has_top == 0
    mov rdx, gs:[TOPFRAME]
    .endif
    lea rcx, [rsp+\at]
    PUSH_FRAME
    RESTORE
    ret
    .endm
    /* rax = target: the entry of a call through a pointer, `at` bytes from its stack pointer. */
    .macro RECORD_INDIRECT void, slow, at=48, has_top=0
    RESERVE 12, \slow
    mov edx, [rsp+32]
    mov [rcx+4], edx
    mov [rcx+8], eax
    STAMP \void, \slow, 12, \has_top
    PUSH_INDIRECT \at, \has_top
    .endm
    /* The frame of such a call whose record is written, and back. */
    .macro PUSH_INDIRECT at=48, has_top=0
    MARK COMMITTED, 32
    .if \has_top == 0
    mov rdx, gs:[TOPFRAME]
    .endif
    mov rax, [rsp+40]
    mov [rdx+40], rax
    mov rax, [rsp+32]
    lea rcx, [rsp+\at]
    PUSH_FRAME
    mov rcx, [rsp+40]
    mov [rdx+16], rcx
    RESTORE
    ret 8
    .endm
    .macro VOID_INDIRECT
    MARK RESERVED, 32
    mov dword ptr [rcx+4], {nothing_narrow}
    mov dword ptr [rcx], 1
    .endm
    "#,
    silent::silent!(),
    call_records::call_records!(),
    filled::filled!(),
    values::values!(),
    counts::counts!(),
    orders::orders!(),
    hooks::hooks!(),
    placed::placed!(),
    returns::returns!(),
    quick::rules!(),
    r#"
sptrace_common_start:
    .quad 0                     /* where the slow path is: filled in by the agent */
    .quad 0                     /* wirings done in this area: see fork */
    .quad 0, 0, 0, 0            /* what a later attach finds it by: see AreaHeader */
sptrace_originals:
    .quad 0                     /* addresses that hooks have replaced, when the agent is gone */
sptrace_agent_door:
    .quad 0                     /* where the slow path is, in a child that has an agent when this one is gone */

    SILENT_ENTRY
sptrace_entry:
    SAVE
    CHECK_THREAD sptrace_slow_0
    CHECK_PUSH 40, sptrace_slow_0
sptrace_entry_plain:
    RESERVE 8, sptrace_slow_0
    STAMP sptrace_void_0, sptrace_slow_0
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 40
sptrace_void_0:
    VOID_RECORD
sptrace_slow_0:
    SLOW 0

    .p2align 6
sptrace_exit:
    SAVE
    CHECK_THREAD sptrace_slower_1
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+40]
    cmp rcx, [rdx]
    jne sptrace_exit_values
    RESERVE 8, sptrace_slower_1
    STAMP sptrace_void_1, sptrace_slower_1
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
sptrace_void_1:
    VOID_RECORD
    MARK CHECKING, 32
    jmp sptrace_slower_1

    SILENT_INDIRECT
    .p2align 6
sptrace_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slower_2
    CHECK_PUSH 48, sptrace_slower_2
    mov rax, [rsp+40]
    LOOK_UP sptrace_indirect_values
    RECORD_INDIRECT sptrace_void_2, sptrace_slower_2
sptrace_void_2:
    VOID_INDIRECT
    MARK CHECKING, 32
    jmp sptrace_slower_2

    .p2align 6
sptrace_tail:
    SAVE
    CHECK_THREAD sptrace_slow_3
sptrace_tail_again:
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+48]
    cmp rcx, [rdx]
    jne sptrace_tail_ended
    RESERVE 8, sptrace_slow_3
    STAMP sptrace_void_3, sptrace_slow_3
    mov eax, [rsp+32]
    mov [rcx+4], eax
    MARK COMMITTED, 32
    RESTORE
    ret
sptrace_void_3:
    VOID_RECORD
sptrace_slow_3:
    SLOW 3

    .p2align 6
sptrace_tail_indirect:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_4
sptrace_tail_indirect_again:
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+56]
    cmp rcx, [rdx]
    jne sptrace_tail_indirect_ended
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_4
    RESERVE 12, sptrace_slow_4
    mov edx, [rsp+32]
    mov [rcx+4], edx
    mov [rcx+8], eax
    STAMP sptrace_void_4, sptrace_slow_4, 12
    MARK COMMITTED, 32
    RESTORE
    ret 8
sptrace_void_4:
    VOID_INDIRECT
sptrace_slow_4:
    SLOW 4

    SILENT_FIRST
    .p2align 4
sptrace_first:
    MARK SAVING, 0
    nop dword ptr [rax]
    SAVE
    jmp sptrace_first_values
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
    STAMP sptrace_void_8, sptrace_slow_8
    mov rax, [rsp+32]
    mov [rcx+4], eax
    PUSH_CALL 48, is_open=1
sptrace_void_8:
    VOID_RECORD
sptrace_slow_8:
    SLOW 8

    HOOK_ROUTINES
    /* Within reach of the short jump that leads there once the area is retired. */
    SILENT_HOOK_EXIT

    /* ecx = results that are not wanted. If the record of the call is the last one, it gets another
       behind it that says so: what has been written stays as it is, for who reads it meanwhile. */
    .macro LEAVE_OUT
sptrace_system_return_chosen:
    MARK CHECKING, 32
    mov eax, {unwanted_successful}
    cmp qword ptr [rsp+24], {first_error}
    jb 75f
    mov eax, {unwanted_failed}
75: test ecx, eax
    jnz 76f
    test ecx, {unwanted_short}
    jz sptrace_system_return_wanted
    rdtsc
    cmp edx, gs:[HI]
    jne 77f
    sub eax, gs:[{begun}+8]
    jb 77f
    cmp rax, gs:[{unwanted_results}+8]
    jae 77f
76: CHECK_RECORDS 77f
    mov rax, gs:[{begun}]
    cmp rax, gs:[END]
    jae 77f
    mov rcx, rax
    lea rdx, [rax+8]
    cmpxchg gs:[CUR], rdx
    jne 77f
    MARK RESERVED, 32
    mov rax, {left_out}
    mov [rcx], rax
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    MARK DONE, 32
    mov rcx, gs:[{asked}+8]
    lock inc qword ptr [rcx+{not_chosen}]
    RESTORE
    ret
77: MARK CHECKING, 32
    mov rdx, gs:[TOPFRAME]
    jmp sptrace_system_return_wanted
    .endm

    .p2align 6
sptrace_system_call:
    SAVE
    CHECK_THREAD sptrace_slow_12
    mov eax, [rsp+24]
    CALL_RULE sptrace_slow_12
    test cl, {unwanted}
    jnz sptrace_system_call_unseen
    test cl, {bound}
    jz 73f
    cmp edi, {descriptors}
    jae sptrace_slow_12
    mov rdx, gs:[{asked}]
    bt dword ptr [rdx], edi
    jnc sptrace_system_call_elsewhere
73: test cl, {enters}
    jz 72f
71: CHECK_RECORDS sptrace_slow_12
    CHECK_PUSH 168, sptrace_slow_12
    RESERVE_VALUES {call_bytes}, sptrace_slow_12
    STAMP_VALUES {system_call}, {call_bytes}, sptrace_void_12
    mov dword ptr [rcx+16], 0
    lea eax, [rsp+168-{place_below}]
    mov [rcx+20], eax
    mov eax, [rsp+24]
    mov [rcx+8], eax
    mov [rcx+24], rdi
    mov [rcx+32], rsi
    mov rdx, [rsp]
    mov [rcx+40], rdx
    mov [rcx+48], r10
    mov [rcx+56], r8
    mov [rcx+64], r9
    mov dword ptr [rcx+72], {values_end}
    MARK COMMITTED, 32
    mov edx, [rcx]
    mov gs:[{begun}+8], rdx
    add rcx, {call_bytes} + 16
    mov gs:[{begun}], rcx
    mov rdx, gs:[TOPFRAME]
    mov [rdx+40], rax
    lea rcx, [rsp+168]
    mov rax, [rsp+32]
    bts rax, 63
    bts rax, 61
    PUSH_FRAME
    mov ecx, [rsp+24]
    mov [rdx+16], rcx
    RESTORE
    ret
72: CHECK_COMMAND 71b, sptrace_slow_12
    /* On a descriptor that is not asked for. */
sptrace_system_call_elsewhere:
    MARK CHECKING, 32
    mov rdx, gs:[{asked}+8]
    lock inc qword ptr [rdx]
sptrace_system_call_unseen:
    MARK CHECKING, 32
    add qword ptr [rsp+32], {unseen_way}
    RESTORE
    ret
sptrace_void_12:
    VOID_VALUES {system_call}, {call_bytes}
sptrace_slow_12:
    SLOW 12

    .p2align 6
sptrace_system_return:
    SAVE
    CHECK_THREAD sptrace_slow_13
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+168]
    cmp rcx, [rdx]
    jne sptrace_slow_13
    mov rax, [rdx+8]
    shr rax, 61
    cmp eax, 5
    jne sptrace_slow_13
    mov rcx, gs:[{unwanted_results}]
    test ecx, ecx
    jnz sptrace_system_return_chosen
sptrace_system_return_wanted:
    mov eax, [rdx+16]
    CALL_RULE sptrace_slow_13
    test cl, {leaves}
    jnz 74f
    test cl, {leaves_failed}
    jz 73f
    cmp qword ptr [rsp+24], {first_error}
    jb 73f
74: CHECK_RECORDS sptrace_slow_13
    RESERVE_VALUES {return_bytes}, sptrace_slow_13
    STAMP_VALUES {system_return}, {return_bytes}, sptrace_void_13
    mov rdx, gs:[TOPFRAME]
    mov dword ptr [rcx+8], {returned}
    mov eax, [rdx+16]
    mov [rcx+16], rax
    mov rax, [rsp+24]
    mov [rcx+24], rax
    mov dword ptr [rcx+32], {values_end}
    MARK COMMITTED, 32
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
73: test cl, cl
    js sptrace_system_return_filled
    CHECK_COMMAND 74b, sptrace_slow_13
    RETURN_FILLED sptrace_slow_13, sptrace_void_13
sptrace_void_13:
    VOID_VALUES {system_return}, {return_bytes}
sptrace_slow_13:
    SLOW 13
    LEAVE_OUT

    COUNT_ROUTINES
    ORDER_ROUTINES
    PLACED_ROUTINES
    RETURN_ROUTINES

sptrace_first_values:
    FIRST_VALUES
    INDIRECT_VALUES
    EXIT_VALUES

    SILENT_DOOR
sptrace_common_end:
    "#,
    door::door!(),
    marks::marks_end!(),
    r#"
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
    .long sptrace_system_call - sptrace_common_start
    .long sptrace_system_return - sptrace_common_start
    .long sptrace_count_first - sptrace_common_start
    .long sptrace_count_indirect - sptrace_common_start
    .long sptrace_order_first - sptrace_common_start
    .long sptrace_order_indirect - sptrace_common_start
    .long sptrace_order_full - sptrace_common_start
    .long sptrace_acts_first - sptrace_common_start
    .long sptrace_entry_placed - sptrace_common_start
    .long sptrace_indirect_placed - sptrace_common_start
    .long sptrace_hook_ruled - sptrace_common_start
    .long sptrace_kept - sptrace_common_start
    .long sptrace_kept_first - sptrace_common_start
    .long sptrace_kept_indirect - sptrace_common_start
    .long sptrace_return - sptrace_common_start
    .long sptrace_return_in_call - sptrace_common_start
    .long sptrace_kept_in_lane - sptrace_common_start
    .long sptrace_kept_indirect_in_lane - sptrace_common_start
    .long sptrace_return_in_lane - sptrace_common_start
    .long sptrace_return_in_call_in_lane - sptrace_common_start
    .text
    "#,
    slow = sym crate::events::slow::slow,
    own_call = const sptrace_wire::OWN_CALL,
    odd_flags = const crate::routines::door::ODD_FLAGS,
    has_block = sym crate::reach::thread::has_block,
    unblocked = sym crate::events::unblocked::unblocked,
    process = sym state::PROCESS,
    gs_taken = const state::GS_TAKEN,
    dormant = const core::mem::offset_of!(state::Process, dormant),
    small_stacks = const core::mem::offset_of!(state::Process, small_stacks),
    sandboxed = const core::mem::offset_of!(state::Process, sandboxed),
    sees_sandbox = const core::mem::offset_of!(state::Process, sees_sandbox),
    originals = const state::ORIGINALS,
    originals_shift = const state::SHIFT,
    probes = const state::PROBES,
    not_asked = const !(state::ASKED as i64),
    quick = const HOT + core::mem::offset_of!(Hot, quick),
    asked = const HOT + core::mem::offset_of!(Hot, asked),
    bound = const quick::BOUND,
    begun = const HOT + core::mem::offset_of!(Hot, begun),
    unwanted_results = const HOT + core::mem::offset_of!(Hot, unwanted),
    unwanted_failed = const UNWANTED_FAILED,
    unwanted_successful = const UNWANTED_SUCCESSFUL,
    unwanted_short = const UNWANTED_SHORT,
    left_out = const (sptrace_wire::record::LEFT_OUT as u64) << 32 | 1,
    not_chosen = const quick::NOT_CHOSEN,
    descriptors = const DESCRIPTORS,
    newfstatat = const filled::NEWFSTATAT,
    filled_bytes = const filled::BYTES,
    stat_bytes = const filled::STAT_BYTES,
    watched = const HOT + core::mem::offset_of!(Hot, watched),
    structures = const HOT + core::mem::offset_of!(Hot, structures),
    stack_end = const HOT + core::mem::offset_of!(Hot, stack_end),
    stack_bytes = const certain::STACK_BYTES,
    alone = const state::SHARING_NONE,
    lends = const HOT + core::mem::offset_of!(Hot, lends),
    writing = const HOT + core::mem::offset_of!(Hot, writing),
    quick_calls = const quick::CALLS,
    unwanted = const quick::UNWANTED,
    enters = const quick::ENTERS,
    leaves = const quick::LEAVES,
    leaves_failed = const quick::LEAVES_FAILED,
    commands = const quick::COMMANDS,
    commands_at = const quick::COMMANDS_AT,
    command_numbers = const quick::COMMAND_NUMBERS,
    first_error = const ERRORS.start,
    unseen_way = const SYSTEM_CALL_EXIT + SYSTEM_CALL_UNSEEN,
    system_call = const record::SYSTEM_CALL,
    place_below = const record::PLACE_BELOW_BYTES,
    system_return = const record::SYSTEM_RETURN,
    returned = const record::RETURNED,
    call_bytes = const CALL_BYTES + END_MARK_BYTES,
    return_bytes = const RETURN_BYTES + END_MARK_BYTES,
    values_end = const sptrace_wire::values::END,
    end_bytes = const END_BYTES,
    pointers = const HOT + core::mem::offset_of!(Hot, pointers),
    looked_at = const sptrace_wire::plan::kept_order::LOOKED_AT,
    pointer_bits = const pointers::BITS,
    pointer_shift = const pointers::SHIFT,
    cells_at = const counters::CELLS_AT,
    rows = const HOT + core::mem::offset_of!(Hot, rows),
    acted = const HOT + core::mem::offset_of!(Hot, acted),
    passed = const rows::PASSED,
    barriers = const HOT + core::mem::offset_of!(Hot, barriers),
    lane_low = const HOT + core::mem::offset_of!(Hot, lane_low),
    lane_bytes = const HOT + core::mem::offset_of!(Hot, lane_bytes),
    lost = const HOT + core::mem::offset_of!(Hot, lost),
    row_bits = const rows::ROW_BITS,
    row_shift = const rows::ROW_SHIFT,
    returns = const rows::RETURNS,
    returns_by_routine = const rows::RETURNS_BY_ROUTINE,
    result_is_integer = const rows::RESULT_IS_INTEGER,
    fails_by_minus_one = const rows::FAILS_BY_MINUS_ONE,
    fails_by_null = const rows::FAILS_BY_NULL,
    frame_quiet = const FRAME_QUIET as i64,
    frame_quiet_held = const FRAME_QUIET_HELD as i64,
    frame_kept = const FRAME_KEPT as i64,
    frame_held = const FRAME_HELD as i64,
    held = const rows::HELD,
    exit_timed = const rows::EXIT_TIMED,
    exits_by_routine = const rows::EXITS_BY_ROUTINE,
    frame_values = const (FRAME_OPEN | FRAME_VALUES) as i64,
    valued_nothing = const record::valued_id(record::NO_VALUED_NUMBER, 0),
    valued_halves = const record::VALUED_HALVES,
    placed = const record::PLACED,
    root = const HOT + core::mem::offset_of!(Hot, root),
    untold = const HOT + core::mem::offset_of!(Hot, untold),
    jump = const JUMP,
    end_unseen = const END_UNSEEN,
    ended = const record::ENDED,
    nothing = const record::NOTHING,
    nothing_narrow = const record::NOTHING_NARROW,
);
