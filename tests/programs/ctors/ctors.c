// Code outside main: constructors and destructors with priorities, an init_array entry with arguments, atexit and
// on_exit handlers (in reverse order), at_quick_exit left alone, stdio flushing at exit.
#define _GNU_SOURCE
#include "../calllog.h"
#include <stdlib.h>

__attribute__((constructor(101))) TRACED static void f_first(void) { ENTER(); LEAVE(); }
__attribute__((constructor(102))) TRACED static void f_second(void) { ENTER(); LEAVE(); }
TRACED static void f_with_arguments(int argc, char **argv, char **env) { ENTER(); printf("argc %d env %d\n", argc, env != NULL && argv != NULL); LEAVE(); }
__attribute__((section(".init_array"), used)) static void (*const entry)(int, char **, char **) = f_with_arguments;
__attribute__((destructor(101))) TRACED static void f_last(void) { ENTER(); LEAVE(); }
__attribute__((destructor(102))) TRACED static void f_before_last(void) { ENTER(); LEAVE(); }
TRACED static void f_at_exit_1(void) { ENTER(); LEAVE(); }
TRACED static void f_at_exit_2(void) { ENTER(); atexit(f_at_exit_1); LEAVE(); }
TRACED static void f_on_exit(int status, void *arg) { ENTER(); printf("status %d %s\n", status, (const char *)arg); LEAVE(); }

int main(void)
{
    atexit(f_at_exit_1);
    on_exit(f_on_exit, "argument");
    atexit(f_at_exit_2);
    printf("main without newline at the end");
    exit(5);
}
