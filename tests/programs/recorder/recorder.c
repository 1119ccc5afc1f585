// What a flight recorder is for, by the first argument: a crash three calls deep, the same in a child process, one slow call
// among many, a program that waits, and one that waits for vfork children.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static volatile int sink;
static int *volatile nowhere;

TRACED static int f_leaf(int n) { return sink += n; }
TRACED static int f_inner(int n)
{
    f_leaf(n);
    if (n == 3000) *nowhere = 1;
    return f_leaf(n) + 1;
}
TRACED static int f_middle(int n) { return f_inner(n) + 1; }
TRACED static int f_outer(int n) { return f_middle(n) + 1; }
// With an endbr64 where calls are to be marked.
TRACED void f_doze(int ms);
TRACED void f_doze(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0) {}
}
TRACED static int f_work(int n)
{
    if (n == 25000) f_doze(60);
    return f_leaf(n);
}
TRACED static void f_mark(void) { sink++; }

static void crash(void) { for (int n = 1; n <= 5000; n++) sink += f_outer(n); }

TRACED static int f_parent(void)
{
    volatile int sum = 0;
    for (int n = 0; n < 6; n++) {
        int status = 0;
        pid_t child = vfork();
        if (child == 0) {
            f_doze(150);
            _exit(5);
        }
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    return sum;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "crash")) {
        crash();
    } else if (!strcmp(mode, "child")) {
        pid_t child = fork();
        if (child == 0) {
            f_doze(300);
            crash();
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("child ended by %d\n", WTERMSIG(status));
    } else if (!strcmp(mode, "slow")) {
        for (int n = 0; n < 50000; n++) sink += f_work(n);
        puts("done");
    } else if (!strcmp(mode, "wait")) {
        // So few events that its first buffer is never full.
        char byte;
        f_mark();
        puts("ready");
        fflush(stdout);
        while (read(0, &byte, 1) == 1) f_leaf(byte);
        puts("done");
    } else if (!strcmp(mode, "vfork")) {
        printf("children ended with %d\n", f_parent());
        f_doze(400);
    } else if (!strcmp(mode, "doze")) {
        for (int n = 0; n < 40; n++) {
            sink += f_outer(n);
            f_doze(50);
        }
        puts("done");
    } else {
        return 2;
    }
    return 0;
}
