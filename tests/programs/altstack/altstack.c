// Handlers on alternate stacks: one above the interrupted stack, one far below it, and one of the smallest size. They
// return, or leave by siglongjmp; backtrace() in them must see through to main, and the calls around them nest as logged.
#include "../calllog.h"
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static sigjmp_buf out;
static volatile int walked, jump;
static int expected;

TRACED static int f_leaf(int n) { return n + 1; }
TRACED static int f_in_handler(int n) { return n == 0 ? f_leaf(n) : f_in_handler(n - 1) + f_leaf(n); }
TRACED static void f_handler(int sig)
{
    (void)sig;
    f_in_handler(2);
    if (walked == 0) { void *frames[64]; walked = backtrace(frames, 64); }
    f_leaf(1);
    if (jump) siglongjmp(out, 1);
}
TRACED static int f_raise(int n) { raise(SIGUSR1); return f_leaf(n); }
TRACED static int f_deep(int n) { return n == 0 ? f_raise(n) : f_deep(n - 1) + f_leaf(n); }
TRACED static int f_after(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += f_leaf(i); return sum; }

static void round_on(const char *name, void *stack, size_t bytes)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = bytes};
    if (stack == MAP_FAILED || sigaltstack(&alternate, NULL) != 0) { printf("%s: no stack\n", name); return; }
    walked = jump = 0;
    int sum = f_deep(3) + f_after(5);
    jump = 1;
    if (sigsetjmp(out, 1) == 0) f_deep(2);
    sum += f_after(5);
    if (expected == 0) expected = walked;
    printf("%s: sum %d depth %s\n", name, sum, walked >= 8 && walked == expected ? "whole" : "short");
}

int main(int argc, char **argv)
{
    (void)argc;
    void *first[4];
    backtrace(first, 4); // libgcc is loaded here, not in the handler
    struct sigaction action = {.sa_handler = f_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    round_on("below", malloc(65536), 65536);
    // Above the main stack, within a few megabytes.
    char *above = (char *)(((unsigned long)argv & ~0xfffUL) + (8 << 20));
    round_on("above", mmap(above, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536);
    static char small[8192];
    round_on("small", small, sizeof small);
    return 0;
}
