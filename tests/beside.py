#!/usr/bin/env python3
"""What calls in order are recorded beside: with each option of a recording, `--stamps auto` and `none` show the tree that `full` shows.

usage: tests/beside.py [--sptrace PATH] [--only GLOB]

Given gcc. Makes a program that calls, recurses, jumps to other functions, leaves functions by longjmp, handles signals, calls the kernel, and
has a child. Records it by each of the three and compares all but times and addresses. Exit status: 1 if anything failed.
"""
import argparse, collections, difflib, os, re, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, find_sptrace, run_cases

case = Cases()
SOURCE = r"""
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noipa))
static jmp_buf back;
static int out;
F long leaf(long x) { return x + 1; }
F long tail(long x) { return leaf(x + 1); }
F long mid(long x) { return leaf(x) ^ tail(x); }
F long top(long n) { long s = 0; for (long i = 0; i < n; i++) s += mid(i); return s; }
F long fib(long n) { return n < 2 ? leaf(n) : fib(n - 1) ^ 3 * fib(n - 2); }
F void bail(long n) { if (!n) longjmp(back, 1); bail(n - 1); leaf(n); }
F void handler(int signal) { leaf(signal); write(out, "h", 1); }
#ifndef SIGNALS
#define raise(signal) 0
#endif
/* Between two calls of the kernel one that has returned: it is around neither. */
F void raw(void) { leaf(1); syscall(SYS_getppid); mid(2); syscall(SYS_getuid); }
F void work(long n) {
    top(n);
    write(out, "x", 1);
    if (!setjmp(back)) bail(3);
    raise(SIGUSR1);
    raw();
}
static long (*volatile pointer)(long) = fib;
F void late(void) { mid(1); }
int main(void) {
#ifdef LATE
    usleep(400000);
    late();
    top(5);
    puts("over");
    return 5;
#endif
    signal(SIGUSR1, handler);
    out = open("/dev/null", O_WRONLY);
    for (long i = 0; i < 6; i++) work(i);
    pointer(9);
    if (!fork()) { work(2); _exit(0); }
    wait(0);
    for (long i = 0; i < 6; i++) work(i);
    puts("over");
    return 5;
}
"""
# What is so by chance, or is no call: numbers, random bytes, and what the program waited for.
CHANCE = [(r"/\*.*?\*/", ""), (r'getrandom\(".*", 8', 'getrandom(R, 8'), (r"0x[0-9a-f]+", "X"), (r"\b\d{3,}\b", "N"), (r"sub_[0-9a-f]+", "sub_")]


class Bench:
    def __init__(self, sptrace, folder):
        self.sptrace, self.folder, self.trace = sptrace, folder, f"{folder}/t.data"
        self.program = f"{folder}/program"
        with open(f"{folder}/program.c", "w") as file: file.write(SOURCE)
        # Where a handler is called nobody sees: only a call of the kernel says what has ended by then.
        for name, flags in {"": ["-fno-optimize-sibling-calls"], ".tails": [], ".signals": ["-DSIGNALS", "-fno-optimize-sibling-calls"], ".late": ["-DLATE"]}.items():
            subprocess.run(["gcc", "-O2", "-g", *flags, "-o", f"{self.program}{name}", f"{folder}/program.c"], check=True)

    def record(self, stamps, *options, program=None):
        command = [self.sptrace, "run", "--stamps", stamps, "-o", self.trace, *options, "--", program or self.program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        if (done.returncode, done.stdout) != (5, "over\n"): raise Failed(f"{stamps}: status {done.returncode}: {done.stdout}{done.stderr}")
        if " 0 lost" not in done.stderr: raise Failed(f"{stamps}: {done.stderr}")
        return done.stderr

    def report(self, *words):
        done = subprocess.run([self.sptrace, "report", *words, "-i", self.trace], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
        if done.returncode: raise Failed(f"report {words}: {done.stderr}")
        return done.stdout

    def tree(self):
        """Of each process its calls, by how deep they are."""
        trees = collections.defaultdict(list)
        for line in self.report("tree").splitlines():
            got = re.match(r"[^|]*\[ *(\d+)\] \|(.*)", line)
            if not got: continue
            text = got[2]
            for what, by in CHANCE: text = re.sub(what, by, text)
            text = text.rstrip().rstrip(";{ ")
            # Where a call ends is seen by where the next one begins.
            if text.strip() not in ("", "}"): trees[got[1]].append(text)
        # One function of the loader's start is seen in one way to record, and not in another.
        return [[line for line in trees[tid] if "__tunable_get_val" not in line] for tid in sorted(trees, key=int)]


def compare(b, *options, program=None):
    """The trees of the three are the same. Gives that of `full`."""
    b.record("full", *options, program=program)
    full = b.tree()
    if not full: raise Failed("nothing was recorded")
    for stamps in ("none", "auto"):
        b.record(stamps, *options, program=program)
        got = b.tree()
        for number, (wanted, tree) in enumerate(zip(full, got)):
            # Which calls a child was forked in its parent's records say, where those are in order.
            if number: wanted, tree = since_fork(wanted), since_fork(tree)
            if wanted != tree:
                differences = list(difflib.unified_diff(wanted, tree, "full", stamps, lineterm="", n=3))
                raise Failed(f"{stamps}, process {number}:\n" + "\n".join(differences[:60]))
        if len(got) != len(full): raise Failed(f"{stamps}: {len(got)} processes, not {len(full)}")
    return full


def since_fork(tree):
    """What a child has done, as deep as if it had begun with that."""
    begun = next((i for i, line in enumerate(tree) if line.strip() == "work()"), 0)
    margin = len(tree[begun]) - len(tree[begun].lstrip()) - 1 if tree else 0
    return [line[margin:] for line in tree[begun:]]


def names(tree): return [re.match(r" *([\w.]+)", line)[1] for line in tree if re.match(r" *[\w.]+", line)]


@case
def nothing_else(b):
    compare(b)


@case
def jumps(b):
    compare(b, program=f"{b.program}.tails")


@case
def system_calls(b):
    """They are where they were made, and calls that have returned before are not around them."""
    tree = compare(b, "--syscalls=all")[0]
    raw = [line for line in tree if re.match(r" *(raw|leaf|mid|tail|syscall|getppid|getuid)\b", line)]
    if "getppid" not in names(raw) or "getuid" not in names(raw): raise Failed(raw[:20])
    b.record("none", "--syscalls=all")
    rows = b.report("syscalls").splitlines()
    if not any(re.search(r"\b14\b.* write$", row) for row in rows): raise Failed(rows)


@case
def system_calls_of_jumps(b):
    compare(b, "--syscalls=all", program=f"{b.program}.tails")


@case
def handlers(b):
    compare(b, "--syscalls=all", program=f"{b.program}.signals")


@case
def within(b):
    for options in (["-F", "mid"], ["-F", "fib"], ["-F", "work", "-F", "fib"], ["-F", "handler"], ["-F", "raw", "--syscalls=all"]):
        for program in (b.program, f"{b.program}.tails", f"{b.program}.signals") if options[1] != "handler" else (f"{b.program}.signals",):
            calls = ["--syscalls=all"] if program.endswith(".signals") and "--syscalls=all" not in options else []
            tree = compare(b, *options, *calls, program=program)
            if {"main", "_exit"} & set(names(tree[0])): raise Failed(tree[0][:9])


@case
def between(b):
    compare(b, "--between", "top", "call:work#2", "call:bail#7")
    compare(b, "--between", "*", "call:fib", "call:leaf#30", "--syscalls=all")


@case
def depth(b):
    """No call is deeper than asked for, and all others are there."""
    for limit in (3, 5):
        for more in ([], ["--syscalls=write"]):
            b.record("full", *more)
            all_of = b.tree()
            for stamps in ("none", "auto"):
                b.record(stamps, "-D", str(limit), *more)
                for wanted, tree in zip(all_of, b.tree()):
                    # Of the program's own: what goes on with a call is drawn deeper. A child's depth counts from the fork on.
                    own = [[line for line in lines if re.match(r" *(main|work|top|mid|leaf|tail|bail|fib|raw|write)\(\)", line)] for lines in (wanted, tree)]
                    deep = [line for line in own[1] if len(line) - len(line.lstrip()) > 2 * limit + 1]
                    if deep: raise Failed(f"{stamps} -D {limit}: {deep[:5]}")
                    shallow = [line for line in own[0] if len(line) - len(line.lstrip()) <= 2 * limit + 1]
                    if wanted is not all_of[0]: continue
                    missing = collections.Counter(shallow) - collections.Counter(own[1])
                    if missing: raise Failed(f"{stamps} -D {limit}: {missing.most_common(5)} are missing")


@case
def left_out(b):
    compare(b, "-N", "mid")
    compare(b, "-l", "program", "--syscalls=write")
    compare(b, "--eval", 'propagate(|f| if f.name == "mid" { skip } else if f.name == "fib" { leaf } else { record })')


@case
def started_later(b):
    """From a call on: that is recorded from within, and all that comes, nothing of before."""
    for stamps in ("full", "none", "auto"):
        b.record(stamps, "--start-on", "call:late", "--syscalls=write", program=f"{b.program}.late")
        got = collections.Counter(names(b.tree()[0]))
        if (got["mid"], got["top"], got["usleep"]) != (6, 1, 0) or not got["write"]: raise Failed(f"{stamps}: {got}")


@case
def ring_and_dump(b):
    for stamps in ("none", "auto"):
        b.record(stamps, "--ring", "4M", "--dump-on", "exit", "--syscalls=all")
        got = names(b.tree()[0])
        if got.count("work") != 12 or got.count("getuid") < 12: raise Failed(f"{stamps}: {collections.Counter(got).most_common(9)}")


@case
def counted_calls_of_the_kernel(b):
    """-c prints how often each was called, as without functions in order."""
    def counts(stamps):
        said = b.record(stamps, "-c")
        return {row[-1]: row[3] for row in map(str.split, said.splitlines()) if len(row) in (5, 6) and re.match(r"[\d.]+$", row[0])}
    full = counts("full")
    if full.get("write") != "14": raise Failed(full)
    for stamps in ("none", "auto"):
        if counts(stamps) != full: raise Failed(f"{stamps}: {counts(stamps)}, not {full}")


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
