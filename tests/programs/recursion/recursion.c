// Recursion: plain, mutual, and doubly recursive; the call counts are known numbers.
#include "../calllog.h"

TRACED static int f_down(int n) { ENTER(); int r = n == 0 ? 0 : n + f_down(n - 1); LEAVE(); return r; }
TRACED static int f_odd(int n);
TRACED static int f_even(int n) { ENTER(); int r = n == 0 ? 1 : f_odd(n - 1); LEAVE(); return r; }
TRACED static int f_odd(int n) { ENTER(); int r = n == 0 ? 0 : f_even(n - 1); LEAVE(); return r; }
TRACED static long g_fib(int n) { return n < 2 ? n : g_fib(n - 1) ^ g_fib(n - 2); } /* no accumulator: gcc must not make a loop of it */
TRACED static long g_ackermann(long m, long n)
{ return m == 0 ? n + 1 : n == 0 ? g_ackermann(m - 1, 1) : g_ackermann(m - 1, g_ackermann(m, n - 1)); }

int main(void)
{
    printf("down %d\n", f_down(12));
    printf("even %d\n", f_even(7));
    printf("fib %ld\n", g_fib(22)); /* 57313 calls */
    printf("ackermann %ld\n", g_ackermann(2, 9));
    return 0;
}
