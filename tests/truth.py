#!/usr/bin/env python3
"""Compares recordings with what the test programs say of themselves.

usage: tests/truth.py [--programs DIR] [--sptrace PATH] [--option ARG]... [--only GLOB]... | --self-check

Given: a built sptrace and tests/programs. Gives: one line a check, a last line `N passed, N failed`, status 1 on failure.
  order   the f_* functions of `report tree`, in order and nesting, are the `enter NAME DEPTH` lines that the program printed
  counts  calls of functions whose number is known, by address and name, from `report functions --format csv`; nothing is lost, no torn words
  times   a function that sleeps 50 ms reads 50 to 55 ms; the self times of all functions add up to the roots' totals
  filter  the tree of `run -F` is that of `report -F` of a whole recording; handlers and functions left by longjmp as they say themselves
  deep    recursion of millions of frames: counts, nesting, and durations that grow outwards; what no memory is left for is said where it was
  ring    what --ring keeps is the end of what is recorded without it, and the rest is counted
  pipe    `report tree` into a reader that stops after ten lines ends quietly, soon and in bounded memory
Knows of the tree only its line: `DURATION [TID] | INDENT NAME() {` or `NAME();`, two blanks a level.
"""
import argparse, csv, fnmatch, io, os, re, shutil, subprocess, sys, tempfile, time


HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LINE = re.compile(r"^ *(?:([\d.,]+) +(ns|us|ms|s|m))? *\[ *\d+\] \| ( *)(.*)$")
CALL = re.compile(r"^(?:\w+::)*(\w+)(?:@\S+)?\(.*\)(?: const)?(;| \{)")
NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9}
ORDER = {"direct": {"f_empty"}, "recursion": set(), "pointers": set(), "longjmp": set(), "ctors": set()}  # program: f_* that do not log
FILTERS = [("recursion.O0", ["f_down"]), ("recursion.static", ["g_fib", "f_even"]), ("tailcalls.O2", ["f_ping"]), ("dlopen.O2", ["f_plug_entry"]), ("callbacks.O2", ["qsort"]),
           ("virtual.O0", ["*Square*"]), ("pointers.O2", ["f_*"]), ("deep.O2", ["f_deep"]), ("handwritten.O2", ["f_root"])]
VARIANTS = ("O0", "O2", "static", "static-pie", "nopie", "now", "lazy", "noplt")
# program: {symbol: calls, or a pattern of the program's output that says them}
COUNTS = {
    # three rounds, each with a handler that returns and one that jumps out
    "altstack.O0": {"f_deep": 21, "f_raise": 6, "f_in_handler": 18, "f_leaf": 66, "f_after": 6},
    "altstack.O2": {"f_deep": 21, "f_raise": 6, "f_in_handler": 18, "f_leaf": 66, "f_after": 6},
    "recursion.O2": {"g_fib": 57313, "f_down": 13, "f_odd": 4, "f_even": 4},
    "recursion.static": {"g_fib": 57313},
    "deep.O2": {"f_deep": 200000},
    "direct.O2": {"f_empty": 1000, "f_leaf": 6, "f_mid": 3},
    "callbacks.O2": {"f_visit": r"(?s).*"},  # any number above 0
    "callforms.cfi": {"callee": r"(\d+) calls of callee", "callee_quiet": 9},
    "callforms.static": {"callee": r"(\d+) calls of callee", "callee_quiet": 9},
    "tailforms.O1": {"f_1": r"(\d+) calls", "f_2": r"(\d+) calls", "after_fall": None},
    "tailcalls.O2": {"f_ping": 10001, "f_pong": 10000, "f_direct2": None},
    "dlopen.O2": {"f_plug_entry": 200, "f_plug_inner": 200, "f_host_callback": 200, "f_plug_load": 20, "f_plug_unload": 20},
    "virtual.O0": {"_ZNK6Square6f_areaEv": 2, "_ZNK4Rect6f_areaEv": 3, "_ZNK4Rect5f_tagEv": 1},
    "threads.O2": {"f_step": 320000, "f_at_once": 16, "f_empty": 160, **{f"f_first_{i}": 16 for i in range(8)}, "f_turns": 4},
    "exceptions.O2": {"_ZL9f_throughii": 11157},
    "forkwire.O2": {"f_outer": 3, "f_inner": 20},
    "lineage.O2": {"f_child": r"(\d+) calls of f_child", "f_leaf": 84 * 9, "f_left": 2, "f_chain": 80},
    "inherited.O2": {"main": 1, "f_pointer": 2, "f_outer": 1, "f_inner": 1, "f_leaf": 4, "fork": 1},
    "sleeper.O2": {"f_sleep_50ms": 5, "f_spin": 5},
    "twins.O0": {"f_one": 501},
    "twins.O2": {"f_one": 501},
    "jumpout.O0": {"f_one": None, "f_leave": None},
    "jumpout.O2": {"f_one": None, "f_leave": None},
    "nullcall.O0": {"sub_0": 5000, "f_one": 5000},
    "nullcall.O2": {"sub_0": 5000, "f_one": 5000},
}


# Programs whose records are not only calls and returns: unwinding, forks, other stacks, lazy binding, ends that are not recorded.
NUMBERS = [("ls", ["/bin/ls", "-l", "/usr/bin"]), ("sh", ["/bin/sh", "-c", "for i in 1 2 3; do /bin/echo $i; done; kill -9 $$"]), ("dlopen", ["dlopen.O2"]), ("lazy", ["pointers.O2"]),
           ("threads", ["threads.O2"]), ("exceptions", ["exceptions.O2"]), ("longjmp", ["longjmp.O2"]), ("altstack", ["altstack.O2"]), ("inherited", ["inherited.O2"]),
           ("roots", ["recursion.O2"], "-F", "g_fib"), ("ring", ["/bin/ls", "-lR", "/usr/share"], "--ring", "2M"), ("stopped", ["threads.O2"], "--stop-on", "call:f_turns#2")]


def logged(stdout):
    """(name, depth) of each `enter` line."""
    return [(m.group(1), int(m.group(2))) for m in re.finditer(r"(?m)enter (f_\w+) (\d+)$", stdout)]


def drawn(tree, ignored):
    """(name, depth among f_* functions) of each call that a tree shows."""
    calls, stack = [], []
    for line in tree.split("\n"):
        m = LINE.match(line)
        call = m and CALL.match(m.group(4))
        if not call: continue
        indent, name = len(m.group(3)), call.group(1)
        while stack and stack[-1][0] >= indent: stack.pop()
        if name.startswith("f_") and name not in ignored:
            calls.append((name, sum(1 for _, n in stack if n.startswith("f_"))))
        stack.append((indent, name))
    return calls


def first_difference(want, got):
    for i, (a, b) in enumerate(zip(want, got)):
        if a != b: return f"call {i}: logged {a[0]} at depth {a[1]}, traced {b[0]} at depth {b[1]}"
    if len(want) != len(got): return f"{len(want)} calls logged, {len(got)} traced"
    return None if want else "nothing was logged"


def roots_ns(tree):
    """Durations of the lines without indentation."""
    total = 0.0
    for line in tree.split("\n"):
        m = LINE.match(line)
        if m and m.group(1) and m.group(3) == "": total += float(m.group(1).replace(",", "")) * NS[m.group(2)]
    return total


class Truth:
    def __init__(self, sptrace, programs, work, only, options=()):
        self.options = options
        self.sptrace, self.programs, self.trace, self.only = sptrace, programs, os.path.join(work, "trace.data"), only
        self.passed = self.failed = 0

    def say(self, name, problem):
        if name in self.KNOWN:
            expected, cause = self.KNOWN[name]
            if problem == expected:
                print(f"known {name}: {problem} ({cause})", flush=True)
                return
            if problem is None: problem = "passes now: take it off the list of known differences"
        self.passed += problem is None
        self.failed += problem is not None
        print(f"{'ok  ' if problem is None else 'FAIL'} {name}{'' if problem is None else ': ' + problem}", flush=True)

    def record(self, program, *options, arguments=()):
        done = subprocess.run([self.sptrace, "run", "-q", "-o", self.trace, *self.options, *options, "--", os.path.join(self.programs, program), *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        return done.stdout.decode("latin1")

    def report(self, *words):
        done = subprocess.run([self.sptrace, "report", *words, "-i", self.trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        if done.returncode != 0: raise RuntimeError(f"report {words[0]}: {done.stderr.decode('latin1')[:200]}")
        return done.stdout.decode("latin1")

    def rows(self):
        return list(csv.DictReader(io.StringIO(self.report("functions", "--format", "csv"))))

    def order(self, program, ignored):
        log = logged(self.record(program))
        return first_difference(log, drawn(self.report("tree"), ignored))

    def counts(self, program, wanted):
        stdout = self.record(program)
        rows = self.rows()
        wrong = []
        for symbol, calls in wanted.items():
            got = sum(int(r["calls"]) for r in rows if symbol in (r["symbol"], r["function"]))
            if isinstance(calls, str):
                m = re.search(calls, stdout)
                calls = int(m.group(1)) if m and m.groups() else None
            if got != calls if calls is not None else got == 0: wrong.append(f"{symbol} {got}, not {calls if calls is not None else 'more than 0'}")
        wrong += self.loss()
        return "; ".join(wrong) or None

    def loss(self):
        """What the coverage says was lost; nothing may be."""
        rows = [r for r in csv.reader(io.StringIO(self.report("coverage", "--format", "csv"))) if r and r[0] == "loss"]
        if not any(name == "torn words" for _, name, *_ in rows): return ["the coverage says nothing of torn words"]
        return [f"{count} {name}" for _, name, count, *_ in rows if int(count)]

    def sleep(self):
        self.record("sleeper.O2")
        rows = [r for r in self.rows() if r["function"] == "f_sleep_50ms"]
        # the shortest of five: a busy machine wakes a sleeper late, with or without us
        shortest_ms = min((int(r["min_ns"]) for r in rows), default=0) / 1e6
        return None if 50 <= shortest_ms <= 55 else f"reads {shortest_ms:.3f} ms"

    def sums(self):
        self.record("recursion.O2")
        selves, roots = sum(int(r["self_ns"]) for r in self.rows()), roots_ns(self.report("tree"))
        return None if roots > 0 and abs(selves - roots) <= 0.001 * roots + 2000 else f"self times {selves} ns, roots {roots:.0f} ns"

    def filter(self, program, globs):
        """The tree, without times, and the counts."""
        filters = [word for glob in globs for word in ("-F", glob)]
        def shape(text): return [re.sub(r"^.*?\| ", "", l) for l in text.split("\n") if "| " in l and not re.search(r"\| +/\*", l)]
        said = self.record(program, *filters)
        got, counts = shape(self.report("tree")), {(r["module"], r["function"]): r["calls"] for r in self.rows()}
        if self.record(program, "--return-points=never") != said: return "the program's output differs"
        want = shape(self.report("tree", *filters))
        rows = csv.DictReader(io.StringIO(self.report("functions", "--format", "csv", *filters)))
        if counts != {(r["module"], r["function"]): r["calls"] for r in rows}: return "counts differ"
        if len(got) != len(want): return f"{len(got)} lines, {len(want)} without run -F"
        return next((f"line {i}: {g!r}, not {w!r}" for i, (g, w) in enumerate(zip(got, want)) if g != w), None if got else "nothing was recorded")

    def filter_counts(self, program, globs, wanted):
        """Exactly these functions of the program, and how often."""
        self.record(program, *[word for glob in globs for word in ("-F", glob)])
        got = {r["function"]: int(r["calls"]) for r in self.rows() if r["module"] == program}
        return None if got == wanted else f"{got}, not {wanted}"

    def module_alone(self):
        """The caller of main is left out: main is seen all the same, from its beginning to its end."""
        log = logged(self.record("recursion.O2", "-l", "recursion.O2"))
        tree = self.report("tree")
        difference = first_difference(log, drawn(tree, {"main", "printf", "puts", "__printf_chk", "g_fib", "g_ackermann"}))
        if difference: return difference
        first = next(l for l in tree.split("\n") if l.rstrip().endswith(("{", ";")))
        mains = [r for r in self.rows() if r["function"] == "main"]
        if not first.endswith("| main() {"): return f"begins with {first!r}"
        return None if len(mains) == 1 and mains[0]["calls"] == "1" and int(mains[0]["total_ns"] or 0) > 0 else f"main: {mains}"

    def filter_longjmp(self):
        log = logged(self.record("longjmp.O2", "-F", "f_*"))
        return first_difference(log, drawn(self.report("tree"), set()))

    def filter_handler(self):
        self.record("smallstack.O2", "-F", "f_handler")
        calls = drawn(self.report("tree"), set())
        handlers = sum(name == "f_handler" for name, _ in calls)
        if handlers != 5: return f"{handlers} handlers, not 5"
        # A handler's end is not seen, so what the thread does after it on its own stack follows.
        want = [("f_handler", 0)] + [("f_deeper", 1 + depth) for depth in range(11)]
        return first_difference(want, calls[:len(want)])

    def ends(self):
        """Frames that returned after a walk of the stack are not said to be unwound; those that a throw left are."""
        self.record("walks.O2", "--return-points")
        if re.search(r"unwound|_Unwind_Backtrace.*end not seen", self.report("tree")): return "walks.O2: the end of _Unwind_Backtrace is not seen"
        self.record("walks.O2", "--return-points=never")
        tree = self.report("tree")
        if "unwound" in tree: return "walks.O2: " + next(l for l in tree.split("\n") if "unwound" in l)
        if not re.search(r"_Unwind_Backtrace.*end not seen", tree): return "walks.O2: the end of _Unwind_Backtrace is seen"
        self.record("exceptions.O2")
        if not re.search(r"f_through.*unwound", self.report("tree")): return "exceptions.O2: no frame is unwound"

    def inherited(self):
        """A fork child's stack has the parent's names."""
        self.record("inherited.O2")
        began = re.findall(r"([\w]+)\([^\n]*began earlier", self.report("tree"))
        got = [name for name in began if name == "main" or name.startswith("f_")]
        return None if got == ["main", "f_outer", "f_inner"] else f"{got} began earlier"

    def numbers(self, name, command, *options):
        """What run's last line counts is what report counts."""
        done = subprocess.run([self.sptrace, "run", "-o", self.trace, *options, "--", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=300)
        said = re.search(r"sptrace: events: (\d+) recorded, 0 lost(?:, the first (\d+) dropped by --ring)?", done.stderr.decode("latin1"))
        if not said: return f"{name}: {done.stderr[-300:]!r}"
        shown = int(re.search(r"(?m)^events +([\d,]+)", self.report())[1].replace(",", ""))
        left = int(said[1]) - int(said[2] or 0)
        return None if shown == left > 0 else f"run says {left}, report {shown}"

    def beside(self):
        """mbrtowc calls _dl_mcount_wrapper_check, whose end is not recorded as it takes its return address, and then a conversion."""
        text = self.trace + ".txt"
        with open(text, "w", encoding="utf-8") as out: out.write("\u00e9\u00e8\n" * 20)
        subprocess.run([self.sptrace, "run", "-q", "--return-points=never", "-o", self.trace, "--", "/usr/bin/wc", "-m", text], env=dict(os.environ, LC_ALL="C.UTF-8"), stdout=subprocess.DEVNULL, timeout=300)
        rows = {r["function"]: r for r in self.rows()}
        open_one = rows.get("_dl_mcount_wrapper_check")
        if not open_one or int(open_one["calls"]) < 20: return "_dl_mcount_wrapper_check is not called: this shows nothing"
        if open_one["total_ns"] or open_one["self_ns"] or open_one["timed_calls"] != "0": return f"a call without an end has a time: {open_one}"
        if "_dl_mcount_wrapper_check() {" in self.report("tree"): return "what follows a call without an end is shown inside of it"
        return None if not rows["mbrtowc"]["self_ns"] and int(rows["mbrtowc"]["total_ns"]) else f"mbrtowc: {rows['mbrtowc']}"

    def poorly(self):
        """A Go program is seen poorly with stamps, which is said, with the reason."""
        source, program = self.trace + ".go", self.trace + ".hello"
        with open(source, "w", encoding="utf-8") as out: out.write('package main\nfunc main() { println("hello") }\n')
        folder = os.path.dirname(self.trace)
        subprocess.run(["go", "build", "-o", program, source], cwd=folder, env=dict(os.environ, GOCACHE=os.path.join(folder, "go"), HOME=folder, GO111MODULE="off"), check=True)
        done = subprocess.run([self.sptrace, "run", "--stamps", "full", "--return-points=never", "-o", self.trace, "--", program], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
        why = "its runtime walks its own stacks: direct calls are recorded without their ends"
        if f"seen in part: {os.path.basename(program)}: {why}" not in done.stderr.decode("latin1"): return f"run does not say so: {done.stderr[-400:]!r}"
        summary = self.report()
        if f"seen in part: {program}: {why}" not in summary or "seen poorly: " not in summary: return summary
        untimed = [r for r in self.rows() if r["module"] == os.path.basename(program)]
        return None if untimed and not any(r["total_ns"] for r in untimed) else f"{untimed}"

    def deep(self, level):
        """Five million frames, twice; longjmp and throw from deep below, signals there; an overflow of the stack that a handler survives."""
        said = self.record(f"abyss.{level}", arguments=["5000000", "count"])
        if "7 caught" not in said: return f"the program says {said[-200:]!r}"
        rows = {r["symbol"]: r for r in self.rows()}
        calls = {name: int(r["calls"]) for name, r in rows.items()}
        endless = sum(map(int, re.findall(r"(\d+) calls of f_endless", said)))
        wanted = {"_ZL6f_deepl": 10_000_000, "_ZL8f_jumperl": 2_500_000, "_ZL9f_throwerl": 625_000, "_ZL8f_tickedl": 2_000_000, "_ZL7f_belowl": 1_000_000,
                  "_ZL7f_afterv": 4, "_ZL6f_leafv": 30 + int(re.search(r"(\d+) ticks", said)[1]), "_ZL10f_overflowv": 2}
        wrong = [f"{name} {calls.get(name)}, not {n}" for name, n in wanted.items() if calls.get(name) != n]
        # the last call of each may have faulted
        if not endless <= calls.get("_ZL9f_endlessl", 0) <= endless + 2: wrong.append(f"f_endless {calls.get('_ZL9f_endlessl')}, not {endless}")
        if rows["_ZL6f_deepl"]["timed_calls"] != "10000000": wrong.append("not all of f_deep is timed")
        if "changes to another stack" in self.report("coverage"): wrong.append("the stack is taken for another one")
        return "; ".join(wrong + self.loss()) or None

    def deep_memory(self):
        """What the frames have needed is given back."""
        said = self.record("abyss.O2", arguments=["5000000", "rest"])
        mib = int(re.search(r"(\d+) MiB", said)[1])
        return None if mib < 40 else f"{mib} MiB are left"

    def climb(self, frames, *arguments):
        """How deep the first recursion of the tree goes, what is said at its bottom, whether each frame ends after those inside it, and how many have no time."""
        program = os.path.join(self.programs, "abyss.O2")
        subprocess.run([self.sptrace, "run", "-q", "-o", self.trace, "--", program, str(frames), *arguments], stdout=subprocess.DEVNULL, check=True, timeout=300)
        tree = subprocess.Popen([self.sptrace, "report", "tree", "-i", self.trace], stdout=subprocess.PIPE)
        depth = ended = untimed = 0
        inside_ns, bottom, grows = 0.0, [], True
        for line in io.TextIOWrapper(tree.stdout, "latin1"):
            text = line.split("| ", 1)[-1].strip()
            if text == "f_deep(long) {": depth += 1
            elif depth and not ended and text.startswith("/*") and not text.startswith("/* waited"): bottom.append(text)
            elif "f_deep" in text:
                if text == "f_deep(long);": depth += 1
                ended += 1
                m = LINE.match(line)
                if not m:
                    untimed += 1
                    if ended == depth: break
                    continue
                took_ns = float(m.group(1).replace(",", "")) * NS[m.group(2)]
                # a number of a larger unit has fewer digits behind its point
                grows &= took_ns >= inside_ns * 0.999
                inside_ns = took_ns
                if ended == depth: break
        tree.kill()
        tree.wait()
        return depth, bottom, grows, untimed

    def deep_tree(self):
        got = self.climb(1_500_000)
        return None if got == (1_500_000, [], True, 0) else f"depth, marks at the bottom, durations that grow: {got}, not 1,500,000 frames"

    def deep_limit(self):
        """Where the shadow stack cannot grow, the recursion is cut off; the tree says so there, and the counts add up."""
        depth, bottom, grows, untimed = self.climb(2_000_000, "limit", "40")
        calls = {r["symbol"]: int(r["calls"]) for r in self.rows()}
        wrong = []
        if not 500_000 < depth < 2_000_000 or calls.get("_ZL6f_deepl") != 2 * depth: wrong.append(f"{depth} frames, {calls.get('_ZL6f_deepl')} calls")
        told = [re.fullmatch(r"/\* ([\d,]+) events lost \*/", mark) for mark in bottom]
        # and what is called at the bottom
        more = sum(int(m[1].replace(",", "")) for m in told) - 2 * (2_000_000 - depth) if all(told) else -1
        if not 0 <= more <= 10: wrong.append(f"the tree says {bottom}")
        coverage = self.report("coverage", "--format", "csv")
        missed = 2 * (2_000_000 - depth) + 2_000_000 - calls.get("_ZL9f_throwerl", 0)
        said = int(re.search(r"hole,frames nested too deep,(\d+)", coverage)[1])
        if not missed <= said <= missed + 20: wrong.append(f"the coverage says {said}, not {missed}")
        # which end belongs to which frame is not certain across a loss
        if untimed != depth: wrong.append(f"{depth - untimed} frames that were open at the loss have times")
        if (calls.get("_ZL7f_afterv"), calls.get("_ZL6f_leafv")) != (1, 7): wrong.append("what follows is not seen")
        return "; ".join(wrong) or None

    def ring(self):
        command = ["/bin/ls", "-R", "/usr/share"]  # with -l, ls asks the clock again for files that seem younger than now, and shows old ones otherwise
        def tail(*options):
            done = subprocess.run([self.sptrace, "run", "-o", self.trace, *options, "--", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
            said = re.search(r"events: (\d+) recorded, 0 lost(?:, the first (\d+) dropped)?", done.stderr.decode("latin1"))
            if not said: raise RuntimeError(done.stderr.decode("latin1")[:300])
            lines = subprocess.run(f"'{self.sptrace}' report tree -i '{self.trace}' 2>&1 | tail -n 200000", shell=True, stdout=subprocess.PIPE).stdout.decode("latin1").split("\n")
            return int(said.group(1)), int(said.group(2) or 0), [re.sub(r"^.*\] \| ", "", l) for l in lines if not re.search(r"\| +/\* ", l)][-150000:]  # where a note stands, and how many there are, is chance
        whole, _, want = tail()
        kept, dropped, got = tail("--ring", "2M")
        beginning = self.report("tree", "--limit", "1")
        summary = self.report("summary")
        if abs(kept - whole) > whole / 10000: return f"{kept} events recorded, {whole} without --ring"  # how often a thread waited is chance
        if not 0 < dropped < whole: return f"{dropped} of {whole} dropped"
        if got != want: return f"the last 150,000 lines of the tree differ: {next(p for p in zip(want, got) if p[0] != p[1])}"
        if "__libc_start_main" not in beginning or "began earlier" not in beginning: return f"the tree begins with {beginning!r}"
        size = os.path.getsize(self.trace)
        if not 2 << 20 <= size + (256 << 10) <= 3 << 20: return f"the file has {size} bytes"
        return None if f"dropped by --ring: {dropped:,} events" in summary else "the summary does not say what was dropped"

    def pipe(self):
        self.record("deep.O2")
        started = time.monotonic()
        process = subprocess.Popen([self.sptrace, "report", "tree", "-i", self.trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines = [process.stdout.readline() for _ in range(10)]
        process.stdout.close()
        errors = process.stderr.read().decode("latin1")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        seconds, mb = time.monotonic() - started, usage.ru_maxrss / 1024
        if errors: return "says " + errors[:100]
        if not all(lines): return "shows fewer than ten lines"
        return None if seconds < 10 and mb < 256 else f"took {seconds:.1f} s and {mb:.0f} MB"

    # What the recording is known to miss: (the difference, word for word; the likely cause). Each is shown at every run. Any
    # other difference is a failure, and so is a pass: then the entry must leave this list.
    KNOWN = {
        "counts tailforms.O1": ("after_fall 0, not more than 0", "a two-byte jump in a function of two bytes, with nothing movable nearby"),
    }

    def all(self):
        # First: a child's peak memory counts what its parent had when it was forked.
        checks = [("pipe", self.pipe)]
        checks += [(f"order {p}.{v}", lambda p=p, v=v: self.order(f"{p}.{v}", ORDER[p])) for p in ORDER for v in VARIANTS if os.path.exists(os.path.join(self.programs, f"{p}.{v}"))]
        checks += [(f"counts {p}", lambda p=p: self.counts(p, COUNTS[p])) for p in COUNTS]
        checks += [(f"filter {p} {' '.join(globs)}", lambda p=p, globs=globs: self.filter(p, globs)) for p, globs in FILTERS]
        checks += [("module alone", self.module_alone), ("filter longjmp", self.filter_longjmp), ("filter handler", self.filter_handler)]
        checks += [("filter threads", lambda: self.filter_counts("threads.O2", ["f_step"], {"f_step": 320000})),
                   ("filter callee only", lambda: self.filter_counts("recursion.O2", ["f_even"], {"f_even": 4, "f_odd": 4})),
                   ("filter never entered", lambda: self.filter_counts("recursion.O2", ["f_never_*", "frame_dummy_x"], {}))]
        checks += [("times sleeper", self.sleep), ("times sums", self.sums), ("deep O0", lambda: self.deep("O0")), ("deep O2", lambda: self.deep("O2")), ("deep memory", self.deep_memory), ("deep tree", self.deep_tree), ("deep limit", self.deep_limit), ("ring", self.ring), ("ends", self.ends), ("inherited", self.inherited)]
        for name, command, *options in NUMBERS:
            programs = [command[0] if command[0].startswith("/") else os.path.join(self.programs, command[0]), *command[1:]]
            checks.append((f"numbers {name}", lambda name=name, command=programs, options=options: self.numbers(name, command, *options)))
        checks.append(("beside an open call", self.beside))
        if shutil.which("go"): checks.append(("seen poorly", self.poorly))
        else: print("skip seen poorly: go is not installed", flush=True)
        for name, check in checks:
            if self.only and not any(fnmatch.fnmatch(name, g) for g in self.only): continue
            try: self.say(name, check())
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error: self.say(name, repr(error)[:300])
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0


TREE = """# DURATION     TID     FUNCTION
            [   1234] | _start() {
            [   1234] |   main() {
   0.100 us [   1234] |     printf();
            [   1234] |     f_mid() {
   0.200 us [   1234] |       f_leaf();
            [   1234] |       f_leaf() { /* tail */
   0.050 us [   1234] |         puts@plt();
   0.300 us [   1234] |       } /* f_leaf */
   1.000 us [   1234] |     } /* f_mid */
   0.100 us [   1234] |     ns::f_last(int) const; /* unwound */
   2.000 us [   1234] |   } /* main */
   2.500 us [   1234] | } /* _start */
"""
LOG = "enter f_mid 0\nenter f_leaf 1\nx\nleave f_leaf 1\nenter f_leaf 1\nleave f_mid 0\nwithout newline enter f_last 0\n"


def self_check():
    results = []
    def expect(what, right): results.append(right); print(f"{'ok  ' if right else 'FAIL'} {what}")
    expect("a right tree matches its log", first_difference(logged(LOG), drawn(TREE, set())) is None)
    expect("a missing call is noticed", first_difference(logged(LOG), drawn(TREE.replace("f_leaf();", "g_leaf();"), set())) is not None)
    expect("a wrong depth is noticed", first_difference(logged(LOG), drawn(TREE.replace("|     ns::f_last", "|       ns::f_last").replace("} /* f_mid */", ""), set())) is not None)
    expect("a wrong order is noticed", first_difference(logged(LOG), drawn(TREE.replace("f_mid", "f_x").replace("f_last", "f_mid"), set())) is not None)
    expect("an empty tree is noticed", first_difference(logged(LOG), []) is not None)
    expect("the root's duration is read", roots_ns(TREE) == 2500)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", metavar="DIR", help="built programs (else they are built)")
    parser.add_argument("--sptrace", metavar="PATH")
    parser.add_argument("--only", action="append", metavar="GLOB")
    parser.add_argument("--option", action="append", default=[], metavar="ARG", help="an option for `sptrace run`; the checks that are about something else are to be left out by --only")
    parser.add_argument("--self-check", action="store_true")
    args = parser.parse_args()
    if args.self_check: return self_check()
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    found = [p for p in (args.sptrace, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")) if p and os.path.exists(p)]
    if not found: sys.exit("truth: no sptrace found (build it with `cargo build --release`, or give --sptrace PATH)")
    work = tempfile.mkdtemp(prefix="sptrace-truth-", dir="/var/tmp")
    try:
        programs = os.path.abspath(args.programs or os.path.join(work, "programs"))
        if not args.programs: subprocess.run([os.path.join(HERE, "programs", "build.sh"), programs], check=True)
        return Truth(os.path.abspath(found[0]), programs, work, args.only, args.option).all()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
