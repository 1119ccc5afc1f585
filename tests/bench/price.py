#!/usr/bin/env python3
"""Measures what recordings of each kind cost whole programs: with stamps, some of them, none, and counts alone.

usage: tests/bench/price.py [--only NAME]... [--rounds N] [--scale FACTOR] [--peers] [--json FILE] [--sptrace PATH]

Given: a built sptrace and gcc; the programs of budgets.py that are installed, and gcc and make with sources that it writes. Gives for
each program and kind the CPU time of the program (its children included, sptrace not) and the time that passes (with sptrace's own
start and end), both over native: medians of interleaved rounds, start-up included; which share of the calls has stamps; and what the
project wants at most, marked where it is not reached. A recording that lost something is an error. --peers has callgrind and perf stat
beside it, once each, if they are installed. Not in CI: figures of a machine with other work mean little. Must not know: how sptrace works.
"""
import argparse, csv, io, json, os, shutil, statistics, subprocess, sys, tempfile, time, types

import budgets

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"full": [], "auto": ["--stamps", "auto"], "none": ["--stamps", "none"], "count": ["--count"]}
# CPU time of the program over native, at most; and for those that are built of short processes, the time that passes.
WANTED = {"auto": {"lua": 2.0, "sqlite3": 1.7, "python3": 1.35, "perl": 1.45, "xz": 1.25, "cc1": 1.5, "mplayer": 1.12},
          "count": {"lua": 1.4, "sqlite3": 1.3, "python3": 1.15, "xz": 1.1, "cc1": 1.2}}
WANTED_WALL = {"auto": {"gcc": 3.0, "make": 2.5}}


class Bench:
    def __init__(self, options, work):
        self.options, self.work, self.trace, self.ns = options, work, f"{work}/trace.data", f"{work}/ns"
        self.timed, self.failures, self.result = f"{work}/timed", [], {}
        subprocess.run(["gcc", "-O2", "-o", self.timed, f"{HERE}/timed.c"], check=True)

    def programs(self):
        others = budgets.Bench(types.SimpleNamespace(scale=self.options.scale, sptrace=self.options.sptrace), self.work)
        self.env = {**others.env, "HOME": os.environ.get("HOME", self.work)}
        found = {name: make(2) for name, make in others.programs().items()}
        unit = lambda k: "".join(f"int f{k}_{i}(int *p, int n) {{ int r = 0; for (int j = 0; j < n; j++) {{ if (p[j] & {i}) r += p[j] * j; else r ^= j; }} return r; }}\n" for i in range(30))
        for k in range(24):
            with open(f"{self.work}/u{k}.c", "w") as f: f.write(unit(k))
        with open(f"{self.work}/Makefile", "w") as f:
            f.write("all: " + " ".join(f"u{k}.o" for k in range(24)) + "\n%.o: %.c\n\t@gcc -O2 -c $< -o /dev/null\n")
        found["gcc"] = ["gcc", "-O2", "-c", f"{self.work}/u0.c", "-o", "/dev/null"]
        if shutil.which("make"): found["make"] = ["make", "-s", "-B", "-j2", "-C", self.work]
        return found

    def once(self, command, tool=()):
        """Seconds of the program's CPU time, and those that pass."""
        started = time.perf_counter()
        done = subprocess.run([*tool, self.timed, self.ns, *command], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=900)
        passed = time.perf_counter() - started
        if done.returncode != 0: raise RuntimeError(f"{' '.join([*tool, *command])[:200]}: status {done.returncode}: {done.stderr[-300:]!r}")
        with open(self.ns) as f: return float(f.read()) / 1e9, passed

    def traced(self, kind): return [self.options.sptrace, "run", "-q", *KINDS[kind], "-o", self.trace, "--"]

    def kept(self):
        """Share of the calls with stamps; an error if some were lost."""
        report = lambda *words: list(csv.DictReader(io.StringIO(subprocess.run([self.options.sptrace, "report", *words, "--format", "csv", "-i", self.trace], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout)))
        lost = sum(int(row["count"]) for row in report("coverage") if (row["section"], row["key"]) == ("loss", "events dropped"))
        if lost: raise RuntimeError(f"{lost} events were lost")
        calls = timed = 0
        for row in report("functions"):
            calls += int(row["calls"])
            timed += int(row["timed_calls"])
        return timed / max(1, calls), calls

    def measure(self, name, command):
        for kind in KINDS: self.once(command, self.traced(kind))  # analyses come into the cache
        spent, kept = {kind: [] for kind in ["native", *KINDS]}, {}
        for _ in range(self.options.rounds):
            for kind, samples in spent.items():
                samples.append(self.once(command, self.traced(kind) if kind in KINDS else ()))
                if kind in KINDS: kept[kind] = self.kept()
        cpu, wall = ({kind: statistics.median(sample[k] for sample in samples) for kind, samples in spent.items()} for k in (0, 1))
        self.result[name] = {"native_s": cpu["native"]}
        for kind in KINDS:
            share, calls = kept[kind]
            over = (cpu[kind] / cpu["native"], wall[kind] / wall["native"])
            self.result[name][kind] = {"cpu": over[0], "wall": over[1], "with_stamps": share, "calls": calls}
            wanted = [f"{what} {most:.2f}" + ("" if got <= most else ", not reached")
                      for what, table, got in (("CPU", WANTED, over[0]), ("wall", WANTED_WALL, over[1])) if (most := table.get(kind, {}).get(name))]
            print(f"{name:8} {kind:6} {over[0]:8.2f} {over[1]:8.2f} {share * 100:9.1f} % {calls / 1e6:9.1f} million {cpu['native']:8.2f} s   {'; '.join(wanted)}", flush=True)

    def peers(self, name, command):
        native = self.once(command)
        tools = {"callgrind": ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-children=yes"], "perf stat": ["perf", "stat", "-e", "task-clock,page-faults"]}
        for tool, words in tools.items():
            if not shutil.which(words[0]): continue
            try: cpu, wall = self.once(command, words)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name:8} {tool}: {str(error)[:150]}")
                continue
            print(f"{name:8} {tool:9} {cpu / native[0]:5.2f} {wall / native[1]:8.2f}", flush=True)

    def run(self):
        print(f"{'':15} {'CPU':>8} {'wall':>8} {'with stamps':>11} {'calls':>17} {'native':>10}   wanted at most")
        for name, command in self.programs().items():
            if self.options.only and name not in self.options.only: continue
            try:
                self.measure(name, command)
                if self.options.peers: self.peers(name, command)
            except (RuntimeError, subprocess.SubprocessError, OSError) as error: self.failures.append(f"{name}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(HERE, "../../target/release/sptrace")))
    options = parser.parse_args()
    options.sptrace = os.path.abspath(options.sptrace)
    with tempfile.TemporaryDirectory(prefix="sptrace-price-", dir="/var/tmp") as work:
        bench = Bench(options, work)
        bench.run()
    if options.json:
        with open(options.json, "w") as f: json.dump(bench.result, f, indent=1)
    for failure in bench.failures: print(f"price: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
