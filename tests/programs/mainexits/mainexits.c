// The main thread ends first; then threads start and end one after the other for a while, so that what the first one left is used
// again. Prints how many calls they made.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static volatile long calls;
TRACED static long f_leaf(long n) { calls++; return n * 3; }
static void *f_short(void *arg)
{
    long sum = 0;
    for (long i = 0; i < 200; i++) sum += f_leaf(i);
    return (void *)(sum + (long)arg * 0);
}

static void *f_rest(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    usleep(150000); // a tracer that looks for ended threads from time to time has seen it
    for (int i = 0; i < 300; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, f_short, NULL) != 0) exit(1);
        pthread_join(id, NULL);
        if (i % 3 == 0) usleep(2000);
    }
    printf("calls %ld\n", calls);
    exit(0);
}

int main(void)
{
    static pthread_t first;
    pthread_t rest;
    first = pthread_self();
    if (pthread_create(&rest, NULL, f_rest, &first) != 0) return 1;
    f_leaf(1);
    pthread_exit(NULL);
}
