// Buffers that vanish between a call of the kernel that has filled them and the next one that is given them.
//
// A tracer that takes what was filled just now for memory that is there must see each way in which it goes:
// munmap, mprotect, mremap, and a handler that runs as the call returns. Each write must fail with EFAULT. Prints the
// number of writes that did; status 0.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 200 };

static char *volatile buffer;
static volatile sig_atomic_t ran;

static char *page(void)
{
    char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

static void vanish(int signal)
{
    (void)signal;
    munmap(buffer, PAGE);
    ran = 1;
}

/* Fills the buffer from a pipe, lets `go` take it away, and gives it to write(2). */
static int fails(int from, int to, void (*go)(void))
{
    buffer = page();
    if (read(from, buffer, 64) != 64) abort();
    go();
    return write(to, buffer, 64) == -1 && errno == EFAULT;
}

static void unmap(void) { munmap(buffer, PAGE); }
static void protect(void) { mprotect(buffer, PAGE, PROT_NONE); }
static void move(void)
{
    char *target = page();
    if (mremap(buffer, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) != target) abort();
}

int main(void)
{
    static void (*const ways[])(void) = {unmap, protect, move};
    static char text[64];
    int data[2], done[2], failed = 0, out[2];
    if (pipe(data) || pipe(done) || pipe(out)) return 1;
    for (int i = 0; i < 3 * ROUNDS; i++) {
        if (write(data[1], text, 64) != 64) return 1;
        failed += fails(data[0], out[1], ways[i % 3]);
    }
    printf("%d\n", failed);

    struct sigaction action = {.sa_handler = vanish, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        char c;
        for (int i = 0; i < ROUNDS; i++) {
            if (read(done[0], &c, 1) != 1 || write(data[1], text, 64) != 64 || kill(parent, SIGUSR1)) _exit(1);
        }
        _exit(0);
    }
    failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        ran = 0;
        buffer = page();
        if (write(done[1], "x", 1) != 1) abort();
        /* The handler may have come before the read, which fails then: what was sent is still there. */
        if (read(data[0], buffer, 64) != 64 && read(data[0], text, 64) != 64) abort();
        while (!ran) continue;
        failed += write(out[1], buffer, 64) == -1 && errno == EFAULT;
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    printf("%d\n", failed);
    return 0;
}
