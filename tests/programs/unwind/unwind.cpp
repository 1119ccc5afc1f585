// Everything that walks or unwinds the stack: throws through 1 to 100 frames, first with calls that are new, then known;
// thrown inside a destructor and a catch block, rethrown upwards, across a dlopen'ed library and back, out of handlers
// of SIGSEGV and SIGFPE; terminate by no handler, noexcept, a throw during unwinding and a violated thread (in
// children); forced unwinding; backtrace() and _Unwind_Backtrace with equal depths and the names of the functions.
#include <cfenv>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <unwind.h>
#include <vector>
#define TRACED __attribute__((noinline, noclone, noipa))

static long order;
struct Guard { int n; explicit Guard(int i) : n(i) {} ~Guard() { order = (order * 31 + n) % 1000003; } };
TRACED static int f_leaf(int n) { return n + 1; }

// --- through many frames
TRACED static int f_down(int depth)
{
    Guard guard(depth);
    if (depth == 0) throw std::runtime_error("bottom");
    return f_down(depth - 1) + f_leaf(depth);
}
template <int N> struct Chain { TRACED static int f_step(int x) { Guard guard(N); return Chain<N - 1>::f_step(x + 1) + f_leaf(x); } };
template <> struct Chain<0> { TRACED static int f_step(int x) { Guard guard(0); if (x > 0) throw x; return 0; } };
template <int N> TRACED static int f_new_functions() { try { return Chain<N>::f_step(0); } catch (int x) { return 1000 + x; } }
TRACED static int f_rethrowing(int depth)
{
    try { return depth == 0 ? f_down(3) : f_rethrowing(depth - 1) + f_leaf(depth); }
    catch (const std::exception &) { Guard guard(50 + depth); if (depth < 20) throw; return f_leaf(depth); }
}
struct Nester { int n; ~Nester() noexcept(false) { try { f_down(n); } catch (std::exception &) { order = (order * 37 + n) % 1000003; } if (n > 0 && n % 2) { try { Nester inner{n - 1}; throw n; } catch (int) { order++; } } } };
TRACED static int f_throw_in_destructor(int n) { try { Nester nester{n}; f_leaf(n); throw 'c'; } catch (char c) { return c; } }
TRACED static int f_throw_in_catch(int n)
{
    if (n == 0) throw 0;
    try { f_throw_in_catch(n - 1); }
    catch (int x) { try { f_down(n); } catch (std::exception &) { throw x + f_leaf(n); } }
    return -1;
}

// --- across a library
typedef int (*host_function)(int);
typedef int (*plug_function)(host_function, int);
static plug_function plug_through, plug_catches;
TRACED static int f_host_throws(int x) { Guard guard(7); if (x == 3) throw std::string("host"); if (x == 4) throw x; return f_leaf(x); }
TRACED static int f_host_bounces(int x) { Guard guard(8); return x > 10 ? plug_through(f_host_bounces, x - 10) : f_host_throws(x); }
static std::string beside(const char *argv0, const char *name) { std::string s(argv0); return s.substr(0, s.rfind('/') + 1) + name; }
TRACED static void f_library(const std::string &path)
{
    for (int round = 0; round < 5; round++) {
        void *plug = dlopen(path.c_str(), round & 1 ? RTLD_LAZY : RTLD_NOW);
        if (!plug) { std::printf("no library: %s\n", dlerror()); return; }
        plug_through = (plug_function)dlsym(plug, "plug_through");
        plug_catches = (plug_function)dlsym(plug, "plug_catches");
        int caught = 0;
        for (int x = 1; x < 50; x++) {
            try { caught += plug_through(f_host_bounces, x); }
            catch (const std::string &s) { caught += (int)s.size() * 100; }
            catch (int i) { caught += i * 1000; }
            caught += plug_catches(f_host_throws, x % 5);
        }
        std::printf("library round %d: %d order %ld\n", round, caught, order);
        dlclose(plug);
    }
}

// --- out of signal handlers (-fnon-call-exceptions)
static volatile int *volatile bad_pointer;
static volatile int zero;
TRACED static void f_throw_by_signal(int sig) { Guard guard(sig); f_leaf(sig); throw sig; }
static void on_signal(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    f_throw_by_signal(sig);
}
TRACED static int f_faults(int depth, int kind)
{
    Guard guard(depth);
    if (depth > 0) return f_faults(depth - 1, kind) + f_leaf(depth);
    return kind == 0 ? *bad_pointer : 17 / zero;
}
TRACED static int f_catch_signal(int depth, int kind) { try { return f_faults(depth, kind); } catch (int sig) { return 10000 + sig; } }

// --- terminate
TRACED static int f_noexcept(int n) noexcept { return f_down(n) + f_leaf(n); }
TRACED static int f_while_unwinding(int n) { struct Bad { ~Bad() { f_down(2); } } bad; if (n) throw n; return f_leaf(n); }
TRACED static void f_child(const char *name, void (*body)(), bool handler)
{
    std::fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (handler) std::set_terminate([] { std::printf("terminate, order %ld\n", order); std::fflush(stdout); _exit(70 + f_leaf(1)); });
        else if (!std::freopen("/dev/null", "w", stderr)) _exit(3);
        body();
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    std::printf("%s: %s %d\n", name, WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

// --- walking
static _Unwind_Reason_Code count(_Unwind_Context *context, void *data) { if (_Unwind_GetIP(context)) ++*(int *)data; return _URC_NO_REASON; }
static void names_of(void **frames, int n)
{
    for (int i = 0; i < n; i++) {
        Dl_info info;
        std::printf(" %s", dladdr(frames[i], &info) && info.dli_sname && info.dli_sname[0] == 'w' ? info.dli_sname : "-");
    }
    std::printf("\n");
}
extern "C" {
TRACED int walk_leaf(int names)
{
    void *frames[300];
    int n = backtrace(frames, 300), unwound = 0, again;
    _Unwind_Backtrace(count, &unwound);
    again = backtrace(frames, 300);
    std::printf("backtrace %d, _Unwind_Backtrace %d\n", n, unwound);
    if (names) names_of(frames, again);
    return n;
}
TRACED int walk_by_pointer(int (*f)(int), int names) { return f(names) + f_leaf(0); }
TRACED int walk_down(int depth, int names) { return depth == 0 ? walk_by_pointer(walk_leaf, names) + f_leaf(depth) : walk_down(depth - 1, names) + f_leaf(depth); }
TRACED int walk_tail(int depth, int names) { return walk_down(depth, names); }
TRACED int walk_compare(const void *a, const void *b)
{
    static bool done;
    if (!done) { done = true; walk_leaf(0); }
    return *(const int *)a - *(const int *)b;
}
}

// --- forced unwinding by _Unwind_ForcedUnwind
static jmp_buf out;
static _Unwind_Reason_Code stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *, _Unwind_Context *context, void *data)
{
    if (_Unwind_GetCFA(context) > (_Unwind_Word)data || actions & _UA_END_OF_STACK) longjmp(out, 1);
    return _URC_NO_REASON;
}
TRACED static int f_forced(int depth, _Unwind_Exception *exception, void *until)
{
    Guard guard(depth);
    if (depth > 0) return f_forced(depth - 1, exception, until) + f_leaf(depth);
    return (int)_Unwind_ForcedUnwind(exception, stop, until);
}

int main(int argc, char **argv)
{
    (void)argc;
    for (int round = 0; round < 2; round++)
        for (int depth = 1; depth <= 100; depth += depth < 12 ? 1 : 11)
            try { f_down(depth); } catch (const std::exception &e) { std::printf("%d frames: %s %ld\n", depth, e.what(), order); }
    std::printf("chains %d %d %d %d\n", f_new_functions<1>(), f_new_functions<10>(), f_new_functions<100>(), f_new_functions<100>());
    std::printf("rethrown %d, order %ld\n", f_rethrowing(20), order);
    for (int i = 0; i < 5; i++) std::printf("destructor %d, order %ld\n", f_throw_in_destructor(i), order);
    for (int i = 1; i < 6; i++) try { f_throw_in_catch(i); } catch (int x) { std::printf("catch %d, order %ld\n", x, order); }
    f_library(beside(argv[0], "unwind.so"));
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGFPE, &action, nullptr);
    for (int depth = 0; depth < 40; depth += 13)
        for (int kind = 0; kind < 2; kind++) { int r = f_catch_signal(depth, kind); std::printf("signal %d, order %ld\n", r, order); }
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGFPE, SIG_DFL);
    for (int handler = 0; handler < 2; handler++) {
        f_child("nobody catches", [] { f_down(5); }, handler);
        f_child("noexcept", [] { try { f_noexcept(5); } catch (...) { _exit(1); } }, handler);
        f_child("while unwinding", [] { try { f_while_unwinding(1); } catch (...) { _exit(1); } }, handler);
        f_child("in a thread", [] { std::thread([] { f_down(4); }).join(); }, handler);
        f_child("rethrow of nothing", [] { throw; }, handler);
    }
    for (int round = 0; round < 3; round++) { walk_down(round * 40, round == 0); walk_tail(2, 1); }
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof(int), walk_compare);
    std::thread([] { walk_down(3, 0); }).join();
    static _Unwind_Exception exception;
    for (int depth = 0; depth < 30; depth += 7) {
        char here;
        if (setjmp(out) == 0) f_forced(depth, &exception, &here);
        std::printf("forced %d, order %ld\n", depth, order);
    }
    for (int i = 0; i < 3000; i++) try { f_down(i % 9); } catch (const std::exception &) { order += f_leaf(i); }
    std::printf("order %ld\n", order);
    return 0;
}
