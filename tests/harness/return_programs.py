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
