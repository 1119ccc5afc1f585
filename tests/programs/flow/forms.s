# Control flow that compilers seldom make: jumps to a call and behind it, blocks that two functions share, instructions
# that overlap others, calls into the middle of a function, returns that are jumps. flow.c calls each `flow_*` with an
# argument in edi and prints the result. Stack and rbx are kept by all.

.macro F name
    .globl flow_\name
    .type flow_\name, @function
flow_\name:
    .cfi_startproc
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbx, -16
    movl %edi, %ebx
.endm
.macro E name
    popq %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size flow_\name, .-flow_\name
    .pushsection .data.rel.local.flows, "aw"
    .quad flow_\name, 9f
    .pushsection .rodata
9:  .asciz "\name"
    .popsection
    .popsection
.endm
    .section .data.rel.local.flows, "aw"
    .balign 8
    .globl flows
    .hidden flows
flows:
    .text
    .type leaf, @function
leaf:
    .cfi_startproc
    leal 1(%rdi,%rdi,2), %eax
    ret
    .cfi_endproc
    .size leaf, .-leaf

F to_call                       # a loop that jumps to the call instruction itself
    jmp 1f
    .p2align 4
2:  movl %eax, %edi
1:  call leaf
    subl $1, %ebx
    jns 1b
    testb $1, %al
    jz 2b
E to_call
F behind_call                   # a jump to the instruction after a call, and one to the call
    xorl %eax, %eax
    cmpl $3, %edi
    ja 1f
    movl $7, %eax
    cmpl $1, %edi
    je 2f
1:  call leaf
2:  addl %ebx, %eax
    shll $1, %eax
E behind_call
F short_call_target             # the same with calls of two and three bytes
    leaq leaf(%rip), %rax
    pushq %rax
    movq %rsp, %rcx
    cmpl $2, %edi
    je 1f
    movl $5, %edi
1:  call *%rax
    movl %eax, %edi
    testl %ebx, %ebx
    jz 2f
    movq (%rsp), %rax
    subl $1, %ebx
    jmp 1b
2:  movq (%rsp), %rax
    call *%rax
    addq $8, %rsp
E short_call_target
F overlap                       # a jump into the middle of an instruction: eax = 0x90 or 0x1000 + ...
    movl $1, %eax
    testl %edi, %edi
    jz 1f+1
1:  .byte 0xb8, 0xff, 0xc0, 0x90, 0x90      # movl $0x9090c0ff, %eax; from its second byte: incl %eax; nop; nop
    .byte 0x90
    movl %eax, %edi
    call leaf
E overlap
F lock_prefix                   # a jump over a prefix
    pushq $40
    testl %edi, %edi
    jz 1f+1
1:  lock addl %ebx, (%rsp)
    popq %rdi
    call leaf
E lock_prefix
F shared_a                      # falls into a block that another function jumps to, in its middle a call
    leal 10(%rdi), %edi
flow_shared_block:
    call leaf
    addl %ebx, %eax
    call *leaf_pointer(%rip)
E shared_a
F shared_b
    leal 20(%rdi), %edi
    jmp flow_shared_block
    .cfi_adjust_cfa_offset -8
    .cfi_endproc
    .size flow_shared_b, .-flow_shared_b
F two_entries                   # a second entry behind the prologue is called with the stack as the first leaves it
    call 1f
    addl %ebx, %eax
    jmp 3f
1:  pushq %rbx
    movl $4, %ebx
2:  call leaf
    movl %eax, %edi
    subl $1, %ebx
    jnz 2b
    popq %rbx
    ret
3:
E two_entries
F push_ret                      # a call by push and jump, a jump by push and ret
    leaq 1f(%rip), %rax
    pushq %rax
    jmp leaf
1:  leaq 2f(%rip), %rcx
    pushq %rcx
    ret
    ud2
2:  addl $100, %eax
    movl %eax, %edi
    call leaf
E push_ret
F skip_by_return                # a callee that returns behind its inline argument
    call 1f
    .long 0xccccff00            # no instruction
    movl %eax, %edi
    call leaf
    jmp 2f
1:  popq %rcx
    movzbl 1(%rcx), %eax
    addq $4, %rcx
    jmp *%rcx
2:
E skip_by_return
F drops_caller                  # a callee that returns to its caller's caller
    call 1f
    ud2
1:  addq $8, %rsp
    call leaf
E drops_caller
F ret_imm                       # stack arguments taken off by the callee
    pushq $1000
    pushq $200
    call 1f
    addl %ebx, %eax
    movl %eax, %edi
    call leaf
    jmp 2f
1:  movl 8(%rsp), %eax
    addl 16(%rsp), %eax
    ret $16
2:
E ret_imm
F table                         # a table whose entries are calls
    leaq 1f(%rip), %rcx
    movl %edi, %eax
    andl $3, %eax
    leaq (%rcx,%rax,8), %rcx
    movl $50, %edi
    jmp *%rcx
    .p2align 3
1:  call leaf
    jmp 2f
    nop
    call leaf
    jmp 3f
    nop
    call leaf
    jmp 4f
    nop
    call leaf
    jmp 5f
2:  addl $1, %eax
3:  addl $10, %eax
4:  addl $100, %eax
5:
E table
F loop_on_call                  # `loop` and `jrcxz` to calls
    movl $5, %ecx
    xorl %eax, %eax
1:  pushq %rcx
    addl %eax, %edi
    call leaf
    popq %rcx
    loop 1b
    jrcxz 2f
    ud2
2:  call *leaf_pointer(%rip)
E loop_on_call
    .section .data.rel.local.flows, "aw"
    .quad 0, 0
    .section .data.rel.local, "aw"
leaf_pointer: .quad leaf
    .section .note.GNU-stack,"",@progbits
