// Sends a signal and says when, as TSC: stamped PID SIGNAL.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    pid_t pid = atoi(argv[1]);
    int number = atoi(argv[2]);
    unsigned long long now = __rdtsc();
    if (kill(pid, number) != 0) return 1;
    printf("%llu\n", now);
    return 0;
}
