// Threads that stand still in stacks that are known: see live.rs, which stops them and walks.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone))

static volatile long sink;
// pause(2), not by libc: musl's own functions have no tables
KEEP void f_stand(long x)
{
    sink += x;
    for (;;) __asm__ volatile("syscall" : "=a"(x) : "0"(34L) : "rcx", "r11", "memory");
}

// deep recursion
KEEP void f_deep(int n) { if (n > 0) f_deep(n - 1); else f_stand(n); sink++; }

// a frame that does not fit into 16 bits, and one whose stack pointer is aligned anew
KEEP void f_large(void) { volatile char room[1 << 20]; room[5] = 1; f_stand(room[5]); sink += room[9]; }
KEEP void f_aligned(int n)
{
    volatile char block[64] __attribute__((aligned(64))) = {1};
    volatile char *more = alloca(n);
    more[n - 1] = block[3];
    f_large();
    sink += more[0] + block[1];
}

// the CFA in rbx, which an inner function saves
KEEP void f_saves(long a, long b, long c) { long d = sink; f_deep(2); sink += a + b + c + d; }
void f_by_rbx(void);
__asm__(".pushsection .text\n.globl f_by_rbx\n.type f_by_rbx, @function\nf_by_rbx:\n.cfi_startproc\n"
        "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset rbx, -16\n"
        "mov %rsp, %rbx\n.cfi_def_cfa_register rbx\n"
        "sub $0x40, %rsp\nand $-64, %rsp\ncall f_saves\nmov %rbx, %rsp\n"
        ".cfi_def_cfa_register rsp\npop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n"
        ".size f_by_rbx, .-f_by_rbx\n.popsection");

// no table, but a frame pointer
void f_naked(void);
__asm__(".pushsection .text\n.balign 16\nnop\nnop\n.globl f_naked\n.type f_naked, @function\nf_naked:\n"
        "push %rbp\nmov %rsp, %rbp\nmov $3, %edi\ncall f_deep\npop %rbp\nret\nnop\nnop\n"
        ".size f_naked, .-f_naked\n.popsection");

// a fault at a known instruction
void f_faults(void);
extern char fault_here[];
__asm__(".pushsection .text\n.globl f_faults\n.type f_faults, @function\nf_faults:\n.cfi_startproc\n"
        "xor %eax, %eax\n.globl fault_here\nfault_here: movl $1, (%rax)\nret\n.cfi_endproc\n"
        ".size f_faults, .-f_faults\n.popsection");
KEEP static void f_inner(void) { f_deep(1); sink++; }
static void f_handler(int s) { (void)s; f_inner(); sink++; }

static void *t_deep(void *a) { f_deep(40); return a; }
static void *t_aligned(void *a) { f_aligned(100); sink++; return a; }
static void *t_by_rbx(void *a) { f_by_rbx(); sink++; return a; }
static void *t_naked(void *a) { f_naked(); sink++; return a; }
static void *t_fault(void *a)
{
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    if (a) sigaltstack(&alternate, 0);
    f_faults();
    return a;
}

int main(int argc, char **argv)
{
    if (argc > 1) { // to be stepped through: calls by the PLT, the vdso, and a float printed
        char line[64];
        if (read(0, line, 1) != 1) return 1;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(line, sizeof line, "%s %g", argv[1], (double)now.tv_nsec);
        return strlen(line) == 0;
    }
    struct sigaction action = {.sa_handler = f_handler, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    static struct { void *(*run)(void *); void *argument; } const threads[] = {
        {t_deep, 0}, {t_aligned, 0}, {t_by_rbx, 0}, {t_naked, 0}, {t_fault, 0}, {t_fault, (void *)1}};
    pthread_t thread;
    pthread_attr_t attributes; // musl's threads have small stacks
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 4 << 20);
    for (unsigned i = 0; i < sizeof threads / sizeof *threads; i++) pthread_create(&thread, &attributes, threads[i].run, threads[i].argument);
    struct timespec t = {1000, 0};
    for (;;) nanosleep(&t, 0);
}
