// A program that closes every descriptor (also those it does not own, as daemons do), goes on calling new functions,
// opens files that must get the lowest numbers, forks, and at the end closes 0, 1 and 2.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static int f_before(int x) { return x + 1; }
TRACED static int f_after(int x) { return x * 2; }
TRACED static int f_after_fork(int x) { return x + 40; }

int main(void)
{
    int x = f_before(1);
    int open_ones = 0;
    for (int fd = 3; fd < 4096; fd++) if (close(fd) == 0) open_ones++;
    x = f_after(x);
    int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_WRONLY);
    printf("closed %d, then got %d %d, x %d\n", open_ones, a, b, x);
    fflush(stdout);
    close_range(3, ~0u, 0);
    pid_t pid = fork();
    if (pid == 0) _exit(f_after_fork(x));
    int status;
    waitpid(pid, &status, 0);
    printf("child %d, dup %d\n", WEXITSTATUS(status), dup(0));
    fflush(stdout);
    close(0); close(1); close(2);
    for (int i = 0; i < 1000; i++) x = f_after(x) & 1023;
    _exit(f_before(x) & 127);
}
