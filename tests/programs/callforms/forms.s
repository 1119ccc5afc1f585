# Every form of a call instruction, each in a function `form_*` of its own that
#   1. saves the callee-saved registers, loads all general and vector registers and the flags with patterns,
#   2. sets what the form needs, stores everything to `before`, executes the call,
#   3. stores everything to `after` and restores.
# `callee` stores everything to `inside`, loads other patterns (CF and the other flags are results too), stores those to
# `leaving` and returns. callforms.c compares before with inside and leaving with after: a tracer between them must have
# changed nothing. No register is free at these points, so everything goes through rip-relative memory.
# Picture of a store area (bytes): 0 rax rcx rdx rbx rsp rbp rsi rdi r8..r15 (16 x 8), 128 rflags, 144 xmm0..xmm15.
# Assembled with --defsym CFI=1 (unwind information) or without (as hand-written assembler often is), and
# --defsym NOPIE=1 for the forms with absolute addresses.

.macro STORE area
    movq %rax, \area+0(%rip)
    movq %rcx, \area+8(%rip)
    movq %rdx, \area+16(%rip)
    movq %rbx, \area+24(%rip)
    movq %rsp, \area+32(%rip)
    movq %rbp, \area+40(%rip)
    movq %rsi, \area+48(%rip)
    movq %rdi, \area+56(%rip)
    movq %r8, \area+64(%rip)
    movq %r9, \area+72(%rip)
    movq %r10, \area+80(%rip)
    movq %r11, \area+88(%rip)
    movq %r12, \area+96(%rip)
    movq %r13, \area+104(%rip)
    movq %r14, \area+112(%rip)
    movq %r15, \area+120(%rip)
    pushfq
    popq \area+128(%rip)
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movdqu %xmm\n, \area+144+16*\n(%rip)
    .endr
.endm

# \seed makes the patterns of the two loads differ; \flags goes into rflags.
.macro LOAD seed, flags
    .set i, 0
    .irp r,rax,rcx,rdx,rbx,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    movabsq $(\seed + 0x0101010101010101 * i), %\r
    .set i, i + 1
    .endr
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movdqu patterns_\seed\()+16*\n(%rip), %xmm\n
    .endr
    pushq $\flags
    popfq
.endm

.macro SAVE_CALLEE_SAVED
    movq %rbx, saved+0(%rip)
    movq %rbp, saved+8(%rip)
    movq %r12, saved+16(%rip)
    movq %r13, saved+24(%rip)
    movq %r14, saved+32(%rip)
    movq %r15, saved+40(%rip)
.endm
.macro RESTORE_CALLEE_SAVED
    movq saved+0(%rip), %rbx
    movq saved+8(%rip), %rbp
    movq saved+16(%rip), %r12
    movq saved+24(%rip), %r13
    movq saved+32(%rip), %r14
    movq saved+40(%rip), %r15
    cld
.endm

.macro BEGIN name
    .globl form_\name
    .type form_\name, @function
form_\name:
    .ifdef CFI
    .cfi_startproc
    .endif
    subq $0x2008, %rsp
    .ifdef CFI
    .cfi_adjust_cfa_offset 0x2008
    .endif
    SAVE_CALLEE_SAVED
    LOAD 0x1122334455660000, 0xcd7
.endm
.macro FINISH name
    STORE after
    RESTORE_CALLEE_SAVED
    addq $0x2008, %rsp
    .ifdef CFI
    .cfi_adjust_cfa_offset -0x2008
    .endif
    xorl %eax, %eax
    ret
    .ifdef CFI
    .cfi_endproc
    .endif
    .size form_\name, .-form_\name
    .pushsection .data.rel.local.forms, "aw"
    .quad form_\name, 9f
    .pushsection .rodata
9:  .asciz "\name"
    .popsection
    .popsection
.endm

# set up with flags kept (lea and mov only), record, call
.macro FORM name, setup1, setup2, setup3, call:vararg
    BEGIN \name
    \setup1
    \setup2
    \setup3
    STORE before
    \call
    FINISH \name
.endm

    .data
    .balign 16
    .globl before, inside, leaving, after
    .local saved
before:  .skip 400
inside:  .skip 400
leaving: .skip 400
after:   .skip 400
saved:   .skip 48
slot:    .quad callee
    .section .rodata
    .balign 16
patterns_0x1122334455660000:
    .set i, 0
    .rept 32
    .quad 0xa5a5000000000000 + 0x010203 * i
    .set i, i + 1
    .endr
patterns_0x6677889900110000:
    .set i, 0
    .rept 32
    .quad 0x5a5aff0000000000 + 0x030201 * i
    .set i, i + 1
    .endr

    .section .data.rel.local.forms, "aw"
    .balign 8
    .globl forms
forms:

    .text
    .globl callee
    .type callee, @function
callee:
    .ifdef CFI
    .cfi_startproc
    .endif
    STORE inside
    incl calls(%rip)
    LOAD 0x6677889900110000, 0x003
    STORE leaving
    ret
    .ifdef CFI
    .cfi_endproc
    .endif
    .size callee, .-callee

    # --- direct
    FORM direct, nop, nop, nop, call callee
    BEGIN direct_prefixed
    STORE before
    .byte 0x66, 0x66, 0x48, 0xe8
    .long callee - . - 4
    FINISH direct_prefixed
    FORM direct_bnd, nop, nop, nop, bnd call callee
    # --- register, r8-r15 with a REX prefix
    .irp r,rax,rcx,rdx,rbx,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    FORM reg_\r, "leaq callee(%rip), %\r", nop, nop, call *%\r
    FORM mem_\r, "leaq slot(%rip), %\r", nop, nop, call *(%\r)
    FORM mem8_\r, "leaq slot-0x40(%rip), %\r", nop, nop, call *0x40(%\r)
    FORM mem32_\r, "leaq slot-0x4000(%rip), %\r", nop, nop, call *0x4000(%\r)
    .endr
    FORM reg_notrack, "leaq callee(%rip), %rax", nop, nop, notrack call *%rax
    # --- scaled index
    .irp r,rax,rcx,rdx,rbx,rbp,rsi,rdi,r8,r9,r10,r11,r13,r14,r15
    FORM index8_\r, "leaq slot-0x80(%rip), %r12", "movq $0x10, %\r", nop, call *(%r12,%\r,8)
    .endr
    FORM index8_r12, "leaq slot-0x80(%rip), %rax", "movq $0x10, %r12", nop, call *(%rax,%r12,8)
    FORM index4_disp8, "leaq slot-0x50(%rip), %rdi", "movq $0x10, %rsi", nop, call *0x10(%rdi,%rsi,4)
    FORM index8_disp32, "leaq slot-0x1080(%rip), %r8", "movq $0x10, %r9", nop, call *0x1000(%r8,%r9,8)
    FORM index1_negative, "leaq slot+0x20(%rip), %rbx", "movq $-0x10, %rcx", nop, call *-0x10(%rbx,%rcx)
    # --- stack pointer as base (the address is formed before the return address is pushed)
    FORM stack_0, "leaq callee(%rip), %rax", "movq %rax, (%rsp)", nop, call *(%rsp)
    FORM stack_8, "leaq callee(%rip), %rax", "movq %rax, 8(%rsp)", nop, call *8(%rsp)
    FORM stack_disp32, "leaq callee(%rip), %rax", "movq %rax, 0x1000(%rsp)", nop, call *0x1000(%rsp)
    FORM stack_index, "leaq callee(%rip), %rax", "movq %rax, 0x20(%rsp)", "movq $4, %rdx", call *(%rsp,%rdx,8)
    FORM frame_minus, "leaq 0x100(%rsp), %rbp", "leaq callee(%rip), %rax", "movq %rax, -0x20(%rbp)", call *-0x20(%rbp)
    # --- rip-relative, GOT, PLT-like
    FORM rip, nop, nop, nop, call *slot(%rip)
    FORM rip_got, nop, nop, nop, call *callee@GOTPCREL(%rip)
    BEGIN direct_addr32
    STORE before
    .byte 0x67, 0xe8
    .long callee - . - 4
    FINISH direct_addr32
    # --- thread-local slot
    FORM fs_absolute, "leaq callee(%rip), %rax", "movq %rax, %fs:tls_slot@tpoff", nop, call *%fs:tls_slot@tpoff
    FORM fs_reg, "leaq callee(%rip), %rax", "movq %rax, %fs:tls_slot@tpoff", "movq $tls_slot@tpoff, %rcx", call *%fs:(%rcx)
    .ifdef NOPIE
    FORM absolute, nop, nop, nop, call *slot
    FORM absolute_index, "movq $2, %rbx", nop, nop, call *slot-0x10(,%rbx,8)
    .endif

    # --- the call is itself a jump target, so nothing before it may be overwritten
    BEGIN loop_head
    leaq callee(%rip), %rbx
    movq $0, counter(%rip)
    STORE before
    jmp 1f
    nop
1:  call *%rbx
    pushfq
    incq counter(%rip)
    popfq
    leaq callee(%rip), %rbx
    cmpq $3, counter(%rip)
    jne 1b
    # the last compare changed the flags: leave as the callee did
    pushq leaving+128(%rip)
    popfq
    movq leaving+24(%rip), %rbx
    movq before+0(%rip), %rax
    movq %rax, inside+0(%rip)
    movq before+8(%rip), %rax
    movq %rax, inside+8(%rip)
    movq leaving+0(%rip), %rax
    # the second and third call saw the callee's patterns: only `after` is compared
    movb $1, skip_inside(%rip)
    FINISH loop_head

    # --- two 2-byte calls side by side, then a direct one
    BEGIN adjacent
    leaq callee_quiet(%rip), %rbx
    call *%rbx
    call *%rbx
    call callee_quiet
    STORE before
    call callee
    FINISH adjacent

    # --- call whose target is the next instruction's own data: call-next-pop
    .globl call_next_pop
    .type call_next_pop, @function
call_next_pop:
    .ifdef CFI
    .cfi_startproc
    .endif
    call 1f
1:  popq %rax
    leaq 1b(%rip), %rdx
    subq %rdx, %rax
    ret
    .ifdef CFI
    .cfi_endproc
    .endif
    .size call_next_pop, .-call_next_pop

    # --- a callee that takes its argument from behind the call (inline data), as old assembler does
    .globl inline_data
    .type inline_data, @function
inline_data:
    call 2f
    .quad 0x123456789
    ret
2:  popq %rdx
    movq (%rdx), %rax
    addq $8, %rdx
    jmp *%rdx
    .size inline_data, .-inline_data

    # --- variadic call with al = 2
    .globl varargs_call
    .type varargs_call, @function
varargs_call:
    .ifdef CFI
    .cfi_startproc
    .endif
    subq $8, %rsp
    .ifdef CFI
    .cfi_adjust_cfa_offset 8
    .endif
    leaq format(%rip), %rdi
    movsd doubles(%rip), %xmm0
    movsd doubles+8(%rip), %xmm1
    movb $2, %al
    call *printf@GOTPCREL(%rip)
    leaq format(%rip), %rdi
    movsd doubles+8(%rip), %xmm0
    movsd doubles(%rip), %xmm1
    movb $2, %al
    call printf@PLT
    addq $8, %rsp
    .ifdef CFI
    .cfi_adjust_cfa_offset -8
    .endif
    ret
    .ifdef CFI
    .cfi_endproc
    .endif
    .size varargs_call, .-varargs_call

    .type callee_quiet, @function
callee_quiet:
    ret
    .size callee_quiet, .-callee_quiet

    .section .data.rel.local.forms, "aw"
    .quad 0, 0
    .section .rodata
format: .asciz "%.3f %.3f\n"
    .balign 8
doubles: .double 1.5, -2.25
    .bss
    .globl calls, skip_inside
    .balign 8
counter: .skip 8
calls: .skip 4
skip_inside: .skip 4
    .section .tbss, "awT", @nobits
    .globl tls_slot
    .balign 8
tls_slot: .skip 8
    .section .note.GNU-stack, "", @progbits
