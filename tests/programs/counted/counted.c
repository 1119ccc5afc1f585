// Two threads write a line at each call of f_line, for about half a second: whoever ends this program from outside can compare
// the lines with the calls that a trace holds.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static int f_work(int x)
{
    volatile int sum = x;
    for (int i = 0; i < 500; i++) sum += i;
    return sum;
}

TRACED static void f_line(void)
{
    if (write(1, "a line\n", 7) == 7) f_work(1);
}

static void *lines(void *unused)
{
    const struct timespec pause = {0, 100000};
    for (int i = 0; i < 2000; i++) {
        f_line();
        for (int k = 0; k < 20; k++) f_work(k);
        nanosleep(&pause, NULL);
    }
    return unused;
}

int main(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, lines, NULL) != 0) return 1;
    lines(NULL);
    pthread_join(other, NULL);
    return 0;
}
