// A 1 kHz SIGPROF timer whose handler calls backtrace() (glibc's unwinder) for N seconds (argument, default 1).
// The timer runs only below the twelfth nested frame, so every sample must show at least as many frames as a
// direct backtrace() there; `shortest` is the smaller of both and is the same number in every right run.
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static volatile int shortest, base;
static volatile long samples, work;

TRACED static void f_handler(int sig)
{
    void *frames[64];
    (void)sig;
    int n = backtrace(frames, 64);
    if (n < shortest) shortest = n;
    samples++;
}

TRACED static long f_tiny(long x) { return x * 3 + 1; }
TRACED static long f_work(long x) { for (int i = 0; i < 40; i++) x = f_tiny(x) ^ (x >> 3); return x; }
static double now_s(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

TRACED static long f_nest(int depth, double seconds)
{
    if (depth > 0) { long r = f_nest(depth - 1, seconds); work += r; return r + 1; }
    void *frames[64];
    shortest = base = backtrace(frames, 64);
    timer_t timer;
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGPROF;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) { perror("timer_create"); exit(1); }
    struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    timer_settime(timer, 0, &every, NULL);
    long x = 1;
    for (double end = now_s() + seconds; now_s() < end || (double)samples <= seconds * 100;) for (int i = 0; i < 200; i++) x = f_work(x);
    timer_delete(timer);
    work += x & 1;
    return 0;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = f_handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, NULL);
    long r = f_nest(11, seconds);
    printf("base %d shortest %d nest %ld\n", base, shortest, r);
    printf("samples %s\n", (double)samples > seconds * 100 ? "many" : samples > 0 ? "few" : "none");
    return shortest < base;
}
