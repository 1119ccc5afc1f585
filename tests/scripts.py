#!/usr/bin/env python3
"""Do the ready scripts answer their questions of a program of which the answers are known, and is a wrong script refused before
anything is started?

usage: tests/scripts.py [--sptrace PATH] [--only GLOB]...

Each script of scripts/ is run by its name over a small program; what does not change from run to run must be as stated here. The
rest of the cases: activation, propagation, handlers that fail, and wrong scripts on the command line. Needs gcc.
"""
import csv, io, os, re, signal, socket, subprocess, sys, threading, time

from harness.bench import main
from harness.case import ROOT, Cases

PROGRAM = r"""
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
F void next_char(int n) { sink += n; }
F void parse(int n) { for (int i = 0; i < 10; i++) next_char(i + n); sink++; }
F void reread(void) { struct timespec t = {0, 20000000}; nanosleep(&t, 0); sink++; }
F void usual(void) { sink++; }
F void handle(int n) { usual(); if (n % 10 == 9) reread(); sink++; }
F void load_config(void) {
    char text[64];
    int fd = open("app.conf", O_RDONLY);
    if (read(fd, text, sizeof text) < 0) abort();
    close(fd);
    if (open("missing.conf", O_RDONLY) >= 0) abort();
    sink++;
}
F void copy_file(void) {
    char text[1000];
    int in = open("in.txt", O_RDONLY), out = open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    long n;
    while ((n = read(in, text, sizeof text)) > 0) if (write(out, text, n) != n) abort();
    close(in); close(out);
    sink++;
}
F void talk(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    char answer[8];
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&to, sizeof to)) abort();
    if (write(s, "hello", 5) != 5 || read(s, answer, 3) != 3) abort();
    close(s);
    sink++;
}
F void start_child(void) {
    int status;
    if (!fork()) { execl("/bin/sh", "sh", "-c", "exit 7", (char *)0); _exit(1); }
    wait(&status);
    sink++;
}
F void event_loop(int port) {
    for (int n = 0; n < 20; n++) handle(n);
    copy_file();
    talk(port);
    start_child();
    sink++;
}
int main(int argc, char **argv) {
    load_config();
    for (int n = 0; n < 12; n++) parse(n);
    event_loop(atoi(argv[1]));
    return 0;
}
"""

# With what each script is run for its sample.
SAMPLES = {
    "slow-calls": "--top=3 --min=15ms",
    "tail-latency": "--of=handle --slow=15ms",
    "file-io": "--top=3",
    "network": "",
    "exec-tree": "",
    "errors": "--errno=ENOENT",
    "off-cpu": "--min=1ms",
    "who-calls": "--of=next_char --depth=2",
    "coverage": "--module=prog",
    "startup": "--until=event_loop --top=3",
    "config-files": "",
    "sizes": "--of=next_char", "hot-stacks": "--of=next_char --depth=3",
    "texts": "--of=open",
    "arguments": "--of=next_char --bits=32",
    "latency": "--of=handle",
    "failures": "",
    "hot-functions": "",
    "depth-limit": "--depth=3",
    "one-module": "--module=prog --top=4",
    "through-path": "--through=handle",
}
case = Cases()


class Server:
    """Answers `yes` to whoever has said hello."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self):
        while True:
            try: peer = self.socket.accept()[0]
            except OSError: return
            with peer:
                if peer.recv(5): peer.sendall(b"yes")

    def __exit__(self, *_): self.socket.close()


def program(b):
    """The program, built once for all cases."""
    folder = os.path.dirname(b.folder)
    path = os.path.join(folder, "prog")
    if not os.path.exists(path):
        with open(path + ".c", "w") as out: out.write(PROGRAM)
        subprocess.run(["gcc", "-O1", "-g", "-o", path, path + ".c"], check=True)
    with open(b.path("app.conf"), "w") as out: out.write("x = 1\n")
    with open(b.path("in.txt"), "w") as out: out.write("0123456789" * 250)
    return path


def run(b, *options):
    """Runs the program; gives what was said, and the server's port."""
    with Server() as server:
        status, out, err = b.run(list(options), [program(b), str(server.port)])
        assert (status, out) == (0, ""), (status, out, err)
        return err, server.port


def tables(b, *words):
    """What a script makes of the trace: its tables, each a list of rows."""
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", *words)
    assert (status, err) == (0, ""), (status, err)
    return [list(csv.DictReader(io.StringIO(part, newline=""))) for part in out.split("\n\n")]


def of(rows, key, value, *columns):
    """The cells of the rows in which a column has a value."""
    return [tuple(row[c] for c in columns) for row in rows if row[key] == value]


def same(got, want): assert got == want, f"wanted {want}, got {got}"


@case
def slow_calls(b):
    err, _ = run(b, "-S", "slow-calls")
    assert "times of calls" in err and "reread" in err, err
    [times] = tables(b, "slow-calls", "--", "--top=1000")
    same(of(times, "function", "parse", "count", "module"), [("12", "prog")])
    same(of(times, "function", "next_char", "count"), [("120",)])
    [(count, total, most)] = of(times, "function", "reread", "count", "total_ns", "max_ns")
    assert count == "2" and int(total) > 40_000_000 and int(most) > 20_000_000, times
    times, spread = tables(b, "slow-calls", "--", "--min=15ms", "--spread=reread")
    assert {"reread", "handle", "main"} <= {row["function"] for row in times} and not of(times, "function", "parse", "count")
    same(sum(int(row["count"]) for row in spread), 2)


@case
def tail_latency(b):
    run(b, "-S", "tail-latency --of=handle --slow=15ms")
    kinds, differ, worst = tables(b, "tail-latency", "--", "--of=handle", "--slow=15ms")
    same([(row["kind"], row["count"]) for row in kinds], [("slow", "2"), ("usual", "18")])
    same(differ[0]["callee"], "reread")
    assert int(differ[0]["slow_ns"]) > 20_000_000 and differ[0]["usual_ns"] == "0", differ
    same(len(worst), 10)


@case
def file_io(b):
    err, _ = run(b, "-S", "file-io")
    assert "2.5 kB" in err, err
    files = tables(b, "file-io", "--", "--top=1000")[0]
    same(of(files, "path", "in.txt", "count", "read_bytes", "written_bytes", "errors"), [("4", "2500", "0", "0")])
    same(of(files, "path", "out.txt", "count", "read_bytes", "written_bytes", "errors"), [("3", "0", "2500", "0")])
    same(of(files, "path", "app.conf", "read_bytes"), [("6",)])


@case
def network(b):
    _, port = run(b, "-S", "network")
    peers, connects = tables(b, "network")
    same([tuple(row[c] for c in ("peer", "count", "sent_bytes", "received_bytes", "errors")) for row in peers], [(f"127.0.0.1:{port}", "3", "5", "3", "0")])
    same([(row["call"], row["peer"], row["result"]) for row in connects], [("connect", f"127.0.0.1:{port}", "ok")])


@case
def exec_tree(b):
    run(b, "-S", "exec-tree")
    [rows] = tables(b, "exec-tree")
    same([(row["process"].startswith("  "), os.path.basename(row["program"]), row["status"]) for row in rows], [(False, "prog", "0"), (True, os.path.basename(os.path.realpath("/bin/sh")), "7")])


@case
def errors(b):
    run(b, "-S", "errors")
    [failed] = tables(b, "errors", "--", "--errno=ENOENT")
    same(of(failed, "path", "missing.conf", "call", "errno", "count"), [("openat", "ENOENT", "1")])


@case
def off_cpu(b):
    run(b, "-S", "off-cpu --min=1ms")
    [waits] = tables(b, "off-cpu", "--", "--min=1ms")
    [(count, total)] = of(waits, "call", "clock_nanosleep", "count", "total_ns")
    assert count == "2" and int(total) > 40_000_000, waits
    [waits] = tables(b, "off-cpu", "--", "--min=15ms", "--stacks")
    [(stack,)] = of(waits, "call", "clock_nanosleep", "stack")
    assert "main > event_loop > handle > reread" in stack, stack


@case
def who_calls(b):
    run(b, "-S", "who-calls --of=usual")
    [stacks] = tables(b, "who-calls", "--", "--of=next_char", "--depth=2")
    same([(row["stack"], row["count"]) for row in stacks], [("main > parse > next_char", "120")])


@case
def coverage(b):
    run(b, "-S", "coverage --module=prog")
    [called] = tables(b, "coverage", "--", "--module=prog")
    own = {row["function"]: row["count"] for row in called if row["function"] in PROGRAM}
    same({name: own.get(name) for name in ("main", "parse", "handle", "usual", "talk")}, {"main": "1", "parse": "12", "handle": "20", "usual": "20", "talk": "1"})


@case
def startup(b):
    run(b, "-S", "startup --until=event_loop")
    functions, files, phases = tables(b, "startup", "--", "--until=event_loop", "--top=1000")
    same(of(functions, "function", "parse", "count"), [("12",)])
    same([(f["path"], f["result"]) for f in files if f["path"].endswith(".conf")], [("app.conf", "ok"), ("missing.conf", "ENOENT")])
    same([p["function"] for p in phases if not p["function"].startswith(("strtol", "atoi"))], ["load_config"] + ["parse"] * 12)
    assert not of(functions, "function", "reread", "count") and not of(functions, "function", "clock_nanosleep", "count"), functions


@case
def config_files(b):
    run(b, "-S", "config-files")
    [paths] = tables(b, "config-files")
    same(of(paths, "path", "app.conf", "result", "opened"), [("found", "1")])
    same(of(paths, "path", "missing.conf", "result", "opened"), [("ENOENT", "1")])


@case
def hot_functions(b):
    run(b, "-S", "hot-functions")
    [hot] = tables(b, "hot-functions", "--", "--rate=1")
    same(of(hot, "function", "next_char", "calls", "is_leaf"), [("120", "yes")])
    same(of(hot, "function", "parse", "calls", "is_leaf"), [("12", "no")])
    status, out, _ = b.sptrace_says("report", "script", "hot-functions", "-i", "t.data", "--", "--rate=1", "--options")
    assert status == 0 and re.search(r"^sptrace run .*-N 'next_char'", out, re.M), out


@case
def depth_limit(b):
    run(b, "-S", "who-calls")
    whole = tables(b, "depth-limit")[0]
    run(b, "-S", "depth-limit --depth=4")
    [levels] = tables(b, "depth-limit")
    count = lambda rows: sum(int(row["count"]) for row in rows)
    assert count(levels) < count(whole) and len(levels) <= len(whole), (levels, whole)
    names = b.report("functions")
    assert "parse" in names and "reread" not in names, names


@case
def one_module(b):
    run(b, "-S", "one-module --module=prog")
    [called] = tables(b, "one-module", "--", "--top=1000")
    same(of(called, "function", "next_char", "count", "module"), [("120", "prog")])
    # Its first call is bound lazily, by code that is not recorded: it has the name of the stub.
    assert of(called, "function", "nanosleep", "module") == [("libc.so.6",)], called
    assert not of(called, "function", "clock_nanosleep", "count"), called  # libc's own call


@case
def through_path(b):
    run(b, "-S", "through-path --through=handle")
    [paths] = tables(b, "through-path")
    own = {row["path"]: row["count"] for row in paths}
    same((own.get("handle"), own.get("handle > usual"), own.get("handle > reread")), ("20", "20", "2"))
    assert not any("parse" in path for path in own), own


@case
def propagate_skips_and_makes_leaves(b):
    err, _ = run(b, "--eval", 'propagate(|f| if f.name == "usual" { skip } else if f.name == "parse" { leaf } else { record })')
    assert re.search(r"propagate left [12] functions out, and what 1 others call", err), err
    stats = list(csv.DictReader(io.StringIO(b.report("functions", "t.data", "--format", "csv"))))
    own = {row["function"]: row["calls"] for row in stats}
    same([own.get(name) for name in ("parse", "next_char", "usual", "handle")], ["12", None, None, "20"])


@case
def propagate_that_fails_is_told_and_all_is_recorded(b):
    err, _ = run(b, "--eval", "propagate(|f| f.nothing)")
    assert "there is no property 'nothing'" in err and re.search(r"propagate failed: \d+ functions", err), err
    assert "next_char" in b.report("functions")


@case
def activation_by_a_script(b):
    script = 'print("begun"); between("handle", called("load_config"), called("handle").every(5)); let n = count("n", ["f"]); at("prog!*").later(|e| n.add(e.name))'
    err, _ = run(b, "--eval", script)
    names = b.report("functions")
    assert "handle" in names and "parse" not in names and "start_child" not in names, names
    assert "sptrace: begun" in err and re.search(r"handle +4\n", err), err
    err, _ = run(b, "--eval", 'stop(time(20.ms)); leave_out("parse")')
    assert "recording ended early: --stop-on time:20000000ns" in err and "parse" not in b.report("functions"), err


@case
def intervals_and_a_handler_that_fails(b):
    script = 'on_interval(10.ms, || print("tick")); at("parse").later(|e| if e.start > 0 { e.nothing })'
    err, _ = run(b, "--eval", script)
    assert err.count("tick") >= 4, err
    assert "there is no property 'nothing'" in err and "it has missed 12 events" in err, err
    status, _, err = b.sptrace_says("report", "script", "-i", "t.data", "--eval", script)
    assert status == 1 and "missed 12" in err, (status, err)


@case
def handlers_that_take_long_can_be_ended(b):
    """Signals that end a recording are blocked while it lasts, and were so while the handlers ran."""
    with open(b.path("endless.rhai"), "w") as out: out.write("on_interval(1.us, || { let n = 0; while n < 1000 { n += 1; } });")
    with Server() as server:
        process = b.start(["-S", "./endless.rhai"], [program(b), str(server.port)])
        time.sleep(1.5)
        assert process.poll() is None, process.communicate()
        process.terminate()
        process.communicate(timeout=10)
        same(process.returncode, -signal.SIGTERM)
    assert "parse" in b.report("functions")


@case
def a_table_of_too_many_keys_is_bounded(b):
    run(b)
    script = 'let t = count("t", ["n"]); on_end(|| for n in 0..150000 { t.add(n); })'
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--eval", script)
    assert status == 0 and "50000 additions left out: more than 100000 keys" in out, (status, out[-300:], err)


@case
def other_forms(b):
    import json
    run(b)
    script = 'print("x"); let t = table("a, \\"b\\"", ["k", "v_ns"]); t.add(["one,\\"two\\"", 1500]); t.add(["e", ()])'
    said = lambda form: b.sptrace_says("report", "script", "-i", "t.data", "--eval", script, "--format", form)
    same(said("csv"), (0, 'k,v_ns\n"one,""two""",1500\ne,\n', ""))
    status, out, _ = said("json")
    same(json.loads(out), {"title": 'a, "b"', "rows": [{"k": 'one,"two"', "v_ns": 1500}, {"k": "e", "v_ns": None}], "remarks": []})
    same(said("text")[1], 'x\n\na, "b"\n  k                 v\n  one,"two"  1.500 us\n  e                 ?\n')


@case
def samples_in_headers_look_like_what_is_printed(b):
    """Titles and heads of columns, to the letter but for blanks; numbers change."""
    heads = lambda lines: [line.split() for line in lines if line.strip()]
    for name, given in SAMPLES.items():
        with open(os.path.join(ROOT, "scripts", f"{name}.rhai")) as script: text = script.read()
        header = text[text.index("// Sample:"):].split("\n\n")[0].splitlines()[1:]
        sample = [line.removeprefix("//") for line in header]
        err, _ = run(b, "-q", "-S", f"{name} {given}")
        same((name, heads(sample)[:2]), (name, heads(line for line in err.splitlines() if not line.startswith("sptrace: "))[:2]))


@case
def ready_scripts_count_inside_of_the_program(b):
    """next_char(i + n), with i from 0 to 9, of each call of parse(n)."""
    err, _ = run(b, "-q", "-S", "arguments --of=next_char --bits=32 --top=100")
    counts = {int(value): int(count) for value, count in (line.split() for line in err.splitlines() if line.split() and line.split()[0].isdigit())}
    err, _ = run(b, "-q", "-S", "sizes --of=next_char")
    total = next(line.split() for line in err.splitlines()[err.splitlines().index("bytes in all") + 2:])
    same((sum(counts.values()), total[0]), (120, "120"))
    assert set(range(10)) <= counts.keys() and "next_char" not in b.report("functions"), (counts, err)


@case
def ready_scripts_look_at_returns_inside_of_the_program(b):
    """Two of twenty calls of handle(n) sleep for 20 ms; one of four calls of open finds no file."""
    sheets = lambda given: [block.splitlines() for block in run(b, "-q", "-S", given)[0].split("\n\n")]
    spread, total, longest, worst = sheets("latency --of=handle --min=15ms")
    same((spread[0], sum(int(line.split()[4]) for line in spread[2:]), total[2].split()[0]), ("duration", 2, "2"))
    assert longest[2].split()[2] == "ms" and 20 <= float(longest[2].split()[1]) < 10_000, longest
    same([line.split()[1:3] for line in worst[2:]], [["ms", "event_loop"]] * 2)
    same(worst[2].split()[:2], longest[2].split()[1:])
    functions = {line.split()[-1] for line in b.report("functions").splitlines() if line}
    assert "handle" not in functions and "reread" in functions, functions
    same(sheets("latency --of=handle")[1][2].split()[0], "20")
    failures, calls = sheets("failures")
    same((failures[2:], [line.split() for line in calls[2:]]), (["      2      1"], [["0", "3"], ["1", "1"]]))


DEPTHS = r"""
#include <setjmp.h>
#include <stdio.h>
#define F __attribute__((noinline, noclone))
volatile long sink;
static jmp_buf out;
/* Each is told how many calls below main are recorded around it. */
F void probe(long depth) { sink += depth; }
F void quiet(long depth) { probe(depth); sink++; }
F void jumps(long depth) { sink++; probe(depth); }
F void jumps_out(long depth) { probe(depth + 1); if (depth >= 0) longjmp(out, 1); sink++; }
F void down(long depth, long most) {
    probe(depth + 1);
    quiet(depth + 1);
    jumps(depth + 1);
    if (depth < most) down(depth + 1, most);
    probe(depth + 1);
    sink++;
}
void (*volatile pointer)(long) = probe;
int main(void) {
    for (long most = 0; most < 40; most++) { down(0, most); pointer(0); }
    for (volatile int i = 0; i < 10; i++) { if (setjmp(out) == 0) jumps_out(0); probe(0); }
    printf("%ld\n", sink);
    return 0;
}
"""


@case
def the_depth_of_a_call_is_what_the_program_says(b):
    """Recursion, tail jumps, a pointer, calls without a record between, and after calls that were jumped out of."""
    with open(b.path("depths.c"), "w") as out: out.write(DEPTHS)
    subprocess.run(["gcc", "-O2", "-g", "-o", b.path("depths"), b.path("depths.c")], check=True)
    plain = subprocess.run([b.path("depths")], capture_output=True, text=True, check=True)
    script = """let seen = count("seen", ["depth", "said"]); let told = count("told", ["depth"]); let q = count("quiet", []);
at("probe").on_enter(|c| { seen.add([c.depth, c.arg1]); c.record(); }); at("quiet").on_enter(|c| q.add([]));
at("probe").later(|e| told.add(e.depth));"""
    with open(b.path("depths.rhai"), "w") as out: out.write(script)
    status, out, err = b.run(["-q", "-S", "depths.rhai"], [b.path("depths")])
    same((status, out), (0, plain.stdout))
    seen, told, quiet = tables(b, "depths.rhai")
    rows = {(int(r["depth"]), int(r["said"])): int(r["count"]) for r in seen}
    [around_main] = {depth - said for depth, said in rows}
    wanted, nested = {0: 50, 1: 10}, {0: 50, 1: 10}
    for most in range(40):
        for depth in range(1, most + 2):
            wanted[depth] = wanted.get(depth, 0) + 4
            # A trace shows what was jumped to inside of what has jumped.
            nested[depth] = nested.get(depth, 0) + 3
            nested[depth + 1] = nested.get(depth + 1, 0) + 1
    same({said: count for (_, said), count in rows.items()}, wanted)
    same({int(r["depth"]): int(r["count"]) for r in told}, {depth + around_main: count for depth, count in nested.items()})
    same([r["count"] for r in quiet], ["820"])


COUNTING = """
let work = count("work", ["kind"]); let sizes = sum("sizes", ["kind"], ["n"]); let spread = histogram("spread", [], "n");
let most = max("most", [], "n"); let deep = count("deep", []); let outer = count("outer", []); let left = count("left", ["third"]);
let handled = count("handled", []); record_syscalls("exit_group");
at("work").on_enter(|c| { work.add(c.kind); if c.kind > 2 { sizes.add(c.kind, c.size); } spread.add(c.size); most.add(c.size); });
at("deep").on_enter(|c| deep.add([])); at("outer").on_enter(|c| outer.add([]));
at("leaves").on_enter(|c| if (c.n & 1) == 0 { left.add(0); c.record(); } else { left.add(1) });
at("in_handler").on_enter(|c| handled.add([]));
let results = sum("results", ["kind"], ["n"]); at("work").on_exit(|c| results.add(c.kind, c.result));
let ends = count("ends", ["function", "value"]);
at("looks").on_exit(|c| ends.add([0, c.result - c.n])); at("deep").on_exit(|c| ends.add([5, 0])); at("outer").on_exit(|c| ends.add([1, 0])); at("becomes").on_exit(|c| ends.add([2, 0]));
at("leaves").on_exit(|c| ends.add([3, c.n])); at("in_handler").on_exit(|c| ends.add([4, 0]));
let took = max("took", [], "n"); at("looks").on_exit(|c| took.add(c.elapsed));
"""


BOTH = """let work = count("work", ["kind"]); let spread = histogram("spread", [], "n"); let never = count("never", []);
at("work").on_enter(|c| { work.add(c.kind); spread.add(c.size); if c.kind < 0 { never.add([]); } c.record(); });"""


def results_of(kind):
    """The sum of work's results in a thread: kind + size, directly by i % 5 and through a pointer by i % 3."""
    return sum(kind + i for i in range(2000) if i % 5 == kind) + sum(kind + i for i in range(2000) if i % 3 == kind)


def near(got, want, off):
    """Counts by key, of which so many calls may be too few or too many."""
    keys = got.keys() | want.keys()
    assert sum(abs(got.get(key, 0) - want.get(key, 0)) for key in keys) <= off, f"wanted {want}, got {got}"


def returns_add_up(b, rows, ticks, off):
    """A call returns, or is counted as one whose payload did not run: those that were jumped out of, those of deep that a walk of
    the stack has let return unseen, and what is on the stack when the handler has walked it and nothing is called before it returns."""
    ends = {(function, value): count for function, value, count in rows("ends")}
    missed = int(next(line.split()[0] for line in b.report("coverage").splitlines() if "with a payload" in line).replace(",", ""))
    entered = 24_100 + 4 * 300 + 3150 + ticks
    seen = sum(count for _, count, _ in rows("results")) + sum(ends.values())
    assert abs(seen + missed - entered) <= off and 3250 <= missed <= 3250 + 4 * ticks * bool(off), (seen, missed, entered)
    assert (5, 0) not in ends and 1000 < rows("took")[0][1] < 10**10, (ends, rows("took"))
    assert all(value % 3 for function, value in ends if function == 3), ends
    if (missed, seen) == (3250, entered - 3250):
        same({kind: total for kind, _, total in rows("results")}, {kind: 6 * results_of(kind) for kind in range(5)} | {7: 800})
        same((ends[0, 1], ends[1, 0], ends[2, 0], ends[4, 0]), (300, 300, 300, ticks))
        same(sorted(value for function, value in ends if function == 3), [n for n in range(300) if n % 3])


def payloads_count(b, arguments, off):
    """The program counts and records as it calls, but for so many calls that a walk of the stack has met."""
    import json
    program = [b.path("scripted"), *arguments]
    source = os.path.join(ROOT, "tests/programs/scripted/scripted.c")
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", program[0], source], check=True)
    with open(b.path("counting.rhai"), "w") as out: out.write(COUNTING)
    plain = subprocess.run(program, capture_output=True, text=True, check=True)
    status, out, err = b.run(["-q", "-S", "./counting.rhai"], program)
    same((status, out), (0, plain.stdout))
    ticks = int(err.splitlines()[0])
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--eval", COUNTING, "--format", "json")
    same((status, err), (0, ""))
    sheets = {sheet["title"]: sheet for sheet in map(json.loads, out.splitlines())}
    rows = lambda title: [tuple(row.values()) for row in sheets[title]["rows"]]
    by_kind = {kind: 6 * (400 + (667 if kind < 2 else 666 if kind == 2 else 0)) for kind in range(5)} | {7: 100}
    sizes = {3: 6 * sum(range(3, 2000, 5)), 4: 6 * sum(range(4, 2000, 5)), 7: 100}
    near(dict(rows("work")), by_kind, off)
    near({kind: total for kind, _, total in rows("sizes")}, sizes, off * 1999)
    near({"spread": sum(count for *_, count in rows("spread"))}, {"spread": 24_100}, off)
    [(most_of, most)] = rows("most")
    near({"most": most_of}, {"most": 24_100}, off)
    same(most, 1999)
    near({"deep": rows("deep")[0][0]}, {"deep": sum(i % 20 + 1 for i in range(300))}, off)
    near({"outer": rows("outer")[0][0]}, {"outer": 300}, off)
    near(dict(rows("left")), {0: 150, 1: 150}, off)
    returns_add_up(b, rows, ticks, off)
    near({"handled": rows("handled")[0][0]}, {"handled": ticks}, off)
    functions = {row[-1]: int(row[0].replace(",", "")) for row in map(str.split, b.report("functions").splitlines()[1:])}
    assert not {"work", "deep", "in_handler"} & functions.keys(), functions
    near({name: functions[name] for name in ("leaves", "inner")}, {"leaves": 150, "inner": 900}, off)
    # Beside records each call is counted once and recorded once, or said to be lost.
    status, out, err = b.run(["--eval", BOTH], program)
    same((status, out), (0, plain.stdout))
    work, spread = [table for table in tables(b, "--eval", BOTH) if table]
    near({int(row["kind"]): int(row["count"]) for row in work}, by_kind, off)
    near({"spread": sum(int(row["count"]) for row in spread)}, {"spread": 24_100}, off)
    recorded = next(int(line.split()[0].replace(",", "")) for line in b.report("functions").splitlines() if line.endswith(" work"))
    lost = int(re.search(r"events: \d+ recorded, (\d+) lost", err)[1])
    assert lost <= off and recorded <= 24_100 <= recorded + lost, (recorded, lost)
    assert ("no event lost" if lost == 0 else f"{lost} events lost") in b.report(), (lost, b.report())


@case
def payloads_count_exactly(b):
    """In threads, a fork child and a handler, through pointers and tail jumps, where calls are jumped out of and stacks walked."""
    payloads_count(b, [], 0)


@case
def payloads_that_a_walk_of_the_stack_interrupts(b):
    """The handler walks the stack, too: what it has met in its payload is begun again or goes on without it, or without its record."""
    payloads_count(b, ["walk"], 3)


@case
def wrong_scripts_start_nothing(b):
    with open(b.path("big.rhai"), "w") as out: out.write("// big\n" + "let a = 1;\n" * 100_000)
    with open(b.path("wrong.rhai"), "w") as out: out.write("// wrong\nlet n = 1;\n  depht(3);\n")
    for words, says in [
        (["-S", "wrong.rhai"], ["wrong.rhai:3:3: there is no function 'depht'; did you mean depth(N)?", "    3 |   depht(3);", "      |   ^"]),
        (["-S", "big.rhai"], ["big.rhai: it has 1100007 bytes, more than 262144"]),
        (["-S", "no-such-script"], ["no-such-script: there is no such script"]),
        (["-S", "file-oi"], ["did you mean file-io?"]),
        (["-S", "slow-calls --tpo=1"], ["it has no option --tpo; those are --min, --top, --spread"]),
        (["--eval", "let a = 1;\nlet b = (a + ;"], ["--eval:2:14: ", "    2 | let b = (a + ;", "      |              ^"]),
        (["--eval", 'depth("three")'], ["--eval:1:1: 'depth' does not take (string); write depth(N)"]),
        (["--eval", 'let n = 1; n.foo()'], ["there is no function 'foo'"]),
        (["--eval", 'let t = count("t", ["n"]);\nfor n in 0..1000000000 { t.add(n); }'], ["this takes too many operations"]),
        (["--eval", 'let s = "x"; loop { s += s; }'], ["grows too large"]),
        (["--eval", 'at("malloc").on_enter(|c| { while c.arg1 > 0 { } })'], ["--eval:1:29: loops are not compiled", "      |                             ^"]),
        (["--eval", 'at("malloc").on_enter(|c| c.fail(12))'], ["there is no such word", "c.deny(ERRNO)"]),
        (["--eval", 'at("malloc").on_enter(|c| c.deny(12))'], ["--eval:1:29: this changes what the program does", "add --allow-active"]),
        (["--eval", 'at("malloc").on_exit(|c| c.result = 0)'], ["the call is not changed by assignment"]),
        (["--eval", 'hot_limit(1000); start("return:malloc")'], ["--hot-limit cannot be used with --shadow"]),
        (["--eval", "loop {}"], ["this takes too many operations; does a loop or a recursion never end?"]),
        (["--eval", "fn f() { f() } f()"], ["functions call each other too deeply"]),
        (["--eval", 'at("malloc").on_enter(|c| c)'], ["this does nothing that a payload can do", "later(|e| ...)"]),
        (["--eval", 'start("soon")'], ["unknown event 'soon'"]),
        (["--eval", 'dump(called("f"))'], ["dump(...) needs ring(SIZE)"]),
        (["--eval", 'only("f"); record_only_syscalls("all")'], ["records no functions"]),
    ]:
        started = b.path("started")
        status, out, err = b.run(words, ["touch", started])
        assert status == 2 and not os.path.exists(started) and not b.has("t.data"), (words, status, err)
        for text in says: assert text in err, (words, text, err)
        assert all(line.startswith("sptrace: ") for line in err.splitlines()), err


AWKWARD = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
F void take(const char *text) { sink += text != 0; }
F void work(long n) { sink += n; }
int main(void) {
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 4096, PROT_NONE);
    memset(page, 'a', 4096);
    take("fine");
    take(0);
    take((char *)16);
    take((char *)0x800000000000);
    take(page + 4092);
    take(page + 4096);
    take(page);
    for (long n = 0; n < 20000; n++) work(n * 1000003);
    printf("%d\n", sink);
    return 0;
}
"""


@case
def what_is_awkward_at_run_time_harms_nothing(b):
    """Pointers that cannot be read, texts without an end, more keys than there is room for, handlers that never end or fail."""
    with open(b.path("awkward.c"), "w") as out: out.write(AWKWARD)
    subprocess.run(["gcc", "-O1", "-o", b.path("awkward"), b.path("awkward.c")], check=True)
    plain = subprocess.run([b.path("awkward")], capture_output=True, text=True, check=True)

    def says(script, *more):
        status, out, err = b.run(["-q", *more, "--eval", script], [b.path("awkward")])
        same((status, out), (0, plain.stdout))
        return err

    texts = says('values("take@arg1/s"); let t = table("texts", ["text"]); at("take").later(|e| t.add([e.arg(1)]));', "-s", "32")
    same([line.strip() for line in texts.splitlines()[2:]], ["fine", "?", "?", "?", "aaaa", "?", "a" * 32])
    err = says('let t = count("keys", ["n"]); t.limit(1); at("work").on_enter(|c| t.add(c.arg1));')
    [left] = re.findall(r"(\d+) additions had no room in the program: too many keys", err)
    [more] = re.findall(r"\(([\d,]+) more rows\)", err)
    same(int(left) + int(more.replace(",", "")) + 1, 20_000)
    for script, why in [
        ('at("work").later(|e| loop { });', "this takes too many operations"),
        ('at("work").later(|e| e.name - 1);', "there is no function '-'"),
        ('fn f(n) { f(n + 1) } at("work").later(|e| f(0));', "functions call each other too deeply"),
        ('at("work").later(|e| e.arg("n"));', "values of functions were not recorded; write values("),
        ('values("work@arg1/d"); at("work").later(|e| e.arg("n"));', "has no \"n\", only arg1"),
        ('let all = []; at("work").later(|e| { for i in 0..100000 { all.push(i); } });', "grows too large"),
    ]:
        err = says(script)
        assert why in err and re.search(r"^sptrace: --eval:1:\d+: ", err, re.M) and re.search(r"^sptrace:  +\| +\^$", err, re.M) and "events" in err, (script, err)


@case
def check_explain_list_and_help(b):
    names = sorted(f[:-5] for f in os.listdir(os.path.join(ROOT, "scripts")) if f.endswith(".rhai"))
    status, out, _ = b.sptrace_says("script", "list")
    same((status, [line.split()[0] for line in out.splitlines()]), (0, names))
    for name in names:
        same(b.sptrace_says("script", "check", name), (0, f"{name}: right\n", ""))
        status, out, _ = b.sptrace_says("script", "explain", name)
        is_compiled = name in ("arguments", "failures", "first-error", "hot-stacks", "latency", "sizes", "texts")
        inside = "Inside of the traced program" + (", compiled to native code:" if is_compiled else ": nothing")
        assert status == 0 and "Handlers, on the host" in out and inside in out, out
        assert not is_compiled or " instructions, " in out and "gs:[" in out, out
    status, out, _ = b.run(["-S", "file-io --help"], ["touch", b.path("started")])
    assert status == 0 and "--top=20" in out and not b.has("started"), out
    with open(b.path("mine.rhai"), "w") as script: script.write("// mine: does nothing\ndepth(3);\n")
    assert "mine " in b.sptrace_says("script", "list")[1]
    same(b.sptrace_says("script", "check", "mine"), (0, "mine: right\n", ""))


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
