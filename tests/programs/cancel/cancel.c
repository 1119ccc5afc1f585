// pthread_exit and pthread_cancel with cleanup handlers (C): deferred at sleep, asynchronous in a loop, in a
// condition wait; thread-specific destructors; cancellation switched off for a while.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static pthread_key_t key;
static sem_t ready, cancelled;
TRACED static void f_cleanup(void *what) { printf("cleanup %s\n", (const char *)what); }
TRACED static void f_key_gone(void *what) { printf("key gone %s\n", (const char *)what); }
TRACED static void f_sleep(int depth)
{
    pthread_cleanup_push(f_cleanup, "sleep");
    if (depth > 0) f_sleep(depth - 1); else { sem_post(&ready); for (;;) sleep(100); }
    pthread_cleanup_pop(0);
}
TRACED static void f_exit(int depth)
{
    pthread_cleanup_push(f_cleanup, "exit");
    if (depth > 0) f_exit(depth - 1); else pthread_exit("value");
    pthread_cleanup_pop(0);
}
TRACED static long f_spin(long x) { return x * 3 + 1; }
TRACED static void *f_thread_sleep(void *a) { pthread_setspecific(key, a); f_sleep(4); return NULL; }
TRACED static void *f_thread_exit(void *a) { pthread_setspecific(key, a); sem_post(&ready); f_exit(4); return NULL; }
TRACED static void *f_thread_spin(void *a)
{
    volatile long x = 1;
    (void)a;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    sem_post(&ready);
    for (;;) x = f_spin(x);
    return NULL;
}
TRACED static void *f_thread_off(void *a)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_post(&ready);
    sem_wait(&cancelled);
    printf("still here\n");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    return a;
}

static void round_of(const char *name, void *(*start)(void *), int cancel)
{
    pthread_t id;
    void *result;
    pthread_create(&id, NULL, start, (void *)name);
    sem_wait(&ready);
    if (cancel) pthread_cancel(id);
    if (start == f_thread_off) sem_post(&cancelled);
    pthread_join(id, &result);
    printf("%s -> %s\n", name, result == PTHREAD_CANCELED ? "cancelled" : (const char *)result);
}

int main(void)
{
    pthread_key_create(&key, f_key_gone);
    sem_init(&ready, 0, 0);
    sem_init(&cancelled, 0, 0);
    for (int i = 0; i < 3; i++) {
        round_of("sleep", f_thread_sleep, 1);
        round_of("exit", f_thread_exit, 0);
        round_of("spin", f_thread_spin, 1);
        round_of("off", f_thread_off, 1);
    }
    return 0;
}
