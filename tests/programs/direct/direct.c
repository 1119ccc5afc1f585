// Direct calls: a chain, a fan-out, a loop, a call whose result is unused, calls with many arguments.
#include "../calllog.h"

TRACED static int f_leaf(int x) { ENTER(); int r = x + 1; LEAVE(); return r; }
TRACED static int f_mid(int x) { ENTER(); int r = f_leaf(x) * 2; r += f_leaf(r); LEAVE(); return r; }
TRACED static long f_many(long a, long b, long c, long d, long e, long f, long g, long h)
{ ENTER(); long r = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; LEAVE(); return r; }
TRACED static double f_float(double a, float b, long double c) { ENTER(); double r = a + b + (double)c; LEAVE(); return r; }
TRACED static void f_empty(void) { __asm__ volatile(""); }

struct big { long v[9]; };
TRACED static struct big f_struct(struct big in) { ENTER(); for (int i = 0; i < 9; i++) in.v[i] += i; LEAVE(); return in; }

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += f_mid(i);
    for (int i = 0; i < 1000; i++) f_empty();
    struct big b = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
    b = f_struct(b);
    printf("sum %d many %ld float %.3f struct %ld\n", sum, f_many(1, 2, 3, 4, 5, 6, 7, 8), f_float(1.5, 2.25f, 3.125L), b.v[8]);
    return 17;
}
