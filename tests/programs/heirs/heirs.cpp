// Children that live longer than what their parent does to itself: each ends with a status that it computes by returns
// through many frames, longjmp, throw, or by going back to a stack that was copied to the heap, as greenlets are.
//
// heirs ask          reads letters: k keeps a stack, b goes back to it, f forks a child, g has the children go back;
//                    t forks a child that calls nothing until w has seen the code of this program be its own again
// heirs storm SECONDS      many children that live for 0 to 30 ms, of a process with two more threads
// Prints what came of each letter; of a storm, how many children ended with another status than they should.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

static const int SLOTS = 16;
static volatile int sink;
static volatile bool over;
static char kept[1 << 16];
static char *kept_low, *kept_high;
static jmp_buf there;
static int went_back;

static long now_us() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

TRACED static int f_leaf(int n) { return sink = n; }

// Below this is nothing that is kept.
TRACED static int f_capture(int n) {
    kept_low = static_cast<char *>(__builtin_frame_address(0)) - 512;
    if (setjmp(there) != 0) return went_back + n;
    memcpy(kept, kept_low, kept_high - kept_low);
    return n;
}
TRACED static int f_inner(int n) { return f_capture(n) + 1; }
TRACED static int f_middle(int n) { return f_inner(n) + 1; }
TRACED static int f_outer(int n) { return f_middle(n) + 1; }
TRACED static int f_keep(int n) {
    // With the return address.
    kept_high = static_cast<char *>(__builtin_frame_address(0)) + 16;
    return f_outer(n) + f_leaf(0);
}
TRACED static void f_go_back() {
    // The stack that is overwritten lies above.
    volatile char *room = static_cast<volatile char *>(__builtin_alloca(1 << 16));
    room[0] = 0;
    memcpy(kept_low, kept, kept_high - kept_low);
    longjmp(there, 1);
}

TRACED static int f_deep(int n) { return n == 0 ? f_leaf(0) : f_deep(n - 1) + 1; }
TRACED static int f_throw(int n) {
    if (n == 0) throw 7;
    return f_throw(n - 1) + f_leaf(1);
}
TRACED static int f_caught(int n) {
    try { return f_throw(n); } catch (int e) { return e; }
}
TRACED static void f_jump(jmp_buf to, int n) {
    if (n == 0) longjmp(to, 9);
    f_jump(to, n - 1);
    sink++;
}
TRACED static int f_jumped(int n) {
    jmp_buf to;
    int got = setjmp(to);
    if (got != 0) return got;
    f_jump(to, n);
    return 0;
}

// 0 to 5, by the time of `until` at the earliest.
TRACED static int f_live(int k, long until) {
    if (k > 0) return f_live(k - 1, until) + 1;
    do f_deep(20);
    while (now_us() < until);
    return 0;
}

TRACED static int f_child(int k, int ms) {
    long until = now_us() + ms * 1000;
    int got = f_live(5, until);
    got += k % 2 ? f_caught(6) : f_jumped(6);
    if (k % 5 == 0) usleep(ms * 500);
    return got + f_deep(10);
}
static int expected(int k) { return 5 + (k % 2 ? 7 : 9) + 10; }

static void *work(void *) {
    while (!over) {
        f_deep(30);
        f_caught(3);
        usleep(300);
    }
    return nullptr;
}

struct Child {
    pid_t pid;
    int status;
};

// Frames that a child has from its parent, to be returned through.
TRACED static pid_t f_fork(int depth, int k, int ms, bool goes_back) {
    if (depth > 0) {
        pid_t pid = f_fork(depth - 1, k, ms, goes_back);
        sink++;
        return pid;
    }
    pid_t pid = fork();
    if (pid == 0 && goes_back) {
        usleep(ms * 6000);
        went_back = 50;
        f_go_back();
    }
    return pid;
}

static volatile bool *go;
static unsigned char code[256];

// The code of f_capture and of what comes behind it, where calls are.
TRACED static bool f_is_own() {
    volatile unsigned char *now = reinterpret_cast<unsigned char *>(&f_capture);
    for (size_t i = 0; i < sizeof code; i++)
        if (now[i] != code[i]) return false;
    return true;
}

// No function is called in the child.
TRACED static long f_raw_fork() {
    long pid;
    asm volatile("syscall" : "=a"(pid) : "a"(57) : "rcx", "r11", "memory");
    while (pid == 0 && !*go) {}
    return pid;
}
TRACED static int f_fork_throw(int n) {
    if (n > 0) return f_fork_throw(n - 1) + f_leaf(1);
    if (f_raw_fork() == 0) throw 7;
    return 0;
}
TRACED static int f_caught_in_child() {
    try { return f_fork_throw(6); } catch (int e) { _exit(e); }
}

static int storm(int seconds) {
    long end = now_us() + seconds * 1000000L;
    pthread_t threads[2];
    for (auto &t : threads) pthread_create(&t, nullptr, work, nullptr);
    Child children[SLOTS] = {};
    int made = 0, wrong = 0;
    pid_t self = getpid();
    while (now_us() < end || made % SLOTS != 0) {
        Child &c = children[made % SLOTS];
        if (c.pid != 0) {
            int status = 0;
            if (waitpid(c.pid, &status, 0) != c.pid || status != c.status) {
                wrong++;
                printf("child %d ended with %#x, not %#x\n", made - SLOTS, status, c.status);
                fflush(stdout);
            }
        }
        int k = made++, ms = k * 7 % 31;
        // In a child that has gone back, too.
        int value = k % 40 == 0 || getpid() != self ? f_keep(3) : 6;
        if (value != 6) _exit(value);
        bool goes_back = k % 3 == 1;
        c.status = (goes_back ? 56 : expected(k)) << 8;
        c.pid = f_fork(8, k, ms, goes_back);
        if (c.pid == 0) _exit(f_child(k, ms));
    }
    for (auto &c : children) {
        int status = 0;
        if (c.pid != 0 && (waitpid(c.pid, &status, 0) != c.pid || status != c.status)) wrong++;
    }
    over = true;
    for (auto &t : threads) pthread_join(t, nullptr);
    printf("%d of %d children ended wrong\n", wrong, made);
    return wrong != 0;
}

// Not in registers, which go back, too.
static int gate[2], children;
static char letter;
static bool is_child;

static int ask() {
    go = static_cast<volatile bool *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    memcpy(code, reinterpret_cast<void *>(&f_capture), sizeof code);
    if (pipe(gate) != 0 || go == MAP_FAILED) return 1;
    puts("ready");
    fflush(stdout);
    while (read(0, &letter, 1) == 1) {
        int value = 0;
        if (letter == 'k') value = f_keep(3);
        if (value > 50 && is_child) _exit(value);
        if (letter == 'b') {
            letter = 'r';
            went_back = 50;
            f_go_back();
        }
        if (letter == 'f') {
            children++;
            if (fork() == 0) {
                is_child = true;
                went_back = 50;
                close(gate[1]);
                if (read(gate[0], &letter, 1) == 1) f_go_back();
                _exit(1);
            }
            value = children;
        }
        if (letter == 't') value = f_caught_in_child();
        if (letter == 'w') {
            while (!f_is_own()) {}
            *go = true;
            if (wait(&value) < 0) return 1;
            *go = false;
        }
        if (letter == 'g') {
            for (; children > 0; children--) {
                int status = 0;
                if (write(gate[1], "", 1) != 1 || wait(&status) < 0) return 1;
                value += status;
            }
        }
        printf("%c %d\n", letter, value);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "storm")) return storm(atoi(argv[2]));
    return ask();
}
