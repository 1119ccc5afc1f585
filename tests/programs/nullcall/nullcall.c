// Calls through a null pointer, which fault and are left by siglongjmp: enough of them that some meet the end of a chunk.
#include "../calllog.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf out;

static void on_fault(int signal) { (void)signal; siglongjmp(out, 1); }

TRACED static int f_one(void) { __asm__ volatile(""); return 1; }

int main(void)
{
    int (*volatile target)(void) = 0;
    volatile int sum = 0;
    signal(SIGSEGV, on_fault);
    for (volatile int i = 0; i < 5000; i++) {
        if (sigsetjmp(out, 1) == 0) target();
        else sum += f_one();
    }
    printf("sum %d\n", sum);
    return 0;
}
