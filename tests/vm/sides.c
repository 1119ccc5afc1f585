/* What tests/merged.py looks at in guests. Static, so that a guest needs no library.

   sides                   system calls, each in a function of its own, between two readings of the time stamp counter, which are
                           printed at the end: FUNCTION CALL BEFORE AFTER.
   sides frames            a frame of work every 10 ms, 60 of them; which of them ended late is printed.
   sides disturb           takes the processor for 25 ms every 93 ms, by SCHED_FIFO, until it is killed.
   sides work              a read of /dev/zero every 5 ms, until it is killed.
   sides hang PATH         opens a FIFO that nobody writes to.
   sides spawn             executes `sides nothing` by vfork(2) and by posix_spawn(3), three times each, and waits for its end.
   sides nothing           spins for 20 ms. */
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { ROUNDS = 40, FRAMES = 60, FRAME_NS = 10000000 };
#define ALONE __attribute__((noinline, noclone))

static const char *functions[6 * ROUNDS], *names[6 * ROUNDS];
static unsigned long long before[6 * ROUNDS], after[6 * ROUNDS];
static int calls;
static int zero, null, ends[2];
static char buffer[64];

ALONE void f_getppid(void) { syscall(SYS_getppid); }
ALONE void f_read_zero(void) { (void)!read(zero, buffer, sizeof buffer); }
ALONE void f_write_null(void) { (void)!write(null, buffer, sizeof buffer); }
ALONE void f_write_pipe(void) { (void)!write(ends[1], buffer, 1); }
ALONE void f_read_pipe(void) { (void)!read(ends[0], buffer, 1); }
ALONE void f_getxattr(void) { (void)!getxattr("/", "user.none", buffer, sizeof buffer); }

#define BETWEEN(function, name)                                                                                                \
    do {                                                                                                                       \
        functions[calls] = #function;                                                                                          \
        names[calls] = name;                                                                                                   \
        before[calls] = __rdtsc();                                                                                             \
        function();                                                                                                            \
        after[calls++] = __rdtsc();                                                                                            \
    } while (0)

static void brackets(void) {
    zero = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_WRONLY);
    (void)!pipe(ends);
    for (int i = 0; i < ROUNDS; i++) {
        BETWEEN(f_getppid, "getppid");
        BETWEEN(f_read_zero, "read");
        BETWEEN(f_write_null, "write");
        BETWEEN(f_write_pipe, "write");
        BETWEEN(f_read_pipe, "read");
        BETWEEN(f_getxattr, "getxattr");
    }
    for (int i = 0; i < calls; i++) printf("%s %s %llu %llu\n", functions[i], names[i], before[i], after[i]);
}

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void until_ns(long long ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void spin_ns(long long ns) {
    for (long long end = now_ns() + ns; now_ns() < end;) {}
}

/* How far f_decode counts. */
static int steps = 100000;

/* Counts, so that it takes longer if the processor is somebody else's meanwhile. */
ALONE void f_decode(volatile int *sum) {
    for (int i = 0; i < steps; i++) *sum += i;
}

/* As many steps as take two fifths of a frame on this machine, when nobody else has the processor. */
static void calibrate(volatile int *sum) {
    long long least_ns = FRAME_NS;
    for (int i = 0; i < 20; i++) {
        long long begun_ns = now_ns();
        f_decode(sum);
        long long ns = now_ns() - begun_ns;
        if (ns < least_ns) least_ns = ns;
    }
    steps = (int)(steps * (FRAME_NS * 2LL / 5) / (least_ns > 0 ? least_ns : 1));
}

ALONE void f_frame(int number, long long due_ns, volatile int *sum) {
    f_decode(sum);
    long long late_ns = now_ns() - due_ns - FRAME_NS;
    if (late_ns > 0) printf("frame %d: %lld us late\n", number, late_ns / 1000);
}

static void frames(void) {
    volatile int sum = 0;
    calibrate(&sum);
    for (int i = 0; i < FRAMES; i++) {
        long long due_ns = (now_ns() / FRAME_NS + 1) * FRAME_NS;
        until_ns(due_ns);
        f_frame(i, due_ns, &sum);
    }
}

static void disturb(void) {
    struct sched_param param = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &param)) perror("sched_setscheduler");
    for (;;) {
        until_ns(now_ns() + 68000000);
        spin_ns(25000000);
    }
}

static void work(void) {
    zero = open("/dev/zero", O_RDONLY);
    for (;;) {
        f_read_zero();
        until_ns(now_ns() + 5000000);
    }
}

ALONE void f_hang(const char *path) { (void)!open(path, O_RDONLY); }

static char *const nothing[] = {"/sides", "nothing", NULL};

/* The parent stands still until the child has executed a program. */
ALONE void f_execute(void) {
    volatile int sum = 0;
    f_decode(&sum);
    execv(nothing[0], nothing);
    _exit(1);
}

ALONE pid_t f_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) f_execute();
    return pid;
}

ALONE pid_t f_posix_spawn(void) {
    pid_t pid = -1;
    posix_spawn(&pid, nothing[0], NULL, NULL, nothing, NULL);
    return pid;
}

ALONE void f_await(pid_t pid) {
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || status) printf("a child failed: %x\n", status);
}

static void spawn(void) {
    for (int i = 0; i < 3; i++) {
        f_await(f_vfork());
        f_await(f_posix_spawn());
    }
}

int main(int argc, char **argv) {
    if (argc < 2) brackets();
    else if (!strcmp(argv[1], "frames")) frames();
    else if (!strcmp(argv[1], "disturb")) disturb();
    else if (!strcmp(argv[1], "work")) work();
    else if (!strcmp(argv[1], "spawn")) spawn();
    else if (!strcmp(argv[1], "nothing")) spin_ns(20000000);
    else if (!strcmp(argv[1], "hang") && argc > 2) f_hang(argv[2]);
    else return 2;
    return 0;
}
