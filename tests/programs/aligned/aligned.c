// Runs its calls with EFLAGS.AC set, which makes every misaligned access a SIGBUS: direct, through pointers, tail calls,
// recursive, first calls and known ones; then the same once rdtsc is forbidden, when a tracer must have fallen silent. The
// C library is not called meanwhile: its string functions are misaligned on purpose.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/prctl.h>
#define TRACED __attribute__((noinline, noclone))
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#ifndef PR_SET_TSC
#define PR_SET_TSC 26
#endif

static inline void set_ac(void) { __asm__ volatile("pushfq; orl $0x40000, (%%rsp); popfq" ::: "cc", "memory"); }
static inline unsigned long clear_ac(void)
{
    unsigned long flags;
    __asm__ volatile("pushfq; movq (%%rsp), %0; andl $~0x40000, (%%rsp); popfq" : "=r"(flags)::"cc", "memory");
    return flags >> 18 & 1;
}

TRACED static long f_leaf(long x) { KEEP(x); return x + 1; }
TRACED static long f_late(long x) { KEEP(x); return x + 2; }
TRACED static long f_later(long x) { KEEP(x); return x + 3; }
TRACED static long f_tail(long x) { KEEP(x); return f_leaf(x * 2); }
TRACED static long f_down(long n)
{
    if (n == 0) return f_leaf(0);
    long r = f_down(n - 1);
    KEEP(r);
    return r + n;
}
static long (*volatile pointers[])(long) = {f_leaf, f_tail, f_down, f_late, f_later};

TRACED static long f_calls(int late)
{
    long sum = 0;
    set_ac();
    for (int i = 0; i < 100; i++) {
        sum += f_leaf(i) + f_down(i % 10);
        long tail = f_tail(i);
        KEEP(tail);
        sum += tail;
        for (int k = 0; k < 3 + (late > 1); k++) sum += pointers[k](i % 7);
        if (late == 0) continue;
        sum += f_late(i);
        if (late > 2) sum += f_later(i) + pointers[4](i);
    }
    return clear_ac() ? sum : -1;
}

int main(void)
{
    for (int late = 0; late < 3; late++) { printf("%ld\n", f_calls(late)); fflush(stdout); }
    prctl(PR_SET_TSC, 2, 0, 0, 0);
    for (int late = 0; late < 4; late++) { printf("%ld\n", f_calls(late)); fflush(stdout); }
    return 0;
}
