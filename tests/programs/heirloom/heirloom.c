// usage: heirloom [counts]
//
// Forks while a function is hot, directly and through a pointer. The child goes on for a while as hot, then calls both
// now and then for two seconds, and the pointer leads elsewhere. Says at its end how often each was called in the child, which
// differs from run to run; without an argument it says nothing and takes a tenth of the time.
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static long of_direct, of_pointed, of_rare;
NOINLINE static void direct(void) { of_direct++; asm volatile("" ::: "memory"); }
NOINLINE static void pointed(void) { of_pointed++; asm volatile("" ::: "memory"); }
NOINLINE static void rare(void) { of_rare++; asm volatile("" ::: "memory"); }
static void (*volatile pointer)(void) = pointed;

NOINLINE static void both(void) { direct(); pointer(); }
NOINLINE static void pause_1ms(void)
{
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void hot_for(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 1000; i++) both();
}

int main(int argc, char **argv)
{
    (void)argv;
    double times = argc > 1 ? 1 : 0.1;
    hot_for(1.0 * times);
    pid_t child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        return status != 0;
    }
    of_direct = of_pointed = of_rare = 0;
    hot_for(0.3 * times);
    pointer = rare;
    for (double end = now() + 2.5 * times; now() < end;) { both(); pause_1ms(); }
    if (argc > 1) printf("direct %ld\npointed %ld\nrare %ld\n", of_direct, of_pointed, of_rare);
    return 0;
}
