// Fork children whose parents are no longer what they were when the child shows its first event.
//
// What a child is made of, only its parent's past tells: the parent has ended, or executed another program, or is itself a child
// of which nothing was seen yet. Children that execute something at once are gone before anybody looks. Between fork and that
// first event a child makes no call: the system calls stand in the function itself. f_child is called in each child.
#include "../calllog.h"
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int sink;

TRACED static void f_leaf(int n) { sink += n; }
TRACED static void f_child(void) {
    for (int i = 0; i < 9; i++) f_leaf(i);
}

static inline __attribute__((always_inline)) long system_call(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(0L), "r"(0L) : "rcx", "r11", "memory");
    return result;
}

/* No call, no event: the parent has been something else for a while then. */
static inline __attribute__((always_inline)) void wait_here(void) {
    struct timespec half = {0, 400000000};
    system_call(SYS_nanosleep, (long)&half, 0);
}

/* A parent that is gone, or another program, when its child begins. */
TRACED static void f_left(char **argv, int executes) {
    pid_t parent = fork();
    if (parent != 0) {
        waitpid(parent, NULL, 0);
        return;
    }
    f_child();
    long child = system_call(SYS_fork, 0, 0);
    if (child != 0) {
        char *nothing[] = {argv[0], "nothing", NULL};
        if (executes) execv(argv[0], nothing);
        _exit(0);
    }
    wait_here();
    f_child();
    _exit(0);
}

/* Children of children, and none of them there for long. */
TRACED static void f_chain(char **argv, int length) {
    pid_t child = fork();
    if (child == 0) {
        f_child();
        if (length > 1) f_chain(argv, length - 1);
        char *nothing[] = {argv[0], "nothing", NULL};
        execv(argv[0], nothing);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) return strcmp(argv[1], "nothing") != 0;
    f_left(argv, 0);
    f_left(argv, 1);
    for (int i = 0; i < 20; i++) f_chain(argv, 4);
    wait_here();
    wait_here();
    printf("%d calls of f_child\n", 2 * 2 + 20 * 4);
    return 0;
}
