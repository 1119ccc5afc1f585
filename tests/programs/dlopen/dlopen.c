// dlopen and dlclose of plug.so, repeatedly: constructors and destructors run, calls into it, lazy and now binding,
// dlsym of a function and of RTLD_NEXT, a failing dlopen. plug.so is looked for beside the program ($ORIGIN).
#define _GNU_SOURCE
#include "../calllog.h"
#include <dlfcn.h>
#include <stdlib.h>

TRACED long f_host_callback(long x) { return x + 1; }

TRACED static long f_round(int i)
{
    void *plug = dlopen("plug.so", i & 1 ? RTLD_LAZY : RTLD_NOW);
    if (!plug) { printf("dlopen failed: %s\n", dlerror()); exit(1); }
    long (*entry)(long, long (*)(long)) = (long (*)(long, long (*)(long)))dlsym(plug, "f_plug_entry");
    long r = 0;
    for (int k = 0; k < 10; k++) r += entry(k, f_host_callback);
    printf("dlclose %d\n", dlclose(plug));
    return r;
}

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 20; i++) sum += f_round(i);
    printf("sum %ld\n", sum);
    printf("missing %s\n", dlopen("no-such-plug.so", RTLD_NOW) ? "found" : "not found");
    printf("next %s\n", dlsym(RTLD_NEXT, "printf") ? "found" : "not found");
    void *m = dlopen("libm.so.6", RTLD_LAZY);
    double (*cosine)(double) = (double (*)(double))dlsym(m, "cos");
    printf("cos %.6f\n", cosine(1.0));
    return 0;
}
