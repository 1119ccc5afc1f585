// 300 threads that are all alive at once: each waits until all have been started, then throws through several frames,
// again and again; more threads than the first free chunks of a recording.
#include <pthread.h>
#include <cstdio>
#include <stdexcept>
#define TRACED __attribute__((noinline, noclone, noipa))

enum { THREADS = 300, ROUNDS = 20 };
static pthread_barrier_t barrier;
struct Guard { long *count; explicit Guard(long *c) : count(c) {} ~Guard() { ++*count; } };

TRACED static long f_throw(long n) { if (n == 0) throw std::runtime_error("bottom"); return n; }
TRACED static long f_nest(long n, long *destroyed) { Guard guard(destroyed); return n == 0 ? f_throw(0) : f_nest(n - 1, destroyed) + 1; }

static void *f_thread(void *arg)
{
    long caught = 0, destroyed = 0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++)
        try { f_nest(i % 7, &destroyed); } catch (const std::runtime_error &) { caught++; }
    return reinterpret_cast<void *>(caught * 1000 + destroyed + reinterpret_cast<long>(arg) * 0);
}

int main()
{
    pthread_t ids[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&barrier, nullptr, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], &attributes, f_thread, reinterpret_cast<void *>(i)) != 0) { std::puts("cannot start"); return 1; }
    long sum = 0;
    for (pthread_t id : ids) { void *result; pthread_join(id, &result); sum += reinterpret_cast<long>(result); }
    std::printf("threads %d sum %ld\n", THREADS, sum);
    return 0;
}
