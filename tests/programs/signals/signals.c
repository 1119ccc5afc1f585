// Signal handling of a program that uses all of it: handlers of SIGSEGV and SIGTRAP of its own (int3, single steps, a
// fault that the handler repairs or skips), handlers that interrupt handlers on two stacks, sigwait in a thread,
// signalfd, realtime signals with values in order, SA_NODEFER recursion, SA_RESETHAND, SA_RESTART and EINTR, sigsuspend,
// masks after siglongjmp, sender and fault address in siginfo, and timers at 4 kHz on all calls. Prints no time.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static long f_leaf(long x) { return x * 3 + 1; }
TRACED static long f_nest(int n, long x) { return n == 0 ? f_leaf(x) : f_nest(n - 1, x + 1) ^ f_leaf(n); }
static void handle(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = f;
    a.sa_flags = SA_SIGINFO | flags;
    sigaction(sig, &a, NULL);
}

// --- faults and traps
static volatile int traps, steps, faults;
static char *volatile page;
TRACED static void on_trap(int sig, siginfo_t *info, void *context)
{
    (void)context;
    f_leaf(sig + info->si_code);
    if (info->si_code == TRAP_TRACE) steps++; else traps++;
}
TRACED static void on_fault(int sig, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    faults++;
    f_nest(3, sig);
    if ((char *)info->si_addr >= page && (char *)info->si_addr < page + 4096) mprotect(page, 4096, PROT_READ | PROT_WRITE);
    else { u->uc_mcontext.gregs[REG_RAX] = f_leaf(5); u->uc_mcontext.gregs[REG_RIP] = u->uc_mcontext.gregs[REG_RBX]; }
}
TRACED static long f_skip(void)
{
    long value;
    __asm__ volatile("lea 1f(%%rip), %%rbx\n mov 0x10, %%eax\n1:" : "=a"(value) : : "rbx", "memory");
    return value;
}
TRACED static long f_int3(long x) { __asm__ volatile("int3"); return f_leaf(x); }
// Single steps over calls that are known: the number of steps is the tracer's business, that all end well is ours.
TRACED static long f_stepped(long x)
{
    __asm__ volatile("subq $128, %%rsp\n pushfq\n orl $0x100, (%%rsp)\n popfq\n nop\n addq $128, %%rsp" ::: "memory", "cc");
    x = f_leaf(x) + f_nest(2, x);
    __asm__ volatile("subq $128, %%rsp\n pushfq\n andl $~0x100, (%%rsp)\n popfq\n addq $128, %%rsp" ::: "memory", "cc");
    return x;
}
TRACED static void f_faults(void)
{
    handle(SIGTRAP, on_trap, 0);
    handle(SIGSEGV, on_fault, 0);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) {
        mprotect(page, 4096, PROT_NONE);
        page[i]++;
        printf("fault %d skip %ld int3 %ld\n", faults, f_skip(), f_int3(i));
    }
    long r = f_stepped(3), s = f_stepped(3);
    printf("traps %d, stepped %ld %ld %s\n", traps, r, s, steps > 20 ? "steps" : "no steps");
}

// --- nesting
static volatile int depth, deepest;
static char log_text[400];
static void log_add(int c) { size_t n = strlen(log_text); if (n + 1 < sizeof log_text) log_text[n] = (char)c; }
TRACED static void on_inner(int sig, siginfo_t *info, void *context) { (void)info; (void)context; log_add('('); f_nest(2, sig); log_add(')'); }
TRACED static void on_outer(int sig, siginfo_t *info, void *context)
{
    (void)info; (void)context;
    log_add('[');
    f_nest(1, sig);
    raise(SIGUSR2);
    f_nest(4, sig);
    raise(SIGRTMIN);
    log_add(']');
}
TRACED static void on_again(int sig, siginfo_t *info, void *context)
{
    (void)info; (void)context;
    if (++depth > deepest) deepest = depth;
    f_leaf(depth);
    if (depth < 12) raise(sig);
    f_leaf(depth);
    depth--;
}
TRACED static void f_nesting(void)
{
    static char stack[32768];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    for (int i = 0; i < 4; i++) {
        handle(SIGUSR1, on_outer, i & 1 ? SA_ONSTACK : 0);
        handle(SIGUSR2, on_inner, i & 2 ? SA_ONSTACK : 0);
        handle(SIGRTMIN, on_inner, SA_ONSTACK);
        raise(SIGUSR1);
        f_nest(3, i);
    }
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    handle(SIGUSR1, on_again, SA_NODEFER);
    raise(SIGUSR1);
    handle(SIGUSR1, on_inner, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    printf("%s deepest %d reset %d\n", log_text, deepest, now.sa_handler == SIG_DFL);
}

// --- waiting
static volatile long values;
TRACED static void on_value(int sig, siginfo_t *info, void *context) { (void)sig; (void)context; values = values * 10 + info->si_value.sival_int; f_leaf(values); }
TRACED static void *f_waiter(void *arg)
{
    sigset_t *set = arg;
    long sum = 0;
    for (int i = 0, sig; i < 20; i++) { sigwait(set, &sig); sum = f_nest(2, sum) % 1000 + sig; }
    return (void *)sum;
}
TRACED static void f_waiting(void)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    pthread_t id;
    void *result;
    pthread_create(&id, NULL, f_waiter, &set);
    for (int i = 0; i < 20; i++) { union sigval v = {.sival_int = i}; pthread_sigqueue(id, SIGRTMIN + 1, v); f_leaf(i); }
    pthread_join(id, &result);
    int fd = signalfd(-1, &set, 0);
    struct signalfd_siginfo read_one;
    raise(SIGUSR2);
    ssize_t n = read(fd, &read_one, sizeof read_one);
    close(fd);
    printf("sigwait %ld signalfd %d %d\n", (long)result, n == sizeof read_one, read_one.ssi_signo == SIGUSR2);
    handle(SIGRTMIN + 1, on_value, 0);
    for (int i = 1; i < 8; i++) { union sigval v = {.sival_int = i}; sigqueue(getpid(), SIGRTMIN + 1, v); }
    f_nest(3, 1);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    printf("in order %ld\n", values);
    handle(SIGALRM, on_inner, 0);
    int pipes[2];
    char c;
    if (pipe(pipes)) exit(1);
    ualarm(20000, 0);
    n = read(pipes[0], &c, 1);
    int e = errno;
    handle(SIGALRM, on_inner, SA_RESTART);
    pid_t child = fork();
    if (child == 0) { usleep(60000); _exit(write(pipes[1], "x", 1) != 1); }
    ualarm(20000, 0);
    ssize_t m = read(pipes[0], &c, 1);
    waitpid(child, NULL, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    ualarm(1000, 0);
    usleep(5000);
    sigsuspend(&old);
    printf("read %d %s, then %d, sigsuspend %s\n", (int)n, strerror(e), (int)m, strerror(errno));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
static sigjmp_buf out;
TRACED static void on_jump(int sig, siginfo_t *info, void *context) { (void)info; (void)context; f_leaf(sig); siglongjmp(out, sig); }
TRACED static void f_jumping(void)
{
    handle(SIGUSR1, on_jump, 0);
    volatile int sum = 0;
    for (volatile int i = 0; i < 200; i++) {
        int sig = sigsetjmp(out, 1);
        if (sig == 0) { f_nest(i % 7, i); raise(SIGUSR1); sum = -1; }
        sum += sig;
    }
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    printf("jumped %d blocked %d\n", sum, sigismember(&now, SIGUSR1));
}

// --- timers on everything, every quarter of a millisecond
static volatile long ticks, ticked;
TRACED static void on_tick(int sig, siginfo_t *info, void *context) { (void)info; (void)context; int e = errno; ticked += f_nest(3, sig) & 1; ticks++; errno = e; }
TRACED static long f_new_1(long x) { return f_leaf(x) + 1; }
TRACED static long f_new_2(long x) { return f_new_1(x) + f_nest(1, x); }
TRACED static void *f_working(void *arg)
{
    long x = (long)arg;
    for (int i = 0; i < 150000; i++) x = (f_nest(i & 7, x) + f_new_2(x)) & 0xffffff;
    char text[64];
    snprintf(text, sizeof text, "%.3f %ld", (double)x / 7, x);
    return (void *)(x + (long)strlen(text));
}
static timer_t timer;
TRACED static void f_timers(void)
{
    handle(SIGPROF, on_tick, SA_RESTART);
    handle(SIGRTMIN + 2, on_tick, SA_RESTART);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, NULL);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN + 2;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 250000}, {0, 250000}};
    timer_settime(timer, 0, &often, NULL);
    pthread_t ids[3];
    long sum = 0;
    for (long i = 0; i < 3; i++) pthread_create(&ids[i], NULL, f_working, (void *)i);
    sum += (long)f_working((void *)9);
    for (long x = 1; ticks <= 20;) x = f_new_2(x) & 0xffff; // however fast the machine or busy
    for (int i = 0; i < 3; i++) { void *r; pthread_join(ids[i], &r); sum += (long)r; }
    memset(&often, 0, sizeof often);
    timer_settime(timer, 0, &often, NULL);
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_PROF, &every, NULL);
    printf("timers: sum %ld\n", sum);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    f_faults();
    f_nesting();
    f_waiting();
    f_jumping();
    f_timers();
    signal(SIGSEGV, SIG_DFL);
    f_nest(3, 1);
    page = NULL;
    page[16] = 1;
    return 0;
}
