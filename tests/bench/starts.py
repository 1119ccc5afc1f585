#!/usr/bin/env python3
"""Measures what recordings cost programs that end soon: start, first calls and end are most of that.

usage: tests/bench/starts.py [--only NAME]... [--kind full|auto|none|count|calls]... [--rounds N] [--sptrace PATH]...

Given: a built sptrace, or several to be compared, and gcc; the programs below that are installed. Gives for each program, kind and
sptrace, with a warm cache: the time that passes, the CPU time of the program (its children included, sptrace not), and that of both
together, in ms and over native; medians of rounds in which everything takes turns. Not in CI: figures of a machine with other work
mean little; of these the CPU times mean most. Must not know: how sptrace works.
"""
import argparse, os, resource, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
DEVNULL = subprocess.DEVNULL
KINDS = {"full": [], "auto": ["--stamps", "auto"], "none": ["--stamps", "none"], "count": ["--count"], "calls": ["--syscalls-only"]}


def programs(work):
    """name: command, of a program that is installed."""
    run = lambda *words: subprocess.run(words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True)
    found = {"true": ["/bin/true"]}
    with open(f"{work}/u.c", "w") as f:
        f.writelines(f"int f{i}(int *p, int n) {{ int r = 0; for (int j = 0; j < n; j++) {{ if (p[j] & {i}) r += p[j] * j; else r ^= j; }} return r; }}\n" for i in range(30))
    found["gcc"] = ["gcc", "-O2", "-c", f"{work}/u.c", "-o", "/dev/null"]
    if os.path.exists("/usr/bin/python3"): found["python3"] = ["/usr/bin/python3", "-c", "pass"]
    if shutil.which("git"):
        run("git", "init", "-q", f"{work}/repository")
        for i in range(5): open(f"{work}/repository/{i}.txt", "w").close()
        found["git"] = ["git", "-C", f"{work}/repository", "status"]
    if shutil.which("sqlite3"): found["sqlite3"] = ["sqlite3", ":memory:", "select 1"]
    if shutil.which("mplayer") and shutil.which("ffmpeg"):
        run("ffmpeg", "-y", "-f", "lavfi", "-i", "testsrc2=size=352x288:rate=25:duration=1", "-c:v", "mpeg2video", "-q:v", "4", f"{work}/film.mpg")
        found["mplayer"] = ["mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-nosound", "-vo", "null", f"{work}/film.mpg"]
    return found


def once(command, ns):
    """Milliseconds that pass, of the program's CPU time, and of that of all together."""
    spent = lambda: (lambda u: u.ru_utime + u.ru_stime)(resource.getrusage(resource.RUSAGE_CHILDREN))
    before, started = spent(), time.perf_counter()
    # Without a timeout: with one, Python looks again and again whether the process has ended, every 50 ms in the end.
    subprocess.run(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True)
    passed = time.perf_counter() - started
    with open(ns) as f: return passed * 1e3, float(f.read()) / 1e6, (spent() - before) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append")
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sptrace", action="append")
    options = parser.parse_args()
    tools = [os.path.abspath(t) for t in options.sptrace or [os.environ.get("SPTRACE", os.path.join(HERE, "../../target/release/sptrace"))]]
    with tempfile.TemporaryDirectory(prefix="sptrace-starts-", dir="/var/tmp") as work:
        timed, ns = f"{work}/timed", f"{work}/ns"
        subprocess.run(["gcc", "-O2", "-o", timed, f"{HERE}/timed.c"], check=True)
        print(f"{'ms, over native':36} {'passed':>16} {'CPU of program':>16} {'CPU of both':>16}")
        for name, command in programs(work).items():
            if options.only and name not in options.only: continue
            runs = {("native", ""): [timed, ns, *command]}
            runs |= {(kind, tool): [tool, "run", "-q", *KINDS[kind], "-o", f"{work}/trace.data", "--", timed, ns, *command] for kind in options.kind or ["full", "none", "count"] for tool in tools}
            for words in runs.values(): once(words, ns)  # analyses come into the cache
            samples = {key: [] for key in runs}
            for _ in range(options.rounds):
                for key, words in runs.items(): samples[key].append(once(words, ns))
            medians = {key: [statistics.median(s[k] for s in all_of) for k in range(3)] for key, all_of in samples.items()}
            native = medians["native", ""]
            for (kind, tool), now in medians.items():
                print(f"{name:8} {kind:6} {os.path.basename(tool):20} " + " ".join(f"{ms:9.1f} {ms / max(was, 0.1):6.2f}" for ms, was in zip(now, native)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
