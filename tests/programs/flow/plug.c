// A library of flow.c, in two kinds: ONE and not. Laid out alike, so that they fall on the same place one after another.
#define TRACED __attribute__((noinline, noclone, noipa))
#ifdef ONE
TRACED static int f_a(int x) { return x + 1; }
TRACED static int f_b(int x) { return f_a(x) * 3 + f_a(7); }
TRACED int entry(int x) { return f_b(x) + f_a(x) + f_b(9); }
#else
TRACED static int f_c(int x) { return x ^ 5; }
TRACED int entry(int x) { int s = 0; for (int i = 0; i < 3; i++) s += f_c(x + i); return s - f_c(s); }
TRACED int f_unused(int x) { return f_c(x) + entry(x); }
#endif
