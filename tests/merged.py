#!/usr/bin/env python3
"""Both sides in one trace: `sptrace run -K` and `attach -K` in guests with kernels of Debian's.

usage: tests/merged.py [--quick] [--sptrace PATH] [--kernel VERSION]... [--only GLOB]... [--list] [--keep FOLDER]

Given: a built sptrace, cc, and what tests/vm/run needs; without one of these all is skipped, in one line. Gives: one line a case
and kernel, then `N passed, N failed` alone on the last line; status 1 if anything failed. Each kernel is booted once, and
tests/vm/merged.sh records there what is looked at here. --quick: one kernel, and what takes longest is left out.
Must not know: how sptrace works.
"""
import argparse, collections, csv, io, os, re, shutil, subprocess, sys, tempfile

from guest import KERNELS, Guest
from harness.case import Cases, Skip, find_sptrace, run_cases

HERE = os.path.dirname(os.path.abspath(__file__))
OF_KERNEL = ("[kernel system calls]", "[kernel]", "[interrupts]", "[scheduler]", "[faults]", "[signals]")
SLOW = {"lost_events_are_counted", "each_late_frame_has_its_cause", "the_report_names_who_waits_for_whom_in_a_pipeline", "a_running_process_is_seen_from_both_sides"}
case = Cases()


def stamps(g, name):
    """Ticks for a time in nanoseconds since the trace's start."""
    hz, start = g.clock(name)
    return lambda ns: start + ns * hz / 1e9, hz / 1e8


def waits(g, name, way, **wanted):
    rows = csv.DictReader(io.StringIO(g.report(name, "waits", "--format", "csv")))
    return [r for r in rows if r["what"] == way and all(re.fullmatch(v, r[k]) for k, v in wanted.items())]


def nested(calls):
    """Of each call: those around it, the innermost last."""
    open_, around = collections.defaultdict(list), []
    for c in calls:
        stack = open_[c["tid"]]
        del stack[c["depth"]:]
        around.append(list(stack))
        stack.append(c)
    return around


def in_order(g, name): return sorted(g.calls(name), key=lambda c: (c["start_ns"], c["depth"]))


@case
def what_the_kernel_does_nests_in_the_function_that_asked_for_it(g):
    found = 0
    for name, functions in (("sides", True), ("syscalls", False)):
        g.recorded(name)
        in_ticks, slack = stamps(g, name)
        calls = in_order(g, name)
        around = nested(calls)
        pids = {(c["pid"], c["tid"]) for c in calls}
        assert len(pids) == 1, pids
        lines = [line.split() for line in g.read(f"{name}.out").splitlines()]
        assert len(lines) == 240
        of_calls = [(c, a) for c, a in zip(calls, around) if c["module"] == "[kernel system calls]"]
        for function, what, before, after in lines:
            inside = [(c, a) for c, a in of_calls if c["duration_ns"] is not None and int(before) - slack <= in_ticks(c["start_ns"]) and in_ticks(c["start_ns"] + c["duration_ns"]) <= int(after) + slack]
            own = [(c, a) for c, a in inside if c["function"] == what]
            # Handlers of interrupts make no system calls; sptrace's own are left out.
            assert [c["function"] for c, _ in inside] == [what], (name, function, [c["function"] for c, _ in inside])
            assert any(a["function"] == function for a in own[0][1]), (function, own)
            if name == "syscalls": assert own[0][1][-1]["module"] == "[system calls]" and own[0][1][-1]["function"] == what, own[0][1][-1]
            found += 1
        if functions:
            roots = [(c, a) for c, a in zip(calls, around) if c["module"] == "[kernel]" and c["function"].startswith("__x64_sys_")]
            assert len(roots) > 240 and all(a[-1]["module"] == "[kernel system calls]" for _, a in roots), len(roots)
            reads = [a for c, a in zip(calls, around) if c["function"] == "vfs_read" and any(x["function"].startswith("f_read") for x in a)]
            assert len(reads) == 80 and all([x["function"] for x in a[-3:]] == ["read", "__x64_sys_read", "ksys_read"] for a in reads), len(reads)
    return f"{found} system calls"


@case
def all_views_agree_on_both_sides(g):
    for name in ("sides", "syscalls"):
        rows = list(csv.DictReader(io.StringIO(g.report(name, "functions", "--format", "csv"))))
        by_view = collections.Counter({(r["module"], r["function"]): int(r["calls"]) for r in rows if int(r["calls"])})
        exported = collections.Counter((c["module"].rsplit("/", 1)[-1], c["function"]) for c in g.calls(name))
        of_kernel = lambda counts: {k: n for k, n in counts.items() if k[0] in OF_KERNEL}
        assert of_kernel(by_view) == of_kernel(exported) and sum(of_kernel(by_view).values()) > 300, (of_kernel(by_view), of_kernel(exported))
        rows = csv.DictReader(io.StringIO(g.report(name, "export", "csv")))
        assert collections.Counter(r["module"] for r in rows if r["module"] in OF_KERNEL) == collections.Counter(m for m, _ in exported.elements() if m in OF_KERNEL)
        # A function's time and what the kernel took of it do not exceed it.
        calls = in_order(g, name)
        for c, around in zip(calls, nested(calls)):
            if around and None not in (c["duration_ns"], around[-1]["duration_ns"]): assert c["duration_ns"] <= around[-1]["duration_ns"] + 1, (c, around[-1])


@case
def values_blocks_and_privileges_are_there_as_in_a_recording_of_the_kernel_alone(g):
    g.recorded("values")
    tree = g.report("values", "tree")
    # 40 writes of 64 bytes to /dev/null and of one byte to a pipe, in functions of their own.
    writes = collections.Counter(re.findall(r"vfs_write\((\d+)\).*? = (-?\d+)", re.sub(r"\} = (-?\d+) /\* (.*) \*/", r"\2 = \1", tree)))
    assert writes["64", "64"] == writes["1", "1"] == 40, writes.most_common(4)
    g.recorded("blocks")
    assert re.search(r"blocks of vfs_read: .* of .* hooks accepted", g.said("blocks")), g.said("blocks")
    calls = in_order(g, "blocks")
    reads = [[x["function"] for x in a] for c, a in zip(calls, nested(calls)) if c["function"] == "vfs_read" and any(x["function"].startswith("f_read") for x in a)]
    assert len(reads) == 80 and all(a[-1] == "read" for a in reads), (len(reads), reads[:1])
    inside = {c["function"] for c in calls if c["caller"] == "vfs_read" and c["module"] == "[kernel]"}
    assert inside and all(name.startswith("vfs_read+") for name in inside), inside
    g.recorded("privileges")
    calls = in_order(g, "privileges")
    changes = [(a[-1]["function"], c["function"], [x["function"] for x in a]) for c, a in zip(calls, nested(calls)) if c["module"] == "[privileges]"]
    assert [call for call, *_ in changes] == ["setresgid", "setresuid", "setresuid", "setgid", "setuid", "unshare"], changes
    assert changes[2][1].startswith("ESCALATION: euid 1000 -> 0") and all("main" in a for *_, a in changes), changes
    return f"{len(reads)} reads, {len(changes)} changes"


@case
def a_parent_waits_in_the_kernel_while_its_vfork_child_runs(g):
    g.recorded("spawn")
    assert not g.read("spawn.out"), g.read("spawn.out")
    calls = in_order(g, "spawn")
    lent = [(c, a) for c, a in zip(calls, nested(calls)) if c["module"] == "[scheduler]" and c["function"].startswith("waiting") and c["caller"] in ("vfork", "clone", "clone3")]
    # It stands still as long as the child computes, and its own function goes on after that.
    of = {f: [(c, a) for c, a in lent if f in [x["function"] for x in a]] for f in ("f_vfork", "f_posix_spawn")}
    assert all(len(found) == 3 for found in of.values()), {f: [c["caller"] for c, _ in found] for f, found in of.items()}
    assert all(c["duration_ns"] for found in of.values() for c, _ in found), lent
    assert all(a[-1]["duration_ns"] and a[-1]["duration_ns"] >= c["duration_ns"] for found in of.values() for c, a in found), lent
    inside = [[x["function"] for x in a] for c, a in zip(calls, nested(calls)) if c["function"] == "f_execute"]
    # The child may run before its parent waits: then the parent is preempted, in the same call.
    assert len(inside) == 3 and all("f_vfork" in a and "vfork" in a[a.index("f_vfork"):] for a in inside), inside
    # Nothing comes too late: what waits for the child is no part of the call that made it.
    awaits = [a for c, a in zip(calls, nested(calls)) if c["module"] == "[kernel system calls]" and c["function"] == "wait4"]
    assert len(awaits) == 6 and all("f_await" in [x["function"] for x in a] for a in awaits), awaits
    return f"{max(c['duration_ns'] for c, _ in of['f_vfork']) / 1e6:.0f} ms"


@case
def nothing_is_left_or_changed(g):
    g.same_state("fresh", "recorded")


@case
def what_a_killed_sptrace_leaves_is_mended_and_the_program_goes_on(g):
    assert g.read("killed.state") != g.read("fresh.state") and g.read("killed.command") == "alive\n"
    assert "removed 2 instances of tracing" in g.recorded("next"), g.said("next")
    g.same_state("fresh", "mended")


@case
def the_last_open_frames_of_a_call_that_never_returns_are_shown(g):
    for name, end in (("hang.early", "end not seen"), ("hang", "")):
        lines = [line.split("| ", 1)[-1] for line in g.report(name, "tree").splitlines()]
        at = max((i for i, line in enumerate(lines) if line.strip().startswith("waiting")), default=None)
        assert at is not None and end in lines[at], (name, lines[-20:])
        depth = lambda line: len(line) - len(line.lstrip())
        around, level = [], depth(lines[at])
        for line in reversed(lines[:at]):
            if depth(line) < level and line.strip().endswith("{"):
                around.append(re.sub(r"\(.*", "", line.strip()))
                level = depth(line)
        # The program's functions come when its buffer is full, or with its end.
        expected = ["wait_for_partner", "fifo_open", "openat"] + (["f_hang"] if name == "hang" else [])
        assert [f for f in around if f in expected] == expected, (name, around)
    assert g.read("hang.status") == "137\n", g.read("hang.status")


@case
def lost_events_are_counted(g):
    lost = re.search(r"kernel: \d+ events recorded, (\d+) lost", g.recorded("tiny"))
    assert lost and int(lost[1]) > 1000 and "--kernel-buffer" in g.said("tiny"), g.said("tiny")
    coverage = g.report("tiny", "coverage")
    assert re.search(rf"\b{int(lost[1]):,}\b.*records for which the kernel had no room|records for which the kernel had no room.*\b{int(lost[1]):,}\b", coverage), coverage
    g.same_state("fresh", "tiny")
    return f"{lost[1]} lost"


@case
def each_late_frame_has_its_cause(g):
    g.recorded("calm")
    # The disturber makes a frame late by more than 8 ms; a machine that is busy by less, at times.
    late = {int(n): int(us) for n, us in re.findall(r"^frame (\d+): (\d+) us late$", g.read("frames.out"), re.M) if int(us) > 8000}
    calm = re.findall(r"^frame", g.read("calm.out"), re.M)
    assert len(late) >= 3, (late, calm)
    calls = in_order(g, "frames")
    around = nested(calls)
    frames = [i for i, c in enumerate(calls) if c["function"] == "f_frame"]
    assert len(frames) == 60, len(frames)
    for number, us in late.items():
        # From the moment at which the frame was due to its end: what came between.
        frame = calls[frames[number]]
        end = frame["start_ns"] + frame["duration_ns"]
        begin = end - us * 1000 - 10_000_000
        between = [c for c in calls if c["module"] == "[scheduler]" and c["duration_ns"] and c["start_ns"] + c["duration_ns"] > begin and c["start_ns"] < end]
        longest = max(between, key=lambda c: min(end, c["start_ns"] + c["duration_ns"]) - max(begin, c["start_ns"]), default=None)
        assert longest, (number, us)
        if not longest["function"].startswith("preempted by "): assert longest["function"] == "waiting" and longest["caller"] == "clock_nanosleep", (number, us, longest)
    # So says the report itself: of each lap that took longer, what took more than in most.
    laps = collections.defaultdict(list)
    for row in csv.DictReader(io.StringIO(g.report("frames", "waits", "--laps", "f_frame", "--format", "csv"))): laps[row["start_ns"]].append(row)
    long = [rows for rows in laps.values() if int(rows[0]["longer_ns"]) > 10_000_000]
    assert len(long) >= 3 and all(int(rows[0]["more_ns"]) * 2 > int(rows[0]["longer_ns"]) / len(rows) for rows in long), long
    by = [rows[0]["what"] for rows in long if rows[0]["cause"] == "disturb"]
    assert by and set(by) <= {"preempted", "queued"}, [rows[:2] for rows in long]
    shown = g.report("frames", "waits", "--laps", "f_frame").splitlines()
    assert sum(" disturb " in line and " ms" in line for line in shown) >= len(by), shown
    rows = waits(g, "frames", "preempted", cause="disturb")
    assert rows and sum(int(r["total_ns"]) for r in rows) > 25_000_000 and not waits(g, "calm", "preempted", cause="disturb"), rows
    # What was woken had to wait for the processor as long as the disturber had it.
    queued = max(int(r["longest_ns"]) for r in waits(g, "frames", "queued", cause="disturb"))
    assert queued > 10_000_000 and not waits(g, "calm", "queued", cause="disturb"), queued
    return f"{len(late)} late frames"


@case
def the_report_names_who_waits_for_whom_in_a_pipeline(g):
    g.recorded("pipeline")
    total = lambda rows: sum(int(r["total_ns"]) for r in rows)
    assert total(waits(g, "pipeline", "blocked", program="grep", **{"in": "pipe_read", "cause": "sed"})) > 0
    assert total(waits(g, "pipeline", "blocked", program="sort", **{"in": "pipe_read", "cause": "grep"})) > 0
    assert total(waits(g, "pipeline", "blocked", program="cat", **{"in": "pipe_write", "cause": "sed"})) > 0
    # The bottleneck is who is waited for on both of its sides, and runs.
    runs = collections.Counter()
    for r in csv.DictReader(io.StringIO(g.report("pipeline", "waits", "--format", "csv"))):
        if r["what"] in ("own", "kernel"): runs[r["program"]] += int(r["total_ns"])
    blocked = {p: total(waits(g, "pipeline", "blocked", program=p, **{"in": "pipe_(read|write)"})) for p in ("cat", "sed", "grep", "sort")}
    assert min(blocked, key=blocked.get) == "sed", blocked
    return str({p: f"{n / 1e6:.0f} ms" for p, n in blocked.items()})


@case
def a_running_process_is_seen_from_both_sides(g):
    g.recorded("attached")
    assert g.read("attached.command") == "alive\n"
    calls = in_order(g, "attached")
    reads = [a for c, a in zip(calls, nested(calls)) if c["module"] == "[kernel system calls]" and c["function"] == "read"]
    assert len(reads) > 10 and all("f_read_zero" in [x["function"] for x in a] for a in reads), len(reads)


def boot(sptrace, kernel, folder, quick):
    programs = {name: os.path.join(folder, name) for name in ("sides", "identity")}
    for name, program in programs.items(): subprocess.run(["cc", "-O1", "-static", "-o", program, os.path.join(HERE, "vm", f"{name}.c")], check=True)
    out = os.path.join(folder, kernel)
    files = [f"{sptrace}:/sptrace", *[f"{program}:/{name}" for name, program in programs.items()], *(["/dev/null:/quick"] if quick else [])]
    if not quick: files += [f"{os.path.realpath(shutil.which(n))}:/gnu/{n}" for n in ("dash", "cat", "sed", "grep", "sort")]
    got = subprocess.run([os.path.join(HERE, "vm/run"), "--time", "300", *[w for f in files for w in ("--file", f)], kernel, os.path.join(HERE, "vm/merged.sh"), out], capture_output=True, text=True)
    if got.returncode == 125 and "apt" in got.stderr: raise Skip(got.stderr.strip().splitlines()[-1])
    if got.returncode: raise AssertionError(f"the guest ended with {got.returncode}: {got.stdout[-1000:]}{got.stderr[-2000:]}")
    return Guest(sptrace, kernel, out, quick)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--sptrace", "--keep"): parser.add_argument(name)
    for name in ("--kernel", "--only"): parser.add_argument(name, action="append", default=[])
    for name in ("--list", "--quick"): parser.add_argument(name, action="store_true")
    a = parser.parse_args()
    chosen = [c for c in case.chosen(a.only) if not a.quick or c.__name__ not in SLOW]
    if a.list: return print("\n".join(c.__name__ for c in chosen))
    lacking = [n for n in ("qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb", "lz4", "zstd", "cc", "dash") if not shutil.which(n)]
    if lacking:
        print(f"skipped: not installed: {', '.join(lacking)}\n0 passed, 0 failed")
        return 0
    folder = a.keep or tempfile.mkdtemp(prefix="sptrace-merged-")
    os.makedirs(folder, exist_ok=True)
    guests = {}

    def of(kernel, function):
        def judge():
            if kernel not in guests: raise Skip("the guest did not come up")
            return function(guests[kernel])
        return judge

    def booted(kernel):
        def bring_up():
            out = os.path.join(folder, kernel)
            kept = a.keep and os.path.exists(os.path.join(out, ".status"))
            guests[kernel] = Guest(find_sptrace(a.sptrace), kernel, out, a.quick) if kept else boot(find_sptrace(a.sptrace), kernel, folder, a.quick)
        return bring_up

    cases = []
    for kernel in a.kernel or (KERNELS[:1] if a.quick else KERNELS):
        cases.append((f"{kernel}: boots", booted(kernel)))
        cases += [(f"{kernel}: {c.__name__}", of(kernel, c)) for c in chosen]
    status = run_cases(cases)
    if not status and not a.keep: shutil.rmtree(folder)
    else: print(f"what the guests left is in {folder}", file=sys.stderr)
    return status


if __name__ == "__main__": sys.exit(main())
