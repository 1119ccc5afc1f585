// What a callee and its caller see of each other, by all call forms of forms.s, on the first call and later ones: every
// register of the machine, the flags with DF and AC, MXCSR, the x87 stack and control word; arguments and results
// below the stack pointer; values that -fipa-ra keeps in caller-saved registers; how much stack a call takes.
#define _GNU_SOURCE
#include <cpuid.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define TRACED __attribute__((noinline, noclone, noipa))

struct state { uint64_t gpr[16]; uint64_t flags; char pad[56]; unsigned char x[3904]; };
struct form { void (*run)(void); const char *name; };
#ifdef LIB
// forms.s is in a shared library of that name beside the program.
#include <dlfcn.h>
static void *lib;
static struct state *area_of(int n) { return ((struct state * (*)(int)) dlsym(lib, "area_of"))(n); }
static uint32_t *mask_of(void) { return ((uint32_t * (*)(void)) dlsym(lib, "mask_of"))(); }
static struct form *forms_of(void) { return ((struct form * (*)(void)) dlsym(lib, "forms_of"))(); }
static long below_direct(void) { return ((long (*)(void))dlsym(lib, "below_direct"))(); }
static long below_pointer(void) { return ((long (*)(void))dlsym(lib, "below_pointer"))(); }
static int stack_used(void (*f)(void)) { return ((int (*)(void (*)(void)))dlsym(lib, "stack_used"))(f); }
#else
extern struct state before, inside, leaving, after, pattern_a, pattern_b;
extern uint32_t xsave_mask;
extern struct form forms[];
extern long below_direct(void), below_pointer(void);
extern int stack_used(void (*)(void));
static struct state *area_of(int n) { struct state *all[] = {&before, &inside, &leaving, &after, &pattern_a, &pattern_b}; return all[n]; }
static uint32_t *mask_of(void) { return &xsave_mask; }
static struct form *forms_of(void) { return forms; }
#endif

static const char *const names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"};
enum { FLAGS = 0x40cd5, BEFORE = 0, INSIDE, LEAVING, AFTER, PATTERN_A, PATTERN_B };
static struct { const char *name; unsigned offset, bytes; } parts[64];
static int n_parts;
static void part(const char *name, unsigned offset, unsigned bytes) { parts[n_parts].name = name; parts[n_parts].offset = offset; parts[n_parts++].bytes = bytes; }

// The parts of the xsave image that this machine has, and patterns for them.
static void prepare(void)
{
    uint32_t low, high, a, b, c, d;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint32_t mask = *mask_of() = low & 0xe7;
    part("x87 control", 0, 2); part("x87 status", 2, 2); part("x87 tags", 4, 1); part("mxcsr", 24, 4);
    for (unsigned i = 0; i < 8; i++) part("st", 32 + 16 * i, 10);
    part("xmm", 160, 256);
    static const char *const component[] = {"", "", "ymm", "", "", "mask", "zmm 0-15", "zmm 16-31"};
    for (uint32_t i = 2; i < 8; i++) {
        if (!(mask & 1u << i)) continue;
        __cpuid_count(0xd, i, a, b, c, d);
        part(component[i], b, a);
    }
    for (int p = 0; p < 2; p++) {
        // xrstor wants the image alone: it lies at the area's start here, not behind the registers.
        unsigned char *x = (unsigned char *)area_of(PATTERN_A + p);
        for (unsigned i = 0; i < 3904; i++) x[i] = (unsigned char)(i * 167 + i / 251 + (unsigned)p * 89 + 1);
        memset(x + 512, 0, 64);
        x[512] = (unsigned char)mask;
        uint16_t control = p ? 0x0f7f : 0x067f, status = p ? 0x6220 : 0x1b00;
        uint32_t mxcsr = p ? 0xffc0 & ~0x2000u : 0x3fa1;
        memcpy(x, &control, 2); memcpy(x + 2, &status, 2); x[4] = p ? 0x3c : 0xf1; x[5] = 0;
        memset(x + 6, 0, 18);
        memcpy(x + 24, &mxcsr, 4);
    }
}

static int differ(const char *form, int round, const char *when, const struct state *a, const struct state *b, long rsp_delta, int lazy)
{
    int bad = 0;
    for (int i = 0; i < 16; i++)
        if (a->gpr[i] + (i == 4 ? (uint64_t)rsp_delta : 0) != b->gpr[i] && !(lazy && (i == 10 || i == 11))) { printf("%s round %d: %s differs %s\n", form, round, names[i], when); bad++; }
    if ((a->flags ^ b->flags) & FLAGS && !lazy) { printf("%s round %d: flags %lx -> %lx %s\n", form, round, (long)a->flags & FLAGS, (long)b->flags & FLAGS, when); bad++; }
    for (int i = 0; i < n_parts; i++)
        if (memcmp(a->x + parts[i].offset, b->x + parts[i].offset, parts[i].bytes) != 0) { printf("%s round %d: %s differs %s\n", form, round, parts[i].name, when); bad++; }
    return bad;
}

// Many values live across a call whose callee is known to leave most registers alone: they stay in caller-saved ones.
static volatile long sink;
__attribute__((noinline)) static long f_known(long a) { sink = a; return a + 1; }
__attribute__((noinline)) static long f_many(long a, long b, long c, long d, long e, long f)
{
    long r = f_known(a);
    r += a * 3 + b * 5 + c * 7 + d * 11 + e * 13 + f * 17;
    r += f_known(r);
    return r ^ a ^ b ^ c ^ d ^ e ^ f;
}
static long (*volatile known)(long) = f_known;

TRACED static void f_leaf(void) { __asm__ volatile(""); }
TRACED static void f_leaf_2(void) { __asm__ volatile(""); }
TRACED static void f_calls_new(void) { f_leaf(); }
static int used[4];
TRACED static void *f_thread(void *arg)
{
    used[0] = stack_used(f_leaf_2);
    used[1] = stack_used(f_calls_new);
    used[2] = stack_used(f_leaf_2);
    used[3] = stack_used(f_calls_new);
    return arg;
}

int main(int argc, char **argv)
{
    int bad = 0, count = 0;
    (void)argc;
    (void)argv;
#ifdef LIB
    char path[4096];
    snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(argv[0], '/') + 1 - argv[0]), argv[0], "state.so");
    lib = dlopen(path, RTLD_LAZY);
    if (!lib) { printf("%s\n", dlerror()); return 2; }
#endif
    const struct form *list = forms_of();
    prepare();
    for (int round = 0; round < 3; round++)
        for (int i = 0; list[i].run; i++) {
            memset(area_of(INSIDE), 0, sizeof(struct state));
            memset(area_of(AFTER), 0, sizeof(struct state));
            list[i].run();
            int lazy = round == 0 && strstr(list[i].name, "plt") != NULL;
            bad += differ(list[i].name, round, "at entry", area_of(BEFORE), area_of(INSIDE), -8, lazy);
            bad += differ(list[i].name, round, "at return", area_of(LEAVING), area_of(AFTER), 8, 0);
            count++;
        }
    printf("%d forms run, %d differences\n", count, bad);
    for (int i = 0; i < 3; i++) printf("below rsp: %ld %ld\n", below_direct(), below_pointer());
    printf("many %ld %ld\n", f_many(1, 2, 3, 4, 5, 6), f_many(9, 8, 7, 6, 5, 4) + known(3));
    pthread_t id;
    pthread_create(&id, NULL, f_thread, NULL);
    pthread_join(id, NULL);
    for (int i = 0; i < 4; i++) printf("stack of call %d: %s\n", i, used[i] <= 2048 + 64 ? "at most 2 KiB more" : "more");
    return bad != 0;
}
