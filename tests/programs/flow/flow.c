// Control flow: the forms of forms.s, jump tables, computed goto, functions that ask who called them, IFUNCs, dlopen by
// the RUNPATH of a library, dlsym(RTLD_NEXT) from one, and two libraries that take turns at one address.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TRACED __attribute__((noinline, noclone, noipa))

extern struct { int (*run)(int); const char *name; } flows[] __attribute__((visibility("hidden")));

TRACED static int f_leaf(int x) { return x + 1; }
#define CASE(n) case n: x += f_leaf(n); __attribute__((fallthrough));
#define END(n) case n: return x * f_leaf(n);
TRACED static int f_switch(int x)
{
    switch (x) { CASE(0) CASE(1) END(2) CASE(3) END(4) END(5) CASE(6) CASE(7) END(8) CASE(9) END(10) END(11) CASE(12) END(13) default: return f_leaf(-x); }
}
TRACED static int f_goto(const char *program)
{
    static void *const labels[] = {&&add, &&call, &&twice, &&end};
    int x = 1;
#define NEXT goto *labels[*program++ - 'a']
    NEXT;
add: x += 3; NEXT;
call: x = f_leaf(x); NEXT;
twice: x = f_leaf(x) + f_leaf(x * 2); NEXT;
end: return x;
}

// Which function the return address lies in: symbols are exported (-rdynamic), so dladdr knows them.
TRACED const char *who(void *address) { Dl_info info; return dladdr(address, &info) && info.dli_sname ? info.dli_sname : "nobody"; }
TRACED void who_calls_leaf(void) { printf("called by %s\n", who(__builtin_return_address(0))); }
TRACED int who_calls_frame(int n)
{
    volatile char pad[200];
    memset((char *)pad, n, sizeof pad);
    printf("called by %s\n", who(__builtin_extract_return_addr(__builtin_return_address(0))));
    return pad[100] + f_leaf(n);
}
TRACED void who_direct(void) { who_calls_leaf(); f_leaf(who_calls_frame(1)); }
TRACED void who_pointer(void (*f)(void), int (*g)(int)) { f(); f_leaf(g(2)); f_leaf(3); }
TRACED int who_tail(int n) { return who_calls_frame(n); }
TRACED int who_is_above_tail(int n) { return who_tail(n) + f_leaf(n); }

TRACED static int f_plain(int x) { return f_leaf(x) + 10; }
TRACED static int f_other(int x) { return f_leaf(x) + 20; }
__attribute__((used)) static int (*choose(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2") ? f_plain : f_other; }
int by_ifunc(int) __attribute__((ifunc("choose")));
static int (*volatile ifunc_pointer)(int) = by_ifunc;

static const char *own;
TRACED static void *f_open(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(own, '/') + 1 - own), own, name);
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle) { printf("no library: %s\n", dlerror()); exit(1); }
    return handle;
}
TRACED static void f_turns(void)
{
    void *places[2];
    int sum = 0;
    for (int i = 0; i < 30; i++) {
        void *plug = f_open(i % 2 ? "flow.one.so" : "flow.two.so");
        int (*entry)(int) = (int (*)(int))dlsym(plug, "entry");
        places[i & 1] = (void *)entry;
        for (int k = 0; k < 5; k++) sum += entry(k);
        printf("turn %d %d\n", i, sum);
        dlclose(plug);
    }
    if (places[0] == NULL || places[1] == NULL) exit(2);
}
TRACED static void f_caller(void)
{
    void *run = f_open("flow.run.so");
    const char *(*opens)(const char *) = (const char *(*)(const char *))dlsym(run, "opens");
    int (*next)(const char *) = (int (*)(const char *))dlsym(run, "atoi");
    for (int i = 0; i < 3; i++) {
        printf("by its RUNPATH: %s\n", opens("flow.one.so"));
        printf("without one: %s\n", dlopen("flow.one.so", RTLD_NOW) ? "found" : "not found");
        printf("next %d\n", next("17"));
    }
    dlclose(run);
}

int main(int argc, char **argv)
{
    (void)argc;
    own = argv[0];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; flows[i].run; i++) {
            printf("%s", flows[i].name);
            for (int k = 0; k < 6; k++) printf(" %d", flows[i].run(k));
            printf("\n");
        }
        for (int i = -1; i < 16; i++) printf("%d ", f_switch(i));
        printf("%d %d\n", f_goto("abacbccd"), f_goto("d"));
        printf("ifunc %d %d %d\n", by_ifunc(round), ifunc_pointer(round), (int)strlen(argv[0]) > 0);
    }
    for (int i = 0; i < 3; i++) {
        who_direct();
        who_pointer(who_calls_leaf, who_calls_frame);
        who_is_above_tail(i);
    }
    f_caller();
    f_turns();
    return 0;
}
