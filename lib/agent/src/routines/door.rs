//! The door: the way from a common routine to the slow path, and back.
//!
//! Given a routine's number on the stack, above what the macro SAVE has pushed; saves the rest of
//! the program's registers, blocks signals, changes to the agent's own stack, and calls
//! [`crate::events::slow::slow`]. Afterwards it does all of that backwards. Some events are
//! handed to [`crate::events::unblocked`] before, with signals let in and on the program's stack.
//! The door lies once in the agent's image, not in each patch area.

/// For [`crate::routines::common`], whose macros it uses.
macro_rules! door {
    () => {
        r#"
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
    /* popfq takes as long as ten of the instructions around it: only where it changes something. */
    test dword ptr [rsp], {odd_flags}
    jz 91f
    push 2
    MARK DOOR_SAVING, 104, sptrace_slow_door
    popfq
    MARK DOOR_SAVING, 96, sptrace_slow_door
91: push rbp
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
    /* Not where the program's stacks are small: only what is pushed here lies on those. */
    cmp dword ptr [rip+{process}+{small_stacks}], 0
    jne 86f
    cmp dword ptr [rbp+64], 7
    je 87f
    mov eax, [rbp+64]
    sub eax, 12
    cmp eax, 1
    jbe 87f
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
    mov qword ptr gs:[{writing}], 0
    jmp 85f
    MARK DOOR_BEFORE, 128, sptrace_slow_door
86: mov eax, 14
    mov edi, 2
    lea rsi, [rbp-24]
    lea rdx, [rbp-16]
    mov r10d, 8
    movabs r9, {own_call}
    syscall
    jmp 84f
83: cmp dword ptr [rbp+64], 7
    jne 88f
    cmp dword ptr [rip+{process}+{sandboxed}], 0
    jne 88f
    cmp dword ptr [rip+{process}+{sees_sandbox}], 0
    jne 86b
88: mov qword ptr [rbp-24], 0
    /* The program's stack may be a small one: use the thread block's, unless none can be made or this is
       a signal handler that interrupted a dormant agent. */
84: MARK DOOR_INSIDE, 0, sptrace_slow_door
    xor ebx, ebx
    test dword ptr [rip+{process}+{dormant}], {gs_taken}
    jnz 81f
    rdgsbase rax
    test rax, rax
    jz 89f
    rdfsbase rcx
    cmp rcx, gs:[KEY]
    jne 89f
90: xchg gs:[AGENTSTACK], rbx
    test rbx, rbx
    jz 81f
    mov rsp, rbx
    jmp 81f
    /* A thread's first event: no more than its block is made on the program's stack. */
89: cmp qword ptr [rbp-24], 0
    je 81f
    SAVE_XMM
    call {has_block}
    RESTORE_XMM
    lea rsp, [rbp-24]
    test al, al
    jnz 90b
81: SAVE_XMM
    mov rdi, rbp
    mov rsi, [rbp-16]
    mov rdx, [rbp-24]
    mov rcx, rsp
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
    movabs r9, {own_call}
    syscall
85: mov rbx, [rbp-8]
    mov rsp, rbp
    MARK DOOR_AFTER, 104, sptrace_slow_door
    pop rbp
    MARK DOOR_AFTER, 96, sptrace_slow_door
    /* The others are as SAVE has kept them. */
    test dword ptr [rsp], {odd_flags}
    jnz 92f
    lea rsp, [rsp+8]
    MARK DOOR_AFTER, 88, sptrace_slow_door
    jmp 93f
    MARK DOOR_AFTER, 96, sptrace_slow_door
92: popfq
    MARK DOOR_AFTER, 88, sptrace_slow_door
93: pop r11
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
    "#
    };
}

pub(crate) use door;

/// Flags that the agent's code must not have: TF, DF, AC (Intel SDM vol. 1, 3.4.3).
pub const ODD_FLAGS: u32 = 1 << 8 | 1 << 10 | 1 << 18;

unsafe extern "C" {
    static sptrace_slow_door_end: u8;
    fn sptrace_slow_door();
}

/// Where it begins.
pub fn address() -> u64 {
    sptrace_slow_door as *const () as u64
}

/// Its length.
pub fn bytes() -> u64 {
    &raw const sptrace_slow_door_end as u64 - address()
}
