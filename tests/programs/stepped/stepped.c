// A signal's handler walks the stack at each instruction, one run after another: the processor traps after every one (TF in the
// flags), and the handler of the k-th trap walks by backtrace() and lets the rest run. The calls are those whose places are patched
// together with instructions before them: some can be executed twice, some use the stack pointer, so that a return address must be
// pushed for them. `shortest` and the words on the stack are the same in every right run.
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#define TRACED __attribute__((noinline, noclone, noipa))
#define TRAP_FLAG 0x100
#define CALLED "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc"
// The stack is unwound at each instruction: of these, too.
#define SET_FLAGS(how) __asm__ volatile("pushf\n .cfi_adjust_cfa_offset 8\n " how ", (%%rsp)\n popf\n .cfi_adjust_cfa_offset -8" ::: "memory", "cc")

static volatile int left, shortest = 1000, has_walked;
static volatile unsigned long sum;

TRACED static int f_leaf(int x) { return x + 1; }
static int (*volatile pointer)(int) = f_leaf;

static void on_trap(int sig, siginfo_t *info, void *context)
{
    (void)sig; (void)info;
    if (--left > 0) return;
    void *frames[64];
    int n = backtrace(frames, 64);
    if (n < shortest) shortest = n;
    has_walked = 1;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

TRACED static long f_calls(long n)
{
    volatile unsigned long words[4] = {1111, 2222, 3333, 4444};
    int (*p)(int) = pointer;
    long a, b, c, d;
    __asm__ volatile("mov %[n], %%edi\n mov %[p], %%rax\n lea 1(%%rdi), %%edi\n call *%%rax" : "=&a"(a) : [n] "r"((int)n), [p] "r"(p) : CALLED);
    __asm__ volatile("mov %[p], %%rax\n mov %[n], %%edi\n add $1, %%edi\n call *%%rax" : "=&a"(b) : [n] "r"((int)n), [p] "r"(p) : CALLED);
    __asm__ volatile("mov %[p], %%rax\n mov 8(%%rsp), %%rdi\n mov 16(%%rsp), %%rsi\n call *%%rax" : "=&a"(c) : [p] "r"(p) : CALLED);
    __asm__ volatile("mov %[p], %%rax\n mov %[n], %%edi\n sub $16, %%rsp\n .cfi_adjust_cfa_offset 16\n call *%%rax\n add $16, %%rsp\n .cfi_adjust_cfa_offset -16"
                     : "=&a"(d) : [n] "r"((int)n), [p] "r"(p) : CALLED);
    for (int i = 0; i < 4; i++) sum += words[i];
    // What 8(%rsp) is, is up to the compiler.
    return a + b + d + (c != 0) + f_leaf(1) + pointer(2);
}

int main(void)
{
    void *frames[64];
    int base = backtrace(frames, 64);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    long result = 0;
    for (int i = 0; i < 50; i++) result += f_calls(i);
    for (int k = 2;; k++) {
        left = k;
        has_walked = 0;
        SET_FLAGS("orl $0x100");
        long got = f_calls(7);
        int was_in = has_walked;
        left = 1 << 30;
        SET_FLAGS("andl $~0x100");
        if (got != f_calls(7)) printf("call %d gives %ld\n", k, got);
        if (!was_in) break;
    }
    unsigned long before = sum;
    for (int i = 0; i < 20; i++) result += f_calls(i);
    printf("result %ld sum of 20 %lu shortest %+d\n", result, sum - before, shortest - base);
    return shortest < base + 2;
}
