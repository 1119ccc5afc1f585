// A function whose entry is the head of a loop, so that a jump leads there with the red zone in use: each round looks whether
// rax, the flags and the 128 bytes below the stack pointer are as the jump left them. Runs for so many milliseconds.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// rdi: a pattern, esi: rounds, edx: faults so far, rcx: 0 before the first jump.
extern long f_headed(unsigned long pattern, int rounds, int faults, long has_jumped);
__asm__(".text; .p2align 4; .globl f_headed; .type f_headed, @function\n"
        "f_headed:\n"
        "  movabs $0x5555aaaa5555aaaa, %r11; mov %rax, %r10; lahf; seto %al; test %rcx, %rcx; je 1f\n"
        "  cmp %r9w, %ax; je 2f; inc %edx\n"
        "2: cmp %r10, %r8; je 3f; inc %edx\n"
        "3:\n"
        "  .irp at, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128\n"
        "  cmp %rdi, -\\at(%rsp); je 4f; inc %edx\n"
        "4:\n"
        "  .endr\n"
        "1: dec %esi; js 5f\n"
        "  mov $1, %ecx; add $0x1d3, %rdi\n"
        "  .irp at, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128\n"
        "  mov %rdi, -\\at(%rsp)\n"
        "  .endr\n"
        "  mov %edi, %eax; and $1, %eax; add $0x7f, %al; mov %edi, %eax; sahf; lahf; seto %al; mov %ax, %r9w; mov %rax, %r8\n"
        "  jmp f_headed\n"
        "5: mov %edx, %eax; ret\n"
        ".size f_headed, . - f_headed\n");

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    double until = now_ms() + (argc > 1 ? atof(argv[1]) : 100);
    long faults = 0;
    for (unsigned long n = 0; now_ms() < until; n++) faults += f_headed(n * 77, 100, 0, 0);
    printf("faults %ld\n", faults);
    return 0;
}
