#!/usr/bin/env python3
"""Calls that are counted and not recorded (`run --count`, and `--hot-limit` for some functions at times), or recorded in order without
stamps (`--stamps none`), held against what is known of them.

usage: tests/counts.py [--sptrace PATH] [--programs FOLDER] [--only GLOB]

Given test programs (tests/programs/build.sh). A program that makes known numbers of calls, of all kinds, on threads and in
children, must be counted to the call; programs of the machine that do the same each time must have the counts that a recording of
all calls has, function by function, but for what the dynamic linker does when it looks a function up (see IN_THE_LINKER). Output
and status must be those of the program alone. Exit status: 1 if anything differs.
"""
import argparse, collections, csv, io, os, re, shutil, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, ROOT, Skip, find_sptrace, run_cases
from runtimes import go_build

case = Cases()
KINDS = ("O0", "O2", "static")
# A call by way of the linker's resolver is the resolver's in a count; a recording knows who began it.
IN_THE_LINKER = ("ld-linux-x86-64.so.2", "[unknown]", "[vdso]")
SQL = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<3000) insert into t select x, x*7%13 from c; create index i on t(b); select sum(a*b) from t;"


class Bench:
    def __init__(self, options, folder):
        self.sptrace, self.programs, self.folder, self.variables = options.sptrace, options.programs, folder, None

    def program(self, name):
        path = f"{self.programs}/{name}"
        if not os.path.exists(path): raise Skip(f"no {path}")
        return path

    def run(self, *words):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=self.variables)
        return done.returncode, done.stdout, done.stderr

    def report(self, trace, *words):
        status, out, error = self.run(self.sptrace, "report", *words, "-i", trace)
        if status: raise Failed(f"report {words}: {error}")
        return out

    def record(self, name, options, argv):
        """The command's status and output, and the path of its trace."""
        trace = f"{self.folder}/{name}"
        status, out, error = self.run(self.sptrace, "run", "-q", "-o", trace, *options, "--", *argv)
        if "sptrace:" in error: raise Failed(error)
        return (status, out), trace

    def counts(self, trace):
        """(module, function): calls."""
        rows = csv.reader(io.StringIO(self.report(trace, "functions", "--columns", "calls,module,function", "--format", "csv")))
        sums = collections.Counter()
        for calls, module, function in list(rows)[1:]: sums[module, function] += int(calls)
        return sums


def same(what, wanted, found):
    if wanted != found: raise Failed(f"{what}: not {wanted!r} but {found!r}")


def tallied(bench, kind, options=("--count",), program=None):
    program = program or bench.program(f"tallies.{kind}")
    alone = bench.run(program)[:2]
    counted, trace = bench.record("tallies", options, [program])
    same("output and status", alone, counted)
    found = {function: calls for (module, function), calls in bench.counts(trace).items() if module.startswith("tallies")}
    for line in alone[1].split("\n")[:-1]:
        if line.startswith("#"): continue
        function, calls = line.split()
        same(f"{kind}: calls of {function}", int(calls), found.get(function))
    return trace


@case
def calls_of_every_kind_are_counted_to_the_call(bench):
    for kind in KINDS: tallied(bench, kind)


@case
def calls_that_are_recorded_in_order_are_counted_to_the_call(bench):
    for kind in KINDS: tallied(bench, kind, ("--stamps", "none"))


@case
def calls_in_go_are_counted_to_the_call_stripped_or_not(bench):
    """Its runtime's own table names the functions; goroutines change stacks and threads, and stacks move."""
    if not shutil.which("go"): raise Skip("go is not installed")
    for is_stripped in (False, True):
        program = f"{bench.folder}/tallies.go.{'stripped' if is_stripped else 'symbols'}"
        environment = dict(os.environ, GOCACHE=f"{bench.folder}/gocache", GOFLAGS="-mod=mod", HOME=bench.folder)
        made = subprocess.run(go_build(f"{ROOT}/tests/runtimes/tallies.go", program, is_stripped), cwd=bench.folder, env=environment, capture_output=True, text=True)
        if made.returncode: raise Failed(made.stderr)
        for options in (("--count",), ("--stamps", "none"), ()):
            trace = tallied(bench, "go", options, program)
            if "seen in part" in bench.report(trace, "coverage"): raise Failed("all calls of a Go program are said to be seen in part")


@case
def who_calls_whom_is_known(bench):
    trace = tallied(bench, "O2")
    rows = list(csv.reader(io.StringIO(bench.report(trace, "callers", "turn_b", "--format", "csv"))))
    head, rows = rows[0], rows[1:]
    callers = {row[head.index("caller") if "caller" in head else head.index("function")]: int(row[head.index("calls")]) for row in rows}
    same("callers of turn_b", {"thread": 12000}, callers)
    text = bench.report(trace, "callees", "main")
    if "direct" not in text or "40,000" not in text: raise Failed(f"callees of main:\n{text}")


@case
def nothing_is_shown_as_a_time(bench):
    _, trace = bench.record("times", ["--count"], ["/bin/true"])
    for line in bench.report(trace, "functions").splitlines()[1:]:
        if line.split()[2:8] != ["?"] * 6: raise Failed(f"a time: {line}")


@case
def a_recording_of_all_calls_has_the_same_counts(bench):
    commands = [["ls", "-l", "/usr"], ["sqlite3", ":memory:", SQL], ["sh", "-c", "for i in 1 2 3; do ls /usr | wc -l; done; echo $(id -u)"], ["bash", "-c", "x=0; for i in {1..300}; do ((x+=i)); done; echo $x"], ["git", "--version"], ["sha256sum", "/bin/sh"]]
    for argv in commands:
        recorded, full = bench.record("full", [], argv)
        counted, count = bench.record("count", ["--count"], argv)
        same(f"{argv[0]}: output and status", recorded, counted)
        full, count = bench.counts(full), bench.counts(count)
        if not full: raise Failed(f"{argv[0]}: nothing recorded")
        differ = {key: (full[key], count[key]) for key in full.keys() | count.keys() if full[key] != count[key] and key[0] not in IN_THE_LINKER}
        if differ: raise Failed(f"{argv[0]}: of {len(full)} functions differ {list(differ.items())[:5]}")


def rows_of(bench, trace):
    return list(csv.DictReader(io.StringIO(bench.report(trace, "functions", "--format", "csv"))))


@case
def a_recording_in_order_has_the_counts_of_one_with_stamps(bench):
    commands = [["ls", "-l", "/usr"], ["sqlite3", ":memory:", SQL], ["bash", "-c", "x=0; for i in {1..300}; do ((x+=i)); done; echo $x"], ["git", "--version"], ["sha256sum", "/bin/sh"]]
    for argv in commands:
        recorded, full = bench.record("full", [], argv)
        ordered, order = bench.record("order", ["--stamps", "none"], argv)
        same(f"{argv[0]}: output and status", recorded, ordered)
        lost = [line for line in bench.report(order, "coverage", "--format", "csv").splitlines() if line.startswith("loss") and not line.rstrip().endswith(",0,")]
        full, order = bench.counts(full), bench.counts(order)
        differ = {key: (full[key], order[key]) for key in full.keys() | order.keys() if full[key] != order[key] and key[0] not in IN_THE_LINKER}
        if differ: raise Failed(f"{argv[0]}: of {len(full)} functions differ {list(differ.items())[:5]}; {lost}")


@case
def a_time_that_was_not_measured_is_marked_and_lies_within_its_bounds(bench):
    _, trace = bench.record("sleeper", ["--stamps", "none"], [bench.program("sleeper.O2")])
    rows = rows_of(bench, trace)
    slept = [row for row in rows if row["function"] == "f_sleep_50ms"]
    if len(slept) != 1: raise Failed(f"{slept}")
    slept = slept[0]
    least, most = int(slept["total_min_ns"]), int(slept["total_max_ns"])
    # Five times 50 ms and more.
    if not least <= int(slept["total_estimate_ns"]) <= most or most < 250_000_000: raise Failed(f"{slept}")
    for row in rows:
        measured = [row[name] for name in ("total_ns", "self_ns", "min_ns", "mean_ns", "max_ns", "p99_ns") if row[name]]
        if measured: raise Failed(f"a measured time: {row}")
    for line in bench.report(trace, "functions").splitlines()[1:]:
        for cell in line.split("  ")[0].split()[2:]:
            if cell[0].isdigit(): raise Failed(f"a time without a mark: {line}")
    calls = list(csv.DictReader(io.StringIO(bench.report(trace, "export", "csv"))))
    if not calls: raise Failed("no calls")
    for call in calls:
        if call["duration_ns"] or call["self_ns"]: raise Failed(f"a measured time: {call}")
        if call["end"] == "estimated" and not int(call["duration_min_ns"]) <= int(call["duration_max_ns"]): raise Failed(f"{call}")
    if "stamps     none" not in bench.report(trace): raise Failed("the summary does not say how it was recorded")


def heated(bench, kind, options=("--hot-limit", "20k")):
    """heats.c with a limit: its counts must be exact whatever was recorded and what counted."""
    program = bench.program(f"heats.{kind}")
    done, trace = bench.record("heats", options, [program, "300000"])
    if done[0]: raise Failed(f"status {done[0]}: {done[1]}")
    rows = list(csv.DictReader(io.StringIO(bench.report(trace, "functions", "--columns", "calls,untimed,module,function", "--format", "csv"))))
    found = {row["function"]: row for row in rows if row["module"].startswith("heats")}
    for line in done[1].split("\n")[:-1]:
        function, calls = line.split()
        if function != "handled":  # handlers of signals are called by the kernel
            same(f"{kind}: calls of {function}", int(calls), int(found[function]["calls"]))
    return found, trace


@case
def hot_functions_are_counted_to_the_call_and_cold_ones_recorded(bench):
    for kind in KINDS:
        found, _ = heated(bench, kind)
        # How soon that is, and whether a site through a pointer is found, depends on the machine.
        for function in ("direct", "tailed", "jumped"):
            if int(found[function]["untimed_calls"]) == 0: raise Failed(f"{kind}: no call of {function} was counted")
        # What a longjmp has left has no time either.
        if int(found["cold"]["untimed_calls"]) > int(found["cold"]["calls"]) / 2: raise Failed(f"{kind}: cold: {found['cold']}")


@case
def a_function_that_has_been_quiet_is_recorded_again(bench):
    _, trace = heated(bench, "O2")
    rows = list(csv.DictReader(io.StringIO(bench.report(trace, "levels", "--format", "csv"))))
    ended = [row for row in rows if row["function"] == "direct" and row["to_ns"]]
    if not ended: raise Failed(f"direct was counted to the end: {rows}")
    for row in ended:
        if int(row["from_ns"]) >= int(row["to_ns"]): raise Failed(f"{row}")
    summary = bench.report(trace)
    if "while they were hot (report levels)" not in summary: raise Failed(summary)


@case
def a_child_has_the_levels_of_its_parent_and_goes_back_to_recording(bench):
    status_and_output, trace = bench.record("heirloom", ["--hot-limit", "20k"], [bench.program("heirloom.O2"), "counts"])
    if status_and_output[0]: raise Failed(f"{status_and_output}")
    in_child = {function: int(calls) for function, calls in (line.split() for line in status_and_output[1].splitlines())}
    levels = list(csv.DictReader(io.StringIO(bench.report(trace, "levels", "--format", "csv"))))
    pids = [row["pid"] for row in levels if row["function"] == "direct"]
    if len(set(pids)) != 2: raise Failed(f"direct was counted in other processes than parent and child: {levels}")
    rows = csv.DictReader(io.StringIO(bench.report(trace, "export", "csv", "-o", "-")))
    recorded = collections.Counter(row["function"] for row in rows if row["pid"] == pids[-1])
    for function in ("direct", "pointed", "rare"):
        times = [row for row in levels if row["pid"] == pids[-1] and row["function"] == function]
        counted = max((int(row["counted_calls"]) for row in times), default=0)
        same(f"{function}: counted and recorded calls", in_child[function], counted + recorded[function])
    # The child is hot for a while, then quiet for long; the pointer leads to `rare` then.
    for function in ("direct", "rare"):
        if not recorded[function]: raise Failed(f"{function} is not recorded again in the child: {levels}")


@case
def hot_functions_that_take_long_stay_recorded(bench):
    """`cold` is called more than 300 times a second, as the others, but takes a millisecond."""
    for kind in ("O0", "O2"):
        for options in (["--hot-limit", "300", "--short-limit", "500us"], ["--eval", "hot_limit(300); short_limit(500.us);"]):
            found, _ = heated(bench, kind, options)
            if int(found["direct"]["untimed_calls"]) == 0: raise Failed(f"{kind}: no call of direct was counted")
            if int(found["cold"]["untimed_calls"]): raise Failed(f"{kind}: cold was counted: {found['cold']}")


@case
def with_a_limit_functions_have_the_counts_of_a_recording(bench):
    commands = [["ls", "-l", "/usr"], ["sqlite3", ":memory:", SQL], ["bash", "-c", "x=0; for i in {1..3000}; do ((x+=i)); done; echo $x"], ["sha256sum", "/bin/sh"]]
    for argv in commands:
        recorded, full = bench.record("full", [], argv)
        limited, some = bench.record("some", ["--hot-limit", "2k"], argv)
        same(f"{argv[0]}: output and status", recorded, limited)
        full, some = bench.counts(full), bench.counts(some)
        differ = {key: (full[key], some[key]) for key in full.keys() | some.keys() if full[key] != some[key] and key[0] not in IN_THE_LINKER}
        if differ: raise Failed(f"{argv[0]}: of {len(full)} functions differ {list(differ.items())[:5]}")


@case
def what_a_function_does_has_the_counts_of_a_recording_of_it(bench):
    """Counted within roots, by nesting: calls outside of them are neither recorded nor counted, whatever is patched there by then."""
    commands = [(["sqlite3", ":memory:", SQL], "sqlite3_step"), (["sqlite3", ":memory:", SQL], "sqlite3_*"), (["bash", "-c", "x=0; for i in {1..3000}; do ((x+=i)); done; echo $x"], "execute_command*"), (["sh", "-c", "for i in 1 2 3; do ls /usr | wc -l; done"], "malloc")]
    for argv, root in commands:
        for beside in (["-F", root], ["--between", root, "start", "exit"]):
            recorded, full = bench.record("full", beside, argv)
            full = bench.counts(full)
            if not full: raise Failed(f"{argv[0]} {beside}: nothing recorded")
            for options in (["--count"], ["--hot-limit", "2k"], ["--budget", "5%"]):
                done, some = bench.record("some", [*options, *beside], argv)
                same(f"{argv[0]} {options} {beside}: output and status", recorded, done)
                some = bench.counts(some)
                differ = {key: (full[key], some[key]) for key in full.keys() | some.keys() if full[key] != some[key] and key[0] not in IN_THE_LINKER}
                if differ: raise Failed(f"{argv[0]} {options} {beside}: of {len(full)} functions differ {list(differ.items())[:5]}")


@case
def a_child_does_not_count_in_cells_that_its_parent_has_made_since_the_fork(bench):
    for kind in ("O0", "O2"):
        for options in (["--hot-limit", "2k"], ["--count"], ["--stamps", "none"]):
            done, trace = bench.record("unborn", options, [bench.program(f"unborn.{kind}"), "400000"])
            if done[0]: raise Failed(f"{kind} {options}: status {done[0]}: {done[1]}")
            found = {function: calls for (module, function), calls in bench.counts(trace).items() if module.startswith("unborn")}
            for line in done[1].split("\n")[:-1]:
                function, parent, child = line.split()
                same(f"{kind} {options}: calls of {function}", int(parent) + int(child), found[function])


# What entry() calls is a function of the library's own.
LIBRARY = """
static volatile int sink;
__attribute__((noinline)) void NAME(int n) { sink += n; }
int entry(int n) { NAME(n); NAME(n); return sink; }
"""
OPENER = """
#include <dlfcn.h>
#include <stdio.h>
static int (*volatile pointer)(int);
__attribute__((noinline)) static int through(int n) { return pointer(n) + 1; }
int main(int count, char **paths) {
    int sum = 0;
    for (int round = 0; round < 6; round++) {
        void *library = dlopen(paths[1 + round % 2], RTLD_NOW);
        pointer = (int (*)(int))dlsym(library, "entry");
        fprintf(stderr, "%p\\n", (void *)pointer);
        for (int i = 0; i < 100; i++) sum += through(i);
        dlclose(library);
    }
    printf("%d\\n", sum);
    return 0;
}
"""


@case
def a_library_that_takes_the_place_of_another_is_seen(bench):
    """A call through one pointer leads to one address, where first one function is and then another."""
    replaced(bench)
    # Nothing of theirs is called but by the program.
    replaced(bench, "-nostartfiles")


def replaced(bench, *how):
    paths = []
    for name in ("first", "second"):
        paths.append(f"{bench.folder}/{name}.so")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *how, "-x", "c", "-o", paths[-1], "-"], input=LIBRARY.replace("NAME", name), text=True, check=True)
    program = f"{bench.folder}/opener"
    subprocess.run(["gcc", "-O2", "-x", "c", "-o", program, "-"], input=OPENER, text=True, check=True)
    alone = bench.run(program, *paths)
    if len(set(alone[2].split())) != 1: raise Skip("the libraries have different addresses")
    # Some of them once more: their functions are instrumented ahead then, and threads look at the clock elsewhere.
    for options in (["--stamps", "none"], ["--stamps", "auto"], ["--return-points=never"], ["--count"], [], ["--stamps", "auto"], ["--stamps", "none"], []):
        (status, out), trace = bench.record("opened", options, [program, *paths])
        same(f"{how} {options}: status and output", alone[:2], (status, out))
        counts = bench.counts(trace)
        found = {(module, name): calls for (module, name), calls in counts.items() if module in ("first.so", "second.so") and name in ("entry", "first", "second")}
        same(f"{how} {options}: counts", {("first.so", "entry"): 300, ("first.so", "first"): 600, ("second.so", "entry"): 300, ("second.so", "second"): 600}, found)


# Which of its functions are called is said by a word.
PARTS = "#include <stdio.h>\n#include <string.h>\nstatic volatile long sum;\n" + "".join(f"""
__attribute__((noinline)) void under{i}(void) {{ sum++; }}
__attribute__((noinline)) void leaf{i}(void) {{ under{i}(); sum += {i}; }}
__attribute__((noinline)) void part{i}(void) {{ for (int i = 0; i < {i + 1}; i++) leaf{i}(); sum++; }}""" for i in range(40)) + """
int main(int count, char **words) {
    int odd = !strcmp(words[1], "odd");
""" + "".join(f"    if (odd == {i % 2}) part{i}();\n" for i in range(40)) + """    printf("%ld\\n", sum);
    return 0;
}
"""


@case
def what_was_called_before_is_instrumented_ahead(bench):
    """It is so in the next recording, and seen as before; what is called for the first time then is seen as well, and what is not called any more is forgotten."""
    program = f"{bench.folder}/program"
    subprocess.run(["gcc", "-O2", "-x", "c", "-o", program, "-"], input=PARTS, text=True, check=True)
    for number, options in enumerate((["--count"], ["--stamps", "none"], ["--stamps", "auto"], ["--return-points=never"], [])):
        ahead, bench.variables = [], {**os.environ, "XDG_CACHE_HOME": f"{bench.folder}/cache{number}"}
        for word in ("even", "even", "odd", "odd", "odd"):
            alone = bench.run(program, word)[:2]
            done, trace = bench.record("parts", options, [program, word])
            same(f"{options} {word}: status and output", alone, done)
            found = {name: calls for (module, name), calls in bench.counts(trace).items() if name.startswith(("part", "leaf", "under"))}
            expected = {f"{kind}{i}": calls for i in range(word == "odd", 40, 2) for kind, calls in (("part", 1), ("leaf", i + 1), ("under", i + 1))}
            same(f"{options} {word}: calls", expected, found)
            ahead.append(sum(int(n.replace(",", "")) for n, what in re.findall(r"([\d,]+) +[\d.]+ % +(instrumented ahead.*)", bench.report(trace, "coverage"))))
        # What only a function calls that is left out is so as well.
        _, trace = bench.record("parts", [*options, "-N", "part1"], [program, "odd"])
        found = {name for _, name in bench.counts(trace)}
        if found & {"part1", "leaf1", "under1"} or "under3" not in found: raise Failed(f"{options} -N: {sorted(found)}")
        # The third has those that are called no more, and the last not.
        first, second, third, fourth, fifth = ahead
        if first or second < 40 or third < 40 or fourth < 40 or fifth > second: raise Failed(f"{options}: instrumented ahead: {ahead}")
    bench.variables = None


@case
def a_program_goes_on_when_sptrace_is_killed(bench):
    program = bench.program("tallies.O2")
    alone = bench.run(program)[:2]
    for delay_ms, options in [(ms, options) for ms in (20, 60, 90, 120, 150, 200, 250, 300) for options in (["--count"], ["--hot-limit", "5k"], ["--stamps", "none"])]:
        read, write = os.pipe()
        traced = subprocess.Popen([bench.sptrace, "run", "-q", *options, "-o", f"{bench.folder}/killed", "--", program], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL)
        os.close(write)
        time.sleep(delay_ms / 1000)
        traced.send_signal(signal.SIGKILL)
        traced.wait()
        with os.fdopen(read) as pipe: out = pipe.read()
        if out not in (alone[1], ""): raise Failed(f"killed after {delay_ms} ms: {out!r}")
        if out == "" and delay_ms > 60: raise Failed(f"killed after {delay_ms} ms: the program has not ended as alone")


@case
def what_needs_order_and_times_is_refused(bench):
    for words in (["--stop-on", "return:main"], ["--ring", "4M", "--dump-on", "slow:main>1s"], ["--syscalls"], ["--start-on", "return:main"], ["-A", "*"]):
        status, _, error = bench.run(bench.sptrace, "run", "--count", *words, "--", "/bin/true")
        if status != 2 or "cannot be used with" not in error: raise Failed(f"{words}: status {status}, {error}")
    for words in (["--top"], ["--syscalls-only"], ["--start-on", "return:main"], ["--count"]):
        status, _, error = bench.run(bench.sptrace, "run", "--hot-limit", "1k", *words, "--", "/bin/true")
        if status != 2 or "cannot be used with" not in error: raise Failed(f"{words}: status {status}, {error}")
    for words in (["--ring", "4M", "--dump-on", "return:main"], ["--start-on", "return:main"], ["-A", "*"], ["--count"], ["--hot-limit", "1k"], ["--stop-on", "slow:main>1s"]):
        status, _, error = bench.run(bench.sptrace, "run", "--stamps", "none", *words, "--", "/bin/true")
        if status != 2 or "does not go together with" not in error: raise Failed(f"{words}: status {status}, {error}")


@case
def functions_and_modules_can_be_left_out(bench):
    program = bench.program("tallies.O2")
    for options in (["--count"], ["--stamps", "none"]):
        _, trace = bench.record("without", [*options, "-N", "tail*", "-l", "tallies*"], [program])
        counts = bench.counts(trace)
        found = {function for _, function in counts}
        if "tail" in found or "direct" not in found or any(module.startswith("libc") and function == "malloc" for module, function in counts): raise Failed(f"{sorted(found)}")


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
