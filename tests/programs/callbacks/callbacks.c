// Callbacks out of libc: qsort (small: insertion in place, large: merge through malloc), bsearch, twalk, atexit-less
// obstack-free: what calls back is library code that the program did not compile.
#define _GNU_SOURCE
#include "../calllog.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>

static long compares;
TRACED static int f_compare(const void *a, const void *b)
{ compares++; int x = *(const int *)a, y = *(const int *)b; return (x > y) - (x < y); }
TRACED static int f_compare_r(const void *a, const void *b, void *count)
{ ++*(long *)count; return f_compare(a, b); }
TRACED static void f_visit(const void *node, VISIT which, int depth)
{ if (which == postorder || which == leaf) printf("node %d depth %d\n", **(int *const *)node, depth); }

int main(void)
{
    static int small[16], large[5000];
    unsigned seed = 12345;
    for (int i = 0; i < 16; i++) small[i] = (int)((seed = seed * 1103515245u + 12345u) >> 16);
    for (int i = 0; i < 5000; i++) large[i] = (int)((seed = seed * 1103515245u + 12345u) >> 16);
    qsort(small, 16, sizeof *small, f_compare);
    printf("small %ld compares, first %d last %d\n", compares, small[0], small[15]);
    qsort(large, 5000, sizeof *large, f_compare);
    printf("large %ld compares\n", compares);
    int *hit = bsearch(&large[777], large, 5000, sizeof *large, f_compare);
    printf("found %d after %ld\n", hit ? *hit == large[777] : -1, compares);
    long calls = 0;
    qsort_r(large, 5000, sizeof *large, f_compare_r, &calls);
    printf("again %ld\n", calls);
    void *root = NULL;
    for (int i = 0; i < 7; i++) tsearch(&small[i], &root, f_compare);
    twalk(root, f_visit);
    return 0;
}
