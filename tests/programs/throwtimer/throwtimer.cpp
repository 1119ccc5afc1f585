// Throws through ten frames without a pause, while a timer of 1 kHz interrupts: its handler walks the stack up to main,
// and now and then jumps out (not while an exception is on its way: malloc may be at work then). Values in vector registers are carried across each throw
// and through the arguments of the first call after it. Prints sums and whether every one was right.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <execinfo.h>
#include <link.h>
#include <sys/time.h>
#include <ucontext.h>
#define TRACED __attribute__((noinline, noclone))

static sigjmp_buf out;
static volatile sig_atomic_t may_jump, ticks, walks, whole, sum;
extern "C" int main();
static char *main_start;

TRACED static int f_down(int n)
{
    if (n == 0) throw 7;
    int r = f_down(n - 1) + n;
    asm volatile("" : "+r"(r));
    return r;
}
TRACED static double f_vectors(double a, double b, double c, double d, double e, double f, double g, double h)
{
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
TRACED static int f_inner(int n) { return n < 2 ? n : f_inner(n - 1) + f_inner(n - 2); }

// The first call after the throw has all its arguments in vector registers.
TRACED static double f_once(double x)
{
    try { return f_down(9); }
    catch (...) { return f_vectors(x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7); }
}

// The unwinder's last instructions, which change the stack pointer, cannot be walked from.
static char *unwinder_start, *unwinder_end;
static int find_unwinder(dl_phdr_info *info, size_t, void *)
{
    if (!strstr(info->dlpi_name, "libgcc_s")) return 0;
    unwinder_start = (char *)info->dlpi_addr;
    unwinder_end = unwinder_start + (1 << 20);
    return 1;
}

static void handler(int, siginfo_t *, void *context)
{
    ticks = ticks + 1;
    int n = ticks;
    sum = sum + f_inner(n % 6);
    char *at = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (at >= unwinder_start && at < unwinder_end) return;
    void *frames[256];
    int depth = backtrace(frames, 256);
    walks = walks + 1;
    for (int i = 0; i < depth; i++)
        if ((char *)frames[i] >= main_start && (char *)frames[i] < main_start + 2048) { whole = whole + 1; break; }
    if (n % 64 == 0 && may_jump) siglongjmp(out, 1);
}

// Seconds.
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

extern "C" TRACED int main()
{
    main_start = (char *)main;
    void *warm[4];
    backtrace(warm, 4);
    dl_iterate_phdr(find_unwinder, nullptr);
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = handler;
    act.sa_flags = SA_RESTART | SA_SIGINFO;
    sigaction(SIGALRM, &act, nullptr);
    itimerval often{{0, 1000}, {0, 1000}}, never{};
    volatile int wrong = 0;
    double begin = now();
    setitimer(ITIMER_REAL, &often, nullptr);
    // At least two seconds; longer where there is hardly a processor.
    while (now() < begin + 2 || (ticks <= 100 && now() < begin + 60)) {
        for (volatile int i = 0; i < 500; i = i + 1) {
            double x = i;
            if (f_once(x) != 36 * x + 168) wrong = wrong + 1;
            // Jumped out of from anywhere: only here, where no exception is on its way.
            if (sigsetjmp(out, 1) == 0) { may_jump = 1; f_vectors(x, 1, 1, 1, 1, 1, 1, 1); may_jump = 0; }
            else may_jump = 0;
        }
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    printf("wrong %d, ticks %s\n", wrong, ticks > 100 ? "many" : "few");
    if (whole * 100.0 < walks * 97.0) printf("short stacks: %d of %d\n", walks - whole, walks);
    return wrong != 0;
}
