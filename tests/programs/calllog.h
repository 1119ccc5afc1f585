// The programs' own record of their calls.
//
// A function that is to be found again in a trace calls ENTER() first and LEAVE() last; both print
// `enter NAME DEPTH` / `leave NAME DEPTH` to stdout, depth counted per thread from 0. Only functions named
// f_* are logged, so that a reader of a trace can leave out everything else by name. TRACED keeps the
// compiler from inlining, cloning or merging them: what is written as a call is executed as a call.
#ifndef CALLLOG_H
#define CALLLOG_H
#include <stdio.h>

#define TRACED __attribute__((noinline, noclone, noipa))

static __thread int calllog_depth __attribute__((unused));

#define ENTER() printf("enter %s %d\n", __func__, calllog_depth++)
#define LEAVE() printf("leave %s %d\n", __func__, --calllog_depth)

#endif
