// Tail calls as a compiler makes them (at -O2): direct, through a pointer, conditional, to libc, in a long cycle.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static long f_end(long x) { return x * 3 + 1; }
TRACED static long f_direct(long x) { return f_end(x + 1); }
TRACED static long f_direct2(long x) { return f_direct(x + 1); }
typedef long (*step)(long);
static step volatile chosen = f_end;
static step table[4] = {f_end, f_direct, f_direct2, f_end};
TRACED static long f_pointer(long x) { return chosen(x); }
TRACED static long f_table(long x) { return table[x & 3](x); }
TRACED static long f_argument(step s, long x) { return s(x); }
TRACED static long f_conditional(long x) { if (x & 1) return f_direct(x); return x; }
TRACED static long f_either(long x) { if (x > 5) return f_end(x); return f_direct2(x); }
TRACED static size_t f_libc(const char *s) { return strlen(s); }
TRACED static long f_ping(long n, long acc);
TRACED static long f_pong(long n, long acc) { return n == 0 ? acc : f_ping(n - 1, acc + n); }
TRACED static long f_ping(long n, long acc) { return n == 0 ? acc : f_pong(n - 1, acc ^ n); }

int main(int argc, char **argv)
{
    long cycle = argc > 1 ? atol(argv[1]) : 20000;
    long sum = 0;
    for (long i = 0; i < 10; i++) sum += f_direct(i) + f_direct2(i) + f_pointer(i) + f_table(i) + f_conditional(i) + f_either(i);
    for (long i = 0; i < 4; i++) sum += f_argument(table[i], i);
    printf("sum %ld\n", sum);
    printf("length %zu\n", f_libc("tail call into libc"));
    printf("cycle %ld\n", f_ping(cycle, 0));
    return 0;
}
