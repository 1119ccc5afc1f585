// Calls of a function that somebody may wait for: by many threads in the same instant, below signal handlers, in a
// forked child. Waits for a line on stdin before each; says "ready" before it waits. The last line is a sum.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))
enum { THREADS = 8 };

static pthread_barrier_t barrier;
static volatile sig_atomic_t ticks;

TRACED static long f_leaf(long n) { return n * 3 + 1; }
// Its arguments, and what it returns, are in registers of every kind.
TRACED static double f_gated(long a, long b, long c, long d, long e, long f, double x, double y)
{
    long sum = 0;
    for (long n = 0; n < 10; n++) sum += f_leaf(a + b + c + d + e + f + n);
    return (double)sum + x * y;
}
TRACED static double f_caller(long n) { return f_gated(n, 2, 3, 4, 5, 6, 1.5, (double)n); }
TRACED static void f_handler(int signal)
{
    (void)signal;
    ticks += f_leaf(1) == 4;
}

static void *thread(void *number)
{
    double *result = malloc(sizeof *result);
    pthread_barrier_wait(&barrier);
    *result = f_caller((long)number);
    return result;
}

static void wait_for_line(const char *what)
{
    char line[16];
    printf("ready %s\n", what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(1);
}

int main(void)
{
    pthread_t threads[THREADS];
    double sum = 0;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (long n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, thread, (void *)n);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = f_handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval each_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    wait_for_line("threads");
    setitimer(ITIMER_REAL, &each_ms, NULL);
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < THREADS; n++) {
        void *result;
        pthread_join(threads[n], &result);
        sum += *(double *)result;
        free(result);
    }
    while (ticks < 3) usleep(1000);
    setitimer(ITIMER_REAL, &never, NULL);
    wait_for_line("child");
    pid_t child = fork();
    if (child == 0) _exit((int)f_caller(1) & 63);
    int status = 0;
    waitpid(child, &status, 0);
    printf("sum %.1f, child %d\n", sum, WEXITSTATUS(status));
    return 0;
}
