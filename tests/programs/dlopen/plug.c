// The plug-in of dlopen.c.
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void f_plug_load(void) { printf("plug loaded\n"); }
__attribute__((destructor)) static void f_plug_unload(void) { printf("plug unloaded\n"); }

__attribute__((noipa)) static long f_plug_inner(long x, long (*back)(long)) { return back(x) * 2; }
__attribute__((noipa)) long f_plug_entry(long x, long (*back)(long)) { return f_plug_inner(x, back) + labs(-x); }
