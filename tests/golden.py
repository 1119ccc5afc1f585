#!/usr/bin/env python3
"""What every view shows of small traces, to the letter.

tests/golden/demo.trace has every kind of event and note, kernel.trace both sides of a program; a test of lib/trace makes them
(lib/trace/tests/golden.rs). Each view's output lies beside them. After a change that is meant: `tests/golden.py --write`, and look at the difference.
Needs nothing but a built sptrace. Exit status: 1 if an output differs.
"""
import argparse, difflib, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT, FOLDER = os.path.dirname(HERE), os.path.join(HERE, "golden")
# file: arguments of report; of kernel.trace if its name begins so
VIEWS = {
    "summary.txt": ["summary"],
    "functions.txt": ["functions"],
    "functions.self.txt": ["functions", "--sort", "self", "--limit", "4"],
    "functions.csv": ["functions", "--format", "csv"],
    "tree.txt": ["tree"],
    "tree.filtered.txt": ["tree", "-F", "demo::parse*", "-N", "free", "-D", "2"],
    "tree.long.txt": ["tree", "--min-time", "1us"],
    "tree.part.txt": ["tree", "--from", "20us", "--to", "50us", "--tid", "101", "--tid", "100"],
    "tree.limit.txt": ["tree", "--limit", "7", "--color", "always"],
    "tree.fold.txt": ["tree", "--fold"],
    "tree.around.txt": ["tree", "--around", "malloc#3", "--limit", "6", "--columns", "time,wall,duration,self,tid,pid,thread"],
    "tree.slowest.txt": ["tree", "--slowest", "2", "malloc"],
    "functions.columns.txt": ["functions", "--columns", "self,calls,untimed,earlier,p50,function,module,symbol", "--sort", "self"],
    "functions.columns.csv": ["functions", "--columns", "function,address,total,min,p50,p99,max,mean", "--format", "csv"],
    "tree.module.txt": ["tree", "-l", "libc*"],
    "coverage.txt": ["coverage"],
    "coverage.csv": ["coverage", "--format", "csv"],
    "folded.txt": ["folded"],
    "folded.calls.txt": ["export", "folded", "--by", "calls"],
    "export.chrome.json": ["export", "chrome"],
    "export.jsonl": ["export", "jsonl", "--tid", "102", "--min-time", "450ns"],
    "export.csv": ["export", "csv"],
    "export.perfetto": ["export", "perfetto", "--min-time", "300ns"],
    "export.firefox.json": ["export", "firefox"],
    "export.callgrind": ["export", "callgrind"],
    "export.dot": ["export", "dot", "--limit", "5"],
    "flame.diff.svg": ["flame", "--diff", os.path.join(FOLDER, "demo.trace"), "-F", "demo::parse*"],
    "flame.svg": ["flame", "--by", "calls", "--icicle"],
    "callers.txt": ["callers", "malloc"],
    "graph.txt": ["graph"],
    "graph.focus.txt": ["graph", "--focus", "malloc", "--limit", "6"],
    "graph.modules.csv": ["graph", "--per", "module", "--format", "csv"],
    "graph.modules.dot": ["graph", "--per", "module", "--format", "dot"],
    "graph.svg": ["graph", "--format", "svg"],
    "callees.csv": ["callees", "*", "--format", "csv"],
    "kernel.tree.txt": ["tree", "--from", "200us"],
    "kernel.waits.txt": ["waits"],
    "kernel.waits.limit.txt": ["waits", "--limit", "1"],
    "kernel.waits.csv": ["waits", "--format", "csv"],
    "kernel.laps.txt": ["waits", "--laps", "nanosleep"],
    "kernel.laps.long.txt": ["waits", "--laps", "nanosleep", "--min-time", "55us", "--limit", "1"],
    "kernel.laps.csv": ["waits", "--laps", "nanosleep", "--format", "csv"],
}


def shown(sptrace, name, arguments):
    trace = "kernel.trace" if name.startswith("kernel.") else "demo.trace"
    done = subprocess.run([sptrace, "report", "-i", os.path.join(FOLDER, trace), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, timeout=60)
    if done.returncode or done.stderr: raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}, {done.stderr.decode('latin1')[-300:]}")
    return done.stdout


def difference(want, got):
    """The lines that differ, or None."""
    if want == got: return None
    lines = [text.decode("utf-8", "replace").splitlines() for text in (want, got)]
    return "\n".join(list(difflib.unified_diff(*lines, "wanted", "shown", lineterm="", n=1))[:40]) or "line ends differ"


def self_check():
    expect = [difference(b"a\nb\n", b"a\nb\n") is None, "-b" in (difference(b"a\nb\n", b"a\nc\n") or ""), difference(b"a\r\n", b"a\n") is not None]
    print(f"{sum(expect)} passed, {len(expect) - sum(expect)} failed")
    return 0 if all(expect) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", metavar="PATH")
    parser.add_argument("--write", action="store_true", help="keep what is shown now")
    parser.add_argument("--self-check", action="store_true")
    args = parser.parse_args()
    if args.self_check: return self_check()
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    found = [p for p in (args.sptrace, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")) if p and os.path.exists(p)]
    if not found: sys.exit("golden: no sptrace found (build it with `cargo build --release`, or give --sptrace PATH)")
    failed = 0
    for name, arguments in VIEWS.items():
        path, got = os.path.join(FOLDER, name), shown(found[0], name, arguments)
        if args.write:
            with open(path, "wb") as out: out.write(got)
            continue
        with open(path, "rb") as kept: problem = difference(kept.read(), got)
        failed += problem is not None
        print(f"{'ok  ' if problem is None else 'FAIL'} {name}{'' if problem is None else chr(10) + problem}", flush=True)
    known = set(VIEWS) | {"demo.trace", "kernel.trace"}
    for name in sorted(set(os.listdir(FOLDER)) - known):
        failed += 1
        print(f"FAIL {name}: no view writes it")
    print(f"{len(VIEWS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
