// A process that is forked inside functions that were called once: the child goes on in them, and it has called none
// of them. Before, others were called through pointers just as deep, which a child must not take for what is open.
//
// Prints what the functions return, in the child and then in the parent.
#include "../calllog.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int sink;

TRACED int f_leaf(int n) {
    sink += n;
    return sink;
}

static int (*volatile leaf)(int) = f_leaf;

TRACED int f_pointer(int n) {
    return leaf(n) + 1;
}

static int (*volatile pointer)(int) = f_pointer;

TRACED int f_inner(void) {
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child > 0 && waitpid(child, NULL, 0) != child) exit(1);
    return f_leaf(child == 0 ? 10 : 20);
}

TRACED int f_outer(int n) {
    int got = f_inner();
    return got + n;
}

int main(void) {
    printf("before %d\n", pointer(1) + pointer(2));
    fflush(stdout);
    printf("after %d\n", f_outer(3));
    return 0;
}
