// Recursion deeper than any usual stack, on a thread's stack of 512 MiB or more: five million frames, twice; one left by
// longjmp from its bottom; one left by an exception; one into which a timer's handler comes all the time, and at its bottom
// a handler that recurses deeper still; then until the stack overflows, which a handler on an alternate stack survives by
// siglongjmp.
//
// Arguments: frames (default 5,000,000), then nothing, or one of
//   flat           the first two recursions alone
//   limit MIB      the same where so much address space may be added (RLIMIT_AS), and an exception from that deep
//   rest           the same, then the memory that the process has after half a second, in MiB
//   count          all of it, with numbers that differ each time
//   wait           the first two; waits for a line at the bottom of each, and for one between them
//   again SECONDS  the first again and again
// Prints what it has counted.
#include "../calllog.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

static long frames = 5000000, number;
static const char *mode = "";
static sigjmp_buf out;
static volatile long deepest, ticks, caught;
static char *stack;
static size_t stack_bytes;

static void wait_for_line(const char *said)
{
    if (strcmp(mode, "wait") != 0) return;
    printf("%s\n", said);
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

// xor: a sum would let gcc make a loop of it
TRACED static long f_deep(long n)
{
    if (n == 0) { wait_for_line("bottom"); return 1; }
    long r = f_deep(n - 1);
    return r ^ n;
}
TRACED static void f_leaf(void) { deepest++; }
TRACED static void f_after(void) { for (int i = 0; i < 7; i++) f_leaf(); }
TRACED static long f_jumper(long n)
{
    if (n == 0) siglongjmp(out, 1);
    long r = f_jumper(n - 1);
    return r ^ n;
}
TRACED static long f_thrower(long n)
{
    if (n == 0) throw 7L;
    long r = f_thrower(n - 1);
    return r ^ n;
}
TRACED static void f_catch(void)
{
    // It takes a hundred times as long to unwind a frame as to make one.
    try { f_thrower((strcmp(mode, "limit") == 0 ? frames : frames / 8) - 1); } catch (long n) { caught += n; }
}
TRACED static long f_below(long n)
{
    if (n == 0) return 1;
    long r = f_below(n - 1);
    return r ^ n;
}
TRACED static void f_tick(int) { ticks++; f_leaf(); }
TRACED static void f_deep_handler(int) { printf("%ld in a handler\n", f_below(frames / 5 - 1)); }
TRACED static long f_ticked(long n)
{
    if (n == 0) { raise(SIGUSR1); return 1; }
    long r = f_ticked(n - 1);
    return r ^ n;
}
TRACED static long f_endless(long n)
{
    volatile char room[200]; // two million frames are enough
    room[0] = 0;
    deepest = n;
    long r = f_endless(n + 1);
    return r ^ n ^ room[0];
}
TRACED static void f_handler(int) { f_leaf(); siglongjmp(out, 1); }

TRACED static void f_overflow(void)
{
    if (sigsetjmp(out, 1) == 0) f_endless(1);
    long calls = deepest - 1;
    if (strcmp(mode, "count") == 0) printf("%ld calls of f_endless\n", calls);
    else printf("%ld,000 calls of f_endless\n", calls / 1000);
    f_after();
}

static void handle(int sig, void (*handler)(int), int flags)
{
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    if (sigaction(sig, &action, NULL) != 0) exit(1);
}

// From here on only so much more may be mapped.
static void limit(long mebibytes)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL || fscanf(statm, "%ld", &pages) != 1) exit(1);
    fclose(statm);
    struct rlimit as = {(rlim_t)((pages << 12) + (mebibytes << 20)), RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &as) != 0) exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Without what the stack has needed.
static void rest(void)
{
    char *here = (char *)((uintptr_t)__builtin_frame_address(0) & ~4095) - 65536;
    if (madvise(stack + 4096, here - (stack + 4096), MADV_DONTNEED) != 0) exit(1);
    double end = now() + 0.5;
    while (now() < end) f_leaf();
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) exit(1);
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "RssAnon:", 8) == 0) printf("%ld MiB\n", atol(line + 8) >> 10);
    fclose(status);
}

static void with_signals(void)
{
    handle(SIGALRM, f_tick, SA_RESTART);
    handle(SIGUSR1, f_deep_handler, 0);
    struct itimerval each = {{0, 1000}, {0, 1000}}, none = {};
    setitimer(ITIMER_REAL, &each, NULL);
    printf("%ld\n", f_ticked(2 * frames / 5 - 1));
    setitimer(ITIMER_REAL, &none, NULL);
    if (strcmp(mode, "count") == 0) printf("%ld ticks\n", ticks);
}

static long deep_result(void)
{
    long r = 1;
    for (long n = 1; n < frames; n++) r ^= n;
    return r;
}

static void *run(void *)
{
    if (strcmp(mode, "limit") == 0) limit(number);
    if (strcmp(mode, "again") == 0) {
        double end = now() + number;
        while (now() < end) if (f_deep(frames - 1) != deep_result()) exit(1);
        puts("again: ok");
        return NULL;
    }
    printf("%ld\n", f_deep(frames - 1));
    wait_for_line("top");
    f_after();
    printf("%ld\n", f_deep(frames - 1));
    if (strcmp(mode, "rest") == 0) rest();
    if (strcmp(mode, "limit") == 0) f_catch();
    if (*mode != 0 && strcmp(mode, "count") != 0) return NULL;
    if (sigsetjmp(out, 1) == 0) f_jumper(frames / 2 - 1);
    f_after();
    f_catch();
    printf("%ld caught\n", caught);
    with_signals();
    static char alternate[65536];
    stack_t other = {};
    other.ss_sp = alternate;
    other.ss_size = sizeof alternate;
    if (sigaltstack(&other, NULL) != 0) return NULL;
    handle(SIGSEGV, f_handler, SA_ONSTACK);
    f_overflow();
    f_overflow();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1) frames = atol(argv[1]);
    if (argc > 2) mode = argv[2];
    if (argc > 3) number = atol(argv[3]);
    stack_bytes = (size_t)frames * 96 + (32 << 20);
    stack = (char *)mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    // The lowest page is no stack: the overflow ends there.
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0 || pthread_attr_setstack(&attributes, stack, stack_bytes) != 0) return 1;
    // The timer's signals are the thread's.
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    if (pthread_create(&thread, &attributes, run, NULL) != 0) return 1;
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_join(thread, NULL);
    return 0;
}
