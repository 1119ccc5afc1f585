// Paths on the heap of brk(2), on the stack, among constants and in memory that the program has mapped, whose pages vanish
// between two calls that are given them; in the last also by another thread, while two more make and remove mappings.
//
// A tracer that takes such memory for memory that is there must see each way in which it goes: munmap, mprotect, mmap over
// it, mremap, advice, keys of pages, a file in its place that another process shortens, sbrk, also in a handler and in a child
// of vfork, and a fork that leaves it out. A call with the path succeeds before and fails with EFAULT after, but that a stack
// grows back where a page went from it. Prints whether it did so for each way, in a child of its own; status 0.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BEFORE = 20, GUARD = 102 };

static char *volatile place;
static int file;

/* 0, or why the path there leads nowhere. */
static int look(void)
{
    struct stat found;
    return stat(place, &found) == 0 ? 0 : errno;
}

static void unmap(void) { munmap(place, PAGE); }
static void protect(void) { mprotect(place, PAGE, PROT_NONE); }
static void cover(void) { mmap(place, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }
static void move(void)
{
    char *to = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(place, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) abort();
}
static void moved_over(void)
{
    char *from = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) abort();
}
/* Where the kernel, or the processor, knows no such thing, the page goes otherwise. */
static void guard(void)
{
    if (madvise(place, PAGE, GUARD)) protect();
}
static void lock(void)
{
    int key = pkey_alloc(0, 0);
    if (key < 0 || pkey_mprotect(place, PAGE, PROT_READ | PROT_WRITE, key)) return protect();
    if (look() != 0) abort();
    pkey_set(key, PKEY_DISABLE_ACCESS);
}
static void shorten(void)
{
    if (ftruncate(file, PAGE) || pwrite(file, "/", 2, 0) != 2) abort();
    if (mmap(place, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) != place) abort();
    for (int i = 0; i < BEFORE; i++)
        if (look() != 0) abort();
    pid_t child = fork();
    if (child == 0) _exit(ftruncate(file, 0));
    waitpid(child, NULL, 0);
}
static void shrink(void) { sbrk(-2 * PAGE); }
static void on_signal(int signal)
{
    (void)signal;
    shrink();
}
static void shrink_in_handler(void)
{
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
}
static void protect_in_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        mprotect(place, PAGE, PROT_NONE);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}
static void leave_out(void)
{
    if (madvise(place, PAGE, MADV_DONTFORK)) abort();
    pid_t child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
}
/* Grows it again after it shrank: new pages are there. */
static void shrink_and_grow(void)
{
    shrink();
    if (look() != EFAULT || sbrk(2 * PAGE) == (void *)-1) abort();
    strcpy(place, "/");
    if (look() != 0) abort();
    shrink();
}

static const struct {
    const char *name;
    void (*go)(void);
    int everywhere; // 2: and in another thread
} ways[] = {
    {"munmap", unmap, 2},          {"mprotect", protect, 2}, {"mmap", cover, 2},
    {"mremap", move, 2},           {"mremap over", moved_over, 2}, {"guard", guard, 2},
    {"key", lock, 1},              {"file", shorten, 2},     {"vfork", protect_in_vfork, 2},
    {"fork", leave_out, 1},        {"sbrk", shrink, 0},      {"handler", shrink_in_handler, 0},
    {"sbrk twice", shrink_and_grow, 0},
};

/* A page of its own: the names of ways are constants, too. */
static const struct {
    char before[PAGE], path[PAGE], behind[PAGE];
} __attribute__((aligned(PAGE))) constants = {"", "/", ""};

static int goes(void (*go)(void))
{
    if (place != constants.path) strcpy(place, "/");
    for (int i = 0; i < BEFORE; i++)
        if (look() != 0) return 1;
    go();
    for (int i = 0; i < BEFORE; i++)
        if (look() != EFAULT) return 2;
    return 0;
}

static int on_heap(void (*go)(void))
{
    char *end = sbrk(0);
    uintptr_t next = ((uintptr_t)end + PAGE - 1) & -(uintptr_t)PAGE;
    if (sbrk(next - (uintptr_t)end + 2 * PAGE) == (void *)-1) return 3;
    place = (char *)next;
    return goes(go);
}

static int on_constants(void (*go)(void))
{
    place = (char *)constants.path;
    return goes(go);
}

static int on_stack(void (*go)(void))
{
    char pages[3 * PAGE];
    place = (char *)(((uintptr_t)pages + PAGE - 1) & -(uintptr_t)PAGE);
    return goes(go);
}

static int on_mapping(void (*go)(void))
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 3;
    place = pages + PAGE;
    return goes(go);
}

static void *make_and_remove(void *nothing)
{
    for (;;) {
        char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) abort();
        strcpy(pages + PAGE, "/");
        struct stat found;
        for (int i = 0; i < 3; i++)
            if (stat(pages + PAGE, &found)) abort();
        munmap(pages, 2 * PAGE);
        if (stat(pages + PAGE, &found) == 0) continue; // another has it by now
    }
    return nothing;
}

static void (*going)(void);

static void *go_there(void *nothing)
{
    going();
    return nothing;
}

static void in_another_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_there, NULL) || pthread_join(thread, NULL)) abort();
}

static int beside_threads(void (*go)(void))
{
    pthread_t threads[2];
    going = go;
    // It is no neighbour of what they remove.
    char *pages = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 3;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, make_and_remove, NULL)) return 3;
    place = pages + 32 * PAGE;
    return goes(in_another_thread);
}

int main(void)
{
    file = memfd_create("file", 0);
    static const struct {
        const char *name;
        int (*go)(void (*)(void));
    } places[] = {{"heap", on_heap}, {"stack", on_stack}, {"constants", on_constants}, {"mapping", on_mapping}, {"mapping, in a thread", beside_threads}};
    enum { PLACES = sizeof places / sizeof *places };
    for (unsigned i = 0; i < PLACES * sizeof ways / sizeof *ways; i++) {
        unsigned way = i / PLACES, where = i % PLACES;
        if (ways[way].everywhere < (where == PLACES - 1 ? 2 : where > 0)) continue;
        pid_t child = fork();
        if (child == 0) _exit(places[where].go(ways[way].go));
        int status;
        if (waitpid(child, &status, 0) != child) return 1;
        printf("%s on the %s: %#x\n", ways[way].name, places[where].name, status);
    }
    return 0;
}
