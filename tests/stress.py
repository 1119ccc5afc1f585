#!/usr/bin/env python3
"""Runs programs under `sptrace run` with random options while random things happen to them, and looks at what is left.

usage: tests/stress.py [--for SECONDS] [--seed N] [--case N] [--only GLOB]... [--event GLOB]... [--verbose]
       tests/stress.py --self-check

Given: a built sptrace, tests/programs and the programs of the machine. A case is drawn from (seed, number): a program whose
output is always the same, options of `sptrace run`, what happens to sptrace or to the program and when, and whether the
processors have another load. Two cases run at a time. What happens is one of: nothing; SIGKILL, SIGSTOP for a while, SIGINT or
SIGTERM to sptrace; SIGKILL, SIGSEGV, SIGTERM or SIGSTOP for a while to the program or a process that it has started; two
sptrace at once; one sptrace under another; a disk that fills up.
Gives: one line for each case that fails, with the command that runs it alone, a table of what was done, then `N passed, N failed`
alone on the last line; status 1 if anything failed.
Checked: output, files and status are those of an untraced run, unless the program was hit itself (then: what it wrote is the
beginning of what it writes, its status is the signal's or its own); it all ends in time, no process is left behind, none has
a TracerPid for long or a mapping writable and executable; `report summary`, `tree` and `coverage` read the trace and say how the
program ended, and what is killed has in its trace what it did before; if sptrace was killed or the disk full, they read it or
refuse in one line; nothing panics.
  --self-check the harness must pass a stand-in for sptrace that does nothing wrong and fail ones that do
Must not know: how sptrace works.
"""
import argparse, collections, fnmatch, multiprocessing, os, random, re, shutil, signal, subprocess, sys, tempfile, time

from harness.case import HERE, find_sptrace
from harness.commands import command_cases
from harness.compare import Case, Run, Runner, Watcher, digest, environment
from harness.fixtures import make_fixtures
from harness.process import alive_descendants, become_subreaper, children_of, descendants
from harness.programs import program_cases

WORKERS = 2
LIMIT_S = 90.0
GRACE_S = 2.0
TRACED_S = 3.0  # processors under load: far more than sptrace needs
PANIC = re.compile(rb"panicked|RUST_BACKTRACE")
SAYS_EARLY = re.compile(rb"(?m)^sptrace: recording ended early: .*\n")
SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "term": signal.SIGTERM, "int": signal.SIGINT, "stop": signal.SIGSTOP}
# what happens: how often
EVENTS = {"nothing": 4, "kill sptrace": 6, "stop sptrace": 3, "int sptrace": 2, "term sptrace": 2, "kill program": 4, "segv program": 2,
          "term program": 2, "stop program": 3, "kill child": 2, "segv child": 1, "term child": 1, "stop child": 2, "two sptrace": 3,
          "sptrace under sptrace": 1, "disk full": 3}
# programs that see to these signals themselves: any status is right then
HANDLERS = {"python3*": "int term", "bash*": "int term", "perl": "int", "programs/alarm*": "term", "git*": "int term", "make": "int term", "sort": "int term",
            "gcc*": "int term segv", "grep": "segv", "rustc": "segv", "sqlite3": "int", "lua5.4": "int", "programs/altstack*": "segv", "programs/panic*": "segv", "xz*": "int term"}
REAL = ["bash", "python3", "python3.threads", "perl", "git.log", "git.status", "sqlite3", "gcc", "gcc.link", "xz", "xz.roundtrip", "zstd", "lua5.4", "openssl",
        "openssl.enc", "sort", "busybox", "awk", "sed", "grep", "tar", "make", "false", "killed", "stdin"]
PROGRAMS = ("threads", "manythreads", "exceptions", "procs", "altstack", "sigprof", "forkwire", "cancel", "coroutine", "dlopen", "sandthrow", "sandbox", "panic",
            "callbacks", "longjmp", "deep", "alarm", "sleeper", "smallstack", "closefds", "virtual", "direct", "tailforms", "nolibc", "counted", "flow")
# programs that start others
PARENTS = ["bash*", "python3.threads", "perl", "gcc*", "xz.roundtrip", "openssl.enc", "tar", "make", "busybox", "programs/procs*", "programs/forkwire*", "programs/alarm*"]
PIPES = "for i in 1 2 3 4 5 6; do seq $i 400 | grep -v 7 | sed s/^/$i./ | sort -r | tail -n $i; done; (exit 5) | cat; echo ${PIPESTATUS[0]}; exit 3"


def cases_of(programs, fixture):
    """Cases of the other harness that suit, and a few more; by name."""
    found = {}
    for c in program_cases(programs):
        base = c.name.split("/")[1].split(".")[0]
        if c.name.startswith("programs/") and base in PROGRAMS and ".60s" not in c.name: found[c.name] = c
    commands = {c.name: c for c in command_cases(fixture)}
    found.update((n, commands[n]) for n in REAL if os.path.exists(commands[n].argv[0]))
    found["bash.pipes"] = Case("bash.pipes", ["/bin/bash", "-c", PIPES])
    return found


def options_of(rng):
    """Random options of `sptrace run`."""
    options = []
    if rng.random() < 0.25: options += ["-F", rng.choice(["*", "main", "f_*", "*a*", "malloc", "sqlite3_*"])]
    if rng.random() < 0.15: options += ["-N", rng.choice(["mem*", "f_*", "*alloc*", "_*"])]
    if rng.random() < 0.15: options += ["-D", str(rng.randint(1, 12))]
    if rng.random() < 0.25: options += ["--on-full", rng.choice(["drop", "block"])]
    if rng.random() < 0.4: options += ["--buffer", rng.choice(["64K", "128K", "256K", "1M"])]
    if rng.random() < 0.15: options += ["--loader"]
    if rng.random() < 0.15:
        turns = ["time:1ms", "time:20ms", "call:m*#3", "call:*a*#7", "call:f_*"]
        for _ in range(rng.randint(1, 3)): options += ["--between", rng.choice(["*", "main", "f_*", "*a*", "malloc"]), rng.choice(["start", *turns]), rng.choice(["exit", *turns])]
        options += ["--times", rng.choice(["1", "2", "1000"])]
    elif "--loader" not in options and rng.random() < 0.35: options += windows_of(rng)
    if rng.random() < 0.1: options += ["-l", rng.choice(["libc.*", "ld*", "*"])]
    size = rng.random()
    if size < 0.2: options += ["--ring", rng.choice(["2M", "4M"])]
    elif size < 0.35: options += ["--max-size", rng.choice(["64K", "300K", "2M"])]
    return options


def windows_of(rng):
    """When the recording begins and ends: in the middle of the program, again and again, or never."""
    times, calls = ["time:1ms", "time:20ms", "time:120ms"], ["call:f_*", "call:f_line#7", "call:m*#3", "call:*alloc#50"]
    seen_later = ["return:f_*", "return:m*#3", "slow:f_*>20us"]
    options = ["--start-on", rng.choice(times + calls + seen_later)]
    if rng.random() < 0.2: options = ["--shadow", "--start-on", rng.choice(times + calls + ["return:f_*", "slow:*>1ms"])]
    elif rng.random() < 0.2: options = []
    if not options or rng.random() < 0.8: options += ["--stop-on", rng.choice(times + calls)]
    if options[0] == "--start-on" and "--stop-on" in options: options += ["--times", rng.choice(["1", "2", "1000"])]
    return options


class Plan:
    """What is drawn for one case."""

    def __init__(self, seed, number, cases):
        rng = random.Random(f"{seed}:{number}")
        self.number = number
        variants = collections.defaultdict(list)  # a program in many variants comes no more often than another
        for name in sorted(cases): variants[name.removeprefix("programs/").split(".")[0] if name.startswith("programs/") else name].append(name)
        self.case = cases[rng.choice(variants[rng.choice(sorted(variants))])]
        self.options = options_of(rng)
        self.event = rng.choices(list(EVENTS), EVENTS.values())[0]
        verb, _, whom = self.event.partition(" ")
        if whom == "child" and not any(fnmatch.fnmatch(self.case.name, g) for g in PARENTS): self.event = f"{verb} program"
        self.when = rng.random() ** 1.5 * 1.1  # of the time that it takes traced
        self.since_start = rng.random() < 0.4  # else since the program is seen
        self.stop_s = rng.choice([0.05, 0.3, 1.5])
        self.load, self.cold = rng.random() < 0.25, rng.random() < 0.08
        self.disk_kib = rng.choice([64, 256, 1024, 4096])
        self.which = rng.random()
        if self.event == "disk full" and os.geteuid() != 0: self.event = "nothing"
        # Its handler allocates memory: it hangs where the signal comes within malloc, untraced, too (2 of 2,052 times).
        if self.event == "segv program" and self.case.name == "zstd": self.event = "kill program"

    def __str__(self):
        notes = [f"at {self.when:.2f} of its time" + (" (from the start)" if self.since_start else "")] if self.event.split()[0] in SIGNALS else []
        notes += [f"for {self.stop_s} s"] if self.event.startswith("stop") else [f"{self.disk_kib} KiB"] if self.event == "disk full" else []
        notes += ["load"] * self.load + ["cold cache"] * self.cold
        return f"{self.case.name}, {' '.join(self.options) or 'no options'}, {' '.join([self.event, *notes])}"

    def may_differ(self):
        """The program, or a part of it, was hit itself."""
        verb, _, whom = self.event.partition(" ")
        return verb in SIGNALS and not (verb == "stop" or self.event == "kill sptrace")

    def is_whole(self):
        """The recording is from the program's start to its end."""
        return "--start-on" not in self.options and "--stop-on" not in self.options

    def handles(self, verb):
        return any(fnmatch.fnmatch(self.case.name, g) and verb in verbs.split() for g, verbs in HANDLERS.items())


class Instance:
    """One sptrace with its program, in a folder of its own."""

    def __init__(self, stress, plan, index, cwd, trace):
        self.plan, self.cwd, self.trace, self.run = plan, cwd, trace, Run()
        shutil.rmtree(cwd, ignore_errors=True)
        os.makedirs(cwd)
        for name in (trace, trace + ".old"):
            if os.path.exists(name): os.unlink(name)
        self.paths = [os.path.join(stress.work, f"{s}.{index}") for s in ("stdout", "stderr")]
        tracer = [stress.sptrace, "run", "-q", "-o", trace, *plan.options, "--"]
        if plan.event == "sptrace under sptrace": tracer = [stress.sptrace, "run", "-q", "-o", trace + ".outer", "--", *tracer]
        env = environment(stress.work)
        if plan.cold: env["XDG_CACHE_HOME"] = os.path.join(stress.work, "cold")
        self.started = time.monotonic()
        with open(self.paths[0], "wb") as o, open(self.paths[1], "wb") as e:
            self.process = subprocess.Popen(tracer + plan.case.argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=env)
        self.target = None
        self.killed = False  # sptrace, by us

    def find_target(self, deadline):
        """The program, once it is no copy of sptrace any more."""
        target = Runner.find_program(self.process, self.plan.case.argv, deadline)
        own = os.stat(f"/proc/{self.process.pid}/exe") if target else None
        while target and time.monotonic() < deadline and self.process.poll() is None:
            try:
                exe = os.stat(f"/proc/{target}/exe")
                if (exe.st_dev, exe.st_ino) != (own.st_dev, own.st_ino): return target
            except OSError: return None
            time.sleep(0.0005)
        return None

    def collect(self):
        run = self.run
        for name, path in zip(("stdout", "stderr"), self.paths):
            with open(path, "rb") as f: setattr(run, name, f.read())
        for name in self.plan.case.files: run.files[name] = digest(os.path.join(self.cwd, name))


class Stress:
    """Runs cases one after another, in a folder of its own."""

    def __init__(self, work, sptrace, cases, seed):
        self.work, self.sptrace, self.cases, self.seed = work, sptrace, cases, seed
        self.runner = Runner(work, [], random.Random(seed), False)
        self.plain, self.spans, self.loads, self.hit_seen = {}, {}, [], False
        self.small = os.path.join(work, "small")
        os.makedirs(self.small, exist_ok=True)

    def expected(self, case):
        """What the case does untraced; None if it cannot be used here."""
        if case.name not in self.plain:
            run, again = self.runner.once(case, []), self.runner.once(case, [])
            usable = not (run.trouble or run.status == 127 or "missing" in run.files.values() or self.runner.differences(case, run, again))
            self.plain[case.name] = run if usable else None
            self.spans[case.name] = 2 * run.seconds + 0.1
        return self.plain[case.name]

    def one(self, plan):
        """What is wrong after a case; None if it could not be run."""
        self.hit_seen = False
        expected = self.expected(plan.case)
        if expected is None: return None
        if plan.cold: shutil.rmtree(os.path.join(self.work, "cold"), ignore_errors=True)
        is_small = plan.event == "disk full"
        if is_small and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={plan.disk_kib}k", "tmpfs", self.small], stderr=subprocess.DEVNULL).returncode: return None
        self.loads = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(2 * plan.load)]
        watcher = Watcher()
        try:
            folder = self.small if is_small else self.work
            instances = [Instance(self, plan, i, os.path.join(self.work, f"cwd{i or ''}"), os.path.join(folder, f"trace{i}")) for i in range(1 + (plan.event == "two sptrace"))]
            watcher.start()
            found = self.disturb(plan, instances[0])
            for instance in instances: found += self.await_end(instance)
            found += self.leftovers(LIMIT_S if plan.may_differ() else GRACE_S)
            for load in self.loads: load.kill(); load.wait()
            watcher.stop.set(); watcher.join()
            allowed_s = TRACED_S + plan.stop_s
            if watcher.longest_traced_s > allowed_s and plan.event != "sptrace under sptrace": found.append(f"TracerPid not 0 for {watcher.longest_traced_s:.1f} s (states {watcher.longest_states[-100:]})")
            for instance in instances:
                instance.run.wx = watcher.wx
                instance.collect()
                found += self.compare(instance, expected)
                found += self.look_at_trace(instance, expected)
            return found
        finally:
            for load in self.loads: load.kill(); load.wait()
            self.loads = []
            if is_small: subprocess.run(["umount", self.small], check=True)

    def disturb(self, plan, instance):
        """Lets happen what is planned. Gives what went wrong with that itself."""
        verb, _, whom = plan.event.partition(" ")
        if verb not in SIGNALS: return []
        deadline = instance.started + LIMIT_S
        if not plan.since_start or whom != "sptrace": instance.target = instance.find_target(deadline)
        self.sleep_until(time.monotonic() + plan.when * self.spans[plan.case.name], instance)
        pid = self.victim(plan, instance, whom)
        if pid is None or instance.process.poll() is not None: return []
        children = children_of(instance.process.pid)
        try: os.kill(pid, SIGNALS[verb])
        except ProcessLookupError: return []
        instance.run.interrupted = self.hit_seen = True
        if verb == "stop":
            time.sleep(plan.stop_s)
            try: os.kill(pid, signal.SIGCONT)
            except ProcessLookupError: pass
        elif plan.event == "kill sptrace":
            instance.process.wait()
            instance.killed = instance.process.returncode == -signal.SIGKILL
            instance.target = children[0] if children else None
        return []

    @staticmethod
    def sleep_until(moment, instance):
        while time.monotonic() < moment and instance.process.poll() is None: time.sleep(min(0.005, max(0, moment - time.monotonic())))

    @staticmethod
    def victim(plan, instance, whom):
        if whom == "sptrace": return instance.process.pid
        if instance.target is None or whom == "program": return instance.target
        children = descendants(instance.target)
        return children[int(plan.which * len(children))] if children else None

    def await_end(self, instance):
        """Waits for sptrace and, if that was killed, for what it left to us."""
        deadline = instance.started + LIMIT_S
        run = instance.run
        try: status = instance.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired: return [f"did not end within {LIMIT_S:.0f} s: {self.states()}"]
        run.seconds = time.monotonic() - instance.started
        if not instance.killed:
            run.status = status
            if not instance.plan.load and instance.plan.event in ("nothing", "disk full"): self.spans[instance.plan.case.name] = run.seconds
            return []
        ends = {}
        while time.monotonic() < deadline and self.others():
            try: pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError: break
            if pid: ends[pid] = os.waitstatus_to_exitcode(status)
            else: time.sleep(0.005)
        self.reap(ends)
        if self.others(): return [f"did not end within {LIMIT_S:.0f} s after sptrace was killed: {self.states()}"]
        run.status = ends.get(instance.target)  # without a target, what came to us may be a helper of sptrace
        return []

    def others(self):
        loads = {l.pid for l in self.loads}
        return [p for p in alive_descendants(os.getpid()) if p not in loads]

    @staticmethod
    def reap(ends):
        """Takes in the ended ones that are not ours by name."""
        for pid in children_of(os.getpid()):
            try: got, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError: continue
            if got: ends[got] = os.waitstatus_to_exitcode(status)

    def states(self):
        found = []
        for pid in self.others()[:6]:
            try:
                with open(f"/proc/{pid}/comm") as c, open(f"/proc/{pid}/wchan") as w, open(f"/proc/{pid}/status") as s:
                    status = s.read()
                    found.append(f"{c.read().strip()} {re.search('State:.(.)', status)[1]} {w.read()} tracer {re.search('TracerPid:.([0-9]+)', status)[1]}")
            except OSError: pass
        return "; ".join(found)

    def leftovers(self, grace_s):
        """Ends what is still there; a fault if it does not end by itself: at once, or if its parent was hit in time."""
        until = time.monotonic() + grace_s
        while self.others() and time.monotonic() < until: time.sleep(0.02)
        left, states = self.others(), self.states()
        for pid in left:
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: pass
        while self.others(): time.sleep(0.01)
        loads = {l.pid for l in self.loads}
        for pid in [p for p in children_of(os.getpid()) if p not in loads]:
            try: os.waitpid(pid, 0)
            except ChildProcessError: pass
        return [f"{len(left)} process(es) left behind: {states}"] if left else []

    def compare(self, instance, expected):
        """The program's own doing against the untraced run."""
        plan, run = instance.plan, instance.run
        if PANIC.search(run.stderr): return [f"panicked: {run.stderr[-300:]!r}"]
        if plan.event == "disk full" and run.status == 125 and run.stderr.startswith(b"sptrace: cannot record"): return []
        if plan.event == "disk full" or "--max-size" in plan.options or not plan.is_whole(): run.stderr = SAYS_EARLY.sub(b"", run.stderr)
        if instance.killed and run.status is None:
            if instance.target is None: return self.prefix(run, expected)  # killed before there was a program
            run.status = expected.status  # its end was seen by sptrace only
        if run.interrupted and plan.may_differ(): return self.hit(plan, run, expected)
        if plan.event == "sptrace under sptrace" and run.stderr.startswith(b"sptrace: cannot trace"): return []
        return self.runner.differences(plan.case, expected, run)

    def hit(self, plan, run, expected):
        """A program that got a signal."""
        verb, _, whom = plan.event.partition(" ")
        if whom == "child": return []  # what the others make of that is their own affair
        number = SIGNALS[verb]
        right = {expected.status, -number, 128 + number}
        if run.status not in right and not plan.handles(verb): return [f"status {run.status} after signal {int(number)}, stderr {run.stderr[-200:]!r}"]
        if run.status == expected.status and run.status >= 0: return self.runner.differences(plan.case, expected, run) if not plan.handles(verb) else []
        return self.prefix(run, expected)

    @staticmethod
    def prefix(run, expected):
        return [] if expected.stdout.startswith(run.stdout) else [f"stdout is no beginning of what it should be: {run.stdout[-100:]!r}"]

    def look_at_trace(self, instance, expected):
        """Every view of the trace."""
        plan, run = instance.plan, instance.run
        orderly = not instance.killed and plan.event not in ("disk full", "sptrace under sptrace") and plan.is_whole() and run.status not in (None, 125, 126, 127)
        if run.interrupted and plan.may_differ() and run.status is not None and run.status < 0 and not run.stdout and not os.path.exists(instance.trace): return []  # hit before its program began
        if not os.path.exists(instance.trace): return ["no trace file"] if orderly else []
        found, ended, events = [], None, 0
        for view in ("summary", "coverage", "tree"):
            status, out, err = self.report(view, instance.trace)
            if PANIC.search(err) or status in (101, None) or status < 0: found.append(f"report {view} panics or hangs: {status} {err[-300:]!r}")
            elif status == 0 and view == "tree": ended = out
            elif status == 0: events += sum(int(n.replace(b",", b"")) for n in re.findall(rb"(?m)^events +([0-9,]+) in", out))
            elif orderly: found.append(f"report {view} fails: {err[-300:]!r}")
            elif status != 1 or err.count(b"\n") != 1 or not err.startswith(b"sptrace: "): found.append(f"report {view} does not refuse in one line: {status} {err[-300:]!r}")
        if found or not orderly: return found
        if "--ring" in plan.options: return []  # may have dropped it
        ends = re.findall(rb"/\* process (?:exited with status|killed by signal) (\d+) \*/", ended)
        if (b"%d" % abs(run.status)) not in ends and (b"%d" % (run.status & 127)) not in ends: found.append(f"the trace does not say how the program ended: {ends}, status {run.status}")
        return found + self.holds_all(instance, events)

    def holds_all(self, instance, events):
        """A program that writes a line at each call of a function: the trace has as many calls as there are lines."""
        plan, run = instance.plan, instance.run
        if any(o in plan.options for o in ("-F", "--between", "-N", "-D", "-l", "drop", "--ring", "--max-size")) or plan.case.name.startswith("programs/sandbox"): return []
        if not plan.case.name.startswith("programs/counted"): return [] if events or not run.stdout else ["the trace holds no event"]
        _, out, err = self.report("functions", instance.trace, "--format", "csv", "-F", "f_line")
        calls, lines = sum(int(c) for c in re.findall(rb"(?m)^[^,]*,f_line,(\d+)", out)), run.stdout.count(b"\n")
        _, coverage, _ = self.report("coverage", instance.trace)
        lost = re.search(rb"([0-9,]+) +\S+ %   events dropped", coverage)
        if lost and lost[1] != b"0": return []
        return [] if calls >= lines else [f"the program wrote {lines} lines, the trace has {calls} calls"]

    def report(self, view, trace, *options):
        """Status, output and messages of a report; of a tree the lines about processes only."""
        pipe = subprocess.PIPE
        process = subprocess.Popen([self.sptrace, "report", view, "-i", trace, *options], stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, cwd=self.work)
        lines = subprocess.Popen(["grep", "-a", "/[*] process " if view == "tree" else ""], stdin=process.stdout, stdout=pipe)
        process.stdout.close()
        try:
            out = lines.communicate(timeout=LIMIT_S)[0]
            return process.wait(10), out, process.stderr.read()
        except subprocess.TimeoutExpired:
            for p in (process, lines): p.kill(); p.wait()
            return None, b"", b"no end"
        finally: process.stderr.close()


def worker(index, args, cases, work, results):
    """Every WORKERS-th case until the time is used."""
    become_subreaper()
    os.makedirs(work)
    stress = Stress(work, args.sptrace, cases, args.seed)
    until, number = time.monotonic() + args.seconds, index
    while args.case is not None or time.monotonic() < until:
        plan = Plan(args.seed, number if args.case is None else args.case, cases)
        started = time.monotonic()
        try: found = stress.one(plan)
        except Exception as e: found = [f"the harness failed: {e!r}"]
        if args.verbose or args.case is not None: print(f"{'FAIL' if found else 'skip' if found is None else 'ok  '} {plan.number}: {plan} [{time.monotonic() - started:.1f} s]", flush=True)
        if found: print(f"FAIL tests/stress.py --seed {args.seed} --case {plan.number}: {plan}: {'; '.join(found)}"[:1500], flush=True)
        results.put((plan.event, None if found is None else bool(found), plan.case.name, stress.hit_seen))
        if args.case is not None: break
        number += WORKERS
    results.put(None)


def run_all(args, cases, work):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [context.Process(target=worker, args=(i, args, cases, os.path.join(work, f"w{i}"), results)) for i in range(1 if args.case is not None else WORKERS)]
    for w in workers: w.start()
    done, failed, skipped, hits, open_workers = collections.Counter(), 0, set(), 0, len(workers)
    while open_workers:
        result = results.get()
        if result is None: open_workers -= 1
        elif result[1] is None: skipped.add(result[2])
        else:
            done[result[0]] += 1
            failed += result[1]
            hits += result[3]
    for w in workers: w.join()
    print("; ".join(f"{event} {n}" for event, n in done.most_common()) + f"; {hits} were hit in mid-run")
    if skipped: print(f"not usable here: {', '.join(sorted(skipped))}")
    print(f"{sum(done.values()) - failed} passed, {failed} failed")
    return 1 if failed or not done else 0


# A stand-in for sptrace: runs the program, keeps how it ended in the "trace", and shows that. SPOIL is put in at `run`.
STAND_IN = r"""#!/bin/sh
verb=$1; shift
if [ $verb = report ]; then
    view=$1; shift 2
    REPORT
    case $view in tree) cat "$1";; functions) echo "counted,f_line,CALLS";; *) echo "events     12 in 1 kB"; echo "counted 0 % events dropped";; esac
    exit 0
fi
while [ "$1" != -- ]; do [ "$1" != -o ] || trace=$2; shift; done
shift
BEFORE
MIDDLE
r=$?
[ $r -lt 128 ] && echo "/* process exited with status $r */" > "$trace" || echo "/* process killed by signal $((r - 128)) */" > "$trace"
AFTER
[ $r -lt 128 ] || { trap - TERM INT; kill -$((r - 128)) $$; }
exit $r
"""


def self_check(args, cases, work):
    """The stand-in passes each event; spoiled in one way, it is caught."""
    checks = [
        # what, event, program, its parts, is it right
        ("does nothing wrong", "nothing", "bash.pipes", {}, True),
        ("changes the exit status", "nothing", "bash.pipes", {"AFTER": "r=0"}, False),
        ("loses the last line", "nothing", "bash.pipes", {"MIDDLE": '"$@" > "$trace.out"; r=$?; head -n -1 "$trace.out"; (exit $r)'}, False),
        ("writes to stderr", "nothing", "bash.pipes", {"AFTER": "echo more >&2"}, False),
        ("panics", "nothing", "bash.pipes", {"AFTER": "echo thread main panicked >&2"}, False),
        ("spoils a file", "nothing", "sqlite3", {"AFTER": "echo >> db"}, False),
        ("leaves a process behind", "nothing", "bash.pipes", {"AFTER": "sleep 30 &"}, False),
        ("does not end", "nothing", "bash.pipes", {"AFTER": "sleep 30"}, False),
        ("writes no trace", "nothing", "bash.pipes", {"AFTER": 'rm "$trace"'}, False),
        ("does not say how the program ended", "nothing", "bash.pipes", {"AFTER": ': > "$trace"'}, False),
        ("cannot report", "nothing", "bash.pipes", {"REPORT": "echo sptrace: no >&2; exit 1"}, False),
        ("panics in a report", "kill sptrace", "programs/counted", {"BEFORE": 'touch "$trace"', "REPORT": "echo panicked at >&2; exit 101"}, False),
        ("refuses in two lines", "kill sptrace", "programs/counted", {"BEFORE": 'touch "$trace"', "REPORT": "echo sptrace: no >&2; echo no >&2; exit 1"}, False),
        ("may be killed", "kill sptrace", "programs/counted", {"BEFORE": 'touch "$trace"'}, True),
        ("takes the program along", "kill sptrace", "programs/counted", {"MIDDLE": 'setpriv --pdeathsig KILL "$@"'}, False),
        ("may be stopped", "stop sptrace", "programs/counted", {}, True),
        ("sees its program killed", "kill program", "programs/counted", {}, True),
        ("has lost calls", "kill program", "programs/counted", {"CALLS": "1"}, False),
        ("hides that it was killed", "kill program", "programs/counted", {"AFTER": "r=7"}, False),
        ("sees its program stopped", "stop program", "programs/counted", {}, True),
        ("may be there twice", "two sptrace", "bash.pipes", {}, True),
        ("cannot be there twice", "two sptrace", "bash.pipes", {"AFTER": f"mkdir {work}/only || exit 1; sleep 0.5; rmdir {work}/only"}, False),
        ("sees the disk full", "disk full", "bash.pipes", {"MIDDLE": 'trap "" PIPE; head -c 9000000 /dev/zero > "$trace" 2>/dev/null; "$@"'}, True),
        ("passes the full disk on", "disk full", "bash.pipes", {"MIDDLE": 'trap "" PIPE; head -c 9000000 /dev/zero > "$trace" && "$@"'}, False),
    ]
    become_subreaper()
    parts = {"REPORT": ":", "BEFORE": ":", "MIDDLE": '"$@"', "AFTER": ":", "CALLS": "999999"}
    bad = 0
    for index, (what, event, name, spoil, good) in enumerate(checks):
        folder = os.path.join(work, f"check{index}")
        os.makedirs(folder)
        script = STAND_IN
        for part, text in {**parts, **spoil}.items(): script = script.replace(part, text)
        with open(os.path.join(folder, "sptrace"), "w") as f: f.write(script)
        os.chmod(os.path.join(folder, "sptrace"), 0o755)
        plan = Plan(1, index, cases)
        plan.case, plan.event, plan.options = cases[next(n for n in sorted(cases) if n.startswith(name))], event, []
        plan.when, plan.since_start, plan.stop_s, plan.load, plan.cold, plan.disk_kib = 0.3, False, 0.3, False, False, 64
        if event == "disk full" and os.geteuid() != 0: continue
        found = Stress(folder, os.path.join(folder, "sptrace"), cases, 1).one(plan)
        right = found is not None and (not found) == good
        bad += not right
        print(f"{'ok  ' if right else 'FAIL'} a stand-in that {what}: {found[0] if found else 'could not be run' if found is None else 'no difference'}"[:200], flush=True)
    print(f"{len(checks) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="seconds", type=float, default=120, metavar="SECONDS", help="no case is begun later (120)")
    parser.add_argument("--seed", type=int, help="(else one of the clock's)")
    parser.add_argument("--case", type=int, metavar="N", help="case N of the seed alone")
    parser.add_argument("--only", action="append", metavar="GLOB", help="draw only from programs whose name matches (repeatable)")
    parser.add_argument("--event", action="append", metavar="GLOB", help="let only events happen whose name matches (repeatable)")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    parser.add_argument("--sptrace", metavar="PATH")
    parser.add_argument("--programs", metavar="DIR", help="built programs (else they are built)")
    parser.add_argument("--self-check", action="store_true")
    args = parser.parse_args()
    if args.seed is None: args.seed = int(time.time())
    # As in a terminal: what a script starts in the background has SIGINT ignored, and an interrupt would not be one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    global EVENTS, LIMIT_S
    if args.event: EVENTS = {e: n for e, n in EVENTS.items() if any(fnmatch.fnmatch(e, g) for g in args.event)}
    work = tempfile.mkdtemp(prefix="sptrace-stress-", dir="/var/tmp")
    try:
        programs = os.path.abspath(args.programs or os.path.join(work, "programs"))
        if args.self_check:
            LIMIT_S = 8
            os.makedirs(programs, exist_ok=True)
            subprocess.run(["gcc", "-O2", "-pthread", os.path.join(HERE, "programs/counted/counted.c"), "-o", os.path.join(programs, "counted.O2")], check=True)
        elif not args.programs: subprocess.run([os.path.join(HERE, "programs", "build.sh"), programs], check=True)
        cases = cases_of(programs, make_fixtures(os.path.join(work, "fixtures")))
        if args.self_check: return self_check(args, cases, work)
        if args.only: cases = {n: c for n, c in cases.items() if any(fnmatch.fnmatch(n, g) for g in args.only)}
        args.sptrace = find_sptrace(args.sptrace)
        if not cases or not EVENTS: sys.exit("stress: nothing to draw from")
        print(f"seed {args.seed}, {len(cases)} programs", flush=True)
        return run_all(args, cases, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
