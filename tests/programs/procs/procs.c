// New processes: fork, nested fork, vfork + exec, posix_spawn, a chain of execs, fork from a thread, fork with
// threads running, a child killed by a signal, system() and popen(). Each child does calls of its own and reports.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

extern char **environ;
static const char *self;
TRACED static long f_step(long x) { return x * 5 + 3; }
TRACED static int f_work(int n) { long x = 1; for (int i = 0; i < n; i++) x = f_step(x); return (int)(x & 63); }

TRACED static int f_wait(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TRACED static void f_fork(void)
{
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            pid_t inner = fork();
            if (inner == 0) _exit(f_work(100 + i));
            exit(f_wait(inner) ^ 1);
        }
        dprintf(1, "fork %d -> %d (here %d)\n", i, f_wait(pid), f_work(i));
    }
}

TRACED static void f_vfork(void)
{
    for (volatile int i = 0; i < 5; i++) {
        char n[16];
        snprintf(n, sizeof n, "%d", i);
        pid_t pid = vfork();
        if (pid == 0) { execl(self, "procs", "work", n, (char *)NULL); _exit(99); }
        dprintf(1, "vfork %d -> %d\n", i, f_wait(pid));
        pid = vfork();
        if (pid == 0) { execl("/nonexistent/program", "x", (char *)NULL); _exit(98); }
        dprintf(1, "vfork failing -> %d\n", f_wait(pid));
    }
}

TRACED static void f_spawn(void)
{
    for (int i = 0; i < 5; i++) {
        char n[16];
        snprintf(n, sizeof n, "%d", i + 10);
        char *args[] = {"procs", "work", n, NULL};
        pid_t pid;
        int error = posix_spawn(&pid, self, NULL, NULL, args, environ);
        dprintf(1, "spawn %d -> %d %d\n", i, error, error ? 0 : f_wait(pid));
    }
    pid_t pid;
    char *args[] = {"x", NULL};
    dprintf(1, "spawn failing -> %d\n", posix_spawn(&pid, "/nonexistent/program", NULL, NULL, args, environ));
}

TRACED static void f_chain(int left)
{
    char n[16];
    snprintf(n, sizeof n, "%d", left - 1);
    dprintf(1, "chain %d\n", left);
    f_work(left);
    if (left == 0) _exit(42);
    execl(self, "procs", "chain", n, (char *)NULL);
    _exit(97);
}

TRACED static void *f_forking_thread(void *arg)
{
    pid_t pid = fork();
    if (pid == 0) _exit(f_work((int)(long)arg + 7));
    return (void *)(long)f_wait(pid);
}

static volatile int stop;
TRACED static void *f_busy(void *arg) { long x = 1; while (!stop) x = f_step(x); return (char *)arg + (x & 0); }

TRACED static void f_threads(void)
{
    pthread_t ids[4];
    long sum = 0;
    for (long i = 0; i < 4; i++) pthread_create(&ids[i], NULL, f_forking_thread, (void *)i);
    for (int i = 0; i < 4; i++) { void *r; pthread_join(ids[i], &r); sum += (long)r; }
    dprintf(1, "fork from threads %ld\n", sum);
    for (long i = 0; i < 2; i++) pthread_create(&ids[i], NULL, f_busy, NULL);
    for (int i = 0; i < 10; i++) { pid_t pid = fork(); if (pid == 0) _exit(f_work(i)); sum += f_wait(pid); }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(ids[i], NULL);
    dprintf(1, "fork beside threads %ld\n", sum);
}

int main(int argc, char **argv)
{
    self = "/proc/self/exe";
    if (argc > 2 && strcmp(argv[1], "work") == 0) { dprintf(1, "work %s\n", argv[2]); return f_work(atoi(argv[2])); }
    if (argc > 2 && strcmp(argv[1], "chain") == 0) f_chain(atoi(argv[2]));
    f_fork();
    f_vfork();
    f_spawn();
    f_threads();
    pid_t pid = fork();
    if (pid == 0) f_chain(5);
    dprintf(1, "chain -> %d\n", f_wait(pid));
    pid = fork();
    if (pid == 0) { f_work(3); raise(SIGKILL); }
    dprintf(1, "killed -> %d\n", f_wait(pid));
    dprintf(1, "system -> %d\n", system("echo from the shell; exit 3") >> 8);
    FILE *pipe = popen("echo one; echo two", "r");
    char line[64];
    while (fgets(line, sizeof line, pipe)) dprintf(1, "popen %s", line);
    dprintf(1, "pclose -> %d\n", pclose(pipe) >> 8);
    f_chain(3);
}
