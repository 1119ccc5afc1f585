// setjmp/longjmp in recursion: from depth 12 back to a chosen depth, then down again; also sigsetjmp and _longjmp.
// The log shows which frames were left without returning (`drop` lines), so open frames of a trace can be judged.
#include "../calllog.h"
#include <setjmp.h>
#include <stdlib.h>

enum { DEEPEST = 12 };
static jmp_buf marks[DEEPEST + 1];
static sigjmp_buf outer;
static int jumps;

TRACED static void f_jump(int to)
{
    ENTER();
    jumps++;
    longjmp(marks[to], to + 1);
}

TRACED static int f_descend(int depth, int target)
{
    ENTER();
    int mine = calllog_depth, r;
    int value = setjmp(marks[depth]);
    if (value != 0) {
        printf("drop to %d\n", mine);
        calllog_depth = mine;
        r = depth * 100;
    } else if (depth == DEEPEST) {
        f_jump(target);
        r = -1;
    } else {
        r = f_descend(depth + 1, target) + depth;
    }
    LEAVE();
    return r;
}

TRACED static void f_out(int n) { ENTER(); if (n == 0) siglongjmp(outer, 9); f_out(n - 1); LEAVE(); }

int main(int argc, char **argv)
{
    int first = argc > 1 ? atoi(argv[1]) : 0;
    int last = argc > 1 ? first : DEEPEST;
    for (int target = first; target <= last; target++)
        printf("target %d result %d\n", target, f_descend(0, target));
    for (int i = 0; i < 50; i++) {
        calllog_depth = 0;
        if (sigsetjmp(outer, 1) == 0) f_out(i % 5);
    }
    printf("jumps %d\n", jumps);
    return 0;
}
