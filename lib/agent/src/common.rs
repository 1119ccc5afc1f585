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
//! Order within an event: reserve the word (xadd: one instruction, so a signal handler's records
//! come before or after, never on top), then read the clock, then store. Time in a thread's buffer
//! then never runs backwards by more than a handler's length.
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

    .macro SAVE
    push rax
    lahf
    seto al
    push rax
    push rcx
    push rdx
    .endm
    .macro RESTORE
    pop rdx
    pop rcx
    pop rax
    add al, 0x7f
    sahf
    pop rax
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
    .endm
    .macro STAMP slow
    rdtsc
    cmp edx, gs:[HI]
    jne \slow
    mov [rcx], eax
    .endm
    /* rax = target: is it instrumented? two probes */
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

    .p2align 6
sptrace_entry:
    SAVE
    CHECK_THREAD sptrace_slow_0
    CHECK_PUSH 40, sptrace_slow_0
    RESERVE 8, sptrace_slow_0
    STAMP sptrace_void_0
    mov rax, [rsp+32]
    mov [rcx+4], eax
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+40]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    mov [rdx+24], rcx
    mov [rdx+32], rax
    RESTORE
    ret
sptrace_void_0:
    mov dword ptr [rcx+4], 9
sptrace_slow_0:
    push 0
    jmp [rip+sptrace_common_start]

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
    sub qword ptr gs:[TOPFRAME], 24
    RESTORE
    ret
sptrace_void_1:
    mov dword ptr [rcx+4], 9
sptrace_slow_1:
    push 1
    jmp [rip+sptrace_common_start]

    .p2align 6
sptrace_indirect:
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_2
    CHECK_PUSH 48, sptrace_slow_2
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_2
    RESERVE 16, sptrace_slow_2
    STAMP sptrace_void_2
    mov rax, [rsp+40]
    mov [rcx+8], rax
    mov rdx, gs:[TOPFRAME]
    mov [rdx+40], rax
    mov rax, [rsp+32]
    mov [rcx+4], eax
    lea rcx, [rsp+48]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    mov [rdx+24], rcx
    mov [rdx+32], rax
    mov rcx, [rsp+40]
    mov [rdx+40], rcx
    RESTORE
    ret 8
sptrace_void_2:
    mov dword ptr [rcx+4], 9
    mov dword ptr [rcx+12], 9
sptrace_slow_2:
    push 2
    jmp [rip+sptrace_common_start]

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
    RESTORE
    ret
sptrace_void_3:
    mov dword ptr [rcx+4], 9
sptrace_slow_3:
    push 3
    jmp [rip+sptrace_common_start]

    .p2align 6
sptrace_tail_indirect:
    nop dword ptr [rax]
    SAVE
    CHECK_THREAD sptrace_slow_4
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+56]
    cmp rcx, [rdx]
    jne sptrace_slow_4
    mov rax, [rsp+40]
    LOOK_UP sptrace_slow_4
    RESERVE 16, sptrace_slow_4
    STAMP sptrace_void_4
    mov eax, [rsp+32]
    mov [rcx+4], eax
    mov rax, [rsp+40]
    mov [rcx+8], rax
    RESTORE
    ret 8
sptrace_void_4:
    mov dword ptr [rcx+4], 9
    mov dword ptr [rcx+12], 9
sptrace_slow_4:
    push 4
    jmp [rip+sptrace_common_start]

    .p2align 4
sptrace_first:
    SAVE
    push 5
    jmp [rip+sptrace_common_start]
    .p2align 4
sptrace_tail_first:
    SAVE
    push 6
    jmp [rip+sptrace_common_start]
    .p2align 4
sptrace_special:
    SAVE
    push 7
    jmp [rip+sptrace_common_start]
    .p2align 4
sptrace_entry_only_first:
    SAVE
    push 9
    jmp [rip+sptrace_common_start]

    .p2align 6
sptrace_entry_only:
    SAVE
    CHECK_THREAD sptrace_slow_8
    CHECK_PUSH 48, sptrace_slow_8
    RESERVE 8, sptrace_slow_8
    STAMP sptrace_void_8
    mov rax, [rsp+32]
    mov [rcx+4], eax
    bts rax, 63
    mov rdx, gs:[TOPFRAME]
    lea rcx, [rsp+48]
    mov [rdx+24], rcx
    mov [rdx+32], rax
    add qword ptr gs:[TOPFRAME], 24
    mov [rdx+24], rcx
    mov [rdx+32], rax
    RESTORE
    ret
sptrace_void_8:
    mov dword ptr [rcx+4], 9
sptrace_slow_8:
    push 8
    jmp [rip+sptrace_common_start]

    /* A hooked function: nothing to do if its call was recorded, which is the top frame then. */
    .p2align 6
sptrace_hook:
    nop dword ptr [rax]
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
    push 10
    jmp [rip+sptrace_common_start]
    .p2align 4
sptrace_hook_exit:
    SAVE
    push 11
    jmp [rip+sptrace_common_start]
sptrace_common_end:

    /* The slow path's door. Above what SAVE pushed stands the routine's number. Saves the rest,
       x87 and xmm included (the agent is compiled for SSE2, whose instructions leave the upper
       halves of ymm and zmm alone), clears DF, AC and TF, and returns by `ret` or `ret 8` as the
       agent says. */
    .text
    .globl sptrace_slow_door
    .hidden sptrace_slow_door
    .p2align 4
sptrace_slow_door:
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    pushfq
    push 2
    popfq
    push rbp
    mov rbp, rsp
    push rbx
    /* The program's stack may be a small one: use the thread block's, unless this is no thread of
       ours yet or a signal handler that interrupted the agent's last instructions. */
    xor ebx, ebx
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
81: sub rsp, 512
    and rsp, -64
    fxsave64 [rsp]
    mov rdi, rbp
    call {slow}
    fxrstor64 [rsp]
    test rbx, rbx
    jz 82f
    mov gs:[AGENTSTACK], rbx
82: mov rbx, [rbp-8]
    mov rsp, rbp
    pop rbp
    mov [rsp+56], rax
    popfq
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    cmp qword ptr [rsp], 0
    lea rsp, [rsp+8]
    jne 80f
    RESTORE
    ret
80: RESTORE
    ret 8

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
    .text
    "#,
    slow = sym crate::slow::slow,
);

unsafe extern "C" {
    static sptrace_common_start: u8;
    static sptrace_common_end: u8;
    static sptrace_common_offsets: [u32; sptrace_wire::plan::common::COUNT];
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

/// Turns the routines of one area into bare returns (nothing is recorded any more). The special
/// routine stays: an unwinder must still be served. So does the return of hooked functions, whose
/// return address is not on the stack.
///
/// # Safety
/// `area_rw` is the write view of an installed area.
pub unsafe fn silence(area_rw: *mut u8) {
    use sptrace_wire::plan::common::*;
    for (routine, word) in [
        (ENTRY, 0xc3u64),
        (EXIT, 0xc3),
        (TAIL, 0xc3),
        (FIRST, 0xc3),
        (TAIL_FIRST, 0xc3),
        (ENTRY_ONLY, 0xc3),
        (ENTRY_ONLY_FIRST, 0xc3),
        (HOOK, 0xc3),
        (INDIRECT, 0x0008c2),
        (TAIL_INDIRECT, 0x0008c2),
    ] {
        // SAFETY: routines are aligned to 16: one store inside an aligned 8-byte word is seen whole
        // by threads that execute it, and the three bytes of `ret 8` replace one instruction.
        unsafe {
            let at = area_rw.add(offset(routine) as usize) as *mut u64;
            let keep = at.read_volatile() & !0xff_ffff;
            at.write_volatile(keep | word);
        }
    }
}
