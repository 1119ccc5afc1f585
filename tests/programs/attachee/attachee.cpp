// Works for some seconds in one of several ways, and finds out by itself whether it was disturbed.
//
// usage: attachee MODE SECONDS      Prints `MODE: ok`, or what went wrong. Each mode is a way of being somewhere when
// somebody attaches: in system calls of all kinds, in calculation, in handlers, between throw and catch, on many threads,
// on other stacks, in children. What it prints does not depend on time.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

static std::chrono::steady_clock::time_point until;
static std::atomic<int> wrong;
static bool over() { return std::chrono::steady_clock::now() >= until; }
static void fail(const char *what, long value) {
    if (wrong++ < 5) printf("wrong: %s: %ld (%s)\n", what, value, strerror(errno));
}

__attribute__((noinline)) static unsigned leaf(unsigned x) { return x * 2654435761u ^ x >> 13; }
__attribute__((noinline)) static unsigned tree(unsigned x, int depth) {
    return depth == 0 ? leaf(x) : tree(leaf(x), depth - 1) + tree(x + 1, depth - 1);
}
static const unsigned EXPECTED = tree(7, 12);
static void calculate() {
    unsigned got = tree(7, 12);
    if (got != EXPECTED) fail("sum", got);
}

static void sleeps() { while (!over()) { timespec t{0, 3000000}; if (nanosleep(&t, &t) != 0) fail("nanosleep", 0); leaf(1); } }
static void polls(int fd) { while (!over()) { pollfd p{fd, POLLIN, 0}; int r = poll(&p, 1, 5); if (r != 0) fail("poll", r); leaf(2); } }
static void selects(int fd) {
    while (!over()) {
        fd_set s; FD_ZERO(&s); FD_SET(fd, &s);
        timeval t{0, 4000};
        int r = select(fd + 1, &s, nullptr, nullptr, &t);
        if (r != 0) fail("select", r);
    }
}
static void epolls(int fd) {
    int e = epoll_create1(0);
    epoll_event event{}; event.events = EPOLLIN;
    epoll_ctl(e, EPOLL_CTL_ADD, fd, &event);
    while (!over()) { int r = epoll_wait(e, &event, 1, 7); if (r != 0) fail("epoll_wait", r); leaf(3); }
}
static void reads(int fd) {
    for (char c = 0; c != 'q';) { ssize_t r = read(fd, &c, 1); if (r != 1) { fail("read", r); break; } leaf(4); }
}
static void waits_for_signals() {
    sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR2);
    while (!over()) { timespec t{0, 5000000}; int r = sigtimedwait(&set, nullptr, &t); if (r >= 0 || errno != EAGAIN) fail("sigtimedwait", r); }
}
static std::mutex mutex;
static std::condition_variable condition;
static int turn;
static void turns(int own, int all) {
    std::unique_lock<std::mutex> lock(mutex);
    while (!over()) {
        condition.wait_for(lock, std::chrono::milliseconds(20), [&] { return turn % all == own; });
        turn++; leaf(turn); condition.notify_all();
    }
}

static void waits() {
    int quiet[2], busy[2];
    if (pipe(quiet) != 0 || pipe(busy) != 0) abort();
    std::vector<std::thread> all;
    all.emplace_back(sleeps); all.emplace_back(polls, quiet[0]); all.emplace_back(selects, quiet[0]);
    all.emplace_back(epolls, quiet[0]); all.emplace_back(reads, busy[0]); all.emplace_back(waits_for_signals);
    all.emplace_back(turns, 0, 2); all.emplace_back(turns, 1, 2);
    while (!over()) { if (write(busy[1], "x", 1) != 1) fail("write", 0); usleep(2500); }
    if (write(busy[1], "q", 1) != 1) fail("write", 0);
    for (auto &t : all) t.join();
}

static void busy() { while (!over()) calculate(); }
static void crowd() {
    std::vector<std::thread> all;
    for (int i = 0; i < 64; i++)
        all.emplace_back([i] { while (!over()) { calculate(); if (i % 8 != 0) { timespec t{0, 1000000L * (i + 1)}; if (nanosleep(&t, nullptr) != 0) fail("nanosleep", i); } } });
    for (auto &t : all) t.join();
}
static void comings() {
    while (!over()) { std::vector<std::thread> all; for (int i = 0; i < 4; i++) all.emplace_back(calculate); for (auto &t : all) t.join(); }
}

static std::atomic<long> ticks;
static void tick(int) { int saved = errno; ticks++; leaf(ticks); tree(3, 3); errno = saved; }
static void timer() {
    struct sigaction a{}; a.sa_handler = tick; a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, nullptr);
    itimerval t{{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &t, nullptr);
    busy();
    itimerval none{}; setitimer(ITIMER_REAL, &none, nullptr);
    if (ticks < 10) fail("ticks", ticks);
}
static void suspends() {
    struct sigaction a{}; a.sa_handler = tick;
    sigaction(SIGALRM, &a, nullptr);
    sigset_t blocked, former; sigemptyset(&blocked); sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, &former);
    while (!over()) {
        long before = ticks;
        itimerval t{{0, 0}, {0, 2000}}; setitimer(ITIMER_REAL, &t, nullptr);
        int r = sigsuspend(&former);
        if (r != -1 || errno != EINTR) fail("sigsuspend", r);
        if (ticks != before + 1) fail("one tick", ticks - before);
    }
}

struct Thing { int &count; explicit Thing(int &c) : count(c) { count++; } ~Thing() { count--; } };
__attribute__((noinline)) static int thrower(int depth, int &count) {
    Thing thing(count);
    if (depth == 0) throw std::runtime_error("thrown");
    return thrower(depth - 1, count) + 1;
}
static void throws_one(int i) {
    int count = 0;
    try { thrower(i % 17, count); fail("not thrown", i); } catch (const std::exception &e) { if (std::string("thrown") != e.what()) fail("what", i); }
    if (count != 0) fail("destructors", count);
}
static void throws() {
    std::thread other([] { for (int i = 0; !over(); i++) throws_one(i); });
    for (int i = 0; !over(); i++) throws_one(i);
    other.join();
}

static jmp_buf place;
__attribute__((noinline)) static void jumper(int depth) { if (depth == 0) longjmp(place, 5); jumper(depth - 1); leaf(depth); }
static void jumps() { while (!over()) { int r = setjmp(place); if (r == 0) { jumper(20); fail("no jump", 0); } else if (r != 5) fail("longjmp", r); calculate(); } }

static ucontext_t here, there;
static void routine() { for (;;) { calculate(); swapcontext(&there, &here); } }
static void switches() {
    std::vector<char> stack(1 << 16);
    getcontext(&there);
    there.uc_stack.ss_sp = stack.data(); there.uc_stack.ss_size = stack.size(); there.uc_link = &here;
    makecontext(&there, routine, 0);
    while (!over()) { swapcontext(&here, &there); calculate(); }
}

static void children() {
    while (!over()) {
        pid_t pid = fork();
        if (pid == 0) { calculate(); _exit(wrong ? 1 : 42); }
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42) fail("child", status);
        if (system("exit 3") != 3 << 8) fail("system", 0);
    }
}
static void deep_one(int depth) { volatile char room[64]; room[depth % 64] = 1; if (depth > 0) deep_one(depth - 1); else calculate(); leaf(room[0]); }
static void deep() { while (!over()) deep_one(20000); }

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    std::string mode = argv[1];
    until = std::chrono::steady_clock::now() + std::chrono::milliseconds(long(atof(argv[2]) * 1000));
    struct { const char *name; void (*run)(); } modes[] = {
        {"waits", waits}, {"busy", busy}, {"crowd", crowd}, {"comings", comings}, {"timer", timer}, {"suspends", suspends}, {"throws", throws},
        {"jumps", jumps}, {"switches", switches}, {"children", children}, {"deep", deep}};
    for (auto &m : modes)
        if (mode == m.name) { m.run(); printf("%s: %s\n", m.name, wrong ? "disturbed" : "ok"); return wrong ? 1 : 0; }
    return 2;
}
