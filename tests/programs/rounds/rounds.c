// usage: rounds
//
// Reads numbers from its input, a line each, and makes so many rounds of calls for each: direct ones, through a
// pointer, by a tail jump, recursive, and from inside of the C library; half of them on a second thread. Says after
// each number how often each function has been called so far, in one line, so that who records it meanwhile knows what
// was to be seen. In between both threads wait, inside of calls.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { DIRECT, POINTED, TAILED, DEEP, COMPARED, ROUND, KINDS };
static const char *const names[KINDS] = {"direct", "pointed", "tailed", "deep", "compared", "one_round"};
static _Atomic unsigned long calls[KINDS];
#define COUNT(kind) do { atomic_fetch_add_explicit(&calls[kind], 1, memory_order_relaxed); asm volatile("" ::: "memory"); } while (0)

NOINLINE static int direct(int x) { COUNT(DIRECT); return x + 1; }
NOINLINE static int pointed(int x) { COUNT(POINTED); return x + 2; }
NOINLINE static int tailed(int x) { COUNT(TAILED); return x + 3; }
NOINLINE static int to_tailed(int x) { return tailed(x + 1); }
NOINLINE static int deep(int x)
{
    COUNT(DEEP);
    int below = x <= 0 ? 0 : deep(x - 1);
    asm volatile("" : "+r"(below)); // no loop is made of it
    return below + x;
}
NOINLINE static int compared(const void *a, const void *b) { COUNT(COMPARED); return *(const int *)a - *(const int *)b; }
static int (*volatile pointer)(int) = pointed;

NOINLINE static int one_round(int sum)
{
    COUNT(ROUND);
    int numbers[3] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compared);
    for (volatile int i = 0; i < 4; i++) sum = direct(sum);
    sum = pointer(sum);
    sum = to_tailed(sum);
    return sum + deep(5) + numbers[0];
}

NOINLINE static void rounds(long count)
{
    volatile int sum = 0;
    for (long i = 0; i < count; i++) sum = one_round(sum);
}

static int orders[2], answers[2];

static void *second(void *unused)
{
    for (long count; read(orders[0], &count, sizeof count) == sizeof count;) {
        rounds(count);
        if (write(answers[1], &count, sizeof count) != sizeof count) break;
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pipe(orders) || pipe(answers) || pthread_create(&thread, NULL, second, NULL)) return 2;
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        long count = atol(line) / 2;
        if (write(orders[1], &count, sizeof count) != sizeof count) return 3;
        rounds(count);
        if (read(answers[0], &count, sizeof count) != sizeof count) return 4;
        for (int kind = 0; kind < KINDS; kind++) printf("%s=%lu ", names[kind], (unsigned long)calls[kind]);
        printf("\n");
        fflush(stdout);
    }
    close(orders[1]);
    pthread_join(thread, NULL);
    return 0;
}
