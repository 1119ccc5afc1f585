// The library of unwind.cpp: exceptions of the host pass through it, are caught and thrown anew in it.
#include <stdexcept>
#include <string>
#define TRACED __attribute__((noinline, noclone, noipa))
static int passed;
struct Count { ~Count() { passed++; } };
extern "C" {
TRACED int plug_leaf(int x) { return x * 2; }
TRACED int plug_through(int (*host)(int), int x) { Count count; return host(x) + plug_leaf(x); }
TRACED int plug_catches(int (*host)(int), int x)
{
    try { Count count; return host(x) + plug_leaf(x); }
    catch (const std::string &s) { try { throw std::length_error(s); } catch (std::logic_error &) { return passed + plug_leaf(3); } }
    catch (...) { return plug_leaf(passed); }
}
}
