// A thread on a 16 KiB stack with a guard page below, a signal handler on an 8 KiB alternate stack inside it: a tracer
// that uses the program's stack must fit. Says whether at least 4 KiB of the thread's stack were never touched.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define TRACED __attribute__((noinline, noclone, noipa))

enum { SIZE = 16384, GUARD = 4096 };
static char *area;
TRACED static int f_deeper(int n) { char pad[32]; memset(pad, n, sizeof pad); return n == 0 ? pad[3] : f_deeper(n - 1) + pad[7]; }
TRACED static void f_handler(int s) { (void)s; f_deeper(10); }
TRACED static void *f_thread(void *arg)
{
    static char alt_memory[8192];
    stack_t alt = {.ss_sp = alt_memory, .ss_size = sizeof alt_memory};
    sigaltstack(&alt, NULL);
    raise(SIGUSR1);
    return (char *)arg + f_deeper(20);
}

TRACED static int f_first(int n) { return n + 1; }
TRACED static int f_second(int n) { return f_first(n) + 1; }
TRACED static void *f_shallow(void *arg)
{
    char *frame = __builtin_frame_address(0), *lowest = area + GUARD;
    int sum = f_second((int)(long)arg);
    while (lowest < frame && *lowest == 0x5a) lowest++;
    return (void *)(long)(frame - lowest <= 2048 ? sum : -1);
}

int main(void)
{
    area = mmap(NULL, GUARD + SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area, GUARD, PROT_NONE);
    struct sigaction a = {.sa_handler = f_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &a, NULL);
    for (int round = -1; round < 5; round++) {
        memset(area + GUARD, 0x5a, SIZE);
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        int error = pthread_attr_setstack(&attr, area + GUARD, SIZE);
        pthread_t id;
        void *result;
        error |= pthread_create(&id, &attr, round < 0 ? f_shallow : f_thread, NULL);
        pthread_join(id, &result);
        int untouched = 0;
        while (untouched < SIZE && area[GUARD + untouched] == 0x5a) untouched++;
        printf("round %d error %d result %ld room %s\n", round, error, (long)result, untouched >= 4096 ? "left" : "gone");
    }
    return 0;
}
