// Calls with pointers of every kind that lead everywhere: nowhere, into the kernel, to the last bytes of what is mapped, behind
// the end of a mapped file, to memory that other threads map and unmap all the time; and calls of the kernel with the same.
// Given the number of calls; prints it, and how many strings have been at the end of their page.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define F extern "C" __attribute__((noinline, noipa))

struct Node { const char *name; const Node *next; int counts[4]; };

F int f_text(const char *p) { return (int)(long)p; }
F int f_texts(const char *const *p) { return p != nullptr; }
F int f_string(const std::string &p) { return (long)&p != 1; }
F int f_node(const Node *p) { return p != nullptr; }
F int f_out(int *p, double *q) { return (long)p != (long)q; }
F char *f_back(char *p, size_t bytes) { return p + bytes; }
F int f_format(const char *format, ...) { return format != nullptr; }
F int f_end(const char *p) { return p != nullptr; }

static const size_t PAGE = 4096;
static char *moving, *edge, *behind_file;
static int file;
static std::atomic<bool> is_over;

static void *unmap(void *) {
    while (!is_over) {
        munmap(moving, PAGE);
        mmap(moving, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        // Pointers in it, which lead on to the same places.
        for (size_t at = 0; at + 8 <= PAGE; at += 8) *(char **)(moving + at) = at % 24 == 0 ? moving + at : edge - at % 16;
        mprotect(moving, PAGE, PROT_NONE);
        mprotect(moving, PAGE, PROT_READ | PROT_WRITE);
    }
    return nullptr;
}

static void *shorten(void *) {
    for (long i = 0; !is_over; i++)
        if (ftruncate(file, i % 3 * PAGE) != 0) abort();
    return nullptr;
}

static uint64_t state = 88172645463325252u;

static uint64_t number() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static char *anywhere() {
    uint64_t n = number();
    switch (n % 12) {
    case 0: return nullptr;
    case 1: return (char *)(number() >> (n >> 8 & 63));
    case 2: return (char *)(0x800000000000 + (number() >> 20));
    case 3: return (char *)(~0ull - (n >> 8 & 0xffff));
    case 4: return (char *)(0xffffffffff600000 + (n >> 8 & 0xfff));
    case 5: case 6: return edge - (n >> 8 & 63);
    case 7: return edge + (n >> 8 & 63);
    case 8: return behind_file + (n >> 8 & 0x1fff);
    case 9: return (char *)&state - (n >> 8 & 0xffff);
    default: return moving + (n >> 8 & 0xfff);
    }
}

static void ask_kernel() {
    char *p = anywhere(), *q = anywhere();
    switch (number() % 8) {
    case 0: syscall(SYS_openat, -1, p, 0); break;
    case 1: syscall(SYS_write, -1, p, number() & 0xffff); break;
    case 2: syscall(SYS_newfstatat, -1, p, q, 0); break;
    case 3: syscall(SYS_sendmsg, -1, p, 0); break;
    case 4: syscall(SYS_writev, -1, p, number() & 15); break;
    case 5: syscall(SYS_execve, p, q, p); break;
    case 6: syscall(SYS_readlinkat, -1, p, q, number() & 0xfff); break;
    case 7: syscall(SYS_bind, -1, p, 16); break;
    }
}

int main(int, char **argv) {
    const long calls = atol(argv[1]);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *pages = (char *)mmap(nullptr, 2 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    mprotect(pages + PAGE, PAGE, PROT_NONE);
    edge = pages + PAGE;
    memset(pages, 'e', PAGE - 1);
    moving = (char *)mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    file = memfd_create("short", 0);
    if (ftruncate(file, PAGE) != 0) return 1;
    behind_file = (char *)mmap(nullptr, 4 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    const char *end = strcpy(edge - sizeof "at the end", "at the end");
    pthread_t threads[2];
    pthread_create(&threads[0], nullptr, unmap, nullptr);
    pthread_create(&threads[1], nullptr, shorten, nullptr);
    long ends = 0;
    for (long i = 0; i < calls; i++) {
        char *p = anywhere(), *q = anywhere();
        switch (number() % 9) {
        case 0: f_text(p); break;
        case 1: f_texts((const char *const *)p); break;
        case 2: f_string(*(std::string *)p); break;
        case 3: f_node((const Node *)p); break;
        case 4: f_out((int *)p, (double *)q); break;
        case 5: f_back(p, number() & 0xffff); break;
        case 6: f_format(p, q, p); break;
        case 7: ends++, f_end(end); break;
        case 8: ask_kernel(); break;
        }
    }
    is_over = true;
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    printf("%ld %ld\n", calls, ends);
    return 0;
}
