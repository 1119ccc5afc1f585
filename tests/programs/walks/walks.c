// Walks the stack by backtrace() and, where it is installed, by libunwind (loaded by name: no header is needed), from the
// bottom of a chain, twice in a row and with calls between the steps, and out of a signal handler. Prints the functions of
// this program that each walk finds. Between the walks the chain returns, so that their calls are told apart from frames
// that were unwound.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#define TRACED __attribute__((noinline, noclone))
#define KEEP(x) __asm__ volatile("" : "+r"(x))

static int (*get_context)(void *);
static int (*init_local)(void *, void *);
static int (*step)(void *);
static int (*get_register)(void *, int, unsigned long *);
static int (*unw_walk)(void **, int);

TRACED static int f_leaf(int x) { KEEP(x); return x + 1; }

TRACED static void f_show(const char *how, void *at)
{
    Dl_info info;
    // A return address may lie behind the last instruction of its function.
    if (dladdr((char *)at - 1, &info) && info.dli_sname && (!strncmp(info.dli_sname, "f_", 2) || !strcmp(info.dli_sname, "main")))
        printf("%s %s\n", how, info.dli_sname);
}

TRACED void f_backtrace(void)
{
    void *found[64];
    int count = backtrace(found, 64);
    for (int i = 0; i < count; i++) f_show("backtrace", found[i]);
}

TRACED void f_fast(void)
{
    void *found[64];
    int count = unw_walk ? unw_walk(found, 64) : 0;
    for (int i = 0; i < count; i++) f_show("unw_backtrace", found[i]);
}

TRACED void f_steps(void)
{
    ucontext_t context;
    unsigned long cursor[127], at;
    if (!step || get_context(&context) || init_local(cursor, &context)) return;
    do {
        if (get_register(cursor, 16, &at)) break;
        f_show("unw_step", (void *)at);
        f_leaf(1);
    } while (step(cursor) > 0);
}

TRACED int f_chain(int kind, int n)
{
    int r = 0;
    if (n > 0) r = f_chain(kind, n - 1);
    else if (kind == 0) f_backtrace();
    else if (kind == 1) f_fast();
    else if (kind == 2) f_steps();
    else raise(SIGUSR1);
    r += f_leaf(n);
    KEEP(r);
    return r;
}

void f_handler(int sig) { (void)sig; f_backtrace(); f_steps(); f_fast(); }

int main(void)
{
    void *lib = dlopen("libunwind.so.8", RTLD_NOW);
    if (lib) {
        get_context = (int (*)(void *))dlsym(lib, "_Ux86_64_getcontext");
        init_local = (int (*)(void *, void *))dlsym(lib, "_ULx86_64_init_local");
        step = (int (*)(void *))dlsym(lib, "_ULx86_64_step");
        get_register = (int (*)(void *, int, unsigned long *))dlsym(lib, "_ULx86_64_get_reg");
        unw_walk = (int (*)(void **, int))dlsym(lib, "unw_backtrace");
    }
    signal(SIGUSR1, f_handler);
    int sum = 0;
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < 4; kind++) sum += f_chain(kind, 4);
    printf("%d\n", sum);
    return 0;
}
