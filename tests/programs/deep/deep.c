// Deep recursion: 100,000 frames (argument: another number), up and down twice.
#include <stdio.h>
#include <stdlib.h>
#define TRACED __attribute__((noinline, noclone, noipa))

// xor: a sum would let gcc make a loop of it
TRACED static long f_deep(long n) { if (n == 0) return 1; long r = f_deep(n - 1); return r ^ n; }

int main(int argc, char **argv)
{
    long frames = argc > 1 ? atol(argv[1]) : 100000;
    printf("%ld\n", f_deep(frames - 1));
    printf("%ld\n", f_deep(frames - 1));
    return 0;
}
