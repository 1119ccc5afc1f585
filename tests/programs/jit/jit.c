// A JIT compiler in small: emits functions, runs them, changes and reruns them in place, moves them, frees and reuses the
// memory, in a page that is written and then executed (mprotect) or mapped twice (memfd). What it emits calls back into
// the program by rel32, by register and by tail jump, also before the program itself has called there, throws nothing,
// and is interrupted by a handler. Two threads run it at a time.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

typedef long (*code)(long);
TRACED static long f_leaf(long x) { return x + 1; }
TRACED static long f_helper(long x) { return f_leaf(x) * 3; }
TRACED static long f_only_from_jit(long x) { return f_helper(x) - f_leaf(x); }
TRACED static long f_only_by_tail(long x) { return f_leaf(x) ^ f_helper(x); }
static code recursion;
TRACED static long f_back_into_jit(long x) { return x <= 0 ? f_leaf(x) : recursion(x - 1) + f_leaf(x); }
static jmp_buf out;
TRACED static long f_jumps_out(long x) { longjmp(out, (int)f_leaf(x)); }

struct emitter { unsigned char *write, *run; size_t at; };
static void bytes(struct emitter *e, const void *b, size_t n) { memcpy(e->write + e->at, b, n); e->at += n; }
static void number(struct emitter *e, uint64_t v, size_t n) { bytes(e, &v, n); }
#define B(...) do { static const unsigned char b_[] = {__VA_ARGS__}; bytes(e, b_, sizeof b_); } while (0)
// sub rsp, 8; { add rdi, k; mov rax, f; call rax; mov rdi, rax } for each; add rsp, 8; ret
static code emit_calls(struct emitter *e, code *targets, int n, int k)
{
    size_t start = e->at;
    B(0x48, 0x83, 0xec, 0x08);
    for (int i = 0; i < n; i++) {
        B(0x48, 0x81, 0xc7); number(e, (uint64_t)k, 4);
        B(0x48, 0xb8); number(e, (uint64_t)targets[i], 8);
        B(0xff, 0xd0, 0x48, 0x89, 0xc7);
    }
    B(0x48, 0x83, 0xc4, 0x08, 0xc3);
    return (code)(e->run + start);
}
static code emit_rel32(struct emitter *e, int op, code target)
{
    size_t start = e->at;
    if (op == 0xe8) B(0x48, 0x83, 0xec, 0x08);
    number(e, (uint64_t)op, 1);
    number(e, (uint64_t)((unsigned char *)target - (e->run + e->at + 4)), 4);
    if (op == 0xe8) B(0x48, 0x83, 0xc4, 0x08, 0xc3);
    return (code)(e->run + start);
}
static code emit_tail(struct emitter *e, code target)
{
    size_t start = e->at;
    B(0x49, 0xbb); number(e, (uint64_t)target, 8);
    B(0x41, 0xff, 0xe3);
    return (code)(e->run + start);
}
TRACED static long f_run(code f, long x) { return f(x) + f_leaf(x); }

enum { SIZE = 65536 };
// Near the program, so that rel32 reaches.
static unsigned char *near_program(int fd, int protection)
{
    uintptr_t base = (uintptr_t)f_leaf & ~0xfffffUL;
    for (uintptr_t distance = 16 << 20; distance < 1 << 30; distance += 1 << 20) {
        void *p = mmap((void *)(base - distance), SIZE, protection, (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_FIXED_NOREPLACE, fd, 0);
        if (p == (void *)(base - distance)) return p;
        if (p != MAP_FAILED) munmap(p, SIZE);
    }
    exit(3);
}
TRACED static long f_generation(struct emitter *e, int twice, int generation)
{
    if (!twice) mprotect(e->write, SIZE, PROT_READ | PROT_WRITE);
    e->at = (size_t)(generation % 3) * 64;
    code targets[] = {f_leaf, f_helper, f_only_from_jit, f_leaf, f_only_from_jit};
    code a = emit_calls(e, targets + generation % 3, 1 + generation % 3, generation);
    code b = emit_rel32(e, 0xe8, generation % 2 ? f_only_from_jit : f_helper);
    code c = emit_tail(e, f_only_by_tail);
    code d = emit_rel32(e, 0xe9, f_only_by_tail);
    code inner[] = {a, f_leaf};
    recursion = emit_calls(e, inner, 2, 0);
    code jump = emit_rel32(e, 0xe8, f_jumps_out);
    if (!twice) mprotect(e->write, SIZE, PROT_READ | PROT_EXEC);
    long r = 0;
    for (long i = 0; i < 20; i++) r = (r * 7 + f_run(a, i) + b(i) + f_run(c, i) + d(i)) & 0xfffffff;
    r += recursion(-3) & 0xff;
    long deep = 0;
    code chain[] = {f_back_into_jit};
    if (!twice) mprotect(e->write, SIZE, PROT_READ | PROT_WRITE);
    recursion = emit_calls(e, chain, 1, 0);
    if (!twice) mprotect(e->write, SIZE, PROT_READ | PROT_EXEC);
    deep = recursion(40);
    volatile long left = 0;
    int jumped = setjmp(out);
    if (jumped == 0) left = jump(generation); else left += jumped;
    return r ^ deep << 8 ^ left;
}
static volatile long ticks;
TRACED static void on_tick(int sig) { ticks += f_helper(sig) > 0; }
static code shared_code;
TRACED static void *f_thread(void *arg) { long x = (long)arg; for (int i = 0; i < 20000; i++) x = f_run(shared_code, x) & 0xffff; return (void *)x; }

int main(void)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    ualarm(1000, 1000);
    struct emitter one = {near_program(-1, PROT_READ | PROT_WRITE), NULL, 0}, two = {NULL, NULL, 0};
    one.run = one.write;
    int fd = memfd_create("jit", 0);
    if (ftruncate(fd, SIZE)) return 1;
    two.write = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    two.run = near_program(fd, PROT_READ | PROT_EXEC);
    for (int generation = 0; generation < 40; generation++) {
        printf("generation %d: %ld %ld\n", generation, f_generation(&one, 0, generation), f_generation(&two, 1, generation));
        if (generation % 10 == 9) { // the same place again, as new memory
            munmap(one.run, SIZE);
            one.write = one.run = mmap(one.run, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
    }
    two.at = 0;
    code targets[] = {f_leaf, f_only_from_jit, f_helper};
    shared_code = emit_calls(&two, targets, 3, 2);
    pthread_t ids[2];
    long sum = 0;
    for (long i = 0; i < 2; i++) pthread_create(&ids[i], NULL, f_thread, (void *)i);
    for (int i = 0; i < 2; i++) { void *r; pthread_join(ids[i], &r); sum += (long)r; }
    printf("threads %ld\n", sum);
    return 0;
}
