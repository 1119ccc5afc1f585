// usage: stepped WHAT ROUNDS
//
// Does WHAT (throw, call, pointer) between two getppid(2), the marks by which steps.py counts instructions: a hundred
// rounds to get warm, in the middle of which a library comes and goes, then it says "ready" and waits for a byte, then
// ROUNDS more.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

static int depth = 10;
__attribute__((noinline)) static int down(int n)
{
    if (n == 0) throw 1;
    int r = down(n - 1) + n;
    asm volatile("" : "+r"(r));
    return r;
}
__attribute__((noinline)) static void throws() { try { down(depth - 1); } catch (int) {} }

__attribute__((noinline)) static int callee(int n) { asm volatile("" : "+r"(n)); return n; }
static int (*volatile indirect)(int) = callee;
__attribute__((noinline)) static void calls() { callee(1); }
__attribute__((noinline)) static void points() { indirect(1); }

__attribute__((noinline)) static void mark()
{
    long number = SYS_getppid;
    asm volatile("syscall" : "+a"(number) : : "rcx", "r11", "memory");
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    void (*what)() = !strcmp(argv[1], "throw") ? throws : !strcmp(argv[1], "call") ? calls : points;
    int rounds = atoi(argv[2]), warm = 100;
    for (int r = -warm; r < rounds; r++) {
        char byte;
        if (r == -warm / 2) {
            void *library = dlopen("libanl.so.1", RTLD_NOW);
            if (!library || dlclose(library)) return 4;
        }
        if (r == 0 && (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) != 1)) return 3;
        mark();
        what();
    }
}
