#!/usr/bin/env python3
"""All exports of one trace say the same: calls to the call, times to the nanosecond.

usage: tests/exports.py [--long] [--sptrace PATH] [--programs FOLDER] [--keep FOLDER]

Records programs with threads, forks and exceptions, and python3; exports each trace in every format, and reads each export with
something that is not ours where there is one: csv, json and xml of Python, callgrind_annotate, graphviz, DuckDB, for Perfetto a small
reader of protocol buffers and the schema of its Python package, for the Firefox Profiler its published types and its own tool. The traces' clock is set to one tick a nanosecond before, so that nothing is rounded.
Needs a built sptrace and the test programs. Exit status: 1 if a sum differs.
"""
import argparse, collections, csv, io, json, os, re, shutil, struct, subprocess, sys, tempfile, time, xml.etree.ElementTree as ElementTree, zlib

import readers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMANDS = {
    "threads": ["threads.O2"], "exceptions": ["exceptions.O2"], "forks": ["lineage.O2"], "tails": ["flow.O2"],
    "python3": ["/usr/bin/python3", "-S", "-c", "import re; re.compile('a+b'); print(sum(range(1000)))"],
}
# Of the same programs: how they are recorded.
OPTIONS = {"ring": ["--ring", "2M", "-A", "*"], "windows": ["--start-on", "time:30ms", "--stop-on", "time:30ms", "--times", "3"]}
COMMANDS["ring"] = ["/usr/bin/python3", "-S", "-c", "for i in range(9000): len(str(i) * 50)"]
COMMANDS["windows"] = ["/usr/bin/python3", "-S", "-c", "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: time.sleep(0.0005)"]
UNKNOWN = ("not seen", "unwound")


def leb(data, at):
    """(number, offset after it)"""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80: return value, at


def put_leb(value, length):
    """With exactly so many bytes."""
    out = bytes((value >> 7 * i & 0x7f) | 0x80 for i in range(length - 1))
    return out + bytes([value >> 7 * (length - 1)])


def set_clock(path):
    """One tick a nanosecond: the header's frequency becomes 1 GHz (lib/trace/src/format.rs tells the layout)."""
    data = bytearray(open(path, "rb").read())
    start, length = 28, struct.unpack_from("<I", data, 20)[0]
    at = start
    arguments, at = leb(data, at)
    for _ in range(arguments + 5):
        size, at = leb(data, at)
        at += size
    _, at = leb(data, at)
    _, after = leb(data, at)
    data[at:after] = put_leb(1_000_000_000, after - at)
    struct.pack_into("<I", data, 24, zlib.crc32(data[start:start + length]))
    open(path, "wb").write(data)


def messages(data):
    """(field, value) of a protocol buffer message; numbers as int, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = leb(data, at)
        if key & 7 == 0: value, at = leb(data, at)
        elif key & 7 == 1: value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif key & 7 == 2:
            size, at = leb(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size: raise ValueError("a message ends early")
        else: raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


class Trace:
    """One trace, and what sptrace says of it."""
    def __init__(self, sptrace, path): self.sptrace, self.path = sptrace, path

    def report(self, *arguments):
        done = subprocess.run([self.sptrace, "report", "-i", self.path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        if done.returncode: raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}, {done.stderr.decode('utf-8', 'replace')[-300:]}")
        return done.stdout

    def rows_by_time(self):
        """The calls in the order of their ends; a limit makes the order that of time, not that of the file."""
        return self.rows("export", "csv", "--limit", str(1 << 40))

    def rows(self, *arguments):
        """Without the bounds of durations that were not measured, which are in the csv alone."""
        rows = csv.DictReader(io.StringIO(self.report(*arguments).decode(), newline=""))
        return [{k: v for k, v in row.items() if k not in ("duration_min_ns", "duration_max_ns")} for row in rows]

    def export(self, name, *arguments): return self.report("export", name, "--limit", "0" if name != "dot" else "1000000", *arguments)


def number(text): return int(text) if text != "" else 0


def add(*parts):
    """Sums by name: parts are (name, numbers)."""
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for name, numbers in parts:
        for i, n in enumerate(numbers): sums[name][i] += n
    return {name: tuple(n) for name, n in sums.items() if any(n)}


def of_functions(trace): return add(*(((r["module"], r["function"]), (number(r["calls"]), number(r["total_ns"]), number(r["self_ns"]))) for r in trace.rows("functions", "--format", "csv")))


def of_rows(rows):
    """From rows in the order of ends: backwards, what lies around a call comes before it."""
    stacks, parts = collections.defaultdict(list), []
    for row in reversed(rows):
        stack, depth = stacks[row["tid"], row["pid"]], int(row["depth"])
        del stack[depth:]
        # Functions of the same module and name are told apart by nothing here; see `ambiguous`.
        name = (row["module"], row["function"])
        total = 0 if name in stack else number(row["duration_ns"])
        stack.extend([None] * (depth - len(stack)))
        stack.append(name)
        parts.append((name, (row["begin"] != "earlier", total, number(row["self_ns"]))))
    return add(*parts)


def of_callgrind(trace, folder, *options):
    path = os.path.join(folder, "callgrind.out")
    with open(path, "wb") as out: out.write(trace.export("callgrind"))
    text = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", *options, path], capture_output=True, check=True, text=True).stdout
    # Calls (if all events are shown) and nanoseconds, each with or without a share, then FILE:NAME [OBJECT].
    number, share = r"([\d,]+)", r"(?: \([^)]*\))?"
    place = r"([^:]+):(.*?)(?: \[0x[0-9a-f]+\])?(?: \[(?:\[[^\]]*\]|[^\]]*)\])?$"
    line_of = re.compile(rf"\s*{number}{share}\s+{number}{share}\s+{place}")
    parts = []
    for line in text.splitlines():
        found = line_of.match(line)
        if found and found[3] != "???": parts.append(((found[3], found[4]), (int(found[2].replace(",", "")), 0, int(found[1].replace(",", "")))))
    return add(*parts)


def of_chrome(trace):
    events = [e for e in json.loads(trace.export("chrome"), parse_float=lambda t: int(t.replace(".", "")))["traceEvents"] if e["ph"] == "X"]
    parts = []
    for e in events:
        args = e.get("args", {})
        ns = 0 if args.get("end") in UNKNOWN else args.get("duration_ns", e["dur"])
        parts.append(((e["cat"], e["name"]), (args.get("begin") != "earlier", ns)))
    return add(*parts)


def of_perfetto(trace):
    """Sums, and the time of all outermost slices. Every slice must lie in the one around it.

    A thread that executes another program has one track and two streams, and what the first one left open ends at the
    end of the file. So the events of a track are put in the order of time, as the viewer does; those of one time stay
    as they are.
    """
    tracks, parts, outer_ns = perfetto_tracks(trace), [], 0
    for events in tracks.values():
        stack = []
        for at, is_begin, name, notes in sorted(events, key=lambda event: event[0]):
            if is_begin:
                stack.append((name, at, notes.get(1)))
                continue
            if not stack: raise ValueError("a slice ends that has not begun")
            name, begin, how = stack.pop()
            if not stack: outer_ns += at - begin
            ns = 0 if notes.get(2, b"").decode() in UNKNOWN else notes.get(3, at - begin)
            parts.append((name, (how != b"earlier", ns)))
        if stack: raise ValueError("a slice has no end")
    return add(*parts), outer_ns


def perfetto_tracks(trace):
    """By track its events as they lie in the file: (time, does a slice begin?, name or None, notes)."""
    names, modules, tracks = {}, {}, collections.defaultdict(list)
    for _, packet in messages(trace.export("perfetto")):
        fields = dict(messages(packet))
        for kind, entry in messages(fields.get(12, b"")):
            entry = dict(messages(entry))
            if kind in (1, 2): (modules if kind == 1 else names)[entry[1]] = entry[2].decode()
        if 11 not in fields: continue
        event, notes = dict(messages(fields[11])), {}
        if event[9] == 3: continue  # a moment, which is no call
        for field, value in messages(fields[11]):
            if field == 4:
                note = dict(messages(value))
                notes[note[1]] = note.get(3, note.get(6))
        is_begin = event[9] == 1
        name = (modules[event[3]], names[event[10]]) if is_begin else None
        tracks[event[11]].append((fields[8], is_begin, name, notes))
    return tracks


def of_firefox(trace):
    """The weight of all samples; every index must lie in its table."""
    total = 0
    profile = json.loads(trace.export("firefox"), parse_float=lambda t: int(t.replace(".", "")))
    for thread in profile["threads"]:
        for table in ("frameTable", "funcTable", "stackTable", "samples", "resourceTable"):
            columns = {k: v for k, v in thread[table].items() if isinstance(v, list)}
            if {len(c) for c in columns.values()} - {thread[table]["length"]}: raise ValueError(f"{table}: columns of different length")
        stack, func, samples = thread["stackTable"], thread["funcTable"], thread["samples"]
        if any(p is not None and p >= i for i, p in enumerate(stack["prefix"])): raise ValueError("a stack comes before the one below it")
        if any(f >= thread["frameTable"]["length"] for f in stack["frame"]): raise ValueError("a stack has no frame")
        if any(s is not None and s >= stack["length"] for s in samples["stack"]): raise ValueError("a sample has no stack")
        if any(n >= len(thread["stringArray"]) for n in func["name"]): raise ValueError("a function has no name")
        if samples["time"] != sorted(samples["time"]): raise ValueError("samples are not in order")
        total += sum(samples["weight"])
    return total


def of_folded(text):
    """By the innermost function's name."""
    return add(*((line.rpartition(" ")[0].split(";")[-1], (int(line.rpartition(" ")[2]),)) for line in text.decode().splitlines()))


def of_flame(trace, *options):
    """By name, and the sum that the root states."""
    graph = ElementTree.fromstring(trace.report("flame", *options)).find("{http://www.w3.org/2000/svg}g[@id='frames']")
    return add(*((g.get("data-n").replace(";", ":"), (int(g.get("data-o")),)) for g in graph)), int(graph[0].get("data-v"))


def of_dot(trace):
    text = trace.export("dot")
    canonical = subprocess.run(["nop"], input=text, capture_output=True, check=True).stdout.decode()
    calls = sum(int(n) for n in re.findall(r"\\n(\d+) calls\\ntotal", canonical.replace("\\\n", "")))
    subprocess.run(["dot", "-Tsvg"], input=trace.report("export", "dot", "--limit", "30"), capture_output=True, check=True, timeout=60)
    return calls


def compare(trace, folder):
    """(what, wanted, got) of every export"""
    want, rows, by_time = of_functions(trace), trace.rows("export", "csv"), trace.rows_by_time()
    calls, own = sum(n[0] for n in want.values()), sum(n[2] for n in want.values())
    names = [(r["module"], r["function"]) for r in trace.rows("functions", "--format", "csv")]
    ambiguous = {name for name, times in collections.Counter(names).items() if times > 1}
    # A name that several functions have hides which of them is the outermost one.
    def clear(sums): return {name: n if name not in ambiguous else (n[0], 0, n[2]) for name, n in sums.items()}
    yield "csv", clear(want), clear(of_rows(by_time))
    yield "csv, in both orders", sorted_rows(by_time), sorted_rows(rows)
    lines = [json.loads(line) for line in trace.export("jsonl").splitlines()]
    yield "jsonl", rows, [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines]
    durations = add(*(((r["module"], r["function"]), (r["begin"] != "earlier", number(r["duration_ns"]))) for r in rows))
    yield "chrome", durations, of_chrome(trace)
    slices, outer_ns = of_perfetto(trace)
    yield "perfetto", durations, slices
    if readers.perfetto_schema():
        exported = trace.export("perfetto")
        yield "perfetto, by its schema", durations, readers.perfetto_sums(exported, UNKNOWN)
        # Each process but the first one was made by another, most of them by one whose thread is known; a flow ends there.
        starts, processes = readers.perfetto_flows(exported), list(dict.fromkeys(r["pid"] for r in sorted(rows, key=lambda r: int(r["start_ns"]))))
        made = set(map(int, processes[1:]))
        yield "perfetto, flows", (set(), True), (set(starts) - made, 10 * len(starts) >= 9 * len(made))
    yield "firefox", outer_ns, of_firefox(trace)
    yield from compare_firefox(trace, folder, outer_ns)
    yield "callgrind", add(*((name, (n[0], 0, n[2])) for name, n in want.items())), of_callgrind(trace, folder)
    known = {(r["module"], r["function"]) for r in rows} - {(r["module"], r["function"]) for r in rows if r["duration_ns"] == ""} - ambiguous
    inclusive = of_callgrind(trace, folder, "--inclusive=yes")
    yield "callgrind, inclusive", {name: want[name][1] for name in known if want.get(name, (0, 0))[1]}, {name: n[2] for name, n in inclusive.items() if name in known and n[2]}
    for by, index in (("time", 2), ("calls", 0)):
        sums = add(*((name[1].replace(";", ":"), (n[index],)) for name, n in want.items()))
        folded = of_folded(trace.export("folded", "--by", by))
        yield f"folded by {by}", sums, folded
        shown, whole = of_flame(trace, "--by", by)
        yield f"flame by {by}", (own, calls)[by == "calls"], whole
        if sum(n[0] for n in shown.values()) == whole: yield f"flame by {by}, frames", folded, shown
    yield "dot", calls, of_dot(trace)
    for view, column in (("callers", "callee"), ("callees", "caller")):
        pairs = trace.rows(view, "*", "--format", "csv")
        if view == "callees": pairs += [r for r in trace.rows("callers", "*", "--format", "csv") if r["caller"] == ""]
        yield view, want, add(*(((r["callee_module"], r["callee"]), (number(r["calls"]), number(r["total_ns"]), number(r["self_ns"]))) for r in pairs))
    yield from compare_graphs(trace, want)
    yield from compare_parquet(trace, folder, by_time)
    yield from compare_index(trace, want)
    yield from compare_more(trace, folder, want)
    part = [r for r in rows if r["duration_ns"] and int(r["duration_ns"]) >= 2000]
    yield "csv, --min-time", part, trace.rows("export", "csv", "--min-time", "2us")


def compare_more(trace, folder, want):
    """(what, wanted, got): the folded tree's calls, a flame graph beside its own trace, a trace that is followed while it is copied."""
    calls = sum(n[0] for n in want.values())
    stack, shown = [1], 0
    for line in trace.report("tree", "--fold").decode("utf-8", "replace").splitlines()[1:]:
        text = line.split("| ", 1)[1].strip()
        times = int((re.search(r"[ ,]x ([\d,]*\d)", text) or ["", "1"])[1].replace(",", "")) if "/*" in text else 1
        is_comment = text.startswith("/* ")
        if text.startswith(("}", "/* }")): stack.pop()
        elif text.startswith("/* x "): stack.append(stack[-1] * times)
        elif not is_comment:
            shown += 0 if "began earlier" in text else stack[-1] * times
            if re.search(r" \{( /\*.*\*/)?$", text): stack.append(stack[-1] * times)
    yield "tree, folded", calls, shown
    graph = ElementTree.fromstring(trace.report("flame", "--diff", trace.path)).find("{http://www.w3.org/2000/svg}g[@id='frames']")
    yield "flame, beside itself", {"q3"}, {g.find("{http://www.w3.org/2000/svg}rect").get("class") for g in graph}
    whole, growing = open(trace.path, "rb").read(), os.path.join(folder, "growing.trace")
    with open(growing, "wb") as out: out.write(whole[:4096])
    process = subprocess.Popen([trace.sptrace, "report", "tree", "--follow", "-i", growing], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(growing, "ab") as out:
        for at in range(4096, len(whole), 50_000):
            out.write(whole[at:at + 50_000])
            out.flush()
    told, said = process.communicate(timeout=120)
    # What happened to processes stands elsewhere, and opens other lines; durations and threads are the same.
    def timed(text): return sorted(line[:21] for line in text.splitlines()[1:] if line[:11].strip())
    yield "tree, followed", (timed(trace.report("tree")), b""), (timed(told), said)


def hung(sptrace, folder):
    """(what, wanted, got): what a program did before it hung is shown by who follows its trace."""
    path = os.path.join(folder, "hung.trace")
    program = subprocess.Popen([sptrace, "run", "-q", "-o", path, "--", "/bin/sleep", "60"])
    follower = None
    try:
        for _ in range(100):
            if os.path.exists(path) and os.path.getsize(path) > 100: break
            time.sleep(0.1)
        follower = subprocess.Popen([sptrace, "report", "tree", "--follow", "-i", path], stdout=subprocess.PIPE)
        told, end = b"", time.monotonic() + 20
        os.set_blocking(follower.stdout.fileno(), False)
        while b"setlocale" not in told and time.monotonic() < end:
            told += follower.stdout.read() or b""
            time.sleep(0.1)
        yield "a program that hangs, followed", (True, None), (b"setlocale" in told, program.poll())
    finally:
        for process in (program, follower):
            if process:
                process.terminate()
                process.wait()


def compare_sizes(trace):
    """(what, wanted, got): exports that end at a size, with what had ended by then, and say so."""
    whole = len(trace.export("csv"))
    for format in ("csv", "jsonl", "chrome", "perfetto", "firefox"):
        size = len(trace.export(format)) // 2
        if size < 20_000: continue
        done = subprocess.run([trace.sptrace, "report", "export", format, "-i", trace.path, "--limit", "0", "--max-size", str(size)], capture_output=True, timeout=120)
        # The calls that are open then are written, too. Of Firefox's form, which is written at last, the size is an estimate.
        least = size * 85 // 100 if format == "firefox" else size
        yield f"{format}, ends at a size", (True, True), (least <= len(done.stdout) <= size + 20_000, b"--max-size" in done.stderr)
    done = subprocess.run([trace.sptrace, "report", "export", "csv", "-i", trace.path, "--max-size", str(whole + 1)], capture_output=True, timeout=120)
    yield "csv, smaller than its size", (whole, b""), (len(done.stdout), done.stderr)


def compare_index(trace, want):
    """(what, wanted, got): sums that were kept beside the trace, and what comes of it if they cannot be used."""
    def sums(*options):
        done = subprocess.run([trace.sptrace, "report", "functions", "-i", trace.path, "--format", "csv", *options], capture_output=True, timeout=120)
        return done.stdout, done.stderr.decode()
    path, plain = trace.path + ".index", sums("--index", "never")[0]
    if os.path.exists(path): os.unlink(path)
    yield "index, first pass", (plain, ""), sums("--index", "always")
    kept = open(path, "rb").read()
    yield "index, second pass", (plain, ""), sums("--index", "always")
    yield "index, summary", trace.report("summary", "--index", "never"), trace.report("summary", "--index", "always")
    # A range begins at a snapshot, if there is one before it; it is the same text.
    for view in (("tree",), ("functions", "--format", "csv"), ("export", "csv"), ("folded",)):
        for part in (("--range", "1ms..2ms"), ("--to", "500us"), ("--from", "1500us")):
            yield f"index, {view[0]} {' '.join(part)}", trace.report(*view, *part, "--index", "never"), trace.report(*view, *part, "--index", "always")
    yield "index, around", trace.report("tree", "--around", "1ms", "--index", "never"), trace.report("tree", "--around", "1ms", "--index", "always")
    yield "index, not for a part", sums("--index", "never", "-D", "3"), sums("--index", "always", "-D", "3")
    for name, damaged in (("torn", kept[:len(kept) // 2]), ("flipped", kept[:-9] + bytes([kept[-9] ^ 1]) + kept[-8:]), ("empty", b""), ("foreign", kept[:12] + b"12345678" + kept[20:])):
        with open(path, "wb") as out: out.write(damaged)
        shown, said = sums("--index", "always")
        yield f"index, {name}", (plain, True, kept), (shown, "made anew" in said, open(path, "rb").read())
    os.unlink(path)


def compare_parquet(trace, folder, by_time):
    """(what, wanted, got): Parquet as DuckDB reads it, if that is there (pip install duckdb)."""
    try: import duckdb
    except ImportError:
        print("parquet was not read: duckdb is not installed")
        return
    def rows_of(source): return sorted_rows([dict(zip(by_time[0], ("" if v is None else str(v) for v in row))) for row in duckdb.sql(f"select {', '.join(chr(34) + c + chr(34) for c in by_time[0])} from {source}").fetchall()])
    path, parts = os.path.join(folder, "calls.parquet"), os.path.join(folder, "calls")
    with open(path, "wb") as out: out.write(trace.export("parquet"))
    yield "parquet", sorted_rows(by_time), rows_of(f"'{path}'")
    shutil.rmtree(parts, ignore_errors=True)
    trace.export("parquet", "--partition", "-o", parts)
    yield "parquet, partitioned", sorted_rows(by_time), rows_of(f"read_parquet('{parts}/**/*.parquet', hive_partitioning=true)")
    found = {int(name.removeprefix("pid=")) for host in os.listdir(parts) for name in os.listdir(os.path.join(parts, host))}
    yield "parquet, processes", {int(row["pid"]) for row in by_time}, found


def compare_firefox(trace, folder, outer_ns):
    """(what, wanted, got): the profile against the published types, and as the Firefox Profiler itself reads it."""
    path = os.path.join(folder, "profile.json")
    with open(path, "wb") as out: out.write(trace.export("firefox"))
    with open(path) as file: profile = json.load(file)
    yield "firefox, by its types", None, readers.firefox_differs(profile)
    if not readers.profiler_cli(): return
    count, read = readers.firefox_sums(path, 4)
    own = {}
    for number, t in enumerate(profile["threads"][:4]):
        stack, func, names, sums = t["stackTable"]["frame"], t["funcTable"]["name"], t["stringArray"], collections.Counter()
        for weight, at in zip(t["samples"]["weight"], t["samples"]["stack"]):
            if at is not None: sums[names[func[t["frameTable"]["func"][stack[at]]]]] += round(weight * 1e6)
        own[number] = {name: ns for name, ns in sums.items() if ns}
    yield "firefox, threads by its tool", len(profile["threads"]), count
    yield "firefox, own times by its tool", own, read
    if count <= 4: yield "firefox, all of them", outer_ns, sum(ns for sums in read.values() for ns in sums.values())


def compare_graphs(trace, want):
    """(what, wanted, got): of `report graph` as csv, as text, per module, and with a focus."""
    pairs = trace.rows("graph", "--loader", "--format", "csv")
    yield "graph", want, add(*(((r["callee_module"], r["callee"]), (number(r["calls"]), number(r["total_ns"]), number(r["self_ns"]))) for r in pairs))
    calls = sum(int(r["calls"]) for r in pairs)
    lines = trace.report("graph", "--loader").decode().splitlines()[1:]
    yield "graph, lines", (len(pairs), calls), (len(lines), sum(int(line.split()[0].replace(",", "")) for line in lines if line.split()[0] != "-"))
    modules = trace.rows("graph", "--loader", "--per", "module", "--format", "csv")
    def of_module(rows): return add(*((r["callee_module"], (number(r["calls"]), 0, number(r["self_ns"]))) for r in rows))
    yield "graph, modules", of_module(pairs), of_module(modules)
    focused = max(want, key=lambda name: want[name][0])
    below = trace.rows("graph", "--loader", "--focus", focused[1], "--format", "csv")
    inside = {r["callee"] for r in below} | {r["caller"] for r in below}
    yield "graph, focus", want[focused][0], sum(int(r["calls"]) for r in below if (r["callee_module"], r["callee"]) == focused)
    yield "graph, focus, nothing else", {"", *(r["callee"] for r in below)}, inside | {""}
    svg = ElementTree.fromstring(trace.report("graph", "--loader", "--format", "svg", "--limit", "60"))
    boxes = [g for g in svg.iter("{http://www.w3.org/2000/svg}g") if (g.get("class") or "").startswith("node")]
    drawn = {g.find("{http://www.w3.org/2000/svg}title").text.split("\n")[0]: int(g.find("{http://www.w3.org/2000/svg}title").text.split("\n")[1].split()[0]) for g in boxes}
    titles = add(*((f"{name} [{module}]", (n[0],)) for (module, name), n in want.items()))
    yield "graph, picture", {t: titles.get(t, (0,))[0] for t in drawn}, drawn


def sorted_rows(rows): return sorted(rows, key=lambda row: tuple(row.values()))


def difference(want, got):
    if want == got: return None
    if isinstance(want, dict): return "; ".join(f"{k}: wanted {want.get(k)}, got {got.get(k)}" for k in list(dict.fromkeys([*want, *got])) if want.get(k) != got.get(k))[:600]
    if isinstance(want, list): return next((f"row {i}: wanted {a}, got {b}" for i, (a, b) in enumerate(zip(want, got)) if a != b), f"{len(want)} rows wanted, {len(got)} got")
    return f"wanted {want}, got {got}"


def closed_pipe(trace):
    """`| head`: no complaint, status 0."""
    process = subprocess.Popen([trace.sptrace, "report", "export", "csv", "-i", trace.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    return process.wait(60), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--long", action="store_true", help="also a ring that has overwritten its beginning, which takes minutes")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the traces there")
    args = parser.parse_args()
    failed = passed = 0
    folder = args.keep or tempfile.mkdtemp(prefix="sptrace-exports-")
    os.makedirs(folder, exist_ok=True)
    for name, command in COMMANDS.items():
        if name == "ring" and not args.long: continue
        path = os.path.join(folder, f"{name}.trace")
        program = os.path.join(args.programs, command[0])
        subprocess.run([args.sptrace, "run", "-q", *OPTIONS.get(name, []), "-o", path, "--", program, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        set_clock(path)
        trace = Trace(args.sptrace, path)
        for what, want, got in compare(trace, folder):
            # What is said of the events that it has dropped is said at each pass; and a ring is not followed.
            if name == "ring" and what in ("index, first pass", "index, second pass", "tree, followed"): continue
            problem = difference(want, got)
            passed, failed = passed + (problem is None), failed + (problem is not None)
            if problem: print(f"FAIL {name}: {what}: {problem}", flush=True)
        size = sum(int(r["calls"]) for r in trace.rows("functions", "--format", "csv"))
        print(f"ok   {name}: {size} calls", flush=True)
    for line in readers.missing(): print(line)
    for what, want, got in (*hung(args.sptrace, folder), *compare_sizes(trace)):
        problem = difference(want, got)
        passed, failed = passed + (problem is None), failed + (problem is not None)
        if problem: print(f"FAIL {what}: {problem}", flush=True)
    status, said = closed_pipe(trace)
    failed += bool(status or said)
    if status or said: print(f"FAIL a closed pipe: status {status}, {said[-200:]}")
    if not args.keep: shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
