// A program under a seccomp filter as others make one, by libseccomp. Argument: `docker` (what Docker's default profile
// permits to a container without capabilities; the rest fails with EPERM), `service` (the same, and above it filters as
// systemd makes them, one for each of its options), `mdwx` (code cannot be changed: MemoryDenyWriteExecute=), `kill` (what is
// not permitted ends the process, and mremap(2) is not). With further arguments that program is executed under the
// filter; else calls are made in it, in threads too, until standard input ends.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))
enum { CALLS = 470, NAMESPACES = 0x7e020000 };

static const char *const FORBIDDEN[] = {
    "acct", "add_key", "bpf", "chroot", "clock_settime", "clone", "clone3", "create_module", "delete_module", "fanotify_init", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "get_kernel_syms", "get_mempolicy", "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load",
    "kexec_load", "keyctl", "lookup_dcookie", "mbind", "migrate_pages", "mount", "mount_setattr", "move_mount", "move_pages", "nfsservctl",
    "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pidfd_getfd", "pivot_root", "process_madvise", "query_module", "quotactl",
    "quotactl_fd", "reboot", "request_key", "set_mempolicy", "set_mempolicy_home_node", "setdomainname", "sethostname", "setns", "settimeofday",
    "swapoff", "swapon", "sysfs", "syslog", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup"};

static void check(int result)
{
    if (result >= 0) return;
    fprintf(stderr, "libseccomp: %s\n", strerror(-result));
    exit(1);
}

static int is_forbidden(const char *name)
{
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof *FORBIDDEN; i++)
        if (strcmp(FORBIDDEN[i], name) == 0) return 1;
    return 0;
}

// Permits what is not forbidden; `also`: nor is this.
static void permit(uint32_t otherwise, const char *also)
{
    scmp_filter_ctx filter = seccomp_init(otherwise);
    for (int number = 0; number < CALLS; number++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number);
        if (name != NULL && !is_forbidden(name) && (also == NULL || strcmp(name, also) != 0))
            check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0));
        free(name);
    }
    check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACES, 0)));
    check(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0));
    check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_EQ, 0xffffffff)));
    check(seccomp_load(filter));
    seccomp_release(filter);
}

// Forbids a call with one of these bits in an argument.
static void forbid(int call, struct scmp_arg_cmp argument)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    check(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 1, argument));
    check(seccomp_load(filter));
    seccomp_release(filter);
}

TRACED static int f_leaf(int x) { return x * 3 + 1; }
TRACED static int f_within(int x) { return f_leaf(x) ^ f_leaf(x + 1); }

static void *work(void *argument)
{
    volatile int *end = argument;
    do {
        for (int i = 0; i < 100; i++) f_within(i);
        usleep(1000);
    } while (!*end);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *profile = argc > 1 ? argv[1] : "";
    if (strcmp(profile, "docker") == 0 || strcmp(profile, "service") == 0) permit(SCMP_ACT_ERRNO(EPERM), NULL);
    if (strcmp(profile, "service") == 0) {
        forbid(SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, 0x10000000, 0x10000000));
        forbid(SCMP_SYS(sched_setscheduler), SCMP_A1(SCMP_CMP_EQ, SCHED_FIFO));
    }
    if (strcmp(profile, "mdwx") == 0) forbid(SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC));
    if (strcmp(profile, "kill") == 0) permit(SCMP_ACT_KILL_PROCESS, "mremap");
    printf("within %s\n", profile);
    fflush(stdout);
    if (argc > 2) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        return 1;
    }
    volatile int end = 0;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)&end) != 0) return 1;
    while (getchar() != EOF) {}
    end = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("the sum is %d\n", f_within(7));
    return 4;
}
