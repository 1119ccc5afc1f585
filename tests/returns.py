#!/usr/bin/env python3
"""Calls that keep their return addresses (`run --return-points`): the counts are the program's own, the ends of calls are seen, and
who looks at the stack from inside or outside finds what is there without sptrace.

usage: tests/returns.py [--sptrace PATH] [--programs FOLDER] [--only GLOB]

Given test programs (tests/programs/build.sh), gcc, and gdb and perf for what looks from outside (without them those cases are skipped). Gives
one line a case. Exit status: 1 if anything differs. Must not know how return points are patched.
"""
import argparse, csv, io, os, re, shutil, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, ROOT, Skip, find_sptrace, run_cases
from counts import IN_THE_LINKER, KINDS, SQL, Bench, same, tallied
from return_programs import AFTER, GENERATED, HANDLED, LABELS, LATER, LIBRARY, LOADER, OPENED, SPAWNING, THREADED, TIGHT
from runtimes import go_build

case = Cases()
POINTS = ("--return-points",)
# Addresses are the same in each run of `setarch -R`.
WALKER = r"""
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define HERE __attribute__((noinline, noclone))
static int waits;
HERE static int innermost(int n)
{
    void *frames[64], **frame = __builtin_frame_address(0);
    int found = backtrace(frames, 64);
    for (int i = 0; i < found; i++) printf("%p\n", frames[i]);
    printf("own %p %p %p\n", __builtin_return_address(0), __builtin_return_address(1), __builtin_return_address(2));
    for (int i = 0; i < 4 && frame; i++, frame = *frame) printf("by frame pointers %p\n", frame[1]);
    fflush(stdout);
    if (waits) pause();
    return n;
}
HERE static int third(int n) { return innermost(n) + 1; }
static int (*volatile pointer)(int) = third;
HERE static int second(int n) { return pointer(n) * 2; }
HERE static int first(int n) { int r = 0; for (int i = 0; i < n; i++) r += second(i); return r; }
static int compared(const void *a, const void *b) { return first(1) + *(const int *)a - *(const int *)b; }
int main(int argc, char **argv)
{
    int pair[2] = {2, 1};
    (void)argv;
    first(3);
    qsort(pair, 2, sizeof *pair, compared);
    waits = argc > 1;
    return first(1) & 0;
}
"""


BUSY = r"""
#define HERE __attribute__((noinline, noclone))
HERE int works(int n) { volatile int s = 0; for (int i = 0; i < 2000; i++) s += i * n; return s; }
HERE int third(int n) { return works(n) + 1; }
HERE int second(int n) { return third(n) + 1; }
HERE int first(int n) { return second(n) + 1; }
int main(void) { for (int i = 0;; i++) if (first(i) == 12345) return 0; }
"""


# `hidden` runs the functions, unseen where -N leaves it out; a handler calls them for the first time in a way that is seen.
UNSEEN = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#define HERE __attribute__((noinline, noclone))
static volatile int done, current;
#define F(n) HERE int l##n(int x) { __asm__ volatile(""); return x + n; } \
    HERE int f##n(int x, int rounds) { int s = x; for (int i = 0; i < rounds || (rounds > 10 && done <= n); i++) { s = l##n(s); s ^= 1; s = l##n(s) + 1; \
        if (s & 1) s += l##n(i); if (l##n(i) == -1) return 1; s = (s & 0xff) + 3; } return n; }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10)
#define C(n) case n: return f##n(1, k);
#define ALL C(1) C(2) C(3) C(4) C(5) C(6) C(7) C(8) C(9) C(10)
HERE int hidden(int which, int k) { switch (which) { ALL } return 0; }
HERE int seen(int which, int k) { switch (which) { ALL } return 0; }
static void on_alarm(int s) { (void)s; seen(current, 3); done = current + 1; }
int main(void)
{
    int r = 0;
    signal(SIGALRM, on_alarm);
    for (int i = 1; i <= 10; i++) {
        struct itimerval it = {{0, 0}, {0, 1000 + i * 37}};
        current = i;
        setitimer(ITIMER_REAL, &it, 0);
        r += hidden(i, 100);
    }
    return printf("%d\n", r) < 0;
}
"""

# Roots are called in every way there is. `shared` is called inside of them and outside, there by calls that lie deeper on the stack than
# a root has lain: who takes a root for open counts them.
ROOTED = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define HERE __attribute__((noinline, noclone))
#define STOP __asm__ volatile("" ::: "memory")
HERE int shared(int n) { STOP; return n + 1; }
HERE int middle(int n) { char room[4000]; __asm__ volatile("" :: "r"(room) : "memory"); int r = shared(n); STOP; return r + shared(n); }
HERE int root_direct(int n) { STOP; int r = middle(n); STOP; return r + 1; }
HERE int root_pointed(int n) { STOP; int r = middle(n); STOP; return r + 2; }
HERE int root_jumped(int n) { STOP; int r = middle(n); STOP; return r + 3; }
HERE int root_compared(const void *a, const void *b) { STOP; int r = middle(1); STOP; return *(const int *)a - *(const int *)b + r - r; }
HERE int root_recursive(int n) { STOP; int r = n ? root_recursive(n - 1) : middle(n); STOP; return r + 1; }
HERE int jumper(int n) { return root_jumped(n + 1); }
static int (*volatile pointer)(int) = root_pointed;
HERE static int outside(int n) { int r = middle(n); STOP; return r + middle(n + 1); }
static void *thread(void *of)
{
    long sum = 0;
    for (int i = 0; i < *(int *)of; i++) sum += root_direct(i) + outside(i) + pointer(i) + outside(i);
    return (void *)sum;
}
int main(int argc, char **argv)
{
    int n = atoi(argv[argc - 1]), pair[2] = {2, 1};
    long sum = 0;
    pthread_t threads[3];
    for (int i = 0; i < n; i++) {
        sum += outside(i) + root_direct(i) + outside(i) + pointer(i) + outside(i) + jumper(i) + outside(i);
        qsort(pair, 2, sizeof *pair, root_compared);
        pair[0] = 2, pair[1] = 1;
        sum += outside(i) + root_recursive(4) + outside(i);
    }
    for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, thread, &n);
    for (int i = 0; i < 3; i++) { void *r; pthread_join(threads[i], &r); sum += (long)r; }
    return printf("%ld\n", sum) < 0;
}
"""
# The same where an exception leaves the root.
THROWN = r"""
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#define HERE __attribute__((noinline, noclone))
#define STOP __asm__ volatile("" ::: "memory")
extern "C" {
HERE int shared(int n) { STOP; return n + 1; }
HERE int middle(int n) { char room[4000]; __asm__ volatile("" :: "r"(room) : "memory"); int r = shared(n); STOP; return r + shared(n); }
HERE int thrower(int n) { int r = middle(n); if (r >= 0) throw std::runtime_error("x"); return r; }
HERE int root_thrown(int n) { if (n < 0) return shared(n); int r = thrower(n); STOP; return r + n; }
HERE int outside(int n) { int r = middle(n); STOP; return r + middle(n); }
}
int main(int argc, char **argv)
{
    long sum = 0;
    for (int i = 0; i < atoi(argv[argc - 1]); i++) {
        sum += outside(i);
        try { sum += root_thrown(i); } catch (std::exception &e) { sum++; }
        sum += outside(i);
    }
    return printf("%ld\n", sum) < 0;
}
"""
# A handler on a stack that lies above that of the thread.
STRUCK = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define HERE __attribute__((noinline, noclone))
#define STOP __asm__ volatile("" ::: "memory")
static volatile int hits;
HERE int inner(int n) { STOP; return n + 1; }
HERE static void noted(void) { hits = inner(hits); }
static void on_signal(int s) { (void)s; noted(); STOP; }
HERE int struck(int n) { raise(SIGUSR1); STOP; return n + 1; }
HERE int outer(int n) { int r = struck(n); STOP; return r + inner(n); }
static char *low;
static void *thread(void *of)
{
    stack_t stack = {.ss_sp = low, .ss_size = 1 << 16};
    long r = 0;
    sigaltstack(&stack, 0);
    for (int i = 0; i < *(int *)of; i++) r += outer(i);
    return (void *)r;
}
int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    int n = atoi(argv[argc - 1]);
    pthread_t t;
    void *r;
    /* Memory is given from above: the handler's stack lies above the thread's. */
    low = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGUSR1, &action, 0);
    pthread_create(&t, 0, thread, &n);
    pthread_join(t, &r);
    return printf("%ld %d\n", (long)r, hits) < 0;
}
"""
# The same functions run unseen in two threads while a root calls them for the first time in a third.
BESIDE = UNSEEN[:UNSEEN.index("static void on_alarm")].replace("#include <signal.h>", "#include <pthread.h>").replace("#include <sys/time.h>", "#include <unistd.h>") + r"""
static volatile long sums[2];
static void *runs(void *of) { while (done <= 10) sums[(long)of] += hidden(current ? current : 1, 100); return 0; }
int main(void)
{
    pthread_t threads[2];
    int r = 0;
    for (long i = 0; i < 2; i++) pthread_create(threads + i, 0, runs, (void *)i);
    for (int i = 1; i <= 10; i++) { current = i; usleep(2000); r += seen(i, 3); usleep(1000); done = i + 1; }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return printf("%d\n", r) < 0;
}
"""


def walker(bench):
    program = f"{bench.folder}/walker"
    if not os.path.exists(program):
        with open(f"{program}.c", "w") as f: f.write(WALKER)
        subprocess.run(["gcc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", program, f"{program}.c"], check=True)
    return program


@case
def calls_of_every_kind_are_counted_to_the_call(bench):
    for kind in KINDS: tallied(bench, kind, POINTS)


@case
def calls_in_go_are_counted_to_the_call(bench):
    if not shutil.which("go"): raise Skip("go is not installed")
    program = f"{bench.folder}/tallies.go"
    environment = dict(os.environ, GOCACHE=f"{bench.folder}/gocache", GOFLAGS="-mod=mod", HOME=bench.folder)
    made = subprocess.run(go_build(f"{ROOT}/tests/runtimes/tallies.go", program, False), cwd=bench.folder, env=environment, capture_output=True, text=True)
    if made.returncode: raise Failed(made.stderr)
    tallied(bench, "go", POINTS, program)


@case
def functions_have_the_counts_of_the_usual_recording(bench):
    for argv in (["sqlite3", ":memory:", SQL], ["bash", "-c", "for i in 1 2 3; do echo $i; done; x=hello; echo ${x^^}"], ["sha256sum", "/bin/bash"]):
        if not shutil.which(argv[0]): continue
        found = []
        for options in ((), POINTS):
            counted, trace = bench.record("usual", options, argv)
            counts = bench.counts(trace)
            found.append((counted, {key: calls for key, calls in counts.items() if key[0] not in IN_THE_LINKER}))
        same(f"{argv[0]}: output and status", found[0][0], found[1][0])
        differ = {key: (found[0][1].get(key), found[1][1].get(key)) for key in found[0][1].keys() | found[1][1].keys() if found[0][1].get(key) != found[1][1].get(key)}
        if differ: raise Failed(f"{argv[0]}: {differ}")


def ends(bench, trace):
    """Sites by where the ends of their calls are seen; calls, and those whose end was not seen."""
    rows = list(csv.reader(io.StringIO(bench.report(trace, "coverage", "--format", "csv"))))
    head = rows[0]
    of = {row[head.index("key")]: int(row[head.index("count")]) for row in rows[1:] if row[0] == "ends of calls"}
    rows = list(csv.reader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed", "--format", "csv"))))
    sums = [sum(int(row[i]) for row in rows[1:]) for i in range(2)]
    return of, sums


@case
def nearly_all_ends_are_seen_where_calls_return_to(bench):
    for argv in (["sqlite3", ":memory:", SQL], ["ls", "-l", "/usr"], ["bash", "-c", "echo `echo hi`"]):
        if not shutil.which(argv[0]): continue
        _, trace = bench.record("ends", POINTS, argv)
        of, (calls, unseen) = ends(bench, trace)
        seen, other = [sum(n for what, n in of.items() if word in what) for word in ("return to", "implied")]
        # Some functions are first reached while a handler may run: see sptrace-limits(7).
        if not seen or other * 200 > seen: raise Failed(f"{argv[0]}: {of}")
        if unseen * 40 > calls: raise Failed(f"{argv[0]}: {unseen} of {calls} calls have no end")


def calls_of_adds(bench, name, text, calls):
    """A program whose interpreter calls `adds` so often, compiled in two ways: each of these calls has an end."""
    for level in ("-O1", "-O2"):
        program = f"{bench.folder}/{name}{level}"
        with open(f"{program}.c", "w") as f: f.write(text)
        subprocess.run(["gcc", level, "-fPIE", "-pie", "-o", program, f"{program}.c"], check=True)
        _, trace = bench.record(name, POINTS, [program])
        found = bench.report(trace, "functions", "--columns", "function,calls,untimed", "--format", "csv")
        same(f"{level}: calls, and those without an end", [calls, "0"], next(row[-2:] for row in csv.reader(io.StringIO(found)) if "adds" in row))


@case
def where_gotos_lead_is_known_from_an_array_on_the_stack(bench):
    """Ends in such a function were not seen, in Python's interpreter as well: 12 of 100 calls."""
    calls_of_adds(bench, "labels", LABELS, "6000")


@case
def where_gotos_lead_is_known_from_labels_in_what_is_interpreted(bench):
    """Ends in such a function were not seen, in Ruby's interpreter as well."""
    calls_of_adds(bench, "threaded", THREADED, "8000")


@case
def a_call_at_the_end_of_a_function_without_filling_has_an_end(bench):
    """No jump fits behind the call, nor nearby: a function that took all time had none."""
    for level in ("-O0", "-O1"):
        program = f"{bench.folder}/tight{level}"
        with open(f"{program}.c", "w") as f: f.write(TIGHT)
        subprocess.run(["gcc", level, "-falign-functions=1", "-o", program, f"{program}.c"], check=True)
        made, trace = bench.record("tight", POINTS, [program, "300"])
        same("status and output", (0, "30000 300\n"), made)
        rows = csv.reader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed,function", "--format", "csv")))
        found = {name: (int(calls), int(unseen)) for calls, unseen, name in rows if name.startswith("f_")}
        same(f"{level}: calls, and those without an end", {"f_slow": (300, 0), "f_often": (30000, 0), "f_caller": (300, 0), "f_last": (300, 0)}, found)


@case
def handlers_leave_the_tree_as_it_is(bench):
    """A handler that came in the middle of a routine, and left a call without an end, left the tree a level off from there on: thousands of 25,000 did. And
    where it had handed the chunk over, a record was missing, whether or not return addresses are replaced: in one of some thousand signals."""
    source, wanted = f"{bench.folder}/handling.c", {"f_outer": 300000, "f_middle": 300000, "f_leaf": 900000}
    with open(source, "w") as f: f.write(HANDLED)
    for form, options, stack in (("-DOPEN", POINTS, ()), ("-DOPEN", POINTS, ("alternate",)), ("-DENDS", POINTS, ()), ("-DENDS", ("--return-points=never",), ())):
        subprocess.run(["gcc", "-O1", form, "-o", f"{bench.folder}/handling", source], check=True)
        made, trace = bench.record("handled", options, [f"{bench.folder}/handling", "300000", *stack])
        same("output and status", (0, "900000 1\n"), made)
        counts, found = dict.fromkeys(wanted, 0), set()
        for name, callers in (("f_leaf", ("f_middle", "f_outer")), ("f_middle", ("f_outer",)), ("f_outer", ("main",))):
            for row in csv.DictReader(io.StringIO(bench.report(trace, "callers", name, "--format", "csv"))):
                counts[name] += int(row["calls"])
                if row["caller"] not in callers: found.add((name, row["caller"], row["calls"]))
        same(f"{form} {options} {stack}: calls, and those from where there are none", (wanted, set()), (counts, found))


@case
def jumps_of_ocamls_handlers_lead_to_no_patch(bench):
    """What only a handler jumps to was covered by the patch of a return point: the compiler ended by SIGSEGV."""
    if not shutil.which("ocamlopt"): raise Skip("ocamlopt is not installed")
    source = f"{bench.folder}/churn.ml"
    shutil.copy(f"{ROOT}/tests/runtimes/churn.ml", source)
    argv = ["ocamlopt", "-c", source]
    same("output and status", bench.run(*argv)[:2], bench.record("ocamlopt", POINTS, argv)[0])


@case
def what_a_shell_leaves_blocked_hides_no_ends(bench):
    """With a signal blocked at the start 40 of 100 ends were not seen, as if a handler might be running."""
    argv = [sys.executable, "-c", "import json; json.dumps(list(range(100)))"]
    found = []
    for blocked in ((), (signal.SIGWINCH,)):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        _, trace = bench.record("blocked", POINTS, argv)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        of, _ = ends(bench, trace)
        found.append(sum(n for what, n in of.items() if "implied" in what))
    if found[1] > found[0] * 1.1 + 10: raise Failed(f"{found} sites whose ends are implied, with and without a blocked signal")


@case
def ends_are_seen_where_several_threads_run(bench):
    """A call of the vdso, or of a string function in assembler, made them be left alone: 17 of 100 calls of git status had no end."""
    if not shutil.which("git"): raise Skip("git is not installed")
    folder = f"{bench.folder}/many"
    for i in range(2000):
        os.makedirs(f"{folder}/{i % 40}", exist_ok=True)
        open(f"{folder}/{i % 40}/{i}", "w").close()
    for words in (["init", "-q"], ["add", "."]): subprocess.run(["git", "-C", folder, *words], check=True)
    _, trace = bench.record("many.data", POINTS, ["git", "-C", folder, "-c", "core.preloadIndex=true", "status"])
    _, (calls, unseen) = ends(bench, trace)
    if unseen * 200 > calls: raise Failed(f"{unseen} of {calls} calls have no end")


@case
def ends_are_seen_in_java_the_second_time(bench):
    """A third of its calls had no end, since its functions are called from generated code while many threads run: those that were called before are patched while there is one."""
    if not shutil.which("java"): raise Skip("java is not installed")
    bench.variables = {**os.environ, "XDG_CACHE_HOME": f"{bench.folder}/cache"}
    for _ in range(2): _, trace = bench.record("java.data", POINTS, ["java", "-version"])
    bench.variables = None
    _, (calls, unseen) = ends(bench, trace)
    if unseen * 50 > calls: raise Failed(f"{unseen} of {calls} calls have no end")


@case
def ends_are_seen_of_what_is_reached_after_unseen_code(bench):
    """They were left alone until all threads stood still: GHC's collector of garbage had no ends, 1.6 of 1.9 million calls."""
    program = f"{bench.folder}/after"
    with open(f"{program}.c", "w") as f: f.write(AFTER)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, f"{program}.c"], check=True)
    made, trace = bench.record("reached", (*POINTS, "-N", "hidden"), [program])
    same("status and output", bench.run(program)[:2], made)
    rows = csv.reader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed,function", "--format", "csv")))
    found = {name: (int(calls), int(unseen)) for calls, unseen, name in rows if name.startswith("f_")}
    same("calls, and those without an end", {"f_late": (10000, 0), "f_leaf": (30000, 0)}, found)


@case
def the_program_sees_its_own_return_addresses(bench):
    program = walker(bench)
    alone = bench.run("setarch", "-R", program)
    for options in ((), ("-F", "first"), ("-F", "third"), ("-F", "*"), ("-D", "3"), ("-l", "walker"), ("--between", "first", "start", "exit")):
        traced = bench.run(bench.sptrace, "run", "-q", "-o", f"{bench.folder}/walked", *POINTS, *options, "--", "setarch", "-R", program)
        same(f"{options}: what the program sees of its stack", alone[1].splitlines(), traced[1].splitlines())
        same(f"{options}: status and errors", (alone[0], alone[2]), (traced[0], traced[2]))


def frames_of(words):
    """What gdb shows of the stack, without the innermost frame and arguments."""
    out = subprocess.run(["gdb", "-nx", "-batch", *words, "-ex", "bt"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120).stdout.decode("latin1")
    return [re.sub(r" \(.*", "", line) for line in out.split("\n") if re.match(r"#[1-9]", line)]


def waiting(bench, command):
    """The process that waits in `walker`."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    lines = 0
    # It waits after the fifth walk.
    while lines < 5: lines += process.stdout.readline().startswith(b"own")
    while True:
        # The last lines of that.
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as f: children = [int(p) for p in f.read().split()]
        pid = children[0] if children else process.pid
        with open(f"/proc/{pid}/syscall") as f:
            if f.read().startswith("34 "): return process, pid
        time.sleep(0.01)


@case
def gdb_and_cores_show_the_stack_without_a_script(bench):
    if not shutil.which("gdb"): raise Skip("gdb is not installed")
    program, core = walker(bench), f"{bench.folder}/core"
    shown = []
    for before in ([], [bench.sptrace, "run", "-q", "-o", f"{bench.folder}/outside", *POINTS, "--"]):
        process, pid = waiting(bench, [*before, "setarch", "-R", program, "waits"])
        try:
            shown.append(frames_of(["-p", str(pid), "-ex", f"generate-core-file {core}"]))
            shown.append(frames_of([program, core]))
        finally:
            os.kill(pid, 9)
            process.communicate()
    if not any("main" in line for line in shown[0]): raise Failed(f"the stack without sptrace: {shown[0]}")
    same("gdb of the running program", shown[0], shown[2])
    same("gdb of its core", shown[1], shown[3])


@case
def functions_that_run_unseen_are_not_patched_under_themselves(bench):
    """It ended by SIGILL or SIGSEGV in 9 of 10 runs."""
    program = f"{bench.folder}/unseen"
    with open(f"{program}.c", "w") as f: f.write(UNSEEN)
    subprocess.run(["gcc", "-O0", "-o", program, f"{program}.c"], check=True)
    alone = bench.run(program)[:2]
    for options in (("-N", "hidden"), ("-F", "seen"), ("-D", "2"), ("-l", "unseen")):
        for _ in range(10): same(f"{options}: output and status", alone, bench.record("patched", (*POINTS, *options), [program])[0])


@case
def functions_that_run_unseen_in_other_threads_are_not_patched_under_them(bench):
    program = f"{bench.folder}/beside"
    with open(f"{program}.c", "w") as f: f.write(BESIDE)
    subprocess.run(["gcc", "-O0", "-o", program, f"{program}.c", "-lpthread"], check=True)
    alone = bench.run(program)[:2]
    for options in (("-F", "seen"), ("-N", "hidden"), ("--between", "seen", "start", "exit")):
        for _ in range(10): same(f"{options}: output and status", alone, bench.record("beside.data", (*POINTS, *options), [program])[0])


def rooted(bench, name, compiler, text, options, wanted):
    """Calls inside of roots are recorded, and no others."""
    for level in ("-O0", "-O2"):
        program = f"{bench.folder}/{name}{level}"
        source = f"{program}.{'cc' if compiler == 'g++' else 'c'}"
        with open(source, "w") as f: f.write(text)
        subprocess.run([compiler, level, "-o", program, source, "-lpthread"], check=True)
        alone = bench.run(program, "1000")[:2]
        counted, trace = bench.record(name, (*POINTS, *options), [program, "1000"])
        same(f"{name}{level}: output and status", alone, counted)
        counts = {function: calls for (module, function), calls in bench.counts(trace).items() if module.startswith(name)}
        same(f"{name}{level}: calls", wanted, counts)


@case
def what_is_around_roots_is_not_recorded(bench):
    """However a root is called, and whether or not its end can be seen where it returns to."""
    roots = {"root_direct": 4000, "root_pointed": 4000, "root_jumped": 1000, "root_compared": 1000, "root_recursive": 5000, "middle": 11000, "shared": 22000}
    for options in (("-F", "root_*"), ("--between", "root_*", "start", "exit")): rooted(bench, "rooted", "gcc", ROOTED, options, roots)


@case
def payloads_run_at_calls_and_returns_of_every_kind(bench):
    """What a script adds at a function's calls and returns, in threads, through pointers and jumps; no call has a record."""
    program = f"{bench.folder}/payloads"
    with open(f"{program}.c", "w") as f: f.write(ROOTED)
    subprocess.run(["gcc", "-O2", "-o", program, f"{program}.c", "-lpthread"], check=True)
    alone = bench.run(program, "1000")[:2]
    script = 'let begun = count("begun", ["function"]); let ended = sum("ended", ["function"], ["sum"]);' + "".join(
        f'at("{name}").on_enter(|c| begun.add([{i}])); at("{name}").on_exit(|c| ended.add([{i}], c.result - c.arg1));'
        for i, name in enumerate(("root_direct", "root_pointed", "root_jumped", "middle")))
    # middle returns 2n + 2; a root adds its number to what middle has returned.
    n = 1000
    counted, trace = bench.record("payloads.data", (*POINTS, "--eval", script), [program, str(n)])
    same("output and status", alone, counted)
    tables = [list(csv.reader(io.StringIO(part))) for part in bench.report(trace, "script", "--eval", script, "--format", "csv").split("\n\n")]
    begun, ended = ({int(row[0]): row[1:] for row in table[1:]} for table in tables)
    calls = {0: 4 * n, 1: 4 * n, 2: n, 3: 4 * n + 4 * n + n + n + n + 2 * (6 * n + 2 * 3 * n)}
    same("calls", {i: [str(count)] for i, count in calls.items()}, begun)
    results = sum(range(n))
    sums = {0: 4 * results + 3 * 4 * n, 1: 4 * results + 4 * 4 * n, 2: results + 6 * n}
    same("returns", {i: int(ended[i][-1]) for i in sums}, sums)
    same("returns of middle", ended[3][0], begun[3][0])


@case
def a_root_ends_with_the_exception_that_leaves_it(bench):
    if not shutil.which("g++"): raise Skip("g++ is not installed")
    rooted(bench, "thrown", "g++", THROWN, ("-F", "root_*"), {"root_thrown": 1000, "thrower": 1000, "middle": 1000, "shared": 2000})


@case
def a_library_that_is_opened_again_at_its_place_is_patched_again(bench):
    """Its calls were seen the first time only."""
    loader, library = f"{bench.folder}/loader", f"{bench.folder}/libagain.so"
    for path, text, options in ((loader, LOADER, ["-ldl"]), (library, LIBRARY, ["-shared", "-fPIC", "-fvisibility=hidden"])):
        with open(f"{path}.c", "w") as f: f.write(text.replace("int entry(int x) {", '__attribute__((visibility("default"))) int entry(int x) {') if path == library else text)
        subprocess.run(["gcc", "-O2", "-o", path, f"{path}.c", *options], check=True)
    _, trace = bench.record("again", POINTS, [loader, library])
    counts = {function: calls for (module, function), calls in bench.counts(trace).items() if module == "libagain.so"}
    same("calls", (50, 100, 200), tuple(counts.get(name) for name in ("entry", "outer", "inner")))


@case
def a_handler_on_another_stack_hides_no_ends(bench):
    """What it had interrupted seemed never to end, and what came next to lie inside of it."""
    program = f"{bench.folder}/struck"
    with open(f"{program}.c", "w") as f: f.write(STRUCK)
    subprocess.run(["gcc", "-O1", "-o", program, f"{program}.c", "-lpthread"], check=True)
    _, trace = bench.record("struck.data", POINTS, [program, "100"])
    rows = csv.reader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed,function", "--format", "csv")))
    found = {function: (calls, untimed) for calls, untimed, function in rows}
    for name, calls in (("thread", "1"), ("outer", "100"), ("struck", "100"), ("inner", "200")): same(f"{name}: calls, and those without an end", (calls, "0"), found.get(name))


@case
def perf_sees_the_callers_by_frame_pointers(bench):
    if not shutil.which("perf"): raise Skip("perf is not installed")
    program, samples = f"{bench.folder}/busy", f"{bench.folder}/busy.perf"
    with open(f"{program}.c", "w") as f: f.write(BUSY)
    subprocess.run(["gcc", "-O1", "-fno-omit-frame-pointer", "-o", program, f"{program}.c"], check=True)
    process = subprocess.Popen([bench.sptrace, "run", "-q", "-o", f"{bench.folder}/busy.data", *POINTS, "--", program], stdin=subprocess.DEVNULL)
    try:
        time.sleep(1)
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as f: pid = int(f.read().split()[0])
        recorded = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-g", "-o", samples, "-p", str(pid), "--", "sleep", "0.5"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if recorded.returncode: raise Skip(f"perf may not record here: {recorded.stderr.strip()[:200]}")
        os.kill(pid, 9)
    finally: process.wait(timeout=60)
    text = subprocess.run(["perf", "script", "-i", samples, "-F", "ip,sym"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
    stacks = [[line.split()[1] for line in stack.splitlines() if len(line.split()) > 1] for stack in text.split("\n\n")]
    stacks = [stack for stack in stacks if stack and stack[0] == "works"]
    wrong = [stack for stack in stacks if stack[:5] != ["works", "third", "second", "first", "main"]]
    # In its first instructions a function has no frame pointer yet.
    if not stacks or len(wrong) * 50 > len(stacks): raise Failed(f"{len(wrong)} of {len(stacks)} stacks: {wrong[:1] or text[:400]}")


@case
def what_was_open_when_it_was_attached_to_ends_where_it_returns_to(bench):
    program, trace = f"{bench.folder}/opened", f"{bench.folder}/opened.data"
    with open(f"{program}.c", "w") as f: f.write(OPENED)
    subprocess.run(["gcc", "-O1", "-o", program, f"{program}.c"], check=True)
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(0.2)
        attach = [bench.sptrace, "attach", "-q", *POINTS, "-p", str(process.pid), "--for", "1s", "-o", trace]
        said = subprocess.run(attach, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stderr
        if said: raise Failed(said)
        with open(f"/proc/{process.pid}/maps") as f: left = [line for line in f if "zero" in line or "sptrace" in line]
        same("what is left of sptrace", [], left)
        out = process.communicate("\n", timeout=60)[0]
        same("output and status", ("15\n", 3), (out, process.returncode))
    finally: process.kill()
    tree = bench.report(trace, "tree")
    opened = [line.split("|")[1].split("(")[0].strip() for line in tree.splitlines() if "began earlier" in line and "|" in line]
    same("open at the beginning", ["main", "outer", "middle", "inner"], opened[opened.index("main"):][:4])
    for name in ("outer", "middle", "inner"):
        ended = [line for line in tree.splitlines() if name in line and "end not seen" in line]
        same(f"{name}: lines that show no end", [], ended)


@case
def ends_are_seen_in_threads_that_were_attached_to(bench):
    """Return points of what is reached later were left alone: a third of those of redis-server."""
    program, trace = f"{bench.folder}/later", f"{bench.folder}/later.data"
    with open(f"{program}.c", "w") as f: f.write(LATER)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, f"{program}.c"], check=True)
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(0.2)
        attach = [bench.sptrace, "attach", "-q", *POINTS, "-p", str(process.pid), "--for", "1s", "-o", trace]
        said = subprocess.run(attach, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stderr
        if said: raise Failed(said)
        with open(f"/proc/{process.pid}/maps") as f: left = [line for line in f if "zero" in line or "sptrace" in line]
        same("what is left of sptrace", [], left)
        out = process.communicate("\n", timeout=60)[0]
        same("output and status", ("done\n", 5), (out, process.returncode))
    finally: process.kill()
    of, (calls, unseen) = ends(bench, trace)
    # Those of the first moments have none.
    if not calls or unseen * 5 > calls: raise Failed(f"{unseen} of {calls} calls have no end: {of}")
    seen, other = [sum(n for what, n in of.items() if word in what) for word in ("return to", "implied")]
    if other * 10 > seen: raise Failed(f"sites whose ends are implied: {of}")


@case
def a_child_on_another_stack_hides_no_ends(bench):
    """What posix_spawn(3) makes runs on a stack of its own beside its parent's open calls: all that the parent called from then on seemed to lie in clone3."""
    program = f"{bench.folder}/spawning"
    with open(f"{program}.c", "w") as f: f.write(SPAWNING)
    subprocess.run(["gcc", "-O2", "-o", program, f"{program}.c"], check=True)
    _, trace = bench.record("spawning.data", POINTS, [program])
    rows = csv.reader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed,function", "--format", "csv")))
    found = {function: (calls, untimed) for calls, untimed, function in (row[-3:] for row in rows)}
    for name in ("forks", "spawns"): same(f"{name}: calls, and those without an end", ("3", "0"), found.get(name))
    same("awaits", ("6", "0"), found.get("awaits"))
    depths = {line.split("|", 1)[1].index("awaits") for line in bench.report(trace, "tree").splitlines() if " awaits(" in line and "|" in line}
    same("depths at which awaits is called", 1, len(depths))


@case
def ends_are_seen_of_what_generated_code_calls(bench):
    """Return points of what is reached after it were left alone where there are several threads: half of the calls in node had no end."""
    program = f"{bench.folder}/generated"
    with open(f"{program}.c", "w") as f: f.write(GENERATED)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, f"{program}.c"], check=True)
    alone = bench.run(program)[:2]
    counted, trace = bench.record("generated.data", POINTS, [program])
    same("output and status", alone, counted)
    of, (calls, unseen) = ends(bench, trace)
    # Those of the first moments have none.
    if not calls or unseen * 5 > calls: raise Failed(f"{unseen} of {calls} calls have no end: {of}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sptrace")
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.sptrace = find_sptrace(options.sptrace)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
