// Restrictions a program puts on itself; argument: `seccomp` (strict mode: only read, write, exit), `filter` (a
// filter that kills on unusual calls), `tsc` (rdtsc faults), `rlimit` (address space), `chroot`-less `nofile` 3,
// `mdwe` (Linux 6.3: what has been writable cannot become executable), `mdwe-exec` (a program that inherits that).
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static int f_known(int x) { return x + 1; }
TRACED static int f_new_inside(int x) { return x * 2; }
TRACED static int f_new_inside_2(int x) { return f_new_inside(x) + f_known(x); }

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "tsc";
    int x = f_known(1);
    dprintf(1, "before %s\n", mode);
    if (strcmp(mode, "seccomp") == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 1;
    } else if (strcmp(mode, "filter") == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 1;
    } else if (strcmp(mode, "tsc") == 0) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    } else if (strcmp(mode, "rlimit") == 0) {
        struct rlimit limit = {256 << 20, 256 << 20};
        setrlimit(RLIMIT_AS, &limit);
    } else if (strcmp(mode, "nofile") == 0) {
        struct rlimit limit = {3, 3};
        setrlimit(RLIMIT_NOFILE, &limit);
    } else if (strncmp(mode, "mdwe", 4) == 0) {
        const int SET_MDWE = 65, GET_MDWE = 66;
        if (prctl(GET_MDWE, 0, 0, 0, 0) == 0) {
            prctl(SET_MDWE, 1, 0, 0, 0);
            if (strcmp(mode, "mdwe-exec") == 0) execv("/proc/self/exe", argv);
        }
    }
    for (int i = 0; i < 5; i++) x = f_new_inside_2(x) & 255;
    char text[] = "inside: x = ...\n";
    text[12] = (char)('0' + x / 100);
    text[13] = (char)('0' + x / 10 % 10);
    text[14] = (char)('0' + x % 10);
    if (write(1, text, sizeof text - 1) < 0) return 1;
    syscall(SYS_exit, 6);
}
