// Calls of functions of numbers, direct and through a pointer, while a timer's signals come one after the other: `signalled KIND N`
// makes N calls of each. What the handler does: nothing (plain; none: there are no signals), a walk of the stack (walk), calls of the same functions (call), a jump
// out of itself every fourth time (jump). Prints how many calls of each function came to their end, and whether all results were right.
#define _GNU_SOURCE
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define F __attribute__((noinline, noipa))

F int f_two(int a, int b) { return a + b; }
F double f_far(long a, double b) { return a + b; }
F long f_many(long a, long b, long c, long d, long e, long f, long g, long h) { return a + b + c + d + e + f + g + h; }
F int f_inner(int a, int b) { return a - b; }
static int (*volatile pointer)(int, int) = f_two;

static volatile sig_atomic_t may_jump, is_over;
static volatile long signals, inner, wrong;
static sigjmp_buf out;
static char kind;

/* One at a time, so that a slow handler does not keep the program from going on. */
static void next_signal(void)
{
    struct itimerval soon = {{0, 0}, {0, 5 + signals * 7 % 23}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void handler(int number)
{
    (void)number;
    signals++;
    if (kind == 'w') {
        void *frames[40];
        if (backtrace(frames, 40) < 3) wrong++;
    }
    if (kind == 'c') {
        inner++;
        if (f_inner(7, inner & 0xff) != 7 - (int)(inner & 0xff)) wrong++;
    }
    if (!is_over) next_signal();
    if (kind == 'j' && may_jump && signals % 4 == 0) siglongjmp(out, 1);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    kind = argv[1][0];
    long n = atol(argv[2]);
    void *frame[1];
    backtrace(frame, 1); /* loads the unwinder */
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    if (kind != 'n') next_signal();
    volatile long i = 0, jumps = 0;
    if (sigsetjmp(out, 1) != 0) jumps++, i++;
    for (; i < n; i++) {
        may_jump = 1;
        int a = (int)i;
        if (f_two(a, 2 * a) != 3 * a) wrong++;
        if (pointer(-1 - a, a) != -1) wrong++;
        if (f_far(i, 0.5) != i + 0.5) wrong++;
        if (f_many(i, 1, 2, 3, 4, 5, 6, -i) != 21) wrong++;
        may_jump = 0;
    }
    /* None comes after the numbers are printed. */
    is_over = 1;
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%ld calls, %ld within the handler, %s\n", n, inner, wrong ? "WRONG" : "right");
    fprintf(stderr, "%ld signals, %ld jumps\n", signals, jumps);
    return 0;
}
