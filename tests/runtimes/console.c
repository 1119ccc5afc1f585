/* A Windows console program: heap, threads, structured exceptions, files. Built with mingw, run by wine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>
static DWORD WINAPI work(void *argument) {
    int n = (int)(size_t)argument, sum = 0;
    for (int i = 0; i < 20000; i++) { char *p = malloc(16 + i % 100); memset(p, i, 16); sum += p[3]; free(p); }
    return (DWORD)(sum + n);
}
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int argc, char **argv) {
    HANDLE threads[4]; DWORD result;
    for (int i = 0; i < 4; i++) threads[i] = CreateThread(NULL, 0, work, (void *)(size_t)i, 0, NULL);
    WaitForMultipleObjects(4, threads, TRUE, INFINITE);
    for (int i = 0; i < 4; i++) { GetExitCodeThread(threads[i], &result); printf("thread %d %d\n", i, (int)result); }
    int values[100]; for (int i = 0; i < 100; i++) values[i] = i * 7919 % 101;
    qsort(values, 100, sizeof *values, compare);
    printf("%d %d %d args %d %s\n", fib(18), values[0], values[99], argc, argc > 1 ? argv[1] : "");
    fflush(stdout);
    return 12;
}
