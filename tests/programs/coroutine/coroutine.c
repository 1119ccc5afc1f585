// swapcontext ping-pong between three coroutines that switch inside nested calls; the last one never returns.
#include "../calllog.h"
#include <stdlib.h>
#include <ucontext.h>

enum { STACK = 65536 };
static ucontext_t scheduler, contexts[3];
static int finished[3];

TRACED static void f_yield(int id) { swapcontext(&contexts[id], &scheduler); }
TRACED static void f_inner(int id, int n) { if (n > 0) f_inner(id, n - 1); else { printf("coroutine %d\n", id); f_yield(id); } }
TRACED static void f_body(int id, int rounds)
{
    for (int i = 0; i < rounds; i++) f_inner(id, i % 4);
    finished[id] = 1;
    if (id == 2) f_yield(id);
    printf("end %d\n", id);
}

int main(void)
{
    for (int id = 0; id < 3; id++) {
        getcontext(&contexts[id]);
        contexts[id].uc_stack.ss_sp = malloc(STACK);
        contexts[id].uc_stack.ss_size = STACK;
        contexts[id].uc_link = &scheduler;
        makecontext(&contexts[id], (void (*)(void))f_body, 2, id, 10 + 5 * id);
    }
    int switches = 0;
    while (!(finished[0] && finished[1] && finished[2]))
        for (int id = 0; id < 3; id++)
            if (!finished[id]) { swapcontext(&scheduler, &contexts[id]); switches++; }
    printf("switches %d\n", switches);
    return 0;
}
