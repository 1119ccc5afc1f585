#!/usr/bin/env python3
"""Stops a traced program in the middle of its calls by gdb, with scripts/gdb/sptrace.py: every backtrace must reach main.

usage: tests/gdb.py [--stops N] [--option ARG]... [--sptrace PATH]

Given: a built sptrace, gcc and gdb; without gdb nothing is tested, which is said. Gives: `N passed, N failed` on the last line.
Must not know: how sptrace works.
"""
import argparse, os, re, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SCRIPT = os.path.join(ROOT, "scripts", "gdb", "sptrace.py")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f: return [int(p) for p in f.read().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    parser.add_argument("--option", action="append", default=[])
    args = parser.parse_args()
    if not shutil.which("gdb"):
        print("gdb is not installed: nothing tested")
        return 0
    with open(os.path.join(ROOT, "lib", "wire", "src", "plan", "area.rs")) as f: [start] = re.findall(r"SLOTS_START: u32 = (\w+);", f.read())
    with open(SCRIPT) as f: [known] = re.findall(r"^SLOTS_START = (\w+)", f.read(), re.M)
    if int(start, 16) != int(known, 16): sys.exit(f"slots begin at {start}, and the script says {known}")
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="sptrace-gdb-") as work:
        busy = os.path.join(work, "busy")
        subprocess.run(["gcc", "-g", "-O2", "-o", busy, os.path.join(HERE, "programs", "busy", "busy.c")], check=True)
        run = subprocess.Popen([args.sptrace, "run", "-q", "--ring", "16M", *args.option, "-o", os.path.join(work, "trace.data"), "--", busy, "1000000000000"])
        try:
            time.sleep(1.5)
            [program] = children(run.pid)
            for _ in range(args.stops):
                words = ["gdb", "-nx", "-batch", "-p", str(program), "-ex", f"source {SCRIPT}", "-ex", "bt"]
                out = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120).stdout.decode("latin1")
                frames = [line for line in out.split("\n") if line.startswith("#")]
                if frames and re.search(r" main \(", frames[-1]) and "rror" not in out: passed += 1
                else:
                    failed += 1
                    print("FAIL " + "\n     ".join(frames or out.split("\n")))
        finally:
            for pid in children(run.pid): os.kill(pid, 9)
            run.wait()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
