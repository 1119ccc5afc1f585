// usage: heats ROUNDS
//
// Has functions that are hot for a while, quiet, and hot again, on two threads and in a forked child, called directly,
// through the linker, through a pointer, and by a tail jump, while exceptions to the rule (a longjmp out of a hot
// function, a signal handler that calls one) happen. Says at its end how often each was called, a line each.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { DIRECT, POINTED, TAILED, JUMPED, COLD, HANDLED, KINDS };
static const char *const names[KINDS] = {"direct", "pointed", "tailed", "jumped", "cold", "handled"};
static _Atomic unsigned long *calls; // shared with the child
static void count(int kind) { atomic_fetch_add_explicit(&calls[kind], 1, memory_order_relaxed); }
#define COUNT(kind) do { count(kind); asm volatile("" ::: "memory"); } while (0)

static __thread jmp_buf out;
NOINLINE static int direct(int x) { COUNT(DIRECT); return x + 1; }
NOINLINE static int pointed(int x) { COUNT(POINTED); return x + 2; }
NOINLINE static int tailed(int x) { COUNT(TAILED); return x + 3; }
NOINLINE static int jumped(int x) { COUNT(JUMPED); if (x % 1000 == 999) longjmp(out, 1); return x; }
static int (*volatile pointer)(int) = pointed;
NOINLINE static int cold(int x)
{
    COUNT(COLD);
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
    return direct(x);
}
NOINLINE static int to_tailed(int x) { return tailed(x + 1); }
NOINLINE static void handled(int signal) { (void)signal; COUNT(HANDLED); direct(1); }

static int work(long rounds)
{
    volatile int sum = 0;
    for (int heat = 0; heat < 3; heat++) {
        for (volatile long i = 0; i < rounds; i++) {
            sum = direct(sum);
            sum = pointer(sum);
            sum = to_tailed(sum);
            if (setjmp(out) == 0) sum = jumped(i);
        }
        for (int i = 0; i < 700; i++) sum = cold(sum);
    }
    return sum;
}

static void *thread(void *rounds) { work(*(long *)rounds); return NULL; }

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    long rounds = atol(argv[1]);
    calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (calls == MAP_FAILED) return 3;
    struct sigaction action = {.sa_handler = handled, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &every, NULL);
    pid_t child = fork();
    if (child == 0) {
        work(rounds);
        exit(0);
    }
    pthread_t other;
    pthread_create(&other, NULL, thread, &rounds);
    work(rounds);
    pthread_join(other, NULL);
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    for (int kind = 0; kind < KINDS; kind++) printf("%s %lu\n", names[kind], (unsigned long)calls[kind]);
    return status != 0;
}
