// Calls with arguments and results of every kind: directly, through pointers, as tail calls, as callbacks, recursively, in
// threads and in a signal handler. Each f_* prints itself as a line of `sptrace report tree` has it, when it returns.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define F __attribute__((noinline, noipa))

enum color { RED, GREEN = 5, BLUE };
enum bits { ONE = 1, TWO = 2, FOUR = 4, EIGHT = 8 };
struct point { int x; double y; const char *name; };
struct pair { long a, b; };
struct floats { float x, y; };

/* In one piece. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[512];
    va_list list;
    __builtin_va_start(list, format);
    int length = vsnprintf(line, sizeof line - 1, format, list);
    __builtin_va_end(list);
    line[length] = '\n';
    if (write(1, line, length + 1) < 0) abort();
}

F int f_ints(int8_t a, int16_t b, int32_t c, int64_t d)
{
    int r = a + b + c + (int)d;
    say("f_ints(%d, %d, %d, %ld) = %d", a, b, c, (long)d, r);
    return r;
}
F uint64_t f_unsigned(uint8_t a, uint16_t b, uint32_t c, uint64_t d)
{
    uint64_t r = a + b + c + d;
    say("f_unsigned(%u, %u, %u, %lu) = %lu", a, b, c, (unsigned long)d, (unsigned long)r);
    return r;
}
F char f_char(char c, bool b) { say("f_char('%c', %s) = '%c'", c, b ? "true" : "false", c + 1); return c + 1; }
F bool f_bool(bool b) { say("f_bool(%s) = %s", b ? "true" : "false", b ? "false" : "true"); return !b; }
F double f_double(double a, int n, float b) { say("f_double(%.1f, %d, %.1f) = %.1f", a, n, b, a + n + b); return a + n + b; }
F float f_float(float a) { say("f_float(%.1f) = %.1f", a, a / 2); return a / 2; }
F enum color f_enum(enum color c) { say("f_enum(%s) = BLUE", c == RED ? "RED" : c == GREEN ? "GREEN" : "BLUE"); return BLUE; }
F int f_flags(enum bits b) { say("f_flags(%s) = %d", b == 5 ? "ONE|FOUR" : "TWO", (int)b); return b; }
F const char *f_string(const char *s) { say("f_string(\"%s\") = \"%s\"", s, s + 1); return s + 1; }
F int f_null(const char *s) { say("f_null(NULL) = 7"); return s ? 8 : 7; }
F int f_long(const char *s) { say("f_long(\"%.32s\"...) = %zu", s, strlen(s)); return strlen(s); }
F int f_bad(const char *s) { say("f_bad(%#lx) = 1", (unsigned long)s); return 1; }
F int f_struct(const struct point *p)
{
    say("f_struct({x=%d, y=%.1f, name=\"%s\"}) = %d", p->x, p->y, p->name, p->x);
    return p->x;
}
F void f_out(int *out, int n) { int before = *out; *out = n; say("f_out([%d => %d], %d)", before, n, n); }
F long f_pair(struct pair p) { say("f_pair(%#lx, %#lx) = %ld", p.a, p.b, p.a + p.b); return p.a + p.b; }
F float f_floats(struct floats p, int n) { say("f_floats({%.1f, %.1f}, %d) = %.1f", p.x, p.y, n, p.x + p.y); return p.x + p.y; }
F long f_many(int a, int b, int c, int d, int e, int f, int g, long h, double x)
{
    long r = a + b + c + d + e + f + g + h + (long)x;
    say("f_many(%d, %d, %d, %d, %d, %d, %d, %ld, %.1f) = %ld", a, b, c, d, e, f, g, h, x, r);
    return r;
}
F void f_void(void) { say("f_void()"); }
F int f_last(int n) { say("f_last(%d) = %d", n, n * 2); return n * 2; }
/* A tail call from -O2 on: both give the same. */
F int f_tail(int n) { say("f_tail(%d) = %d", n, (n + 1) * 2); return f_last(n + 1); }
F int f_recursive(int n) { int r = n == 0 ? 0 : n + f_recursive(n - 1); say("f_recursive(%d) = %d", n, r); return r; }
F int f_compare(const int *a, const int *b) { say("f_compare([%d], [%d]) = %d", *a, *b, *a - *b); return *a - *b; }
F int f_handler(int n) { say("f_handler(%d) = %d", n, -n); return -n; }
F unsigned f_thread(unsigned n) { say("f_thread(%u) = %u", n, n + 100); return n + 100; }

static volatile int handled;
static void handler(int signal) { handled = f_handler(signal); }
static void *run(void *n)
{
    for (unsigned i = 0; i < 50; i++) f_thread((unsigned)(long)n * 1000 + i);
    return NULL;
}

int main(void)
{
    static char text[200];
    memset(text, 'x', sizeof text - 1);
    struct point point = { 3, 2.5, "here" };
    struct pair pair = { 1, 2 };
    struct floats floats = { 1.5, 2.5 };
    int out = 4, sorted[] = { 3, 1, 2 };
    int (*volatile pointer)(int) = f_last;
    f_ints(-1, -300, 70000, -5000000000);
    f_unsigned(255, 65535, 4000000000u, UINT64_MAX / 2);
    f_char('a', true);
    f_bool(false);
    f_double(1.5, 2, 2.5f);
    f_float(5);
    f_enum(GREEN);
    f_flags(ONE | FOUR);
    f_string("text");
    f_null(NULL);
    f_long(text);
    f_bad((const char *)0x10);
    f_struct(&point);
    f_out(&out, 9);
    f_pair(pair);
    f_floats(floats, 6);
    f_many(1, 2, 3, 4, 5, 6, 7, 1L << 40, 0.5);
    f_void();
    pointer(21);
    f_tail(4);
    f_recursive(3);
    qsort(sorted, 3, sizeof *sorted, (int (*)(const void *, const void *))f_compare);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    for (long i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, (void *)i);
        pthread_join(thread, NULL);
    }
    return 0;
}
