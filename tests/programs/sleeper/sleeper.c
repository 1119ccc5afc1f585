// A function that sleeps 50 ms, called five times: its duration in a trace must read 50 to 55 ms.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <time.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static int f_sleep_50ms(void)
{
    struct timespec t = {0, 50000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
    return 1;
}
TRACED static int f_spin(void) { volatile long x = 0; for (int i = 0; i < 100000; i++) x += i; return x > 0; }

int main(void)
{
    int n = 0;
    for (int i = 0; i < 5; i++) n += f_sleep_50ms() + f_spin();
    printf("slept %d\n", n);
    return 0;
}
