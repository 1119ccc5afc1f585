// C++ exceptions: thrown through ten frames with destructors, caught by type, rethrown, nested, out of a callback
// of a library function, in a thread; pthread_cancel and pthread_exit run destructors; foreign catch(...) rethrows.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#define TRACED __attribute__((noinline, noclone, noipa))

static int gone;
struct Guard { int n; explicit Guard(int i) : n(i) {} ~Guard() { gone += n; } };

TRACED static int f_through(int depth, int kind)
{
    Guard guard(depth);
    if (depth == 0) {
        if (kind == 0) throw 7;
        if (kind == 1) throw std::runtime_error("runtime");
        if (kind == 2) throw std::string("string");
        return 1;
    }
    return f_through(depth - 1, kind) + 1;
}

TRACED static int f_catch(int kind)
{
    try { return f_through(10, kind); }
    catch (int i) { return 100 + i; }
    catch (const std::exception &e) { return 200 + (int)std::string(e.what()).size(); }
    catch (...) { return 300; }
}

TRACED static int f_rethrow(int kind)
{
    try { try { Guard g(1000); f_through(5, kind); } catch (...) { gone += 10000; throw; } }
    catch (const std::exception &) { return 1; }
    catch (...) { return 2; }
    return 0;
}

TRACED static int f_nested()
{
    try { try { f_through(3, 0); } catch (int) { std::throw_with_nested(std::logic_error("outer")); } }
    catch (const std::exception &e) { try { std::rethrow_if_nested(e); } catch (int i) { return i; } }
    return -1;
}

TRACED static bool f_throwing_less(int a, int b) { if (a == 13) throw std::out_of_range("13"); return a < b; }

struct Announce { const char *what; ~Announce() { std::printf("destroyed %s\n", what); } };
TRACED static void f_wait_forever(int depth) { Announce a{"cancelled frame"}; if (depth > 0) f_wait_forever(depth - 1); else for (;;) pause(); }
TRACED static void f_exit_thread(int depth) { Announce a{"exiting frame"}; if (depth > 0) f_exit_thread(depth - 1); else pthread_exit((void *)5); }
extern "C" TRACED void *f_cancelled(void *) { f_wait_forever(3); return nullptr; }
extern "C" TRACED void *f_exiting(void *) { f_exit_thread(3); return nullptr; }

int main()
{
    for (int round = 0; round < 3; round++)
        for (int kind = 0; kind < 4; kind++) std::printf("kind %d -> %d, gone %d\n", kind, f_catch(kind), gone);
    for (int i = 0; i < 1000; i++) f_catch(i % 4);
    std::printf("gone %d\n", gone);
    std::printf("rethrow %d %d, nested %d, gone %d\n", f_rethrow(1), f_rethrow(0), f_nested(), gone);
    std::vector<int> v{5, 8, 13, 1, 4};
    try { std::sort(v.begin(), v.end(), f_throwing_less); } catch (const std::out_of_range &e) { std::printf("sort threw %s\n", e.what()); }
    std::exception_ptr carried;
    std::thread thread([&] { try { f_through(4, 1); } catch (...) { carried = std::current_exception(); } });
    thread.join();
    try { std::rethrow_exception(carried); } catch (const std::exception &e) { std::printf("carried %s\n", e.what()); }
    pthread_t id;
    void *result;
    pthread_create(&id, nullptr, f_cancelled, nullptr);
    usleep(20000);
    pthread_cancel(id);
    pthread_join(id, &result);
    std::printf("cancelled %d\n", result == PTHREAD_CANCELED);
    pthread_create(&id, nullptr, f_exiting, nullptr);
    pthread_join(id, &result);
    std::printf("exited %ld\n", (long)result);
    std::fflush(stdout);
    std::set_terminate([] { std::printf("terminate called\n"); std::fflush(stdout); _exit(77); });
    f_through(3, 2);
}
