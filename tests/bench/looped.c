// The library function of loop.c that is called through the PLT.
__attribute__((naked, noinline)) void f_library(void) { __asm__("ret"); }
