//! Silent routines: what the common routines of a patch area become when nothing is recorded any
//! more.
//!
//! The silent routine of a call leaves the program's own return address on the stack; the others
//! only return. This file gives the assembler macros of these routines, and turns the routines of
//! an area into them and back ([`silence`], [`retire`], [`wake`]). [`crate::routines::common`]
//! places each macro where a short jump from the routine that it replaces can reach it. Must not
//! know why nothing is recorded.

use crate::memory::area::Area;
use crate::routines::{door, image};
use core::mem::offset_of;
use sptrace_wire::plan::AreaHeader;
use sptrace_wire::plan::common::*;

/// For [`crate::routines::common`].
macro_rules! silent {
    () => {
        r#"
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

    /* What the routines of calls become when nothing is recorded any more: the callee gets the
       program's own return address (the way back in the slot: see `unwind::original_return`) and is
       jumped to. Reached by a jump over the routine's first instruction. At the entry, whose first
       one has one byte, its displacement must be the byte that stands behind it, lahf: -97. */
    .macro SILENT_ENTRY
    .p2align 6
sptrace_table:
    .quad 0                     /* the header's last word: what blocks name as their table, when the agent is gone */
    .skip 25
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
    .endm

    .macro SILENT_INDIRECT
sptrace_silent_indirect:
    SAVE_SILENT
    mov rdx, [rsp+32]
    /* The way back is `jmp BACK`, or `push [rip+BACK]`: see `SITE_KEEPS_ACTS`. No flag is changed. */
    movzx ecx, byte ptr [rdx+9]
    lea rcx, [rcx-0xe9]
    jrcxz 86f
    LOAD_ODD rcx, 11
    mov rcx, [rdx+rcx+15]
    jmp 87f
86: LOAD_ODD rcx, 10
    lea rcx, [rdx+rcx+14]
87: mov rax, [rsp+40]
    mov [rsp+24], rax
    mov [rsp+40], rcx
    RESTORE_SILENT
    ret 8
    .endm

    .macro SILENT_FIRST
sptrace_silent_first:
    MARK SAVING, 0
    jmp sptrace_silent_entry
    .endm

    /* The return of a hooked function when the agent is gone: fills the word above the id from the table
       of replaced addresses, by its place (see `hook`). */
    .macro SILENT_HOOK_EXIT
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
    .endm

    /* Where the routines go that always take the slow path when the agent is gone: back. But a child that was
       forked before shares the area until its first event, and has patched text, an agent, and thread blocks: they
       name its table. (A gs base of the program's own has other words there.) */
    .macro SILENT_DOOR
    .p2align 4
sptrace_silent_door:
    MARK CHECKING, 40
    rdgsbase rax
    test rax, rax
    jz 80f
    mov rax, gs:[TABLE]
    cmp rax, [rip+sptrace_table]
    jne 80f
    jmp [rip+sptrace_agent_door]
80: pop rax
    RESTORE CHECKING
    ret
    .endm

    .pushsection .rodata.sptrace_silent,"a",@progbits
    .p2align 2
    .globl sptrace_silent_offsets
    .hidden sptrace_silent_offsets
sptrace_silent_offsets:
    .long sptrace_silent_first - sptrace_common_start
    .long sptrace_silent_indirect - sptrace_common_start
    .long sptrace_silent_hook_exit - sptrace_common_start
    .long sptrace_silent_door - sptrace_common_start
    .popsection
    "#
    };
}

pub(crate) use silent;

unsafe extern "C" {
    static sptrace_silent_offsets: [u32; 4];
    static sptrace_silent_placed_offsets: [u32; 2];
}

fn offsets() -> [u32; 4] {
    // SAFETY: an immutable table of the image.
    unsafe { sptrace_silent_offsets }
}

/// Turns the routines of one area into what they are when nothing is recorded any more: those of
/// calls leave the program's own return address, the others only return. The special routine stays:
/// an unwinder must still be served. So does the return of hooked functions, whose return address
/// is not on the stack. May be done again.
pub fn silence(area: Area) {
    let [first, indirect, ..] = offsets();
    // SAFETY: an immutable table of the image.
    let [placed, placed_indirect] = unsafe { sptrace_silent_placed_offsets };
    let routines = [
        (ENTRY, (0xff, 0xeb)),
        (EXIT, RET),
        (TAIL, RET),
        (FIRST, jump(FIRST, first)),
        (ENTRY_ONLY, RET),
        (ENTRY_ONLY_FIRST, RET),
        (HOOK, RET),
        (HOOK_RULED, RET),
        (SYSTEM_CALL, RET),
        (SYSTEM_RETURN, RET),
        (INDIRECT, jump(INDIRECT, indirect)),
        (COUNT_FIRST, RET),
        (COUNT_INDIRECT, RET_8),
        (ORDER_FIRST, RET),
        (ORDER_INDIRECT, RET_8),
        (ORDER_FULL, RET),
        (ACTS_FIRST, RET),
        (ENTRY_PLACED, jump(ENTRY_PLACED, placed)),
        (INDIRECT_PLACED, jump(INDIRECT_PLACED, placed_indirect)),
        (KEPT, RET),
        (KEPT_FIRST, RET),
        (KEPT_INDIRECT, RET_8),
        (RETURN, RET),
        (RETURN_IN_CALL, RET),
        (KEPT_IN_LANE, RET),
        (KEPT_INDIRECT_IN_LANE, RET_8),
        (RETURN_IN_LANE, RET),
        (RETURN_IN_CALL_IN_LANE, RET),
        (TAIL_INDIRECT, RET_8),
    ];
    replace_first(area, &routines);
}

/// Silences an area for good: nothing in it needs the agent any more, which may be unmapped. What
/// may still come back to a slot finds the way to the program. A child that has not had an event
/// since its fork executes here, too, and finds its own agent where it must.
///
/// No thread may be inside a routine that was not silent.
pub fn retire(area: Area) {
    let [_, _, hook_exit, door] = offsets();
    silence(area);
    let door = area.start() + u64::from(door);
    image::set(area, offset_of!(AreaHeader, door), door);
    replace_first(area, &[(HOOK_EXIT, jump(HOOK_EXIT, hook_exit))]);
}

/// Makes a silent area record again, while all other threads are stopped. The same routines were
/// copied there by [`image::install`]: only first instructions differ.
pub fn wake(area: Area) {
    for routine in 0..COUNT {
        let at = image::offset(routine as i32) as usize;
        let first = image::code().get(at..).and_then(<[u8]>::first_chunk);
        if let Some(first) = first {
            image::set(area, at, u64::from_le_bytes(*first));
        }
    }
    image::set(area, offset_of!(AreaHeader, door), door::address());
}

const RET: (u64, u64) = (0xff, 0xc3);
const RET_8: (u64, u64) = (0xff_ffff, 0x0008c2);

/// Routines are aligned to 16: one store inside an aligned 8-byte word is seen whole by threads
/// that execute it. Exactly the first instruction is replaced, of one byte or three.
fn replace_first(area: Area, routines: &[(i32, (u64, u64))]) {
    for (routine, (covered, bytes)) in routines {
        if let Some(word) = area.word(image::offset(*routine).into()) {
            word.set(word.get() & !covered | bytes);
        }
    }
}

/// The bytes that replace the 3-byte first instruction of `routine` by a short jump to `to`.
fn jump(routine: i32, to: u32) -> (u64, u64) {
    let displacement = to.wrapping_sub(image::offset(routine) + 2);
    debug_assert!(i8::try_from(displacement as i32).is_ok(), "a short jump");
    let displacement = displacement as u8;
    (0xff_ffff, 0xeb | u64::from(displacement) << 8)
}

/// True once `silence` was done on the area: the last routine that is replaced is, so that all are.
pub fn is_silent(area: Area) -> bool {
    let last = area.word(image::offset(TAIL_INDIRECT).into());
    last.is_some_and(|word| word.get() as u8 == RET_8.1 as u8)
}
