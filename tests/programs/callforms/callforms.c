// Runs every form of forms.s and compares what caller and callee saw; see there.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct state { uint64_t gpr[16]; uint64_t flags, pad; unsigned char xmm[16][16]; };
extern struct state before, inside, leaving, after;
extern struct { int (*run)(void); const char *name; } forms[];
extern int calls;
extern char skip_inside;
extern long call_next_pop(void), inline_data(void);
extern void varargs_call(void);

static const char *const names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"};
enum { FLAGS = 0xcd5 }; /* OF DF SF ZF AF PF CF */

static int differ(const char *form, const char *when, struct state a, struct state b, int rsp_delta)
{
    int bad = 0;
    a.gpr[4] += (uint64_t)(int64_t)rsp_delta;
    for (int i = 0; i < 16; i++)
        if (a.gpr[i] != b.gpr[i]) { printf("%s: %s differs %s\n", form, names[i], when); bad++; }
    if ((a.flags ^ b.flags) & FLAGS) { printf("%s: flags %lx -> %lx %s\n", form, (long)a.flags & FLAGS, (long)b.flags & FLAGS, when); bad++; }
    for (int i = 0; i < 16; i++)
        if (memcmp(a.xmm[i], b.xmm[i], 16) != 0) { printf("%s: xmm%d differs %s\n", form, i, when); bad++; }
    return bad;
}

int main(void)
{
    int bad = 0, count = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; forms[i].run; i++) {
            memset(&inside, 0, sizeof inside);
            memset(&after, 0, sizeof after);
            skip_inside = 0;
            forms[i].run();
            if (!skip_inside) bad += differ(forms[i].name, "at entry", before, inside, -8);
            bad += differ(forms[i].name, "at return", leaving, after, 8);
            count++;
        }
    printf("%d forms run, %d calls of callee, %d differences\n", count, calls, bad);
    printf("call-next-pop %ld, inline data %lx\n", call_next_pop(), inline_data());
    varargs_call();
    return bad != 0;
}
