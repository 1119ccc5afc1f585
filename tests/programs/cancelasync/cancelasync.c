// Threads that do nothing but short calls are cancelled in the midst of them (asynchronously): the cleanup handlers of each
// must run. The program registers no signal handler of its own.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#define TRACED __attribute__((noinline, noclone))
static int cleaned, outer;
static volatile int running;
TRACED static int f_leaf(int x) { __asm__ volatile("" : "+r"(x)); return x + 1; }
TRACED static int f_mid(int x) { int r = f_leaf(x) + f_leaf(x + 1); __asm__ volatile("" : "+r"(r)); return r; }
static void f_cleanup(void *arg) { ++*(int *)arg; }
TRACED static void f_loop(void)
{
    volatile int x = 0;
    pthread_cleanup_push(f_cleanup, &cleaned);
    running = 1;
    for (;;) x = f_mid(x) & 0xff;
    pthread_cleanup_pop(0);
}
static void *f_thread(void *arg)
{
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    pthread_cleanup_push(f_cleanup, &outer);
    f_loop();
    pthread_cleanup_pop(0);
    return arg;
}
int main(void)
{
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        running = 0;
        pthread_create(&thread, NULL, f_thread, NULL);
        while (!running) sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    printf("cleaned %d %d\n", cleaned, outer);
    return 0;
}
