// A hand-written function without unwind information among many of a compiler's, as in runtimes that walk their own
// frames: what it calls through a pointer must find the address that it pushed. Other callers are ordinary code.
#include "../calllog.h"
#include <stdio.h>

int relay(int (*to)(int), int n);
extern char relay_back[];
__asm__(".text\n.globl relay, relay_back\n.type relay, @function\n"
        "relay: push %rbp\n mov %rsp, %rbp\n mov %rdi, %rax\n mov %esi, %edi\n call *%rax\n"
        "relay_back: pop %rbp\n ret\n.size relay, . - relay\n");

// So many that functions without unwind information are rare.
#define MANY(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
#define ONE(n) TRACED int some_##n(int k) { __asm__ volatile(""); return k + n; }
#define TEN(n) ONE(1##n) ONE(2##n) ONE(3##n) ONE(4##n) ONE(5##n) ONE(6##n)
MANY(TEN)

TRACED static int f_shared(int n) { __asm__ volatile(""); return n + 1; }

TRACED static int f_tail(int n) { int k = f_shared(n); __asm__ volatile(""); return 2 * k; }

TRACED static int f_root(int n) { int k = f_shared(n); __asm__ volatile(""); return f_tail(k); }

TRACED static int other(int n) { int k = f_shared(n); __asm__ volatile(""); return k - 1; }

TRACED static int is_relays(void)
{
    void **own = __builtin_frame_address(0);
    void **callers = own[0];
    return callers[1] == relay_back;
}

TRACED static int f_walked(int n) { int found = is_relays(); __asm__ volatile(""); return found + n; }

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += f_root(i);
        sum += other(i);
    }
    printf("sum %d\n", sum);
    for (int i = 0; i < 3; i++) printf("a walk finds relay: %d\n", relay(f_walked, 0));
    printf("from elsewhere: %d\n", f_walked(0));
    return 0;
}
