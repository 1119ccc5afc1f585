# A static program without any library: direct, indirect, recursive and tail calls, raw system calls, exit status 7.
    .globl _start
    .text
    .type _start, @function
_start:
    xorl %ebp, %ebp
    movl $10, %edi
    call count_down
    leaq say(%rip), %rbx
    call *%rbx
    call *pointer(%rip)
    movl $3, %edi
    call tail
    addl %eax, %edi
    call leave_it
    hlt
    .size _start, .-_start

    .type count_down, @function
count_down:
    testl %edi, %edi
    jz 1f
    decl %edi
    call count_down
1:  ret
    .size count_down, .-count_down

    .type say, @function
say:
    movl $1, %eax
    movl $1, %edi
    leaq text(%rip), %rsi
    movl $text_end - text, %edx
    syscall
    ret
    .size say, .-say

    .type tail, @function
tail:
    incl %edi
    jmp last
    .size tail, .-tail
    .type last, @function
last:
    movl %edi, %eax
    xorl %edi, %edi
    addl $3, %edi
    ret
    .size last, .-last

    .type leave_it, @function
leave_it:
    movl $231, %eax
    syscall
    .size leave_it, .-leave_it
    .section .rodata
text: .ascii "no libc here\n"
text_end:
    .data
    .balign 8
pointer: .quad say
    .section .note.GNU-stack, "", @progbits
