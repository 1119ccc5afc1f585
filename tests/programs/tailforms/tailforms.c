// Calls every tail-calling function of forms.s and compares the results; see there.
#include <stdio.h>

extern struct { int (*run)(int); const char *name; int argument, result; } tails[];
extern void f_1(void), f_2(void);

int main(void)
{
    int bad = 0, count = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; tails[i].run; i++) {
            int r = tails[i].run(tails[i].argument);
            f_1();
            f_2();
            count++;
            if (r != tails[i].result) { printf("%s(%d) = %d, not %d\n", tails[i].name, tails[i].argument, r, tails[i].result); bad++; }
        }
    printf("%d calls, %d wrong\n", count, bad);
    return bad != 0;
}
