#!/usr/bin/env python3
"""Functions of the kernel: `sptrace ktrace` in guests with kernels of Debian's, which allow what the kernel of this machine may not.

usage: tests/guest.py [--quick] [--sptrace PATH] [--kernel VERSION]... [--only GLOB]... [--list] [--keep FOLDER]

Given: a built sptrace, cc, and what tests/vm/run needs; without one of these all is skipped, in one line. Gives: one line a case
and kernel, then `N passed, N failed` alone on the last line; status 1 if anything failed. Each kernel is booted once, and
tests/vm/kernel.sh records there what is looked at here. --quick: what takes longest is left out; 30 s in place of two minutes.
Must not know: how sptrace works.
"""
import argparse, collections, csv, io, itertools, json, os, re, shutil, subprocess, sys, tempfile

from harness.case import Cases, Skip, find_sptrace, run_cases

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = ("6.12", "6.1")
# Cases whose recordings are made in quick runs, too.
QUICK = {"functions_nest_in_their_system_calls_between_the_right_times", "counts_are_those_of_the_kernels_own_probes", "nothing_is_left_or_changed", "values_of_functions_are_those_of_the_calls", "a_script_counts_in_the_kernel_what_the_program_does", "events_begin_and_end_a_recording", "what_a_killed_sptrace_leaves_is_mended"}
case = Cases()


def leb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128: return value, at


class Guest:
    """What came back from one."""
    def __init__(self, sptrace, kernel, folder, quick): self.sptrace, self.kernel, self.folder, self.quick = sptrace, kernel, folder, quick

    def read(self, name):
        with open(os.path.join(self.folder, name), errors="replace") as f: return f.read()

    def said(self, name): return self.read(f"{name}.said")

    def recorded(self, name):
        assert self.read(f"{name}.status") == "0\n", (name, self.said(name))
        return self.said(name)

    def report(self, name, *arguments):
        got = subprocess.run([self.sptrace, "report", *arguments, "-i", f"{name}.data"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert got.returncode == 0, got.stderr
        return got.stdout

    def counts(self, name, module="[kernel]"):
        rows = csv.DictReader(io.StringIO(self.report(name, "functions", "--format", "csv")))
        return collections.Counter({row["function"]: int(row["calls"]) for row in rows if row["module"] == module})

    def calls(self, name):
        calls = [json.loads(line) for line in self.report(name, "export", "jsonl").splitlines()]
        return sorted(calls, key=lambda c: (c["start_ns"], c["depth"]))

    def clock(self, name):
        """Ticks a second and ticks at the start: the last numbers of the trace's header."""
        with open(os.path.join(self.folder, f"{name}.data"), "rb") as f: data = f.read()
        at = 16 + 12
        count, at = leb(data, at)
        for _ in range(count + 5):
            length, at = leb(data, at)
            at += length
        _, at = leb(data, at)
        hz, at = leb(data, at)
        return hz, leb(data, at)[0]

    def same_state(self, before, after):
        one, other = self.read(f"{before}.state"), self.read(f"{after}.state")
        lines = set(one.splitlines()) ^ set(other.splitlines())
        assert one == other, (before, after, sorted(lines)[:10])

    def is_at_top(self): return self.kernel == "6.1"


@case
def the_level_is_said_and_all_levels_work(g):
    for what in ("functions of the kernel", "probes in the kernel"): assert re.search(rf"^{what} +yes", g.read("check.out"), re.M), g.read("check.out")
    place = "the top level" if g.is_at_top() else "an instance of our own"
    count = re.search(r"level: functions: (\d+) of the kernel's \((\d+) to begin at, 3 levels", g.recorded("functions"))
    assert count and 200 < int(count[2]) < int(count[1]) < 6000 and place in g.said("functions"), g.said("functions")
    assert "level: probes: at entry and exit of 2 " in g.recorded("probes") and "level: events\n" in g.recorded("events")
    assert all(re.search(r"kernel: \d+ events recorded, 0 lost$", g.said(n).strip()) for n in ("functions", "probes", "events"))
    assert not g.counts("events") and set(g.counts("probes")) == {"ksys_write", "vfs_write"} and min(g.counts("probes").values()) > 200, g.counts("probes")
    return count[0]


@case
def functions_nest_in_their_system_calls_between_the_right_times(g):
    for name, within in (("functions", True), ("probes", False)):
        if g.quick and name == "probes": break
        hz, start = g.clock(name)
        in_ticks = lambda ns: start + ns * hz / 1e9
        calls, found = [c for c in g.calls(name) if c["duration_ns"] is not None], 0
        slack = hz / 1e8  # nanoseconds are whole numbers
        brackets = [line.split() for line in g.read(f"{name}.out").splitlines()]
        assert len(brackets) == 600
        for what, before, after in brackets:
            inside = [c for c in calls if int(before) - slack <= in_ticks(c["start_ns"]) and in_ticks(c["start_ns"] + c["duration_ns"]) <= int(after) + slack]
            outer = [c for c in inside if c["module"] == "[system calls]"]
            assert [c["function"] for c in outer] == [what], (name, what, outer)
            functions = [c for c in inside if c["module"] == "[kernel]"]
            first = f"__x64_sys_{what}" if within else "ksys_write" if what == "write" else None
            if first is None: continue
            assert functions and functions[0]["caller"] == what and functions[0]["function"] == first, (what, functions[:2])
            assert all(c["start_ns"] >= outer[0]["start_ns"] and c["depth"] > outer[0]["depth"] for c in functions)
            if what in ("read", "write") and within: assert [(c["function"], c["caller"]) for c in functions if c["function"].startswith(("ksys", "vfs"))] == [(f"ksys_{what}", first), (f"vfs_{what}", f"ksys_{what}")], functions
            found += len(functions)
        assert found >= (1500 if within else 400), found
    return f"{found} calls in 600 brackets"


def sheet(said, title):
    """The rows of a script's sheet, as words."""
    lines = said.splitlines()
    rows = itertools.takewhile(lambda line: line.startswith(" "), lines[lines.index(title) + 2:])
    return [row.replace(",", "").split() for row in rows]


@case
def values_of_functions_are_those_of_the_calls(g):
    g.recorded("values")
    # A call with something inside has its result where it ends.
    tree = re.sub(r"\} = (-?\d+) /\* (.*) \*/", r"\2 = \1", g.report("values", "tree"))
    # The program writes 64 bytes and 1 byte, 100 times each, and what it prints; it asks for an attribute that is not there.
    writes = collections.Counter(re.findall(r"vfs_write\((\d+)\).*? = (-?\d+)", tree))
    assert writes["64", "64"] == writes["1", "1"] == 100, writes.most_common(5)
    attributes = re.findall(r'vfs_getxattr\((.*?), "([\w.]+)", 0x[0-9a-f]+, 64\).*? = (-?\d+)', tree)
    assert len(attributes) == 100 and {a[1:] for a in attributes} <= {("user.none", "-61"), ("user.none", "-95")}, attributes[:3]
    reads = re.findall(r"ksys_read\((\d+), 0x[0-9a-f]+, (\d+)\)", tree)
    assert len([r for r in reads if r[1] == "64"]) >= 100 and not [r for r in reads if r[1] == "1"], reads[:5]
    assert g.counts("values")["ksys_read"] >= 200, "calls without values are there"
    lines = g.report("values", "lines")
    assert len(re.findall(r"^write\(4, 0x[0-9a-f]+, 64\) += 64$", lines, re.M)) == 100, lines[:500]


@case
def a_script_counts_in_the_kernel_what_the_program_does(g):
    said = g.recorded("script")
    assert "script: in the kernel, at 1 functions: 3 histograms" in said, said
    sizes = {int(size): int(count) for size, count in sheet(said, "sizes")}
    assert sizes[64] == sizes[1] == 100, sizes
    calls = sum(sizes.values())
    total, = (row for row in sheet(said, "bytes"))
    assert int(total[-1]) == sum(size * count for size, count in sizes.items()), (total, sizes)
    # Counted by a tracepoint, too; and those that the script wants are recorded, no others.
    assert g.counts("script", "[system calls]")["write"] == calls, (calls, g.counts("script", "[system calls]"))
    assert g.counts("script")["ksys_write"] == 100, g.counts("script")
    assert "by two" in said, said
    if g.quick: return f"{calls} calls"
    refused = g.said("refused")
    assert g.read("refused.status") == "2\n" and "do not calculate" in refused and "^" in refused, refused
    assert set(g.counts("calls", "[system calls]")) == {"getppid", "write"} and not g.counts("calls"), g.counts("calls", "[system calls]")
    return f"{calls} calls"


@case
def events_begin_and_end_a_recording(g):
    said = g.recorded("turns")
    assert "an event of --stop-on has ended the recording" in said, said
    tree = g.report("turns", "tree")
    assert "recording began at --start-on call:vfs_getxattr#3" in tree and "--stop-on return:vfs_getxattr#6" in tree, tree[:1000]
    # From the third call to the end of the sixth.
    assert g.counts("turns")["vfs_getxattr"] == 4, g.counts("turns")
    first = next(line for line in tree.splitlines() if "getxattr()" in line)
    assert "began earlier" in first, first
    if g.quick: return
    said = g.recorded("dumps")
    assert "dump 1 written to dumps.data at call:vfs_getxattr#40" in said and "dump 3 written to dumps.data.3 at exit" in said, said
    third = subprocess.run([g.sptrace, "report", "functions", "-i", "dumps.data.3"], cwd=g.folder, capture_output=True, text=True).stdout
    assert re.search(r"^ +100 .*vfs_getxattr$", third, re.M), third[:2000]


@case
def depth_patterns_and_roots_are_heeded(g):
    g.recorded("shallow")
    names = set(g.counts("shallow"))
    assert names and all(n.startswith("__x64_sys_") for n in names) and "__x64_sys_write" not in names and "__x64_sys_read" in names, names
    g.recorded("deep")
    deep = g.counts("deep")
    # Called through a pointer, these are only there if they are named.
    assert deep["pipe_write"] == deep["pipe_read"] == 100 and not g.counts("functions")["pipe_write"], deep
    assert {c["caller"] for c in g.calls("deep") if c["function"] == "pipe_write"} == {"vfs_write"}
    assert max(c["depth"] for c in g.calls("deep")) > max(c["depth"] for c in g.calls("functions"))
    assert "no_such_function*" in g.said("nothing") and g.read("nothing.status") == "125\n" and len(g.said("nothing").splitlines()) == 1, g.said("nothing")
    assert re.search(r"would trace \d{5} functions", g.said("many")) and len(g.said("many").splitlines()) == 1, g.said("many")


@case
def the_machines_interrupts_are_seen(g):
    g.recorded("machine")
    calls = g.counts("machine")
    assert calls["__sysvec_apic_timer_interrupt"] > 20 and calls["handle_softirqs"] + calls["__do_softirq"] > 5, calls
    assert not any(n.startswith("__x64_sys_") for n in calls), calls


@case
def a_running_process_and_what_it_starts_are_seen(g):
    g.recorded("attached")
    calls = g.calls("attached")
    starting = {c["pid"] for c in calls if c["function"] == "__x64_sys_wait4"}
    assert len(starting) == 1 and {c["pid"] for c in calls if c["function"] == "__x64_sys_execve"} - starting, starting


@case
def counts_are_those_of_the_kernels_own_probes(g):
    profiles = []
    for i in range(2 if g.quick else 3): profiles.append({name: int(hits) for name, hits, _ in re.findall(r"^ *(\w+) +(\d+) +(\d+)", g.read(f"profile{i}"), re.M)})
    assert profiles[0] == {"ppid": 0, "xattr": 0}, profiles
    for i, name in ((1, "counted"), (2, "probed")):
        if i == len(profiles): break
        g.recorded(name)
        ours = g.counts(name)
        theirs = {n: profiles[i][n] - profiles[i - 1][n] for n in ("ppid", "xattr")}
        assert theirs == {"ppid": ours["__x64_sys_getppid"], "xattr": ours["vfs_getxattr"]} and theirs["ppid"] == 100, (name, theirs, ours)


@case
def lost_events_are_counted(g):
    lost = re.search(r", (\d+) lost(?:, (\d+) gaps)?", g.recorded("tiny"))
    assert lost and int(lost[1]) > 1000, g.said("tiny")
    assert re.search(rf"^loss +.*\b{int(lost[1]) + int(lost[2] or 0):,} ", g.report("tiny"), re.M), g.report("tiny")
    depths = [c["depth"] for c in g.calls("tiny")]
    assert len(depths) > 100 and max(depths) < 12, (len(depths), max(depths, default=0))
    return f"{lost[1]} lost"


@case
def nothing_is_left_or_changed(g):
    g.same_state("fresh", "recorded")
    g.recorded("own")
    g.same_state("own", "own.after")
    assert g.counts("own")["__x64_sys_getppid"] == 100, g.counts("own")


@case
def what_a_killed_sptrace_leaves_is_mended(g):
    for level in ("functions",) if g.quick else ("functions", "probes"):
        assert g.read(f"killed.{level}.state") != g.read("own.state"), level
        g.same_state("own", f"cleaned.{level}")
    if g.is_at_top() and not g.quick:
        assert g.read("taken.tracer") == "function\n" and "/run/sptrace/ktrace-" in g.said("taken"), g.said("taken")
    removed = "0" if g.is_at_top() and not g.quick else "2"
    top = ", gave back the top level of tracing" if g.is_at_top() else ""
    assert f"removed {removed} instances of tracing, 0 probes{top}" in g.said("cleaned.functions"), g.said("cleaned.functions")
    assert g.quick or "removed 2 instances of tracing, 2 probes" in g.recorded("next"), g.said("next")


@case
def another_user_is_not_disturbed(g):
    for before, name in (("used", "used"), ("switched", "switched")):
        g.same_state(before, f"{before}.after")
        if not g.is_at_top():
            g.recorded(name)
            assert g.counts(name)["__x64_sys_getppid"] == 100
            continue
        said = g.said(name)
        assert g.read(f"{name}.status") == "125\n" and len(said.splitlines()) == 1 and "somebody else uses" in said, said
        assert ("current_tracer" if name == "used" else "sched_switch") in said and "--level events" in said, said
    g.recorded("used.events")


@case
def hidden_addresses_leave_the_events_and_are_named(g):
    assert "level: events (no functions: " in g.recorded("hidden") and "kptr_restrict" in g.said("hidden"), g.said("hidden")
    assert g.read("hidden.asked.status") == "125\n" and "kptr_restrict" in g.said("hidden.asked"), g.said("hidden.asked")


def boot(sptrace, kernel, folder, quick, script="kernel.sh"):
    programs = {name: os.path.join(folder, name) for name in ("brackets", "identity")}
    for name, program in programs.items(): subprocess.run(["cc", "-O1", "-static", "-o", program, os.path.join(HERE, "vm", f"{name}.c")], check=True)
    out = os.path.join(folder, kernel)
    files = [f"{sptrace}:/sptrace", *[f"{program}:/{name}" for name, program in programs.items()], *(["/dev/null:/quick"] if quick else [])]
    got = subprocess.run([os.path.join(HERE, "vm/run"), "--time", "240", "--processors", "1" if quick else "2", *[w for f in files for w in ("--file", f)], kernel, os.path.join(HERE, "vm", script), out], capture_output=True, text=True)
    if got.returncode == 125 and "apt" in got.stderr: raise Skip(got.stderr.strip().splitlines()[-1])
    if got.returncode: raise AssertionError(f"the guest ended with {got.returncode}: {got.stdout[-1000:]}{got.stderr[-2000:]}")
    # A kernel comes over the network the first time.
    errors = [line for line in got.stderr.splitlines() if not line.endswith(": downloading")]
    if errors: raise AssertionError("\n".join(errors))
    return Guest(sptrace, kernel, out, quick)


def main(case, script, about):
    """The cases of a harness that looks at what `script` has left in the guests."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--sptrace", "--keep"): parser.add_argument(name)
    for name in ("--kernel", "--only"): parser.add_argument(name, action="append", default=[])
    for name in ("--list", "--quick"): parser.add_argument(name, action="store_true")
    a = parser.parse_args()
    chosen = [c for c in case.chosen(a.only) if not a.quick or script != "kernel.sh" or c.__name__ in QUICK]
    if a.list: return print("\n".join(c.__name__ for c in chosen))
    lacking = [n for n in ("qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb", "lz4", "zstd", "cc") if not shutil.which(n)]
    if lacking:
        print(f"skipped: not installed: {', '.join(lacking)}\n0 passed, 0 failed")
        return 0
    folder = a.keep or tempfile.mkdtemp(prefix="sptrace-guest-")
    os.makedirs(folder, exist_ok=True)
    guests = {}

    def of(kernel, function):
        def judge():
            if kernel not in guests: raise Skip("the guest did not come up")
            return function(guests[kernel])
        return judge

    def booted(kernel):
        def bring_up(): guests[kernel] = boot(find_sptrace(a.sptrace), kernel, folder, a.quick, script)
        return bring_up

    cases = []
    for kernel in a.kernel or KERNELS:
        cases.append((f"{kernel}: boots", booted(kernel)))
        cases += [(f"{kernel}: {c.__name__}", of(kernel, c)) for c in chosen]
    status = run_cases(cases)
    if not status and not a.keep: shutil.rmtree(folder)
    else: print(f"what the guests left is in {folder}", file=sys.stderr)
    return status


if __name__ == "__main__": sys.exit(main(case, "kernel.sh", __doc__))
