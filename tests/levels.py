#!/usr/bin/env python3
"""Calls that are counted, all of them or those of some functions at times, together with everything else that a recording can do.

usage: tests/levels.py [--sptrace PATH] [--programs FOLDER] [--only GLOB]

Given test programs (tests/programs/build.sh). A program makes rounds of calls when it is told to, and says how often it has called
what; so it is known to the call what a recording had to see that began and ended in between. TABLE says of each option beside
--count, --hot-limit and --budget whether it works, and how that shows in the trace, or is refused, and with which words. MATRIX has
what says when and where is recorded, which works in every mode, also those of --stamps and --return-points. Running programs are attached to with each
of them, again and again, and must be as before afterwards. Exit status: 1 if anything failed.
"""
import argparse, collections, csv, io, itertools, json, os, signal, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from case import Cases, Failed, Skip, find_sptrace, run_cases
from harness.process import code_of, differing_bytes, maps, status_field

case = Cases()
MODES = {"--count": ["--count"], "--hot-limit": ["--hot-limit", "2k"], "--budget": ["--budget", "1%"]}
POINTS = {"points": ["--return-points"]}
EVERY = {**MODES, **POINTS, "full": ["--stamps", "full", "--return-points=never"], "auto": ["--stamps", "auto"], "none": ["--stamps", "none"], "--short-limit": ["--hot-limit", "2k", "--short-limit", "100us"]}
NAMES = ("direct", "pointed", "tailed", "deep", "compared", "one_round")
KINDS = ("O0", "O2", "static")
ROUNDS = 50_000


class Program:
    """The program, alone or under a command."""
    def __init__(self, bench, kind, before=()):
        path = f"{bench.programs}/rounds.{kind}"
        if not os.path.exists(path): raise Skip(f"no {path}")
        self.calls = dict.fromkeys(NAMES, 0)
        self.process = subprocess.Popen([*before, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rounds(self, count):
        """Makes so many rounds; gives how often each function was called in them."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line: raise Failed(f"it has ended: {self.process.communicate()[1]}")
        before, self.calls = self.calls, {name: int(calls) for name, calls in (word.split("=") for word in line.split())}
        return {name: self.calls[name] - before[name] for name in NAMES}

    def end(self):
        _, error = self.process.communicate(timeout=60)
        if self.process.returncode: raise Failed(f"status {self.process.returncode}: {error}")
        return error


class Bench:
    def __init__(self, options, folder):
        self.sptrace, self.programs, self.folder, self.numbers = options.sptrace, options.programs, folder, itertools.count(1)

    def trace(self):
        return f"{self.folder}/{next(self.numbers)}.data"

    def report(self, trace, *words):
        done = subprocess.run([self.sptrace, "report", *words, "-i", trace], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode: raise Failed(f"report {words}: {done.stderr}")
        return done.stdout

    def rows(self, trace, *words): return list(csv.DictReader(io.StringIO(self.report(trace, *words, "--format", "csv"))))

    def counts(self, trace):
        """function: (calls, of which untimed), of the program itself."""
        rows = self.rows(trace, "functions", "--columns", "calls,untimed,module,function")
        found = collections.defaultdict(lambda: (0, 0))
        found.update({row["function"]: (int(row["calls"]), int(row["untimed_calls"])) for row in rows if row["module"].startswith("rounds")})
        return found


def exactly(bench, trace, wanted, what):
    found = bench.counts(trace)
    for name, calls in wanted.items():
        if found[name][0] != calls: raise Failed(f"{what}: calls of {name}: not {calls} but {found[name]}")
    return found


def is_whole(bench, mode, trace, found):
    """Nothing is lost; and what the mode promises of times."""
    lost = {row["key"]: row["count"] for row in bench.rows(trace, "coverage") if row["section"] == "loss" and row["count"] != "0"}
    if lost: raise Failed(f"{mode}: lost {lost}")
    if mode == "--count" and any(calls != untimed for calls, untimed in found.values()): raise Failed(f"a call has a time: {dict(found)}")
    if mode == "full" and any(untimed for name, (_, untimed) in found.items() if name in NAMES): raise Failed(f"{mode}: a call has none: {dict(found)}")
    # How soon functions are hot depends on the machine.
    if mode in ("--hot-limit", "--short-limit") and found["direct"][1] == 0: raise Failed(f"{mode}: nothing was counted: {dict(found)}")


def run(bench, options, act=lambda program: program.rounds(ROUNDS), kind="O2"):
    """Runs the program under options; gives what `act` gives, and the trace."""
    trace = bench.trace()
    program = Program(bench, kind, [bench.sptrace, "run", "-q", "-o", trace, *options, "--"])
    result = act(program)
    program.end()
    return result, trace


def whole(bench, mode, options):
    wanted, trace = run(bench, [*EVERY[mode], *options])
    is_whole(bench, mode, trace, exactly(bench, trace, wanted, f"{mode} {options}"))


def inside(bench, mode, options):
    """All that happens in rounds, and nothing of what is around them, also if a thread is outside of them between two."""
    def act(program):
        wanted = collections.Counter(program.rounds(ROUNDS))
        for _ in range(20): wanted.update(program.rounds(2))
        return wanted
    for kind in KINDS:
        wanted, trace = run(bench, [*EVERY[mode], *options], act, kind)
        found = exactly(bench, trace, wanted, f"{kind} {mode} {options}")
        is_whole(bench, mode, trace, found)
        around = {name: found[name] for name in ("main", "second", "rounds") if found[name][0]}
        if around: raise Failed(f"{kind} {mode} {options}: outside: {around}")
        callers = {row["caller"]: int(row["calls"]) for row in bench.rows(trace, "callers", "direct")}
        if callers != {"one_round": wanted["direct"]}: raise Failed(f"{kind} {mode} {options}: direct is called by {callers}, {wanted['direct']} times")


def part(bench, mode, options):
    """A function that others record, too, begins the recording: its calls, and nothing else."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    found = exactly(bench, trace, {"deep": wanted["deep"]}, f"{mode} {options}")
    others = {name: calls for name, (calls, _) in found.items() if calls and name != "deep"}
    if others: raise Failed(f"{mode} {options}: others: {others}")


def timed(bench, mode, options):
    """A stretch of time in which rounds are made, the same before and after it."""
    def act(program):
        end, made = time.monotonic() + 2.5, collections.Counter()
        while time.monotonic() < end: made.update(program.rounds(200))
        return made
    wanted, trace = run(bench, [*EVERY[mode], *options], act)
    found = bench.counts(trace)
    rounds = found["one_round"][0]
    if not 0 < rounds < 0.9 * wanted["one_round"]: raise Failed(f"{mode} {options}: {rounds} rounds of {wanted['one_round']}")
    for name in NAMES:
        if found[name][0] * wanted["one_round"] != rounds * wanted[name]: raise Failed(f"{mode} {options}: {name}: {dict(found)} of {dict(wanted)}")


def level(bench, mode, options):
    """Calls of rounds themselves, and none that is deeper."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    wanted.update(compared=0, deep=wanted["one_round"])
    del wanted["tailed"] # goes on where it is called
    exactly(bench, trace, wanted, f"{mode} {options}")


def halted(bench, mode, options):
    """The recording ends at a call, which is noticed when a part of the stream is full; the program goes on."""
    wanted, trace = run(bench, [*EVERY[mode], *options], lambda program: program.rounds(10 * ROUNDS))
    found = bench.counts(trace)
    if not 1000 <= found["direct"][0] < wanted["direct"]: raise Failed(f"{mode} {options}: {dict(found)}")


def begun_by_a_call(bench, mode, options):
    def act(program):
        time.sleep(1)  # it is prepared meanwhile
        return program.rounds(ROUNDS)
    wanted, trace = run(bench, [*EVERY[mode], *options], act)
    # Of the first call in each thread the beginning is not recorded, but that it is open.
    calls = wanted.pop("one_round")
    found = exactly(bench, trace, wanted, f"{mode} {options}")
    if not calls - 2 <= found["one_round"][0] <= calls: raise Failed(f"{mode} {options}: {calls} rounds, {dict(found)}")


def own(bench, mode, options):
    """What the C library calls is not seen where that is left out, but for what a thread does."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    del wanted["compared"]
    if exactly(bench, trace, wanted, f"{mode} {options}")["compared"][0]: raise Failed("compared is recorded")


def without(bench, mode, options):
    wanted, trace = run(bench, [*EVERY[mode], *options])
    del wanted["direct"]
    if exactly(bench, trace, wanted, f"{mode} {options}")["direct"][0]: raise Failed("direct is recorded")


def shallow(bench, mode, options):
    """Nothing is seen that is only reached below the depth."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    found = bench.counts(trace)
    if not found["main"][0] and not found["second"][0]: raise Failed(f"nothing is seen: {dict(found)}")
    if found["direct"][0] or found["deep"][0]: raise Failed(f"direct is seen, which is too deep: {dict(found)}")


def ringed(bench, mode, options):
    """What is counted is whole whatever the ring drops; what is recorded may be dropped."""
    if mode == "--count": return whole(bench, mode, options)
    wanted, trace = run(bench, [*EVERY[mode], *options], lambda program: program.rounds(10 * ROUNDS))
    found, hot = bench.counts(trace), 0
    for name, calls in wanted.items():
        if found[name][0] > calls: raise Failed(f"more calls of {name} than there were: {found[name]}, {calls}")
        hot += found[name][1]
    if mode in ("--hot-limit", "--short-limit") and hot < sum(wanted.values()) / 2: raise Failed(f"counts were dropped: {dict(found)} of {wanted}")


def dumped(bench, mode, options):
    """The dump tells of all calls up to it, also of those that threads have counted that run on."""
    trace = bench.trace()
    program = Program(bench, "O2", [bench.sptrace, "run", "-q", "-o", trace, *EVERY[mode], *options, "--"])
    wanted = program.rounds(ROUNDS)
    time.sleep(0.3)
    program.process.send_signal(signal.SIGUSR1)
    for _ in range(100):
        if os.path.exists(trace): break
        time.sleep(0.05)
    else: raise Failed("no dump was written")
    time.sleep(0.1)
    is_whole(bench, mode, trace, exactly(bench, trace, wanted, f"{mode} {options}"))
    program.rounds(10)
    program.end()


def begun(bench, mode, options):
    """From a signal on, up to the stop if there is one."""
    def act(program):
        program.rounds(ROUNDS)
        time.sleep(1)  # it is prepared meanwhile
        program.process.send_signal(signal.SIGUSR1)
        time.sleep(0.7)
        wanted = program.rounds(ROUNDS)
        if "signal:USR2" in options:
            program.process.send_signal(signal.SIGUSR2)
            time.sleep(0.7)
            program.rounds(ROUNDS)
        return wanted
    wanted, trace = run(bench, [*EVERY[mode], *options], act)
    exactly(bench, trace, wanted, f"{mode} {options}")


def begun_twice(bench, mode, options):
    def act(program):
        wanted = collections.Counter()
        for _ in range(2):
            program.rounds(ROUNDS)
            time.sleep(1)
            program.process.send_signal(signal.SIGUSR1)
            time.sleep(0.7)
            wanted.update(program.rounds(ROUNDS))
            program.process.send_signal(signal.SIGUSR2)
            time.sleep(0.7)
        return wanted
    wanted, trace = run(bench, [*EVERY[mode], *options], act)
    exactly(bench, trace, wanted, f"{mode} {options}")


def stopped(bench, mode, options):
    """What comes after the stop is not in the trace."""
    def act(program):
        wanted = program.rounds(ROUNDS)
        program.process.send_signal(signal.SIGUSR2)
        time.sleep(0.7)
        program.rounds(ROUNDS)
        return wanted
    wanted, trace = run(bench, [*EVERY[mode], *options], act)
    exactly(bench, trace, wanted, f"{mode} {options}")


def small(bench, mode, options):
    wanted, trace = run(bench, [*EVERY[mode], *options])
    found = bench.counts(trace)
    for name, calls in wanted.items():
        if found[name][0] > calls: raise Failed(f"more calls of {name} than there were: {found[name]}, {calls}")
    if os.path.getsize(trace) > 3 << 20: raise Failed(f"{os.path.getsize(trace)} bytes")


def kept(bench, mode, options):
    """A function whose values are recorded, or that has a payload, has all of its calls; others may be counted."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    found = exactly(bench, trace, wanted, f"{mode} {options}")
    if found["direct"][1]: raise Failed(f"direct was counted: {dict(found)}")
    if mode == "--hot-limit" and found["deep"][1] == 0: raise Failed(f"nothing was counted: {dict(found)}")


def added_up(bench, mode, options):
    """A payload without a record runs at each call of its function."""
    wanted, trace = run(bench, [*EVERY[mode], *options])
    calls, wanted["direct"] = wanted["direct"], 0
    exactly(bench, trace, wanted, f"{mode} {options}")
    said = bench.report(trace, "script", "--eval", options[1])
    if f"{calls:,}" not in said and str(calls) not in said: raise Failed(f"{mode}: the payload has not run at {calls} calls: {said}")


def chosen(bench, mode, options):
    """What the script leaves out is neither recorded nor counted, and all others are as ever."""
    without(bench, mode, options)


def refused(words):
    def check(bench, mode, options):
        done = subprocess.run([bench.sptrace, "run", *EVERY[mode], *options, "-o", bench.trace(), "--", "/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        said = " ".join(done.stderr.split())
        if done.returncode != 2 or f"{mode} cannot be used with" not in said or words not in said: raise Failed(f"{mode} {options}: status {done.returncode}: {said}")
    return check


ENDS = "use call:, time:, signal: or ctl:"
FOLLOWED, SYSTEM_CALLS, VALUES, TOP, SCRIPT, ALONE = "use another event", "record", "values", "report functions", "script", "no functions are recorded"
# options beside: what they do with --count, and with the two limits; None: there is another row for that.
TABLE = [
    ([], whole, whole),
    (["-N", "direct"], without, without),
    (["-l", "rounds*"], own, own),
    (["-D", "2"], shallow, shallow),
    (["--max-size", "1M"], whole, small),
    (["--buffer", "256K"], whole, whole),
    (["--start-on", "slow:direct>1s"], refused(FOLLOWED), refused(FOLLOWED)),
    (["--start-on", "return:direct", "--stop-on", "time:1s"], refused(FOLLOWED), refused(FOLLOWED)),
    (["--stop-on", "call:direct#1000"], halted, None),
    (["--stop-on", "return:direct"], refused(ENDS), None),
    (["--ring", "4M", "--dump-on", "slow:direct>1s"], refused(ENDS), None),
    (["--shadow", "--start-on", "time:1s"], refused(FOLLOWED), refused(FOLLOWED)),
    (["--syscalls"], refused(SYSTEM_CALLS), whole),
    (["--syscalls-only"], refused(SYSTEM_CALLS), refused(ALONE)),
    (["-c"], refused(SYSTEM_CALLS), refused(ALONE)),
    (["--live"], refused(SYSTEM_CALLS), refused(ALONE)),
    (["-A", "direct@arg1"], refused(VALUES), kept),
    (["-R", "direct@retval"], refused(VALUES), kept),
    (["--top"], refused(TOP), refused(TOP)),
    (["--eval", 'let n = count("n", []); at("direct").on_enter(|c| n.add([], 1))'], refused(SCRIPT), added_up),
    (["--eval", 'propagate(|f| if f.name == "direct" { skip })'], chosen, chosen),
]


# What says when and where is recorded, in every mode.
MATRIX = [
    (["-F", "one_round"], inside),
    (["-F", "deep"], part),
    (["-F", "one_round", "-D", "1"], level),
    (["--between", "one_round", "start", "exit"], inside),
    (["--between", "one_round", "time:500ms", "time:700ms"], timed),
    (["--ring", "2M"], ringed),
    (["--ring", "64M", "--dump-on", "signal:USR1"], dumped),
    (["--ring", "64M", "--dump-on", "signal:USR1", "-F", "one_round"], dumped),
    (["--start-on", "signal:USR1"], begun),
    (["--start-on", "signal:USR1", "-F", "one_round"], begun),
    (["--start-on", "call:one_round"], begun_by_a_call),
    (["--start-on", "signal:USR1", "--stop-on", "signal:USR2"], begun),
    (["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "2"], begun_twice),
    (["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "2", "-F", "one_round"], begun_twice),
    (["--stop-on", "signal:USR2"], stopped),
    (["--stop-on", "signal:USR2", "-F", "one_round"], stopped),
]
# Others have these in TABLE.
BESIDE_POINTS = [(["-D", "2"], shallow), (["-l", "rounds*"], own)]
# Of a program that runs already.
ATTACHED = [[], ["-F", "one_round"], ["--between", "one_round", "start", "exit"], ["-D", "50"], ["--ring", "64M"], ["-F", "one_round", "--ring", "64M"]]


def of_the_table(mode):
    failed = []
    def check(bench):
        for options, of_count, of_limit in TABLE:
            act = of_count if mode == "--count" else of_limit
            if act is None: continue
            try: act(bench, mode, options)
            except Failed as error: failed.append(f"{' '.join(options) or 'alone'}: {error}")
        if failed: raise Failed("\n".join(failed))
    return check


@case
def when_and_where_is_recorded_in_every_mode(bench):
    all_of_it = [(mode, options, act) for mode in EVERY for options, act in MATRIX + (BESIDE_POINTS if mode == "points" else [])]
    def failure(one):
        mode, options, act = one
        try: return act(bench, mode, options) and None
        except Failed as error: return f"{mode} {' '.join(options)}: {error}"
    # They wait more than they compute.
    with ThreadPoolExecutor(4) as pool: failed = [said for said in pool.map(failure, all_of_it) if said]
    if failed: raise Failed("\n".join(failed))
    return f"{len(EVERY)} x {len(MATRIX)}"


@case
def a_root_has_its_end_although_another_thread_patches_its_caller_meanwhile(bench):
    """Of ten runs two had one that had not: its caller's text was ours when it was looked at, and no call stood there."""
    for _ in range(10):
        wanted, trace = run(bench, [*EVERY["auto"], "-F", "one_round", "-D", "1"])
        row = next(row for row in bench.rows(trace, "functions") if row["function"] == "one_round")
        ended = int(row["timed_calls"]) + int(row["estimated_calls"] or 0)
        if [int(row["calls"]), ended] != 2 * [wanted["one_round"]]: raise Failed(f"{wanted['one_round']} rounds: {row}")


@case
def a_running_program_in_every_mode(bench):
    failed, program = [], Program(bench, "O2")
    program.rounds(10)
    code = code_of(program.process.pid)
    for mode, words in EVERY.items():
        for options in ATTACHED:
            try:
                wanted, trace = attached(bench, program, [*words, *options])
                is_whole(bench, mode, trace, exactly(bench, trace, wanted, f"attach {mode} {options}"))
                is_as_before(program.process.pid, code)
            except Failed as error: failed.append(f"{mode} {' '.join(options)}: {error}")
    program.end()
    if failed: raise Failed("\n".join(failed))
    return f"{len(EVERY)} x {len(ATTACHED)}"


@case
def count_beside_everything_else(bench): of_the_table("--count")(bench)


@case
def hot_limit_beside_everything_else(bench): of_the_table("--hot-limit")(bench)


@case
def budget_beside_everything_else(bench): of_the_table("--budget")(bench)


@case
def levels_that_a_script_says_hold_inside_of_functions(bench):
    for options in (["-F", "one_round"], ["--between", "one_round", "start", "exit"]):
        for level in ("count", "off"):
            wanted, trace = run(bench, ["--eval", f'level("/^(direct|deep)$/", "{level}")', *options])
            found = exactly(bench, trace, wanted, f"{options} {level}")
            # Some calls come before it is known that there are such functions.
            if min(found[name][1] / found[name][0] for name in ("direct", "deep")) < 0.5 or found["pointed"][1]: raise Failed(f"{options} {level}: {dict(found)}")


def attached(bench, program, options, rounds=ROUNDS):
    """Attaches, makes rounds, detaches; gives what was called meanwhile, and the trace."""
    pid, trace = program.process.pid, bench.trace()
    tracer = subprocess.Popen([bench.sptrace, "attach", "-p", str(pid), "-o", trace, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while (line := tracer.stderr.readline()) and "attached to" not in line: pass
    if not line: raise Failed(f"{options}: not attached")
    wanted = program.rounds(rounds)
    tracer.send_signal(signal.SIGINT)
    said = tracer.communicate(timeout=60)[1]
    if tracer.returncode: raise Failed(f"{options}: status {tracer.returncode}: {said}")
    return wanted, trace


def is_as_before(pid, code):
    changed = differing_bytes(pid, code)
    if changed: raise Failed(f"{changed} bytes of its code are not as they were")
    if status_field(pid, "TracerPid") != "0": raise Failed("somebody traces it")
    left = [m for m in maps(pid) if "memfd:sptrace" in m[-1]]
    if left: raise Failed(f"left in it: {left}")


@case
def a_running_program_is_counted_to_the_call_and_is_as_before_afterwards(bench):
    for kind in KINDS:
        program = Program(bench, kind)
        program.rounds(10)
        code = code_of(program.process.pid)
        # In any order: what one leaves behind the next takes up again.
        for mode in [*MODES, "--count", "--hot-limit", None, "--count", "--budget", None]:
            options = MODES.get(mode, EVERY["full"])
            wanted, trace = attached(bench, program, options)
            found = exactly(bench, trace, wanted, f"{kind}: attach {options}")
            is_as_before(program.process.pid, code)
            if mode == "--count" and any(calls != untimed for calls, untimed in found.values()): raise Failed(f"{kind}: a call has a time: {dict(found)}")
            if mode == "--hot-limit" and found["direct"][1] == 0: raise Failed(f"{kind}: nothing was counted: {dict(found)}")
            if mode is None and found["direct"][1]: raise Failed(f"{kind}: a call was counted")
            program.rounds(1000)
        program.end()


@case
def functions_are_counted_that_a_budget_cannot_pay_for_and_recorded_again_in_quieter_times(bench):
    def act(program):
        wanted = collections.Counter(program.rounds(1_500_000))
        for _ in range(60):
            wanted.update(program.rounds(2))
            time.sleep(0.05)
        return wanted
    wanted, trace = run(bench, ["--budget", "10%"], act)
    found = exactly(bench, trace, wanted, "--budget 10%")
    if found["direct"][1] < 0.9 * found["direct"][0]: raise Failed(f"most calls were recorded: {dict(found)}")
    if found["one_round"][0] != wanted["one_round"]: raise Failed(f"{dict(found)}")
    levels = bench.rows(trace, "levels")
    if not any(row["function"] == "direct" and row["to_ns"] for row in levels): raise Failed(f"direct was counted to the end: {levels}")
    for row in levels:
        if row["to_ns"] and int(row["from_ns"]) > int(row["to_ns"]): raise Failed(f"{row}")
    # Not to and fro: as quiet as it is, each function comes back once, or twice where the machine is busy.
    often = collections.Counter(row["function"] for row in levels)
    if max(often.values()) > 6: raise Failed(f"to and fro: {often}")
    summary = bench.report(trace)
    if "budget     10.0 % of the program's CPU time; " not in summary: raise Failed(summary)
    if not bench.report(trace, "levels").startswith("budget: 10.0 % of"): raise Failed("report levels does not say what was spent")
    rows = {row["key"]: int(row["count"]) for row in bench.rows(trace, "coverage") if row["section"] == "budget"}
    spent = rows.get("spent in steady state") or rows.get("spent in its start")  # on a busy machine there is little more
    if rows["asked for"] != 100_000 or not spent: raise Failed(f"{rows}")


@case
def a_large_budget_leaves_a_calm_program_alone(bench):
    def act(program):
        for _ in range(20):
            program.rounds(20)
            time.sleep(0.05)
        return dict(program.calls)
    wanted, trace = run(bench, ["--budget", "100%"], act)
    exactly(bench, trace, wanted, "--budget 100%")
    if any(int(row["counted_calls"]) > 100_000 for row in bench.rows(trace, "levels")): raise Failed("a calm function was counted for long")


@case
def a_budget_that_is_none_is_refused(bench):
    for words in (["--budget", "0"], ["--budget", "101%"], ["--budget", "much"], ["--budget", "5%", "--hot-limit", "1k"], ["--budget", "5%", "--count"]):
        done = subprocess.run([bench.sptrace, "run", *words, "--", "/bin/true"], capture_output=True, text=True, timeout=20)
        if done.returncode != 2: raise Failed(f"{words}: status {done.returncode}: {done.stderr}")


@case
def values_are_a_level_that_is_switched_while_the_program_runs(bench):
    """Two threads, calls of every kind; those of the rounds that bid it may be of either level."""
    names = ("direct", "pointed", "tailed", "deep", "compared")
    # Of an order of 4 or 6 rounds each thread makes 2 or 3.
    script = 'values("*@arg1/i"); at("rounds").on_enter(|c| { if c.arg1 == 2 { c.level("{%s}", "record") } if c.arg1 == 3 { c.level("{%s}", "values") } })'
    script = script.replace("{%s}", "/^(" + "|".join(names) + ")$/")
    def act(program):
        phases = []
        for bid, wait in ((0, 0), (4, 0.4), (6, 0.4)):
            between = program.rounds(bid) if bid else dict.fromkeys(NAMES, 0)
            time.sleep(wait)
            phases.append((between, program.rounds(4000)))
        return phases
    for kind in KINDS:
        phases, trace = run(bench, ["--eval", script], act, kind)
        found = collections.Counter()
        for row in map(json.loads, bench.report(trace, "export", "jsonl").splitlines()):
            found[row.get("function"), bool(row.get("call"))] += 1
        for name in names:
            between = sum(phase[0][name] for phase in phases)
            first, plain, last = (phase[1][name] for phase in phases)
            have, lack = found[name, True], found[name, False]
            if have + lack != first + plain + last + between or not 0 <= lack - plain <= between:
                raise Failed(f"{kind}: {name}: {have} with values and {lack} without, of {first}, {plain} without, {last}, and {between} of either")
        levels = [row for row in bench.rows(trace, "levels") if row["level"] == "record"]
        if sorted(row["function"] for row in levels) != sorted(names) or not all(row["to_ns"] for row in levels): raise Failed(f"{kind}: {levels}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sptrace")
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.sptrace = find_sptrace(options.sptrace)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
