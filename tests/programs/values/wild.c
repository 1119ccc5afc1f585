// Calls with pointers that lead nowhere: random ones, strings that end with their page, and memory that another thread maps and
// unmaps all the time. Prints how many calls there were.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define F __attribute__((noinline, noipa))
enum { CALLS = 100000, AT_END = 1000, GONE = 20000 };

static char *moving;
static atomic_int is_over;

F int f_wild(const char *p) { return (int)(long)p; }
F int f_end(const char *p) { return p != NULL; }
F int f_gone(const char *p) { return p == moving; }

static void *unmap(void *unused)
{
    while (!atomic_load(&is_over)) {
        munmap(moving, 4096);
        mmap(moving, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        memset(moving, 'x', 100);
    }
    return unused;
}

int main(void)
{
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < CALLS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* Of every size, so that some are near to what there is. */
        f_wild((const char *)(random >> (i & 63)));
    }
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    const char *end = strcpy(pages + 4096 - sizeof "at the end", "at the end");
    for (int i = 0; i < AT_END; i++) f_end(end);
    moving = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, unmap, NULL);
    for (int i = 0; i < GONE; i++) f_gone(moving);
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    printf("%d\n", CALLS + AT_END + GONE);
    return 0;
}
