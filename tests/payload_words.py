#!/usr/bin/env python3
"""Is what payloads of scripts know of a call beside its arguments what the program does: who calls?

usage: tests/payload_words.py [--sptrace PATH] [--only GLOB]...

Programs of which the answers are known. Needs gcc.
"""
import csv, io, subprocess, sys

from harness.bench import main
from harness.case import Cases

CALLERS = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
F int probe(int n) { sink += n; return n; }
F void twice(int n) { probe(n); sink++; probe(n + 1); sink++; }
F void once(int n) { probe(n); sink++; }
int (*volatile through)(int) = probe;
F void pointed(int n) { sink += through(n); }
F int jumper(int n) { sink++; return probe(n); }
F void calls_jumper(int n) { sink += jumper(n); }
F void child_side(void) { for (int i = 0; i < 7; i++) probe(i); sink++; }
F void *threaded(void *x) { for (int i = 0; i < 50; i++) probe(i); return x; }
int main(int argc, char **argv) {
    if (argc > 1) { child_side(); for (int i = 0; i < 3; i++) once(i); return 0; }
    for (int i = 0; i < 100; i++) { twice(i); once(i); pointed(i); calls_jumper(i); }
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, threaded, 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    if (!fork()) { child_side(); execl("/proc/self/exe", "callers", "again", (char *)0); _exit(1); }
    int status;
    wait(&status);
    printf("%d\n", status);
    return 0;
}
"""

case = Cases()


def same(got, want): assert got == want, f"wanted {want}, got {got}"


def built(b, name, source):
    with open(b.path(f"{name}.c"), "w") as out: out.write(source)
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", b.path(name), b.path(f"{name}.c")], check=True)
    return b.path(name)


def recorded(b, name, script, *options):
    """The sheets of the script after the program has run as without us."""
    with open(b.path(f"{name}.rhai"), "w") as out: out.write(script)
    plain = subprocess.run([b.path(name)], capture_output=True, text=True)
    status, out, _ = b.run(["-q", *options, "-S", f"{name}.rhai"], [b.path(name)])
    same((status, out), (plain.returncode, plain.stdout))
    status, text, err = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", f"{name}.rhai")
    same((status, err), (0, ""))
    return [list(csv.DictReader(io.StringIO(part, newline=""))) for part in text.split("\n\n")]


def summed(rows, *columns):
    sums = {}
    for row in rows:
        key = tuple(row[c] for c in columns[:-1])
        sums[key] = sums.get(key, 0) + int(row[columns[-1]])
    return sums


PROBED = {"twice": 200, "threaded": 150, "once": 103, "jumper": 100, "pointed": 100, "child_side": 14}
AT_CALLS = """let calls = count("calls", ["caller"]); let both = sum("both", ["caller", "odd"], ["sum"]);
at("probe").on_enter(|c| { calls.add(c.caller); let who = c.caller; both.add([who, c.arg1 & 1], c.arg1); });
"""
AT_RETURNS = """let back = histogram("back", ["who"], "n"); at("probe").on_exit(|c| back.add(c.caller, c.result));"""


@case
def callers_by_name(b):
    """Several sites of a function, a pointer, a jump, threads, a fork child, and another program in its place."""
    built(b, "callers", CALLERS)
    calls, both, back = recorded(b, "callers", AT_CALLS + AT_RETURNS)
    wanted = {(name,): count for name, count in PROBED.items()}
    same(summed(calls, "caller", "count"), wanted)
    same(summed(both, "caller", "count"), wanted)
    same(summed(both, "caller", "odd", "sum")["child_side", "1"], 2 * (1 + 3 + 5))
    same(summed(back, "who", "count"), wanted)
    # Each function is one row, however many places call.
    same(len(calls), len(PROBED))


@case
def callers_by_the_slow_path(b):
    """Where a payload compares texts as well, or the call is recorded with values."""
    built(b, "callers", CALLERS)
    script = AT_CALLS + 'at("probe").on_enter(|c| if c.depth > 1000 { c.record(); });'
    calls, both = recorded(b, "callers", script)
    same(summed(calls, "caller", "count"), {(name,): count for name, count in PROBED.items()})
    same(summed(both, "caller", "odd", "sum")["child_side", "1"], 2 * (1 + 3 + 5))
    [calls, both, back] = recorded(b, "callers", AT_CALLS + AT_RETURNS, "-A", "probe@arg1/i32,retval/i32")
    same(summed(calls, "caller", "count"), {(name,): count for name, count in PROBED.items()})
    same(summed(back, "who", "count"), {(name,): count for name, count in PROBED.items()})


STATES = """let inside = thread_var("inside"); let last = thread_var("last"); let t = count("t", ["inside", "last"]); let s = sum("s", [], ["of"]);
at("twice").on_enter(|c| { inside.set(1); last.add(2); }); at("twice").on_exit(|c| inside.set(0));
at("probe").on_enter(|c| { t.add([inside.get(), last.get() >> 7]); if inside.get() == 1 && c.arg1 == 100 { c.record(); } });
at("child_side").on_enter(|c| s.add(last.get()));
"""


@case
def variables_of_a_thread(b):
    """What one function sets another finds, and a thread, a fork child and another program begin with nothing."""
    built(b, "callers", CALLERS)
    t, s = recorded(b, "callers", STATES)
    counts = summed(t, "inside", "last", "count")
    # Twice is entered a hundred times and adds two each time; probe is called by others three times after that.
    same(counts["1", "0"] + counts["1", "1"], 200)
    same((counts["1", "0"], counts["0", "0"] - 150 - 7 - 3 - 7, counts["0", "1"]), (2 * 63, 3 * 63, 3 * 37))
    same(summed(s, "of"), {(): 0})
    # The call that a payload records is the only one.
    _, tree, _ = b.sptrace_says("report", "functions", "-i", "t.data", "--format", "csv")
    [probe] = [row for row in csv.DictReader(io.StringIO(tree)) if row["function"] == "probe"]
    same(probe["calls"], "1")


@case
def variables_without_a_sheet(b):
    built(b, "callers", CALLERS)
    script = 'let n = thread_var("n"); at("once").on_enter(|c| { n.add(1); if n.get() == 10 { c.record(); } });'
    with open(b.path("n.rhai"), "w") as out: out.write(script)
    same(b.run(["-q", "-S", "n.rhai"], [b.path("callers")])[:2], (0, "0\n"))
    _, tree, _ = b.sptrace_says("report", "functions", "-i", "t.data", "--format", "csv")
    [once] = [row for row in csv.DictReader(io.StringIO(tree)) if row["function"] == "once"]
    same(once["calls"], "1")


KERNEL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static int pipes[2];
static sigjmp_buf out;
static volatile sig_atomic_t leaves;
static void handler(int n) { (void)n; char c; if (leaves) siglongjmp(out, 1); if (read(pipes[0], &c, 1) != 1) abort(); }
static void *thread(void *n) {
    char text[8];
    for (int i = 0; i < 30; i++) if (pread(*(int *)n, text, i % 9, 0) != (i % 9 < 8 ? i % 9 : 8)) abort();
    return n;
}
int main(void) {
    char text[64];
    int file = open("words.txt", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(file, "12345678", 8) != 8) abort();
    for (int i = 0; i < 50; i++) if (pread(file, text, 3, i % 10) < 0) abort();
    for (int i = 0; i < 7; i++) if (pread(-1, text, 1, 0) >= 0 || errno != EBADF) abort();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, thread, &file);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    /* A handler makes a call in the middle of one. */
    if (pipe(pipes) || write(pipes[1], "abc", 3) != 3) abort();
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 20000}}, 0);
    if (nanosleep(&(struct timespec){0, 60000000}, 0) != -1 || errno != EINTR) abort();
    /* One is jumped out of, and another made at its place. */
    for (int i = 0; i < 2; i++) {
        leaves = i == 0;
        if (i == 0) setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 20000}}, 0);
        if (sigsetjmp(out, 1) == 0) nanosleep(&(struct timespec){i == 0, 30000000}, 0);
    }
    if (!fork()) { for (int i = 0; i < 11; i++) if (pread(file, text, 5, 0) != 5) abort(); _exit(0); }
    wait(0);
    printf("done\n");
    return 0;
}
"""
OF_KERNEL = """
let results = count("results", ["result", "errno"]); let asked = sum("asked", ["descriptor is"], ["bytes"]); let longest = max("longest", [], "ns");
let shortest = min("shortest", [], "ns"); let inner = count("inner", ["result"]); let both = count("both", ["when"]); let forks = count("forks", []);
record_syscalls("all");
syscalls("pread64").on_exit(|c| { results.add([c.result, c.errno]); if c.result > 0 { asked.add(c.fd < 0, c.arg3); } });
syscalls("clock_nanosleep").on_exit(|c| { longest.add(c.elapsed); shortest.add(c.elapsed); both.add(1); }); syscalls("clock_nanosleep").on_enter(|c| both.add(0));
syscalls("read").on_exit(|c| if c.result == 1 { inner.add(c.result); }); syscalls("clone").on_exit(|c| forks.add([]));
"""


@case
def returns_of_system_calls(b):
    """With their results, errors, arguments and durations: in threads, a fork child and a handler, and where one is jumped out of."""
    import json
    with open(b.path("kernel.c"), "w") as out: out.write(KERNEL)
    subprocess.run(["gcc", "-O2", "-pthread", "-o", b.path("kernel"), b.path("kernel.c")], check=True)
    status, out, _ = b.run(["-q", "--eval", OF_KERNEL], [b.path("kernel")])
    same((status, out), (0, "done\n"))
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--eval", OF_KERNEL, "--format", "json")
    same((status, err), (0, ""))
    rows = {sheet["title"]: [tuple(row.values()) for row in sheet["rows"]] for sheet in map(json.loads, out.splitlines())}
    results = {}
    for i in range(50): results[min(3, max(0, 8 - i % 10)), 0] = results.get((min(3, max(0, 8 - i % 10)), 0), 0) + 1
    for i in range(60): results[min(8, i % 30 % 9), 0] = results.get((min(8, i % 30 % 9), 0), 0) + 1
    results[5, 0] = results.get((5, 0), 0) + 11
    results[-9, 9] = 7
    got = {(result - (1 << 64) if result >> 63 == 1 else result, errno): count for result, errno, count in rows["results"]}
    # What the loader reads so is not the program's.
    same({key: count for key, count in got.items() if key[0] <= 8}, results)
    same(rows["inner"], [(1, 1)])
    # Three begin, and two return; that one is missing is said.
    same(dict(rows["both"]), {0: 3, 1: 2})
    missed = [line.split()[0] for line in b.report("coverage").splitlines() if "with a payload" in line]
    same(missed, ["1"])
    same(rows["forks"], [(1,)])
    (longest,), (shortest,) = rows["longest"][0][-1:], rows["shortest"][0][-1:]
    assert 10**7 < shortest <= longest < 10**10, rows


@case
def wrong_variables_start_nothing(b):
    for does, why in {"x.take()": "does nothing else", "t.add(x)": "not compiled", "t.add(x.peek())": "gives no value"}.items():
        script = f'let t = count("t", ["k"]); let x = thread_var("x"); at("probe").on_enter(|c| {{ {does}; }});'
        status, _, err = b.run(["--eval", script], ["touch", b.path("started")])
        assert status != 0 and why in err and not b.has("started"), err
    script = "".join(f'let x{n} = thread_var("x{n}");' for n in range(8))
    assert "more than 7 variables of a thread" in b.run(["--eval", script], ["true"])[2]


@case
def callers_are_keys_alone(b):
    wrong = {
        "t.add(c.caller + 1)": "c.caller is a key",
        "if c.caller == 1 { t.add(1); }": "c.caller is a key",
        "s.add(1, c.caller)": "c.caller is a key",
        "t.add(c.caller); t.add(1)": "another payload adds a number",
    }
    for does, why in wrong.items():
        script = f'let t = count("t", ["k"]); let s = sum("s", ["k"], ["n"]); at("probe").on_enter(|c| {{ {does}; }});'
        status, _, err = b.run(["--eval", script], ["touch", b.path("started")])
        assert status != 0 and why in err and not b.has("started"), err


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
