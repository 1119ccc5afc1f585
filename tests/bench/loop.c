// The smallest calls, many times: `loop MODE N [FILE]` makes N calls and prints (to FILE) the CPU nanoseconds (user + system) they took.
//
// Modes: direct, pointer, plt (an empty function: one `ret`), twenty (a function of 20 bytes, because some tools refuse
// shorter ones), twenty-pointer, two (of two integers, whose sum it returns), two-pointer, two-deep (the same below eight calls). Built twice: plain, and with -DFLOOR, where every call stands between two hand-made
// hooks that do the least a full trace must do: rdtsc and one 8-byte record (u32 id, u32 low TSC) into a 64 KiB ring
// that is used over and over. The floor has no reader, no limit check and no thread check: no tracer can be below it.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void f_library(void); // in liblooped.so: an empty function

__attribute__((naked, noinline, noipa)) void f_empty(void) { __asm__("ret"); }
// 3 + 4 + 3 + 4 + 4 + 1 + 1 = 20 bytes
__attribute__((naked, noinline, noipa)) long f_twenty(long x)
{
    (void)x;
    __asm__("mov %rdi, %rax\n\tshr $3, %rax\n\txor %rdi, %rax\n\tlea (%rax,%rdi,4), %rax\n\tadd $0x55, %rax\n\tnop\n\tret");
}

__attribute__((noinline, noipa)) long f_two(long a, long b) { return a + b; }

__attribute__((noinline, noipa)) long f_deep(int depth, long n)
{
    long x = 1;
    if (depth) { x = f_deep(depth - 1, n); __asm__ volatile("" : "+r"(x)); return x; }
    for (long i = 0; i < n; i++) x = f_two(i, x);
    return x;
}

#ifdef FLOOR
static char ring[65536] __attribute__((aligned(4096)));
#define HOOK(id)                                                                                             \
    __asm__ volatile("rdtsc\n\tmovl %%eax, (%1,%0)\n\tmovl %2, 4(%1,%0)\n\taddl $8, %k0\n\tmovzwl %w0, %k0" \
                     : "+r"(at) : "r"(base), "i"(id) : "rax", "rdx", "memory", "cc")
#define CALL(statement) do { HOOK(0x1234); statement; HOOK(0x80001234); } while (0)
#else
#define CALL(statement) do { statement; } while (0)
#endif

static long long cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) return 2;
    if (argc == 4 && !freopen(argv[3], "w", stdout)) return 2; // for starters that lose a program's output
    const char *mode = argv[1];
    long n = atol(argv[2]), x = 1;
    void (*volatile empty)(void) = f_empty;
    long (*volatile twenty)(long) = f_twenty;
    void (*pointer)(void) = empty;
    long (*pointer20)(long) = twenty;
    long (*volatile two)(long, long) = f_two;
    long (*pointer_two)(long, long) = two;
#ifdef FLOOR
    unsigned long at = 0;
    char *base = ring;
    memset(ring, 1, sizeof ring);
#endif
    long long start = cpu_ns();
    if (strcmp(mode, "direct") == 0) for (long i = 0; i < n; i++) CALL(f_empty());
    else if (strcmp(mode, "pointer") == 0) for (long i = 0; i < n; i++) CALL(pointer());
    else if (strcmp(mode, "plt") == 0) for (long i = 0; i < n; i++) CALL(f_library());
    else if (strcmp(mode, "twenty") == 0) for (long i = 0; i < n; i++) CALL(x = f_twenty(x));
    else if (strcmp(mode, "twenty-pointer") == 0) for (long i = 0; i < n; i++) CALL(x = pointer20(x));
    else if (strcmp(mode, "two") == 0) for (long i = 0; i < n; i++) CALL(x = f_two(i, x));
    else if (strcmp(mode, "two-pointer") == 0) for (long i = 0; i < n; i++) CALL(x = pointer_two(i, x));
    else if (strcmp(mode, "two-deep") == 0) x = f_deep(7, n);
    else return 2;
    printf("%lld %ld\n", cpu_ns() - start, x);
    return 0;
}
