// usage: throw [THROWS] [FRAMES]
//
// What a C++ throw through so many frames (10) costs, in TSC ticks: the tenth percentile and the median of rounds of 500.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>
#include <x86intrin.h>
static int depth = 10;
__attribute__((noinline)) static int down(int n)
{
    if (n == 0) throw 1;
    int r = down(n - 1) + n;
    asm volatile("" : "+r"(r));
    return r;
}
__attribute__((noinline)) static int once(int n) { try { return down(n); } catch (int x) { return x; } }
int main(int argc, char **argv)
{
    int throws = argc > 1 ? atoi(argv[1]) : 200000;
    if (argc > 2) depth = atoi(argv[2]);
    std::vector<double> rounds;
    int sum = 0;
    for (int i = 0; i < 1000; i++) sum += once(depth - 1);
    const int each = 500;
    for (int r = 0; r < throws / each; r++) {
        unsigned long long t = __rdtsc();
        for (int i = 0; i < each; i++) sum += once(depth - 1);
        rounds.push_back(double(__rdtsc() - t) / each);
    }
    std::sort(rounds.begin(), rounds.end());
    printf("%.0f %.0f %d\n", rounds[rounds.size() / 10], rounds[rounds.size() / 2], sum == 0);
}
