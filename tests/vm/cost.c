// Writes a byte to /dev/null again and again, or calls a function of its own, and says what a call takes: ticks of the time stamp
// counter, which QEMU's -icount makes instructions. usage: cost CALLS [call]; prints the median over groups of 50 calls, and the
// mean of all.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <x86intrin.h>

enum { GROUP = 50, MOST = 10000 };
static unsigned long long groups[MOST];

static int order(const void *a, const void *b) {
    unsigned long long one = *(const unsigned long long *)a, other = *(const unsigned long long *)b;
    return (one > other) - (one < other);
}

__attribute__((noinline, noipa)) long f_two(long a, long b) { return a + b; }

// Inlined, since calls of it would be recorded.
static inline __attribute__((always_inline)) int make(int fd, int is_call, long n) { return is_call ? f_two(n, 1) == n + 1 : write(fd, "x", 1) == 1; }

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 20000;
    int count = calls / GROUP < MOST ? calls / GROUP : MOST;
    int is_call = argc > 2;
    int fd = open("/dev/null", O_WRONLY);
    if (fd < 0 || count < 1) return 1;
    for (int i = 0; i < 100; i++)
        if (!make(fd, is_call, i)) return 1;
    unsigned long long begun = __rdtsc(), last = begun;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < GROUP; j++)
            if (!make(fd, is_call, j)) return 1;
        unsigned long long now = __rdtsc();
        groups[i] = now - last;
        last = now;
    }
    qsort(groups, count, sizeof *groups, order);
    printf("cost %llu %llu\n", groups[count / 2] / GROUP, (last - begun) / GROUP / count);
    return 0;
}
