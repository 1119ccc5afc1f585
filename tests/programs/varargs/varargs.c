// Variadic calls with doubles: al carries the number of vector registers and must arrive; also through pointers.
#include <stdarg.h>
#include <stdio.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static double f_sum(int n, ...)
{
    va_list ap;
    double s = 0;
    va_start(ap, n);
    for (int i = 0; i < n; i++) s += i & 1 ? (double)va_arg(ap, int) : va_arg(ap, double);
    va_end(ap);
    return s;
}
TRACED static int f_forward(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vprintf(format, ap);
    va_end(ap);
    return n;
}

int main(void)
{
    double (*volatile pointer)(int, ...) = f_sum;
    int (*volatile print)(const char *, ...) = printf;
    printf("%.3f %d %.2e %s %g\n", 1.25, 7, 12345.678, "text", 0.5);
    printf("%.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f\n", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.);
    print("%.6f and %Lf\n", 3.14159265, 2.5L);
    printf("%.3f %.3f\n", f_sum(6, 1.5, 2, 3.5, 4, 5.5, 6), pointer(3, 0.25, 1, 0.5));
    printf("%d\n", f_forward("%s %.4f %d %.4f\n", "forward", 0.1, 3, 0.2));
    return 0;
}
