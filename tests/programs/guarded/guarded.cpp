// Takes a page of its own stack away (mprotect), once for reading and once for writing, while the stack is walked and while
// an exception is thrown below it; as libunwind's test of its checks of memory does. What is walked ends before that page.
#include "../calllog.h"
#include <execinfo.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile int caught;
static char *page;

static void may(int protection) { if (mprotect(page, 4096, protection) != 0) exit(1); }

TRACED static int f_walk(void)
{
    void *addresses[2];
    may(PROT_NONE);
    int n = backtrace(addresses, 2);
    may(PROT_READ | PROT_WRITE);
    return n;
}

TRACED static void f_throw(int protection)
{
    may(protection);
    try { throw 1; } catch (int n) { caught += n; }
    may(PROT_READ | PROT_WRITE);
}

TRACED static int f_down(int n)
{
    volatile char room[1024]; // frames on the page, above it and below it
    room[0] = n;
    int r = n ? f_down(n - 1) : f_walk();
    if (n < 2) f_throw(n ? PROT_READ : PROT_NONE);
    return r + room[0] - n;
}

TRACED static int f_start(void)
{
    char here[8192];
    page = (char *)((uintptr_t)here & ~4095ul) - 4096;
    return f_down(12);
}

int main()
{
    void *addresses[2];
    backtrace(addresses, 2); // loads the unwinder
    int walked = 0;
    for (int i = 0; i < 3; i++) walked += f_start();
    f_throw(PROT_READ | PROT_WRITE);
    printf("%d walked, %d caught\n", walked, caught);
}
