// usage: busy [ROUNDS]
//
// Short calls, direct and through a pointer, all the time: to be stopped anywhere in them.
#include <stdio.h>
#include <stdlib.h>
#define TRACED __attribute__((noinline, noclone))
static volatile long spin;
TRACED static int f_leaf(int x)
{
    for (int i = 0; i < 20; i++) spin += x;
    return x + 1;
}
TRACED static int f_chain(int n)
{
    int r = n ? f_chain(n - 1) : f_leaf(n) + f_leaf(3);
    r += f_leaf(n);
    __asm__ volatile("" : "+r"(r));
    return r;
}
static int (*volatile through)(int) = f_chain;
int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000, sum = 0;
    for (long i = 0; i < rounds; i++) sum += through(4);
    printf("%ld\n", sum);
    return 0;
}
