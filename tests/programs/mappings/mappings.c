// A program that uses nearly all the mappings that the kernel allows, calls functions on many pages while another
// thread is there, and needs 500 mappings more.
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#define TRACED __attribute__((noinline, noclone, noipa))
#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#define HUNDRED(X, n) TEN(X, n##0) TEN(X, n##1) TEN(X, n##2) TEN(X, n##3) TEN(X, n##4) \
                      TEN(X, n##5) TEN(X, n##6) TEN(X, n##7) TEN(X, n##8) TEN(X, n##9)
#define ALL(X) HUNDRED(X, 1) HUNDRED(X, 2) HUNDRED(X, 3) HUNDRED(X, 4) HUNDRED(X, 5) HUNDRED(X, 6)

enum { USUAL_LIMIT = 65530, LEFT = 1500, MORE = 500, PAGE = 4096 };

TRACED static long f_leaf(long n) { return n + 1; }
// Each on a page of its own, with one between two of them.
#define FUNCTION(n) TRACED __attribute__((aligned(2 * PAGE))) static long f_page_##n(long k) { return f_leaf(k) * 3 % 1000003 + n; }
ALL(FUNCTION)
#define NAME(n) f_page_##n,
static long (*const functions[])(long) = { ALL(NAME) };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static void *f_thread(void *arg) { pthread_mutex_lock(&gate); pthread_mutex_unlock(&gate); return arg; }

// Neighbours differ in protection, so each page is a mapping.
static long f_map(long count)
{
    char *at = mmap(NULL, (size_t)count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    for (long i = 1; i < count; i += 2)
        if (mprotect(at + i * PAGE, PAGE, PROT_READ) != 0) return i;
    return count;
}

int main(void)
{
    pthread_t thread;
    long sum = 0;
    pthread_mutex_lock(&gate);
    if (pthread_create(&thread, NULL, f_thread, NULL) != 0) return 1;
    printf("mapped %ld\n", f_map(USUAL_LIMIT - LEFT));
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) sum = functions[i](sum);
    printf("sum %ld\n", sum);
    printf("mapped %ld more\n", f_map(MORE));
    pthread_mutex_unlock(&gate);
    pthread_join(thread, NULL);
    return 0;
}
