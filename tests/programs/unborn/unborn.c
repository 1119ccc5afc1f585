// usage: unborn ROUNDS
//
// Functions are called directly, by a tail jump and through pointers; the process forks, by an instruction, and its child
// calls nothing while the parent calls them so often that they become hot. Then the child calls them, in the opposite
// order. Says how often each was called in both, a line each.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define FUNCTIONS(F) F(0) F(1) F(2) F(3) F(4) F(5)
enum { KINDS = 6 };
static struct { _Atomic unsigned long calls[2][KINDS]; atomic_int go; } *both; // shared with the child
static int which; // 0: the parent
#define COUNT(n) do { both->calls[which][n]++; asm volatile("" ::: "memory"); } while (0)
#define CALLED(n) NOINLINE static int called##n(int x) { COUNT(n); return x + n; }
FUNCTIONS(CALLED)
NOINLINE static int to_called2(int x) { return called2(x + 1); }
static int (*volatile pointer)(int) = called4;
static int (*volatile other)(int) = called5;

static int (*volatile one)(int) = called4;
#define ROUND(n) NOINLINE static int round##n(int x) { return n == 2 ? to_called2(x) : n == 4 ? pointer(x) : n == 5 ? other(x) : called##n(x); }
FUNCTIONS(ROUND)
#define NAME(n) round##n,
static int (*const volatile all[])(int) = {FUNCTIONS(NAME)};

NOINLINE static void rest(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
NOINLINE static int heat(int kind, long rounds)
{
    volatile int sum = 0;
    for (long i = 0; i < rounds; i++) sum = all[kind](sum);
    rest();
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    long rounds = atol(argv[1]);
    both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) return 3;
    for (int kind = 0; kind < KINDS; kind++) heat(kind, 3);
    int seen = one(1);
    long child;
    asm volatile("syscall" : "=a"(child) : "a"(SYS_fork) : "rcx", "r11", "memory");
    if (child == 0) {
        which = 1;
        while (!both->go) {}
        for (int part = 0; part < 40; part++)
            for (int kind = KINDS; kind-- > 0;) heat(kind, rounds / 40);
        exit(0);
    }
    for (int part = 0; part < 40; part++)
        for (int kind = 0; kind < KINDS; kind++) heat(kind, rounds / 40);
    both->go = 1;
    int status;
    if (waitpid(child, &status, 0) < 0 || status) return 4;
    for (int kind = 0; kind < KINDS; kind++) printf("called%d %lu %lu\n", kind, (unsigned long)both->calls[0][kind], (unsigned long)both->calls[1][kind]);
    return seen == 0;
}
