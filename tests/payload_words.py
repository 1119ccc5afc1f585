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


def same(got, want, why=""): assert got == want, f"wanted {want}, got {got} {why}"


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


STACKS = """let calls = count("calls", ["stack"]); let sizes = histogram("sizes", ["n", "stack"], "n"); let one = sum("one", ["stack"], ["sum"]);
at("probe").on_enter(|c| { calls.add(c.stack(3)); one.add(c.stack(1), c.arg1); if c.arg1 >= 0 { sizes.add([c.arg1 & 1, c.stack(2)], c.arg1); } });
"""
STACKS_BACK = """let back = count("back", ["stack"]); at("probe").on_exit(|c| back.add(c.stack(3)));
at("probe").on_exit(|c| if c.result >= 0 { back.add(c.stack(3)); });"""
AS_EVENTS = """let calls = count("calls", ["stack"]); at("probe").later(|e| calls.add(e.callers(3)));"""


def stacks_of(b, rows):
    """From main or the beginning of a thread on: what calls these is known by its place alone, or not at all."""
    counts = {}
    for (stack,), count in summed(rows, "stack", "count").items():
        names = stack.split(" > ")
        first = [at for at, name in enumerate(names) if name in ("main", "start_thread")]
        stack = " > ".join(names[first[0]:] if first else names)
        counts[stack] = counts.get(stack, 0) + count
    return counts


@case
def stacks_by_name(b):
    """As the host sees them: sites, a pointer, a jump, threads, a fork child, another program in its place."""
    built(b, "callers", CALLERS)
    [events] = recorded(b, "callers", AS_EVENTS)
    wanted = stacks_of(b, events)
    assert wanted["main > child_side"] == 14 and wanted["main > twice"] == 200, wanted
    for script, options in (STACKS, []), (STACKS + STACKS_BACK, []), (STACKS + STACKS_BACK, ["-A", "probe@arg1/i32,retval/i32"]):
        calls, sizes, one, *back = recorded(b, "callers", script, *options)
        same(stacks_of(b, calls), wanted)
        same(summed(one, "stack", "sum")["child_side",], 2 * sum(range(7)))
        same(summed(sizes, "stack", "count")["main > once",], wanted["main > once"])
        for rows in back: same(stacks_of(b, rows), {stack: 2 * count for stack, count in wanted.items()})


INTERRUPTED = r"""
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#define F __attribute__((noinline, noclone))
volatile int sink, left;
jmp_buf out;
F int probe(int n) { sink += n; return n; }
F void handler(int s) { probe(s); left++; }
F void innermost(int n) { if (n & 1) longjmp(out, 1); raise(SIGUSR1); probe(n); sink++; }
F void deep(int n, int m) { if (n) deep(n - 1, m); else innermost(m); sink++; }
int main(void) {
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, 0);
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &act, 0);
    for (volatile int i = 0; i < 200; i++) { if (!setjmp(out)) deep(20, i); probe(i); }
    printf("%d\n", left);
    return 0;
}
"""


@case
def stacks_of_handlers_and_after_jumps(b):
    """On another stack, deeper than a key has places for, and where frames have gone without a return."""
    built(b, "interrupted", INTERRUPTED)
    script = 'let t = count("t", ["stack"]); at("probe").on_enter(|c| t.add(c.stack(N)));'
    for places in 2, 16:
        [rows] = recorded(b, "interrupted", script.replace("N", str(places)))
        stacks = {stack: count for (stack,), count in summed(rows, "stack", "count").items()}
        same(sum(stacks.values()), 400)
        same([count for stack, count in stacks.items() if stack.endswith("main")], [200])
        if places == 2: same(stacks["deep > innermost"], 100)
        else: same(stacks[" > ".join(15 * ["deep"] + ["innermost"])], 100)
        same(sum(count for stack, count in stacks.items() if stack.endswith("handler")), 100)


@case
def calls_without_a_record_are_in_no_stack(b):
    """They have frames of another kind, which are passed over; so long ones end."""
    built(b, "interrupted", INTERRUPTED)
    script = 'let t = count("t", ["stack"]); let n = sum("n", [], ["calls"]); at("deep").on_enter(|c| n.add(1)); at("probe").on_enter(|c| t.add(c.stack(4)));'
    t, n = recorded(b, "interrupted", script)
    stacks = summed(t, "stack", "count")
    # The call of main is recorded, what it calls is not, and what deep calls is again.
    ends = [count for (stack,), count in stacks.items() if stack.endswith("> deep > innermost") and stack.count("deep") == 1]
    same((ends, [stack for stack, in stacks if "main > deep" in stack.replace("call_main", "")]), ([100], []))
    same(n[0]["calls"], str(200 * 21))


TEXTS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
F void take(const char *text, int n) { sink += n; }
F void gives(const char *text) { take(text, 1); sink++; }
int main(void) {
    char *end = (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
    munmap(end, 4096);
    strcpy(end - 4, "end");
    char text[600], *open = end - 3;
    for (int i = 0; i < 100; i++) { snprintf(text, sizeof text, "number %d", i % 10); gives(text); }
    memset(text, 'x', sizeof text);
    text[255] = 0; gives(text);
    text[255] = 'x'; text[256] = 0; gives(text);
    text[256] = 'x'; text[599] = 0; gives(text);
    text[599] = 0; text[598] = 'y'; gives(text);
    gives(0); gives(end - 4); gives(""); gives("a\"b, c");
    memset(end - 4, 'o', 4); gives(open);
    if (!fork()) { take("number 3", 2); take("child", 2); fflush(0); _exit(0); }
    int status;
    wait(&status);
    printf("%d\n", status);
    return 0;
}
"""
AT_TEXTS = """let t = count("t", ["text"]); let both = sum("both", ["text", "who", "n"], ["sum"]);
at("take").on_enter(|c| { t.add(c.str(1)); both.add([c.str("text"), c.caller, c.arg2 & 3], c.arg2); if c.arg1 == "number 7" { c.record(); } });
"""


@case
def texts_by_themselves(b):
    """Of any length, at the end of what can be read and behind it, in a fork child; cut ones that begin alike are one row."""
    built(b, "texts", TEXTS)
    t, both = recorded(b, "texts", AT_TEXTS)
    wanted = {f"number {i}": 10 for i in range(10)} | {"number 3": 11, "child": 1, "": 1, "end": 1, 'a"b, c': 1, "?": 2}
    wanted |= {"x" * 255: 1, "x" * 256 + "...": 3}
    same(summed(t, "text", "count"), {(text,): count for text, count in wanted.items()})
    sums = summed(both, "text", "who", "n", "sum")
    same((sums["number 3", "gives", "1"], sums["number 3", "main", "2"], sums["child", "main", "2"]), (10, 2, 2))
    _, tree, _ = b.sptrace_says("report", "functions", "-i", "t.data", "--format", "csv")
    [take] = [row for row in csv.DictReader(io.StringIO(tree)) if row["function"] == "take"]
    same(take["calls"], "10")


@case
def ready_scripts_by_stack_and_text(b):
    """hot-stacks and texts: what both say at the end, and that what they look at has no record."""
    built(b, "callers", CALLERS)
    built(b, "texts", TEXTS)
    status, _, err = b.run(["-q", "-S", "hot-stacks --of=probe --depth=2"], [b.path("callers")])
    rows = [line.split() for line in err.splitlines()]
    assert ["main", ">", "once", "103", "5.0", "kB"] in rows and ["calls_jumper", ">", "jumper", "100", "5.0", "kB"] in rows, err
    status, _, err = b.run(["-q", "-S", "texts --of=take"], [b.path("texts")])
    rows = [line.split() for line in err.splitlines()]
    assert ["number", "4", "gives", "10"] in rows and ["child", "main", "1"] in rows, err
    functions = b.sptrace_says("report", "functions", "-i", "t.data", "--format", "csv")[1]
    assert ",take," not in functions and "take" not in [row["function"] for row in csv.DictReader(io.StringIO(functions))], functions


@case
def texts_of_system_calls(b):
    """The first path of each, and how often."""
    script = 'record_syscalls("%file"); let t = count("t", ["path"]); syscalls("%file").on_enter(|c| t.add(c.str("path")));'
    with open(b.path("s.rhai"), "w") as out: out.write(script)
    built(b, "asks", '#include <unistd.h>\nint main(void) { for (int i = 0; i < 5; i++) access("/no/such", F_OK); return 0; }')
    same(b.run(["-q", "-S", "s.rhai"], [b.path("asks")])[0], 0)
    status, text, _ = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", "s.rhai")
    assert "/no/such,5" in text, text


SLOWEST = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
F int measured(long size, const char *name) { sink += name[0]; return (int)size & 7; }
F void few(long from) { for (long i = 0; i < 2000; i++) measured(from + i * 7 % 2000, i % 2 ? "odd" : "even"); sink++; }
F void many(void) { measured(1000000, "many"); sink++; measured(1000001, "more"); sink++; }
F void slow(int ms) { usleep(ms * 1000); sink++; }
static void handler(int n) { (void)n; measured(5, "handler"); }
F void interrupted(void) {
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, 0);
    for (long i = 0; i < 400000; i++) measured(2000000 + i, "rising");
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
}
static void *thread(void *from) { few((long)from); return 0; }
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) { interrupted(); printf("%d\n", argc); return 0; }
    few(10000);
    pthread_t t[4];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, thread, (void *)(20000 + 10000 * i));
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    many();
    measured(-3, "negative");
    for (int i = 0; i < 8; i++) slow(i == 3 ? 80 : i == 5 ? 40 : 1);
    printf("done\n");
    return 0;
}
"""
GREATEST = """
let sizes = slowest("sizes", 5, ["bytes", "name", "caller", "odd", "stack"]); let least = slowest("least", 1, ["n", "bytes"]);
let times = slowest("times", 2, ["ns", "ms", "caller", "tid"]); let back = slowest("back", 64, ["result", "bytes"]);
at("measured").on_enter(|c| { sizes.add(c.arg1, [c.str(2), c.caller, c.arg1 & 1, c.stack(2)]); least.add(0 - c.arg1, [c.arg1]); });
at("slow").on_exit(|c| times.add(c.elapsed, [c.arg1, c.caller, c.tid]));
at("measured").on_exit(|c| back.add(c.result, [c.arg1]));
"""


@case
def the_greatest_of_all_threads(b):
    """With what stands beside them: texts, callers and stacks, by the slow path; durations by the routines."""
    built(b, "greatest", SLOWEST)
    sizes, least, times, back = recorded(b, "greatest", GREATEST)
    same([(row["bytes"], row["name"], row["caller"], row["odd"]) for row in sizes],
         [("1000001", "more", "many", "1"), ("1000000", "many", "many", "0")]
         + [("51999", "odd", "few", "1"), ("51998", "even", "few", "0"), ("51997", "odd", "few", "1")])
    assert sizes[0]["stack"].endswith("main > many") and sizes[2]["stack"].endswith("thread > few"), sizes
    same(least, [{"n": "3", "bytes": "-3"}])
    same([row["ms"] for row in times], ["80", "40"])
    assert times[0]["caller"] == "main" and 80e6 <= int(times[0]["ns"]) < 20e9, times
    same((len(back), {row["result"] for row in back}), (64, {"7"}))


@case
def the_greatest_while_handlers_add(b):
    """Each call of the loop is greater than all before: a row is written all the time, and handlers come in the middle."""
    built(b, "greatest", SLOWEST)
    script = """let s = slowest("s", 3, ["bytes", "low"]); at("measured").on_enter(|c| s.add(c.arg1, [c.arg1 & 0xffff]));"""
    for run in range(5):
        status, out, _ = b.run(["-q", "--eval", script], [b.path("greatest"), "again"])
        same((status, out), (0, "2\n"))
        status, out, _ = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", "--eval", script)
        got = [(int(row["bytes"]), int(row["low"])) for row in csv.DictReader(io.StringIO(out))]
        same(got, [(n, n & 0xffff) for n in (2399999, 2399998, 2399997)])


OWN_TIMES = r"""
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
static jmp_buf out;
F void waits(int ms) { usleep(ms * 1000); sink++; }
F void leaf(int ms) { waits(ms); sink++; }
F void outer(int own) { waits(own); leaf(30); leaf(20); sink++; }
F int again(int n) { waits(2); int left = n ? again(n - 1) : 0; sink++; return left + 1; }
F void leaves(int n) { waits(10); if (n) longjmp(out, 1); sink++; }
F void left(void) { if (!setjmp(out)) leaves(1); waits(5); sink++; }
static void handler(int n) { leaf(n & 1); }
F void interrupted(void) {
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 2000}, {0, 2000}}, 0);
    for (int i = 0; i < 2000000; i++) sink += i;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
}
F void all(void) { outer(15); again(7); sink++; for (int i = 0; i < 3000; i++) leaf(0); interrupted(); sink++; }
static void *thread(void *x) { all(); return x; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, thread, 0);
    all();
    pthread_join(t, 0);
    left();
    printf("done\n");
    return 0;
}
"""
# `waits` is timed by another payload, so its time is its callers' own.
OWN = """
let own = sum("own", ["which"], ["ns"]); let whole = sum("whole", ["which"], ["ns"]); let least = min("least", [], "ns");
at("outer").on_exit(|c| { own.add(1, c.self_time); whole.add(1, c.elapsed); }); at("leaf").on_exit(|c| { own.add(2, c.self_time); whole.add(2, c.elapsed); });
at("again").on_exit(|c| { own.add(3, c.self_time); whole.add(3, c.elapsed); }); at("all").on_exit(|c| { own.add(4, c.self_time); whole.add(4, c.elapsed); });
at("le*").on_exit(|c| least.add(c.self_time)); at("left").on_exit(|c| { own.add(5, c.self_time); whole.add(5, c.elapsed); });
at("waits").on_exit(|c| whole.add(6, c.elapsed));
"""


@case
def time_without_that_inside(b):
    """What a call takes off is what calls inside have taken: in all nothing is counted twice, nothing is missing."""
    built(b, "own", OWN_TIMES)
    for options in [], ["-A", "leaf@arg1/i32,retval/i32"]:
        own, whole, least = recorded(b, "own", OWN, *options)
        own, whole = ({which: ns for (which,), ns in summed(rows, "which", "ns").items()} for rows in (own, whole))
        # Of two threads. A handler that comes in the midst of a payload of a return may be counted twice.
        parts = own["1"] + own["2"] + own["3"] + own["4"]
        assert abs(parts - whole["4"]) < 2e6, (parts, whole)
        assert 2 * 50e6 <= own["2"] <= whole["2"], (own, whole)
        assert 2 * 15e6 <= own["1"] <= whole["1"] - 2 * 50e6, (own, whole)
        # Each of eight calls in one another waits for 2 ms.
        assert 2 * 16e6 <= own["3"] < whole["3"] and whole["3"] >= 2 * (8 + 7 + 6 + 5 + 4 + 3 + 2 + 1) * 2e6, (own, whole)
        # Of what was jumped out of nothing is known: it is its caller's own.
        assert own["5"] == whole["5"] >= 15e6, (own, whole)
        assert 0 <= int(least[0]["min_ns"]), least


LINES = """
let rows = table("rows", ["tid", "n", "caller", "name"]); let few = table("few", ["n"]);
at("measured").on_enter(|c| { if c.arg1 < 100000 { rows.add([c.tid, c.arg1, c.caller, c.str(2)]); } });
at("many").on_enter(|c| { few.add(7); few.add([8]); c.print("many are called by {}", c.caller); });
at("slow").on_exit(|c| { c.print("slow({}) took {} ns in {}", c.arg1, c.elapsed, c.stack(2)); });
at("thread").on_enter(|c| c.print("a thread")); at("measured").on_enter(|c| if c.arg1 < 0 { c.print("{}, {}", c.arg1, c.str(2)) });
"""


@case
def rows_and_lines_in_the_order_of_time(b):
    """Of all threads, each with as much room; what has none is counted, and nothing is in the program's output."""
    built(b, "greatest", SLOWEST)
    rows, few = recorded(b, "greatest", LINES)
    # A thousand of each thread's two thousand.
    starts = {int(row["n"]) // 10000 for row in rows}
    same((len(rows), starts), (5000, {1, 2, 3, 4, 5}))
    of = {}
    for row in rows: of.setdefault(row["tid"], []).append((int(row["n"]), row["caller"], row["name"]))
    same(sorted(len(one) for one in of.values()), [1000] * 5)
    for one in of.values():
        start = one[0][0]
        same(one, [(start + i * 7 % 2000, "few", ("even", "odd")[i % 2]) for i in range(1000)])
    same([row["n"] for row in few], ["7", "8"])
    _, text, err = b.sptrace_says("report", "script", "-i", "t.data", "greatest.rhai")
    assert err == "" and "(5001 rows had no room in the program, where there are 1000 of a thread)" in text, text
    lines = [line.split(None, 3) for line in text.splitlines()]
    lines = [(line[2], line[3]) for line in lines if len(line) == 4 and line[1] in ("s", "ms", "us", "ns") and line[2].isdigit()]
    said = [line for _, line in lines]
    same(sorted(said[:4]), ["a thread"] * 4)
    same(len({tid for tid, _ in lines[:4]}), 4)
    same(said[4:6], ["many are called by main", "-3, negative"])
    same([line.split(" took ")[0] for line in said[6:]], [f"slow({n})" for n in (1, 1, 1, 80, 1, 40, 1, 1)])
    assert all(line.endswith(" ns in main") or line.endswith(" > main") for line in said[6:]), said
    # The recording's end has shown the same.
    status, out, err = b.run(["-S", "greatest.rhai"], [b.path("greatest")])
    same((status, out), (0, "done\n"), err)
    assert "many are called by main" in err and err.index("a thread") < err.index("-3, negative"), err
    assert "lines had no room" not in err, err


RETURNED = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
struct order { long number; int kind; short price; };
volatile int sink;
F char *named(int n, char *to) { sprintf(to, "name %d", n % 3); return to; }
F const char *none(int n) { return n ? (char *)(long)n : 0; }
F int fills(struct order *order, int n) { order->number = n; order->kind = -n; order->price = (short)(2 * n); return n; }
F int forgets(char *page) { munmap(page, 4096); return 3; }
static void *thread(void *x) { char to[32]; for (int i = 0; i < 30; i++) sink += named(i, to)[5]; return x; }
int main(void) {
    char to[32];
    struct order order = {0, 0, 0};
    for (int i = 0; i < 30; i++) sink += named(i, to)[5];
    for (int i = 0; i < 5; i++) sink += none(i) != 0;
    for (int i = 1; i < 4; i++) sink += fills(&order, i);
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "gone");
    sink += forgets(page);
    pthread_t t;
    pthread_create(&t, 0, thread, 0);
    pthread_join(t, 0);
    char *path = realpath("/proc/../usr/bin/../bin", 0);
    char at[] = "/tmp/hereXXXXXX", link[64] = "";
    close(mkstemp(at));
    if (unlink(at) || symlink("there", at)) abort();
    int length = (int)readlink(at, link, 63);
    printf("%s %d %s\n", path, length, link);
    unlink(at);
    free(path);
    return 0;
}
"""
AT_END = """
let names = count("names", ["text", "at"]); let found = count("found", ["path"]); let orders = sum("orders", ["kind", "result"], ["price"]);
let pages = count("pages", ["text", "result"]); let times = slowest("times", 3, ["ns", "text"]);
at("named").on_exit(|c| { names.add([c.result_str(), c.str(2)]); if c.result == "name 1" { times.add(c.elapsed, [c.result_str()]); } });
at("none").on_exit(|c| if c.result != "x" { found.add(c.result_str()); });
at("realpath*").on_exit(|c| found.add(c.result_str())); at("forgets").on_exit(|c| pages.add([c.str(1), c.result]));
at("fills").on_exit(|c| orders.add([c.order.kind, c.result], c.order.price));
"""
LINKED = """record_syscalls("all"); let links = count("links", ["from", "to"]);
syscalls("readlink").on_exit(|c| if c.result == 5 { links.add([c.str(1), c.str(2)]); });"""


@case
def texts_at_returns(b):
    """Of results and of what a call has filled, in threads, and where nothing is there any more."""
    built(b, "returned", RETURNED)
    for options in [], ["-A", "named@arg1/i32,retval/s"]:
        names, found, orders, pages, times = recorded(b, "returned", AT_END, *options)
        same(summed(names, "text", "at", "count"), {(f"name {n}", f"name {n}"): 20 for n in range(3)})
        same(summed(found, "path", "count"), {("?",): 5, ("/usr/bin",): 1})
        same(summed(orders, "kind", "result", "price"), {(str(-n), str(n)): 2 * n for n in range(1, 4)})
        same(summed(pages, "text", "result", "count"), {("?", "3"): 1})
        same([row["text"] for row in times], ["name 1"] * 3)
    same(b.run(["-q", "--eval", LINKED], [b.path("returned")])[:2], (0, "/usr/bin 5 there\n"))
    _, text, _ = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", "--eval", LINKED)
    [link] = csv.DictReader(io.StringIO(text))
    assert link["from"].startswith("/tmp/here") and (link["to"], link["count"]) == ("there", "1"), text


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
        "t.add(c.stack(17))": "1 to 16 callers are wanted",
        "t.add(c.str(c.arg2))": "which argument is not known",
        "let k = c.str(1); t.add(k)": "c.str() is a key",
        "t.add(c.str(8))": "an argument in a register",
        "t.add(c.str(1)); t.add(c.stack(2))": "another payload adds something else",
        "t.add(c.result_str())": "not known when a call begins",
        "t.add(c.stack)": "how many callers",
        "let k = c.stack(2); t.add(k)": "a stack is a key",
        "s.add(1, c.stack(2))": "a stack is a key",
        "if c.stack(2) == c.stack(2) { t.add(1); }": "a stack is a key",
        "t.add(c.stack(2)); t.add(c.caller)": "another payload adds something else",
        "t.add(c.caller); t.add(1)": "another payload adds something else",
    }
    for does, why in wrong.items():
        script = f'let t = count("t", ["k"]); let s = sum("s", ["k"], ["n"]); at("probe").on_enter(|c| {{ {does}; }});'
        status, _, err = b.run(["--eval", script], ["touch", b.path("started")])
        assert status != 0 and why in err and not b.has("started"), err


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
