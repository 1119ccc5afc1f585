// A thread unmaps a page and maps it again at the same place, all the time, as programs do that want memory at a multiple
// of something: nobody but they themselves maps anything meanwhile, so the place stays free. Beside it functions are called
// that were never called before, each in a page of its own. Prints what they gave, and how often the place was taken.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FOUR(F, n) F(n##0) F(n##1) F(n##2) F(n##3)
#define SIXTEEN(F, n) FOUR(F, n##0) FOUR(F, n##1) FOUR(F, n##2) FOUR(F, n##3)
#define ALL(F) SIXTEEN(F, 10) SIXTEEN(F, 11) SIXTEEN(F, 12) SIXTEEN(F, 13) SIXTEEN(F, 20) SIXTEEN(F, 21) SIXTEEN(F, 22) SIXTEEN(F, 23)
__attribute__((noinline, noclone)) static int inner(int x) { asm volatile("" : "+r"(x)); return x + 1; }
#define FUNCTION(n) __attribute__((noinline, noclone, aligned(4096))) static int function##n(int x) { return inner(x) * 3 + n % 7; }
ALL(FUNCTION)
#define NAME(n) function##n,
static int (*const volatile functions[])(int) = {ALL(NAME)};
enum { FUNCTIONS = sizeof functions / sizeof *functions, PAGE = 4096 };

static char *place;
static atomic_int is_over, is_begun;
static void *claims(void *taken)
{
    while (!is_over) {
        munmap(place, PAGE);
        void *again = mmap(place, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (again == MAP_FAILED) {
            ++*(int *)taken;
            mmap(place, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        memset(place, 0xcc, PAGE);
        is_begun = 1;
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int taken = 0;
    unsigned sum = 0;
    place = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED || pthread_create(&thread, NULL, claims, &taken)) return 2;
    while (!is_begun) {}
    for (int i = 0; i < FUNCTIONS; i++) sum = sum * 5 + functions[i](i);
    is_over = 1;
    pthread_join(thread, NULL);
    printf("%u, taken %d times\n", sum, taken);
    return 0;
}
