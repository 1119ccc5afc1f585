// Signals delivered to handlers of every kind: by signal(2) and with a siginfo_t, sent, queued, by
// a timer, of a child, of a bad address, one inside of another, on a stack of its own, in a
// thread, in the middle of a system call that fails or is begun again, once only, and to an empty
// function. Prints for each how often it has run.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t plain, informed, queued, alarms, children, faults, outer, inner, once, threads;
static int tube[2];
static sigjmp_buf again;

static void on_plain(int signal) { (void)signal; plain++; }

static void on_informed(int signal, siginfo_t *info, void *context) {
    (void)context;
    informed += signal == info->si_signo;
}

static void on_queued(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    queued += info->si_value.sival_int;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    if (write(tube[1], "x", 1) != 1) _exit(9);
}

static void on_child(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    children += info->si_status;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults += info->si_addr == (void *)16;
    siglongjmp(again, 1);
}

static void on_inner(int signal) { (void)signal; inner++; }

static void on_outer(int signal) {
    (void)signal;
    outer++;
    raise(SIGWINCH);
}

static void on_once(int signal) { (void)signal; once++; }

static void on_thread(int signal) { (void)signal; threads++; }

static void on_nothing(int signal) { (void)signal; }

/* A table that the compiler fills: no instruction makes this address. */
static struct { int signal; void (*handler)(int); } const table[] = {{SIGWINCH, on_inner}, {SIGTERM, on_once}};

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void handle_info(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

static void tick(void) {
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* The signal is let in while it waits, and at no other moment. */
static void *waits(void *unused) {
    sigset_t none;
    sigemptyset(&none);
    while (!threads) sigsuspend(&none);
    return unused;
}

int main(void) {
    char byte;
    pthread_t thread;
    signal(SIGUSR1, on_plain);
    kill(getpid(), SIGUSR1);
    raise(SIGUSR1);
    handle_info(SIGUSR2, on_informed, 0);
    kill(getpid(), SIGUSR2);
    handle_info(SIGRTMIN + 3, on_queued, 0);
    sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 7});
    if (pipe(tube) != 0) return 1;
    handle(SIGALRM, on_alarm, 0);
    tick();
    int failed = pause() == -1 && errno == EINTR;
    if (read(tube[0], &byte, 1) != 1) return 2;
    /* Begun again: the handler writes what it waits for. */
    handle(SIGALRM, on_alarm, SA_RESTART);
    tick();
    if (read(tube[0], &byte, 1) != 1) return 3;
    handle_info(SIGCHLD, on_child, SA_RESTART);
    if (fork() == 0) _exit(5);
    while (wait(NULL) == -1) {}
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    handle_info(SIGSEGV, on_fault, SA_ONSTACK);
    int *volatile nowhere = (int *)16;
    if (sigsetjmp(again, 1) == 0) *nowhere = 1;
    for (unsigned i = 0; i < 2; i++) handle(table[i].signal, table[i].handler, i == 1 ? (int)SA_RESETHAND : 0);
    handle(SIGURG, on_outer, SA_ONSTACK);
    raise(SIGURG);
    raise(SIGTERM);
    handle(SIGHUP, on_nothing, 0);
    raise(SIGHUP);
    handle(SIGIO, on_thread, 0);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGIO);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_create(&thread, NULL, waits, NULL);
    while (!threads) {
        pthread_kill(thread, SIGIO);
        usleep(20000);
    }
    pthread_join(thread, NULL);
    printf("plain %d informed %d queued %d alarms %d failed %d children %d faults %d outer %d inner %d once %d thread %d\n", plain, informed, queued,
           alarms, failed, children, faults, outer, inner, once, threads > 0);
    return 0;
}
