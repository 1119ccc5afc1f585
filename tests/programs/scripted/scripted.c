// What payloads count and record: calls in six threads, a fork child and a handler that runs every 0.3 ms of processor time, through
// a pointer and tail jumps; some are left by longjmp, some walk the stack. With an argument the handler walks it, too.
// Prints a sum and how many calls were left, and on stderr how often the handler has run.
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile long sink;
volatile sig_atomic_t ticks;
static int walks;
static jmp_buf out;
F long work(int kind, long size) { sink += size; return kind + size; }
F long inner(long n) { sink++; return n; }
F long outer(int n) { return inner(n) + inner(n + 1); }
F long becomes(int n) { return outer(n); }
F long looks(long n) { void *frames[8]; sink += backtrace(frames, 8); return inner(n) + 1; }
F int deep(int n) { void *frames[64]; int below = n ? deep(n - 1) + 1 : backtrace(frames, 64) > 5; sink++; return below; }
F void leaves(int n) { if (n % 3 == 0) longjmp(out, 1); sink++; }
F void in_handler(int n) { sink += n; }
long (*volatile pointer)(int, long) = work;
static void handler(int n) { (void)n; ticks++; in_handler(1); void *frames[8]; if (walks) backtrace(frames, 8); }
static void *thread(void *n) {
    for (long i = 0; i < 2000; i++) { work(i % 5, i); pointer(i % 3, i); }
    return n;
}
int main(int argc, char **argv) {
    (void)argv;
    walks = argc > 1;
    pthread_t threads[6];
    struct itimerval every = {{0, 300}, {0, 300}};
    void *frames[4];
    backtrace(frames, 4);
    signal(SIGPROF, handler);
    setitimer(ITIMER_PROF, &every, 0);
    long sum = 0;
    int left = 0;
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 300; i++) sum += becomes(i) + deep(i % 20) + looks(i);
    for (volatile int i = 0; i < 300; i++) if (setjmp(out) == 0) leaves(i); else left++;
    if (!fork()) { for (int i = 0; i < 100; i++) work(7, 1); _exit(0); }
    wait(0);
    while (ticks < 5) sink++;
    setitimer(ITIMER_PROF, &(struct itimerval){0}, 0);
    printf("%ld %d\n", sum, left);
    fprintf(stderr, "%d\n", ticks);
}
