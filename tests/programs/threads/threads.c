// Threads: start and end; all calling the same function for the first time at once (barrier); 16 threads x rounds with
// checked sums; mutex and condition hand-over; thread-local data; a detached thread; exit() from a second thread.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

enum { THREADS = 16 };
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static long total, next_turn, rounds = 20000;
static __thread long own;

#define FIRST(n) TRACED static long f_first_##n(long x) { return x * n + 1; }
FIRST(0) FIRST(1) FIRST(2) FIRST(3) FIRST(4) FIRST(5) FIRST(6) FIRST(7)
static long (*const firsts[8])(long) = {f_first_0, f_first_1, f_first_2, f_first_3, f_first_4, f_first_5, f_first_6, f_first_7};

TRACED static long f_step(long x) { own += x & 7; return x * 6364136223846793005L + 1442695040888963407L; }
TRACED static void *f_empty(void *arg) { return (char *)arg + 1; }

TRACED static void *f_at_once(void *arg)
{
    long sum = 0;
    for (int i = 0; i < 8; i++) {
        pthread_barrier_wait(&barrier);
        sum += firsts[i](i);
    }
    (void)arg;
    return (void *)sum;
}

TRACED static void *f_rounds(void *arg)
{
    long x = (long)arg;
    for (long i = 0; i < rounds; i++) x = f_step(x);
    pthread_mutex_lock(&lock);
    total += own;
    pthread_mutex_unlock(&lock);
    return (void *)x;
}

TRACED static void *f_turns(void *arg)
{
    long mine = (long)arg;
    for (long i = mine; i < 400; i += 4) {
        pthread_mutex_lock(&lock);
        while (next_turn != i) pthread_cond_wait(&turn, &lock);
        next_turn++;
        pthread_cond_broadcast(&turn);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

TRACED static void *f_leave(void *arg) { (void)arg; printf("leaving from a thread\n"); fflush(stdout); exit(23); }

static long run(int count, void *(*start)(void *))
{
    pthread_t ids[THREADS];
    long sum = 0;
    for (long i = 0; i < count; i++)
        if (pthread_create(&ids[i], NULL, start, (void *)i) != 0) { perror("pthread_create"); exit(1); }
    for (int i = 0; i < count; i++) { void *r; pthread_join(ids[i], &r); sum += (long)r; }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc > 1) rounds = atol(argv[1]);
    pthread_barrier_init(&barrier, NULL, THREADS);
    printf("at once %ld\n", run(THREADS, f_at_once));
    long ends = 0;
    for (int i = 0; i < 20; i++) ends += run(8, f_empty);
    printf("ends %ld\n", ends);
    printf("rounds %lx\n", run(THREADS, f_rounds));
    printf("total %ld\n", total);
    run(4, f_turns);
    printf("turns %ld\n", next_turn);
    pthread_t id;
    pthread_create(&id, NULL, f_leave, NULL);
    pthread_detach(id);
    for (;;) pause();
}
