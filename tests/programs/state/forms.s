# The call forms of state.c, each with a callee of its own, so that each form's first call finds a callee that nothing
# has called yet. A form loads every register that exists (xrstor: x87 with control and status word, MXCSR, xmm, ymm,
# zmm, masks), the integer ones and the flags, stores all to `before` and calls; the callee stores to `inside`, loads
# other patterns, stores those to `leaving` and returns; the form stores to `after`. No register is free in between:
# rax and rdx hold the mask that xsave wants. Picture of an area (bytes): 0 rax rcx rdx rbx rsp rbp rsi rdi r8..r15,
# 128 rflags, 192 xsave image. LIB=1: in a shared library, where calls between global functions go through the PLT.
    .set BYTES, 4096

.macro STORE area
    .set i, 0
    .irp r,rax,rcx,rdx,rbx,rsp,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    movq %\r, \area+i(%rip)
    .set i, i + 8
    .endr
    pushfq
    popq \area+128(%rip)
    xsave64 \area+192(%rip)
.endm
.macro LOAD pattern, seed, flags
    movl xsave_mask(%rip), %eax
    xorl %edx, %edx
    xrstor64 \pattern(%rip)
    .set i, 1
    .irp r,rcx,rbx,rbp,rsi,rdi,r8,r9,r12,r13,r14,r15
    movabsq $(\seed + 0x0101010101010101 * i), %\r
    .set i, i + 1
    .endr
    pushq $\flags
    popfq
.endm
.macro CALLEE name
    .globl callee_\name
    .type callee_\name, @function
callee_\name:
    .cfi_startproc
    STORE inside
    LOAD pattern_b, 0x8877665544330000, 0x40247
    movabsq $0x5152535455565758, %r10
    movabsq $0x6162636465666768, %r11
    STORE leaving
    ret
    .cfi_endproc
    .size callee_\name, .-callee_\name
.endm

# r10 and r11 hold the callee's address, or whatever the form needs; \flags are those at the call.
.macro FORM name, flags, target, call:vararg
    CALLEE \name
    .globl form_\name
    .type form_\name, @function
form_\name:
    .cfi_startproc
    .irp r,rbx,rbp,r12,r13,r14,r15
    pushq %\r
    .cfi_adjust_cfa_offset 8
    .endr
    subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movl xsave_mask(%rip), %eax
    xorl %edx, %edx
    xsave64 native(%rip)
    movq \target, %r10
    movq %r10, %r11
    movq %r10, 8(%rsp)
    movq %r10, pointer(%rip)
    LOAD pattern_a, 0x1122334455660000, \flags
    STORE before
    \call
    STORE after
    movl xsave_mask(%rip), %eax
    xorl %edx, %edx
    xrstor64 native(%rip)
    pushq $2
    popfq
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    .irp r,r15,r14,r13,r12,rbp,rbx
    popq %\r
    .cfi_adjust_cfa_offset -8
    .endr
    ret
    .cfi_endproc
    .size form_\name, .-form_\name
    .pushsection .data.rel.local.forms, "aw"
    .quad form_\name, 9f
    .pushsection .rodata
9:  .asciz "\name"
    .popsection
    .popsection
.endm
.macro HOP name, jump:vararg
    .type hop_\name, @function
hop_\name:
    .cfi_startproc
    \jump
    ret
    .cfi_endproc
    .size hop_\name, .-hop_\name
.endm

    .section .data.rel.local.forms, "aw"
    .balign 8
    .globl forms
    .hidden forms
forms:
    .bss
    .balign 64
    .irp a,before,inside,leaving,after,pattern_a,pattern_b,native
    .globl \a
    .hidden \a
\a: .skip BYTES
    .endr
pointer: .skip 8
    .globl xsave_mask
    .hidden xsave_mask
xsave_mask: .skip 4

# AC, DF and all others; without AC and DF where the dynamic linker runs first.
    .set ALL, 0x40cd7
    .set PLAIN, 0x8d7
    .text
    .ifndef LIB
    FORM direct, ALL, $0, call callee_direct
    FORM r11, ALL, "callee_r11@GOTPCREL(%rip)", call *%r11
    FORM pointer, ALL, "callee_pointer@GOTPCREL(%rip)", call *pointer(%rip)
    FORM stack, ALL, "callee_stack@GOTPCREL(%rip)", call *8(%rsp)
    HOP direct, jmp callee_tail
    FORM tail, ALL, $0, call hop_direct
    HOP r10, jmp *%r10
    FORM tail_r10, ALL, "callee_tail_r10@GOTPCREL(%rip)", call hop_r10
    HOP pointer, jmp *pointer(%rip)
    FORM tail_pointer, ALL, "callee_tail_pointer@GOTPCREL(%rip)", call hop_pointer
    HOP carry, jc callee_tail_carry
    FORM tail_carry, ALL, $0, call hop_carry
    .endif
    FORM got, ALL, "callee_got@GOTPCREL(%rip)", call *callee_got@GOTPCREL(%rip)
    HOP got, jmp *callee_tail_got@GOTPCREL(%rip)
    FORM tail_got, ALL, $0, call hop_got
    FORM plt, PLAIN, $0, call callee_plt@PLT
    HOP plt, jmp callee_tail_plt@PLT
    FORM tail_plt, PLAIN, $0, call hop_plt
    .section .data.rel.local.forms, "aw"
    .quad 0, 0

# Arguments and results below the stack pointer, where signals leave 128 bytes alone: the sum of what the callee finds,
# plus a thousand times what it left behind.
    .text
    .type below_callee, @function
below_callee:
    .cfi_startproc
    xorl %eax, %eax
    .irp n,8,16,24,32,40,48,56,64,72,80,88,96,104,112
    addq -\n(%rsp), %rax
    movq $3, -\n(%rsp)
    .endr
    ret
    .cfi_endproc
    .size below_callee, .-below_callee
.macro BELOW name, call:vararg
    .globl below_\name
    .type below_\name, @function
below_\name:
    .cfi_startproc
    leaq below_callee(%rip), %r11
    .set i, 1
    .irp n,16,24,32,40,48,56,64,72,80,88,96,104,112,120
    movq $i, -\n(%rsp)
    .set i, i + 1
    .endr
    \call
    xorl %edx, %edx
    .irp n,16,24,32,40,48,56,64,72,80,88,96,104,112,120
    addq -\n(%rsp), %rdx
    .endr
    imulq $1000, %rdx, %rdx
    addq %rdx, %rax
    ret
    .cfi_endproc
    .size below_\name, .-below_\name
.endm
    BELOW direct, call below_callee
    BELOW pointer, call *%r11

# How far below the stack pointer a call of the function in rdi writes: the 32 KiB below are painted before.
    .globl stack_used
    .type stack_used, @function
stack_used:
    .cfi_startproc
    movq %rdi, %rsi
    leaq -32768(%rsp), %rdi
    movl $32768, %ecx
    movl $0x5a, %eax
    cld
    rep stosb
    call *%rsi
    leaq -32768(%rsp), %rdi
    movl $32768, %ecx
    movl $0x5a, %eax
    repe scasb
    leal 1(%rcx), %eax
    ret
    .cfi_endproc
    .size stack_used, .-stack_used
    .section .note.GNU-stack,"",@progbits
