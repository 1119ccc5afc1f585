#!/usr/bin/env python3
"""Whether estimates say which functions take the time: what `perf record` finds of a program alone, and where a recording has it.

usage: tests/bench/ranks.py [--only NAME]... [--stamps WHEN] [--scale FACTOR] [--sptrace PATH]

Given: a built sptrace, perf, and the programs of budgets.py that are installed. Gives for each the ten functions in which most samples of
the CPU clock lie, with their place in the list of a recording by own time. A sample counts for the last function that begins before
it, of those that were ever called. Asked for are nine among the first fifteen; how many there are depends on chance where a profile is
flat, so nothing fails by it. Not in CI: perf may not be allowed there. Must not know: how sptrace works.
"""
import argparse, bisect, collections, csv, io, os, re, shutil, subprocess, sys, tempfile, types

import budgets

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST, AMONG = 10, 15


def sampled(command, env, work):
    """Samples by file and address in it, as the file's own addresses are."""
    data = f"{work}/perf.data"
    subprocess.run(["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "4000", "-o", data, "--", *command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    text = subprocess.run(["perf", "script", "-i", data, "--show-mmap-events", "-F", "pid,ip"], capture_output=True, text=True, check=True).stdout
    maps, found = [], collections.Counter()
    for line in text.splitlines():
        mapped = re.search(r"PERF_RECORD_MMAP2? \d+/\d+: \[(0x[0-9a-f]+)\((0x[0-9a-f]+)\) @ (0x[0-9a-f]+|0) .*\]: (\S+) (/\S+)", line)
        sample = re.match(r"\s*\d*\s+([0-9a-f]+)\s*$", line)
        if mapped and "x" in mapped[4]:
            start, length, offset = (int(mapped[i], 16) for i in (1, 2, 3))
            # What lies where the file says has the file's addresses.
            maps.append((start, start + length, 0 if start < 1 << 32 else start - offset, os.path.basename(os.path.realpath(mapped[5]))))
        elif sample:
            ip = int(sample[1], 16)
            for start, end, base, path in maps:
                if start <= ip < end: found[path, ip - base] += 1
    return found


def recorded(options, command, env, work):
    """The functions of a recording, that with most own time first: file, address, name."""
    trace = f"{work}/trace.data"
    subprocess.run([options.sptrace, "run", "-q", "--stamps", options.stamps, "-o", trace, "--", *command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    text = subprocess.run([options.sptrace, "report", "functions", "--format", "csv", "-i", trace], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["address"]]
    own = lambda row: int(row["self_estimate_ns"] or row["self_ns"] or 0)
    return [(row["module"], int(row["address"], 16), row["function"]) for row in sorted(rows, key=own, reverse=True)]


def compare(name, samples, functions):
    known = collections.defaultdict(list)
    for path, address, _ in functions: bisect.insort(known[path], address)
    places = {(path, address): (place, function) for place, (path, address, function) in enumerate(functions, 1)}
    by_function = collections.Counter()
    for (path, address), count in samples.items():
        before = bisect.bisect(known[path], address) - 1
        by_function[(path, known[path][before]) if before >= 0 else (path, address)] += count
    total = sum(by_function.values())
    print(f"{name}: {total} samples, {len(functions)} functions")
    among = 0
    for key, count in by_function.most_common(FIRST):
        place, function = places.get(key, (None, f"{key[0]} {key[1]:#x}"))
        among += place is not None and place <= AMONG
        print(f"  {count / total * 100:5.1f} %  {'-' if place is None else place:>5}  {function[:80]}")
    print(f"  {among} of {FIRST} among the first {AMONG}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append")
    parser.add_argument("--stamps", default="auto")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(HERE, "../../target/release/sptrace")))
    options = parser.parse_args()
    options.sptrace = os.path.abspath(options.sptrace)
    if not shutil.which("perf"): sys.exit("no perf found")
    with tempfile.TemporaryDirectory(prefix="sptrace-ranks-", dir="/var/tmp") as work:
        bench = budgets.Bench(types.SimpleNamespace(scale=options.scale, sptrace=options.sptrace), work)
        env = {**bench.env, "HOME": os.environ.get("HOME", work)}
        for name, make in bench.programs().items():
            if options.only and name not in options.only: continue
            compare(name, sampled(make(2), env, work), recorded(options, make(2), env, work))


if __name__ == "__main__":
    main()
