#!/usr/bin/env python3
"""Do payloads of returns know the arguments of their calls, as many as they may use?

usage: tests/payload_returns.py [--sptrace PATH] [--only GLOB]...

A program of which each call is known; what it prints must be what it prints alone. Needs gcc.
"""
import sys

from harness.bench import main
from harness.case import Cases
from payload_words import built, recorded, same, summed

case = Cases()

SIX = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
__thread volatile long sink;
jmp_buf back;
F long inner(const char *name, long a, long b, long c, long d, long e) { sink += a; return name[0] + a + b + c + d + e; }
F long six(long a, long b, long c, long d, long e, long f) {
    sink += a;
    long got = inner("abc", a, b, c, d, e);
    /* What was in the registers of arguments is gone. */
    asm volatile("" : : : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11");
    if (a <= 500) return got + f;
    long below = six(a - 500, b, c, d, e, f);
    asm volatile("" : "+r"(below)); // no loop is made of it
    return below + 1;
}
F long jumper(long a) { sink++; return six(a, 2, 3, 4, 5, 6); }
F void leaves(long a, long b, long c, long d) { sink += a + b + c + d; longjmp(back, 1); }
long (*volatile pointer)(long, long, long, long, long, long) = six;
static void *threaded(void *x) { for (long i = 0; i < 300; i++) sink += six(i, i + 1, -i, i << 33, 7, i * i); return x; }
int main(void) {
    pthread_t t[2];
    char bytes[8];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, threaded, 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    for (long i = 0; i < 200; i++) { sink += six(i, 1, 2, 3, 4, 5); sink += pointer(600 + i, i, i, i, i, i); sink += jumper(i); }
    for (int i = 0; i < 10; i++) if (!setjmp(back)) leaves(1, 2, 3, i);
    FILE *file = tmpfile();
    fputs("0123456789", file);
    fflush(file);
    for (long i = 0; i < 4; i++) sink += pread(fileno(file), bytes, 3, i);
    printf("%ld\n", (long)sink);
    return 0;
}
"""
WEIGHED = """let a = c.arg1 + 3 * c.arg2 + 5 * c.arg3; let b = 7 * c.arg4 + 11 * c.arg5 + 13 * c.arg6;
s.add([c.arg1 & 3], a + b + 17 * c.result);"""


@case
def six_arguments_at_a_return(b):
    """Of calls of every kind, alone and beside records, values, and what a call's entry adds; what does not return is counted."""
    def inner(a, b, c, d, e): return ord("a") + a + b + c + d + e
    calls = []
    def six(a, b, c, d, e, f):
        got = six(a - 500, b, c, d, e, f) + 1 if a > 500 else inner(a, b, c, d, e) + f
        calls.append((a, b, c, d, e, f, got))
        return got
    for _ in range(2):
        for i in range(300): six(i, i + 1, -i, i << 33, 7, i * i)
    for i in range(200): six(i, 1, 2, 3, 4, 5), six(600 + i, i, i, i, i, i), six(i, 2, 3, 4, 5, 6)
    wanted = {}
    for call in calls:
        key = (str(call[0] & 3),)
        wanted[key] = wanted.get(key, 0) + sum(weight * word for weight, word in zip((1, 3, 5, 7, 11, 13, 17), call))
    wanted = {key: (value + (1 << 63)) % (1 << 64) - (1 << 63) for key, value in wanted.items()}
    built(b, "six", SIX)
    sheet = 'let s = sum("s", ["kind"], ["sum"]); let n = count("n", ["who", "name"]); let t = count("t", []); '
    at = f'at("six").on_exit(|c| {{ {WEIGHED} }}); '
    named = 'at("inner").on_exit(|c| if c.arg2 + c.arg3 + c.arg4 + c.arg5 != 777777777 { n.add([c.caller, c.str(1)]); }); '
    for beside, options in (("", []), ('at("six").on_enter(|c| { t.add([]); c.record(); }); ', []), ("", ["-A", "six@arg1/i64,arg6/i64,retval/i64"]), ("", ["-D", "9"])):
        sums, names, *times = recorded(b, "six", (sheet if beside else sheet[:sheet.index("let t")]) + at + named + beside, *options)
        same({k: v for k, v in summed(sums, "kind", "sum").items()}, wanted, (beside, options))
        same(summed(names, "who", "name", "count"), {("six", "abc"): len(calls)}, (beside, options))
        if beside: same(int(times[0][0]["count"]), len(calls))
    # What does not return; and calls of the kernel.
    script = """let n = count("n", []); let r = sum("r", ["at"], ["sum"]); at("leaves").on_exit(|c| if c.arg1 + c.arg2 + c.arg3 + c.arg4 > 0 { n.add([]); });
record_syscalls("pread64"); syscalls("pread64").on_exit(|c| r.add([c.arg4], 100 * c.arg3 + c.result + (c.arg1 - c.fd)));"""
    [reads] = recorded(b, "six", script)
    # The loader makes more of them, further behind.
    same({k: v for k, v in summed(reads, "at", "sum").items() if int(k[0]) < 4}, {(str(i),): 303 for i in range(4)})
    same([line.split()[0] for line in b.report("coverage").splitlines() if "with a payload" in line], ["10"])


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
