// A fork child whose parent goes on to new functions while the child has not run yet: what the tracer learns in
// the parent after the fork must not be taken for known in the child.
//
// A jump that both have patched leads to a function that neither knows yet. The parent calls through a tail jump before the child does, then lets it go. Both print the sum.
#include "../calllog.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int sink;

TRACED int f_inner(int n) {
    sink += n;
    return sink;
}

TRACED int f_tail(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += f_inner(i);
    return sum;
}

TRACED int f_outer(int n) {
    sink = 0;
    if (n < 0) return 0;
    return f_tail(n + 1);
}

int main(void) {
    int go[2], done;
    char byte = 0;
    if (pipe(go) != 0) return 1;
    f_outer(-1);  // its jump is patched now, what it leads to is not
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);  // if the parent is killed, this process ends, too
        if (read(go[0], &byte, 1) != 1) _exit(1);
        printf("child %d\n", f_outer(9));
        fflush(stdout);
        _exit(0);
    }
    int sum = f_outer(9);
    if (write(go[1], &byte, 1) != 1) return 1;
    waitpid(child, &done, 0);
    printf("parent %d, child's status %d\n", sum, done);
    return 0;
}
