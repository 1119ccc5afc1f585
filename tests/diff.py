#!/usr/bin/env python3
"""`report diff` of two builds of a program names what differs between them, and nothing else; of two runs of one: nothing.

usage: tests/diff.py [--sptrace PATH]

Builds a program twice: in the second build one function does more, one is inlined, one is added. Needs a built sptrace and gcc.
Exit status: 1 if something else is said.
"""
import argparse, csv, io, os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = r"""
#include <stdio.h>
#ifdef CHANGED
#define ROUNDS 3000
#define FOLDED static inline __attribute__((always_inline))
#else
#define ROUNDS 500
#define FOLDED __attribute__((noinline))
#endif
#define NOINLINE __attribute__((noinline, aligned(64)))
volatile int sink;
// In a register: how long a store and the load behind it take changes from run to run.
#define SPIN(rounds) for (int i = 0; i < rounds; i++) { n = n * 3 + 1; __asm__ volatile("" : "+r"(n)); } sink = n
NOINLINE void f_steady(int n) { SPIN(500); }
NOINLINE void f_slowed(int n) { SPIN(ROUNDS); }
NOINLINE void f_added(int n) { sink -= n; }
FOLDED void f_folded(int n) { sink ^= n; }
NOINLINE void f_work(int n) {
    f_steady(n); f_slowed(n); f_folded(n);
#ifdef CHANGED
    if (n % 2) f_added(n);
#endif
}
int main(void) { for (int n = 0; n < 2000; n++) f_work(n); puts("done"); return 0; }
"""
WANTED = {("new", "f_added"), ("gone", "f_folded"), ("slower", "f_slowed")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    args = parser.parse_args()
    folder, results = tempfile.mkdtemp(prefix="sptrace-diff-"), []

    def path(name): return os.path.join(folder, name)

    def diff(*names):
        done = subprocess.run([args.sptrace, "report", "diff", *(path(n) for n in names), "--format", "csv"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode, {(r["kind"], r["function"]) for r in csv.DictReader(io.StringIO(done.stdout, newline=""))}

    def result(what, want, got):
        results.append(want == got)
        print(f"{'ok  ' if want == got else 'FAIL'} {what}{'' if want == got else f': wanted {want}, got {got}'}", flush=True)

    with open(path("program.c"), "w") as out: out.write(PROGRAM)
    for name, options in (("old", []), ("new", ["-DCHANGED"])):
        subprocess.run(["gcc", "-O1", "-falign-loops=64", *options, "-o", path(name), path("program.c")], check=True)
        for run in "123":
            subprocess.run([args.sptrace, "run", "-q", "-o", path(name + run), "--", path(name)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60)
    result("two builds", (1, WANTED), diff("old1", "new1"))
    result("two builds, the other way", (1, {("gone", "f_added"), ("new", "f_folded"), ("faster", "f_slowed")}), diff("new1", "old1"))
    result("two runs of one", (0, set()), diff("old1", "old2"))
    result("several old runs", (1, WANTED), diff("old1", "old2", "old3", "new2"))
    result("several runs of one", (0, set()), diff("new1", "new2", "new3"))
    result("a trace is missing", (2, set()), diff("old1", "nothing"))
    text = subprocess.run([args.sptrace, "report", "diff", path("old1"), path("new1")], capture_output=True, text=True, timeout=60).stdout
    result("where the order parts", True, "old f_folded (program), new f_work (program)" in text and "main > f_work" in text)
    shutil.rmtree(folder)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
