/* Changes who it is, and prints each change as the kernel shows it afterwards. With an argument: as somebody else it executes a
   program that is marked set-user-id, which prints who it is. Static, so that a guest needs no library. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *what) {
    char line[256];
    printf("%s %d %d %d %d", what, getuid(), geteuid(), getgid(), getegid());
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "CapEff:", 7)) printf(" %s", strtok(line + 8, "\n"));
    if (status) fclose(status);
    printf("\n");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "shown")) {
        show("executed");
        return 0;
    }
    if (count > 1) {
        if (setgid(1000) || setuid(1000)) return 1;
        show("dropped");
        execl("/suid", "suid", "shown", (char *)0);
        return 1;
    }
    if (setegid(100) || seteuid(1000)) return 1;
    show("effective");
    if (seteuid(0)) return 1;
    show("back");
    if (setgid(1000) || setuid(1000)) return 1;
    show("dropped");
    if (setuid(0) == 0) return 1;
    if (unshare(CLONE_NEWUSER)) return 1;
    show("namespace");
    if (fork() == 0) _exit(0);
    wait(0);
    return 0;
}
