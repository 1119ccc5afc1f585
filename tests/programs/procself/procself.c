// What the program can see of a tracer: TracerPid, writable and executable mappings, its descriptors, signal mask,
// ignored and caught signals, environment variables, parent, working directory, command line. Looked at repeatedly
// while new functions are called.
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static int tracer_max, wx_max;
TRACED static void f_look(void)
{
    char line[4096];
    int wx = 0, pid;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f)) if (sscanf(line, "TracerPid: %d", &pid) == 1 && pid > tracer_max) tracer_max = pid;
    fclose(f);
    f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f)) { char *p = strchr(line, ' '); if (p && p[2] == 'w' && p[3] == 'x') wx++; }
    fclose(f);
    if (wx > wx_max) wx_max = wx;
}
#define STEP(n) TRACED static int f_new_##n(int x) { return x * n + 1; }
STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)
static int (*const steps[5])(int) = {f_new_1, f_new_2, f_new_3, f_new_4, f_new_5};

int main(int argc, char **argv, char **env)
{
    char line[4096];
    int x = 0, fds = 0, vars = 0;
    f_look();
    for (int i = 0; i < 5; i++) { x = steps[i](x); f_look(); usleep(20000); f_look(); }
    printf("TracerPid %s, w+x mappings %d, x %d\n", tracer_max ? "not 0" : "0", wx_max, x);
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) fds++;
    closedir(d);
    for (char **v = env; *v; v++) { vars++; if (strncmp(*v, "LD_", 3) == 0 || strstr(*v, "SPTRACE")) printf("variable %s\n", *v); }
    printf("descriptors %d, variables %d, arguments %d %s\n", fds, vars, argc, strrchr(argv[0], '/') ? "path" : argv[0]);
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "Sig", 3) == 0 || strncmp(line, "ShdPnd", 6) == 0 || strncmp(line, "Threads", 7) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 || strncmp(line, "Seccomp:", 8) == 0)
            if (strncmp(line, "SigQ", 4) != 0) fputs(line, stdout);
    fclose(f);
    return 0;
}
