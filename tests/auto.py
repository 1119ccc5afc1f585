#!/usr/bin/env python3
"""What `run --stamps auto` records: short calls in order, the others with stamps, of both exactly which, and the slow one among them.

usage: tests/auto.py [--sptrace PATH] [--only GLOB]

Given gcc. Makes a program whose short functions are called so often that they lose their stamps while it runs, and compares how often
each function was called with what the program says itself; so in threads, in forked children, through pointers, by jumps, after
longjmp, and beside other options. Exit status: 1 if anything failed.
"""
import argparse, collections, csv, io, json, os, re, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, find_sptrace, run_cases

case = Cases()
SOURCE = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noipa))
static __thread jmp_buf back;
F long leaf(long x) { return x + 1; }
F long tail(long x) { return leaf(x + 1); }
F long fib(long n) { return n < 2 ? leaf(n) : fib(n - 1) ^ 3 * fib(n - 2); }
F long long_one(long n) { long s = 0; for (long i = 0; i < 2000; i++) s += leaf(i); return s + n; }
F void leaves(long n) { if (!n) longjmp(back, 1); leaves(n - 1); leaf(n); }
F long once(long slow) { if (slow) usleep(50000); return leaf(slow); }
static long (*volatile pointer)(long) = leaf;
F long turns(long n) { long s = 0; for (long i = 0; i < n; i++) s += *(volatile long *)&s; return s; }
F long body(void) {
    long s = fib(22);
    for (long i = 0; i < 300; i++) s += long_one(i);
    for (long i = 0; i < 3000; i++) if (!setjmp(back)) leaves(i % 5);
    for (long i = 0; i < 200000; i++) s += tail(i) + pointer(i);
    return s;
}
static void *thread(void *x) { return (void *)(body() & (long)x); }
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "plain";
    long s = 0;
    if (!strcmp(what, "plain")) s = body();
    if (!strcmp(what, "slow")) for (long i = 0; i < 600000; i++) s += once(i == 400000);
    if (!strcmp(what, "short")) for (long i = 0; i < 1000000; i++) s += turns(1);
    if (!strcmp(what, "long")) for (long i = 0; i < 10000; i++) s += turns(30000);
    if (!strcmp(what, "threads")) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, thread, 0);
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    }
    if (!strcmp(what, "fork")) {
        s = body();
        for (int i = 0; i < 3; i++) if (!fork()) { s += body(); _exit(0); }
        while (wait(0) > 0) {}
    }
    printf("%ld\n", s);
    return 0;
}
"""
FIB, LONG, LEAVES, TAIL = 57313, 300, 3000, 200000
ONE = {"fib": FIB, "long_one": LONG, "leaves": sum(i % 5 + 1 for i in range(LEAVES)), "tail": TAIL, "body": 1, "leaf": 28657 + LONG * 2000 + 2 * TAIL}


class Bench:
    def __init__(self, sptrace, folder):
        self.sptrace, self.folder, self.trace = sptrace, folder, f"{folder}/t.data"
        self.program = f"{folder}/program"
        with open(f"{folder}/program.c", "w") as file: file.write(SOURCE)
        subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", self.program, f"{folder}/program.c"], check=True)

    def record(self, what, *options):
        alone = subprocess.run([self.program, what], capture_output=True, text=True, timeout=60)
        stamps = [] if "--stamps" in options else ["--stamps", "auto"]
        run = [self.sptrace, "run", *stamps, "-o", self.trace, *options, "--", self.program, what]
        done = subprocess.run(run, capture_output=True, text=True, timeout=100)
        if (done.returncode, done.stdout) != (alone.returncode, alone.stdout): raise Failed(f"status {done.returncode}: {done.stdout}{done.stderr}")
        if " 0 lost" not in done.stderr: raise Failed(done.stderr)
        return done.stderr

    def report(self, *words):
        done = subprocess.run([self.sptrace, "report", *words, "-i", self.trace], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
        if done.returncode: raise Failed(f"report {words}: {done.stderr}")
        return done.stdout

    def rows(self, *words):
        return list(csv.DictReader(io.StringIO(self.report(*words, "--format", "csv"))))

    def counts(self):
        return {row["function"]: int(row["calls"]) for row in self.rows("functions") if row["module"].endswith("program")}


def same(got, wanted):
    got = {name: got.get(name, 0) for name in wanted}
    if got != wanted: raise Failed(f"{got}, not {wanted}")


@case
def plain(b):
    """Counts to the call; short functions were in order, and the report says so at once."""
    b.record("plain")
    same(b.counts(), ONE)
    text = b.report("summary")
    if "stamps     auto" not in text: raise Failed(text)
    leveled = {row["function"] for row in b.rows("levels") if row["level"] == "order"}
    if "leaf" not in leveled or "long_one" in leveled or "body" in leveled: raise Failed(f"in order: {leveled}")


@case
def times(b):
    """What has stamps is measured; what is estimated is marked, and has bounds."""
    b.record("plain")
    rows = {row["function"]: row for row in b.rows("functions")}
    if int(rows["long_one"]["estimated_calls"]): raise Failed(rows["long_one"])
    if not int(rows["leaf"]["estimated_calls"]): raise Failed(rows["leaf"])
    text = b.report("functions")
    line = next(line for line in text.splitlines() if line.endswith(" leaf"))
    if "~" not in line: raise Failed(line)


@case
def slow(b):
    """A function that is fast half a million times and slow once: that call is there, with its duration."""
    b.record("slow")
    same(b.counts(), {"once": 600000, "leaf": 600000})
    longest = b.report("tree", "--min-time", "30ms")
    took = {}
    for line in longest.splitlines():
        got = re.match(r" *~?([\d.]+) ms .*\} /\* (once|usleep) \*/", line)
        if got: took.setdefault(got[2], []).append(float(got[1]))
    # How late a sleeper wakes up is up to the machine; an estimate may be too long by half a millisecond.
    if [len(all) for all in took.values()] != [1, 1] or took["once"][0] < 49.5 or not 0 <= took["once"][0] - took["usleep"][0] <= 0.01 * took["usleep"][0] + 0.1: raise Failed(f"{took} {longest[:2000]}")


@case
def threads(b):
    """Four threads, each of which loses its stamps by itself."""
    b.record("threads")
    same(b.counts(), {name: 4 * calls for name, calls in ONE.items()})


@case
def fork(b):
    """Three children that begin while functions are in order."""
    b.record("fork")
    same(b.counts(), {name: 4 * calls for name, calls in ONE.items()})


@case
def learned(b):
    """What was short in one recording is in order from the first call on in the next, gets stamps when it turns out to be long, and has them then."""
    def stamped(what, calls):
        b.record(what)
        same(b.counts(), {"turns": calls})
        row = next(row for row in b.rows("functions") if row["function"] == "turns")
        return int(row["timed_calls"]), [row["to_ns"] for row in b.rows("levels") if row["function"] == "turns"]
    stamped("short", 1000000)
    calls, to = stamped("short", 1000000)
    if calls or to != [""]: raise Failed(f"learned: {calls} with stamps, in order until {to}")
    calls, to = stamped("long", 10000)
    if calls < 1000 or "" in to: raise Failed(f"long: {calls} with stamps, in order until {to}")
    calls, to = stamped("short", 1000000)
    if not calls: raise Failed(f"forgotten: {calls} with stamps, in order until {to}")


@case
def left_out(b):
    """-N and -l: functions and modules that are not recorded."""
    b.record("plain", "-N", "fib")
    got = b.counts()
    if "fib" in got or got["tail"] != TAIL: raise Failed(got)
    b.record("plain", "-l", "program")
    same(b.counts(), ONE)


@case
def stops(b):
    """--stop-on a call, and a size, in each way to record in order: the program goes on without us, and what was recorded before is whole."""
    for stamps in ("auto", "none"):
        said = b.record("plain", "--stamps", stamps, "--stop-on", "call:long_one#200")
        got = b.counts()
        # Calls are told of when a part of the stream is full.
        if not 200 <= got["long_one"] <= LONG or got["fib"] != FIB or "ended early: --stop-on call:long_one#200" not in said: raise Failed(f"{stamps}: {got} {said}")
        # All of it takes less than 20 KiB where no call has a stamp, as it is where all of them are known to be short.
        said = b.record("plain", "--stamps", stamps, "--max-size", "8k")
        if "has reached --max-size" not in said: raise Failed(f"{stamps}: {b.counts()} {said}")


@case
def values(b):
    """Functions with values keep stamps, results and all values, however short; what they jump to is in order, and so are others."""
    for options in ([], ["-F", "body"]):
        b.record("plain", "-A", "tail@arg1/i64,retval/i64", "-A", "leaves@arg1/i64", *options)
        if not options: same(b.counts(), ONE)
        rows = [json.loads(line) for line in b.report("export", "jsonl").splitlines()]
        found = collections.defaultdict(list)
        for row in rows: found[row.get("function")].append(row)
        said = [(row["call"], row["result"]) for row in found["tail"]]
        if said != [(f"tail({i})", str(i + 2)) for i in range(TAIL)]: raise Failed(f"{options}: {len(said)}: {said[:3]}")
        same(collections.Counter(row["call"] for row in found["leaves"]), collections.Counter(f"leaves({n})" for i in range(LEAVES) for n in range(i % 5 + 1)))
        if any(row["duration_ns"] is None or row["caller"] != "body" for row in found["tail"]): raise Failed(f"{options}: not measured: {[row for row in found['tail'] if row['duration_ns'] is None][:2]}")
        leveled = {row["function"] for row in b.rows("levels") if row["level"] == "order"}
        if "leaf" not in leveled or leveled & {"tail", "leaves"}: raise Failed(f"{options}: in order: {leveled}")


@case
def values_too_deep(b):
    """Values of calls that -D leaves out are left out with them; and blocks that are full of the others can be read."""
    for depth, calls in (("3", 0), ("4", TAIL)):
        b.record("plain", "-A", "tail@arg1/i64,retval/i64", "-D", depth)
        rows = [json.loads(line) for line in b.report("export", "jsonl").splitlines()]
        got = [row["call"] for row in rows if row.get("call")]
        if len(got) != calls or any(not call.startswith("tail(") for call in got): raise Failed(f"-D {depth}: {len(got)} calls with values: {got[:3]}")


@case
def refused(b):
    """What needs the ends of calls is refused in one line before anything is started."""
    for option in (["--shadow", "--start-on", "call:fib"], ["--eval", 'at("fib").on_enter(|c| c.record());'], ["-K"], ["--count"], ["--hot-limit", "1k"], ["--stop-on", "return:leaf"], ["--ring", "4M", "--dump-on", "exit & slow:leaf>1s"]):
        run = [b.sptrace, "run", "--stamps", "auto", *option, "-o", b.trace, "--", b.program]
        done = subprocess.run(run, capture_output=True, text=True, timeout=20)
        if done.returncode != 2 or done.stdout or "--stamps auto does not go together" not in done.stderr or len(done.stderr.splitlines()) != 1: raise Failed(f"{option}: {done}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sptrace", default=None)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(find_sptrace(options.sptrace), folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
