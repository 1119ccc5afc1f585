// Makes a known number of calls of every kind and prints it: directly, through pointers to one function and to
// several in turn, by tail jumps, on threads, in fork children with and without a fork of their own, in a child that
// a signal kills, and in one that executes this program anew. Each line is `FUNCTION CALLS`, over all processes.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
enum { DIRECT = 40000, KEPT = 30000, TURNS = 9000, TAILS = 20000, THREADS = 4, ON_THREAD = 50000, IN_CHILD = 700, KILLED = 333 };

static volatile int sink;
NOINLINE void direct(int n) { sink = n; }
NOINLINE void kept(int n) { sink = n + 1; }
NOINLINE void turn_a(int n) { sink = n + 2; }
NOINLINE void turn_b(int n) { sink = n + 3; }
NOINLINE void turn_c(int n) { sink = n + 4; }
NOINLINE void tail_end(int n) { sink = n + 5; }
NOINLINE void tail(int n) { tail_end(n); }
NOINLINE void on_thread(int n) { sink = n + 6; }
NOINLINE void in_child(int n) { sink = n + 7; }
NOINLINE void in_grandchild(int n) { sink = n + 8; }
NOINLINE void before_kill(int n) { sink = n + 9; }
NOINLINE void executed(int n) { sink = n + 10; }
NOINLINE int recursive(int n) { return n == 0 ? 0 : 1 + recursive(n - 1) * (sink | 1); }

static void (*volatile pointer)(int) = kept;
static void (*const turns[])(int) = { turn_a, turn_b, turn_c };
static volatile int third = 3;

static void *thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < ON_THREAD; i++) on_thread(i);
    for (int i = 0; i < TURNS; i++) turns[i % third](i);
    return NULL;
}

static void wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child) abort();
}

static void children(const char *self)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < IN_CHILD; i++) in_child(i);
        pid_t inner = fork();
        if (inner == 0) {
            for (int i = 0; i < IN_CHILD; i++) in_grandchild(i);
            _exit(0);
        }
        wait_for(inner);
        _exit(0);
    }
    wait_for(child);
    child = fork();
    if (child == 0) {
        for (int i = 0; i < KILLED; i++) before_kill(i);
        kill(getpid(), SIGKILL);
    }
    wait_for(child);
    child = fork();
    if (child == 0) {
        execl(self, self, "executed", NULL);
        _exit(1);
    }
    wait_for(child);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "executed") == 0) {
        for (int i = 0; i < IN_CHILD; i++) executed(i);
        return 0;
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, NULL);
    for (int i = 0; i < DIRECT; i++) direct(i);
    for (int i = 0; i < KEPT; i++) pointer(i);
    for (int i = 0; i < TAILS; i++) tail(i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    recursive(99);
    children(argv[0]);
    printf("direct %d\nkept %d\ntail %d\ntail_end %d\nrecursive %d\n", DIRECT, KEPT, TAILS, TAILS, 100);
    printf("turn_a %d\nturn_b %d\nturn_c %d\n", THREADS * TURNS / 3, THREADS * TURNS / 3, THREADS * TURNS / 3);
    printf("on_thread %d\nin_child %d\nin_grandchild %d\nbefore_kill %d\nexecuted %d\n", THREADS * ON_THREAD, IN_CHILD, IN_CHILD, KILLED, IN_CHILD);
    return 0;
}
