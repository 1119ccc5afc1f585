// A starter of servers, and what starts programs in uncommon ways. The argument says which: `drop USER` becomes a daemon
// (two forks, a new session, no descriptors but the first three), changes to that user for good, and executes helpers; `hidden`
// may not be dumped, and executes `expr LINE + 1` for each line that it reads; `by FORM PROGRAM ARGUMENTS...` executes a program by
// fexecve, execveat, syscall (execve by syscall(3)), or raw (an instruction of its own).
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))
extern char **environ;

TRACED static int f_wait(pid_t pid) { int s; return waitpid(pid, &s, 0) == pid && WIFEXITED(s) ? WEXITSTATUS(s) : 99; }
TRACED static int f_spawn(char **argv)
{
    pid_t pid;
    return posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) ? 98 : f_wait(pid);
}
TRACED static int f_expr(const char *number)
{
    char *argv[] = { "expr", (char *)number, "+", "1", NULL };
    return f_spawn(argv);
}

TRACED static int f_drop(int user)
{
    if (fork()) return 0;
    setsid();
    if (fork()) _exit(0);
    for (int fd = 3; fd < 256; fd++) close(fd);
    chdir("/");
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) _exit(3);
    if (system("id -u; ls / >/dev/null")) _exit(4);
    if (f_expr("41")) _exit(5);
    execlp("printf", "printf", "as %s\\n", "ended", NULL);
    _exit(6);
}

TRACED static int f_hidden(void)
{
    char line[64];
    prctl(PR_SET_DUMPABLE, 0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        f_expr(line);
    }
    puts("end");
    return 0;
}

TRACED static void f_by(const char *form, char **argv)
{
    if (!strcmp(form, "fexecve")) fexecve(open(argv[0], O_PATH | O_CLOEXEC), argv, environ);
    if (!strcmp(form, "execveat")) syscall(SYS_execveat, AT_FDCWD, argv[0], argv, environ, 0);
    if (!strcmp(form, "syscall")) syscall(SYS_execve, argv[0], argv, environ);
    if (!strcmp(form, "raw")) {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "0"((long)SYS_execve), "D"(argv[0]), "S"(argv), "d"(environ) : "rcx", "r11", "memory");
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && !strcmp(argv[1], "drop")) return f_drop(atoi(argv[2]));
    if (argc == 2 && !strcmp(argv[1], "hidden")) return f_hidden();
    if (argc > 3 && !strcmp(argv[1], "by")) f_by(argv[2], argv + 3);
    return 7;
}
