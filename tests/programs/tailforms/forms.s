# Tail calls in every form of jump, and functions of one to five bytes. tailforms.c calls each `tail_*` function with
# an argument in edi and compares the result. Each has type and size, so a tool knows exactly where it ends.

.macro F name
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
.endm
.macro E name
    .cfi_endproc
    .size \name, .-\name
.endm
.macro LISTED name, argument, result
    .pushsection .data.rel.local.tails, "aw"
    .quad \name, 9f
    .long \argument, \result
    .pushsection .rodata
9:  .asciz "\name"
    .popsection
    .popsection
.endm

    .section .data.rel.local.tails, "aw"
    .balign 8
    .globl tails
tails:
    .text

    # --- functions of 1 to 5 bytes, packed without padding between them
F f_1
    ret
E f_1
F f_2
    repz ret
E f_2
F f_3
    movl %edi, %eax
    ret
E f_3
F f_4
    leal 1(%rdi), %eax
    ret
E f_4
F f_5
    leal 5(%rdi), %eax
    nop
    ret
E f_5
F f_2_jump
    jmp f_4
E f_2_jump
F f_5_jump
    .byte 0xe9
    .long target - . - 4
E f_5_jump
LISTED f_3, 7, 7
LISTED f_4, 7, 8
LISTED f_5, 7, 12
LISTED f_2_jump, 7, 8
LISTED f_5_jump, 7, 107

    # --- targets
F target
    leal 100(%rdi), %eax
    ret
E target
F target_endbr
    endbr64
    leal 200(%rdi), %eax
    ret
E target_endbr
    # entry is a loop head: jumps go back to its first byte
F target_loop
    decl %edi
    jnz target_loop
    movl $300, %eax
    ret
E target_loop
LISTED target_loop, 5, 300

    # --- unconditional
F tail_rel8
    incl %edi
    jmp target
E tail_rel8
F tail_rel32
    incl %edi
    .byte 0xe9
    .long target_endbr - . - 4
E tail_rel32
F tail_reg
    leaq target(%rip), %rax
    jmp *%rax
E tail_reg
F tail_r11
    leaq target_endbr(%rip), %r11
    jmp *%r11
E tail_r11
F tail_notrack
    leaq target(%rip), %rax
    notrack jmp *%rax
E tail_notrack
F tail_mem_rip
    jmp *slot(%rip)
E tail_mem_rip
F tail_mem_reg
    leaq slot(%rip), %rax
    jmp *(%rax)
E tail_mem_reg
F tail_mem_disp8
    leaq slot-0x10(%rip), %rax
    jmp *0x10(%rax)
E tail_mem_disp8
F tail_mem_index
    leaq slots(%rip), %rax
    movl $1, %ecx
    jmp *(%rax,%rcx,8)
E tail_mem_index
F tail_push_ret
    leaq target(%rip), %rax
    pushq %rax
    .cfi_adjust_cfa_offset 8
    ret
    .cfi_adjust_cfa_offset -8
E tail_push_ret
F tail_frame
    subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movl %edi, 8(%rsp)
    call f_4
    movl %eax, %edi
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    jmp target
E tail_frame
LISTED tail_rel8, 1, 102
LISTED tail_rel32, 1, 202
LISTED tail_reg, 1, 101
LISTED tail_r11, 1, 201
LISTED tail_notrack, 1, 101
LISTED tail_mem_rip, 1, 101
LISTED tail_mem_reg, 1, 101
LISTED tail_mem_disp8, 1, 101
LISTED tail_mem_index, 1, 201
LISTED tail_push_ret, 1, 101
LISTED tail_frame, 1, 102

    # --- conditional: taken with edi = 1, not taken with edi = 0 (then -1); short and long displacement
.macro CONDITIONAL cc, setup
F tail_\cc\()_rel8
    \setup
    j\cc 8f
    movl $-1, %eax
    ret
E tail_\cc\()_rel8
    .type near_\cc, @function
near_\cc:
8:  leal 400(%rdi), %eax
    ret
    .size near_\cc, .-near_\cc
F tail_\cc\()_rel32
    \setup
    {disp32} j\cc target
    movl $-1, %eax
    ret
E tail_\cc\()_rel32
LISTED tail_\cc\()_rel8, 1, 401
LISTED tail_\cc\()_rel8, 0, -1
LISTED tail_\cc\()_rel32, 1, 101
LISTED tail_\cc\()_rel32, 0, -1
.endm
    CONDITIONAL ne, "testl %edi, %edi"
    CONDITIONAL e, "cmpl $1, %edi"
    CONDITIONAL b, "btl $0, %edi"
    CONDITIONAL ae, "cmpl $1, %edi"
    CONDITIONAL a, "testl %edi, %edi"
    CONDITIONAL g, "testl %edi, %edi"
    CONDITIONAL ge, "cmpl $1, %edi"
    CONDITIONAL np, "testl %edi, %edi"
    # to a function of another module, with padding nearby
    .balign 32
F tail_ne_plt
    testl %edi, %edi
    {disp32} jne abs@PLT
    movl $-1, %eax
    nopl (%rax)
    ret
E tail_ne_plt
    .balign 32, 0xcc
LISTED tail_ne_plt, -7, 7
LISTED tail_ne_plt, 0, -1
F tail_jrcxz
    movl %edi, %ecx
    decl %ecx
    jrcxz near_jrcxz
    movl $-1, %eax
    ret
E tail_jrcxz
F near_jrcxz
    leal 600(%rdi), %eax
    ret
E near_jrcxz
LISTED tail_jrcxz, 1, 601
LISTED tail_jrcxz, 0, -1
    # the conditional jump is the whole function's first instruction, flags are an argument
F tail_flags
    jc target
    movl $-2, %eax
    ret
E tail_flags
F tail_flags_set
    stc
    jmp tail_flags
E tail_flags_set
F tail_flags_clear
    clc
    jmp tail_flags
E tail_flags_clear
LISTED tail_flags_set, 1, 101
LISTED tail_flags_clear, 1, -2

    # --- falling through into the next function, and a jump into its middle
F tail_fall_through
    addl $2, %edi
E tail_fall_through
F after_fall
    leal 500(%rdi), %eax
    ret
E after_fall
LISTED tail_fall_through, 1, 503

    # --- a callee that pops its stack arguments
F pops_arguments
    movq 8(%rsp), %rax
    addq 16(%rsp), %rax
    ret $16
E pops_arguments
F calls_popping
    pushq $30
    .cfi_adjust_cfa_offset 8
    pushq $12
    .cfi_adjust_cfa_offset 8
    call pops_arguments
    .cfi_adjust_cfa_offset -16
    ret
E calls_popping
LISTED calls_popping, 0, 42

    .section .data.rel.local.tails, "aw"
    .quad 0, 0, 0
    .section .data.rel.local, "aw"
    .balign 8
slot: .quad target
slots: .quad target, target_endbr
    .section .note.GNU-stack, "", @progbits
