// A library of flow.c with a RUNPATH of its own: what it opens is looked for there, and its atoi asks for the next one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
const char *opens(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW);
    if (!handle) return "not found";
    int (*entry)(int) = (int (*)(int))dlsym(handle, "entry");
    static char text[40];
    snprintf(text, sizeof text, "found, %d", entry(4));
    dlclose(handle);
    return text;
}
int atoi(const char *s)
{
    static int (*next)(const char *);
    if (!next) next = (int (*)(const char *))dlsym(RTLD_NEXT, "atoi");
    return next ? next(s) + 1 : -1;
}
