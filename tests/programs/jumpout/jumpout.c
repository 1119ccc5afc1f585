// A timer whose handler leaves by siglongjmp, wherever it has interrupted calls through a pointer.
#include "../calllog.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static sigjmp_buf out;
static volatile int jumps;

TRACED static int f_one(int x) { return x + 1; }
TRACED static int f_other(int x) { return x ^ 3; }
TRACED static void f_leave(void) { jumps++; siglongjmp(out, 1); }
static void on_alarm(int signal) { (void)signal; f_leave(); }

int main(void)
{
    int (*volatile targets[2])(int) = {f_one, f_other};
    volatile int x = 0;
    volatile unsigned n = 0;
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, on_alarm);
    sigsetjmp(out, 1);
    setitimer(ITIMER_REAL, &every, NULL);
    while (jumps < 5000) x = targets[n++ & 1](x);
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &never, NULL);
    puts("left 5000 times or more");
    return 0;
}
