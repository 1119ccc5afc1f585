"""Sources of programs whose calls are followed to where they return to (tests/returns.py).

Given nothing; gives text in C. Must not know sptrace.
"""

# Which label a goto leads to says an array whose address was kept on the stack, as in Python's
# interpreter; and most instructions behind calls are shorter than a jump.
LABELS = r"""
#include <stdio.h>
#define HERE __attribute__((noinline, noclone))
HERE int adds(int x) { __asm__ volatile(""); return x + 1; }
HERE int interprets(const unsigned char *code)
{
    static void *const labels[] = {&&twice, &&once, &&end};
    void *const *volatile kept = labels;
    int r = 0;
#define NEXT goto *kept[*code++]
    NEXT;
twice:
    r = adds(r); r ^= 1; r = adds(r); NEXT;
once:
    r = adds(r) - 3; NEXT;
end:
    return r;
}
int main(void)
{
    int r = 0;
    for (int i = 0; i < 1000; i++) r += interprets((const unsigned char *)"\0\1\1\0\2");
    return printf("%d\n", r) < 0;
}
"""
# An interpreter puts the addresses of its labels into what it interprets, as Ruby's does.
THREADED = LABELS[:LABELS.index("HERE int interprets")] + r"""
HERE int interprets(const unsigned char *ops, int count)
{
    static const void *const labels[] = {LABELS_OF};
    const void *code[64], **at = code;
    int r = 0;
    for (int i = 0; i < count; i++) code[i] = labels[ops[i]];
    __asm__ volatile("" : "+r"(at) :: "memory");
#define NEXT goto **at++
    NEXT;
BODIES
end:
    return r;
}
int main(void)
{
    int r = 0;
    const unsigned char *ops = (const unsigned char *)"\0\1\5\20\21";
    for (int i = 0; i < 1000; i++) r += interprets(ops, 5) & 0xff;
    return printf("%d\n", r) < 0;
}
""".replace("LABELS_OF", ", ".join([f"&&op{i}" for i in range(17)] + ["&&end"])).replace(
    "BODIES",
    "\n".join(f"op{i}: r = adds(r); r ^= {i + 1}; r = adds(r); NEXT;" for i in range(17)),
)
LIBRARY = r"""
#define HERE __attribute__((noinline, noclone))
HERE static int inner(int x) { __asm__ volatile(""); return x + 1; }
HERE int outer(int x)
{
    int r = inner(x);
    __asm__ volatile("" : "+r"(r));
    return (r + inner(r)) * 2;
}
int entry(int x) { int r = outer(x); __asm__ volatile("" : "+r"(r)); return r + outer(r); }
"""
LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 0; i < 50 + argc - 2; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        int (*entry)(int) = library ? dlsym(library, "entry") : 0;
        if (!entry) return puts(dlerror());
        sum += entry(i);
        dlclose(library);
    }
    return printf("%d\n", sum) < 0;
}
"""

OPENED = r"""
#include <stdio.h>
#include <unistd.h>
#define HERE __attribute__((noinline, noclone))
HERE static int inner(int n) { if (n == 0) usleep(700 * 1000); return n + 1; }
HERE static int middle(int n) { return inner(n) + inner(n + 1); }
HERE static int outer(int n)
{
    int sum = middle(n);
    return sum + middle(n + 1) + middle(n + 2);
}
int main(void)
{
    printf("%d\n", outer(0));
    fflush(stdout);
    getchar();
    return 3;
}
"""

LATER = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#define HERE __attribute__((noinline, noclone))
static volatile int ended;
HERE static int three(int n) { return n + 1; }
HERE static int two(int n) { int a = three(n); a = (a ^ n) + 3; return three(a) * n + a; }
HERE static int one(int n)
{
    int a = two(n);
    a = (a + n) * 3;
    a -= two(a);
    return (two(n) ^ a) + n;
}
static void *thread(void *counted)
{
    for (int n = 0; !ended; n++) { *(int *)counted += one(n) & 1; usleep(500); }
    return NULL;
}
int main(void)
{
    static int counted[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, &counted[i]);
    getchar();
    ended = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 5;
}
"""

SPAWNING = r"""
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#define HERE __attribute__((noinline, noclone))
extern char **environ;
static char *words[] = {"true", 0};
HERE static int forks(void)
{
    pid_t child = vfork();
    if (child == 0) { execv("/bin/true", words); _exit(9); }
    return child;
}
HERE static int spawns(void)
{
    pid_t child;
    posix_spawn(&child, "/bin/true", 0, 0, words, environ);
    return child + 0;
}
HERE static int awaits(int child) { int status; waitpid(child, &status, 0); return status; }
int main(void)
{
    int all = 0;
    for (int i = 0; i < 3; i++) all |= awaits(forks()) | awaits(spawns());
    return all;
}
"""

# Code that the program has made runs before several threads reach functions.
HEADERS = "#include <pthread.h>\n#include <string.h>\n#include <sys/mman.h>"
GENERATED = LATER[: LATER.index("static void *thread")]
GENERATED = GENERATED.replace("#include <pthread.h>", HEADERS) + r"""
static int (*made)(int);
static int make(void)
{
    /* sub rsp, 8; mov rax, one; call rax; add rsp, 8; ret */
    unsigned char code[] = {
        0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
        0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3
    };
    int (*called)(int) = one;
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *page = mmap(0, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + 6, &called, sizeof called);
    memcpy(page, code, sizeof code);
    made = (int (*)(int))page;
    return page == MAP_FAILED;
}
static void *thread(void *counted)
{
    for (int n = 0; n < 2000; n++) {
        int sum = made(n);
        sum += two(n);
        *(int *)counted += sum & 1;
        usleep(500);
    }
    return NULL;
}
int main(void)
{
    static int counted[4];
    pthread_t threads[4];
    if (make()) return 1;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, &counted[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%d\n", counted[0] + counted[1] + counted[2] + counted[3]);
    return 5;
}
"""

# Functions that end with a call, one behind the other.
TIGHT = r"""
#include <stdio.h>
#include <stdlib.h>
static volatile long slow, often;
__attribute__((noinline)) void f_slow(void) { slow++; }
__attribute__((noinline)) void f_often(void) { often++; }
__attribute__((noinline)) void f_caller(void)
{
    for (int i = 0; i < 100; i++) f_often();
    f_slow();
}
__attribute__((noinline)) long f_last(long n) { f_caller(); return n + 1; }
int main(int argc, char **argv)
{
    for (long i = 0, rounds = atol(argv[1]); i < rounds;) i = f_last(i);
    printf("%ld %ld\n", often, slow);
    return 0;
}
"""
# A signal every 20 us, whose handler makes a call without an end, or two with one.
HANDLED = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static volatile long leaves, handled, spins;
__attribute__((noinline)) void f_handled(void) { handled++; }
#ifdef ENDS
static void handler(int signal) { (void)signal; f_handled(); spins++; f_handled(); spins++; }
#else
static void handler(int signal) { (void)signal; f_handled(); }
#endif
__attribute__((noinline)) void f_leaf(void) { leaves++; }
__attribute__((noinline)) void f_middle(void) { f_leaf(); f_leaf(); spins++; }
__attribute__((noinline)) void f_outer(void) { f_middle(); f_leaf(); spins++; }
int main(int argc, char **argv)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    if (argc > 2) sigaltstack(&stack, NULL);
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &act, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    timer_settime(timer, 0, &often, NULL);
    for (long i = 0, rounds = atol(argv[1]); i < rounds; i++) f_outer();
    timer_settime(timer, 0, &never, NULL);
    printf("%ld %d\n", leaves, handled > 1000);
    return 0;
}
"""

# `hidden` runs what is not seen where -N leaves it out, while there are two threads; `f_late` is
# reached after it.
AFTER = r"""
#include <pthread.h>
#include <stdio.h>
#define HERE __attribute__((noinline, noclone))
static volatile int over;
HERE int f_other(int n) { volatile int r = n; return r - 1; }
HERE int f_leaf(int n) { volatile int r = n; return r + 1; }
HERE int f_late(int n) { int r = n; for (int i = 0; i < 3; i++) r += f_leaf(i) * n; return r; }
HERE int hidden(int n) { return f_other(n) + f_other(n + 1); }
static void *spins(void *p) { while (!over); return p; }
int main(void)
{
    pthread_t thread;
    unsigned r;
    pthread_create(&thread, 0, spins, 0);
    r = hidden(1);
    for (int i = 0; i < 10000; i++) r += f_late(i);
    over = 1;
    pthread_join(thread, 0);
    printf("%u\n", r);
}
"""
