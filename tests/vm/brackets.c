/* System calls between two readings of the time stamp counter each, which are printed at the end: NAME BEFORE AFTER.
   Static, so that a guest needs no library. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <x86intrin.h>

enum { ROUNDS = 100 };
static const char *names[6 * ROUNDS];
static unsigned long long before[6 * ROUNDS], after[6 * ROUNDS];
static int calls;

#define BETWEEN(name, call)                                                                                                    \
    do {                                                                                                                       \
        names[calls] = name;                                                                                                   \
        before[calls] = __rdtsc();                                                                                             \
        (void)!(call);                                                                                                         \
        after[calls++] = __rdtsc();                                                                                            \
    } while (0)

int main(void) {
    char buffer[64];
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY), ends[2];
    if (zero < 0 || null < 0 || pipe(ends)) return 1;
    for (int i = 0; i < ROUNDS; i++) {
        BETWEEN("getppid", syscall(SYS_getppid));
        BETWEEN("read", read(zero, buffer, sizeof buffer));
        BETWEEN("write", write(null, buffer, sizeof buffer));
        BETWEEN("write", write(ends[1], buffer, 1));
        BETWEEN("read", read(ends[0], buffer, 1));
        BETWEEN("getxattr", getxattr("/", "user.none", buffer, sizeof buffer));
    }
    for (int i = 0; i < calls; i++) printf("%s %llu %llu\n", names[i], before[i], after[i]);
    return 0;
}
