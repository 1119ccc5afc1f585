// Calls through pointers: variable, table, structure member, argument, returned pointer, libc function.
#include "../calllog.h"
#include <string.h>

TRACED static int f_one(int x) { ENTER(); LEAVE(); return x + 1; }
TRACED static int f_two(int x) { ENTER(); LEAVE(); return x + 2; }
TRACED static int f_three(int x) { ENTER(); LEAVE(); return x + 3; }
typedef int (*step)(int);
struct object { long pad[20]; step near_member; long pad2[600]; step far_member; };

static step table[3] = {f_one, f_two, f_three};
TRACED static step f_choose(int i) { ENTER(); LEAVE(); return table[i % 3]; }
TRACED static int f_apply(step s, int x) { ENTER(); int r = s(x); r += s(r); LEAVE(); return r; }

int main(void)
{
    volatile step variable = f_two;
    struct object object;
    object.near_member = f_one;
    object.far_member = f_three;
    struct object *volatile p = &object;
    int r = variable(1);
    for (int i = 0; i < 6; i++) r += table[i % 3](i);
    r += p->near_member(r) + p->far_member(r);
    r += f_apply(f_three, r) + f_choose(4)(r);
    size_t (*volatile length)(const char *) = strlen;
    r += (int)length("seventeen letters");
    printf("result %d\n", r);
    return 0;
}
