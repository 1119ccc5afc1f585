// `timed FILE COMMAND...` runs a command and writes to FILE its CPU time in nanoseconds (user + system, children that
// it waited for included). It stands between a tool and an unmodified program, so that the program's own CPU time is
// known apart from the tool's. Exit status: the command's.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    pid_t pid = fork();
    if (pid == 0) { execvp(argv[2], argv + 2); _exit(127); }
    int status;
    struct rusage u;
    if (wait4(pid, &status, 0, &u) != pid) return 125;
    FILE *f = fopen(argv[1], "w");
    if (!f) return 125;
    fprintf(f, "%lld\n", (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL);
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
