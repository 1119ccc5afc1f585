// Split stacks (-fsplit-stack): a prologue that finds no room calls __morestack, which allocates another piece of stack,
// calls the rest of the function behind its own return address, and frees the piece afterwards. Deep and wide frames,
// in main and in threads with small stacks, by direct calls and pointers.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static long f_leaf(long x) { return x * 3 + 1; }
TRACED static long f_wide(int n)
{
    char pad[3000];
    memset(pad, n, sizeof pad);
    return n == 0 ? f_leaf(pad[7]) : f_wide(n - 1) + f_leaf(pad[n % 3000]);
}
TRACED static long f_many(int a, int b, int c, int d, int e, int f, int g, int h) { char pad[20000]; memset(pad, a, sizeof pad); return pad[77] + b + c + d + e + f_leaf(f) + g + h; }
TRACED static long f_deep(long n) { return n == 0 ? f_many(1, 2, 3, 4, 5, 6, 7, 8) : f_deep(n - 1) + (n & 1); }
static long (*volatile wide)(int) = f_wide;
TRACED static void *f_thread(void *arg) { return (void *)(f_wide(50) + f_deep(5000) + wide((int)(long)arg)); }

int main(void)
{
    for (int round = 0; round < 3; round++) printf("%ld %ld %ld\n", f_wide(300), f_deep(100000), wide(120));
    for (long i = 0; i < 4; i++) {
        pthread_t id;
        void *result;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 65536);
        pthread_create(&id, &attr, f_thread, (void *)(i * 30));
        pthread_join(id, &result);
        printf("thread %ld\n", (long)result);
    }
    return 0;
}
