#!/usr/bin/env python3
"""Measures what tracing costs, beside the floor and the peers that are installed.

usage: tests/bench/bench.py [calls|throws|programs|startup|disk|analysis|attach|start|inactive|syscalls|values|scripts]... [--rounds N] [--calls N] [--json FILE] [--check]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), gcc; optional: uftrace, valgrind, frida, mplayer and
ffmpeg, python3, cc1, sqlite3.
Gives, all as CPU time (user + system) and medians of interleaved rounds, because wall time on shared machines lies:
  calls     ns per call + return in the traced program, native, floor (loop.c), sptrace and peers; and the tool's own CPU per event
  throws    a C++ throw through ten frames, over native: best and median of the rounds
  programs  real programs, as the difference of two input sizes so that start-up cancels out: (traced - native) over calls x floor
  startup   /bin/true: everything the tool and the program use, above native
  disk      bytes of trace file per event
  attach    the longest that a spinning thread (gaps.c) stands still when sptrace attaches, detaches, and when strace -p does
  start     from a start event (`run --start-on`, a signal stamped by its sender) to the first record, and to the first call after it
  inactive  a program that waits for the call of a function and a time (`run --start-on`, none comes), and one whose recording has
            ended (`--stop-on`), over native: the difference of two input sizes, between the smallest and largest of neighbouring rounds
  syscalls  `dd bs=1`: ns of the program's own CPU time a system call above native, and over native, without and with strings
  scripts   a call of two integers with payloads that make no record, over the bare call, and with such beside its record, over that
  analysis  of large libraries, cold: CPU ms a MB of text, peak resident memory and cache file over text
Only ratios of one run mean anything. --check runs everything once with tiny sizes, says only whether it ran, and
fails if something did not. Must not know: how sptrace works.
"""
import argparse, csv, glob, io, json, mmap, os, re, resource, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODES = ("direct", "pointer", "plt", "twenty", "twenty-pointer")
DEVNULL = subprocess.DEVNULL


class Bench:
    def __init__(self, args, work):
        self.args, self.work, self.result, self.failures = args, work, {}, []
        self.rounds = 1 if args.check else args.rounds
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        found = [p for p in (args.sptrace, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")) if p and os.path.exists(p)]
        self.sptrace = os.path.abspath(found[0]) if found else None
        self.trace = os.path.join(work, "trace.data")
        self.env = {"PATH": "/usr/bin:/bin", "HOME": work, "LC_ALL": "C", "PYTHONHASHSEED": "0", "TERM": "dumb"}
        def compile_(name, *words): subprocess.run(["gcc", "-O2", *words, "-o", self.path(name)], cwd=HERE, check=True)
        compile_("liblooped.so", "-shared", "-fPIC", "looped.c")
        link = ["-L" + work, "-llooped", "-Wl,-rpath," + work, "-Wl,-z,lazy"]
        compile_("loop", "loop.c", *link)
        compile_("floor", "-DFLOOR", "loop.c", *link)
        compile_("timed", "timed.c")
        subprocess.run(["g++", "-O2", "-o", self.path("throw"), "throw.cpp"], cwd=HERE, check=True)

    def path(self, name): return os.path.join(self.work, name)

    def run(self, argv):
        """Runs to the end; gives (stdout, CPU ns of the whole tree)."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, env=self.env, cwd=self.work, stdin=DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0: raise RuntimeError(f"{' '.join(argv)[:120]}: status {done.returncode}: {done.stderr[-200:].decode('latin1')}")
        return done.stdout.decode("latin1"), ((after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)) * 1e9

    def traced(self, *argv): return [self.sptrace, "run", "-q", "-o", self.trace, "--", *argv]

    def tools(self):
        """name -> function from a command to the command under that tool."""
        tools = {"native": lambda c: c}
        if self.sptrace: tools["sptrace"] = lambda c: self.traced(*c)
        if shutil.which("uftrace"): tools["uftrace"] = lambda c: ["uftrace", "record", "-P", ".", "--no-libcall", "-d", self.path("uftrace.data"), *c]
        if shutil.which("valgrind"): tools["callgrind"] = lambda c: ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=/dev/null", *c]
        return tools

    # ------------------------------------------------------------ throws

    def throws(self):
        command = [self.path("throw"), "1000" if self.args.check else "100000"]
        native, traced = [], []
        for _ in range(self.rounds):
            native.append(int(self.run(command)[0].split()[0]))
            if self.sptrace: traced.append(int(self.run(self.traced(*command))[0].split()[0]))
        if not traced: return
        best = min(traced) / min(native)
        middle = statistics.median(t / n for t, n in zip(traced, native))
        print(f"throw through 10 frames: {min(native)} ticks native, {min(traced)} traced: {best:.2f} at best, {middle:.2f} in the middle")
        self.result["throws"] = {"best": best, "middle": middle}

    # ------------------------------------------------------------ calls

    def calls(self):
        n = 20000 if self.args.check else self.args.calls
        slow = {"uftrace": 4, "callgrind": 4, "frida": 20}  # fewer calls for slow tools
        measured = {}
        tools = self.tools()
        frida = self.frida_version()
        for _ in range(self.rounds):
            for mode in MODES:
                for tool in ["native", "floor", *[t for t in tools if t != "native"], *(["frida"] if frida else [])]:
                    if tool in ("uftrace", "frida") and not mode.startswith("twenty"): continue  # they refuse the one-byte function
                    if tool == "frida" and mode != "twenty": continue
                    count = max(1000, n // slow.get(tool, 1))
                    try:
                        if tool == "frida": own, tree = self.run_frida(mode, count)
                        else:
                            command = [self.path("floor" if tool == "floor" else "loop"), mode, str(count)]
                            out, tree = self.run(command if tool == "floor" else tools[tool](command))
                            own = float(re.search(r"(?m)^(\d+) -?\d+$", out).group(1))
                    except (RuntimeError, AttributeError) as error:
                        self.failures.append(f"calls {mode} {tool}: {error}")
                        continue
                    measured.setdefault((mode, tool), []).append((own / count, max(0.0, tree - own) / (2 * count)))
        self.result["calls"] = {}
        print(f"CPU ns per call + return, median of {self.rounds} (in brackets: the tool's own CPU ns per event, start-up included)")
        names = ["native", "floor", *[t for t in (*tools, "frida") if t != "native" and any(k[1] == t for k in measured)]]
        print(f"{'':16}" + "".join(f"{t:>18}" for t in names) + f"{'sptrace/floor':>15}")
        for mode in MODES:
            row, medians = f"{mode:16}", {}
            for tool in names:
                values = measured.get((mode, tool))
                if not values:
                    row += f"{'-':>18}"
                    continue
                own, tree = statistics.median(v[0] for v in values), statistics.median(v[1] for v in values)
                medians[tool] = own
                self.result["calls"][f"{mode} {tool}"] = {"ns_per_call": own, "tool_ns_per_event": tree}
                row += f"{own:>10.2f} {'' if tool in ('native', 'floor') else f'({tree:.1f})':>7}"
            print(row + (f"{medians['sptrace'] / medians['floor']:>15.2f}" if "sptrace" in medians else f"{'-':>15}"))
        floor = self.result["calls"].get("direct floor")
        self.floor_ns = floor["ns_per_call"] if floor else None

    def frida_version(self):
        try: import frida
        except ImportError: return None
        return frida.__version__

    # Callbacks in C for frida's interceptor, which have a table `ring` and a word `at`: a stamp stored at both ends, and what payloads do.
    FRIDA_STAMPS = """static void put(unsigned long id) { unsigned lo, hi; __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi)); ring[at++ & 8191] = (id << 32) | lo; }
        void onEnter(GumInvocationContext *c) { put(1); } void onLeave(GumInvocationContext *c) { put(2); }"""
    FRIDA_PAYLOADS = {
        "a count": "void onEnter(GumInvocationContext *c) { at++; }",
        "a count by a key": "void onEnter(GumInvocationContext *c) { ring[(unsigned long)gum_invocation_context_get_nth_argument(c, 0) & 63]++; }",
        "a histogram": "void onEnter(GumInvocationContext *c) { unsigned long n = (unsigned long)gum_invocation_context_get_nth_argument(c, 0), at = 0; while (n >>= 1) at++; ring[at]++; }",
        "a condition that is false": "void onEnter(GumInvocationContext *c) { if ((long)gum_invocation_context_get_nth_argument(c, 0) < 0) at++; }",
    }

    def run_frida(self, mode, count, function="f_twenty", callbacks=FRIDA_STAMPS):
        import frida
        # a CModule's own data is not writable, and script-level constants may be collected: both kept by globalThis
        script_text = """globalThis.ring = Memory.alloc(65536); globalThis.at = Memory.alloc(8);
            globalThis.module = new CModule(`#include <gum/guminterceptor.h>
            extern unsigned long ring[]; extern unsigned long at;
            %s`, { ring: globalThis.ring, at: globalThis.at });
            Interceptor.attach(DebugSymbol.fromName("%s").address, globalThis.module);""" % (callbacks, function)
        device, done, out = frida.get_local_device(), threading.Event(), self.path("frida.out")
        pid = device.spawn([self.path("loop"), mode, str(count), out], env=self.env)
        session = device.attach(pid)
        session.on("detached", lambda *a: done.set())
        errors = []
        script = session.create_script(script_text)
        script.on("message", lambda message, data: errors.append(str(message)))
        script.load()
        device.resume(pid)
        if not done.wait(120) or errors: raise RuntimeError("frida: " + (errors or ["the program did not end"])[0])
        for _ in range(200):  # frida tells of the end at the call of exit(), before stdio is flushed
            with open(out) as f: words = f.read().split()
            if words: return float(words[0]), 0.0
            time.sleep(0.01)
        raise RuntimeError("frida: the program gave no result")

    # ------------------------------------------------------------ programs

    def programs(self):
        check = self.args.check
        def put(name, text):
            with open(self.path(name), "w") as f: f.write(text)
            return self.path(name)
        python = "import json\nclass P:\n def __init__(s, x): s.x = x\n def t(s): return s.x * 2\nr = 0\nfor k in range(%d): r += sum(P(d['i']).t() for d in json.loads(json.dumps([{'i': i} for i in range(300)])))\nprint(r)\n"
        unit = lambda n: "int f_next(int);\n" + "\n".join(f"int f{i}(int *p, int n) {{ int r = 0; for (int k = 0; k < n; k++) {{ if (p[k] & {i}) r += p[k] * k; else r ^= f_next(k); }} return r; }}" for i in range(n))
        cases = {"python3": [["/usr/bin/python3", "-S", "-B", put(f"p{n}.py", python % n)] for n in ((1, 3) if check else (20, 120))]}
        if shutil.which("gcc"):
            cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, text=True).stdout.strip()
            cases["cc1"] = [[cc1, "-quiet", "-O2", put(f"u{n}.c", unit(n)), "-o", "/dev/null"] for n in ((2, 6) if check else (20, 120))]
        if shutil.which("mplayer") and shutil.which("ffmpeg"):
            for n in ((1, 2) if check else (2, 12)):
                subprocess.run(["ffmpeg", "-y", "-f", "lavfi", "-i", f"testsrc2=size=352x288:rate=25:duration={n}", "-c:v", "mpeg2video", "-q:v", "4", self.path(f"m{n}.mpg")],
                               stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True)
            cases["mplayer"] = [["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-nosound", "-vo", "null", self.path(f"m{n}.mpg")] for n in ((1, 2) if check else (2, 12))]
        if shutil.which("sqlite3"):
            sql = "create table t(i integer primary key, s text); with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) insert into t select i, 'x' || i from n; select count(*), max(s) from t;"
            cases["sqlite3"] = [["/usr/bin/sqlite3", "-batch", ":memory:", sql % n] for n in ((100, 300) if check else (10000, 60000))]
        floor = getattr(self, "floor_ns", None) or self.measure_floor()
        self.result["programs"] = {}
        print(f"\nReal programs, difference of two input sizes, median of {self.rounds}; floor {floor:.2f} ns a call")
        print(f"{'':10}{'native ms':>11}{'traced ms':>11}{'ratio':>8}{'calls':>12}{'ns/call over native':>21}{'over floor':>12}{'tool ns/event':>15}")
        for name, commands in cases.items():
            if not all(os.path.exists(c[0]) for c in commands): continue
            try: self.program(name, commands, floor)
            except (RuntimeError, OSError, ValueError) as error: self.failures.append(f"programs {name}: {error}")

    def program(self, name, commands, floor):
        samples = {"native": ([], []), "sptrace": ([], []), "tool": ([], [])}
        counts = [0, 0]
        for round_ in range(self.rounds):
            for i, command in enumerate(commands):
                for tool in ("native", "sptrace") if self.sptrace else ("native",):
                    timed = [self.path("timed"), self.path("ns"), *command]
                    _, tree = self.run(timed if tool == "native" else self.traced(*timed))
                    with open(self.path("ns")) as f: own = float(f.read())
                    samples[tool][i].append(own)
                    if tool == "sptrace":
                        samples["tool"][i].append(tree - own)
                        if round_ == 0: counts[i] = self.count_calls()
        delta = {t: statistics.median(v[1]) - statistics.median(v[0]) for t, v in samples.items() if v[0]}
        calls = counts[1] - counts[0]
        row = f"{name:10}{delta['native'] / 1e6:>11.1f}"
        if self.sptrace and calls > 0 and delta["native"] > 0:
            over = (delta["sptrace"] - delta["native"]) / calls
            row += f"{delta['sptrace'] / 1e6:>11.1f}{delta['sptrace'] / delta['native']:>8.2f}{calls:>12}{over:>21.2f}{over / floor:>12.2f}{delta['tool'] / (2 * calls):>15.2f}"
        elif self.sptrace and not self.args.check: raise RuntimeError("the larger input made no more calls")
        print(row, flush=True)
        self.result["programs"][name] = {"calls": calls, "floor_ns": floor, **{t + "_ns": v for t, v in delta.items()}}

    def measure_floor(self):
        count = 20000 if self.args.check else self.args.calls
        return statistics.median(float(self.run([self.path("floor"), "direct", str(count)])[0].split()[0]) / count for _ in range(self.rounds))

    def count_calls(self):
        """Recorded calls of the last trace, by its own report."""
        out, _ = self.run([self.sptrace, "report", "functions", "-i", self.trace, "--format", "csv"])
        return sum(int(row["calls"]) for row in csv.DictReader(io.StringIO(out)))

    # ------------------------------------------------------------ start-up and disk

    def startup(self):
        rounds = 3 if self.args.check else 50
        tools = {"native": ["/bin/true"], **({"sptrace": self.traced("/bin/true")} if self.sptrace else {})}
        if shutil.which("strace"): tools["strace"] = ["strace", "-f", "-o", "/dev/null", "/bin/true"]
        if shutil.which("uftrace"): tools["uftrace"] = ["uftrace", "record", "--force", "-d", self.path("uftrace.data"), "/bin/true"]
        if shutil.which("valgrind"): tools["callgrind"] = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=/dev/null", "/bin/true"]
        samples = {t: [] for t in tools}
        for round_ in range(rounds + 1):  # the first one fills caches
            for tool, command in tools.items():
                if tool == "callgrind" and round_ > 5: continue
                try: _, cpu = self.run(command)
                except RuntimeError as error: self.failures.append(f"startup {tool}: {error}"); continue
                if round_: samples[tool].append(cpu / 1e6)
        native = statistics.median(samples["native"])
        self.result["startup"] = {t: statistics.median(v) - native for t, v in samples.items() if v and t != "native"}
        print(f"\nStart-up of /bin/true, CPU ms above native ({native:.2f} ms), median of {rounds}: "
              + ", ".join(f"{t} {v:.1f}" for t, v in self.result["startup"].items()), flush=True)

    def disk(self):
        if not self.sptrace: return
        print("\nBytes an event: in the trace file, in memory (at most 10)")
        size = 300 if self.args.check else 20000
        commands = {"loop": [self.path("loop"), "direct", str(size * 50)],
                    "python3": ["/usr/bin/python3", "-S", "-B", "-c", f"import json; print(len(json.dumps([str(i) for i in range({size})])))"],
                    "sqlite3": ["/usr/bin/sqlite3", "-batch", ":memory:", f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {size}) select sum(i), max('x' || i) from n;"]}
        self.result["disk"] = {}
        for name, command in commands.items():
            if not os.path.exists(command[0]): continue
            try:
                self.run(self.traced(*command))
                calls, size_bytes = self.count_calls(), os.path.getsize(self.trace)
                out, _ = self.run([self.sptrace, "report", "summary", "-i", self.trace])
                memory = re.search(r"\(([0-9.]+) in memory\)", out)
                memory = float(memory.group(1)) if memory else float("inf")
            except (RuntimeError, OSError) as error: self.failures.append(f"disk {name}: {error}"); continue
            if calls == 0: self.failures.append(f"disk {name}: no calls recorded"); continue
            self.result["disk"][name] = size_bytes / (2 * calls)
            self.result.setdefault("memory", {})[name] = memory
            print(f"{name:10}{size_bytes:>12} bytes{calls:>12} calls{size_bytes / (2 * calls):>8.2f}{memory:>8.2f}", flush=True)
        memory = [m for name, m in self.result.get("memory", {}).items() if name != "loop"]
        if memory and statistics.mean(memory) > 10: self.failures.append(f"disk: {statistics.mean(memory):.2f} bytes an event in memory on average, not 10")

    # ------------------------------------------------------------ system calls

    def syscalls(self):
        """Two system calls a byte, one of which reads memory before it and one after."""
        n = 2000 if self.args.check else 1000000
        def dd(n): return [self.path("timed"), self.path("ns"), "/usr/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={n}", "status=none"]
        def only(*words): return lambda command: [self.sptrace, "run", "-q", "-o", self.trace, "--syscalls-only", *words, "--", *command]
        tools = {"native": lambda c: c}
        if self.sptrace: tools |= {"-s 0": only("-s", "0"), "-s 32": only(), "-s 32, calls": lambda c: only()(c)[:5] + ["--syscalls", "--", *c]}
        peers = {"strace": lambda c: ["strace", "-f", "-o", "/dev/null", *c], "perf trace": lambda c: ["perf", "trace", "-o", "/dev/null", *c],
                 "bpftrace, counts alone": lambda c: ["bpftrace", "-q", "-e", "tracepoint:raw_syscalls:sys_enter { @[args->id] = count() }", "-c", " ".join(c)]}
        peers = {name: command for name, command in peers.items() if self.works(command(dd(1)))}
        tools |= peers
        samples = {tool: [] for tool in tools}
        for _ in range(self.rounds):
            for tool, command in tools.items():
                count = n // 50 if tool in peers else n
                try: self.run(command(dd(count)))
                except RuntimeError as error: self.failures.append(f"syscalls {tool}: {error}"); continue
                with open(self.path("ns")) as f: samples[tool].append(float(f.read()) / (2 * count))
        native = statistics.median(samples["native"])
        self.result["syscalls"] = {tool: statistics.median(v) / native for tool, v in samples.items() if v}
        print(f"\nA system call of dd bs=1, {native:.0f} ns native; ns above, and over native: "
              + "; ".join(f"{tool} {statistics.median(v) - native:.0f} ({statistics.median(v) / native:.2f})" for tool, v in samples.items() if v and tool != "native"), flush=True)

    # ------------------------------------------------------------ values of calls

    def values(self):
        """A call of two integers with its result: with values, and with a condition that does not hold, over the record alone."""
        if not self.sptrace: return
        n = 20000 if self.args.check else self.args.calls
        asked = {"record": [], "values": ["-A", "f_two@arg1/i64,arg2/i64,retval/i64"], "false": ["-A", "f_two@arg1/i64,arg2/i64,arg1<0,retval/i64"]}
        asked["one"] = ["-A", "f_two@arg1/i64"]
        samples = {}
        for _ in range(self.rounds):
            for mode in ("two", "two-pointer"):
                for name, words in asked.items():
                    command = [self.sptrace, "run", "-q", "-o", self.trace, *words, "--", self.path("loop"), mode, str(n)]
                    try: out, _ = self.run(command)
                    except RuntimeError as error: self.failures.append(f"values {mode} {name}: {error}"); continue
                    samples.setdefault((mode, name), []).append(float(re.search(r"(?m)^(\d+) -?\d+$", out).group(1)) / n)
        median = {key: statistics.median(values) for key, values in samples.items()}
        self.result["values"] = {" ".join(key): value for key, value in median.items()}
        for mode in ("two", "two-pointer"):
            record = median.get((mode, "record"))
            if record is None: continue
            above = {name: median[mode, name] - record for name in ("values", "one", "false") if (mode, name) in median}
            print(f"\nA call of two integers ({mode}), {record:.1f} ns with its record; ns above: "
                  + ", ".join(f"{what} {above[name]:.1f}" for name, what in (("values", "both and the result"), ("one", "one of them"), ("false", "a condition that is false")) if name in above), flush=True)
        few = n // 1000
        loop = lambda mode: [self.path("loop"), mode, str(few)]
        out = self.path("ns")
        peers = {"ltrace -e, of a library's function": ("plt", ["ltrace", "-e", "f_library", "-o", "/dev/null"], lambda words: words),
                 "bpftrace, both values into a table": ("two", ["bpftrace", "-q", "-e", f"uprobe:{self.path('loop')}:f_two {{ @[arg0 & 7, arg1 & 7] = count() }}", "-c"], lambda words: [" ".join(words)])}
        for name, (mode, tool, given) in peers.items():
            command = [*tool, *given([*loop(mode), out])]
            if not self.works(command): continue
            with open(out) as f: print(f"beside: {name}: {float(f.read().split()[0]) / few:.0f} ns a call", flush=True)

    def works(self, command):
        """Whether a peer is installed, and does here what it is asked; says so if not."""
        done = shutil.which(command[0]) is not None and subprocess.run(command, env=self.env, cwd=self.work, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL).returncode == 0
        if not done: print(f"beside: {command[0]} is not installed, or does not run here", flush=True)
        return done

    # ------------------------------------------------------------ payloads of scripts

    def scripts(self):
        """A call of two integers with a payload that makes no record, over the bare call; and with one beside its record, over the record."""
        if not self.sptrace: return
        n = 20000 if self.args.check else self.args.calls
        at = 'at("f_two").on_enter'
        asked = {
            "a record": None,
            "a count": f'let t = count("t", []); {at}(|c| t.add([]));',
            "a count by a key": f'let t = count("t", ["a"]); {at}(|c| t.add(c.arg1 & 63));',
            "a count by two keys": f'let t = count("t", ["a", "b"]); {at}(|c| t.add([c.arg1 & 63, c.arg2 & 1]));',
            "a count by caller": f'let t = count("t", ["who"]); {at}(|c| t.add(c.caller));',
            "a count by 8 callers": f'let t = count("t", ["stack"]); {at}(|c| t.add(c.stack(8)));',
            "a variable of the thread": f'let x = thread_var("x"); {at}(|c| x.add(c.arg1));',
            "a histogram": f'let t = histogram("t", [], "a"); {at}(|c| t.add(c.arg1));',
            "a condition that is false": f'let t = count("t", []); {at}(|c| if c.arg1 < 0 {{ t.add([]); }});',
            "a false condition beside a record": f'let t = count("t", []); {at}(|c| {{ if c.arg1 < 0 {{ t.add([]); }} c.record(); }});',
            "a count by a key beside a record": f'let t = count("t", ["a"]); {at}(|c| {{ t.add(c.arg1 & 63); c.record(); }});',
            "a histogram beside a record": f'let t = histogram("t", [], "a"); {at}(|c| {{ t.add(c.arg1); c.record(); }});',
            "a count of returns by result": f'let t = count("t", ["r"]); at("f_two").on_exit(|c| t.add(c.result & 63));',
            "a histogram of durations": f'let t = histogram("t", [], "ns"); at("f_two").on_exit(|c| t.add(c.elapsed));',
        }
        samples = {}
        peers = self.FRIDA_PAYLOADS if self.frida_version() else {}
        for _ in range(self.rounds):
            for name, callbacks in peers.items():
                try: own, _ = self.run_frida("two", max(n // 20, 1000), "f_two", callbacks)
                except Exception as error: self.failures.append(f"scripts frida {name}: {error}"); continue
                samples.setdefault(("frida", name), []).append(own / max(n // 20, 1000))
            for mode in ("two", "two-pointer", "two-deep"):
                loop = [self.path("loop"), mode, str(n)]
                traced = lambda script: [self.sptrace, "run", "-q", "-o", self.trace, *(["--eval", script] if script else []), "--", *loop]
                counted = [self.sptrace, "run", "-q", "--count", "-o", self.trace, "--", *loop]
                for name, command in {"bare": loop, "counted": counted, **{name: traced(script) for name, script in asked.items()}}.items():
                    if mode == "two-deep" and name not in ("bare", "a record", "a count by caller", "a count by 8 callers"): continue
                    try: out, _ = self.run(command)
                    except RuntimeError as error: self.failures.append(f"scripts {mode} {name}: {error}"); continue
                    samples.setdefault((mode, name), []).append(float(re.search(r"(?m)^(\d+) -?\d+$", out).group(1)) / n)
        median = {key: statistics.median(values) for key, values in samples.items()}
        self.result["scripts"] = {" ".join(key): value for key, value in median.items()}
        for mode in ("two", "two-pointer", "two-deep"):
            bare = median.get((mode, "bare"))
            if bare is None: continue
            def above(floor, beside): return ", ".join(f"{name.removesuffix(' beside a record')} {median[mode, name] - floor:.1f}" for name in ["counted", *asked] if name.endswith("beside a record") == beside and (mode, name) in median)
            print(f"\nA call of two integers ({mode}), {bare:.1f} ns bare; ns above: " + above(bare, False), flush=True)
            record = median.get((mode, "a record"))
            if record is not None and mode != "two-deep": print(f"Beside a record ({mode}), {record:.1f} ns; ns above: " + above(record, True), flush=True)
        bare = median.get(("two", "bare"), 0)
        of_frida = ", ".join(f"{name} {median['frida', name] - bare:.1f}" for name in peers if ("frida", name) in median)
        print(f"The same by frida {self.frida_version()}'s interceptor, callbacks in C: {of_frida}" if of_frida else "frida is not installed.", flush=True)

    # ------------------------------------------------------------ analysis

    def counts(self):
        """What a call costs that is counted, and whole programs: their CPU time over native, everything included."""
        n = 20000 if self.args.check else self.args.calls * 10
        samples = {}
        def counted(command): return [self.sptrace, "run", "-q", "--count", "-o", self.trace, "--", *command]
        for _ in range(self.rounds):
            for mode in MODES:
                for tool in ("native", "count"):
                    command = [self.path("loop"), mode, str(n)]
                    out, _ = self.run(command if tool == "native" else counted(command))
                    samples.setdefault((mode, tool), []).append(float(re.search(r"(?m)^(\d+) -?\d+$", out).group(1)) / n)
        median = {key: statistics.median(values) for key, values in samples.items()}
        over = {mode: median[mode, "count"] - median[mode, "native"] for mode in MODES}
        print("\nCalls that are counted: ns above native, " + ", ".join(f"{mode} {ns:.2f}" for mode, ns in over.items()))
        self.result["counts"] = dict(over)
        sql = "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < %d) insert into t select x, x * 7 %% 13 from c; create index i on t(b); select sum(a * b) from t;" % (100 if self.args.check else 1_000_000)
        python = "import json\nd = list(range(1000))\nfor k in range(%d):\n json.loads(json.dumps(d)); sorted(d, key=lambda x: -x)\n" % (1 if self.args.check else 6000)
        lua = "local t = {} for i = 1, %d do t[i] = (i * 7919) %% 100003 end for k = 1, 4 do local c = {} for i = 1, #t do c[i] = t[i] end table.sort(c) end print(#t)" % (100 if self.args.check else 500_000)
        programs = {"lua": ["/usr/bin/lua", "-e", lua], "sqlite3": ["/usr/bin/sqlite3", ":memory:", sql], "xz": ["/usr/bin/xz", "-1", "-k", "-c", os.path.realpath("/bin/sh" if self.args.check else "/usr/bin/python3")], "python3": ["/usr/bin/python3", "-S", "-c", python]}
        row = []
        for name, command in programs.items():
            if not os.path.exists(command[0]): continue
            own = {}
            for _ in range(self.rounds):
                for tool in ("native", "count"):
                    timed = [self.path("timed"), self.path("ns"), *command]
                    self.run(timed if tool == "native" else counted(timed))
                    with open(self.path("ns")) as f: own.setdefault(tool, []).append(float(f.read()))
            self.result["counts"][name] = statistics.median(own["count"]) / statistics.median(own["native"])
            row.append(f"{name} {self.result['counts'][name]:.2f}")
        print("Programs whose calls are counted: CPU time over native, start-up included: " + ", ".join(row), flush=True)

    def analysis(self):
        """Large libraries where installed; the machine's libc in a check. At most 50 CPU-ms a MB, 4 x and 0.4 x the text."""
        if not self.sptrace: return
        large = [p for g in ("/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1", "/usr/lib/x86_64-linux-gnu/librustc_driver-*.so", os.path.join(os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")), "toolchains/*/lib/librustc_driver-*.so")) for p in glob.glob(g)]
        files = ["/lib/x86_64-linux-gnu/libc.so.6"] if self.args.check else sorted({os.path.realpath(p) for p in large})
        print("\nCold analysis: MB of text, CPU ms a MB, peak memory and cache file over text")
        self.result["analysis"] = {}
        for file in files:
            out, _ = self.run([self.sptrace, "analyze", "--format", "csv", file])
            text = int(next(row[1] for row in csv.reader(io.StringIO(out)) if row[0] == "text bytes"))
            cpus, peaks = [], []
            for _ in range(self.rounds):
                child = subprocess.Popen([self.sptrace, "analyze", file], stdout=DEVNULL)
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
                cpus.append((usage.ru_utime + usage.ru_stime) * 1e3); peaks.append(usage.ru_maxrss * 1024)
            cache = tempfile.mkdtemp(dir=self.work)
            subprocess.run([self.sptrace, "run", "-q", "-o", self.trace, "--", "env", "LD_PRELOAD=" + file, "/bin/true"], env={**self.env, "XDG_CACHE_HOME": cache}, cwd=self.work, stdin=DEVNULL)
            cached = max((os.path.getsize(p) for p in glob.glob(cache + "/sptrace/*.analysis")), default=0)
            row = (statistics.median(cpus) / (text / 1e6), max(peaks) / text, cached / text)
            self.result["analysis"][file] = row
            print(f"{os.path.basename(file):44}{text / 1e6:>7.1f}{row[0]:>7.1f}{row[1]:>7.2f}{row[2]:>7.2f}", flush=True)
            if not self.args.check and (row[1] > 4 or row[2] > 0.4): self.failures.append(f"analysis: {file}: more memory or cache than allowed")

    # ------------------------------------------------------------ attach

    def attach(self):
        """In redis-server, and in a process with 32 threads and much code. Limits, idle machine: 3 ms and 10 ms at attach."""
        if not self.sptrace: return
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", self.path("gaps.so"), "gaps.c"], cwd=HERE, check=True)
        large = glob.glob("/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1")[:1]
        sleeper = ["/usr/bin/python3", "-S", "-c", "import time; time.sleep(100000)"]
        targets = {"redis-server": (["/usr/bin/redis-server", "--port", "0", "--unixsocket", self.path("redis"), "--save", ""], 1, []), "32 threads, libLLVM": (sleeper, 32, large)}
        if self.args.check: targets = {"python3": (sleeper, 2, [])}
        print(f"\nLargest gap of a spinning thread, ms, median (largest) of {self.rounds}" + f"\n{'':22}" + "".join(f"{w:>18}" for w in ("attach", "detach", "strace -p", "nothing")))
        self.result["attach"] = {}
        for name, (command, threads, libraries) in targets.items():
            if not os.path.exists(command[0]) or threads == 32 and not libraries: continue
            with open(self.path("gaps"), "wb") as f: f.write(bytes(4096))
            env = {**self.env, "GAPS_FILE": self.path("gaps"), "GAPS_THREADS": str(threads), "LD_PRELOAD": ":".join([self.path("gaps.so"), *libraries])}
            target = subprocess.Popen(command, env=env, cwd=self.work, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
            try: row = self.gaps_of(target.pid)
            except RuntimeError as error: self.failures.append(f"attach {name}: {error}"); continue
            finally: target.kill(); target.wait()
            self.result["attach"][name] = {how: statistics.median(v) for how, v in row.items() if v}
            print(f"{name:22}" + "".join(f"{statistics.median(v):>9.2f} ({max(v):>6.2f})" if v else f"{'-':>18}" for v in row.values()), flush=True)

    def gaps_of(self, pid):
        with open(self.path("gaps"), "r+b") as f: shared = mmap.mmap(f.fileno(), 4096)
        words = memoryview(shared).cast("Q")
        def gap():
            rounds, end = words[1], time.monotonic() + 10
            while words[1] < rounds + 1000 and time.monotonic() < end: time.sleep(0.001)
            value, words[0] = words[0], 0
            return value / 1e6
        def said(process, word):
            line = process.stderr.readline()
            if word not in line: raise RuntimeError(line.strip() or "it ended")
        end = time.monotonic() + 30
        while words[1] == 0 and time.monotonic() < end: time.sleep(0.01)
        row = {"attach": [], "detach": [], "strace": [], "nothing": []}
        for round_ in range(self.rounds + 1):
            gap()
            tracer = subprocess.Popen([self.sptrace, "attach", "-o", self.trace, "-p", str(pid)], env=self.env, stderr=subprocess.PIPE, text=True)
            said(tracer, "attached to")
            at_attach = gap()
            tracer.terminate()
            if tracer.wait(60) != 0: raise RuntimeError(tracer.stderr.read().strip())
            at_detach = gap()
            time.sleep(0.1)
            nothing, strace = gap(), None
            if shutil.which("strace"):
                tracer = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(pid)], stderr=subprocess.PIPE, text=True)
                said(tracer, "attached")
                strace = gap()
                tracer.terminate()
                tracer.wait(60)
            if round_ == 0 and not self.args.check: continue  # modules were analysed for the first time
            for how, value in (("attach", at_attach), ("detach", at_detach), ("strace", strace), ("nothing", nothing)):
                if value is not None: row[how].append(value)
        words.release()
        return row

    # ------------------------------------------------------------ start events

    def start(self):
        """Programs that call all the time. Limit, idle machine: 1 ms to the first record, median."""
        if not self.sptrace: return
        times = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "examples", "first_events")
        subprocess.run(["cargo", "build", "-q", "--release", "-p", "sptrace-trace", "--example", "first_events"], cwd=ROOT, check=True)
        subprocess.run(["gcc", "-O2", "-o", self.path("stamped"), "stamped.c"], cwd=HERE, check=True)
        rounds = 1 if self.args.check else max(50, self.rounds)
        commands = {"loop": [self.path("loop"), "direct", "1000000000000"], "python3": ["/usr/bin/python3", "-S", "-c", "import json\nwhile True: json.dumps([1, 2, 'x'])"]}
        if shutil.which("mplayer") and shutil.which("ffmpeg") and not self.args.check:
            self.clip("start.mpg", 20)
            commands["mplayer"] = ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-loop", "0", "-nosound", "-vo", "null", self.path("start.mpg")]
        print(f"\nFrom a start event to the first record, and to the first call after it: ms, median (largest) of {rounds}")
        self.result["start"] = {}
        for name, command in commands.items():
            samples = []
            for round_ in range(rounds + 1):
                try: sample = self.start_once(command, times)
                except (RuntimeError, ValueError, OSError) as error: self.failures.append(f"start {name}: {error}"); break
                if round_ or self.args.check: samples.append(sample)  # in the first modules were analysed
            if not samples: continue
            first, call = ([s[i] for s in samples] for i in (0, 1))
            self.result["start"][name] = {"first_ms": first, "call_ms": call}
            print(f"{name:10}{statistics.median(first):>9.2f} ({max(first):>6.2f}){statistics.median(call):>9.2f} ({max(call):>6.2f})", flush=True)

    def start_once(self, command, times):
        process = subprocess.Popen([self.sptrace, "run", "-o", self.trace, "--start-on", "signal:USR1", "--stop-on", "time:50ms", "--", *command], env=self.env, cwd=self.work, stdin=DEVNULL, stdout=DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(1.2)
            sent, _ = self.run([self.path("stamped"), str(process.pid), str(int(signal.SIGUSR1))])
            time.sleep(0.3)
            process.terminate()
            said = process.communicate(timeout=60)[1]
            first, call, hz = map(int, self.run([times, self.trace])[0].split())
        finally: process.kill()
        if "recording ended early: --stop-on" not in said or call >= 1 << 63: raise RuntimeError("nothing was recorded: " + said.strip()[-300:])
        return (first - int(sent)) / hz * 1e3, (call - int(sent)) / hz * 1e3

    # ------------------------------------------------------------ armed, and after the stop

    def inactive(self):
        """Long enough that the program is prepared in both sizes. Limit: 1.00 within the noise."""
        if not self.sptrace: return
        scale = 1 if self.args.check else 1000
        cases = {"loop": ("f_library", [[self.path("loop"), "direct", str(n * 1_000_000 * scale)] for n in (1, 3)])}
        if shutil.which("mplayer") and shutil.which("ffmpeg") and not self.args.check:
            self.clip("inactive.mpg", 20)
            play = ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-nosound", "-vo", "null"]
            cases["mplayer"] = ("abort", [[*play, "-loop", str(n), self.path("inactive.mpg")] for n in (30, 90)])
        hows = {"native": [], "armed": ["--start-on", "call:NAME", "--start-on", "time:1h"], "after": ["--start-on", "time:300ms", "--stop-on", "time:50ms"]}
        print(f"\nArmed with a call and a time, and after the stop: CPU time over native, median of {self.rounds} (smallest, largest)")
        self.result["inactive"] = {}
        for name, (function, commands) in cases.items():
            rounds = [{how: self.difference(commands, [o.replace("NAME", function) for o in options] if options else None) for how, options in hows.items()} for _ in range(self.rounds)]
            ratios = {how: [r[how] / r["native"] for r in rounds] for how in ("armed", "after")}
            again = [a["native"] / b["native"] for a, b in zip(rounds, rounds[1:] + rounds[:1])]
            self.result["inactive"][name] = ratios
            shown = lambda of: f"{statistics.median(of):.3f} ({min(of):.3f}, {max(of):.3f})"
            print(f"{name:10}armed {shown(ratios['armed'])}, after {shown(ratios['after'])}, native over the next native {shown(again)}", flush=True)

    def difference(self, commands, options):
        """CPU ns of the larger of two runs above the smaller's, the program's own."""
        own = []
        for command in commands:
            timed = [self.path("timed"), self.path("ns"), *command]
            self.run(timed if options is None else [self.sptrace, "run", "-q", "-o", self.trace, *options, "--", *timed])
            with open(self.path("ns")) as f: own.append(float(f.read()))
        return own[1] - own[0]

    def clip(self, name, seconds):
        subprocess.run(["ffmpeg", "-y", "-f", "lavfi", "-i", f"testsrc2=size=352x288:rate=25:duration={seconds}", "-c:v", "mpeg2video", "-q:v", "4", self.path(name)], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["calls", "throws", "programs", "startup", "disk", "analysis", "attach", "start", "inactive", "syscalls", "values", "scripts", "counts", []], metavar="PART")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=4_000_000)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="everything once with tiny sizes: does it run?")
    parser.add_argument("--sptrace", metavar="PATH")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="sptrace-bench-", dir="/var/tmp")
    try:
        bench = Bench(args, work)
        if bench.sptrace is None: print("bench: no sptrace found: native, floor and peers only", file=sys.stderr)
        for part in args.parts or ["calls", "throws", "programs", "startup", "disk", "analysis", "attach", "start", "inactive", "syscalls", "values", "scripts", "counts"]: getattr(bench, part)()
        if args.json:
            with open(args.json, "w") as f: json.dump(bench.result, f, indent=1)
        for failure in bench.failures: print("bench: " + failure, file=sys.stderr)
        if args.check:
            missing = bench.sptrace is None
            print("benchmarks run" if not bench.failures and not missing else "benchmarks do not run")
            return 1 if bench.failures or missing else 0
        return 1 if bench.failures else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
