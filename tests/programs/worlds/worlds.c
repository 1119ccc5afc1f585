// What programs do to their own process and its surroundings; the argument says which: `clone_vm`, `daemon`, `dumpable`,
// `namespaces`, `chroot`, `limits`, `brk`, `sampled`, `dropped` (own text, MADV_DONTNEED), `rewritten` (the rel32 of a call,
// `rewritten5` the whole instruction), `gs` (arch_prctl), `wrgsbase`,
// `exec` (all forms of it), `locked` (mlockall). Calls known and new functions before and after.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static long f_leaf(long x) { return x * 3 + 1; }
TRACED static long f_other(long x) { return x * 5 + 2; }
TRACED static long f_work(long n) { long x = n; for (int i = 0; i < 1000; i++) x = f_leaf(x) & 0xffff; return x; }
#define NEW(n) TRACED static long f_new_##n##_inner(long x) { return f_leaf(x) + n; } TRACED static long f_new_##n(long x) { return f_new_##n##_inner(x) ^ f_work(n); }
NEW(1) NEW(2) NEW(3) NEW(4)
TRACED static int f_wait(pid_t pid) { int s; if (waitpid(pid, &s, __WALL) != pid) return -errno; return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s); }

static volatile int go;
static _Atomic int done;
TRACED static int f_in_clone(void *arg)
{
    long x = (long)arg;
    while (!go) sched_yield();
    for (int i = 0; i < 400; i++) x = (f_work(x) + f_new_1(x)) & 0xff;
    done++;
    return (int)f_new_2(x) & 63;
}
static void clone_vm(void)
{
    for (int round = 0; round < 4; round++) {
        char *stack = malloc(1 << 18);
        go = round & 1;
        pid_t pid = clone(f_in_clone, stack + (1 << 18), CLONE_VM | SIGCHLD | (round & 1 ? CLONE_VFORK : 0), (void *)(long)round);
        go = 1;
        long x = round;
        for (int i = 0; i < 400; i++) x = (f_work(x) + f_new_3(x)) & 0xff;
        int status = f_wait(pid);
        printf("clone %d -> %d, here %ld, done %d\n", round, status, x, done);
    }
}
static void daemon_(void)
{
    int pipes[2];
    if (pipe(pipes)) exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork()) _exit((int)f_new_1(3) & 7);
        close(0); close(2);
        if (chdir("/")) _exit(1);
        umask(022);
        for (int fd = 3; fd < 64; fd++) if (fd != pipes[1]) close(fd);
        usleep(50000);
        dprintf(pipes[1], "daemon: orphan %s, %ld\n", getsid(0) != getpid() ? "yes" : "no", f_new_2(4));
        _exit((int)f_new_3(1));
    }
    close(pipes[1]);
    printf("first child %d\n", f_wait(pid));
    char text[100];
    for (ssize_t n; (n = read(pipes[0], text, sizeof text)) > 0;) printf("%.*s", (int)n, text);
    usleep(50000);
}
static void dumpable(void)
{
    printf("%d %ld\n", prctl(PR_SET_DUMPABLE, 0), f_new_1(1));
    pid_t pid = fork();
    if (pid == 0) { f_new_2(2); execl("/proc/self/exe", "worlds", "again", (char *)NULL); _exit((int)f_new_3(3) & 63); }
    printf("child %d %ld, dumpable %d\n", f_wait(pid), f_new_4(4), prctl(PR_GET_DUMPABLE));
    pid = fork();
    if (pid == 0) { f_new_2(2); execl("/bin/echo", "echo", "by", "exec", (char *)NULL); _exit(1); }
    printf("child %d\n", f_wait(pid));
}
static void namespaces(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        int e = unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
        printf("unshare %d, uid %d, %ld\n", e, (int)getuid(), f_new_1(1));
        fflush(stdout);
        pid_t inner = fork();
        if (inner == 0) {
            if (e == 0) printf("pid %d parent %d, ", (int)getpid(), (int)getppid());
            printf("%ld\n", f_new_2(2));
            fflush(stdout);
            pid_t last = fork();
            if (last == 0) { f_new_3(1); execl("/bin/sh", "sh", "-c", e == 0 ? "echo shell $$; exit 4" : "exit 4", (char *)NULL); _exit(9); }
            _exit(f_wait(last) + 1);
        }
        printf("inner %d %ld\n", f_wait(inner), f_new_4(1));
        fflush(stdout);
        _exit((int)f_work(9) & 63);
    }
    printf("child %d %ld\n", f_wait(pid), f_new_1(1));
}
static void chroot_(void)
{
    int status = unshare(CLONE_NEWUSER);
    printf("unshare %d chroot %d chdir %d, %ld\n", status, chroot("/usr/share"), chdir("/"), f_new_1(1));
    printf("proc %d exe %d, %ld\n", access("/proc", F_OK), access("/bin/sh", F_OK), f_new_2(2));
    pid_t pid = fork();
    if (pid == 0) { execl("/bin/sh", "sh", (char *)NULL); _exit((int)f_new_3(3) & 63); }
    printf("child %d\n", f_wait(pid));
}
static void limits(void)
{
    const int which[] = {RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_STACK, RLIMIT_SIGPENDING, RLIMIT_NOFILE};
    for (unsigned i = 0; i < sizeof which / sizeof *which; i++) {
        struct rlimit limit = {0, 0};
        if (which[i] == RLIMIT_STACK) limit.rlim_cur = limit.rlim_max = 256 << 10;
        if (which[i] == RLIMIT_DATA) limit.rlim_cur = limit.rlim_max = 16 << 20;
        if (which[i] == RLIMIT_NOFILE) limit.rlim_cur = limit.rlim_max = 3;
        if (which[i] == RLIMIT_FSIZE) limit.rlim_cur = limit.rlim_max = 64;
        printf("%d:%d ", which[i], setrlimit(which[i], &limit));
    }
    fflush(stdout);
    printf("%ld %ld\n", f_new_1(1), f_new_2(2));
    fflush(stdout);
    void *p = malloc(4 << 20), *q = malloc(32 << 20);
    printf("malloc %s %s, %ld\n", p ? "yes" : "no", q ? "yes" : "no", f_new_3(3));
    fflush(stdout);
    struct rlimit space = {1, 1};
    setrlimit(RLIMIT_AS, &space);
    q = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("mmap %s, %ld\n", q == MAP_FAILED ? "no" : "yes", f_new_4(4));
}
static void brk_(void)
{
    char *start = sbrk(0);
    int grown = 0;
    for (int i = 0; i < 256; i++) { char *p = sbrk(1 << 20); if (p == (void *)-1) break; memset(p, i, 4096); grown++; f_new_1(i); }
    printf("grown by %d MiB, in one piece %s, %ld\n", grown, (char *)sbrk(0) == start + ((long)grown << 20) ? "yes" : "no", f_new_2(1));
    printf("back %d\n", brk(start));
}
static struct { uintptr_t rip, rsp; } samples[4096];
static volatile int n_samples;
static void on_sample(int sig, siginfo_t *info, void *context)
{
    (void)sig; (void)info;
    ucontext_t *u = context;
    if (n_samples < 4096) { samples[n_samples].rip = (uintptr_t)u->uc_mcontext.gregs[REG_RIP]; samples[n_samples++].rsp = (uintptr_t)u->uc_mcontext.gregs[REG_RSP]; }
}
static void sampled(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_sample;
    a.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGPROF, &a, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &every, NULL);
    long x = 0;
    while (n_samples < 100) x += f_new_1(x & 3) + f_new_2(x & 7);
    setitimer(ITIMER_PROF, &never, NULL);
    int outside = 0, stackless = 0, threads = 0, tracer = 0;
    for (int i = 0; i < n_samples; i++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[4096];
        int in = 0, on = 0;
        while (fgets(line, sizeof line, maps)) {
            unsigned long from, to;
            char r, w, executable;
            if (sscanf(line, "%lx-%lx %c%c%c", &from, &to, &r, &w, &executable) != 5) continue;
            in |= samples[i].rip >= from && samples[i].rip < to && executable == 'x';
            on |= samples[i].rsp >= from && samples[i].rsp < to && strstr(line, "[stack]") != NULL;
        }
        fclose(maps);
        outside += !in;
        stackless += !on;
        if (i == 20) break;
    }
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, status)) { sscanf(line, "Threads: %d", &threads); sscanf(line, "TracerPid: %d", &tracer); }
    fclose(status);
    printf("samples outside of mappings %d, off the stack %d; threads %d, tracer %d\n", outside, stackless, threads, tracer);
}
static volatile int stop;
static void *f_other_thread(void *arg) { while (!stop) f_leaf(1); return arg; }
static void dropped(void)
{
    extern char __executable_start, etext;
    for (int threads = 0; threads < 2; threads++) {
        pthread_t id;
        if (threads) pthread_create(&id, NULL, f_other_thread, NULL);
        usleep(20000);
        long a = f_new_1(1), b = threads ? f_new_2(2) : f_new_3(2);
        for (int i = 0; i < 5; i++) {
            uintptr_t from = ((uintptr_t)&__executable_start) & ~4095UL, to = ((uintptr_t)&etext + 4095) & ~4095UL;
            int e = 0;
            for (uintptr_t page = ((uintptr_t)f_leaf & ~4095UL); page >= from && page < to; page += 4096) e |= madvise((void *)page, 4096, MADV_DONTNEED);
            printf("dropped %d: %ld %ld %ld\n", e, a, b, f_new_1(1) + f_new_4(i));
            fflush(stdout);
        }
        stop = 1;
        if (threads) pthread_join(id, NULL);
    }
}
// `site_call` calls f_leaf by an instruction whose address is known.
long site(long) __attribute__((visibility("hidden")));
extern char site_call[] __attribute__((visibility("hidden")));
long site_target(long x);
TRACED long site_target(long x) { return f_leaf(x); }
__asm__(".text\n .p2align 4\n .type site, @function\nsite:\n .cfi_startproc\n subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n .p2align 3\n nop\n nop\n nop\nsite_call:\n call site_target\n addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n .size site, .-site\n");
static void rewrite(const void *b, size_t offset, size_t n)
{
    uintptr_t page = (uintptr_t)site_call & ~4095UL;
    // Only its own page, and no call within it meanwhile but by pointers that are known.
    mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(site_call + offset, b, n);
    mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}
static void rewritten(int whole)
{
    printf("before %ld %ld\n", site(3), site(4));
    fflush(stdout);
    for (int i = 0; i < 4; i++) {
        int32_t distance = (int32_t)((i & 1 ? (char *)site_target : (char *)f_other) - (site_call + 5));
        unsigned char b[5] = {0xe8};
        memcpy(b + 1, &distance, 4);
        if (whole) rewrite(b, 0, 5); else rewrite(b + 1, 1, 4);
        printf("after %ld %ld\n", site(3), site(4));
        fflush(stdout);
    }
}
static uint64_t own_gs[64] = {7, 8, 9};
TRACED static uint64_t f_gs(void) { uint64_t v; __asm__ volatile("movq %%gs:8, %0" : "=r"(v)); return v; }
static void use_gs(void)
{
    for (int i = 0; i < 3; i++) { printf("gs %ld %ld\n", (long)f_gs(), f_new_1(i) + f_new_2(i)); fflush(stdout); own_gs[1]++; }
    pid_t pid = fork();
    if (pid == 0) _exit((int)f_gs() + (int)(f_new_3(1) & 1));
    printf("child %d, %ld %ld\n", f_wait(pid), f_new_4(1), (long)own_gs[0]);
}
static void gs(int by_instruction)
{
    f_work(1);
    uint64_t base = (uint64_t)own_gs, now = 0;
    if (by_instruction && getauxval(AT_HWCAP2) & 2) __asm__ volatile("wrgsbase %0" : : "r"(base));
    else syscall(SYS_arch_prctl, ARCH_SET_GS, base);
    syscall(SYS_arch_prctl, ARCH_GET_GS, &now);
    printf("set %s\n", now == base ? "yes" : "no");
    use_gs();
}
static void exec_(int n)
{
    char *args[] = {"worlds", "exec", NULL, NULL}, *env[] = {"A=B", NULL}, number[16];
    snprintf(number, sizeof number, "%d", n + 1);
    args[2] = number;
    printf("exec %d %ld %s\n", n, f_new_1(n), getenv("A") ? getenv("A") : "-");
    fflush(stdout);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (n == 0) fexecve(fd, args, env);
    if (n == 1) syscall(SYS_execveat, fd, "", args, env, AT_EMPTY_PATH);
    if (n == 2) syscall(SYS_execve, "/proc/self/exe", args, env);
    if (n == 3) { execve("/nonexistent", args, env); execve("/proc/self/exe", args, env); }
    if (n == 4) { pid_t pid = vfork(); if (pid == 0) { execve("/proc/self/exe", args, env); _exit(1); } printf("child %d\n", f_wait(pid)); }
    if (n == 5) { close(fd); close(0); execve("/proc/self/exe", args, env); }
    exit((int)f_new_2(n) & 31);
}
static void locked(void)
{
    int e = mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    printf("mlockall %d, %ld\n", e, f_new_1(1));
    pthread_t id;
    pthread_create(&id, NULL, f_other_thread, NULL);
    printf("%ld\n", f_new_2(1));
    stop = 1;
    pthread_join(id, NULL);
    printf("munlockall %d %ld\n", munlockall(), f_new_3(1));
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "brk";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    printf("%s %ld\n", mode, f_work(5));
    fflush(stdout);
#define MODE(name, call) if (strcmp(mode, name) == 0) call;
    MODE("clone_vm", clone_vm()) MODE("daemon", daemon_()) MODE("dumpable", dumpable()) MODE("namespaces", namespaces())
    MODE("chroot", chroot_()) MODE("limits", limits()) MODE("brk", brk_()) MODE("sampled", sampled()) MODE("dropped", dropped())
    MODE("rewritten", rewritten(0)) MODE("rewritten5", rewritten(1)) MODE("gs", gs(0)) MODE("wrgsbase", gs(1)) MODE("exec", exec_(n)) MODE("locked", locked())
    MODE("again", return (int)f_new_4(2) & 63)
    return (int)f_work(3) & 31;
}
