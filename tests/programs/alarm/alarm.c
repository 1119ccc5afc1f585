// Signals at system calls: SIGALRM without SA_RESTART makes read() fail with EINTR; sigsuspend, sigwaitinfo, a pending
// blocked signal, nested handlers, a handler on its own stack, SIGCHLD; ends by SIGTERM's default action.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static volatile sig_atomic_t alarms, inner, on_stack, children;
static char *stack;
TRACED static int f_in_handler(int x) { return x + 1; }
TRACED static void f_alarm(int s) { (void)s; alarms = f_in_handler(alarms); }
TRACED static void f_usr2(int s) { (void)s; inner = f_in_handler(inner); }
TRACED static void f_usr1(int s) { (void)s; raise(SIGUSR2); inner = f_in_handler(inner); }
TRACED static void f_on_stack(int s) { char here; (void)s; on_stack = &here >= stack && &here < stack + 16384; }
TRACED static void f_child(int s) { int saved = errno; (void)s; while (waitpid(-1, NULL, WNOHANG) > 0) children = f_in_handler(children); errno = saved; }

static void handle(int sig, void (*f)(int), int flags)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = f;
    a.sa_flags = flags;
    sigaction(sig, &a, NULL);
}

int main(void)
{
    int fds[2];
    char byte;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(fds) != 0) return 1;
    handle(SIGALRM, f_alarm, 0);
    for (int i = 0; i < 3; i++) {
        struct itimerval once = {{0, 0}, {0, 20000}};
        setitimer(ITIMER_REAL, &once, NULL);
        ssize_t n = read(fds[0], &byte, 1);
        printf("read %zd %s\n", n, n < 0 ? strerror(errno) : "");
    }
    printf("alarms %d\n", (int)alarms);
    handle(SIGUSR1, f_usr1, 0);
    handle(SIGUSR2, f_usr2, 0);
    for (int i = 0; i < 10; i++) raise(SIGUSR1);
    printf("inner %d\n", (int)inner);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    printf("blocked %d\n", (int)inner);
    int r = sigsuspend(&old);
    printf("suspended %d %s, inner %d\n", r, strerror(errno), (int)inner);
    raise(SIGALRM);
    siginfo_t info;
    printf("waited %d\n", sigwaitinfo(&set, &info));
    sigprocmask(SIG_SETMASK, &old, NULL);
    stack = malloc(16384);
    stack_t alt = {.ss_sp = stack, .ss_size = 16384};
    sigaltstack(&alt, NULL);
    handle(SIGRTMIN, f_on_stack, SA_ONSTACK);
    raise(SIGRTMIN);
    printf("on own stack %d\n", (int)on_stack);
    handle(SIGCHLD, f_child, SA_RESTART);
    for (int i = 0; i < 5; i++) if (fork() == 0) _exit(f_in_handler(i));
    while (children < 5) usleep(1000);
    printf("children %d\n", (int)children);
    raise(SIGTERM);
    return 0;
}
